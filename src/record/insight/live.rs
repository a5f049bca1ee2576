//! What all workers count together, minute by minute.

use super::list::KeyLists;
use super::plans::KeyPlans;
use super::sample::RequestSample;
use super::top::TopKeys;
use parking_lot::Mutex;

/// Most examples that wait to be collected.
const WAITING: usize = 1_024;

/// The counts and examples of all workers since the last collection.
#[derive(Debug, Default)]
pub struct Insight {
    /// The keys of all decisions of limits.
    pub asked: TopKeys,
    /// The keys that limits refused.
    pub refused: TopKeys,
    /// The plans by which keys were counted.
    pub plans: KeyPlans,
    minute: Mutex<Minute>,
    samples: Mutex<Vec<RequestSample>>,
}

/// The minute whose lists still grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// Its first second.
    pub at: u64,
    /// Names the secret under which keys are hashed; lists with different seeds cannot be merged exactly.
    pub seed: u64,
}

impl Insight {
    /// Adds an example; drops it where too many wait.
    pub fn add_sample(&self, sample: RequestSample) {
        let mut samples = self.samples.lock();
        if samples.len() < WAITING {
            samples.push(sample);
        }
    }

    /// Begins another minute. `keep` gets the first second and the lists of the minute before; no reader sees the next minute's
    /// lists until it has returned.
    pub fn begin_minute(&self, next: Minute, keep: impl FnOnce(u64, KeyLists)) {
        let mut minute = self.minute.lock();
        let over = std::mem::replace(&mut *minute, next);
        keep(over.at, self.lists(over, true));
    }

    /// The first second of the current minute, its lists, and the result of `read`, which reads the minutes that are over. The
    /// two are consistent: each minute is in exactly one of them.
    pub fn with_current<T, E>(
        &self,
        read: impl Fn() -> Result<T, E>,
    ) -> Result<(u64, KeyLists, T), E> {
        let look = || {
            let minute = self.minute.lock();
            (*minute, self.lists(*minute, false))
        };
        let (mut minute, mut lists) = look();
        let mut kept = read()?;
        if *self.minute.lock() != minute {
            // The minute ended meanwhile. The next will not end within this call.
            (minute, lists) = look();
            kept = read()?;
        }
        Ok((minute.at, lists, kept))
    }

    fn lists(&self, minute: Minute, end: bool) -> KeyLists {
        KeyLists {
            asked: self.asked.list(minute.seed, end),
            refused: self.refused.list(minute.seed, end),
        }
    }

    /// Takes the examples since the last call, in the order of time.
    pub fn take_samples(&self) -> Vec<RequestSample> {
        let mut all = std::mem::take(&mut *self.samples.lock());
        all.sort_by(|one, other| one.at.total_cmp(&other.at));
        all
    }
}
