//! Cells in the table and the arena: finds them, makes room for them, moves them, and evicts those that are equal to fresh
//! ones. It never drops a cell with units that count.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use smallvec::SmallVec;

use super::arena::{Arena, BlockId};
use super::slots::{SlotInfo, Slots};
use super::table::{BucketTable, ENTRIES, EntryAt, LockedBuckets, Spot};
use crate::base::clock::Nanos;
use crate::limit::{KeyState, Limit};
use crate::store::Slot;

/// Buckets that are swept when the arena is exhausted.
const PROBES: u32 = 16;
/// A state that does not become fresh by itself, in seconds.
const NEVER: u32 = u32::MAX;

/// Table, arena and registered limits.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) table: BucketTable,
    pub(super) arena: Arena,
    pub(super) slots: Slots,
    pub(super) keys: AtomicUsize,
    hand: AtomicU32,
}

/// The owner of a cell: a key's spot, and the limit that reads the state.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellOwner<'a> {
    pub(super) spot: Spot,
    pub(super) slot: Slot,
    pub(super) info: &'a SlotInfo,
    pub(super) limit: &'a Limit,
}

/// The state of an entry in a snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) enum SavedState<'a> {
    /// The state of a network, or one that fits its entry.
    State(u64),
    /// A state that outgrows an entry.
    Words { words: &'a [u32], fresh_at: Nanos },
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellLookup {
    Missing,
    EntryAt(EntryAt),
    /// A cell of an older shape, which cannot be converted for lack of memory.
    Stuck,
}

pub(super) fn split(state: u64) -> [u32; 2] {
    [state as u32, (state >> 32) as u32]
}

pub(super) fn join(words: [u32; 2]) -> u64 {
    u64::from(words[1]) << 32 | u64::from(words[0])
}

pub(super) fn placed(block: BlockId, fresh_at: Nanos) -> u64 {
    join([block, u32::try_from(fresh_at.ceil_secs()).unwrap_or(NEVER)])
}

impl Cells {
    pub(super) fn new(table: BucketTable, arena: Arena) -> Cells {
        let (keys, hand) = (AtomicUsize::new(0), AtomicU32::new(0));
        Cells {
            table,
            arena,
            slots: Slots::new(),
            keys,
            hand,
        }
    }

    /// Reads a cell.
    #[inline]
    pub(super) fn look<R>(
        &self,
        held: &mut LockedBuckets<'_>,
        at: EntryAt,
        owner: &CellOwner<'_>,
        read: impl FnOnce(&KeyState<'_>) -> R,
    ) -> R {
        let (state, key) = (held.state(at), owner.spot.key());
        let mut inline = split(state);
        let words = match owner.info.inline() {
            true => &mut inline[..],
            false => self.arena.words(held, state as BlockId),
        };
        read(&KeyState {
            limit: owner.limit,
            key,
            words,
        })
    }

    /// Changes a cell.
    #[inline]
    pub(super) fn change<R>(
        &self,
        held: &mut LockedBuckets<'_>,
        at: EntryAt,
        owner: &CellOwner<'_>,
        write: impl FnOnce(&mut KeyState<'_>) -> R,
    ) -> R {
        let (state, key, limit) = (held.state(at), owner.spot.key(), owner.limit);
        if owner.info.inline() {
            let mut words = split(state);
            let result = write(&mut KeyState {
                limit,
                key,
                words: &mut words,
            });
            held.set_state(at, join(words));
            return result;
        }
        let mut cell = KeyState {
            limit,
            key,
            words: self.arena.words(held, state as BlockId),
        };
        let result = write(&mut cell);
        let fresh_at = cell.fresh_at();
        held.set_state(at, placed(state as BlockId, fresh_at));
        result
    }

    /// The entry of `owner`, under any slot of its scope.
    pub(super) fn find(
        &self,
        held: &mut LockedBuckets<'_>,
        owner: &CellOwner<'_>,
    ) -> Option<EntryAt> {
        let scope = |slot| self.slots.get(Slot(slot)).map(SlotInfo::scope);
        let own = |slot| slot == owner.slot.0 || scope(slot) == Some(owner.info.scope());
        let at = held.find(&owner.spot, own)?;
        held.pin(at);
        Some(at)
    }

    /// The cell of `owner`; one of an older shape of the same scope is converted first.
    pub(super) fn locate(
        &self,
        held: &mut LockedBuckets<'_>,
        owner: &CellOwner<'_>,
        now: Nanos,
    ) -> CellLookup {
        let Some(at) = self.find(held, owner) else {
            return CellLookup::Missing;
        };
        let slot = held.mark(at).map_or(owner.slot.0, |mark| mark.slot());
        if slot == owner.slot.0 || self.convert(held, at, Slot(slot), owner, now) {
            CellLookup::EntryAt(at)
        } else {
            CellLookup::Stuck
        }
    }

    fn convert(
        &self,
        held: &mut LockedBuckets<'_>,
        at: EntryAt,
        old: Slot,
        owner: &CellOwner<'_>,
        now: Nanos,
    ) -> bool {
        let Some(info) = self.slots.get(old) else {
            return false;
        };
        let limit = info.limit();
        let before = CellOwner {
            info,
            slot: old,
            limit: &limit,
            spot: owner.spot,
        };
        let (key, state) = (owner.spot.key(), held.state(at));
        let mut scratch = vec![0; owner.limit.max_words()];
        let mut cell = KeyState {
            limit: owner.limit,
            key,
            words: &mut scratch,
        };
        self.look(held, at, &before, |old| cell.convert_from(old, now));
        let fresh_at = cell.fresh_at();
        let after = if owner.info.inline() {
            let mut words = [0; 2];
            cell.move_to(now, &mut words);
            join(words)
        } else {
            let Some(block) = self.alloc(cell.required_words(now, 0), now) else {
                return false;
            };
            let words = self.arena.words(held, block);
            words.fill(0);
            cell.move_to(now, words);
            placed(block, fresh_at)
        };
        // Read before: a slot without entries may be given to another limit.
        let inline = info.inline();
        held.set_slot(at, owner.slot.0);
        held.set_state(at, after);
        if !inline {
            self.arena.free(state as BlockId);
        }
        true
    }

    /// A cell with words enough for `cost` more units; a new one when there is none at `at`.
    pub(super) fn room(
        &self,
        held: &mut LockedBuckets<'_>,
        at: Option<EntryAt>,
        owner: &CellOwner<'_>,
        now: Nanos,
        cost: u32,
    ) -> Option<EntryAt> {
        if let Some(at) = at {
            let grown = owner.info.inline() || self.grow(held, at, owner, now, cost);
            return grown.then_some(at);
        }
        let at = self.place(held, &owner.spot, now)?;
        let state = if owner.info.inline() {
            0
        } else {
            let block = self.alloc(owner.limit.min_words(cost), now)?;
            self.arena.words(held, block).fill(0);
            placed(block, Nanos::ZERO)
        };
        self.put(held, at, &owner.spot, owner.slot, state);
        Some(at)
    }

    fn grow(
        &self,
        held: &mut LockedBuckets<'_>,
        at: EntryAt,
        owner: &CellOwner<'_>,
        now: Nanos,
        cost: u32,
    ) -> bool {
        let (needed, have) = self.look(held, at, owner, |cell| {
            (cell.required_words(now, cost), cell.words.len())
        });
        if needed <= have {
            return true;
        }
        let Some(block) = self.alloc(needed, now) else {
            return false;
        };
        let state = held.state(at);
        let (from, to) = self.arena.both(held, state as BlockId, block);
        to.fill(0);
        KeyState {
            limit: owner.limit,
            key: owner.spot.key(),
            words: from,
        }
        .move_to(now, to);
        held.set_state(at, join([block, split(state)[1]]));
        self.arena.free(state as BlockId);
        true
    }

    /// Puts a saved entry into the bucket `near` if that has room, or else where there is room; it replaces an entry of
    /// the same key. Returns `false` when there is no room.
    pub(super) fn restore(
        &self,
        owner: &CellOwner<'_>,
        near: Option<u32>,
        saved: SavedState<'_>,
        now: Nanos,
    ) -> bool {
        let spot = &owner.spot;
        let both = SmallVec::from_slice(&[spot.first, spot.second]);
        let mut held = self.table.hold(both);
        if let Some(before) = self.find(&mut held, owner) {
            self.remove(&mut held, before);
        }
        let near = near.filter(|bucket| held.has(*bucket));
        let at = near.and_then(|bucket| held.empty(bucket));
        let Some(at) = at.or_else(|| self.place(&mut held, spot, now)) else {
            return false;
        };
        let state = match saved {
            SavedState::State(state) => state,
            SavedState::Words { words, fresh_at } => {
                let least = words.len().max(owner.limit.min_words(1));
                let Some(block) = self.alloc(least, now) else {
                    return false;
                };
                let to = self.arena.words(&mut held, block);
                to.fill(0);
                to[..words.len()].copy_from_slice(words);
                placed(block, fresh_at)
            }
        };
        self.put(&mut held, at, spot, owner.slot, state);
        true
    }

    /// The entry of a network, a new one when there is none at `at`.
    pub(super) fn network_room(
        &self,
        held: &mut LockedBuckets<'_>,
        at: Option<EntryAt>,
        spot: &Spot,
        slot: Slot,
        now: Nanos,
    ) -> Option<EntryAt> {
        if at.is_some() {
            return at;
        }
        let at = self.place(held, spot, now)?;
        self.put(held, at, spot, slot, 0);
        Some(at)
    }

    fn put(&self, held: &mut LockedBuckets<'_>, at: EntryAt, spot: &Spot, slot: Slot, state: u64) {
        held.put(at, spot, slot.0);
        held.set_state(at, state);
        held.pin(at);
        self.keys.fetch_add(1, Relaxed);
    }

    /// An entry that is empty, or that is made empty by eviction or a move; in the first bucket if possible.
    fn place(&self, held: &mut LockedBuckets<'_>, spot: &Spot, now: Nanos) -> Option<EntryAt> {
        if let Some(at) = held
            .empty(spot.first)
            .or_else(|| self.evict_one(held, spot.first, now))
        {
            return Some(at);
        }
        if !held.extend(spot.second) {
            return None;
        }
        held.empty(spot.second)
            .or_else(|| self.evict_one(held, spot.second, now))
            .or_else(|| self.displace(held, spot))
    }

    /// The position of a cell that could move to its other bucket. In a table that is nearly full the search would cost
    /// more than it finds.
    fn displace(&self, held: &mut LockedBuckets<'_>, spot: &Spot) -> Option<EntryAt> {
        let entries = self.table.count() as usize * ENTRIES;
        if self.keys.load(Relaxed) > entries / 8 * 7 {
            return None;
        }
        held.displace(spot.first)
            .or_else(|| held.displace(spot.second))
    }

    fn evict_one(&self, held: &mut LockedBuckets<'_>, bucket: u32, now: Nanos) -> Option<EntryAt> {
        let at = (0..ENTRIES as u32).map(|entry| EntryAt { bucket, entry });
        let at = at
            .into_iter()
            .find(|at| !held.pinned(*at) && self.fresh(held, *at, now))?;
        self.remove(held, at);
        Some(at)
    }

    /// Whether the state at `at` is equal to fresh.
    pub(super) fn fresh(&self, held: &LockedBuckets<'_>, at: EntryAt, now: Nanos) -> bool {
        let Some(mark) = held.mark(at) else {
            return false;
        };
        let state = held.state(at);
        if mark.network() {
            return state <= now.0;
        }
        let Some(info) = self.slots.get(Slot(mark.slot())) else {
            return false;
        };
        if info.inline() {
            let limit = info.limit();
            let cell = KeyState {
                limit: &limit,
                key: mark.key(),
                words: &mut split(state),
            };
            return cell.fresh_at() <= now;
        }
        let second = split(state)[1];
        second != NEVER && Nanos::from_secs(u64::from(second)) <= now
    }

    /// Forgets an entry and frees its block.
    pub(super) fn remove(&self, held: &mut LockedBuckets<'_>, at: EntryAt) {
        let Some(mark) = held.mark(at) else { return };
        let state = held.state(at);
        let info = self.slots.get(Slot(mark.slot()));
        let inline = info.is_none_or(SlotInfo::inline);
        held.clear(at);
        self.keys.fetch_sub(1, Relaxed);
        if !mark.network() && !inline {
            self.arena.free(state as BlockId);
        }
    }

    /// A block; an exhausted arena is searched for fresh states, a few buckets at a time.
    fn alloc(&self, words: usize, now: Nanos) -> Option<BlockId> {
        self.arena.alloc(words).or_else(|| {
            self.sweep(now, PROBES);
            self.arena.alloc(words)
        })
    }

    /// Evicts cells equal to fresh ones in the next `buckets` buckets. Locked buckets are skipped, so that it may run while
    /// others are locked. Returns the number of evicted cells.
    pub(super) fn sweep(&self, now: Nanos, buckets: u32) -> usize {
        let count = self.table.count();
        let buckets = buckets.min(count);
        let start = self.hand.fetch_add(buckets, Relaxed);
        let mut freed = 0;
        for step in 0..buckets {
            let bucket = start.wrapping_add(step) % count;
            if self.table.empty(bucket) {
                continue;
            }
            let Some(mut held) = self.table.try_hold(bucket) else {
                continue;
            };
            for entry in 0..ENTRIES as u32 {
                let at = EntryAt { bucket, entry };
                if self.fresh(&held, at, now) {
                    self.remove(&mut held, at);
                    freed += 1;
                }
            }
        }
        freed
    }
}
