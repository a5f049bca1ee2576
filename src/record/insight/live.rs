//! The lists and examples to which all workers add, minute by minute. The thread that records seconds collects them.

use super::key_list::KeyLists;
use super::key_plans::KeyPlans;
use super::request_sample::RequestSample;
use super::top_keys::TopKeys;
use parking_lot::Mutex;

/// The most examples that wait to be collected. Further examples are dropped.
const MAX_PENDING_SAMPLES: usize = 1_024;

/// The counts and examples of all workers since the last collection.
#[derive(Debug, Default)]
pub struct LiveInsight {
    /// The keys of all decisions of limits, refusals among them.
    pub decided: TopKeys,
    /// The keys that limits refused.
    pub refused: TopKeys,
    /// The plans by which keys were counted.
    pub plans: KeyPlans,
    /// The current minute. Its lock is held while lists are taken, so that a minute ends for both lists at once.
    minute: Mutex<Minute>,
    /// The examples that wait to be collected.
    samples: Mutex<Vec<RequestSample>>,
}

/// A minute for which lists are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// The first second of the minute, since 1970.
    pub start: u64,
    /// Names the secret under which keys are hashed; lists with different seeds cannot be merged exactly.
    pub seed: u64,
}

impl LiveInsight {
    /// Adds an example, or drops it if too many wait.
    pub fn add_sample(&self, sample: RequestSample) {
        let mut samples = self.samples.lock();
        if samples.len() < MAX_PENDING_SAMPLES {
            samples.push(sample);
        }
    }

    /// Ends the current minute and begins `next`. `store` gets the first second and the lists of the minute that ended;
    /// no reader sees the lists of `next` before it returns.
    pub fn begin_minute(&self, next: Minute, store: impl FnOnce(u64, KeyLists)) {
        let mut minute = self.minute.lock();
        let ended_minute = std::mem::replace(&mut *minute, next);
        let lists = KeyLists {
            decided: self.decided.take_list(ended_minute.seed),
            refused: self.refused.take_list(ended_minute.seed),
        };
        store(ended_minute.start, lists);
    }

    /// Returns the first second of the current minute, its lists, and the result of `read_stored`, which reads stored minutes.
    ///
    /// Each minute is in exactly one of them: in the current lists or in the stored ones.
    pub fn with_current<T, E>(
        &self,
        read_stored: impl Fn() -> Result<T, E>,
    ) -> Result<(u64, KeyLists, T), E> {
        let read_current = || {
            let minute = self.minute.lock();
            let lists = KeyLists {
                decided: self.decided.list(minute.seed),
                refused: self.refused.list(minute.seed),
            };
            (*minute, lists)
        };
        let (mut minute, mut lists) = read_current();
        let mut stored = read_stored()?;
        if *self.minute.lock() != minute {
            // The minute ended meanwhile. The next one does not end within this call.
            (minute, lists) = read_current();
            stored = read_stored()?;
        }
        Ok((minute.start, lists, stored))
    }

    /// Takes the examples that were added since the last call, in the order of time.
    pub fn take_samples(&self) -> Vec<RequestSample> {
        let mut samples = std::mem::take(&mut *self.samples.lock());
        samples.sort_by(|a, b| a.at.total_cmp(&b.at));
        samples
    }
}
