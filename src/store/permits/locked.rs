//! The shards that one request needs, locked in ascending order, from the first look to the last change.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::request::{PermitKey, PermitRequest};
use crate::limit::concurrency::REFUSAL_WAIT;
use crate::limit::{LimitReading, LimitStanding};

pub(super) const SHARDS: usize = 64;

/// Permits that are out.
pub(super) type OpenCounts = HashMap<PermitKey, u32>;

/// A cache line of its own, so that workers do not wait for each other's shards.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct PermitShard(pub(super) Mutex<OpenCounts>);

/// The number of a key's shard.
pub(super) fn shard_of(place: &PermitKey) -> usize {
    // Both are hashes already.
    (place.scope.hash() ^ place.key.0) as usize % SHARDS
}

/// The shards of one request.
pub(super) struct LockedShards<'a> {
    guards: SmallVec<[(usize, MutexGuard<'a, OpenCounts>); 4]>,
}

impl<'a> LockedShards<'a> {
    pub(super) fn new(shards: &'a [PermitShard], wants: &[PermitRequest<'_>]) -> LockedShards<'a> {
        let places = wants.iter().flat_map(PermitRequest::places);
        let mut numbers: SmallVec<[usize; 4]> = places.map(|place| shard_of(&place)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let guards = numbers
            .iter()
            .map(|number| (*number, shards[*number].0.lock()));
        LockedShards {
            guards: guards.collect(),
        }
    }

    fn counts(&mut self, place: &PermitKey) -> Option<&mut OpenCounts> {
        let shard = shard_of(place);
        let mut guards = self.guards.iter_mut();
        let (_, guard) = guards.find(|(number, _)| *number == shard)?;
        Some(&mut **guard)
    }

    fn out(&mut self, place: &PermitKey) -> u32 {
        let counts = self.counts(place);
        counts
            .and_then(|counts| counts.get(place).copied())
            .unwrap_or(0)
    }

    /// Leaves one reading for each request. Returns whether all that can refuse admit.
    pub(super) fn look(
        &mut self,
        wants: &[PermitRequest<'_>],
        readings: &mut SmallVec<[LimitReading; 2]>,
    ) -> bool {
        readings.clear();
        let mut there = true;
        for (number, want) in wants.iter().enumerate() {
            // Earlier requests for the same key.
            let before = |place: &PermitKey| {
                let earlier = wants[..number].iter().flat_map(PermitRequest::places);
                earlier.filter(|other| other == place).count() as u32
            };
            let place = want.place();
            let mut reading = want
                .limit
                .assess(self.out(&place) + before(&place), want.multiply);
            for parent in want.parents {
                let place = want.network(parent);
                let open = self.out(&place) + before(&place);
                let left = want
                    .limit
                    .free_in_network(open, want.multiply, parent.factor);
                reading.remaining = reading.remaining.min(left);
                if left == 0 {
                    reading.standing = LimitStanding::Refused;
                    reading.wait = REFUSAL_WAIT;
                }
            }
            there &= want.shadow || reading.standing.admits();
            readings.push(reading);
        }
        there
    }

    /// Takes a permit for each request whose reading admits, and sets in the readings how many are left.
    pub(super) fn give(
        &mut self,
        wants: &[PermitRequest<'_>],
        readings: &mut [LimitReading],
        taken: &mut SmallVec<[PermitKey; 1]>,
    ) {
        let given = wants.iter().zip(&*readings);
        for (want, _) in given.filter(|(_, reading)| reading.standing.admits()) {
            for place in want.places() {
                if let Some(counts) = self.counts(&place) {
                    *counts.entry(place).or_insert(0) += 1;
                    taken.push(place);
                }
            }
        }
        for (want, reading) in wants.iter().zip(readings) {
            reading.remaining = want
                .limit
                .free_permits(self.out(&want.place()), want.multiply);
            for parent in want.parents {
                let open = self.out(&want.network(parent));
                let left = want
                    .limit
                    .free_in_network(open, want.multiply, parent.factor);
                reading.remaining = reading.remaining.min(left);
            }
        }
    }
}
