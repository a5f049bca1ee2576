//! Decides about a few items whose cells are in the first of their buckets, or nowhere and not to be made: what most
//! requests ask, at a fourth of the price of a [`Call`](super::decide::Call), for nothing is made, moved, evicted or
//! converted. What it says and leaves is what a call would.

use smallvec::SmallVec;

use super::Place;
use super::arena::Span;
use super::cells::{Cells, join, placed, split};
use super::decide::{Taking, refused};
use super::entry::{Entry, Home, lock_all};
use super::hedge;
use super::sketch::Sketch;
use crate::clock::Nanos;
use crate::limit::{Cell, Found, Reading, Terms};
use crate::store::Item;

/// Says whether the request passes, and leaves one reading for each item; nothing when a call is needed. The places are
/// those of the items.
#[inline]
pub(super) fn together(
    cells: &Cells,
    sketch: &Sketch,
    asked: (&[Item<'_>], &[Place]),
    when: (Nanos, Taking),
    readings: &mut SmallVec<[Reading; 4]>,
) -> Option<bool> {
    // Written for each number, so that nothing need be counted.
    match asked.0.len() {
        1 => few::<1>(cells, sketch, asked, when, readings),
        2 => few::<2>(cells, sketch, asked, when, readings),
        3 => few::<3>(cells, sketch, asked, when, readings),
        4 => few::<4>(cells, sketch, asked, when, readings),
        _ => None,
    }
}

#[inline(never)]
fn few<const N: usize>(
    cells: &Cells,
    sketch: &Sketch,
    (items, places): (&[Item<'_>], &[Place]),
    (now, taking): (Nanos, Taking),
    readings: &mut SmallVec<[Reading; 4]>,
) -> Option<bool> {
    let items: &[Item<'_>; N] = items.try_into().ok()?;
    let places: &[Place; N] = places.try_into().ok()?;
    let plain = |item: &Item<'_>| item.parents.is_empty() && !item.limit.windows.is_empty();
    if !items.iter().all(plain) {
        return None;
    }
    let homes: [Home<'_>; N] =
        std::array::from_fn(|n| cells.table.at_home(places[n].bucket, places[n].mark));
    let twin = |n: usize| homes[..n].iter().any(|other| other.same(&homes[n]));
    if (1..N).any(twin) {
        return None;
    }
    let locked = lock_all(&homes);
    let windows = items.iter().flat_map(|item| hedge::windows(item.limit));
    if sketch.active(now, windows) {
        return None;
    }
    let mut known = true;
    let mut seats: [Seat<'_>; N] = std::array::from_fn(|n| {
        let (entry, place) = (homes[n].entry(&locked), &places[n]);
        let vacant = || place.terms.is_some() && homes[n].vacant(&locked);
        known &= entry.there() || vacant();
        Seat::new(cells, entry, (&items[n], place), now)
    });
    // Whether those that are not shadows admit, and whether what they would take has room.
    let (mut admitted, mut room) = (true, true);
    for seat in &seats {
        if !seat.item.shadow {
            admitted &= seat.admits;
            room &= seat.room;
        } else if taking != Taking::Nothing && seat.admits && !seat.room {
            return None;
        }
    }
    let take = taking == Taking::All && admitted;
    if !known || (take && !room) {
        return None;
    }
    for seat in &mut seats {
        let take = match seat.item.shadow {
            true => taking != Taking::Nothing && seat.admits,
            false => take,
        };
        readings.push(seat.close(cells, now, take));
    }
    Some(admitted)
}

/// An item, its entry, and what a first look at the state said.
struct Seat<'l> {
    item: &'l Item<'l>,
    entry: Entry<'l>,
    state: State,
    said: Said<'l>,
    admits: bool,
    /// What is asked for can be taken where the state is.
    room: bool,
}

enum Said<'l> {
    Terms(&'l Terms, Found),
    Cell(Reading),
}

/// The state of an entry.
struct State {
    /// What the entry says. Copied wherever the words are, for then the compiler writes it in one piece: a processor that
    /// reads in one piece what was written in two waits, a twelfth of a decision.
    copy: [u32; 2],
    kept: Kept,
}

/// Where the words of a state are.
enum Kept {
    Nowhere,
    Inline,
    Block(Span),
}

impl State {
    #[inline(always)]
    fn of(entry: &Entry<'_>, place: &Place, cells: &Cells) -> State {
        let copy = split(entry.state());
        let kept = if !entry.there() {
            Kept::Nowhere
        } else if place.inline {
            Kept::Inline
        } else {
            Kept::Block(cells.arena.span(copy[0]))
        };
        State { copy, kept }
    }

    #[inline(always)]
    fn words<'w>(&'w mut self, cells: &'w Cells, entry: &'w mut Entry<'_>) -> &'w mut [u32] {
        match self.kept {
            Kept::Nowhere => &mut [],
            Kept::Inline => &mut self.copy,
            Kept::Block(span) => cells.arena.words_at(entry, span),
        }
    }
}

impl<'l> Seat<'l> {
    #[inline(always)]
    fn new(
        cells: &Cells,
        mut entry: Entry<'l>,
        (item, place): (&'l Item<'l>, &'l Place),
        now: Nanos,
    ) -> Seat<'l> {
        let Item {
            limit, cost, scale, ..
        } = *item;
        let (key, mut state) = (entry.key(), State::of(&entry, place, cells));
        let words = state.words(cells, &mut entry);
        let (said, admits, room) = match &place.terms {
            Some(terms) => {
                let found = terms.look(words, now, cost);
                let admits = found.standing.admits();
                // Never where there is no cell: nothing could be written.
                let room = !words.is_empty() && terms.has_room(words, cost, found);
                (Said::Terms(terms, found), admits, room)
            }
            None if words.is_empty() => (Said::Cell(refused()), false, false),
            None => {
                let cell = Cell { limit, key, words };
                let reading = cell.eval(now, cost, scale);
                let admits = reading.standing.admits();
                (Said::Cell(reading), admits, cell.has_room(now, cost))
            }
        };
        Seat {
            item,
            entry,
            state,
            said,
            admits,
            room,
        }
    }

    /// Takes what is asked for, or leaves it.
    #[inline(always)]
    fn close(&mut self, cells: &Cells, now: Nanos, take: bool) -> Reading {
        let Item {
            limit, cost, scale, ..
        } = *self.item;
        let key = self.entry.key();
        let words = self.state.words(cells, &mut self.entry);
        let (reading, fresh_at) = match self.said {
            Said::Terms(terms, found) => match take {
                true => (terms.take(words, now, cost, found), terms.fresh_at(words)),
                false => return terms.leave(words, now, cost, found),
            },
            Said::Cell(mut reading) => {
                let mut cell = Cell { limit, key, words };
                if !take {
                    if reading.reset == Nanos::ZERO {
                        cell.finish(&mut reading, now, 0, scale.multiply);
                    }
                    return reading;
                }
                cell.apply(&reading, now, cost, scale);
                cell.finish(&mut reading, now, cost, scale.multiply);
                (reading, cell.fresh_at())
            }
        };
        self.entry.set_state(match self.state.kept {
            Kept::Inline => join(self.state.copy),
            _ => placed(self.state.copy[0], fresh_at),
        });
        reading
    }
}
