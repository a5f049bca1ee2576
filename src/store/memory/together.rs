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
    let infos = all(items.each_ref().map(|item| cells.slots.get(item.slot)))?;
    // All buckets come at once, for a lock holds up what is behind it.
    let homes: [Home<'_>; N] =
        std::array::from_fn(|place| cells.table.home(infos[place].seed(), items[place].key));
    let locked = lock_all(&homes);
    let mut seats: [Seat<'_>; N] = std::array::from_fn(|place| {
        let (item, inline) = (&items[place], infos[place].inline());
        Seat::new(item, inline, homes[place].entry(&locked, item.slot.0))
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

fn all<T: Copy, const N: usize>(of: [Option<T>; N]) -> Option<[T; N]> {
    let mut all = [(*of.first()?)?; N];
    for (one, own) in all.iter_mut().zip(of) {
        *one = own?;
    }
    Some(all)
}

#[inline(always)]
fn decide<const N: usize>(
    cells: &Cells,
    seats: &mut [Seat<'_>; N],
    now: Nanos,
    taking: Taking,
    readings: &mut SmallVec<[Reading; 4]>,
) -> Option<bool> {
    let mut open = seats.each_mut().map(|seat| seat.open(cells));
    let said = open.each_mut().map(|open| open.look(now));
    let mut admitted = true;
    for (open, said) in open.iter().zip(&said) {
        admitted &= open.item.shadow || said.admits();
    }
    let takes: [bool; N] = std::array::from_fn(|place| match open[place].item.shadow {
        true => taking != Taking::Nothing && said[place].admits(),
        false => taking == Taking::All && admitted,
    });
    let mut each = open.iter_mut().zip(takes);
    if each.any(|(open, takes)| takes && !open.has_room(now)) {
        return None;
    }
    let mut fresh_at = [Nanos::ZERO; N];
    for place in 0..N {
        let (open, said) = (&mut open[place], &said[place]);
        if takes[place] {
            let reading = open.take(now, said, &mut fresh_at[place]);
            readings.push(reading);
        } else {
            readings.push(open.leave(now, said));
        }
    }
    for place in 0..N {
        if takes[place] {
            seats[place].close(fresh_at[place]);
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
    fn new(item: &'l Item<'l>, inline: bool, entry: Entry<'l>) -> Seat<'l> {
        Seat {
            item,
            terms: item.limit.terms(item.scale.multiply),
            inline: (inline && entry.there()).then(|| split(entry.state())),
            entry,
        }
    }

    #[inline(always)]
    fn open<'w>(&'w mut self, cells: &'w Cells) -> Open<'w> {
        let (key, block) = (self.entry.key(), self.entry.state() as Block);
        Open {
            item: self.item,
            terms: self.terms.as_ref(),
            key,
            words: match &mut self.inline {
                Some(words) => words,
                None if !self.entry.there() => &mut [],
                None => cells.arena.words(&mut self.entry, block),
            },
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

/// An item and its state.
struct Open<'w> {
    item: &'w Item<'w>,
    terms: Option<&'w Terms<'w>>,
    key: Fingerprint,
    /// Empty where the key has no cell.
    words: &'w mut [u32],
}

/// What a first look said.
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

impl<'w> Open<'w> {
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
    fn look(&mut self, now: Nanos) -> Said<'w> {
        let Item { cost, scale, .. } = *self.item;
        match self.terms {
            Some(terms) => Said::Terms(terms, terms.look(self.words, now, cost)),
            None => Said::Cell(self.cell().eval(now, cost, scale)),
        }
    }

    #[inline(always)]
    fn take(&mut self, now: Nanos, said: &Said<'_>, fresh_at: &mut Nanos) -> Reading {
        let Item { cost, scale, .. } = *self.item;
        match said {
            Said::Terms(terms, found) => {
                let reading = terms.take(self.words, now, cost, *found);
                *fresh_at = terms.fresh_at(self.words);
                reading
            }
            Said::Cell(reading) => {
                let (mut reading, mut cell) = (*reading, self.cell());
                cell.apply(&reading, now, cost, scale);
                cell.finish(&mut reading, now, cost, scale.multiply);
                *fresh_at = cell.fresh_at();
                reading
            }
        }
    }

    #[inline(always)]
    fn leave(&mut self, now: Nanos, said: &Said<'_>) -> Reading {
        let Item { cost, scale, .. } = *self.item;
        match said {
            Said::Terms(terms, found) => terms.leave(self.words, now, cost, *found),
            Said::Cell(reading) => {
                let mut reading = *reading;
                if reading.reset == Nanos::ZERO {
                    self.cell().finish(&mut reading, now, 0, scale.multiply);
                }
                reading
            }
        }
    }
}
