//! [`FullDecision`]: the full decision about all limits of one request. It evaluates each limit, then takes units of all
//! limits or of none; each shadow is decided about by itself. [`fast_path`](super::fast_path) makes the same decisions at
//! lower cost, where it can.
//!
//! Decisions are linearizable, because all buckets involved are locked from the first read to the last change. They are
//! locked in ascending order, so that no two decisions wait for each other. Besides, a decision waits only for the short
//! locks of arena, sketch and registered limits.

use smallvec::SmallVec;

use super::bucket_table::{KeyBuckets, LockedBuckets};
use super::cells::{CellLookup, CellOwner, Cells};
use super::item_cell::{ItemCell, NetworkCell};
use super::networks::{NetworkBudget, NetworkRoom};
use super::sketch::Sketch;
use super::sketched_units;
use crate::base::clock::Nanos;
use crate::limit::{KeyState, LimitFinding, LimitStanding};
use crate::store::{LimitItem, Taking};

/// The wait in a refusal by a limit whose counts cannot be read. It is a guess: nothing tells when memory is free again.
const UNKNOWN_WAIT: Nanos = Nanos::from_secs(1);

type ItemCells<'a> = SmallVec<[ItemCell<'a>; 4]>;
type NetworkCells = SmallVec<[NetworkCell; 4]>;

/// A full decision in progress.
pub(super) struct FullDecision<'a> {
    cells: &'a Cells,
    sketch: &'a Sketch,
    now: Nanos,
    taking: Taking,
    /// Whether the current round takes units if it admits. All items but shadows are one round, then each shadow is a round
    /// of its own.
    takes_units: bool,
    item_cells: ItemCells<'a>,
    networks: NetworkCells,
    locked: LockedBuckets<'a>,
}

impl<'a> FullDecision<'a> {
    /// Locks all buckets that `items` need; `None` if an item's slot was never registered, or its limit has no window.
    pub(super) fn new(
        cells: &'a Cells,
        sketch: &'a Sketch,
        items: &'a [LimitItem<'a>],
        now: Nanos,
        taking: Taking,
    ) -> Option<FullDecision<'a>> {
        let mut item_cells = ItemCells::new();
        let mut networks = NetworkCells::new();
        for item in items {
            let info = cells.slots.get(item.slot)?;
            let key_buckets = cells.table.key_buckets(info.scope_hash(), item.key, false);
            let first_network = networks.len();
            let rate = item.limit.windows.last()?;
            for parent in item.parents {
                let plan_factor = item.scale.plan_factor;
                networks.push(NetworkCell {
                    key_buckets: cells.table.key_buckets(info.scope_hash(), parent.key, true),
                    budget: NetworkBudget::new(item.limit, rate, plan_factor, parent.factor),
                    position: None,
                    is_created: false,
                    earlier_units: 0,
                    has_entry: false,
                });
            }
            item_cells.push(ItemCell {
                item,
                owner: CellOwner {
                    key_buckets,
                    slot: item.slot,
                    info,
                    limit: item.limit,
                },
                position: None,
                is_stuck: false,
                is_created: false,
                earlier_units: 0,
                has_room: false,
                networks: first_network..networks.len(),
            });
        }
        let item_buckets = item_cells
            .iter()
            .map(|item_cell| item_cell.owner.key_buckets);
        let network_buckets = networks.iter().map(|network| network.key_buckets);
        let locked = lock_buckets(cells, item_buckets.chain(network_buckets));
        Some(FullDecision {
            cells,
            sketch,
            now,
            taking,
            takes_units: taking == Taking::All,
            item_cells,
            networks,
            locked,
        })
    }

    /// Decides, and leaves one finding for each item. Returns whether all items but shadows admit. A shadow that admits
    /// takes its units even if the others refuse.
    pub(super) fn decide(mut self, findings: &mut SmallVec<[LimitFinding; 4]>) -> bool {
        findings.resize(self.item_cells.len(), unknown_finding());
        for index in 0..self.item_cells.len() {
            self.find_cells(index);
        }
        let enforced: SmallVec<[usize; 4]> = (0..self.item_cells.len())
            .filter(|index| !self.item_cells[*index].item.is_shadow)
            .collect();
        let is_admitted = self.decide_round(&enforced, findings);
        self.takes_units = self.taking != Taking::Nothing;
        if enforced.len() < self.item_cells.len() {
            for index in 0..self.item_cells.len() {
                if self.item_cells[index].item.is_shadow {
                    // The other items may have created its cell.
                    self.find_cells(index);
                    self.decide_round(&[index], findings);
                }
            }
        }
        is_admitted
    }

    /// Finds the cell of an item's key, and the entries of the networks around the key. Converts the cell if it has another
    /// shape.
    fn find_cells(&mut self, index: usize) {
        let item_cell = &mut self.item_cells[index];
        match self
            .cells
            .find_cell(&mut self.locked, &item_cell.owner, self.now)
        {
            CellLookup::Missing => item_cell.position = None,
            CellLookup::Found(position) => item_cell.position = Some(position),
            CellLookup::Stuck => item_cell.is_stuck = true,
        }
        for network in &mut self.networks[item_cell.networks.clone()] {
            let owner = CellOwner {
                key_buckets: network.key_buckets,
                ..item_cell.owner
            };
            network.position = self.cells.find_entry(&mut self.locked, &owner);
        }
    }

    /// Decides about the items with these indices together: takes units of all of them, or of none. Leaves their findings,
    /// and returns whether all admit.
    fn decide_round(&mut self, indices: &[usize], findings: &mut [LimitFinding]) -> bool {
        for (order, index) in indices.iter().enumerate() {
            self.count_earlier_units(&indices[..order], *index);
            findings[*index] = self.evaluate(*index);
        }
        let all_admit = |findings: &[LimitFinding]| {
            indices
                .iter()
                .all(|index| findings[*index].standing.admits())
        };
        let mut is_admitted = all_admit(findings);
        let mut all_have_room = true;
        if is_admitted && self.takes_units {
            for (order, index) in indices.iter().enumerate() {
                all_have_room &= self.make_room(&indices[..order], *index);
            }
        } else {
            for index in indices {
                self.assume_room(*index);
            }
        }
        if !all_have_room {
            for index in indices {
                self.refuse_uncountable_credits(*index, &mut findings[*index]);
            }
        }
        // Units without room are counted in the sketch, whose estimates may refuse them.
        if !all_have_room || self.is_sketch_active(indices) {
            for index in indices {
                self.add_sketch_units(*index, &mut findings[*index]);
            }
            is_admitted = all_admit(findings);
            if is_admitted && self.takes_units {
                for index in indices {
                    self.charge_sketch(*index);
                }
            }
        }
        for index in indices {
            let finding = &mut findings[*index];
            match (self.takes_units, is_admitted) {
                (true, true) => self.take_units(*index, finding),
                (true, false) => {
                    self.remove_created_cells(*index);
                    self.complete_finding(*index, finding);
                }
                (false, _) => self.complete_finding(*index, finding),
            }
        }
        is_admitted
    }

    /// Refuses a request for credits that no cell can count: the sketch forgets units after a time, and the credits would be
    /// used again.
    fn refuse_uncountable_credits(&self, index: usize, finding: &mut LimitFinding) {
        let item_cell = &self.item_cells[index];
        if item_cell.item.limit.is_credits() && !item_cell.has_room {
            (finding.standing, finding.wait) = (LimitStanding::Refused, UNKNOWN_WAIT);
            finding.sketched = true;
        }
    }

    /// Whether the sketch may hold units in a window of one of these items' limits.
    fn is_sketch_active(&self, indices: &[usize]) -> bool {
        let limits = indices
            .iter()
            .map(|index| self.item_cells[*index].item.limit);
        self.sketch
            .is_active(self.now, limits.flat_map(sketched_units::sketch_windows))
    }

    /// Adds up the units that earlier items of the round ask for in the same cells.
    fn count_earlier_units(&mut self, earlier_indices: &[usize], index: usize) {
        let key_buckets = self.item_cells[index].owner.key_buckets;
        let earlier_cells = earlier_indices.iter().map(|index| &self.item_cells[*index]);
        let same_key_cells =
            earlier_cells.filter(|item_cell| item_cell.owner.key_buckets.is_same_key(&key_buckets));
        self.item_cells[index].earlier_units = same_key_cells.fold(0, |sum: u32, item_cell| {
            sum.saturating_add(item_cell.item.cost)
        });
        for network in self.item_cells[index].networks.clone() {
            let key_buckets = self.networks[network].key_buckets;
            let mut earlier_units = 0u32;
            for item_cell in earlier_indices.iter().map(|index| &self.item_cells[*index]) {
                let networks = self.networks[item_cell.networks.clone()].iter();
                let same_networks =
                    networks.filter(|network| network.key_buckets.is_same_key(&key_buckets));
                let units = item_cell
                    .item
                    .cost
                    .saturating_mul(same_networks.count() as u32);
                earlier_units = earlier_units.saturating_add(units);
            }
            self.networks[network].earlier_units = earlier_units;
        }
    }

    /// The finding of an item's cell and networks, without the sketch's units.
    fn evaluate(&mut self, index: usize) -> LimitFinding {
        let item_cell = &self.item_cells[index];
        if item_cell.is_stuck {
            return unknown_finding();
        }
        let (limit, scale) = (item_cell.item.limit, item_cell.item.scale);
        let cost = item_cell.earlier_units.saturating_add(item_cell.item.cost);
        let mut finding = match item_cell.position {
            Some(position) => {
                self.cells
                    .read_cell(&mut self.locked, position, &item_cell.owner, |cell| {
                        cell.assess(self.now, cost, scale)
                    })
            }
            None => {
                // A key without a cell is assessed by a fresh state.
                let mut words: SmallVec<[u32; 64]> = SmallVec::new();
                words.resize(limit.min_words(1), 0);
                let cell = KeyState {
                    limit,
                    key: item_cell.owner.key_buckets.key(),
                    wall: self.cells.wall(),
                    words: &mut words,
                };
                cell.assess(self.now, cost, scale)
            }
        };
        for network in &self.networks[item_cell.networks.clone()] {
            let tat = network
                .position
                .map_or(0, |position| self.locked.state(position));
            let cost = network.earlier_units.saturating_add(item_cell.item.cost);
            let remaining = network.budget.remaining_units(tat, self.now);
            match network.budget.evaluate(tat, self.now, cost) {
                NetworkRoom::Passes(_) => finding.remaining = finding.remaining.min(remaining),
                NetworkRoom::Full(wait) => {
                    sketched_units::refuse(&mut finding, item_cell.item, remaining, wait)
                }
                NetworkRoom::Never => finding.standing = LimitStanding::Unsatisfiable,
            }
        }
        finding
    }

    /// Makes room for an item's units in its cell and networks, and creates those that are missing. Returns whether all
    /// have room.
    fn make_room(&mut self, earlier_indices: &[usize], index: usize) -> bool {
        let key_buckets = self.item_cells[index].owner.key_buckets;
        let mut earlier_cells = earlier_indices.iter().map(|index| &self.item_cells[*index]);
        // An earlier item of the same key may have created the cell.
        let same_key_cell =
            earlier_cells.find(|item_cell| item_cell.owner.key_buckets.is_same_key(&key_buckets));
        let created_position = same_key_cell.and_then(|item_cell| item_cell.position);
        let item_cell = &mut self.item_cells[index];
        item_cell.position = item_cell.position.or(created_position);
        let cost = item_cell.earlier_units.saturating_add(item_cell.item.cost);
        let position_with_room = self.cells.make_room(
            &mut self.locked,
            item_cell.position,
            &item_cell.owner,
            self.now,
            cost,
        );
        item_cell.is_created = item_cell.position.is_none() && position_with_room.is_some();
        item_cell.has_room = position_with_room.is_some();
        item_cell.position = item_cell.position.or(position_with_room);
        let mut all_have_room = item_cell.has_room;
        let slot = item_cell.item.slot;
        for index in item_cell.charged_networks() {
            let (earlier_networks, remaining_networks) = self.networks.split_at_mut(index);
            let network = &mut remaining_networks[0];
            let same_network = earlier_networks
                .iter()
                .find(|earlier| earlier.key_buckets.is_same_key(&network.key_buckets));
            network.position = network
                .position
                .or(same_network.and_then(|earlier| earlier.position));
            let entry = self.cells.make_network_room(
                &mut self.locked,
                network.position,
                &network.key_buckets,
                slot,
                self.now,
            );
            network.is_created = network.position.is_none() && entry.is_some();
            network.has_entry = entry.is_some();
            network.position = entry;
            all_have_room &= network.has_entry;
        }
        all_have_room
    }

    /// Treats existing cells as cells with room, because this round takes no units.
    fn assume_room(&mut self, index: usize) {
        let item_cell = &mut self.item_cells[index];
        item_cell.has_room = item_cell.position.is_some();
        for network in &mut self.networks[item_cell.networks.clone()] {
            network.has_entry = network.position.is_some();
        }
    }

    /// Adds the sketch's units to a finding, for the item's key and its networks.
    fn add_sketch_units(&mut self, index: usize, finding: &mut LimitFinding) {
        let (sketch, now, item_cell) = (self.sketch, self.now, &self.item_cells[index]);
        sketched_units::add_cell_units(
            sketch,
            self.cells,
            &mut self.locked,
            item_cell,
            now,
            finding,
        );
        for network in &self.networks[item_cell.networks.clone()] {
            let tat = network
                .position
                .map_or(0, |position| self.locked.state(position));
            sketched_units::add_network_units(sketch, network, tat, item_cell.item, now, finding);
        }
    }

    /// Counts an item's units in the sketch, for its cell and those of its networks that have no room.
    fn charge_sketch(&self, index: usize) {
        let (sketch, now, item_cell) = (self.sketch, self.now, &self.item_cells[index]);
        let LimitItem { limit, cost, .. } = *item_cell.item;
        if !item_cell.has_room {
            sketched_units::charge_windows(
                sketch,
                limit,
                now,
                item_cell.owner.key_buckets.sketch_hash,
                cost,
            );
            sketch.count_decision();
        }
        let window = sketched_units::longest_sketch_window(limit);
        for network in &self.networks[item_cell.charged_networks()] {
            if !network.has_entry {
                sketch.charge(now, network.key_buckets.sketch_hash, window, cost);
            }
        }
    }

    /// Takes an item's units from its cell and networks where these have room, and completes the finding.
    fn take_units(&mut self, index: usize, finding: &mut LimitFinding) {
        let item_cell = &self.item_cells[index];
        let (cost, scale) = (item_cell.item.cost, item_cell.item.scale);
        let total_units = item_cell.earlier_units.saturating_add(cost);
        match item_cell.position.filter(|_| item_cell.has_room) {
            Some(position) => {
                self.cells
                    .change_cell(&mut self.locked, position, &item_cell.owner, |cell| {
                        cell.take_units(finding, self.now, cost, scale);
                        cell.complete_finding(finding, self.now, total_units, scale.plan_factor);
                    })
            }
            None => finding.remaining = finding.remaining.saturating_sub(total_units),
        }
        for network in &self.networks[item_cell.charged_networks()] {
            let Some(position) = network.position.filter(|_| network.has_entry) else {
                continue;
            };
            let tat = self.locked.state(position);
            let new_tat = network.budget.charged_tat(tat, self.now, cost);
            self.locked.set_state(position, new_tat);
        }
    }

    /// Completes the finding of a cell from which no units were taken.
    fn complete_finding(&mut self, index: usize, finding: &mut LimitFinding) {
        let item_cell = &self.item_cells[index];
        // A refusal by a network or by the sketch has set the reset.
        if item_cell.is_stuck || finding.reset != Nanos::ZERO {
            return;
        }
        if let Some(position) = item_cell.position {
            let plan_factor = item_cell.item.scale.plan_factor;
            self.cells
                .change_cell(&mut self.locked, position, &item_cell.owner, |cell| {
                    cell.follow_clock(self.now);
                    cell.complete_finding(finding, self.now, 0, plan_factor);
                });
        }
    }

    /// Removes the cells that were created for a request that is refused after all.
    fn remove_created_cells(&mut self, index: usize) {
        let item_cell = &mut self.item_cells[index];
        if std::mem::take(&mut item_cell.is_created)
            && let Some(position) = item_cell.position.take()
        {
            self.cells.remove_entry(&mut self.locked, position);
        }
        for network in &mut self.networks[item_cell.networks.clone()] {
            if std::mem::take(&mut network.is_created)
                && let Some(position) = network.position.take()
            {
                self.cells.remove_entry(&mut self.locked, position);
            }
        }
    }
}

/// Locks the home buckets of all keys, and the alternate buckets where keys may be displaced to them.
pub(super) fn lock_buckets<'a>(
    cells: &'a Cells,
    all_key_buckets: impl Iterator<Item = KeyBuckets> + Clone,
) -> LockedBuckets<'a> {
    loop {
        let mut buckets: SmallVec<[u32; 8]> = SmallVec::new();
        for key_buckets in all_key_buckets.clone() {
            buckets.push(key_buckets.home_bucket);
            if cells.table.has_displaced_keys(key_buckets.home_bucket) {
                buckets.push(key_buckets.alternate_bucket);
            }
        }
        let locked = cells.table.lock_all(buckets);
        // A key may have been displaced before the buckets were locked.
        let is_covered = |key_buckets: KeyBuckets| {
            !cells.table.has_displaced_keys(key_buckets.home_bucket)
                || locked.is_locked(key_buckets.alternate_bucket)
        };
        if all_key_buckets.clone().all(is_covered) {
            return locked;
        }
    }
}

/// The refusal by a limit whose counts cannot be read: its cell cannot be converted, or some item of the request has an
/// unknown slot or a limit without windows.
pub(super) fn unknown_finding() -> LimitFinding {
    LimitFinding {
        standing: LimitStanding::Refused,
        window: 0,
        quota: 0,
        remaining: 0,
        wait: UNKNOWN_WAIT,
        reset: UNKNOWN_WAIT,
        delay: Nanos::ZERO,
        calendar_window: None,
        sketched: true,
    }
}
