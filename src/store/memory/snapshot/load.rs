//! Loads the records of a snapshot into a store that has its limits and no counts yet. No unit is forgiven: entries without
//! room go into the sketch, and units reserved by requests of the former process count as used.
//!
//! Where the table has another size than the saved one, only a range of buckets is known for a key. The entry is then put
//! into each bucket of the range: one of them is right, and the others are evicted when they are fresh. Where the range has
//! more than [`COPIES`] buckets, the units go into the sketch.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use super::super::Memory;
use super::super::buckets::range;
use super::super::cells::{CellOwner, SavedState, split};
use super::super::networks::NetworkBudget;
use super::super::slots::SlotInfo;
use super::blocks::SnapshotDamage;
use super::records::{RecordVisitor, SavedPlace, SnapshotReader};
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, KeyState, Limit};
use crate::store::Registered;

/// The largest factor of a network's budget: that of a /32 of IPv6.
const WIDEST: u32 = 256;

/// Most buckets that an entry is put into: enough to load the smallest table into one of 256 MiB.
const COPIES: u32 = 300;

/// How many entries of a snapshot were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedCounts {
    /// Entries that still count.
    pub keys: usize,
    /// Those of them without room, which went into the sketch.
    pub sketched: usize,
    /// Entries of limits that no longer exist.
    pub dropped: usize,
}

/// The store's limit for one of the snapshot.
struct LoadTarget {
    registered: Registered,
    /// The limit by which the store reads the states.
    limit: Arc<Limit>,
}

struct Loader<'a> {
    memory: &'a Memory,
    now: Nanos,
    /// Buckets of the table that was saved.
    buckets: u32,
    targets: HashMap<u16, Option<LoadTarget>>,
    loaded: LoadedCounts,
}

/// Takes in a snapshot at `now`.
pub(super) fn load<R: Read>(
    reading: SnapshotReader<R>,
    memory: &Memory,
    now: Nanos,
) -> Result<LoadedCounts, SnapshotDamage> {
    let mut loader = Loader {
        memory,
        now,
        buckets: reading.head.buckets,
        targets: HashMap::new(),
        loaded: LoadedCounts::default(),
    };
    reading.all(&mut loader)?;
    Ok(loader.loaded)
}

impl RecordVisitor for Loader<'_> {
    fn limit(&mut self, slot: u16, scope: &str, limit: &Limit) {
        let cells = &self.memory.cells;
        let registered = cells.slots.adopt(scope, limit, || cells.table.slots());
        let target = registered.and_then(|registered| {
            Some(LoadTarget {
                limit: cells.slots.get(registered.slot())?.limit(),
                registered,
            })
        });
        self.targets.insert(slot, target);
    }

    fn entry(&mut self, place: SavedPlace, state: u64) {
        let Some(Some(target)) = self.targets.get(&place.mark.slot()) else {
            self.loaded.dropped += 1;
            return;
        };
        let limit = Arc::clone(&target.limit);
        let (gone, units) = if place.mark.network() {
            (state <= self.now.0, network_units(&limit, state, self.now))
        } else {
            let cell = KeyState {
                limit: &limit,
                key: place.mark.key(),
                words: &mut split(state),
            };
            (cell.fresh_at() <= self.now, most_used(&cell, self.now))
        };
        if !gone {
            self.put(place, SavedState::State(state), units);
        }
    }

    fn words(&mut self, place: SavedPlace, words: &mut Vec<u32>) {
        let Some(Some(target)) = self.targets.get(&place.mark.slot()) else {
            self.loaded.dropped += 1;
            return;
        };
        let limit = Arc::clone(&target.limit);
        let key = place.mark.key();
        let reserved = KeyState {
            limit: &limit,
            key,
            words,
        }
        .reserved();
        if reserved > 0 {
            // No log holds more stamps.
            let room = reserved.min(u32::from(u16::MAX)) as usize;
            if limit.algorithm == Algorithm::SlidingLog {
                words.resize(words.len() + room, 0);
            }
            let mut cell = KeyState {
                limit: &limit,
                key,
                words,
            };
            cell.settle(self.now, reserved, reserved, 1);
        }
        let cell = KeyState {
            limit: &limit,
            key,
            words,
        };
        let fresh_at = cell.fresh_at();
        if fresh_at > self.now {
            let units = most_used(&cell, self.now);
            self.put(place, SavedState::Words { words, fresh_at }, units);
        }
    }

    fn row(&mut self, rung: u8, epoch: u64, row: u8, counts: &[u16]) {
        self.memory
            .sketch
            .restore(self.now, rung, epoch, row, counts);
    }
}

impl Loader<'_> {
    /// Puts an entry with `units` into the buckets where its key may be looked for.
    fn put(&mut self, place: SavedPlace, saved: SavedState<'_>, units: u32) {
        let Memory { cells, sketch, .. } = self.memory;
        let Some(Some(target)) = self.targets.get(&place.mark.slot()) else {
            return;
        };
        let slot = target.registered.slot();
        let Some(info): Option<&SlotInfo> = cells.slots.get(slot) else {
            return;
        };
        let home = place.mark.home(place.bucket, self.buckets);
        let count = cells.table.count();
        let same = count == self.buckets;
        let near = same.then_some(place.bucket);
        let buckets = range(home, self.buckets, count);
        let few = buckets.end() - buckets.start() < COPIES;
        let mut roomy = few;
        // The hash is the same for all buckets.
        let hash = cells.table.spot_of(place.mark, *buckets.start()).hash;
        for first in buckets.take_while(|_| few) {
            let owner = CellOwner {
                spot: cells.table.spot_of(place.mark, first),
                slot,
                info,
                limit: &target.limit,
            };
            roomy &= cells.restore(&owner, near, saved, self.now);
        }
        self.loaded.keys += 1;
        if !roomy {
            self.loaded.sketched += 1;
            // Its limit may have other windows by now.
            sketch.charge_all(self.now, hash, units);
        }
    }
}

fn most_used(cell: &KeyState<'_>, now: Nanos) -> u32 {
    let windows = 0..cell.limit.windows.len();
    windows
        .map(|index| cell.used_at_most(now, index))
        .max()
        .unwrap_or(0)
}

/// The most units that a network may have used, whatever its factor is.
fn network_units(limit: &Limit, arrival: u64, now: Nanos) -> u32 {
    let Some(rate) = limit.windows.last() else {
        return u32::MAX;
    };
    let budget = NetworkBudget::new(limit, rate, limit.max_multiply.max(1), WIDEST);
    budget.used(arrival, now)
}
