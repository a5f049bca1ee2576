//! Decides about a few items whose cells are all there and in the first of their buckets: what most requests
//! ask, at a fourth of the price of a [`Call`](super::decide::Call), for nothing is made, moved, evicted or
//! converted. What it says and leaves is what a call would.

use smallvec::SmallVec;

use super::arena::Block;
use super::cells::{Cells, join, placed, split};
use super::decide::Taking;
use super::entry::{Entry, Home, lock_all};
use super::hedge;
use super::sketch::Sketch;
use crate::clock::Nanos;
use crate::limit::{Cell, Reading};
use crate::store::Item;

/// One item and its entry.
struct Seat<'l> {
    item: &'l Item<'l>,
    entry: Entry<'l>,
    /// Whether the state lives in the entry.
    inline: bool,
}

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
    let infos = items.each_ref().map(|item| cells.slots.get(item.slot));
    let homes: [Option<Home<'_>>; N] = std::array::from_fn(|place| {
        let (item, info) = (&items[place], infos[place]?);
        let plain = !item.shadow && item.parents.is_empty() && !item.limit.windows.is_empty();
        // All come at once, for a lock holds up what is behind it.
        cells.table.prefetch(info.seed(), item.key);
        plain.then(|| cells.table.home(info.seed(), item.key))
    });
    let homes = all(&homes)?;
    let locked = lock_all(homes);
    let mut seats: [Option<Seat<'_>>; N] = [const { None }; N];
    for place in 0..N {
        let item = &items[place];
        let entry = homes[place].entry(&locked, item.slot.0)?;
        let mut others = seats.iter().flatten();
        let shared = others.any(|seat| seat.entry.same(&entry));
        if shared || sketch.active(now, hedge::windows(item.limit)) {
            return None;
        }
        let inline = infos[place]?.inline();
        seats[place] = Some(Seat {
            item,
            entry,
            inline,
        });
    }
    decide(cells, &mut seats, now, taking, readings)
}

fn all<T, const N: usize>(of: &[Option<T>; N]) -> Option<[&T; N]> {
    let mut all = [of.first()?.as_ref()?; N];
    for (one, own) in all.iter_mut().zip(of) {
        *one = own.as_ref()?;
    }
    Some(all)
}

#[inline(always)]
fn decide<const N: usize>(
    cells: &Cells,
    seats: &mut [Option<Seat<'_>>; N],
    now: Nanos,
    taking: Taking,
    readings: &mut SmallVec<[Reading; 4]>,
) -> Option<bool> {
    let (mut admitted, mut roomy) = (true, true);
    for seat in seats.iter_mut().flatten() {
        let Item { cost, scale, .. } = *seat.item;
        let reading = seat.look(cells, |cell| {
            roomy &= cell.has_room(now, cost);
            cell.eval(now, cost, scale)
        });
        admitted &= reading.standing.admits();
        readings.push(reading);
    }
    let takes = admitted && taking == Taking::All;
    if takes && !roomy {
        readings.clear();
        return None;
    }
    for (seat, reading) in seats.iter_mut().flatten().zip(readings) {
        let Item { cost, scale, .. } = *seat.item;
        if takes {
            seat.change(cells, |cell| {
                cell.apply(reading, now, cost, scale);
                cell.finish(reading, now, cost, scale.multiply);
            });
        } else if reading.reset == Nanos::ZERO {
            seat.look(cells, |cell| cell.finish(reading, now, 0, scale.multiply));
        }
    }
    Some(admitted)
}

impl Seat<'_> {
    /// Reads the cell.
    #[inline]
    fn look<R>(&mut self, cells: &Cells, read: impl FnOnce(&Cell<'_>) -> R) -> R {
        let (state, key) = (self.entry.state(), self.entry.key());
        let mut inline = split(state);
        let words = match self.inline {
            true => &mut inline[..],
            false => cells.arena.words(&mut self.entry, state as Block),
        };
        read(&Cell {
            limit: self.item.limit,
            key,
            words,
        })
    }

    /// Changes the cell.
    #[inline]
    fn change(&mut self, cells: &Cells, write: impl FnOnce(&mut Cell<'_>)) {
        let (state, key, limit) = (self.entry.state(), self.entry.key(), self.item.limit);
        if self.inline {
            let mut words = split(state);
            write(&mut Cell {
                limit,
                key,
                words: &mut words,
            });
            self.entry.set_state(join(words));
            return;
        }
        let mut cell = Cell {
            limit,
            key,
            words: cells.arena.words(&mut self.entry, state as Block),
        };
        write(&mut cell);
        let fresh_at = cell.fresh_at();
        self.entry.set_state(placed(state as Block, fresh_at));
    }
}
