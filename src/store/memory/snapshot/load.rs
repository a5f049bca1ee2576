//! Loads the records of a snapshot into a store that has its limits and no counts yet. The units of entries without room
//! are counted in the sketch, and units reserved by requests of the former process count as used. Units are lost only with
//! their limit, or in rungs of the sketch that no limit uses any more.
//!
//! If the table has another size than the saved one, only a range of buckets is known for a key. The entry is then copied
//! to each bucket of the range: one of them is the key's, and the other copies are evicted when they are fresh. Copies of
//! credits never are, so of two that meet in a later load, the one with more used units stays. If the range has more than
//! [`MAX_COPIES`] buckets, or a copy has no room, the units are counted in the sketch. Credits are lost then.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::MemoryStore;
use super::super::bucket_choice::possible_homes;
use super::super::bucket_table::KeyBuckets;
use super::super::cells::{CellOwner, Cells, SavedState};
use super::super::entry_state::split_state;
use super::super::networks::NetworkBudget;
use super::super::sketch::SketchRow;
use super::super::slots::SlotInfo;
use super::blocks::SnapshotDamage;
use super::records::{RecordVisitor, SavedPlace, SnapshotReader};
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, KeyState, RateLimit};
use crate::store::{LimitSlot, RegisteredLimit};

/// The largest factor of a network's budget: that of a /32 of IPv6.
const MAX_NETWORK_FACTOR: u32 = 256;

/// Most buckets into which one entry is copied: enough to load a snapshot of the smallest store, of 1 MiB, into a store of
/// 256 MiB.
const MAX_COPIES: u32 = 300;

/// How many entries of a snapshot were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedCounts {
    /// Entries that still count, with those in the sketch.
    pub key_count: usize,
    /// Entries of `key_count` for which there was no room, so that the sketch counts their units.
    pub sketched_count: usize,
    /// Entries of limits that no longer exist, or for which no slot was free.
    pub dropped_count: usize,
    /// Entries with credits for which there was no room. Their accounts begin as unused.
    pub lost_credit_count: usize,
}

/// The store's limit for a limit of the snapshot.
struct LoadTarget {
    registered: RegisteredLimit,
    /// The limit by which the store reads the states.
    limit: Arc<RateLimit>,
}

/// The progress of loading one snapshot into a store.
struct Loader<'a> {
    memory: &'a MemoryStore,
    now: Nanos,
    /// The number of buckets of the table that was saved.
    saved_bucket_count: u32,
    /// The store's limit for each slot of the snapshot; `None` where the limit no longer exists or no slot was free.
    targets: HashMap<u16, Option<LoadTarget>>,
    loaded: LoadedCounts,
}

/// Loads a snapshot at `now`.
///
/// # Errors
///
/// When the snapshot is damaged or cannot be read; the records before that point are loaded.
pub(super) fn load_records<R: Read>(
    reader: SnapshotReader<R>,
    memory: &MemoryStore,
    now: Nanos,
) -> Result<LoadedCounts, SnapshotDamage> {
    let mut loader = Loader {
        memory,
        now,
        saved_bucket_count: reader.head.bucket_count,
        targets: HashMap::new(),
        loaded: LoadedCounts::default(),
    };
    reader.read_all(&mut loader)?;
    Ok(loader.loaded)
}

impl RecordVisitor for Loader<'_> {
    fn visit_limit(&mut self, slot: u16, scope: &str, limit: &RateLimit) {
        let cells = &self.memory.cells;
        let registered = cells
            .slots
            .register_saved(scope, limit, || cells.table.used_slots());
        let target = registered.and_then(|registered| {
            Some(LoadTarget {
                limit: cells.slots.get(registered.slot())?.limit(),
                registered,
            })
        });
        self.targets.insert(slot, target);
    }

    fn visit_entry(&mut self, place: SavedPlace, state: u64) {
        let wall = self.memory.cells.wall();
        let Some(Some(target)) = self.targets.get(&place.mark.slot()) else {
            self.loaded.dropped_count += 1;
            return;
        };
        let limit = Arc::clone(&target.limit);
        let (is_fresh, units) = if place.mark.is_network() {
            (
                state <= self.now.0,
                max_network_used(&limit, state, self.now),
            )
        } else {
            let cell = KeyState {
                limit: &limit,
                key: place.mark.key(),
                wall,
                words: &mut split_state(state),
            };
            (cell.fresh_at() <= self.now, max_used(&cell, self.now))
        };
        if !is_fresh {
            self.restore_entry(place, SavedState::State(state), units);
        }
    }

    fn visit_words(&mut self, place: SavedPlace, words: &mut Vec<u32>) {
        let wall = self.memory.cells.wall();
        let Some(Some(target)) = self.targets.get(&place.mark.slot()) else {
            self.loaded.dropped_count += 1;
            return;
        };
        let limit = Arc::clone(&target.limit);
        let key = place.mark.key();
        let reserved_units = KeyState {
            limit: &limit,
            key,
            wall,
            words,
        }
        .pending();
        if reserved_units > 0 {
            if limit.algorithm == Algorithm::SlidingLog {
                // No log holds more stamps than 65,535.
                let stamp_count = reserved_units.min(u32::from(u16::MAX)) as usize;
                words.resize(words.len() + stamp_count, 0);
            }
            let mut cell = KeyState {
                limit: &limit,
                key,
                wall,
                words,
            };
            cell.settle(self.now, reserved_units, reserved_units, 1);
        }
        let cell = KeyState {
            limit: &limit,
            key,
            wall,
            words,
        };
        let fresh_at = cell.fresh_at();
        if fresh_at > self.now {
            let units = max_used(&cell, self.now);
            self.restore_entry(place, SavedState::Words { words, fresh_at }, units);
        }
    }

    fn visit_row(&mut self, row: SketchRow<'_>) {
        self.memory.sketch.restore_row(self.now, row);
    }
}

impl Loader<'_> {
    /// Puts an entry, whose key uses at most `max_units`, into all buckets that may be its key's. Counts the units in the
    /// sketch if one of them has no room.
    fn restore_entry(&mut self, place: SavedPlace, saved: SavedState<'_>, max_units: u32) {
        let MemoryStore { cells, sketch, .. } = self.memory;
        let Some(Some(target)) = self.targets.get(&place.mark.slot()) else {
            return;
        };
        let slot = target.registered.slot();
        let Some(info): Option<&SlotInfo> = cells.slots.get(slot) else {
            return;
        };
        let saved_home = place
            .mark
            .home_bucket(place.bucket_index, self.saved_bucket_count);
        let bucket_count = cells.table.bucket_count();
        let is_same_size = bucket_count == self.saved_bucket_count;
        let former_bucket = is_same_size.then_some(place.bucket_index);
        let home_buckets = possible_homes(saved_home, self.saved_bucket_count, bucket_count);
        // The sketch's hash is the same for all buckets.
        let sketch_hash = cells
            .table
            .key_buckets_from_mark(place.mark, *home_buckets.start())
            .sketch_hash;
        let mut has_room = home_buckets.end() - home_buckets.start() < MAX_COPIES;
        if has_room {
            for home_bucket in home_buckets {
                let owner = CellOwner {
                    key_buckets: cells.table.key_buckets_from_mark(place.mark, home_bucket),
                    slot,
                    info,
                    limit: &target.limit,
                };
                if restored_credits(cells, &owner, self.now) < Some(max_units) {
                    has_room &= cells.restore_entry(&owner, former_bucket, saved, self.now);
                }
            }
        }
        if !has_room && target.limit.is_credits() {
            self.loaded.lost_credit_count += 1;
            return;
        }
        self.loaded.key_count += 1;
        if !has_room {
            self.loaded.sketched_count += 1;
            // In all rungs, because the limit may have other windows by now.
            sketch.charge_all(self.now, sketch_hash, max_units);
        }
    }
}

/// The credits of a key that the entry of an earlier record has used; `None` without one, and for other limits.
fn restored_credits(cells: &Cells, owner: &CellOwner<'_>, now: Nanos) -> Option<u32> {
    if !owner.limit.is_credits() {
        return None;
    }
    let KeyBuckets {
        home_bucket,
        alternate_bucket,
        ..
    } = owner.key_buckets;
    let buckets = SmallVec::from_slice(&[home_bucket, alternate_bucket]);
    let mut locked = cells.table.lock_all(buckets);
    let position = cells.find_entry(&mut locked, owner)?;
    let slot = LimitSlot(locked.mark(position)?.slot());
    let info = cells.slots.get(slot)?;
    let limit = info.limit();
    let owner = CellOwner {
        slot,
        info,
        limit: &limit,
        key_buckets: owner.key_buckets,
    };
    let used_units = |cell: &KeyState<'_>| max_used(cell, now);
    Some(cells.read_cell(&mut locked, position, &owner, used_units))
}

/// The most units that the cell's key may have used, in any window.
fn max_used(cell: &KeyState<'_>, now: Nanos) -> u32 {
    let windows = 0..cell.limit.windows.len();
    windows
        .map(|index| cell.max_used_units(now, index))
        .max()
        .unwrap_or(0)
}

/// The most units that a network may have used, whatever its factor is. `tat` is its theoretical arrival time, in
/// nanoseconds.
fn max_network_used(limit: &RateLimit, tat: u64, now: Nanos) -> u32 {
    let Some(rate) = limit.windows.last() else {
        return u32::MAX;
    };
    let budget = NetworkBudget::new(
        limit,
        rate,
        limit.max_plan_factor.max(1),
        MAX_NETWORK_FACTOR,
    );
    budget.used_units(tat, now)
}
