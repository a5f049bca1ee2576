//! Who and why: who is counted and refused most often, and single requests as examples. Numbers alone do not tell one client
//! from a million.
//!
//! What a worker has counted it tells ten times a second: what comes in the last tenth of a minute's last second may be
//! in the list of the next.
//!
//! Bounds: those of two [`Top`]s, of [`Plans`], of a [`Recent`] for each worker, and 1,024 samples until they are collected.

pub mod distinct;
mod event;
pub mod heavy_keeper;
mod list;
pub mod plans;
pub mod recent;
mod sample;
mod sum;
pub mod top;

pub use event::{Change, Event};
pub use list::{LONGEST, List, Listed, Lists};
pub use plans::Plans;
pub use recent::{Recent, Whom};
pub use sample::{Class, Decision, LONGEST_PATH, Sample, Sampler};
pub use sum::Sums;
pub use top::{Key, Top};

use parking_lot::Mutex;

/// Samples that wait to be collected.
const WAITING: usize = 1_024;

/// What all workers have seen since it was collected last.
#[derive(Debug, Default)]
pub struct Facts {
    /// Whom limits were asked about.
    pub asked: Top,
    /// Whom they refused.
    pub refused: Top,
    /// By which plans they were counted.
    pub plans: Plans,
    minute: Mutex<Minute>,
    samples: Mutex<Vec<Sample>>,
}

/// What lists are of that still grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// Its first second.
    pub at: u64,
    /// Tells under which secret keys are hashed.
    pub seed: u64,
}

impl Facts {
    /// Adds an example.
    pub fn tell(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        if samples.len() < WAITING {
            samples.push(sample);
        }
    }

    /// Begins another minute. `keep` is given the lists of the one that is over before anybody sees the next one's.
    pub fn turn(&self, next: Minute, keep: impl FnOnce(u64, Lists)) {
        let mut minute = self.minute.lock();
        let over = std::mem::replace(&mut *minute, next);
        keep(over.at, self.lists(over, true));
    }

    /// The first second of the minute that goes on, its lists, and what `read` finds of those that are over: of the two
    /// none has a minute that the other has, and none is in neither.
    pub fn with<T, E>(&self, read: impl Fn() -> Result<T, E>) -> Result<(u64, Lists, T), E> {
        let look = || {
            let minute = self.minute.lock();
            (*minute, self.lists(*minute, false))
        };
        let (mut minute, mut lists) = look();
        let mut kept = read()?;
        if *self.minute.lock() != minute {
            // It ended meanwhile, and the next will not end so soon.
            (minute, lists) = look();
            kept = read()?;
        }
        Ok((minute.at, lists, kept))
    }

    fn lists(&self, minute: Minute, end: bool) -> Lists {
        Lists {
            asked: self.asked.list(minute.seed, end),
            refused: self.refused.list(minute.seed, end),
        }
    }

    /// The examples since they were collected last, in order.
    pub fn samples(&self) -> Vec<Sample> {
        let mut all = std::mem::take(&mut *self.samples.lock());
        all.sort_by(|one, other| one.at.total_cmp(&other.at));
        all
    }
}

#[cfg(test)]
mod tests;
