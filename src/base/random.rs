//! Pseudo-random generators and jitter. A caller passes the seed, and the same seed gives the same numbers.
//!
//! Nothing here is fit for secrets. [`Keyer`](crate::identity::Keyer) has its secret from the operating system.

use std::cell::Cell;
use std::time::Duration;

/// 2^64 divided by the golden ratio, rounded down to an odd number: the increment of SplitMix64, and the factor of
/// Fibonacci hashing.
pub const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finalizer (Steele, Lea, Flood 2014): every bit of `bits` changes about half of the bits of the result.
#[inline]
pub fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The generator SplitMix64, whose finalizer is [`mix`]: for choices that clients may guess.
#[derive(Debug)]
pub struct SplitMix64(Cell<u64>);

impl SplitMix64 {
    /// Creates a generator. No seed is better or worse than another one.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(Cell::new(seed))
    }

    /// The next number, from all 64-bit ones.
    #[inline]
    pub fn draw(&self) -> u64 {
        let new_state = self.0.get().wrapping_add(GOLDEN_RATIO);
        self.0.set(new_state);
        mix(new_state)
    }
}

/// Xorshift (George Marsaglia, "Xorshift RNGs", 2003): a generator of three shifts, for sketches.
#[derive(Debug)]
pub struct Xorshift64(u64);

impl Xorshift64 {
    /// Creates a generator. Sets the lowest bit of the seed, because a seed of zero would give only zeros.
    pub fn new(seed: u64) -> Xorshift64 {
        Xorshift64(seed | 1)
    }

    /// The next number, which is never zero.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The random bits of a [`Jitter`], which draws one of about a million steps.
const STEP_BITS: u32 = 20;

/// Random durations, which spread over time what many gateways would do at once.
#[derive(Debug)]
pub struct Jitter(SplitMix64);

impl Jitter {
    /// Creates a source that draws from a [`SplitMix64`] with this seed.
    pub fn new(seed: u64) -> Jitter {
        Jitter(SplitMix64::new(seed))
    }

    /// A duration from zero to just below `longest`, in steps of 1/2^20 of it. A step is rounded down to nanoseconds,
    /// so the result of a `longest` of a few milliseconds stays well below it. Below a millisecond it is always zero.
    pub fn up_to(&self, longest: Duration) -> Duration {
        let steps = u32::try_from(self.0.draw() >> (u64::BITS - STEP_BITS)).unwrap_or(0);
        longest / (1 << STEP_BITS) * steps
    }

    /// A duration from three to five quarters of `mean`, with the rounding of [`Jitter::up_to`].
    pub fn around(&self, mean: Duration) -> Duration {
        mean * 3 / 4 + self.up_to(mean / 2)
    }
}

/// Marsaglia's xorshift, for the choices of tests. The seed must not be zero, which would give only zeros.
#[cfg(test)]
pub struct Dice(pub u64);

#[cfg(test)]
impl Dice {
    /// A number from zero to `bound - 1`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// One of `values`, which must not be empty.
    pub fn choose<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_keeps_within_its_bounds() {
        let jitter = Jitter::new(7);
        let span = Duration::from_secs(1000);
        let drawn: Vec<_> = (0..1000).map(|_| jitter.around(span).as_secs()).collect();
        assert!(drawn.iter().all(|drawn| (750..=1250).contains(drawn)));
        assert!(drawn.iter().any(|drawn| *drawn < 800) && drawn.iter().any(|drawn| *drawn > 1200));
        assert_eq!(jitter.up_to(Duration::ZERO), Duration::ZERO);
    }
}
