//! Decides about a few items whose cells are in the first of their buckets, or do not exist and need not be made. It returns
//! and leaves what a [`FullDecision`](super::super::decide::FullDecision) would.

use std::num::NonZeroU8;

use smallvec::SmallVec;

use super::super::cells::{Cells, join, placed, split};
use super::super::decide::unknown;
use super::super::hedge;
use super::super::sketch::Sketch;
use super::home::{HomeBucket, HomeEntry, HomeLocks};
use super::places::{CellPlace, CellPlaces, MOST};
use crate::base::clock::Nanos;
use crate::limit::{Assessment, FastPath, KeyState, LimitReading};
use crate::store::{Item, Taking};

/// Returns whether the request passes, and leaves one reading for each item; `None` when a full decision is needed.
/// `places` are those of `items`.
#[inline(never)]
pub(in super::super) fn decide(
    cells: &Cells,
    sketch: &Sketch,
    (items, places): (&[Item<'_>], &CellPlaces),
    (now, taking): (Nanos, Taking),
    readings: &mut SmallVec<[LimitReading; 4]>,
) -> Option<bool> {
    let plain = |item: &Item<'_>| item.parents.is_empty();
    if places.crowded() || items.len() != places.len() || !items.iter().all(plain) {
        return None;
    }
    let locked = HomeLocks::new(&cells.table, places);
    let windows = items.iter().flat_map(|item| hedge::windows(item.limit));
    if sketch.active(now, windows) {
        return None;
    }
    let home = |place: &CellPlace| HomeBucket::new(&cells.table, place.bucket, place.mark);
    let mut looks = [FirstLook::default(); MOST];
    let mut evaluated: SmallVec<[LimitReading; 2]> = SmallVec::new();
    // Whether all items but shadows admit, and whether there is room for their units.
    let (mut admitted, mut room) = (true, true);
    for ((item, place), look) in items.iter().zip(places.iter()).zip(&mut looks) {
        let home = home(place);
        look.at = home.find(&locked);
        let entry = look.at.map(|at| home.entry(at, &locked));
        let vacant = || place.fast_path.is_some() && home.vacant(&locked);
        if entry.is_none() && !vacant() {
            return None;
        }
        let seat = CountedItem { item, place, entry };
        let FirstVerdict { admits, room: fits } = match &place.fast_path {
            Some(fast_path) => seat.look(cells, now, fast_path, &mut look.found),
            None => seat.evaluate(cells, now, &mut evaluated),
        };
        if !item.shadow {
            admitted &= admits;
            room &= fits;
        } else if taking != Taking::Nothing && admits && !fits {
            return None;
        }
    }
    let take = taking == Taking::All && admitted;
    if take && !room {
        return None;
    }
    let mut evaluated = evaluated.iter();
    for ((item, place), look) in items.iter().zip(places.iter()).zip(&looks) {
        let entry = look.at.map(|at| home(place).entry(at, &locked));
        let seat = CountedItem { item, place, entry };
        let takes = |admits: bool| match item.shadow {
            true => taking != Taking::Nothing && admits,
            false => take,
        };
        readings.push(match (&place.fast_path, look.found) {
            (Some(fast_path), Some(found)) => {
                let take = takes(found.standing.admits());
                seat.settle(cells, now, (fast_path, found), take)
            }
            _ => {
                let reading = evaluated.next().copied().unwrap_or_else(unknown);
                let take = takes(reading.standing.admits());
                seat.finish(cells, now, reading, take)
            }
        });
    }
    Some(admitted)
}

/// What is kept of a first look at a state. To find the state again is cheaper than to pass it on.
#[derive(Clone, Copy, Default)]
struct FirstLook {
    /// The position of the entry in its bucket.
    at: Option<NonZeroU8>,
    /// What the limit's fast path said.
    found: Option<Assessment>,
}

/// The result of a first look at a state.
struct FirstVerdict {
    /// Whether the limit admits the cost.
    admits: bool,
    /// Whether the state has room for the cost where it is.
    room: bool,
}

/// An item, with its place and its entry.
struct CountedItem<'l> {
    item: &'l Item<'l>,
    place: &'l CellPlace,
    entry: Option<HomeEntry<'l>>,
}

impl CountedItem<'_> {
    /// Looks at the state by the limit's fast path, and keeps the result in `found`.
    #[inline(always)]
    fn look(
        mut self,
        cells: &Cells,
        now: Nanos,
        fast_path: &FastPath,
        found: &mut Option<Assessment>,
    ) -> FirstVerdict {
        let (cost, mut copy) = (self.item.cost, self.copy());
        let words = self.words(cells, &mut copy);
        let said = fast_path.assess(words, now, cost);
        *found = Some(said);
        // Without a cell there is no room: nothing could be written.
        let room = !words.is_empty() && fast_path.has_room(words, cost, said);
        let admits = said.standing.admits();
        FirstVerdict { admits, room }
    }

    /// Looks at the state of a limit without fast path.
    #[inline(never)]
    fn evaluate(
        mut self,
        cells: &Cells,
        now: Nanos,
        evaluated: &mut SmallVec<[LimitReading; 2]>,
    ) -> FirstVerdict {
        let Item {
            limit, cost, scale, ..
        } = *self.item;
        let (key, mut copy) = (self.place.mark.key(), self.copy());
        let words = self.words(cells, &mut copy);
        let cell = KeyState { limit, key, words };
        let reading = cell.assess(now, cost, scale);
        evaluated.push(reading);
        FirstVerdict {
            admits: reading.standing.admits(),
            room: cell.has_room(now, cost),
        }
    }

    /// Takes the cost, or only completes the reading.
    #[inline(always)]
    fn settle(
        mut self,
        cells: &Cells,
        now: Nanos,
        (fast_path, found): (&FastPath, Assessment),
        take: bool,
    ) -> LimitReading {
        let (cost, mut copy) = (self.item.cost, self.copy());
        let words = self.words(cells, &mut copy);
        if !take {
            return fast_path.untaken_reading(words, now, cost, found);
        }
        let (reading, fresh_at) = fast_path.take_units(words, now, cost, found);
        self.write(copy, fresh_at);
        reading
    }

    /// [`CountedItem::settle`] for a limit without fast path.
    #[inline(never)]
    fn finish(
        mut self,
        cells: &Cells,
        now: Nanos,
        mut reading: LimitReading,
        take: bool,
    ) -> LimitReading {
        let Item {
            limit, cost, scale, ..
        } = *self.item;
        let (key, mut copy) = (self.place.mark.key(), self.copy());
        let words = self.words(cells, &mut copy);
        let mut cell = KeyState { limit, key, words };
        if !take {
            if reading.reset == Nanos::ZERO {
                cell.complete_reading(&mut reading, now, 0, scale.multiply);
            }
            return reading;
        }
        cell.take_units(&reading, now, cost, scale);
        cell.complete_reading(&mut reading, now, cost, scale.multiply);
        let fresh_at = cell.fresh_at();
        self.write(copy, Some(fresh_at));
        reading
    }

    /// A copy of the entry's state. It is made wherever the words are, because then the compiler writes it in one piece:
    /// a processor that reads in one piece what was written in two stalls, for a twelfth of a decision.
    #[inline(always)]
    fn copy(&self) -> [u32; 2] {
        split(self.entry.as_ref().map_or(0, HomeEntry::state))
    }

    /// The words of the state; `copy` is the entry's state. Empty where there is no entry.
    #[inline(always)]
    fn words<'w>(&'w mut self, cells: &'w Cells, copy: &'w mut [u32; 2]) -> &'w mut [u32] {
        match &mut self.entry {
            None => &mut [],
            Some(_) if self.place.inline => copy,
            Some(entry) => cells.arena.words_at(entry, cells.arena.span(copy[0])),
        }
    }

    /// Writes the entry's state back, where it has changed.
    #[inline(always)]
    fn write(&mut self, copy: [u32; 2], fresh_at: Option<Nanos>) {
        let Some(entry) = &mut self.entry else { return };
        if self.place.inline {
            entry.set_state(join(copy));
        } else if let Some(fresh_at) = fresh_at {
            entry.set_state(placed(copy[0], fresh_at));
        }
        entry.count_change();
    }
}
