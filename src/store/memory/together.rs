//! Decides about a few items whose cells are in the first of their buckets, or nowhere and not to be made: what most
//! requests ask, at a fourth of the price of a [`Call`](super::decide::Call), for nothing is made, moved, evicted or
//! converted. What it says and leaves is what a call would.

use smallvec::SmallVec;

use super::arena::Block;
use super::cells::{Cells, join, placed, split};
use super::decide::Taking;
use super::entry::{Entry, Home, lock_all};
use super::hedge;
use super::sketch::Sketch;
use crate::clock::Nanos;
use crate::limit::{Cell, Fingerprint, Found, Reading, Terms};
use crate::store::Item;

/// Says whether the request passes, and leaves one reading for each item; nothing when a call is needed.
#[inline]
pub(super) fn together(
    cells: &Cells,
    sketch: &Sketch,
    items: &[Item<'_>],
    now: Nanos,
    taking: Taking,
    readings: &mut SmallVec<[Reading; 4]>,
) -> Option<bool> {
    // Written for each number, so that nothing need be counted.
    match items.len() {
        1 => few::<1>(cells, sketch, items, now, taking, readings),
        2 => few::<2>(cells, sketch, items, now, taking, readings),
        3 => few::<3>(cells, sketch, items, now, taking, readings),
        4 => few::<4>(cells, sketch, items, now, taking, readings),
        _ => None,
    }
}

#[inline(never)]
fn few<const N: usize>(
    cells: &Cells,
    sketch: &Sketch,
    items: &[Item<'_>],
    now: Nanos,
    taking: Taking,
    readings: &mut SmallVec<[Reading; 4]>,
) -> Option<bool> {
    let items: &[Item<'_>; N] = items.try_into().ok()?;
    let plain = |item: &Item<'_>| item.parents.is_empty() && !item.limit.windows.is_empty();
    if !items.iter().all(plain) {
        return None;
    }
    let mut infos = [cells.slots.get(items.first()?.slot)?; N];
    for (info, item) in infos.iter_mut().zip(items).skip(1) {
        *info = cells.slots.get(item.slot)?;
    }
    // All buckets come at once, for a lock holds up what is behind it.
    let homes: [Home<'_>; N] =
        std::array::from_fn(|place| cells.table.home(infos[place].seed(), items[place].key));
    let locked = lock_all(&homes);
    let mut seats: [Seat<'_>; N] = std::array::from_fn(|place| {
        let (item, inline) = (&items[place], infos[place].inline());
        let entry = homes[place].entry(&locked, item.slot.0);
        Seat {
            item,
            terms: item.limit.terms(item.scale.multiply),
            inline: (inline && entry.there()).then(|| split(entry.state())),
            entry,
        }
    });
    for (place, seat) in seats.iter().enumerate() {
        let mut others = seats[..place].iter();
        // Two that are nowhere may be one.
        let twin = others.any(|other| other.entry.same(&seat.entry));
        let clear = seat.entry.there() || (seat.terms.is_some() && homes[place].vacant(&locked));
        if twin || !clear || sketch.active(now, hedge::windows(seat.item.limit)) {
            return None;
        }
    }
    decide(cells, &mut seats, now, taking, readings)
}

#[inline(always)]
fn decide<const N: usize>(
    cells: &Cells,
    seats: &mut [Seat<'_>; N],
    now: Nanos,
    taking: Taking,
    readings: &mut SmallVec<[Reading; 4]>,
) -> Option<bool> {
    let mut asked = seats.each_mut().map(|seat| seat.ask(cells, now));
    let mut admitted = true;
    for one in &asked {
        admitted &= one.item.shadow || one.said.admits();
    }
    let takes = |one: &Asked<'_>| match one.item.shadow {
        true => taking != Taking::Nothing && one.said.admits(),
        false => taking == Taking::All && admitted,
    };
    if asked.iter_mut().any(|one| takes(one) && !one.has_room(now)) {
        return None;
    }
    let mut fresh_at = [None; N];
    for (one, fresh_at) in asked.iter_mut().zip(&mut fresh_at) {
        if takes(one) {
            readings.push(one.take(now));
            *fresh_at = Some(one.fresh_at());
        } else {
            readings.push(one.leave(now));
        }
    }
    for (seat, fresh_at) in seats.iter_mut().zip(fresh_at) {
        if let Some(fresh_at) = fresh_at {
            seat.close(fresh_at);
        }
    }
    Some(admitted)
}

/// An item and its entry.
struct Seat<'l> {
    item: &'l Item<'l>,
    terms: Option<Terms<'l>>,
    entry: Entry<'l>,
    /// The state, where it lives in the entry.
    inline: Option<[u32; 2]>,
}

impl<'l> Seat<'l> {
    #[inline(always)]
    fn ask<'w>(&'w mut self, cells: &'w Cells, now: Nanos) -> Asked<'w> {
        let Item {
            limit, cost, scale, ..
        } = *self.item;
        let (key, block) = (self.entry.key(), self.entry.state() as Block);
        let words = match &mut self.inline {
            Some(words) => &mut words[..],
            None if !self.entry.there() => &mut [],
            None => cells.arena.words(&mut self.entry, block),
        };
        let said = match &self.terms {
            Some(terms) => Said::Terms(terms, terms.look(words, now, cost)),
            None => Said::Cell(Cell { limit, key, words }.eval(now, cost, scale)),
        };
        Asked {
            item: self.item,
            key,
            words,
            said,
        }
    }

    /// Leaves the state as it is now.
    #[inline(always)]
    fn close(&mut self, fresh_at: Nanos) {
        self.entry.set_state(match self.inline {
            Some(words) => join(words),
            None => placed(self.entry.state() as Block, fresh_at),
        });
    }
}

/// An item, its state and what a first look said.
struct Asked<'w> {
    item: &'w Item<'w>,
    key: Fingerprint,
    /// Empty where the key has no cell.
    words: &'w mut [u32],
    said: Said<'w>,
}

enum Said<'w> {
    Terms(&'w Terms<'w>, Found),
    Cell(Reading),
}

impl Said<'_> {
    #[inline(always)]
    fn admits(&self) -> bool {
        match self {
            Said::Terms(_, found) => found.standing.admits(),
            Said::Cell(reading) => reading.standing.admits(),
        }
    }
}

impl Asked<'_> {
    #[inline(always)]
    fn cell(&mut self) -> Cell<'_> {
        Cell {
            limit: self.item.limit,
            key: self.key,
            words: self.words,
        }
    }

    /// Never where the key has no cell: nothing could be written.
    #[inline(always)]
    fn has_room(&mut self, now: Nanos) -> bool {
        let cost = self.item.cost;
        !self.words.is_empty() && self.cell().has_room(now, cost)
    }

    #[inline(always)]
    fn take(&mut self, now: Nanos) -> Reading {
        let Item { cost, scale, .. } = *self.item;
        match self.said {
            Said::Terms(terms, found) => terms.take(self.words, now, cost, found),
            Said::Cell(mut reading) => {
                let mut cell = self.cell();
                cell.apply(&reading, now, cost, scale);
                cell.finish(&mut reading, now, cost, scale.multiply);
                reading
            }
        }
    }

    /// After something was taken.
    #[inline(always)]
    fn fresh_at(&mut self) -> Nanos {
        match self.said {
            Said::Terms(terms, _) => terms.fresh_at(self.words),
            Said::Cell(_) => self.cell().fresh_at(),
        }
    }

    #[inline(always)]
    fn leave(&mut self, now: Nanos) -> Reading {
        let Item { cost, scale, .. } = *self.item;
        match self.said {
            Said::Terms(terms, found) => terms.leave(self.words, now, cost, found),
            Said::Cell(mut reading) => {
                if reading.reset == Nanos::ZERO {
                    self.cell().finish(&mut reading, now, 0, scale.multiply);
                }
                reading
            }
        }
    }
}
