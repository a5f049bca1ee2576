//! Writes top keys, sampled requests and events into the record.
//!
//! Bounds: [`MAX_WAITING`] minutes while another process still writes the record.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use crate::record::insight::{
    GatewayEvent, Insight, KeyLists, LONGEST, ListSums, Minute, RequestSample,
};
use crate::record::{Record, Topic};

/// Maximum number of minutes that wait for the record.
const MAX_WAITING: usize = 5;
/// Seconds after an hour or day when no process adds lists to it any more.
const SETTLE_SECONDS: u64 = 120;
/// Seconds in which at most one sample of a kind is kept for days.
const SAMPLE_PAUSE: u64 = 10;
/// Maximum number of kinds of samples at a time.
const MAX_KINDS: usize = 32;

/// Collects the notes of this process, minute by minute.
pub(super) struct NoteWriter {
    insight: Arc<Insight>,
    events: Arc<Mutex<Vec<GatewayEvent>>>,
    /// First second of the current minute.
    minute: u64,
    /// Minutes that wait for the record.
    waiting: VecDeque<(u64, KeyLists)>,
    /// Kinds of samples with one that is kept, and until when no further one is.
    kept: Vec<(String, u64)>,
}

impl NoteWriter {
    pub(super) fn new(
        insight: Arc<Insight>,
        events: Arc<Mutex<Vec<GatewayEvent>>>,
        minute: Minute,
    ) -> NoteWriter {
        insight.begin_minute(minute, |_, _| ());
        NoteWriter {
            insight,
            events,
            minute: minute.at,
            waiting: VecDeque::new(),
            kept: Vec::new(),
        }
    }

    /// Call it at the end of each second. Events and samples stay where they are while there is no record.
    pub(super) fn tick(&mut self, record: Option<&Record>, at: u64, seed: u64) {
        let next = minute_of(at + 1, seed);
        if next.at != self.minute {
            self.turn(record, next);
        }
        let Some(record) = record else {
            return;
        };
        for (at, lists) in self.waiting.drain(..) {
            note(record, Topic::Minute, at, &lists, true);
        }
        for event in self.events.lock().drain(..) {
            note(record, Topic::Event, event.at, &event, true);
        }
        for sample in self.insight.take_samples() {
            let kept = self.keeps(&sample, at);
            // By its end, because the file of the day in which it began may be closed.
            let over = (sample.at + sample.seconds) as u64;
            note(record, Topic::Sample, over, &sample, kept);
        }
    }

    /// Writes the current minute, at the end of the process.
    pub(super) fn end(&mut self, record: Option<&Record>) {
        self.turn(record, Minute::default());
    }

    fn turn(&mut self, record: Option<&Record>, next: Minute) {
        self.minute = next.at;
        let waiting = &mut self.waiting;
        self.insight.begin_minute(next, |at, lists| match record {
            _ if lists.asked.total == 0 => {}
            Some(record) => note(record, Topic::Minute, at, &lists, true),
            None => {
                if waiting.len() == MAX_WAITING {
                    waiting.pop_front();
                }
                waiting.push_back((at, lists));
            }
        });
    }

    fn keeps(&mut self, sample: &RequestSample, at: u64) -> bool {
        self.kept.retain(|(_, until)| *until > at);
        let limit = sample.limit.as_ref();
        let limit = limit.map(|limit| format!("{} {}", limit.limit, limit.standing));
        let kind = sample.outcome.clone() + &limit.unwrap_or_default();
        let seen = self.kept.iter().any(|(kept_kind, _)| *kept_kind == kind);
        if seen || self.kept.len() >= MAX_KINDS {
            return false;
        }
        self.kept.push((kind, at + SAMPLE_PAUSE));
        true
    }
}

/// The minute of a second.
pub(super) fn minute_of(second: u64, seed: u64) -> Minute {
    let at = second - second % 60;
    Minute { at, seed }
}

/// Rolls complete minutes up into hours and hours into days, whichever process has written them.
#[derive(Default)]
pub(super) struct Rollup {
    /// The end of the last hour and of the last day that are done.
    done_until: [u64; 2],
}

impl Rollup {
    /// Call it every second; it may wait for the disk.
    pub(super) fn keep(&mut self, record: &Record, now: u64) -> io::Result<()> {
        // A clock that runs ahead must not end a day early.
        let now = now.min(record.settled() + SETTLE_SECONDS);
        let steps = [
            (Topic::Minute, Topic::Hour, 3_600),
            (Topic::Hour, Topic::Day, 86_400),
        ];
        for ((shorter, longer, step), done_until) in steps.into_iter().zip(&mut self.done_until) {
            let until = now.saturating_sub(SETTLE_SECONDS) / step * step;
            if until == *done_until {
                continue;
            }
            let mut from = until.saturating_sub(shorter.kept()).next_multiple_of(step);
            record.notes(longer, (from, until), |(at, _)| {
                from = from.max(at + step);
                ControlFlow::Break(())
            })?;
            for at in (from..until).step_by(step as usize) {
                roll_up(record, shorter, longer, (at, at + step))?;
            }
            *done_until = until;
        }
        Ok(())
    }
}

fn roll_up(record: &Record, shorter: Topic, longer: Topic, span: (u64, u64)) -> io::Result<()> {
    let mut all = ListSums::default();
    record.notes(shorter, span, |(_, text)| {
        if let Ok(lists) = serde_json::from_slice(text) {
            all.add(&lists);
        }
        ControlFlow::Continue(())
    })?;
    let all = all.lists(LONGEST);
    if all.asked.total > 0 {
        note(record, longer, span.0, &all, true);
    }
    Ok(())
}

fn note(record: &Record, topic: Topic, at: u64, content: &impl Serialize, kept: bool) {
    // These types always serialize.
    if let Ok(text) = serde_json::to_vec(content) {
        record.note(topic, (at, text), kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::insight::LimitKey;
    use crate::record::{Note, Second, Settings};

    const HOUR: u64 = 500_000 * 3_600;

    fn open(folder: &std::path::Path) -> Record {
        Record::open(&Settings {
            folder: Some(folder.to_owned()),
            most_bytes: Settings::LEAST,
        })
        .unwrap()
    }

    fn writer(at: u64) -> NoteWriter {
        NoteWriter::new(Arc::default(), Arc::default(), minute_of(at, 1))
    }

    fn count(writer: &NoteWriter, key: u64, times: u64) {
        let name = || LimitKey {
            limit: "per-ip".into(),
            key: format!("ip={key}"),
        };
        for _ in 0..times {
            writer.insight.asked.count(key, 1, name);
        }
    }

    /// When lists were noted, and of whom, the latest first.
    fn noted(record: &Record, topic: Topic) -> Vec<(u64, Vec<u64>)> {
        let mut noted = Vec::new();
        let see = |(at, text): &Note| {
            let lists: KeyLists = serde_json::from_slice(text).unwrap();
            let counts = lists.asked.keys.iter().map(|listed| listed.count);
            noted.push((*at, counts.collect()));
            ControlFlow::Continue(())
        };
        record.notes(topic, (0, 2 * HOUR), see).unwrap();
        noted
    }

    #[test]
    fn an_hour_has_the_minutes_that_a_crash_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let record = open(folder.path());
        let mut before = writer(HOUR);
        count(&before, 1, 5);
        before.tick(Some(&record), HOUR + 59, 1);
        record.keep().unwrap();
        // What it has counted since is lost with it.
        count(&before, 2, 9);
        drop((before, record));
        let record = open(folder.path());
        let mut after = writer(HOUR + 1_800);
        count(&after, 1, 3);
        count(&after, 3, 1);
        after.tick(Some(&record), HOUR + 1_859, 1);
        let lives = |from: u64, until: u64| {
            for at in (from..=until).step_by(600) {
                let values = Vec::new();
                record.add(Second { at, values });
                record.keep().unwrap();
            }
        };
        let mut longer = Rollup::default();
        // A clock that is ahead ends neither the hour nor the day.
        longer.keep(&record, HOUR + 3 * 86_400).unwrap();
        longer
            .keep(&record, HOUR + 3_600 + SETTLE_SECONDS - 1)
            .unwrap();
        assert_eq!(noted(&record, Topic::Hour), []);
        lives(HOUR, HOUR + 2 * 3_600);
        longer.keep(&record, HOUR + 3_600 + SETTLE_SECONDS).unwrap();
        Rollup::default().keep(&record, HOUR + 3 * 3_600).unwrap();
        assert_eq!(noted(&record, Topic::Hour), [(HOUR, vec![8, 1])]);
        let midnight = HOUR - HOUR % 86_400;
        lives(HOUR + 3 * 3_600, midnight + 86_400 + 3_600);
        longer
            .keep(&record, midnight + 86_400 + SETTLE_SECONDS)
            .unwrap();
        assert_eq!(noted(&record, Topic::Day), [(midnight, vec![8, 1])]);
    }

    #[test]
    fn minutes_that_wait_for_the_record_stay_what_they_are() {
        let mut writer = writer(HOUR);
        for number in 0..MAX_WAITING as u64 + 2 {
            count(&writer, 1, 1 + number);
            writer.tick(None, HOUR + number * 60 + 59, 1);
        }
        let folder = tempfile::tempdir().unwrap();
        let record = open(folder.path());
        writer.tick(Some(&record), HOUR + 7 * 60, 1);
        let noted = noted(&record, Topic::Minute);
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
        let (record, mut writer) = (open(folder.path()), writer(HOUR));
        writer
            .insight
            .add_sample(serde_json::from_value(sample).unwrap());
        writer.tick(Some(&record), HOUR + 2, 1);
        let mut found = None;
        let span = (HOUR, HOUR + 9);
        let see = |(at, _): &Note| {
            found = Some(*at);
            ControlFlow::Continue(())
        };
        record.notes(Topic::Sample, span, see).unwrap();
        assert_eq!(found, Some(HOUR + 2));
    }
}
