//! A decision about all limits of one request: it looks at each limit, then takes units of all or of none. Decisions are
//! linearizable, because all buckets involved are locked in ascending order, from the first look to the last change.

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

/// The wait in a refusal because a cell could not be converted for lack of memory.
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
    consume: bool,
    parts: ItemCells<'a>,
    nets: NetworkCells,
    held: LockedBuckets<'a>,
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
        let mut nets = NetworkCells::new();
        for item in items {
            let info = cells.slots.get(item.slot)?;
            let spot = cells.table.spot(info.seed(), item.key, false);
            let start = nets.len();
            let rate = item.limit.windows.last()?;
            for parent in item.parents {
                nets.push(NetworkCell {
                    spot: cells.table.spot(info.seed(), parent.key, true),
                    budget: NetworkBudget::new(
                        item.limit,
                        rate,
                        item.scale.multiply,
                        parent.factor,
                    ),
                    at: None,
                    created: false,
                    before: 0,
                    room: false,
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
                stuck: false,
                created: false,
                before: 0,
                room: false,
                nets: start..nets.len(),
            });
        }
        let held = lock_buckets(
            cells,
            parts
                .iter()
                .map(|p| p.owner.spot)
                .chain(nets.iter().map(|n| n.spot)),
        );
        Some(FullDecision {
            cells,
            sketch,
            now,
            taking,
            consume: taking == Taking::All,
            parts,
            nets,
            held,
        })
    }

    /// Decides, and leaves one reading for each item.
    pub(super) fn decide(mut self, readings: &mut SmallVec<[LimitReading; 4]>) -> bool {
        readings.resize(self.parts.len(), unknown());
        for index in 0..self.parts.len() {
            self.locate(index);
        }
        let live: SmallVec<[usize; 4]> = (0..self.parts.len())
            .filter(|index| !self.parts[*index].item.shadow)
            .collect();
        let admitted = self.round(&live, readings);
        self.consume = self.taking != Taking::Nothing;
        if live.len() < self.parts.len() {
            for index in 0..self.parts.len() {
                if self.parts[index].item.shadow {
                    // Cells that the other items created are there now.
                    self.locate(index);
                    self.round(&[index], readings);
                }
            }
        }
        admitted
    }

    fn locate(&mut self, index: usize) {
        let part = &mut self.parts[index];
        match self.cells.locate(&mut self.held, &part.owner, self.now) {
            CellLookup::Missing => part.at = None,
            CellLookup::EntryAt(at) => part.at = Some(at),
            CellLookup::Stuck => part.stuck = true,
        }
        for net in &mut self.nets[part.nets.clone()] {
            let owner = CellOwner {
                spot: net.spot,
                ..part.owner
            };
            net.at = self.cells.find(&mut self.held, &owner);
        }
    }

    /// Takes units of all items in `which`, or of none.
    fn round(&mut self, which: &[usize], readings: &mut [LimitReading]) -> bool {
        for (place, index) in which.iter().enumerate() {
            self.count_before(&which[..place], *index);
            readings[*index] = self.stand(*index);
        }
        let admits =
            |readings: &[LimitReading]| which.iter().all(|i| readings[*i].standing.admits());
        let mut admitted = admits(readings);
        let mut roomy = true;
        if admitted && self.consume {
            for (place, index) in which.iter().enumerate() {
                roomy &= self.make_room(&which[..place], *index);
            }
        } else {
            for index in which {
                self.assume_room(*index);
            }
        }
        if !roomy || self.sketch_active(which) {
            for index in which {
                self.hedge(*index, &mut readings[*index]);
            }
            admitted = admits(readings);
            if admitted && self.consume {
                for index in which {
                    self.charge(*index);
                }
            }
        }
        for index in which {
            let reading = &mut readings[*index];
            match (self.consume, admitted) {
                (true, true) => self.take(*index, reading),
                (true, false) => {
                    self.undo(*index);
                    self.finish(*index, reading);
                }
                (false, _) => self.finish(*index, reading),
            }
        }
        admitted
    }

    fn sketch_active(&self, which: &[usize]) -> bool {
        let limits = which.iter().map(|index| self.parts[*index].item.limit);
        self.sketch
            .active(self.now, limits.flat_map(hedge::windows))
    }

    fn count_before(&mut self, earlier: &[usize], index: usize) {
        let spot = self.parts[index].owner.spot;
        let same = earlier
            .iter()
            .map(|i| &self.parts[*i])
            .filter(|p| p.owner.spot.same(&spot));
        self.parts[index].before = same.fold(0, |sum: u32, p| sum.saturating_add(p.item.cost));
        for net in self.parts[index].nets.clone() {
            let mut before = 0u32;
            for part in earlier.iter().map(|i| &self.parts[*i]) {
                let same = part
                    .nets
                    .clone()
                    .filter(|n| self.nets[*n].spot.same(&self.nets[net].spot));
                before = before.saturating_add(part.item.cost.saturating_mul(same.count() as u32));
            }
            self.nets[net].before = before;
        }
    }

    /// What the cell and the networks say, without the sketch.
    fn stand(&mut self, index: usize) -> LimitReading {
        let part = &self.parts[index];
        if part.stuck {
            return unknown();
        }
        let (limit, scale) = (part.item.limit, part.item.scale);
        let cost = part.before.saturating_add(part.item.cost);
        let mut reading = match part.at {
            Some(at) => self.cells.look(&mut self.held, at, &part.owner, |cell| {
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
        for net in &self.nets[part.nets.clone()] {
            let arrival = net.at.map_or(0, |at| self.held.state(at));
            let cost = net.before.saturating_add(part.item.cost);
            let remaining = net.budget.remaining(arrival, self.now);
            match net.budget.room(arrival, self.now, cost) {
                NetworkRoom::Passes(_) => reading.remaining = reading.remaining.min(remaining),
                NetworkRoom::Full(wait) => hedge::refuse(&mut reading, part.item, remaining, wait),
                NetworkRoom::Never => reading.standing = LimitStanding::Unsatisfiable,
            }
        }
        reading
    }

    fn make_room(&mut self, earlier: &[usize], index: usize) -> bool {
        let mut roomy = true;
        let spot = self.parts[index].owner.spot;
        let twin = earlier
            .iter()
            .find(|i| self.parts[**i].owner.spot.same(&spot));
        let twin = twin.and_then(|i| self.parts[*i].at);
        let part = &mut self.parts[index];
        part.at = part.at.or(twin);
        let cost = part.before.saturating_add(part.item.cost);
        let room = self
            .cells
            .room(&mut self.held, part.at, &part.owner, self.now, cost);
        part.created = part.at.is_none() && room.is_some();
        part.room = room.is_some();
        part.at = part.at.or(room);
        roomy &= part.room;
        let slot = part.item.slot;
        for index in part.charged() {
            let (earlier, rest) = self.nets.split_at_mut(index);
            let net = &mut rest[0];
            let twin = earlier
                .iter()
                .find(|n| n.spot.same(&net.spot))
                .and_then(|n| n.at);
            net.at = net.at.or(twin);
            let room = self
                .cells
                .network_room(&mut self.held, net.at, &net.spot, slot, self.now);
            net.created = net.at.is_none() && room.is_some();
            net.room = room.is_some();
            net.at = room;
            roomy &= net.room;
        }
        roomy
    }

    fn assume_room(&mut self, index: usize) {
        self.parts[index].room = self.parts[index].at.is_some();
        for net in &mut self.nets[self.parts[index].nets.clone()] {
            net.room = net.at.is_some();
        }
    }

    fn hedge(&mut self, index: usize, reading: &mut LimitReading) {
        let (sketch, now, part) = (self.sketch, self.now, &self.parts[index]);
        hedge::cell(sketch, self.cells, &mut self.held, part, now, reading);
        for net in &self.nets[part.nets.clone()] {
            let arrival = net.at.map_or(0, |at| self.held.state(at));
            hedge::network(sketch, net, arrival, part.item, now, reading);
        }
    }

    fn charge(&self, index: usize) {
        let (sketch, now, part) = (self.sketch, self.now, &self.parts[index]);
        let Item { limit, cost, .. } = *part.item;
        if !part.room {
            hedge::charge(sketch, limit, now, part.owner.spot.hash, cost);
            sketch.count_decision();
        }
        for net in self.nets[part.charged()].iter().filter(|net| !net.room) {
            sketch.charge(now, net.spot.hash, hedge::longest(limit), cost);
        }
    }

    fn take(&mut self, index: usize, reading: &mut LimitReading) {
        let part = &self.parts[index];
        let (cost, scale) = (part.item.cost, part.item.scale);
        let total = part.before.saturating_add(cost);
        match part.at.filter(|_| part.room) {
            Some(at) => self.cells.change(&mut self.held, at, &part.owner, |cell| {
                cell.take_units(reading, self.now, cost, scale);
                cell.complete_reading(reading, self.now, total, scale.multiply);
            }),
            None => reading.remaining = reading.remaining.saturating_sub(total),
        }
        for net in self.nets[part.charged()].iter().filter(|net| net.room) {
            let Some(at) = net.at else { continue };
            let arrival = self.held.state(at);
            self.held
                .set_state(at, net.budget.charge(arrival, self.now, cost));
        }
    }

    /// Completes the reading of a cell from which no units were taken.
    fn finish(&mut self, index: usize, reading: &mut LimitReading) {
        let part = &self.parts[index];
        // Where the sketch refused, it has set the reset.
        if let Some(at) = part
            .at
            .filter(|_| !part.stuck && reading.reset == Nanos::ZERO)
        {
            self.cells.look(&mut self.held, at, &part.owner, |cell| {
                cell.complete_reading(reading, self.now, 0, part.item.scale.multiply);
            });
        }
    }

    /// Removes the cells that were created for a request that is refused after all.
    fn undo(&mut self, index: usize) {
        let part = &mut self.parts[index];
        if std::mem::take(&mut part.created)
            && let Some(at) = part.at.take()
        {
            self.cells.remove(&mut self.held, at);
        }
        for net in &mut self.nets[part.nets.clone()] {
            if std::mem::take(&mut net.created)
                && let Some(at) = net.at.take()
            {
                self.cells.remove(&mut self.held, at);
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
            if cells.table.strays(spot.first) {
                buckets.push(spot.second);
            }
        }
        let held = cells.table.hold(buckets);
        // A key may have moved between the look and the lock.
        let settled = |spot: Spot| !cells.table.strays(spot.first) || held.has(spot.second);
        if spots.clone().all(settled) {
            return held;
        }
    }
}

/// The reading when the counts cannot be known.
pub(super) fn unknown() -> LimitReading {
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
