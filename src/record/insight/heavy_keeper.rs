//! HeavyKeeper: finds the keys that are counted most often among more keys than memory can hold.
//!
//! Source: Yang et al., "HeavyKeeper: An Accurate Algorithm for Finding Top-k Elephant Flows", IEEE/ACM Transactions on
//! Networking 27, 2019. A cell belongs to one key at a time. Another key that meets the cell decays its count, with a
//! chance that falls with the count. So keys that come once do not displace frequent ones, however many they are. A
//! count is too low by what was decayed, and too high only where two keys have the same fingerprint.
//!
//! Bounds: 8 bytes a cell, and the names of the candidates.

use std::sync::LazyLock;

use crate::base::random::{GOLDEN, Xorshift64};

/// Rows of cells. A key has one cell in each.
pub const ROWS: usize = 2;
/// The chance that a cell decays is this, to the power of its count. The paper writes it as 1/b, with b = 1.08.
const DECAY: f64 = 0.925;
/// Cells with this count or more never decay: their chance is below one in ten million.
const MIN_STABLE_COUNT: usize = 208;
/// Slots that remember where a candidate was found last.
const HINTS: usize = 64;

/// The chance, out of 2^32, that a cell with this count decays.
static DECAY_CHANCES: LazyLock<[u32; MIN_STABLE_COUNT]> = LazyLock::new(|| {
    std::array::from_fn(|count| (DECAY.powi(count as i32) * f64::from(u32::MAX)) as u32)
});

#[derive(Clone, Copy, Default)]
struct SketchCell {
    /// Of the key to which the cell belongs.
    fingerprint: u32,
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

/// A sketch of counts, and the most frequent keys of it.
pub struct HeavyKeeper<N> {
    cells: Box<[SketchCell]>,
    candidates: Vec<Candidate<N>>,
    max_candidates: usize,
    /// The indices at which candidates were found last, by some bits of their hashes.
    hints: [u16; HINTS],
    /// The least count of a candidate; 0 while there is room for another candidate.
    floor: u64,
    random: Xorshift64,
}

impl<N> HeavyKeeper<N> {
    /// Makes an empty sketch. `width` is the number of cells in a row, a power of two; `seed` is that of its random
    /// choices.
    pub fn new(width: usize, max_candidates: usize, seed: u64) -> HeavyKeeper<N> {
        HeavyKeeper {
            cells: vec![SketchCell::default(); width * ROWS].into(),
            candidates: Vec::with_capacity(max_candidates),
            max_candidates,
            hints: [0; HINTS],
            floor: 0,
            random: Xorshift64::new(seed),
        }
    }

    /// Counts a key `times` times, by its hash, whose bits must look random. Calls `name` only if the key becomes a
    /// candidate.
    pub fn count(&mut self, hash: u64, times: u32, name: impl FnOnce() -> N) {
        let mut estimate = 0;
        let fingerprint = fingerprint(hash);
        for index in self.cell_indices(hash) {
            let mut cell = self.cells[index];
            let mut remaining = times;
            while cell.fingerprint != fingerprint && cell.count > 0 && remaining > 0 {
                let Some(chance) = DECAY_CHANCES.get(cell.count as usize) else {
                    remaining = 0;
                    break;
                };
                if self.random.draw() >> 32 < u64::from(*chance) {
                    cell.count -= 1;
                }
                // The event that decays the count to zero takes the cell over, and is counted in it.
                remaining -= u32::from(cell.count > 0);
            }
            if remaining > 0 {
                cell.fingerprint = fingerprint;
                cell.count = cell.count.saturating_add(remaining);
                estimate = estimate.max(cell.count);
            }
            self.cells[index] = cell;
        }
        let estimate = u64::from(estimate);
        if estimate > self.floor {
            self.update_candidate(hash, estimate, name);
        }
    }

    /// Raises the count of a candidate, or adds a new one in place of that with the least count.
    fn update_candidate(&mut self, hash: u64, count: u64, name: impl FnOnce() -> N) {
        if let Some(index) = self.candidate_index(hash) {
            let candidate = &mut self.candidates[index];
            let previous_count = candidate.count;
            candidate.count = previous_count.max(count);
            if previous_count == self.floor {
                self.update_floor();
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
            let least = counts.min_by_key(|(_, candidate)| candidate.count);
            let index = least.map_or(0, |(index, _)| index);
            self.candidates[index] = candidate;
        }
        self.update_floor();
    }

    /// Finds the candidate with a hash. A frequent key is usually found by its hint, and others by searching the few
    /// candidates.
    #[inline]
    fn candidate_index(&mut self, hash: u64) -> Option<usize> {
        let hint = &mut self.hints[(hash >> 40) as usize % HINTS];
        let has_hash = |candidate: &Candidate<N>| candidate.hash == hash;
        let hinted = usize::from(*hint);
        if self.candidates.get(hinted).is_some_and(has_hash) {
            return Some(hinted);
        }
        let index = self.candidates.iter().position(has_hash)?;
        *hint = u16::try_from(index).unwrap_or(0);
        Some(index)
    }

    fn update_floor(&mut self) {
        let counts = self.candidates.iter().map(|candidate| candidate.count);
        let is_full = self.candidates.len() == self.max_candidates;
        self.floor = counts.min().filter(|_| is_full).unwrap_or(0);
    }

    /// The keys that may be the most frequent ones, in no order.
    pub fn candidates(&self) -> &[Candidate<N>] {
        &self.candidates
    }

    /// Forgets all counts and candidates.
    pub fn clear(&mut self) {
        self.cells.fill(SketchCell::default());
        self.candidates.clear();
        self.floor = 0;
    }

    /// The indices of a key's cells, one in each row.
    fn cell_indices(&self, hash: u64) -> [usize; ROWS] {
        let width = self.cells.len() / ROWS;
        let row = |bits: u64| bits as usize & (width - 1);
        [row(hash), width + row(hash >> 20)]
    }
}

fn fingerprint(hash: u64) -> u32 {
    (hash.wrapping_mul(GOLDEN) >> 32) as u32
}
