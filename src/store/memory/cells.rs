//! Cells: the states of keys, in the table and the arena. [`Cells`] finds, makes, converts and moves cells, and evicts
//! fresh ones. A fresh cell is equal to that of a key without requests, so no units that still count are evicted.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::Relaxed};

use smallvec::SmallVec;

use super::arena::{Arena, BlockId};
use super::bucket_layout::BUCKET_ENTRIES;
use super::bucket_table::{BucketTable, EntryPosition, KeyBuckets, LockedBuckets};
use super::entry_state::{NEVER_FRESH, block_id, block_state, join_state, split_state};
use super::slots::{SlotInfo, Slots};
use crate::base::clock::{Nanos, WallOffset};
use crate::limit::{KeyState, RateLimit};
use crate::store::LimitSlot;

/// Buckets that are searched for fresh cells when the arena has no room. A request waits for the search, so they are few.
const BUCKETS_PER_SEARCH: u32 = 16;

/// Table, arena and registered limits.
#[derive(Debug)]
pub(super) struct Cells {
    pub(super) table: BucketTable,
    pub(super) arena: Arena,
    pub(super) slots: Slots,
    /// The number of cells, entries of networks included.
    pub(super) cell_count: AtomicUsize,
    /// [`WallOffset`], for windows of the clock and the calendar. No other data depends on it, so relaxed ordering is enough.
    wall_offset: AtomicI64,
    /// The bucket at which the next search for fresh cells begins: its index after a modulo by the number of buckets.
    next_searched_bucket: AtomicU32,
}

/// The owner of a cell: the buckets of a key, and a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellOwner<'a> {
    pub(super) key_buckets: KeyBuckets,
    pub(super) slot: LimitSlot,
    pub(super) info: &'a SlotInfo,
    /// The limit that reads the state. It has the shape of the slot's limit.
    pub(super) limit: &'a RateLimit,
}

/// The state of an entry in a snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) enum SavedState<'a> {
    /// The state of a network, or a state that fits its entry.
    State(u64),
    /// The words of a state that outgrows an entry, and the time from which the state is fresh.
    Words { words: &'a [u32], fresh_at: Nanos },
}

/// The result of looking for an owner's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellLookup {
    /// There is no cell.
    Missing,
    /// The cell is in this entry.
    Found(EntryPosition),
    /// The cell has another shape, and cannot be converted: memory lacks, or its former slot was never registered.
    Stuck,
}

impl Cells {
    pub(super) fn new(table: BucketTable, arena: Arena) -> Cells {
        Cells {
            table,
            arena,
            slots: Slots::new(),
            cell_count: AtomicUsize::new(0),
            wall_offset: AtomicI64::new(0),
            next_searched_bucket: AtomicU32::new(0),
        }
    }

    /// What gives the wall time; zero until it is set.
    #[inline]
    pub(super) fn wall(&self) -> WallOffset {
        WallOffset(self.wall_offset.load(Relaxed))
    }

    /// Sets what gives the wall time.
    pub(super) fn set_wall(&self, wall: WallOffset) {
        self.wall_offset.store(wall.0, Relaxed);
    }

    /// Calls `use_cell` with the cell at `position`, whose owner is `owner`.
    #[inline]
    pub(super) fn read_cell<R>(
        &self,
        locked: &mut LockedBuckets<'_>,
        position: EntryPosition,
        owner: &CellOwner<'_>,
        use_cell: impl FnOnce(&KeyState<'_>) -> R,
    ) -> R {
        let (state, key) = (locked.state(position), owner.key_buckets.key());
        let mut inline_words = split_state(state);
        let words = match owner.info.is_inline() {
            true => &mut inline_words[..],
            false => self.arena.words(locked, block_id(state)),
        };
        use_cell(&KeyState {
            limit: owner.limit,
            key,
            wall: self.wall(),
            words,
        })
    }

    /// Calls `change` with the cell at `position`, and stores the changed state.
    #[inline]
    pub(super) fn change_cell<R>(
        &self,
        locked: &mut LockedBuckets<'_>,
        position: EntryPosition,
        owner: &CellOwner<'_>,
        change: impl FnOnce(&mut KeyState<'_>) -> R,
    ) -> R {
        let (state, key, limit) = (locked.state(position), owner.key_buckets.key(), owner.limit);
        if owner.info.is_inline() {
            let mut words = split_state(state);
            let result = change(&mut KeyState {
                limit,
                key,
                wall: self.wall(),
                words: &mut words,
            });
            locked.set_state(position, join_state(words));
            return result;
        }
        let mut cell = KeyState {
            limit,
            key,
            wall: self.wall(),
            words: self.arena.words(locked, block_id(state)),
        };
        let result = change(&mut cell);
        let fresh_at = cell.fresh_at();
        locked.set_state(position, block_state(block_id(state), fresh_at));
        result
    }

    /// Finds and pins the entry of `owner`, under any slot of its scope; `None` if the key has none in locked buckets.
    pub(super) fn find_entry(
        &self,
        locked: &mut LockedBuckets<'_>,
        owner: &CellOwner<'_>,
    ) -> Option<EntryPosition> {
        let scope_of = |slot| self.slots.get(LimitSlot(slot)).map(SlotInfo::scope_number);
        let is_own_slot =
            |slot| slot == owner.slot.0 || scope_of(slot) == Some(owner.info.scope_number());
        let position = locked.find_entry(&owner.key_buckets, is_own_slot)?;
        locked.pin(position);
        Some(position)
    }

    /// Finds and pins the cell of `owner`. Converts a cell of another shape of the same scope first.
    pub(super) fn find_cell(
        &self,
        locked: &mut LockedBuckets<'_>,
        owner: &CellOwner<'_>,
        now: Nanos,
    ) -> CellLookup {
        let Some(position) = self.find_entry(locked, owner) else {
            return CellLookup::Missing;
        };
        let slot = locked
            .mark(position)
            .map_or(owner.slot.0, |mark| mark.slot());
        if slot == owner.slot.0 || self.convert_cell(locked, position, LimitSlot(slot), owner, now)
        {
            CellLookup::Found(position)
        } else {
            CellLookup::Stuck
        }
    }

    /// Converts a cell of `old_slot` to the shape of its owner's limit. Returns `false` for lack of memory, or if
    /// `old_slot` was never registered.
    fn convert_cell(
        &self,
        locked: &mut LockedBuckets<'_>,
        position: EntryPosition,
        old_slot: LimitSlot,
        owner: &CellOwner<'_>,
        now: Nanos,
    ) -> bool {
        let Some(info) = self.slots.get(old_slot) else {
            return false;
        };
        let limit = info.limit();
        let old_owner = CellOwner {
            info,
            slot: old_slot,
            limit: &limit,
            key_buckets: owner.key_buckets,
        };
        let (key, state) = (owner.key_buckets.key(), locked.state(position));
        let mut converted_words = vec![0; owner.limit.max_words()];
        let mut cell = KeyState {
            limit: owner.limit,
            key,
            wall: self.wall(),
            words: &mut converted_words,
        };
        self.read_cell(locked, position, &old_owner, |old| {
            cell.convert_from(old, now)
        });
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
        locked.set_slot(position, owner.slot.0);
        locked.set_state(position, new_state);
        if !was_inline {
            self.arena.free(block_id(state));
        }
        true
    }

    /// Makes room for `cost` more units: in the cell at `position`, or in a new cell when that is `None`. Returns the
    /// cell's position; `None` for lack of memory, or if the alternate bucket stays locked by others.
    pub(super) fn make_room(
        &self,
        locked: &mut LockedBuckets<'_>,
        position: Option<EntryPosition>,
        owner: &CellOwner<'_>,
        now: Nanos,
        cost: u32,
    ) -> Option<EntryPosition> {
        if let Some(position) = position {
            let has_room =
                owner.info.is_inline() || self.grow_cell(locked, position, owner, now, cost);
            return has_room.then_some(position);
        }
        let position = self.make_empty_entry(locked, &owner.key_buckets, now)?;
        let state = if owner.info.is_inline() {
            0
        } else {
            let block = self.alloc_block(owner.limit.min_words(cost), now)?;
            self.arena.words(locked, block).fill(0);
            block_state(block, Nanos::ZERO)
        };
        self.fill_entry(locked, position, &owner.key_buckets, owner.slot, state);
        Some(position)
    }

    /// Moves a cell to a larger block where it has no words for `cost` more units. Returns `false` for lack of memory.
    fn grow_cell(
        &self,
        locked: &mut LockedBuckets<'_>,
        position: EntryPosition,
        owner: &CellOwner<'_>,
        now: Nanos,
        cost: u32,
    ) -> bool {
        let (needed_words, block_words) = self.read_cell(locked, position, owner, |cell| {
            (cell.required_words(now, cost), cell.words.len())
        });
        if needed_words <= block_words {
            return true;
        }
        let Some(block) = self.alloc_block(needed_words, now) else {
            return false;
        };
        let state = locked.state(position);
        let (old_words, new_words) = self.arena.two_blocks(locked, block_id(state), block);
        new_words.fill(0);
        KeyState {
            limit: owner.limit,
            key: owner.key_buckets.key(),
            wall: self.wall(),
            words: old_words,
        }
        .move_to(now, new_words);
        locked.set_state(position, join_state([block, split_state(state)[1]]));
        self.arena.free(block_id(state));
        true
    }

    /// Restores a saved entry: in its `former_bucket` if that is one of the key's and has room, or else in any bucket of
    /// the key. Removes an entry of the same key first. Returns `false` when there is no room.
    pub(super) fn restore_entry(
        &self,
        owner: &CellOwner<'_>,
        former_bucket: Option<u32>,
        saved: SavedState<'_>,
        now: Nanos,
    ) -> bool {
        let key_buckets = &owner.key_buckets;
        let buckets =
            SmallVec::from_slice(&[key_buckets.home_bucket, key_buckets.alternate_bucket]);
        let mut locked = self.table.lock_all(buckets);
        if let Some(replaced) = self.find_entry(&mut locked, owner) {
            self.remove_entry(&mut locked, replaced);
        }
        let former_bucket = former_bucket.filter(|bucket_index| locked.is_locked(*bucket_index));
        let position = former_bucket.and_then(|bucket_index| locked.empty_entry(bucket_index));
        let Some(position) =
            position.or_else(|| self.make_empty_entry(&mut locked, key_buckets, now))
        else {
            return false;
        };
        let state = match saved {
            SavedState::State(state) => state,
            SavedState::Words { words, fresh_at } => {
                let needed_words = words.len().max(owner.limit.min_words(1));
                let Some(block) = self.alloc_block(needed_words, now) else {
                    return false;
                };
                let block_words = self.arena.words(&mut locked, block);
                block_words.fill(0);
                block_words[..words.len()].copy_from_slice(words);
                block_state(block, fresh_at)
            }
        };
        self.fill_entry(&mut locked, position, key_buckets, owner.slot, state);
        true
    }

    /// The entry of a network at `position`, or a new one when that is `None`. Returns `None` if neither bucket of the
    /// network gets room.
    pub(super) fn make_network_room(
        &self,
        locked: &mut LockedBuckets<'_>,
        position: Option<EntryPosition>,
        key_buckets: &KeyBuckets,
        slot: LimitSlot,
        now: Nanos,
    ) -> Option<EntryPosition> {
        if position.is_some() {
            return position;
        }
        let position = self.make_empty_entry(locked, key_buckets, now)?;
        self.fill_entry(locked, position, key_buckets, slot, 0);
        Some(position)
    }

    /// Gives an empty entry to a key, and pins it.
    fn fill_entry(
        &self,
        locked: &mut LockedBuckets<'_>,
        position: EntryPosition,
        key_buckets: &KeyBuckets,
        slot: LimitSlot,
        state: u64,
    ) {
        locked.fill_entry(position, key_buckets, slot.0);
        locked.set_state(position, state);
        locked.pin(position);
        self.cell_count.fetch_add(1, Relaxed);
    }

    /// Finds an empty entry for a key, or empties one by eviction or a move; in the key's home bucket if possible. `None`
    /// if neither bucket of the key gets room, or if the alternate bucket cannot be locked.
    fn make_empty_entry(
        &self,
        locked: &mut LockedBuckets<'_>,
        key_buckets: &KeyBuckets,
        now: Nanos,
    ) -> Option<EntryPosition> {
        if let Some(position) = locked
            .empty_entry(key_buckets.home_bucket)
            .or_else(|| self.evict_fresh_entry(locked, key_buckets.home_bucket, now))
        {
            return Some(position);
        }
        if !locked.try_add_bucket(key_buckets.alternate_bucket) {
            return None;
        }
        locked
            .empty_entry(key_buckets.alternate_bucket)
            .or_else(|| self.evict_fresh_entry(locked, key_buckets.alternate_bucket, now))
            .or_else(|| self.move_entry_to_other_bucket(locked, key_buckets))
    }

    /// Moves an entry of the key's buckets to the entry's other bucket, and returns its former position. `None` if no
    /// entry can be moved, and for a table that is over seven eighths full, where the search would hardly succeed.
    fn move_entry_to_other_bucket(
        &self,
        locked: &mut LockedBuckets<'_>,
        key_buckets: &KeyBuckets,
    ) -> Option<EntryPosition> {
        let entry_count = self.table.bucket_count() as usize * BUCKET_ENTRIES;
        if self.cell_count.load(Relaxed) > entry_count / 8 * 7 {
            return None;
        }
        locked
            .move_entry_to_other_bucket(key_buckets.home_bucket)
            .or_else(|| locked.move_entry_to_other_bucket(key_buckets.alternate_bucket))
    }

    /// Evicts a fresh cell of a bucket, and returns its former position; `None` if there is no such cell.
    fn evict_fresh_entry(
        &self,
        locked: &mut LockedBuckets<'_>,
        bucket_index: u32,
        now: Nanos,
    ) -> Option<EntryPosition> {
        let position = EntryPosition::all_of_bucket(bucket_index).find(|position| {
            !locked.is_pinned(*position) && self.is_fresh(locked, *position, now)
        })?;
        self.remove_entry(locked, position);
        Some(position)
    }

    /// Whether the state at `position` is fresh; `false` for an empty entry. In a block it counts as fresh up to 1 s late.
    pub(super) fn is_fresh(
        &self,
        locked: &LockedBuckets<'_>,
        position: EntryPosition,
        now: Nanos,
    ) -> bool {
        let Some(mark) = locked.mark(position) else {
            return false;
        };
        let state = locked.state(position);
        if mark.is_network() {
            return state <= now.0;
        }
        let Some(info) = self.slots.get(LimitSlot(mark.slot())) else {
            return false;
        };
        if info.is_inline() {
            let limit = info.limit();
            let cell = KeyState {
                limit: &limit,
                key: mark.key(),
                wall: self.wall(),
                words: &mut split_state(state),
            };
            return cell.fresh_at() <= now;
        }
        let [_, fresh_second] = split_state(state);
        fresh_second != NEVER_FRESH && Nanos::from_secs(u64::from(fresh_second)) <= now
    }

    /// Empties an entry, and frees its block if it has one. Does nothing if the entry is empty.
    pub(super) fn remove_entry(&self, locked: &mut LockedBuckets<'_>, position: EntryPosition) {
        let Some(mark) = locked.mark(position) else {
            return;
        };
        let state = locked.state(position);
        let info = self.slots.get(LimitSlot(mark.slot()));
        let is_inline = info.is_none_or(SlotInfo::is_inline);
        locked.clear_entry(position);
        self.cell_count.fetch_sub(1, Relaxed);
        if !mark.is_network() && !is_inline {
            self.arena.free(block_id(state));
        }
    }

    /// Allocates a block. If the arena has no room, evicts fresh cells of a few buckets and tries once more;
    /// `None` if that fails too.
    fn alloc_block(&self, word_count: usize, now: Nanos) -> Option<BlockId> {
        self.arena.alloc(word_count).or_else(|| {
            self.evict_fresh_cells(now, BUCKETS_PER_SEARCH);
            self.arena.alloc(word_count)
        })
    }

    /// Evicts the fresh cells of the next `bucket_count` buckets. Skips locked buckets, so that the caller may hold locks
    /// of its own. Returns the number of evicted cells.
    pub(super) fn evict_fresh_cells(&self, now: Nanos, bucket_count: u32) -> usize {
        let table_buckets = self.table.bucket_count();
        let bucket_count = bucket_count.min(table_buckets);
        let start = self.next_searched_bucket.fetch_add(bucket_count, Relaxed);
        let mut evicted_count = 0;
        for step in 0..bucket_count {
            let bucket_index = start.wrapping_add(step) % table_buckets;
            if self.table.is_bucket_empty(bucket_index) {
                continue;
            }
            let Some(mut locked) = self.table.try_lock_one(bucket_index) else {
                continue;
            };
            for position in EntryPosition::all_of_bucket(bucket_index) {
                if self.is_fresh(&locked, position, now) {
                    self.remove_entry(&mut locked, position);
                    evicted_count += 1;
                }
            }
        }
        evicted_count
    }
}
