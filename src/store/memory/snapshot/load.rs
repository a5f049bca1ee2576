//! Takes the records of a snapshot into a store that has its limits and counts nothing yet. It forgives
//! nothing: what finds no room goes into the sketch, and what was reserved by requests of which nobody will
//! hear is taken to be used.
//!
//! Where the table has another size than the one that was saved, of a key's first bucket only a range is
//! known. The entry is then put into each bucket of the range: one of them is its own, the others are in
//! nobody's way for longer than they count. Where the range is more than [`COPIES`] buckets, it goes into the sketch.

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

/// The most that the budget of a network is of its keys' own: a /32 of IPv6.
const WIDEST: u32 = 256;

/// Most buckets that an entry is put into: as from the smallest table to one of 256 MiB.
const COPIES: u32 = 300;

/// What came of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedCounts {
    /// Entries that still count.
    pub keys: usize,
    /// Of these the ones for which there was no room, and which are in the sketch.
    pub sketched: usize,
    /// Entries of limits that there are no more.
    pub dropped: usize,
}

/// A limit of the snapshot among those of the store.
struct LoadTarget {
    registered: Registered,
    /// The limit by which the store reads such states.
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
    /// Puts an entry, which stands for `units`, where its key will be looked for.
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
        // The same in whichever bucket it is.
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

/// What a network has used at most, whatever its factor is.
fn network_units(limit: &Limit, arrival: u64, now: Nanos) -> u32 {
    let Some(rate) = limit.windows.last() else {
        return u32::MAX;
    };
    let budget = NetworkBudget::new(limit, rate, limit.max_multiply.max(1), WIDEST);
    budget.used(arrival, now)
}
