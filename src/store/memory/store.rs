//! [`MemoryStore`] and its public methods. The store divides its budget among table, arena and sketch, and chooses between
//! the cheaper decision and the full one. It reads no clock: every method that needs the time gets it.

use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::arena::{self, Arena};
use super::bucket_layout::{BUCKET_BYTES, ENTRY_BYTES};
use super::bucket_table::BucketTable;
use super::cells::{CellLookup, CellOwner, Cells};
use super::decide::{self, FullDecision};
use super::fast_path::{self, CellPlace, CellPlaces};
use super::settings::{Error, Settings};
use super::sketch::Sketch;
use super::{settle, sketched_units};
use crate::base::clock::{Nanos, WallOffset};
use crate::limit::{Fingerprint, LimitFinding, RateLimit};
use crate::store::{LimitItem, LimitSlot, RegisteredLimit, Taking};

/// How full an in-memory store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Most bytes that the store uses, as in [`Settings::budget_bytes`].
    pub budget_bytes: usize,
    /// Bytes of the entries with cells, of the arena's pages in use, and of the sketch.
    pub used_bytes: usize,
    /// Keys with a cell, networks included.
    pub key_count: usize,
    /// How often the overflow sketch counted the cost of an admitted item since the start, because its cell had no room.
    pub sketched_decisions: u64,
}

/// How far the wall offset is off at most because two clocks are read one after the other.
const MAX_READING_ERROR: Nanos = Nanos::from_millis(1);

/// The in-memory store: see the [module](super).
#[derive(Debug)]
pub struct MemoryStore {
    pub(super) cells: Cells,
    pub(super) sketch: Sketch,
    budget_bytes: usize,
}

impl MemoryStore {
    /// A store whose counts never take more bytes than its budget. A quarter is for the table, half for the blocks of the
    /// arena, and the rest for the arena's page records and the sketch. The registered limits are not part of the budget.
    ///
    /// # Errors
    ///
    /// When the budget is out of range, or the system gives no memory.
    pub fn new(settings: Settings) -> Result<MemoryStore, Error> {
        let budget_bytes = settings.budget_bytes;
        if !(Settings::MIN_BUDGET_BYTES..=Settings::MAX_BUDGET_BYTES).contains(&budget_bytes) {
            return Err(Error::Budget);
        }
        let table_bytes = budget_bytes / 4;
        let arena_bytes = budget_bytes / 2;
        let record_bytes = arena_bytes / arena::PAGE_BYTES * arena::PAGE_RECORD_BYTES;
        let table = BucketTable::new(table_bytes / BUCKET_BYTES * BUCKET_BYTES)?;
        let sketch = Sketch::new(budget_bytes - table_bytes - arena_bytes - record_bytes);
        Ok(MemoryStore {
            cells: Cells::new(table, Arena::new(arena_bytes)?),
            sketch,
            budget_bytes,
        })
    }

    /// Sets how far wall time is ahead of the times that other methods get. Windows of the clock and of the calendar follow
    /// it. A difference of up to a millisecond changes nothing, because two clocks cannot be read at once.
    pub fn set_wall(&self, wall: WallOffset) {
        let difference = wall.0.abs_diff(self.cells.wall().0);
        if difference > MAX_READING_ERROR.0 {
            self.cells.set_wall(wall);
        }
    }

    /// What gives the wall time, zero until [`MemoryStore::set_wall`].
    pub fn wall(&self) -> WallOffset {
        self.cells.wall()
    }

    /// Registers a limit. A scope keeps its slot while its limit keeps its shape, so that counts survive edited quotas.
    /// Cells of another shape are converted when they are next used. Credits and a rate of one name have counts of their
    /// own, which are kept while the limit is of the other kind. The sketch gets the rungs of the limit's windows.
    ///
    /// # Errors
    ///
    /// When all 65,536 slots are in use.
    pub fn register(&self, scope: &str, limit: &RateLimit) -> Result<RegisteredLimit, Error> {
        for window in sketched_units::sketch_windows(limit) {
            self.sketch.add_rung(window);
        }
        let Cells { slots, table, .. } = &self.cells;
        let used_slots = || table.used_slots();
        match limit.is_credits() {
            // No scope of a policy has a blank.
            true => slots.register(&format!("{scope} credits"), limit, used_slots),
            false => slots.register(scope, limit, used_slots),
        }
    }

    /// The place where decisions look for a key first, for a plan with this multiplier. `None` if the slot was never
    /// registered.
    #[inline]
    pub fn cell_place(
        &self,
        limit: &RateLimit,
        slot: LimitSlot,
        key: Fingerprint,
        plan_factor: u32,
    ) -> Option<CellPlace> {
        let info = self.cells.slots.get(slot)?;
        let (bucket_index, mark) = self.cells.table.home_entry(info.scope_hash(), key, slot);
        Some(CellPlace {
            bucket_index,
            mark,
            is_inline: info.is_inline(),
            fast_path: limit.fast_path(plan_factor),
        })
    }

    /// Starts to load a place's bucket into the processor's cache, for callers that do something else before they decide.
    #[inline]
    pub fn prefetch(&self, place: &CellPlace) {
        self.cells.table.prefetch(place.bucket_index);
    }

    /// A number that changes with every change of a count of a key whose home is the place's bucket. `None` while one may
    /// be changing. It does not show changes by time, by the overflow sketch, or of the networks around a key.
    #[inline]
    pub fn bucket_version(&self, place: &CellPlace) -> Option<u64> {
        self.cells.table.version(place.bucket_index)
    }

    /// Whether the overflow sketch may affect decisions about this limit.
    pub fn is_sketch_active(&self, limit: &RateLimit, now: Nanos) -> bool {
        self.sketch
            .is_active(now, sketched_units::sketch_windows(limit))
    }

    /// Takes units for all items that are not shadows, or for none of them. A shadow takes its units if it admits, even if
    /// the request does not pass. Leaves one finding for each item, and returns whether the request passes.
    pub fn take(
        &self,
        items: &[LimitItem<'_>],
        now: Nanos,
        findings: &mut SmallVec<[LimitFinding; 4]>,
    ) -> bool {
        self.take_at(items, &self.cell_places(items), now, findings)
    }

    /// [`MemoryStore::take`] for items whose places the caller has kept: that of each item, in the same order, as
    /// [`MemoryStore::cell_place`] returns it.
    pub fn take_at(
        &self,
        items: &[LimitItem<'_>],
        places: &CellPlaces,
        now: Nanos,
        findings: &mut SmallVec<[LimitFinding; 4]>,
    ) -> bool {
        self.decide(items, places, now, Taking::All, findings)
    }

    /// Takes units for shadows only, for a request that something else refuses. Leaves the findings like
    /// [`MemoryStore::take`].
    pub fn take_for_shadows(
        &self,
        items: &[LimitItem<'_>],
        now: Nanos,
        findings: &mut SmallVec<[LimitFinding; 4]>,
    ) {
        self.decide(
            items,
            &self.cell_places(items),
            now,
            Taking::Shadows,
            findings,
        );
    }

    /// Returns what [`MemoryStore::take`] would return, and takes nothing. The findings are those before units are taken.
    pub fn peek(
        &self,
        items: &[LimitItem<'_>],
        now: Nanos,
        findings: &mut SmallVec<[LimitFinding; 4]>,
    ) -> bool {
        self.decide(
            items,
            &self.cell_places(items),
            now,
            Taking::Nothing,
            findings,
        )
    }

    /// The places of these items. They end before an item whose slot was never registered, which leads to a full decision.
    pub(super) fn cell_places(&self, items: &[LimitItem<'_>]) -> CellPlaces {
        let places = items.iter().map_while(|item| {
            self.cell_place(item.limit, item.slot, item.key, item.scale.plan_factor)
        });
        places.collect()
    }

    #[inline]
    fn decide(
        &self,
        items: &[LimitItem<'_>],
        places: &CellPlaces,
        now: Nanos,
        taking: Taking,
        findings: &mut SmallVec<[LimitFinding; 4]>,
    ) -> bool {
        debug_assert_eq!(self.cell_places(items)[..], places[..]);
        findings.clear();
        let is_admitted = fast_path::decide(
            &self.cells,
            &self.sketch,
            items,
            places,
            now,
            taking,
            findings,
        );
        is_admitted.unwrap_or_else(|| self.decide_fully(items, now, taking, findings))
    }

    // Not inlined, so that its stack frame costs nothing where the fast path decides.
    #[inline(never)]
    pub(super) fn decide_fully(
        &self,
        items: &[LimitItem<'_>],
        now: Nanos,
        taking: Taking,
        findings: &mut SmallVec<[LimitFinding; 4]>,
    ) -> bool {
        match FullDecision::new(&self.cells, &self.sketch, items, now, taking) {
            Some(decision) => decision.decide(findings),
            None => {
                findings.resize(items.len(), decide::unknown_finding());
                false
            }
        }
    }

    /// Ends a reservation that [`MemoryStore::take`] made for `item`: in place of the item's cost, `used_units` count from
    /// `now`. They count in the item's networks, too. `is_sketched` is [`LimitFinding::sketched`] of the reservation's
    /// finding.
    pub fn settle(&self, item: &LimitItem<'_>, is_sketched: bool, used_units: u32, now: Nanos) {
        settle::settle_reservation(
            &self.cells,
            &self.sketch,
            item,
            is_sketched,
            used_units,
            now,
        );
    }

    /// Units that a key uses in each window of a limit, without those in the sketch. Zeros if it has no cell, or one of
    /// another shape that cannot be converted for lack of memory. Empty if the item's slot was never registered.
    pub fn used_units(&self, item: &LimitItem<'_>, now: Nanos) -> SmallVec<[u32; 2]> {
        let Some(info) = self.cells.slots.get(item.slot) else {
            return SmallVec::new();
        };
        let owner = CellOwner {
            key_buckets: self
                .cells
                .table
                .key_buckets(info.scope_hash(), item.key, false),
            slot: item.slot,
            info,
            limit: item.limit,
        };
        let mut locked = decide::lock_buckets(&self.cells, std::iter::once(owner.key_buckets));
        let windows = 0..item.limit.windows.len();
        match self.cells.find_cell(&mut locked, &owner, now) {
            CellLookup::Found(position) => {
                self.cells.read_cell(&mut locked, position, &owner, |cell| {
                    windows.map(|window| cell.used(now, window)).collect()
                })
            }
            CellLookup::Missing | CellLookup::Stuck => windows.map(|_| 0).collect(),
        }
    }

    /// Counts units that were admitted by another decision than this store's: in the item's cell, or in the sketch if the
    /// cell has no room, and not in the item's networks.
    pub fn count_units(&self, item: &LimitItem<'_>, units: u32, now: Nanos) {
        let item = LimitItem {
            cost: 0,
            parents: &[],
            ..*item
        };
        settle::settle_reservation(&self.cells, &self.sketch, &item, false, units, now);
    }

    /// Removes the cell of a key under a limit. Returns `false` if it has none, or if the slot was never registered. The
    /// key's units in the overflow sketch and in its networks stay, because other keys share both. So a key with a
    /// [sketched](LimitFinding::sketched) finding is free only when its units have left the sketch.
    pub fn forget_key(&self, slot: LimitSlot, key: Fingerprint) -> bool {
        let Some(info) = self.cells.slots.get(slot) else {
            return false;
        };
        let key_buckets = self.cells.table.key_buckets(info.scope_hash(), key, false);
        let mut locked = decide::lock_buckets(&self.cells, std::iter::once(key_buckets));
        let limit = &info.limit();
        let owner = CellOwner {
            key_buckets,
            slot,
            info,
            limit,
        };
        let entry = self.cells.find_entry(&mut locked, &owner);
        if let Some(position) = entry {
            self.cells.remove_entry(&mut locked, position);
        }
        entry.is_some()
    }

    /// Evicts cells that are equal to those of keys without requests, in the next `bucket_count` buckets that are not
    /// locked. Returns the number of evicted cells.
    pub fn evict_fresh_cells(&self, now: Nanos, bucket_count: usize) -> usize {
        self.cells
            .evict_fresh_cells(now, u32::try_from(bucket_count).unwrap_or(u32::MAX))
    }

    /// How full the store is.
    pub fn usage(&self) -> MemoryUsage {
        let key_count = self.cells.cell_count.load(Relaxed);
        let used_bytes =
            key_count * ENTRY_BYTES + self.cells.arena.used_bytes() + self.sketch.used_bytes();
        MemoryUsage {
            budget_bytes: self.budget_bytes,
            used_bytes,
            key_count,
            sketched_decisions: self.sketch.decision_count(),
        }
    }
}
