//! The in-memory store: all workers share one, its memory is fixed in bytes, and it never forgives.
//! Only cells equal to fresh are evicted; a key that finds no room is decided by a sketch that
//! over-estimates. All limits of one request are taken, or none.
//!
//! | file | what it is |
//! |---|---|
//! | `decide` | one request's decision over all its limits |
//! | `cells` | finds, makes, moves and evicts cells |
//! | `table` | buckets of seven entries, two for each key, a spin lock each |
//! | `arena` | blocks for states that outgrow an entry |
//! | `sketch`, `hedge` | the overflow sketch, and what it adds to a decision |
//! | `networks` | budgets of the networks around an address |
//! | `slots` | the limits that were registered |
//! | `map` | zeroed memory on demand; the only unsafe code |

mod arena;
mod cells;
mod decide;
mod hedge;
mod map;
mod networks;
mod sketch;
mod slots;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use self::arena::Arena;
use self::cells::{Cells, Found, Owner};
use self::decide::Call;
use self::sketch::Sketch;
use self::table::Table;
use super::{Item, Slot};
use crate::clock::Nanos;
use crate::limit::{Fingerprint, Limit, Reading};

/// Reservations in the sketch are taken to be settled within this.
const RESERVED_AT_MOST: Nanos = Nanos::from_secs(60);

/// What a store is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes that all counts together may take, at least [`Settings::LEAST`].
    pub budget: usize,
}

impl Settings {
    /// The smallest budget: 1 MiB.
    pub const LEAST: usize = 1 << 20;
}

/// Why a store cannot be made or cannot take a limit.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The budget is below [`Settings::LEAST`].
    #[error("the store needs at least {least} bytes", least = Settings::LEAST)]
    Budget,
    /// Too many shapes of limits since the start.
    #[error("more than {most} limits were registered since the start", most = slots::Slots::MOST)]
    Slots,
    /// The system gives no memory.
    #[error("the system gives no memory for the store: {0}")]
    Memory(#[from] io::Error),
}

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
    cells: Cells,
    sketch: Sketch,
    budget: usize,
}

impl Memory {
    /// Splits the budget once: a quarter for the table, half for the arena, the rest for sketches.
    pub fn new(settings: Settings) -> Result<Memory, Error> {
        let budget = settings.budget;
        if budget < Settings::LEAST {
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
    pub fn register(&self, scope: &str, limit: &Limit) -> Result<Slot, Error> {
        for rate in &limit.windows {
            self.sketch.prepare(rate.window());
        }
        self.cells.slots.register(scope, limit)
    }

    /// Takes all items that are not shadows, or none of them; each shadow takes when it alone admits.
    /// Leaves one reading for each item and says whether the request passes.
    pub fn take(
        &self,
        items: &[Item<'_>],
        now: Nanos,
        readings: &mut SmallVec<[Reading; 4]>,
    ) -> bool {
        self.decide(items, now, true, readings)
    }

    /// What [`Memory::take`] would say, consuming nothing.
    pub fn peek(
        &self,
        items: &[Item<'_>],
        now: Nanos,
        readings: &mut SmallVec<[Reading; 4]>,
    ) -> bool {
        self.decide(items, now, false, readings)
    }

    fn decide(
        &self,
        items: &[Item<'_>],
        now: Nanos,
        consume: bool,
        readings: &mut SmallVec<[Reading; 4]>,
    ) -> bool {
        readings.clear();
        match Call::new(&self.cells, &self.sketch, items, now, consume) {
            Some(call) => call.decide(readings),
            None => {
                readings.resize(items.len(), decide::refused());
                false
            }
        }
    }

    /// Ends a reservation that [`Memory::take`] made for `item`: `used` units count from `now`.
    pub fn settle(&self, item: &Item<'_>, used: u32, now: Nanos) {
        let Item {
            limit,
            slot,
            key,
            cost: reserved,
            multiply,
            ..
        } = *item;
        let Some(info) = self.cells.slots.get(slot) else {
            return;
        };
        let spot = self.cells.table.spot(info.seed, key, false);
        let owner = Owner {
            spot,
            slot,
            info,
            limit,
        };
        let mut held = decide::hold(&self.cells, std::iter::once(spot));
        let found = self.cells.locate(&mut held, &owner, now);
        let at = match found {
            Found::Here(at) => Some(at),
            Found::Nothing if !self.sketched(&owner, now) => None,
            Found::Nothing | Found::Stuck => {
                return self.settle_sketched(&owner, reserved, used, now);
            }
        };
        if at.is_none() && used == 0 {
            return;
        }
        match self.cells.room(&mut held, at, &owner, now, used) {
            Some(at) => self.cells.change(&mut held, at, &owner, |cell| {
                cell.settle(now, reserved, used, multiply)
            }),
            None => {
                if let Some(at) = at {
                    self.cells.change(&mut held, at, &owner, |cell| {
                        cell.settle(now, reserved, 0, multiply)
                    });
                }
                hedge::charge(&mut self.sketch.open(now), limit, spot.hash, used);
            }
        }
    }

    fn sketched(&self, owner: &Owner<'_>, now: Nanos) -> bool {
        let hash = owner.spot.hash;
        self.sketch.active(now) && {
            let mut open = self.sketch.open(now);
            let mut windows = owner.limit.windows.iter();
            windows.any(|rate| open.estimate(hash, rate.window()).units > 0)
        }
    }

    /// The sketch counted the reservation when it was made and gives nothing back. A unit that counts
    /// from `now` must outlive the epoch of its reservation, so it is counted again when that may be
    /// the epoch before.
    fn settle_sketched(&self, owner: &Owner<'_>, reserved: u32, used: u32, now: Nanos) {
        let mut open = self.sketch.open(now);
        let young = owner
            .limit
            .windows
            .iter()
            .any(|r| open.younger(r.window(), RESERVED_AT_MOST));
        let units = if young {
            used
        } else {
            used.saturating_sub(reserved)
        };
        hedge::charge(&mut open, owner.limit, owner.spot.hash, units);
    }

    /// Forgets what a key has used under a limit; false when it has no cell.
    pub fn reset(&self, slot: Slot, key: Fingerprint) -> bool {
        let Some(info) = self.cells.slots.get(slot) else {
            return false;
        };
        let spot = self.cells.table.spot(info.seed, key, false);
        let mut held = decide::hold(&self.cells, std::iter::once(spot));
        let own = |other| {
            self.cells
                .slots
                .get(Slot(other))
                .is_some_and(|i| i.scope == info.scope)
        };
        let Some(at) = held.find(&spot, own) else {
            return false;
        };
        self.cells.remove(&mut held, at);
        true
    }

    /// Starts fetching what a decision about `key` will read.
    pub fn prefetch(&self, slot: Slot, key: Fingerprint) {
        if let Some(info) = self.cells.slots.get(slot) {
            self.cells
                .table
                .prefetch(&self.cells.table.spot(info.seed, key, false));
        }
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
