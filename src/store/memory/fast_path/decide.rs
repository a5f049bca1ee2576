//! The cheaper decision, about a few items whose cells are in their home buckets, or do not exist and need not be made. It
//! returns and leaves what a [`FullDecision`](super::super::decide::FullDecision) would. Each state is read twice: first to
//! evaluate all items, then to take units or to complete the findings.

use std::num::NonZeroU8;

use smallvec::SmallVec;

use super::super::cells::Cells;
use super::super::decide::unknown_finding;
use super::super::entry_state::{block_state, join_state, split_state};
use super::super::sketch::Sketch;
use super::super::sketched_units;
use super::cell_places::{CellPlace, CellPlaces, MAX_PLACES};
use super::home_bucket::{HomeBucket, HomeEntry, HomeLocks};
use crate::base::clock::Nanos;
use crate::limit::{Assessment, FastPath, KeyState, LimitFinding};
use crate::store::{LimitItem, Taking};

/// Decides about items at these places. Returns whether the request passes, and adds one finding for each item. Returns
/// `None`, and has changed nothing, when a full decision is needed.
// Not inlined, because each caller would get a copy of this code.
#[inline(never)]
pub(in super::super) fn decide(
    cells: &Cells,
    sketch: &Sketch,
    items: &[LimitItem<'_>],
    places: &CellPlaces,
    now: Nanos,
    taking: Taking,
    findings: &mut SmallVec<[LimitFinding; 4]>,
) -> Option<bool> {
    let has_networks = |item: &LimitItem<'_>| !item.parents.is_empty();
    if places.needs_full_decision() || items.len() != places.len() || items.iter().any(has_networks)
    {
        return None;
    }
    let locked = HomeLocks::new(&cells.table, places);
    let windows = items
        .iter()
        .flat_map(|item| sketched_units::sketch_windows(item.limit));
    if sketch.is_active(now, windows) {
        return None;
    }
    let home_of = |place: &CellPlace| HomeBucket::new(&cells.table, place.bucket_index, place.mark);
    let mut first_reads = [FirstRead::default(); MAX_PLACES];
    let mut evaluated_findings: SmallVec<[LimitFinding; 2]> = SmallVec::new();
    // Both say something of all items but shadows.
    let mut is_admitted = true;
    let mut all_have_room = true;
    for ((item, place), first_read) in items.iter().zip(places.iter()).zip(&mut first_reads) {
        let home = home_of(place);
        first_read.position = home.find_entry(&locked);
        let entry = first_read
            .position
            .map(|position| home.entry(position, &locked));
        // Only a fast path can assess a key without words.
        let needs_no_cell = || place.fast_path.is_some() && home.lacks_key(&locked);
        if entry.is_none() && !needs_no_cell() {
            return None;
        }
        let counted_item = CountedItem { item, place, entry };
        let FirstVerdict { admits, has_room } = match &place.fast_path {
            Some(fast_path) => {
                counted_item.assess(cells, now, fast_path, &mut first_read.assessment)
            }
            None => counted_item.evaluate(cells, now, &mut evaluated_findings),
        };
        if !item.is_shadow {
            is_admitted &= admits;
            all_have_room &= has_room;
        } else if taking != Taking::Nothing && admits && !has_room {
            return None;
        }
    }
    let takes_units = taking == Taking::All && is_admitted;
    if takes_units && !all_have_room {
        return None;
    }
    let mut evaluated_findings = evaluated_findings.iter();
    for ((item, place), first_read) in items.iter().zip(places.iter()).zip(&first_reads) {
        let entry = first_read
            .position
            .map(|position| home_of(place).entry(position, &locked));
        let counted_item = CountedItem { item, place, entry };
        let item_takes_units = |admits: bool| match item.is_shadow {
            true => taking != Taking::Nothing && admits,
            false => takes_units,
        };
        findings.push(match (&place.fast_path, first_read.assessment) {
            (Some(fast_path), Some(assessment)) => {
                let takes_units = item_takes_units(assessment.standing.admits());
                counted_item.finish_assessed(cells, now, fast_path, assessment, takes_units)
            }
            _ => {
                let finding = evaluated_findings.next().copied();
                let finding = finding.unwrap_or_else(unknown_finding);
                let takes_units = item_takes_units(finding.standing.admits());
                counted_item.finish_evaluated(cells, now, finding, takes_units)
            }
        });
    }
    Some(is_admitted)
}

/// What the first read of an item's state leaves for the second read. The second one reads the state again, which is
/// cheaper than to keep it.
#[derive(Clone, Copy, Default)]
struct FirstRead {
    /// The position of the entry in its bucket.
    position: Option<NonZeroU8>,
    /// The result by the limit's fast path; `None` if it has none.
    assessment: Option<Assessment>,
}

/// The result of a first read.
struct FirstVerdict {
    /// Whether the limit admits the cost.
    admits: bool,
    /// Whether the state has room for the cost where it is.
    has_room: bool,
}

/// An item, with its place and its entry, if it has one.
struct CountedItem<'l> {
    item: &'l LimitItem<'l>,
    place: &'l CellPlace,
    entry: Option<HomeEntry<'l>>,
}

impl CountedItem<'_> {
    /// The first read by the limit's fast path. Stores the result in `assessment`.
    #[inline(always)]
    fn assess(
        mut self,
        cells: &Cells,
        now: Nanos,
        fast_path: &FastPath,
        assessment: &mut Option<Assessment>,
    ) -> FirstVerdict {
        let (cost, mut state_words) = (self.item.cost, self.copy_state());
        let words = self.words(cells, &mut state_words);
        let new_assessment = fast_path.assess(words, now, cost);
        *assessment = Some(new_assessment);
        // Without a cell there is no room for units.
        let has_room = !words.is_empty() && fast_path.has_room(words, cost, new_assessment);
        let admits = new_assessment.standing.admits();
        FirstVerdict { admits, has_room }
    }

    /// The first read of a limit without a fast path. Adds the finding to `evaluated_findings`.
    // Not inlined, so that the code of limits with a fast path stays small. The same holds for the second read.
    #[inline(never)]
    fn evaluate(
        mut self,
        cells: &Cells,
        now: Nanos,
        evaluated_findings: &mut SmallVec<[LimitFinding; 2]>,
    ) -> FirstVerdict {
        let LimitItem {
            limit, cost, scale, ..
        } = *self.item;
        let (key, mut state_words) = (self.place.mark.key(), self.copy_state());
        let words = self.words(cells, &mut state_words);
        let cell = KeyState {
            limit,
            key,
            wall: cells.wall(),
            words,
        };
        let finding = cell.assess(now, cost, scale);
        evaluated_findings.push(finding);
        FirstVerdict {
            admits: finding.standing.admits(),
            has_room: cell.has_room(now, cost),
        }
    }

    /// The second read by the limit's fast path: takes the cost if `takes_units` is set, and completes the finding.
    #[inline(always)]
    fn finish_assessed(
        mut self,
        cells: &Cells,
        now: Nanos,
        fast_path: &FastPath,
        assessment: Assessment,
        takes_units: bool,
    ) -> LimitFinding {
        let (cost, mut state_words) = (self.item.cost, self.copy_state());
        let words = self.words(cells, &mut state_words);
        if !takes_units {
            return fast_path.untaken_finding(words, now, cost, assessment);
        }
        let (finding, fresh_at) = fast_path.take_units(words, now, cost, assessment);
        self.write_state(state_words, fresh_at);
        finding
    }

    /// The second read of a limit without a fast path; see [`CountedItem::finish_assessed`].
    #[inline(never)]
    fn finish_evaluated(
        mut self,
        cells: &Cells,
        now: Nanos,
        mut finding: LimitFinding,
        takes_units: bool,
    ) -> LimitFinding {
        let LimitItem {
            limit, cost, scale, ..
        } = *self.item;
        let (key, mut state_words) = (self.place.mark.key(), self.copy_state());
        let words = self.words(cells, &mut state_words);
        let mut cell = KeyState {
            limit,
            key,
            wall: cells.wall(),
            words,
        };
        if !takes_units {
            let fresh_at = cell.follow_clock(now).then(|| cell.fresh_at());
            if finding.reset == Nanos::ZERO {
                cell.complete_finding(&mut finding, now, 0, scale.plan_factor);
            }
            if fresh_at.is_some() {
                self.write_state(state_words, fresh_at);
            }
            return finding;
        }
        cell.take_units(&finding, now, cost, scale);
        cell.complete_finding(&mut finding, now, cost, scale.plan_factor);
        let fresh_at = cell.fresh_at();
        self.write_state(state_words, Some(fresh_at));
        finding
    }

    /// A copy of the entry's state; zero where there is no entry. It is made even where the words are in the arena, because
    /// the compiler then writes both words with one instruction. If it wrote them with two, the single read that follows
    /// would stall for a twelfth of a decision's time.
    #[inline(always)]
    fn copy_state(&self) -> [u32; 2] {
        split_state(self.entry.as_ref().map_or(0, HomeEntry::state))
    }

    /// The words of the cell, which are `state_words` themselves or in the arena. Empty where there is no entry.
    #[inline(always)]
    fn words<'w>(&'w mut self, cells: &'w Cells, state_words: &'w mut [u32; 2]) -> &'w mut [u32] {
        match &mut self.entry {
            None => &mut [],
            Some(_) if self.place.is_inline => state_words,
            Some(entry) => cells
                .arena
                .words_at(entry, cells.arena.span(state_words[0])),
        }
    }

    /// Writes the changed state back to the entry, and counts the change.
    #[inline(always)]
    fn write_state(&mut self, state_words: [u32; 2], fresh_at: Option<Nanos>) {
        let Some(entry) = &mut self.entry else { return };
        if self.place.is_inline {
            entry.set_state(join_state(state_words));
        } else if let Some(fresh_at) = fresh_at {
            entry.set_state(block_state(state_words[0], fresh_at));
        }
        entry.count_change();
    }
}
