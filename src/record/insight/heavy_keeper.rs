//! HeavyKeeper: finds the keys that are counted most often, among more keys than memory can hold. `top_keys.rs` uses
//! it.
//!
//! Source: Yang et al., "HeavyKeeper: An Accurate Algorithm for Finding Top-k Elephant Flows", IEEE/ACM Transactions on
//! Networking 27, 2019. A cell belongs to one key at a time. Another key that meets the cell decays its count, with a
//! chance that falls with the count. So keys that come once do not displace frequent ones, however many they are. A
//! count is too low by what was decayed, and too high only where two keys with the same fingerprint share a cell.
//!
//! Bounds: 8 bytes a cell, the candidates with their names, and 128 bytes of hints.

use std::sync::LazyLock;

use crate::base::random::{GOLDEN_RATIO, Xorshift64};

/// Rows of cells. A key has one cell in each.
pub const ROW_COUNT: usize = 2;
/// A cell decays with a chance of this number to the power of its count. It is close to the paper's 1/b, with
/// b = 1.08.
const DECAY_BASE: f64 = 0.925;
/// Cells with this count or more never decay: their chance is below one in ten million.
const MIN_STABLE_COUNT: usize = 208;
/// The number of hints. A hint remembers the index of a candidate, so that few lookups search all candidates.
const HINT_COUNT: usize = 64;

/// The lowest bit of a hash that chooses the cell in the second row. The bits from 0 on choose the one in the first
/// row.
const SECOND_ROW_SHIFT: u32 = 20;
/// The lowest bit of a hash that chooses the hint.
const HINT_SHIFT: u32 = 40;

/// The chance, out of 2^32, that a cell with this count decays.
static DECAY_CHANCES: LazyLock<[u32; MIN_STABLE_COUNT]> = LazyLock::new(|| {
    std::array::from_fn(|count| (DECAY_BASE.powi(count as i32) * f64::from(u32::MAX)) as u32)
});

/// A count that belongs to one key at a time.
#[derive(Clone, Copy, Default)]
struct SketchCell {
    /// The fingerprint of the key to which the cell belongs.
    fingerprint: u32,
    /// How often the key was counted, less what was decayed; 0 for a free cell.
    count: u32,
}

/// A key that may be among the most frequent ones.
#[derive(Clone, Debug)]
pub struct Candidate<N> {
    /// The hash of the key.
    pub hash: u64,
    /// An estimate of how often it was counted.
    pub count: u64,
    /// The name of the key.
    pub name: N,
}

/// A sketch of the counts of all keys, and the most frequent keys in it.
pub struct HeavyKeeper<N> {
    /// All rows, one after another.
    cells: Box<[SketchCell]>,
    /// The keys that may be the most frequent ones, in no order.
    candidates: Vec<Candidate<N>>,
    /// The most candidates at a time.
    max_candidates: usize,
    /// The indexes of the candidates that were looked up last, by some bits of their hashes. An index may be out of
    /// date.
    hints: [u16; HINT_COUNT],
    /// The least count of a candidate; 0 while there is room for another candidate.
    least_count: u64,
    random: Xorshift64,
}

impl<N> HeavyKeeper<N> {
    /// Makes an empty sketch. `row_cells` is the number of cells in a row, a power of two up to 2^20. `max_candidates`
    /// is at least 1. `seed` is the seed of the random choices.
    pub fn new(row_cells: usize, max_candidates: usize, seed: u64) -> HeavyKeeper<N> {
        HeavyKeeper {
            cells: vec![SketchCell::default(); row_cells * ROW_COUNT].into(),
            candidates: Vec::with_capacity(max_candidates),
            max_candidates,
            hints: [0; HINT_COUNT],
            least_count: 0,
            random: Xorshift64::new(seed),
        }
    }

    /// Counts a key `times` times, by its hash, whose bits must look random. Calls `name` only if the key becomes a
    /// candidate.
    pub fn count(&mut self, hash: u64, times: u32, name: impl FnOnce() -> N) {
        let mut estimate = 0;
        let fingerprint = fingerprint(hash);
        for index in self.cell_indexes(hash) {
            let mut cell = self.cells[index];
            let mut uncounted = times;
            while cell.fingerprint != fingerprint && cell.count > 0 && uncounted > 0 {
                let Some(chance) = DECAY_CHANCES.get(cell.count as usize) else {
                    uncounted = 0;
                    break;
                };
                if self.random.draw() >> 32 < u64::from(*chance) {
                    cell.count -= 1;
                }
                // Each try uses up one of the `times`, except the one that decays the count to zero: the cell counts
                // that one for the new key.
                uncounted -= u32::from(cell.count > 0);
            }
            if uncounted > 0 {
                cell.fingerprint = fingerprint;
                cell.count = cell.count.saturating_add(uncounted);
                estimate = estimate.max(cell.count);
            }
            self.cells[index] = cell;
        }
        let estimate = u64::from(estimate);
        if estimate > self.least_count {
            self.update_candidate(hash, estimate, name);
        }
    }

    /// Raises the count of a candidate, or adds a new one. If there is no room, it replaces the one with the least
    /// count.
    fn update_candidate(&mut self, hash: u64, count: u64, name: impl FnOnce() -> N) {
        if let Some(index) = self.candidate_index(hash) {
            let candidate = &mut self.candidates[index];
            let previous_count = candidate.count;
            candidate.count = previous_count.max(count);
            if previous_count == self.least_count {
                self.update_least_count();
            }
            return;
        }
        let candidate = Candidate {
            hash,
            count,
            name: name(),
        };
        if self.candidates.len() < self.max_candidates {
            self.candidates.push(candidate);
        } else {
            let counts = self.candidates.iter().enumerate();
            let least_frequent = counts.min_by_key(|(_, candidate)| candidate.count);
            let index = least_frequent.map_or(0, |(index, _)| index);
            self.candidates[index] = candidate;
        }
        self.update_least_count();
    }

    /// Returns the index of the candidate with a hash; `None` if there is none. The hint usually has the index of a
    /// frequent key. Otherwise the few candidates are searched.
    #[inline]
    fn candidate_index(&mut self, hash: u64) -> Option<usize> {
        let hint = &mut self.hints[(hash >> HINT_SHIFT) as usize % HINT_COUNT];
        let has_hash = |candidate: &Candidate<N>| candidate.hash == hash;
        let hinted_index = usize::from(*hint);
        if self.candidates.get(hinted_index).is_some_and(has_hash) {
            return Some(hinted_index);
        }
        let index = self.candidates.iter().position(has_hash)?;
        *hint = u16::try_from(index).unwrap_or(0);
        Some(index)
    }

    /// Computes [`HeavyKeeper::least_count`] from the candidates.
    fn update_least_count(&mut self) {
        let counts = self.candidates.iter().map(|candidate| candidate.count);
        let is_full = self.candidates.len() == self.max_candidates;
        self.least_count = counts.min().filter(|_| is_full).unwrap_or(0);
    }

    /// The keys that may be the most frequent ones, in no order.
    pub fn candidates(&self) -> &[Candidate<N>] {
        &self.candidates
    }

    /// Forgets all counts and candidates.
    pub fn clear(&mut self) {
        self.cells.fill(SketchCell::default());
        self.candidates.clear();
        self.least_count = 0;
    }

    /// Returns the indexes of a key's cells, one in each row.
    fn cell_indexes(&self, hash: u64) -> [usize; ROW_COUNT] {
        let row_cells = self.cells.len() / ROW_COUNT;
        let index_in_row = |bits: u64| bits as usize & (row_cells - 1);
        // Each row uses other bits of the hash, so that keys seldom share both cells.
        [
            index_in_row(hash),
            row_cells + index_in_row(hash >> SECOND_ROW_SHIFT),
        ]
    }
}

/// Returns bits of the hash that are mixed from all of it, so that they do not follow from the indexes of the cells.
fn fingerprint(hash: u64) -> u32 {
    (hash.wrapping_mul(GOLDEN_RATIO) >> 32) as u32
}
