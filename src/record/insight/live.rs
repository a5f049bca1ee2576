//! The lists of keys and the samples of requests to which all workers add. The thread that records seconds collects the
//! lists of each minute, and the samples of each second.

use super::key_list::KeyLists;
use super::key_plans::KeyPlans;
use super::request_sample::RequestSample;
use super::shadow_tally::ShadowTallies;
use super::top_keys::TopKeys;
use parking_lot::Mutex;

/// The most samples that wait to be collected. Further samples are dropped.
const MAX_PENDING_SAMPLES: usize = 1_024;

/// What all workers have counted in the current minute, the plans of keys, and the samples since the last collection.
#[derive(Debug, Default)]
pub struct LiveInsight {
    /// The keys of all decisions of limits, refusals among them.
    pub decided: TopKeys,
    /// The keys that limits refused.
    pub refused: TopKeys,
    /// The plans by which keys were counted last. They are kept across minutes; [`KeyPlans`] bounds them.
    pub plans: KeyPlans,
    /// The keys that limits in shadow mode and candidate rates would have refused.
    pub shadow_tallies: ShadowTallies,
    /// The current minute. Its lock is held while the lists are read or emptied, so that readers see both lists of one
    /// minute. Workers add without it.
    minute: Mutex<Minute>,
    /// The samples that wait to be collected.
    samples: Mutex<Vec<RequestSample>>,
}

/// A minute for which lists are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// The first second of the minute, since 1970.
    pub start: u64,
    /// A number that stands for the secret under which keys are hashed. Lists with different seeds cannot be merged
    /// exactly.
    pub seed: u64,
}

impl LiveInsight {
    /// Adds a sample, or drops it if [`MAX_PENDING_SAMPLES`] wait.
    pub fn add_sample(&self, sample: RequestSample) {
        let mut samples = self.samples.lock();
        if samples.len() < MAX_PENDING_SAMPLES {
            samples.push(sample);
        }
    }

    /// Ends the current minute and begins `next`. `store` gets the first second and the lists of the minute that ended.
    ///
    /// [`LiveInsight::with_current`] waits until `store` returns, so the minute that ended is stored before the next
    /// one can be read.
    pub fn begin_minute(&self, next: Minute, store: impl FnOnce(u64, KeyLists)) {
        let mut minute = self.minute.lock();
        let ended_minute = std::mem::replace(&mut *minute, next);
        let lists = KeyLists {
            decided: self.decided.take_list(ended_minute.seed),
            refused: self.refused.take_list(ended_minute.seed),
        };
        store(ended_minute.start, lists);
    }

    /// Returns the first second of the current minute, its lists, and the result of `read_stored`, which reads the
    /// stored minutes. `read_stored` may be called twice.
    ///
    /// Each minute is in the current lists or in the stored ones, and not in both. This holds if at most one minute
    /// ends within the call.
    ///
    /// # Errors
    ///
    /// The error of `read_stored`.
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
            // The minute ended meanwhile, so it may be among the stored ones too. The second read takes less than a
            // minute.
            (minute, lists) = read_current();
            stored = read_stored()?;
        }
        Ok((minute.start, lists, stored))
    }

    /// Removes and returns the samples that were added since the last call, in the order in which their requests began.
    pub fn take_samples(&self) -> Vec<RequestSample> {
        let mut samples = std::mem::take(&mut *self.samples.lock());
        samples.sort_by(|a, b| a.at.total_cmp(&b.at));
        samples
    }
}
