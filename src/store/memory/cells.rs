//! Cells: the states of keys, in the table and the arena. It finds them, makes room for them, moves them, and evicts those
//! that are equal to fresh ones. It never drops a cell with units that count.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use smallvec::SmallVec;

use super::arena::{Arena, BlockId};
use super::slots::{SlotInfo, Slots};
use super::table::{BUCKET_ENTRIES, BucketTable, EntryAt, LockedBuckets, Spot};
use crate::base::clock::Nanos;
use crate::limit::{KeyState, Limit};
use crate::store::Slot;

/// Buckets that are searched for fresh cells when the arena is exhausted.
const BUCKETS_PER_SEARCH: u32 = 16;
/// The second at which a state becomes fresh that does not become fresh by itself.
const NEVER_FRESH: u32 = u32::MAX;

/// Table, arena and registered limits.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) table: BucketTable,
    pub(super) arena: Arena,
    pub(super) slots: Slots,
    /// The number of cells.
    pub(super) keys: AtomicUsize,
    /// The bucket, modulo their number, at which the next search for fresh cells begins.
    next_search: AtomicU32,
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
    /// The state of a network, or a state that fits its entry.
    State(u64),
    /// The words of a state that outgrows an entry.
    Words { words: &'a [u32], fresh_at: Nanos },
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellLookup {
    /// There is no cell.
    Missing,
    /// The cell is in this entry.
    EntryAt(EntryAt),
    /// The cell has an older shape, and cannot be converted for lack of memory.
    Stuck,
}

/// The two inline words of a state.
pub(super) fn split_state(state: u64) -> [u32; 2] {
    [state as u32, (state >> 32) as u32]
}

/// The state with these inline words.
pub(super) fn join_state(words: [u32; 2]) -> u64 {
    u64::from(words[1]) << 32 | u64::from(words[0])
}

/// The state of an entry whose words are in a block.
pub(super) fn block_state(block: BlockId, fresh_at: Nanos) -> u64 {
    let fresh_second = u32::try_from(fresh_at.ceil_secs()).unwrap_or(NEVER_FRESH);
    join_state([block, fresh_second])
}

impl Cells {
    pub(super) fn new(table: BucketTable, arena: Arena) -> Cells {
        Cells {
            table,
            arena,
            slots: Slots::new(),
            keys: AtomicUsize::new(0),
            next_search: AtomicU32::new(0),
        }
    }

    /// Calls `read` with a cell.
    #[inline]
    pub(super) fn read_cell<R>(
        &self,
        locked: &mut LockedBuckets<'_>,
        at: EntryAt,
        owner: &CellOwner<'_>,
        read: impl FnOnce(&KeyState<'_>) -> R,
    ) -> R {
        let (state, key) = (locked.state(at), owner.spot.key());
        let mut inline = split_state(state);
        let words = match owner.info.is_inline() {
            true => &mut inline[..],
            false => self.arena.words(locked, state as BlockId),
        };
        read(&KeyState {
            limit: owner.limit,
            key,
            words,
        })
    }

    /// Calls `write` with a cell, and stores what it has changed.
    #[inline]
    pub(super) fn change_cell<R>(
        &self,
        locked: &mut LockedBuckets<'_>,
        at: EntryAt,
        owner: &CellOwner<'_>,
        write: impl FnOnce(&mut KeyState<'_>) -> R,
    ) -> R {
        let (state, key, limit) = (locked.state(at), owner.spot.key(), owner.limit);
        if owner.info.is_inline() {
            let mut words = split_state(state);
            let result = write(&mut KeyState {
                limit,
                key,
                words: &mut words,
            });
            locked.set_state(at, join_state(words));
            return result;
        }
        let mut cell = KeyState {
            limit,
            key,
            words: self.arena.words(locked, state as BlockId),
        };
        let result = write(&mut cell);
        let fresh_at = cell.fresh_at();
        locked.set_state(at, block_state(state as BlockId, fresh_at));
        result
    }

    /// The entry of `owner`, under any slot of its scope. It is pinned.
    pub(super) fn find(
        &self,
        locked: &mut LockedBuckets<'_>,
        owner: &CellOwner<'_>,
    ) -> Option<EntryAt> {
        let scope_of = |slot| self.slots.get(Slot(slot)).map(SlotInfo::scope);
        let is_own_slot = |slot| slot == owner.slot.0 || scope_of(slot) == Some(owner.info.scope());
        let at = locked.find(&owner.spot, is_own_slot)?;
        locked.pin(at);
        Some(at)
    }

    /// The cell of `owner`; one of an older shape of the same scope is converted first.
    pub(super) fn locate(
        &self,
        locked: &mut LockedBuckets<'_>,
        owner: &CellOwner<'_>,
        now: Nanos,
    ) -> CellLookup {
        let Some(at) = self.find(locked, owner) else {
            return CellLookup::Missing;
        };
        let slot = locked.mark(at).map_or(owner.slot.0, |mark| mark.slot());
        if slot == owner.slot.0 || self.convert(locked, at, Slot(slot), owner, now) {
            CellLookup::EntryAt(at)
        } else {
            CellLookup::Stuck
        }
    }

    /// Converts a cell of the slot `old` to the shape of its owner's limit. Returns `false` for lack of memory.
    fn convert(
        &self,
        locked: &mut LockedBuckets<'_>,
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
        let (key, state) = (owner.spot.key(), locked.state(at));
        let mut scratch = vec![0; owner.limit.max_words()];
        let mut cell = KeyState {
            limit: owner.limit,
            key,
            words: &mut scratch,
        };
        self.read_cell(locked, at, &before, |old| cell.convert_from(old, now));
        let fresh_at = cell.fresh_at();
        let new_state = if owner.info.is_inline() {
            let mut words = [0; 2];
            cell.move_to(now, &mut words);
            join_state(words)
        } else {
            let Some(block) = self.alloc_block(cell.required_words(now, 0), now) else {
                return false;
            };
            let words = self.arena.words(locked, block);
            words.fill(0);
            cell.move_to(now, words);
            block_state(block, fresh_at)
        };
        // Read before the entry leaves its slot, because a slot without entries may be given to another limit.
        let was_inline = info.is_inline();
        locked.set_slot(at, owner.slot.0);
        locked.set_state(at, new_state);
        if !was_inline {
            self.arena.free(state as BlockId);
        }
        true
    }

    /// Makes room for `cost` more units: in the cell at `at`, or in a new one when that is `None`. Returns the cell's
    /// position; `None` for lack of memory.
    pub(super) fn make_room(
        &self,
        locked: &mut LockedBuckets<'_>,
        at: Option<EntryAt>,
        owner: &CellOwner<'_>,
        now: Nanos,
        cost: u32,
    ) -> Option<EntryAt> {
        if let Some(at) = at {
            let has_room = owner.info.is_inline() || self.grow(locked, at, owner, now, cost);
            return has_room.then_some(at);
        }
        let at = self.free_entry(locked, &owner.spot, now)?;
        let state = if owner.info.is_inline() {
            0
        } else {
            let block = self.alloc_block(owner.limit.min_words(cost), now)?;
            self.arena.words(locked, block).fill(0);
            block_state(block, Nanos::ZERO)
        };
        self.fill_entry(locked, at, &owner.spot, owner.slot, state);
        Some(at)
    }

    /// Moves a cell to a larger block where it has no words for `cost` more units. Returns `false` for lack of memory.
    fn grow(
        &self,
        locked: &mut LockedBuckets<'_>,
        at: EntryAt,
        owner: &CellOwner<'_>,
        now: Nanos,
        cost: u32,
    ) -> bool {
        let (needed_words, words) = self.read_cell(locked, at, owner, |cell| {
            (cell.required_words(now, cost), cell.words.len())
        });
        if needed_words <= words {
            return true;
        }
        let Some(block) = self.alloc_block(needed_words, now) else {
            return false;
        };
        let state = locked.state(at);
        let (from, to) = self.arena.two_blocks(locked, state as BlockId, block);
        to.fill(0);
        KeyState {
            limit: owner.limit,
            key: owner.spot.key(),
            words: from,
        }
        .move_to(now, to);
        locked.set_state(at, join_state([block, split_state(state)[1]]));
        self.arena.free(state as BlockId);
        true
    }

    /// Puts a saved entry into its `former_bucket` if that has room, or else where there is room; it replaces an entry of
    /// the same key. Returns `false` when there is no room.
    pub(super) fn restore_entry(
        &self,
        owner: &CellOwner<'_>,
        former_bucket: Option<u32>,
        saved: SavedState<'_>,
        now: Nanos,
    ) -> bool {
        let spot = &owner.spot;
        let buckets = SmallVec::from_slice(&[spot.first, spot.second]);
        let mut locked = self.table.lock_all(buckets);
        if let Some(replaced) = self.find(&mut locked, owner) {
            self.remove(&mut locked, replaced);
        }
        let former_bucket = former_bucket.filter(|bucket| locked.is_locked(*bucket));
        let at = former_bucket.and_then(|bucket| locked.empty_entry(bucket));
        let Some(at) = at.or_else(|| self.free_entry(&mut locked, spot, now)) else {
            return false;
        };
        let state = match saved {
            SavedState::State(state) => state,
            SavedState::Words { words, fresh_at } => {
                let needed_words = words.len().max(owner.limit.min_words(1));
                let Some(block) = self.alloc_block(needed_words, now) else {
                    return false;
                };
                let to = self.arena.words(&mut locked, block);
                to.fill(0);
                to[..words.len()].copy_from_slice(words);
                block_state(block, fresh_at)
            }
        };
        self.fill_entry(&mut locked, at, spot, owner.slot, state);
        true
    }

    /// The entry of a network at `at`, or a new one when that is `None`. Returns `None` where no entry can be freed.
    pub(super) fn make_network_room(
        &self,
        locked: &mut LockedBuckets<'_>,
        at: Option<EntryAt>,
        spot: &Spot,
        slot: Slot,
        now: Nanos,
    ) -> Option<EntryAt> {
        if at.is_some() {
            return at;
        }
        let at = self.free_entry(locked, spot, now)?;
        self.fill_entry(locked, at, spot, slot, 0);
        Some(at)
    }

    /// Gives an empty entry to a key, and pins it.
    fn fill_entry(
        &self,
        locked: &mut LockedBuckets<'_>,
        at: EntryAt,
        spot: &Spot,
        slot: Slot,
        state: u64,
    ) {
        locked.fill_entry(at, spot, slot.0);
        locked.set_state(at, state);
        locked.pin(at);
        self.keys.fetch_add(1, Relaxed);
    }

    /// Finds an entry that is empty, or empties one by eviction or a move; in the first bucket if possible.
    fn free_entry(
        &self,
        locked: &mut LockedBuckets<'_>,
        spot: &Spot,
        now: Nanos,
    ) -> Option<EntryAt> {
        if let Some(at) = locked
            .empty_entry(spot.first)
            .or_else(|| self.evict_fresh_entry(locked, spot.first, now))
        {
            return Some(at);
        }
        if !locked.try_extend(spot.second) {
            return None;
        }
        locked
            .empty_entry(spot.second)
            .or_else(|| self.evict_fresh_entry(locked, spot.second, now))
            .or_else(|| self.move_entry_away(locked, spot))
    }

    /// Moves an entry of the spot's buckets to its other bucket, and returns its former position. In a table that is nearly
    /// full the search would cost more than it finds.
    fn move_entry_away(&self, locked: &mut LockedBuckets<'_>, spot: &Spot) -> Option<EntryAt> {
        let entries = self.table.bucket_count() as usize * BUCKET_ENTRIES;
        if self.keys.load(Relaxed) > entries / 8 * 7 {
            return None;
        }
        locked
            .move_entry_away(spot.first)
            .or_else(|| locked.move_entry_away(spot.second))
    }

    /// Evicts a fresh cell of a bucket, and returns its former position.
    fn evict_fresh_entry(
        &self,
        locked: &mut LockedBuckets<'_>,
        bucket: u32,
        now: Nanos,
    ) -> Option<EntryAt> {
        let mut entries = (0..BUCKET_ENTRIES as u32).map(|entry| EntryAt { bucket, entry });
        let at = entries.find(|at| !locked.is_pinned(*at) && self.is_fresh(locked, *at, now))?;
        self.remove(locked, at);
        Some(at)
    }

    /// Whether the state at `at` is equal to that of a key without a cell.
    pub(super) fn is_fresh(&self, locked: &LockedBuckets<'_>, at: EntryAt, now: Nanos) -> bool {
        let Some(mark) = locked.mark(at) else {
            return false;
        };
        let state = locked.state(at);
        if mark.is_network() {
            return state <= now.0;
        }
        let Some(info) = self.slots.get(Slot(mark.slot())) else {
            return false;
        };
        if info.is_inline() {
            let limit = info.limit();
            let cell = KeyState {
                limit: &limit,
                key: mark.key(),
                words: &mut split_state(state),
            };
            return cell.fresh_at() <= now;
        }
        let [_, fresh_second] = split_state(state);
        fresh_second != NEVER_FRESH && Nanos::from_secs(u64::from(fresh_second)) <= now
    }

    /// Empties an entry and frees its block.
    pub(super) fn remove(&self, locked: &mut LockedBuckets<'_>, at: EntryAt) {
        let Some(mark) = locked.mark(at) else { return };
        let state = locked.state(at);
        let info = self.slots.get(Slot(mark.slot()));
        let is_inline = info.is_none_or(SlotInfo::is_inline);
        locked.clear_entry(at);
        self.keys.fetch_sub(1, Relaxed);
        if !mark.is_network() && !is_inline {
            self.arena.free(state as BlockId);
        }
    }

    /// Allocates a block. If the arena is exhausted, evicts fresh cells of a few buckets first.
    fn alloc_block(&self, words: usize, now: Nanos) -> Option<BlockId> {
        self.arena.alloc(words).or_else(|| {
            self.evict_fresh_cells(now, BUCKETS_PER_SEARCH);
            self.arena.alloc(words)
        })
    }

    /// Evicts cells equal to fresh ones in the next `buckets` buckets. Locked buckets are skipped, so that it may run while
    /// others are locked. Returns the number of evicted cells.
    pub(super) fn evict_fresh_cells(&self, now: Nanos, buckets: u32) -> usize {
        let count = self.table.bucket_count();
        let buckets = buckets.min(count);
        let start = self.next_search.fetch_add(buckets, Relaxed);
        let mut evicted = 0;
        for step in 0..buckets {
            let bucket = start.wrapping_add(step) % count;
            if self.table.is_bucket_empty(bucket) {
                continue;
            }
            let Some(mut locked) = self.table.try_lock_one(bucket) else {
                continue;
            };
            for entry in 0..BUCKET_ENTRIES as u32 {
                let at = EntryAt { bucket, entry };
                if self.is_fresh(&locked, at, now) {
                    self.remove(&mut locked, at);
                    evicted += 1;
                }
            }
        }
        evicted
    }
}
