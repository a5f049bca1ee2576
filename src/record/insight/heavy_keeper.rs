//! Who is counted most often, of more than could all be counted: HeavyKeeper (Yang et al., "HeavyKeeper: An Accurate Algorithm for
//! Finding Top-k Elephant Flows", IEEE/ACM Transactions on Networking 27, 2019), and candidates with their names.
//!
//! A cell belongs to one key at a time; who meets another's cell wears it down, the less likely the more often its owner has
//! been there. So keys that come once leave those that come often alone, however many they are. A count is never too
//! high but where two keys have the same mark, and too low by what was worn down.
//!
//! Bounds: 8 bytes a cell, and the names of the candidates.

use std::sync::LazyLock;

use crate::base::random::{GOLDEN, Xorshift64};

/// Rows of cells.
pub const ROWS: usize = 2;
/// With which a cell is worn down, to the power of its count.
const DECAY: f64 = 0.925;
/// Counts above are never worn down: the odds are less than one in ten million.
const SAFE: usize = 208;
const HINTS: usize = 64;

/// Odds out of 2^32 that a cell with this count is worn down.
static ODDS: LazyLock<[u32; SAFE]> = LazyLock::new(|| {
    std::array::from_fn(|count| (DECAY.powi(count as i32) * f64::from(u32::MAX)) as u32)
});

#[derive(Clone, Copy, Default)]
struct SketchCell {
    mark: u32,
    count: u32,
}

/// A key that may be among those that come most often.
#[derive(Clone, Debug)]
pub struct Candidate<N> {
    /// Its hash.
    pub hash: u64,
    /// How often it came.
    pub count: u64,
    /// What it is called.
    pub name: N,
}

/// See the module.
pub struct HeavyKeeper<N> {
    cells: Box<[SketchCell]>,
    candidates: Vec<Candidate<N>>,
    most: usize,
    /// Where candidates were found last, by some bits of their hashes.
    hints: [u16; HINTS],
    /// The least count of a candidate, when there is no room for more.
    floor: u64,
    random: Xorshift64,
}

impl<N> HeavyKeeper<N> {
    /// With rows of `width` cells, a power of two, and as many candidates. `seed` is of its random choices.
    pub fn new(width: usize, most: usize, seed: u64) -> HeavyKeeper<N> {
        HeavyKeeper {
            cells: vec![SketchCell::default(); width * ROWS].into(),
            candidates: Vec::with_capacity(most),
            most,
            hints: [0; HINTS],
            floor: 0,
            random: Xorshift64::new(seed),
        }
    }

    /// Counts a key that came so often, by its hash, which must look random. Asks for its name only if it becomes a
    /// candidate.
    pub fn count(&mut self, hash: u64, times: u32, name: impl FnOnce() -> N) {
        let mut most = 0;
        let mark = mark(hash);
        for place in self.at(hash) {
            let mut cell = self.cells[place];
            let mut left = times;
            while cell.mark != mark && cell.count > 0 && left > 0 {
                let Some(odds) = ODDS.get(cell.count as usize) else {
                    left = 0;
                    break;
                };
                if self.random.draw() >> 32 < u64::from(*odds) {
                    cell.count -= 1;
                }
                // Who wears it down to nothing has it, and counts.
                left -= u32::from(cell.count > 0);
            }
            if left > 0 {
                cell.mark = mark;
                cell.count = cell.count.saturating_add(left);
                most = most.max(cell.count);
            }
            self.cells[place] = cell;
        }
        let most = u64::from(most);
        if most > self.floor {
            self.candidate(hash, most, name);
        }
    }

    fn candidate(&mut self, hash: u64, count: u64, name: impl FnOnce() -> N) {
        if let Some(place) = self.place(hash) {
            let known = &mut self.candidates[place];
            let was = known.count;
            known.count = was.max(count);
            if was == self.floor {
                self.find_floor();
            }
            return;
        }
        let candidate = Candidate {
            hash,
            count,
            name: name(),
        };
        if self.candidates.len() < self.most {
            self.candidates.push(candidate);
        } else {
            let counts = self.candidates.iter().enumerate();
            let least = counts.min_by_key(|(_, candidate)| candidate.count);
            let place = least.map_or(0, |(place, _)| place);
            self.candidates[place] = candidate;
        }
        self.find_floor();
    }

    /// The candidate of this hash. They are few, and who comes often is found by the hint.
    #[inline]
    fn place(&mut self, hash: u64) -> Option<usize> {
        let hint = &mut self.hints[(hash >> 40) as usize % HINTS];
        let is = |candidate: &Candidate<N>| candidate.hash == hash;
        let hinted = usize::from(*hint);
        if self.candidates.get(hinted).is_some_and(is) {
            return Some(hinted);
        }
        let place = self.candidates.iter().position(is)?;
        *hint = u16::try_from(place).unwrap_or(0);
        Some(place)
    }

    fn find_floor(&mut self) {
        let counts = self.candidates.iter().map(|candidate| candidate.count);
        let full = self.candidates.len() == self.most;
        self.floor = counts.min().filter(|_| full).unwrap_or(0);
    }

    /// Those that may have come most often, in no order.
    pub fn candidates(&self) -> &[Candidate<N>] {
        &self.candidates
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.cells.fill(SketchCell::default());
        self.candidates.clear();
        self.floor = 0;
    }

    /// A cell in each row.
    fn at(&self, hash: u64) -> [usize; ROWS] {
        let width = self.cells.len() / ROWS;
        let row = |bits: u64| bits as usize & (width - 1);
        [row(hash), width + row(hash >> 20)]
    }
}

fn mark(hash: u64) -> u32 {
    (hash.wrapping_mul(GOLDEN) >> 32) as u32
}
