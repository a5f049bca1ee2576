//! HyperLogLog: estimates how many different keys were counted.
//!
//! Source: Flajolet et al., "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", 2007. Small
//! numbers are estimated by linear counting, as the paper proposes. Bounds: [`REGISTERS`] bytes; the standard error is
//! 1.04 / sqrt([`REGISTERS`]), 2.3 %.

/// Registers of an estimator, one byte each. The record stores them, so their number must not change.
pub const REGISTERS: usize = 2_048;
/// Bits of a hash that choose the register.
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();

/// Returns the register of a key, and the rank of the key: the position of the first one-bit in the rest of its hash.
pub fn register_and_rank(hash: u64) -> (usize, u8) {
    // Mixed, because `HeavyKeeper` and the stripes use bits of the same hash.
    let bits = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let rank = (bits << INDEX_BITS).leading_zeros().min(64 - INDEX_BITS) as u8 + 1;
    ((bits >> (64 - INDEX_BITS)) as usize, rank)
}

/// An estimator of the number of different keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctCount(Box<[u8; REGISTERS]>);

impl Default for DistinctCount {
    fn default() -> DistinctCount {
        DistinctCount(Box::new([0; REGISTERS]))
    }
}

impl DistinctCount {
    /// Makes an estimator of stored registers; returns nothing if there are not [`REGISTERS`] of them.
    pub fn from_registers(registers: &[u8]) -> Option<DistinctCount> {
        let registers: [u8; REGISTERS] = registers.try_into().ok()?;
        Some(DistinctCount(Box::new(registers)))
    }

    /// Adds a key by its hash, whose bits must look random.
    pub fn add(&mut self, hash: u64) {
        let (register, rank) = register_and_rank(hash);
        self.0[register] = rank.max(self.0[register]);
    }

    /// Adds the keys of another estimator, which must have hashed them under the same secret.
    pub fn merge(&mut self, other: &DistinctCount) {
        for (own, other) in self.0.iter_mut().zip(other.0.iter()) {
            *own = (*own).max(*other);
        }
    }

    /// Estimates how many different keys were added.
    pub fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / registers);
        let inverse: f64 = self.0.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let raw = alpha * registers * registers / inverse;
        let empty = self.0.iter().filter(|rank| **rank == 0).count();
        if raw <= 2.5 * registers && empty > 0 {
            return (registers * (registers / empty as f64).ln()).round() as u64;
        }
        raw.round() as u64
    }

    /// The registers, to be stored.
    pub fn registers(&self) -> &[u8] {
        &self.0[..]
    }
}
