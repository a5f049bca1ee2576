//! Writes who was counted, single requests and events into the record.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use crate::facts::{Event, Facts, LONGEST, Lists, Sample};
use crate::record::{Record, Topic};

/// Seconds in which one sample of a kind is kept for days.
const KEPT_EACH: u64 = 10;
/// Kinds of samples that are told apart for that.
const KINDS: usize = 32;

/// See the module.
pub(super) struct Witness {
    facts: Arc<Facts>,
    events: Arc<Mutex<Vec<Event>>>,
    /// First second of the minute and of the hour that are counted now.
    minute: u64,
    hour: u64,
    /// What was counted in this hour's minutes that are over.
    lists: Lists,
    /// Kinds of samples of which one is kept, and until when that is enough.
    kept: Vec<(String, u64)>,
}

impl Witness {
    pub(super) fn new(facts: Arc<Facts>, events: Arc<Mutex<Vec<Event>>>, now: u64) -> Witness {
        Witness {
            facts,
            events,
            minute: now - now % 60,
            hour: now - now % 3_600,
            lists: Lists::default(),
            kept: Vec::new(),
        }
    }

    /// At the end of each second.
    pub(super) fn tick(&mut self, record: &Record, at: u64) {
        for event in self.events.lock().drain(..) {
            note(record, Topic::Event, event.at, &event, true);
        }
        for sample in self.facts.samples() {
            let kept = self.keeps(&sample, at);
            note(record, Topic::Sample, sample.at as u64, &sample, kept);
        }
        let next = at + 1;
        if next - next % 60 != self.minute {
            self.end_minute(record);
            self.minute = next - next % 60;
        }
        if next - next % 3_600 != self.hour {
            self.end_hour(record);
            self.hour = next - next % 3_600;
        }
    }

    /// At the end of the process.
    pub(super) fn end(&mut self, record: &Record) {
        self.end_minute(record);
        self.end_hour(record);
    }

    fn end_minute(&mut self, record: &Record) {
        let lists = self.facts.lists(true);
        if lists.asked.total > 0 {
            note(record, Topic::Minute, self.minute, &lists, true);
            self.lists.add(&lists);
            // What is below in many minutes may be above in the hour.
            self.lists.shorten(10 * LONGEST);
        }
    }

    fn end_hour(&mut self, record: &Record) {
        let mut lists = std::mem::take(&mut self.lists);
        if lists.asked.total > 0 {
            lists.shorten(LONGEST);
            note(record, Topic::Hour, self.hour, &lists, true);
        }
    }

    fn keeps(&mut self, sample: &Sample, at: u64) -> bool {
        self.kept.retain(|(_, until)| *until > at);
        let limit = sample.limit.as_ref();
        let limit = limit.map(|limit| format!("{} {}", limit.limit, limit.standing));
        let kind = sample.outcome.clone() + &limit.unwrap_or_default();
        let seen = self.kept.iter().any(|(known, _)| *known == kind);
        if seen || self.kept.len() >= KINDS {
            return false;
        }
        self.kept.push((kind, at + KEPT_EACH));
        true
    }
}

fn note(record: &Record, topic: Topic, at: u64, content: &impl Serialize, kept: bool) {
    // Nothing in them can fail to be written as JSON.
    if let Ok(text) = serde_json::to_vec(content) {
        record.note(topic, (at, text), kept);
    }
}
