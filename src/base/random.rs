//! Randomness as an argument: the same seed draws the same.

use std::cell::Cell;
use std::time::Duration;

/// Spreads over time what would come at once.
#[derive(Debug)]
pub struct Chance(Cell<u64>);

impl Chance {
    /// The same seed draws the same.
    pub fn new(seed: u64) -> Chance {
        Chance(Cell::new(seed))
    }

    /// From nothing up to `most`.
    pub fn up_to(&self, most: Duration) -> Duration {
        // splitmix64
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = u32::try_from((mixed ^ (mixed >> 31)) >> 44).unwrap_or(0);
        most / (1 << 20) * part
    }

    /// A quarter less, up to a quarter more.
    pub fn around(&self, span: Duration) -> Duration {
        span * 3 / 4 + self.up_to(span / 2)
    }
}

/// Marsaglia's xorshift, for tests.
#[cfg(test)]
pub struct Dice(pub u64);

#[cfg(test)]
impl Dice {
    /// From nothing up to less than `most`.
    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_keeps_within_its_bounds() {
        let chance = Chance::new(7);
        let span = Duration::from_secs(1000);
        let drawn: Vec<_> = (0..1000).map(|_| chance.around(span).as_secs()).collect();
        assert!(drawn.iter().all(|drawn| (750..=1250).contains(drawn)));
        assert!(drawn.iter().any(|drawn| *drawn < 800) && drawn.iter().any(|drawn| *drawn > 1200));
        assert_eq!(chance.up_to(Duration::ZERO), Duration::ZERO);
    }
}
