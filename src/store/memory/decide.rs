//! The full decision about all limits of one request: it evaluates each limit, then takes units of all or of none. Decisions
//! are linearizable, because all buckets involved are locked in ascending order, from the first look to the last change.
//! It never waits for anything but these locks.

use smallvec::SmallVec;

use super::cells::{CellLookup, CellOwner, Cells};
use super::hedge;
use super::item_cell::{ItemCell, NetworkCell};
use super::networks::{NetworkBudget, NetworkRoom};
use super::sketch::Sketch;
use super::table::{LockedBuckets, Spot};
use crate::base::clock::Nanos;
use crate::limit::{KeyState, LimitReading, LimitStanding};
use crate::store::{Item, Taking};

/// The wait in a refusal because the counts cannot be read.
const UNKNOWN_WAIT: Nanos = Nanos::from_secs(1);

type ItemCells<'a> = SmallVec<[ItemCell<'a>; 4]>;
type NetworkCells = SmallVec<[NetworkCell; 4]>;

/// A decision in progress.
pub(super) struct FullDecision<'a> {
    cells: &'a Cells,
    sketch: &'a Sketch,
    now: Nanos,
    taking: Taking,
    /// Whether this round takes units.
    takes_units: bool,
    parts: ItemCells<'a>,
    networks: NetworkCells,
    locked: LockedBuckets<'a>,
}

impl<'a> FullDecision<'a> {
    /// Locks all buckets that `items` need; `None` when an item names a slot that was never registered.
    pub(super) fn new(
        cells: &'a Cells,
        sketch: &'a Sketch,
        items: &'a [Item<'a>],
        now: Nanos,
        taking: Taking,
    ) -> Option<FullDecision<'a>> {
        let mut parts = ItemCells::new();
        let mut networks = NetworkCells::new();
        for item in items {
            let info = cells.slots.get(item.slot)?;
            let spot = cells.table.spot(info.seed(), item.key, false);
            let first_network = networks.len();
            let rate = item.limit.windows.last()?;
            for parent in item.parents {
                let multiply = item.scale.multiply;
                networks.push(NetworkCell {
                    spot: cells.table.spot(info.seed(), parent.key, true),
                    budget: NetworkBudget::new(item.limit, rate, multiply, parent.factor),
                    at: None,
                    is_created: false,
                    earlier_units: 0,
                    has_entry: false,
                });
            }
            parts.push(ItemCell {
                item,
                owner: CellOwner {
                    spot,
                    slot: item.slot,
                    info,
                    limit: item.limit,
                },
                at: None,
                is_stuck: false,
                is_created: false,
                earlier_units: 0,
                has_room: false,
                networks: first_network..networks.len(),
            });
        }
        let key_spots = parts.iter().map(|part| part.owner.spot);
        let network_spots = networks.iter().map(|network| network.spot);
        let locked = lock_buckets(cells, key_spots.chain(network_spots));
        Some(FullDecision {
            cells,
            sketch,
            now,
            taking,
            takes_units: taking == Taking::All,
            parts,
            networks,
            locked,
        })
    }

    /// Decides, and leaves one reading for each item. Returns whether all items but shadows admit.
    pub(super) fn decide(mut self, readings: &mut SmallVec<[LimitReading; 4]>) -> bool {
        readings.resize(self.parts.len(), unknown_reading());
        for index in 0..self.parts.len() {
            self.locate(index);
        }
        let deciding: SmallVec<[usize; 4]> = (0..self.parts.len())
            .filter(|index| !self.parts[*index].item.shadow)
            .collect();
        let admitted = self.decide_round(&deciding, readings);
        self.takes_units = self.taking != Taking::Nothing;
        if deciding.len() < self.parts.len() {
            for index in 0..self.parts.len() {
                if self.parts[index].item.shadow {
                    // The other items may have created its cell.
                    self.locate(index);
                    self.decide_round(&[index], readings);
                }
            }
        }
        admitted
    }

    /// Finds the cells of an item.
    fn locate(&mut self, index: usize) {
        let part = &mut self.parts[index];
        match self.cells.locate(&mut self.locked, &part.owner, self.now) {
            CellLookup::Missing => part.at = None,
            CellLookup::EntryAt(at) => part.at = Some(at),
            CellLookup::Stuck => part.is_stuck = true,
        }
        for network in &mut self.networks[part.networks.clone()] {
            let owner = CellOwner {
                spot: network.spot,
                ..part.owner
            };
            network.at = self.cells.find(&mut self.locked, &owner);
        }
    }

    /// Decides about the items with these indices together: takes units of all of them, or of none.
    fn decide_round(&mut self, indices: &[usize], readings: &mut [LimitReading]) -> bool {
        for (position, index) in indices.iter().enumerate() {
            self.count_earlier_units(&indices[..position], *index);
            readings[*index] = self.evaluate(*index);
        }
        let all_admit =
            |readings: &[LimitReading]| indices.iter().all(|i| readings[*i].standing.admits());
        let mut admitted = all_admit(readings);
        let mut has_room = true;
        if admitted && self.takes_units {
            for (position, index) in indices.iter().enumerate() {
                has_room &= self.make_room(&indices[..position], *index);
            }
        } else {
            for index in indices {
                self.assume_room(*index);
            }
        }
        if !has_room || self.is_sketch_active(indices) {
            for index in indices {
                self.add_sketch_units(*index, &mut readings[*index]);
            }
            admitted = all_admit(readings);
            if admitted && self.takes_units {
                for index in indices {
                    self.charge_sketch(*index);
                }
            }
        }
        for index in indices {
            let reading = &mut readings[*index];
            match (self.takes_units, admitted) {
                (true, true) => self.take_units(*index, reading),
                (true, false) => {
                    self.remove_created(*index);
                    self.complete_reading(*index, reading);
                }
                (false, _) => self.complete_reading(*index, reading),
            }
        }
        admitted
    }

    fn is_sketch_active(&self, indices: &[usize]) -> bool {
        let limits = indices.iter().map(|index| self.parts[*index].item.limit);
        self.sketch
            .is_active(self.now, limits.flat_map(hedge::sketch_windows))
    }

    /// Adds up the units that earlier items of the round ask for in the same cells.
    fn count_earlier_units(&mut self, earlier: &[usize], index: usize) {
        let spot = self.parts[index].owner.spot;
        let earlier_parts = earlier.iter().map(|i| &self.parts[*i]);
        let same_cell = earlier_parts.filter(|part| part.owner.spot.is_same_key(&spot));
        self.parts[index].earlier_units =
            same_cell.fold(0, |sum: u32, part| sum.saturating_add(part.item.cost));
        for network in self.parts[index].networks.clone() {
            let spot = self.networks[network].spot;
            let mut earlier_units = 0u32;
            for part in earlier.iter().map(|i| &self.parts[*i]) {
                let networks = self.networks[part.networks.clone()].iter();
                let same = networks.filter(|other| other.spot.is_same_key(&spot));
                let units = part.item.cost.saturating_mul(same.count() as u32);
                earlier_units = earlier_units.saturating_add(units);
            }
            self.networks[network].earlier_units = earlier_units;
        }
    }

    /// The reading of the cell and the networks, without the sketch's units.
    fn evaluate(&mut self, index: usize) -> LimitReading {
        let part = &self.parts[index];
        if part.is_stuck {
            return unknown_reading();
        }
        let (limit, scale) = (part.item.limit, part.item.scale);
        let cost = part.earlier_units.saturating_add(part.item.cost);
        let mut reading = match part.at {
            Some(at) => self
                .cells
                .read_cell(&mut self.locked, at, &part.owner, |cell| {
                    cell.assess(self.now, cost, scale)
                }),
            None => {
                let mut words: SmallVec<[u32; 64]> = SmallVec::new();
                words.resize(limit.min_words(1), 0);
                let cell = KeyState {
                    limit,
                    key: part.owner.spot.key(),
                    words: &mut words,
                };
                cell.assess(self.now, cost, scale)
            }
        };
        for network in &self.networks[part.networks.clone()] {
            let arrival = network.at.map_or(0, |at| self.locked.state(at));
            let cost = network.earlier_units.saturating_add(part.item.cost);
            let remaining = network.budget.remaining(arrival, self.now);
            match network.budget.evaluate(arrival, self.now, cost) {
                NetworkRoom::Passes(_) => reading.remaining = reading.remaining.min(remaining),
                NetworkRoom::Full(wait) => hedge::refuse(&mut reading, part.item, remaining, wait),
                NetworkRoom::Never => reading.standing = LimitStanding::Unsatisfiable,
            }
        }
        reading
    }

    /// Makes room for an item's units in its cells, and creates missing cells. Returns whether all cells have room.
    fn make_room(&mut self, earlier: &[usize], index: usize) -> bool {
        let spot = self.parts[index].owner.spot;
        let mut earlier_parts = earlier.iter().map(|i| &self.parts[*i]);
        // An earlier item of the same key may have created the cell.
        let same_cell = earlier_parts.find(|part| part.owner.spot.is_same_key(&spot));
        let created = same_cell.and_then(|part| part.at);
        let part = &mut self.parts[index];
        part.at = part.at.or(created);
        let cost = part.earlier_units.saturating_add(part.item.cost);
        let room = self
            .cells
            .make_room(&mut self.locked, part.at, &part.owner, self.now, cost);
        part.is_created = part.at.is_none() && room.is_some();
        part.has_room = room.is_some();
        part.at = part.at.or(room);
        let mut has_room = part.has_room;
        let slot = part.item.slot;
        for index in part.charged_networks() {
            let (earlier, others) = self.networks.split_at_mut(index);
            let network = &mut others[0];
            let mut earlier = earlier.iter();
            let same_network = earlier.find(|other| other.spot.is_same_key(&network.spot));
            network.at = network.at.or(same_network.and_then(|other| other.at));
            let entry = self.cells.make_network_room(
                &mut self.locked,
                network.at,
                &network.spot,
                slot,
                self.now,
            );
            network.is_created = network.at.is_none() && entry.is_some();
            network.has_entry = entry.is_some();
            network.at = entry;
            has_room &= network.has_entry;
        }
        has_room
    }

    /// Takes existing cells for cells with room, because no units are taken in this round.
    fn assume_room(&mut self, index: usize) {
        let part = &mut self.parts[index];
        part.has_room = part.at.is_some();
        for network in &mut self.networks[part.networks.clone()] {
            network.has_entry = network.at.is_some();
        }
    }

    /// Adds the sketch's units to a reading.
    fn add_sketch_units(&mut self, index: usize, reading: &mut LimitReading) {
        let (sketch, now, part) = (self.sketch, self.now, &self.parts[index]);
        hedge::add_cell_units(sketch, self.cells, &mut self.locked, part, now, reading);
        for network in &self.networks[part.networks.clone()] {
            let arrival = network.at.map_or(0, |at| self.locked.state(at));
            hedge::add_network_units(sketch, network, arrival, part.item, now, reading);
        }
    }

    /// Counts an item's units in the sketch where its cells have no room.
    fn charge_sketch(&self, index: usize) {
        let (sketch, now, part) = (self.sketch, self.now, &self.parts[index]);
        let Item { limit, cost, .. } = *part.item;
        if !part.has_room {
            hedge::charge_windows(sketch, limit, now, part.owner.spot.hash, cost);
            sketch.count_decision();
        }
        let window = hedge::longest_sketch_window(limit);
        for network in &self.networks[part.charged_networks()] {
            if !network.has_entry {
                sketch.charge(now, network.spot.hash, window, cost);
            }
        }
    }

    /// Takes an item's units from its cells, and completes the reading.
    fn take_units(&mut self, index: usize, reading: &mut LimitReading) {
        let part = &self.parts[index];
        let (cost, scale) = (part.item.cost, part.item.scale);
        let total = part.earlier_units.saturating_add(cost);
        match part.at.filter(|_| part.has_room) {
            Some(at) => self
                .cells
                .change_cell(&mut self.locked, at, &part.owner, |cell| {
                    cell.take_units(reading, self.now, cost, scale);
                    cell.complete_reading(reading, self.now, total, scale.multiply);
                }),
            None => reading.remaining = reading.remaining.saturating_sub(total),
        }
        for network in &self.networks[part.charged_networks()] {
            let Some(at) = network.at.filter(|_| network.has_entry) else {
                continue;
            };
            let arrival = self.locked.state(at);
            let charged = network.budget.charged_arrival(arrival, self.now, cost);
            self.locked.set_state(at, charged);
        }
    }

    /// Completes the reading of a cell from which no units were taken.
    fn complete_reading(&mut self, index: usize, reading: &mut LimitReading) {
        let part = &self.parts[index];
        // A refusal by the sketch has set the reset.
        if part.is_stuck || reading.reset != Nanos::ZERO {
            return;
        }
        if let Some(at) = part.at {
            let multiply = part.item.scale.multiply;
            self.cells
                .read_cell(&mut self.locked, at, &part.owner, |cell| {
                    cell.complete_reading(reading, self.now, 0, multiply);
                });
        }
    }

    /// Removes the cells that were created for a request that is refused after all.
    fn remove_created(&mut self, index: usize) {
        let part = &mut self.parts[index];
        if std::mem::take(&mut part.is_created)
            && let Some(at) = part.at.take()
        {
            self.cells.remove(&mut self.locked, at);
        }
        for network in &mut self.networks[part.networks.clone()] {
            if std::mem::take(&mut network.is_created)
                && let Some(at) = network.at.take()
            {
                self.cells.remove(&mut self.locked, at);
            }
        }
    }
}

/// Locks the first buckets of all spots, and the second ones where keys may have moved there.
pub(super) fn lock_buckets<'a>(
    cells: &'a Cells,
    spots: impl Iterator<Item = Spot> + Clone,
) -> LockedBuckets<'a> {
    loop {
        let mut buckets: SmallVec<[u32; 8]> = SmallVec::new();
        for spot in spots.clone() {
            buckets.push(spot.first);
            if cells.table.has_moved_keys(spot.first) {
                buckets.push(spot.second);
            }
        }
        let locked = cells.table.lock_all(buckets);
        // A key may have moved before the buckets were locked.
        let is_covered =
            |spot: Spot| !cells.table.has_moved_keys(spot.first) || locked.is_locked(spot.second);
        if spots.clone().all(is_covered) {
            return locked;
        }
    }
}

/// The refusal by a limit whose counts cannot be read: its slot is unknown, or its cell cannot be converted.
pub(super) fn unknown_reading() -> LimitReading {
    LimitReading {
        standing: LimitStanding::Refused,
        window: 0,
        quota: 0,
        remaining: 0,
        wait: UNKNOWN_WAIT,
        reset: UNKNOWN_WAIT,
        delay: Nanos::ZERO,
        sketched: true,
    }
}
