//! Randomness as an argument: the same seed draws the same numbers. Hashes of tables are with the tables.

use std::cell::Cell;
use std::time::Duration;

/// 2^64 divided by the golden ratio, odd: the step of SplitMix64, and the factor of Fibonacci hashing.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finalizer (Steele, Lea, Flood 2014): every bit of `bits` changes about half of the bits of the result.
#[inline]
pub fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// SplitMix64: a generator for choices that nobody must be kept from guessing.
#[derive(Debug)]
pub struct SplitMix64(Cell<u64>);

impl SplitMix64 {
    /// The same seed draws the same numbers.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(Cell::new(seed))
    }

    /// The next number.
    #[inline]
    pub fn draw(&self) -> u64 {
        let next = self.0.get().wrapping_add(GOLDEN);
        self.0.set(next);
        mix(next)
    }
}

/// Xorshift (George Marsaglia, "Xorshift RNGs", 2003): the cheapest generator, for sketches.
#[derive(Debug)]
pub struct Xorshift64(u64);

impl Xorshift64 {
    /// The same seed draws the same numbers. The lowest bit is set, for a seed of zero would draw only zeros.
    pub fn new(seed: u64) -> Xorshift64 {
        Xorshift64(seed | 1)
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Random pauses, which spread over time what many would do at once.
#[derive(Debug)]
pub struct Chance(SplitMix64);

impl Chance {
    /// The same seed draws the same.
    pub fn new(seed: u64) -> Chance {
        Chance(SplitMix64::new(seed))
    }

    /// From nothing up to `most`.
    pub fn up_to(&self, most: Duration) -> Duration {
        let part = u32::try_from(self.0.draw() >> 44).unwrap_or(0);
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
