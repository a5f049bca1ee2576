//! Writes notes into the record: the top keys of each minute, sampled requests, and events. Rolls the lists of top keys
//! up into hours and days. The threads of `metrics_recorder.rs` call it every second.
//!
//! Bounds: [`MAX_WAITING_MINUTES`] minutes while another process still writes the record, and [`MAX_SAMPLE_KINDS`]
//! kinds of samples.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use super::events::WaitingEvents;
use crate::record::insight::{
    KeyLists, ListSums, LiveInsight, MAX_LISTED_KEYS, Minute, RequestSample,
};
use crate::record::{Note, Record, Topic};

const SECONDS_PER_MINUTE: u64 = 60;
const SECONDS_PER_HOUR: u64 = 3_600;
const SECONDS_PER_DAY: u64 = 86_400;

/// The largest number of minutes that wait for the record. A further one replaces the oldest.
const MAX_WAITING_MINUTES: usize = 5;
/// Seconds between the end of an hour or a day and its roll-up, in which a process that takes over writes the minutes
/// that waited. Minutes that are written later are missing in the hour.
const COMPLETION_DELAY_SECONDS: u64 = 120;
/// Seconds in which at most one sample of a kind is kept for days.
const KEPT_SAMPLE_INTERVAL_SECONDS: u64 = 10;
/// The largest number of kinds of which a sample is kept in [`KEPT_SAMPLE_INTERVAL_SECONDS`]. Samples of further kinds
/// are not kept for days.
const MAX_SAMPLE_KINDS: usize = 32;

/// Writes the notes of this process, every second and at the end of each minute.
pub(super) struct NoteWriter {
    /// The keys and samples that workers report.
    insight: Arc<LiveInsight>,
    /// Events that wait to be written.
    events: Arc<Mutex<WaitingEvents>>,
    /// The first second of the current minute, in seconds since 1970.
    minute_start: u64,
    /// Minutes that wait for the record, each with its first second.
    waiting_minutes: VecDeque<(u64, KeyLists)>,
    /// Kinds of samples of which one was kept, each with the second until which no other sample of the kind is kept.
    kept_sample_kinds: Vec<(String, u64)>,
}

impl NoteWriter {
    /// Begins `minute`. Keys that were counted before are dropped.
    pub(super) fn new(
        insight: Arc<LiveInsight>,
        events: Arc<Mutex<WaitingEvents>>,
        minute: Minute,
    ) -> NoteWriter {
        insight.begin_minute(minute, |_, _| ());
        NoteWriter {
            insight,
            events,
            minute_start: minute.start,
            waiting_minutes: VecDeque::new(),
            kept_sample_kinds: Vec::new(),
        }
    }

    /// Writes the minute if it ended with `second`, and the events and samples so far. Must be called at the end of
    /// each second. Without a record all of them wait. `seed` is that with which the keys of the next minute are
    /// hashed.
    pub(super) fn end_second(&mut self, record: Option<&Record>, second: u64, seed: u64) {
        let next_minute = minute_of(second + 1, seed);
        if next_minute.start != self.minute_start {
            self.begin_minute(record, next_minute);
        }
        let Some(record) = record else {
            return;
        };
        for (start, lists) in self.waiting_minutes.drain(..) {
            write_note(record, Topic::Minute, start, &lists, true);
        }
        add_events(record, &self.events);
        for sample in self.insight.take_samples() {
            let is_kept = self.should_keep_sample(&sample, second);
            // A sample is noted at its end, because the file of the day in which it began may be closed.
            let end = (sample.at + sample.seconds) as u64;
            write_note(record, Topic::Sample, end, &sample, is_kept);
        }
    }

    /// Writes the lists of the current minute at the end of the process.
    pub(super) fn write_current_minute(&mut self, record: Option<&Record>) {
        // No other minute begins, so the start and the seed of the next one do not matter.
        self.begin_minute(record, Minute::default());
    }

    /// Writes the lists of the current minute, or lets them wait for the record, and begins another minute. A minute
    /// without decisions is dropped.
    fn begin_minute(&mut self, record: Option<&Record>, next_minute: Minute) {
        self.minute_start = next_minute.start;
        let waiting_minutes = &mut self.waiting_minutes;
        self.insight
            .begin_minute(next_minute, |start, lists| match record {
                _ if lists.decided.total == 0 => {}
                Some(record) => write_note(record, Topic::Minute, start, &lists, true),
                None => {
                    if waiting_minutes.len() == MAX_WAITING_MINUTES {
                        waiting_minutes.pop_front();
                    }
                    waiting_minutes.push_back((start, lists));
                }
            });
    }

    /// Whether a sample is kept for days, and notes its kind if so. Kept is the first of a kind in
    /// [`KEPT_SAMPLE_INTERVAL_SECONDS`], for at most [`MAX_SAMPLE_KINDS`] kinds. The kind is the outcome, the limit
    /// that decided and its standing.
    fn should_keep_sample(&mut self, sample: &RequestSample, second: u64) -> bool {
        self.kept_sample_kinds.retain(|(_, until)| *until > second);
        let limit = sample.limit.as_ref();
        let limit_text = limit.map(|limit| format!("{} {}", limit.limit, limit.standing));
        let kind = sample.outcome.clone() + &limit_text.unwrap_or_default();
        let was_kept = self
            .kept_sample_kinds
            .iter()
            .any(|(kept_kind, _)| *kept_kind == kind);
        if was_kept || self.kept_sample_kinds.len() >= MAX_SAMPLE_KINDS {
            return false;
        }
        self.kept_sample_kinds
            .push((kind, second + KEPT_SAMPLE_INTERVAL_SECONDS));
        true
    }
}

/// Returns the minute that contains a second. Its keys are hashed with `seed`.
pub(super) fn minute_of(second: u64, seed: u64) -> Minute {
    let start = second - second % SECONDS_PER_MINUTE;
    Minute { start, seed }
}

/// Rolls the lists of minutes up into hours, and those of hours into days, whichever process has written them.
#[derive(Default)]
pub(super) struct ListRollUp {
    /// The ends of the last hour and of the last day that were rolled up, in seconds since 1970; 0 before the first
    /// call.
    rolled_up_until: [u64; 2],
}

impl ListRollUp {
    /// Rolls up the hours and days that ended at least [`COMPLETION_DELAY_SECONDS`] before `now`, in seconds since
    /// 1970. It waits for the disk.
    ///
    /// # Errors
    ///
    /// The record cannot be read. The next call tries again.
    pub(super) fn roll_up_complete(&mut self, record: &Record, now: u64) -> io::Result<()> {
        // A clock that runs ahead must not end an hour or a day early: the record ends them later.
        let now = now.min(record.final_until() + COMPLETION_DELAY_SECONDS);
        let steps = [
            (Topic::Minute, Topic::Hour, SECONDS_PER_HOUR),
            (Topic::Hour, Topic::Day, SECONDS_PER_DAY),
        ];
        for ((shorter, longer, step), rolled_up_until) in
            steps.into_iter().zip(&mut self.rolled_up_until)
        {
            let until = now.saturating_sub(COMPLETION_DELAY_SECONDS) / step * step;
            if until == *rolled_up_until {
                continue;
            }
            let mut from = until
                .saturating_sub(shorter.retention_seconds())
                .next_multiple_of(step);
            // The latest note is visited first, and spans before it were rolled up already.
            record.visit_notes(longer, (from, until), |latest| {
                from = from.max(latest.at + step);
                ControlFlow::Break(())
            })?;
            for start in (from..until).step_by(step as usize) {
                roll_up(record, shorter, longer, (start, start + step))?;
            }
            *rolled_up_until = until;
        }
        Ok(())
    }
}

/// Adds up the lists of the topic `shorter` in a span, and writes the sum as one note of the topic `longer`. Notes that
/// cannot be parsed are left out, and a span without decisions gets no note.
fn roll_up(record: &Record, shorter: Topic, longer: Topic, span: (u64, u64)) -> io::Result<()> {
    let mut sums = ListSums::default();
    record.visit_notes(shorter, span, |note| {
        if let Ok(lists) = serde_json::from_slice(&note.text) {
            sums.add(&lists);
        }
        ControlFlow::Continue(())
    })?;
    let lists = sums.into_lists(MAX_LISTED_KEYS);
    if lists.decided.total > 0 {
        write_note(record, longer, span.0, &lists, true);
    }
    Ok(())
}

/// Adds the events that wait to the record.
pub(super) fn add_events(record: &Record, events: &Mutex<WaitingEvents>) {
    // Held until the record has them: another order must not find the queue empty and take its own event for recorded.
    let mut events = events.lock();
    for event in events.take() {
        write_note(record, Topic::Event, event.at, &event, true);
    }
}

/// Adds a note of the second `at` to the record. Only a note with `is_kept` is written to the disk.
fn write_note(record: &Record, topic: Topic, at: u64, content: &impl Serialize, is_kept: bool) {
    // Serializing these types cannot fail.
    if let Ok(text) = serde_json::to_vec(content) {
        record.add_note(topic, Note { at, text }, is_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::insight::LimitKey;
    use crate::record::{Second, Settings};

    const HOUR: u64 = 500_000 * 3_600;

    fn open_record(folder: &std::path::Path) -> Record {
        Record::open(&Settings {
            folder: Some(folder.to_owned()),
            max_bytes: Settings::MIN_BYTES,
        })
        .unwrap()
    }

    fn writer_at(at: u64) -> NoteWriter {
        NoteWriter::new(Arc::default(), Arc::default(), minute_of(at, 1))
    }

    fn count_key(writer: &NoteWriter, key: u64, times: u64) {
        let name = || LimitKey {
            limit: "per-ip".into(),
            key: format!("ip={key}"),
        };
        for _ in 0..times {
            writer.insight.decided.count(key, 1, name);
        }
    }

    /// The time of each list in the record and the counts of its keys, the latest list first.
    fn noted_counts(record: &Record, topic: Topic) -> Vec<(u64, Vec<u64>)> {
        let mut noted_counts = Vec::new();
        let collect = |note: &Note| {
            let lists: KeyLists = serde_json::from_slice(&note.text).unwrap();
            let counts = lists.decided.keys.iter().map(|listed| listed.count);
            noted_counts.push((note.at, counts.collect()));
            ControlFlow::Continue(())
        };
        record.visit_notes(topic, (0, 2 * HOUR), collect).unwrap();
        noted_counts
    }

    #[test]
    fn an_hour_has_the_minutes_that_a_crash_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let record = open_record(folder.path());
        let mut before = writer_at(HOUR);
        count_key(&before, 1, 5);
        before.end_second(Some(&record), HOUR + 59, 1);
        record.write_pending().unwrap();
        // A crash loses the keys that were counted since then.
        count_key(&before, 2, 9);
        drop((before, record));
        let record = open_record(folder.path());
        let mut after = writer_at(HOUR + 1_800);
        count_key(&after, 1, 3);
        count_key(&after, 3, 1);
        after.end_second(Some(&record), HOUR + 1_859, 1);
        let record_until = |from: u64, until: u64| {
            for at in (from..=until).step_by(600) {
                let values = Vec::new();
                record.add(Second { at, values });
                record.write_pending().unwrap();
            }
        };
        let mut roll_up = ListRollUp::default();
        // A clock that is ahead ends neither the hour nor the day.
        roll_up
            .roll_up_complete(&record, HOUR + 3 * 86_400)
            .unwrap();
        roll_up
            .roll_up_complete(&record, HOUR + 3_600 + COMPLETION_DELAY_SECONDS - 1)
            .unwrap();
        assert_eq!(noted_counts(&record, Topic::Hour), []);
        record_until(HOUR, HOUR + 2 * 3_600);
        roll_up
            .roll_up_complete(&record, HOUR + 3_600 + COMPLETION_DELAY_SECONDS)
            .unwrap();
        ListRollUp::default()
            .roll_up_complete(&record, HOUR + 3 * 3_600)
            .unwrap();
        assert_eq!(noted_counts(&record, Topic::Hour), [(HOUR, vec![8, 1])]);
        let midnight = HOUR - HOUR % 86_400;
        record_until(HOUR + 3 * 3_600, midnight + 86_400 + 3_600);
        roll_up
            .roll_up_complete(&record, midnight + 86_400 + COMPLETION_DELAY_SECONDS)
            .unwrap();
        assert_eq!(noted_counts(&record, Topic::Day), [(midnight, vec![8, 1])]);
    }

    #[test]
    fn minutes_that_wait_for_the_record_stay_what_they_are() {
        let mut writer = writer_at(HOUR);
        for number in 0..MAX_WAITING_MINUTES as u64 + 2 {
            count_key(&writer, 1, 1 + number);
            writer.end_second(None, HOUR + number * 60 + 59, 1);
        }
        let folder = tempfile::tempdir().unwrap();
        let record = open_record(folder.path());
        writer.end_second(Some(&record), HOUR + 7 * 60, 1);
        let noted = noted_counts(&record, Topic::Minute);
        let expected = (2..7)
            .rev()
            .map(|number| (HOUR + number * 60, vec![1 + number]));
        assert_eq!(noted, expected.collect::<Vec<_>>());
    }

    #[test]
    fn samples_are_noted_by_their_end() {
        let sample = serde_json::json!({
            "at": HOUR as f64 - 5.0, "seconds": 7.5, "method": "GET", "status": 200,
            "outcome": "admitted", "origin": "upstream", "ip": "192.0.2.1",
        });
        let folder = tempfile::tempdir().unwrap();
        let record = open_record(folder.path());
        let mut writer = writer_at(HOUR);
        writer
            .insight
            .add_sample(serde_json::from_value(sample).unwrap());
        writer.end_second(Some(&record), HOUR + 2, 1);
        let mut sample_noted_at = None;
        let span = (HOUR, HOUR + 9);
        let read_note = |note: &Note| {
            sample_noted_at = Some(note.at);
            ControlFlow::Continue(())
        };
        record.visit_notes(Topic::Sample, span, read_note).unwrap();
        assert_eq!(sample_noted_at, Some(HOUR + 2));
    }
}
