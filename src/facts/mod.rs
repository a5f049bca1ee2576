//! Who and why: who is counted and refused most often, and single requests as examples. Numbers alone do not tell one client
//! from a million.
//!
//! Bounds: those of two [`Top`]s, and 1,024 samples until they are collected.

pub mod distinct;
mod event;
pub mod heavy_keeper;
mod list;
mod sample;
pub mod top;

pub use event::{Change, Event};
pub use list::{LONGEST, List, Listed, Lists};
pub use sample::{Class, Decision, LONGEST_PATH, Sample, Sampler};
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
    samples: Mutex<Vec<Sample>>,
}

impl Facts {
    /// Adds an example.
    pub fn tell(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        if samples.len() < WAITING {
            samples.push(sample);
        }
    }

    /// Who was counted most. In the `end` it begins anew.
    pub fn lists(&self, end: bool) -> Lists {
        Lists {
            asked: self.asked.list(end),
            refused: self.refused.list(end),
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
