//! The store: its parts, its budget, and the doors by which requests come in.

use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::arena::{self, Arena};
use super::cells::{CellLookup, CellOwner, Cells};
use super::decide::{self, FullDecision};
use super::fast::{self, CellPlace, CellPlaces};
use super::settings::{Error, Settings};
use super::sketch::Sketch;
use super::table::{self, Table};
use super::{hedge, settle};
use crate::base::clock::Nanos;
use crate::limit::{Fingerprint, Limit, Reading};
use crate::store::{Item, Registered, Slot, Taking};

/// What a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes it may use.
    pub budget: usize,
    /// Bytes in use.
    pub bytes: usize,
    /// Keys with a cell of their own, networks included.
    pub keys: usize,
    /// Decisions by the sketch since the start.
    pub sketched: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Memory {
    pub(super) cells: Cells,
    pub(super) sketch: Sketch,
    budget: usize,
}

impl Memory {
    /// Splits the budget once: a quarter for the table, half for the arena, the rest for sketches.
    pub fn new(settings: Settings) -> Result<Memory, Error> {
        let budget = settings.budget;
        if !(Settings::LEAST..=Settings::MOST).contains(&budget) {
            return Err(Error::Budget);
        }
        let (entries, blocks) = (budget / 4, budget / 2);
        let records = blocks / 16_384 * arena::PAGE_RECORD;
        let table = Table::new(entries / table::BUCKET * table::BUCKET)?;
        let sketch = Sketch::new(budget - entries - blocks - records);
        Ok(Memory {
            cells: Cells::new(table, Arena::new(blocks)?),
            sketch,
            budget,
        })
    }

    /// The slot of a limit. A scope keeps its slot while its limit keeps its shape, so that counters
    /// survive edited quotas; cells of an older shape are converted when they are next met.
    pub fn register(&self, scope: &str, limit: &Limit) -> Result<Registered, Error> {
        for window in hedge::windows(limit) {
            self.sketch.prepare(window);
        }
        let Cells { slots, table, .. } = &self.cells;
        slots.register(scope, limit, || table.slots())
    }

    /// Where decisions about a key look first; nothing when the slot was never registered.
    #[inline]
    pub fn place(
        &self,
        limit: &Limit,
        slot: Slot,
        key: Fingerprint,
        multiply: u32,
    ) -> Option<CellPlace> {
        let info = self.cells.slots.get(slot)?;
        let (bucket, mark) = self.cells.table.home(info.seed(), key, slot);
        Some(CellPlace {
            bucket,
            mark,
            inline: info.inline(),
            terms: limit.terms(multiply),
        })
    }

    /// Starts to load it: for callers that have something else to do first, if only to read the clock.
    #[inline]
    pub fn prefetch(&self, place: &CellPlace) {
        self.cells.table.prefetch(place.bucket);
    }

    /// Another number whenever a count that is looked for first here has changed; nothing while one may be
    /// changing. Time changes counts too, and the overflow sketch what is made of them: neither is seen here.
    #[inline]
    pub fn version(&self, place: &CellPlace) -> Option<u64> {
        self.cells.table.version(place.bucket)
    }

    /// Whether the overflow sketch may have a part in decisions by this limit.
    pub fn is_hedged(&self, limit: &Limit, now: Nanos) -> bool {
        self.sketch.active(now, hedge::windows(limit))
    }

    /// Takes all items that are not shadows, or none of them; each shadow takes when it alone admits.
    /// Leaves one reading for each item and says whether the request passes.
    pub fn take(
        &self,
        items: &[Item<'_>],
        now: Nanos,
        readings: &mut SmallVec<[Reading; 4]>,
    ) -> bool {
        self.take_at(items, &self.places(items), now, readings)
    }

    /// The same of items whose places are known.
    pub fn take_at(
        &self,
        items: &[Item<'_>],
        places: &CellPlaces,
        now: Nanos,
        readings: &mut SmallVec<[Reading; 4]>,
    ) -> bool {
        self.decide(items, places, now, Taking::All, readings)
    }

    /// What [`Memory::take`] does to a request that something else refuses: it leaves the readings, and
    /// only shadows take.
    pub fn refused(&self, items: &[Item<'_>], now: Nanos, readings: &mut SmallVec<[Reading; 4]>) {
        self.decide(items, &self.places(items), now, Taking::Shadows, readings);
    }

    /// What [`Memory::take`] would say, consuming nothing.
    pub fn peek(
        &self,
        items: &[Item<'_>],
        now: Nanos,
        readings: &mut SmallVec<[Reading; 4]>,
    ) -> bool {
        self.decide(items, &self.places(items), now, Taking::Nothing, readings)
    }

    pub(super) fn places(&self, items: &[Item<'_>]) -> CellPlaces {
        let each = items.iter();
        each.map_while(|item| self.place(item.limit, item.slot, item.key, item.scale.multiply))
            .collect()
    }

    #[inline]
    fn decide(
        &self,
        items: &[Item<'_>],
        places: &CellPlaces,
        now: Nanos,
        taking: Taking,
        readings: &mut SmallVec<[Reading; 4]>,
    ) -> bool {
        debug_assert_eq!(self.places(items)[..], places[..]);
        readings.clear();
        let cheap = fast::decide(
            &self.cells,
            &self.sketch,
            (items, places),
            (now, taking),
            readings,
        );
        cheap.unwrap_or_else(|| self.decide_all(items, now, taking, readings))
    }

    // Apart, so that what it needs on the stack costs nothing where it is not needed.
    #[inline(never)]
    pub(super) fn decide_all(
        &self,
        items: &[Item<'_>],
        now: Nanos,
        taking: Taking,
        readings: &mut SmallVec<[Reading; 4]>,
    ) -> bool {
        match FullDecision::new(&self.cells, &self.sketch, items, now, taking) {
            Some(call) => call.decide(readings),
            None => {
                readings.resize(items.len(), decide::refused());
                false
            }
        }
    }

    /// Ends a reservation that [`Memory::take`] made for `item`: `used` units count from `now`, in the
    /// item's networks too. `sketched` is what the reading of the reservation said.
    pub fn settle(&self, item: &Item<'_>, sketched: bool, used: u32, now: Nanos) {
        settle::settle(&self.cells, &self.sketch, item, sketched, used, now);
    }

    /// Units that a key has used in each window of a limit, as far as its cell knows.
    pub fn used(&self, item: &Item<'_>, now: Nanos) -> SmallVec<[u32; 2]> {
        let Some(info) = self.cells.slots.get(item.slot) else {
            return SmallVec::new();
        };
        let owner = CellOwner {
            spot: self.cells.table.spot(info.seed(), item.key, false),
            slot: item.slot,
            info,
            limit: item.limit,
        };
        let mut held = decide::hold(&self.cells, std::iter::once(owner.spot));
        let windows = 0..item.limit.windows.len();
        match self.cells.locate(&mut held, &owner, now) {
            CellLookup::EntryAt(at) => self.cells.look(&mut held, at, &owner, |cell| {
                windows.map(|window| cell.used(now, window)).collect()
            }),
            CellLookup::Missing | CellLookup::Stuck => windows.map(|_| 0).collect(),
        }
    }

    /// Counts units that something else has admitted.
    pub fn count(&self, item: &Item<'_>, units: u32, now: Nanos) {
        let item = Item {
            cost: 0,
            parents: &[],
            ..*item
        };
        settle::settle(&self.cells, &self.sketch, &item, false, units, now);
    }

    /// Forgets what a key has used under a limit; false when it has no cell. What the overflow sketch
    /// counted for it and what its networks have used stays, for others share both: a key whose
    /// reading was [sketched](Reading::sketched) is free only when the sketch has forgotten it.
    pub fn reset(&self, slot: Slot, key: Fingerprint) -> bool {
        let Some(info) = self.cells.slots.get(slot) else {
            return false;
        };
        let spot = self.cells.table.spot(info.seed(), key, false);
        let mut held = decide::hold(&self.cells, std::iter::once(spot));
        let limit = &info.limit();
        let owner = CellOwner {
            spot,
            slot,
            info,
            limit,
        };
        let found = self.cells.find(&mut held, &owner);
        if let Some(at) = found {
            self.cells.remove(&mut held, at);
        }
        found.is_some()
    }

    /// Evicts what is equal to fresh in the next `buckets` buckets; how many keys that were.
    pub fn sweep(&self, now: Nanos, buckets: usize) -> usize {
        self.cells
            .sweep(now, u32::try_from(buckets).unwrap_or(u32::MAX))
    }

    /// What the store holds.
    pub fn usage(&self) -> Usage {
        let keys = self.cells.keys.load(Relaxed);
        let bytes = keys * 16 + self.cells.arena.used() + self.sketch.used();
        Usage {
            budget: self.budget,
            bytes,
            keys,
            sketched: self.sketch.decided(),
        }
    }
}
