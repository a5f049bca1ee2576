//! HyperLogLog: estimates how many different keys were counted. The lists of keys store its registers.
//!
//! Source: Flajolet et al., "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", 2007. Small
//! numbers are estimated by linear counting, as the paper proposes. Bounds: [`REGISTER_COUNT`] bytes; the standard
//! error is 1.04 / sqrt([`REGISTER_COUNT`]), 2.3 %.

/// The number of registers of an estimator, one byte each. The record stores registers, so this must not change.
pub const REGISTER_COUNT: usize = 2_048;
/// The number of bits of a hash that choose the register.
const INDEX_BITS: u32 = REGISTER_COUNT.trailing_zeros();

/// An odd number with random bits. It mixes the bits of a hash, because `HeavyKeeper` uses bits of the same hash.
const MIXING_FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// Returns the index of a key's register, and the rank of the key. The rank is the position of the first one-bit in the
/// other 53 bits of the mixed hash, from 1; it is 54 if they are all zero.
pub fn register_and_rank(hash: u64) -> (usize, u8) {
    let mixed_hash = hash.wrapping_mul(MIXING_FACTOR);
    let rank = (mixed_hash << INDEX_BITS)
        .leading_zeros()
        .min(64 - INDEX_BITS) as u8
        + 1;
    ((mixed_hash >> (64 - INDEX_BITS)) as usize, rank)
}

/// An estimator of the number of different keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctCount(Box<[u8; REGISTER_COUNT]>);

impl Default for DistinctCount {
    fn default() -> DistinctCount {
        DistinctCount(Box::new([0; REGISTER_COUNT]))
    }
}

impl DistinctCount {
    /// Makes an estimator of stored registers. Returns `None` if there are not [`REGISTER_COUNT`] of them.
    pub fn from_registers(registers: &[u8]) -> Option<DistinctCount> {
        let registers: [u8; REGISTER_COUNT] = registers.try_into().ok()?;
        Some(DistinctCount(Box::new(registers)))
    }

    /// Adds a key by its hash, whose bits must look random.
    pub fn add(&mut self, hash: u64) {
        let (register, rank) = register_and_rank(hash);
        self.0[register] = rank.max(self.0[register]);
    }

    /// Adds the keys of another estimator, which must have hashed them under the same secret.
    pub fn merge(&mut self, other: &DistinctCount) {
        for (rank, other_rank) in self.0.iter_mut().zip(other.0.iter()) {
            *rank = (*rank).max(*other_rank);
        }
    }

    /// Estimates how many different keys were added to this estimator and to those merged into it.
    pub fn estimate(&self) -> u64 {
        let register_count = REGISTER_COUNT as f64;
        // The constants are those of figure 3 of the paper, which also uses linear counting up to 2.5 times the
        // registers.
        let alpha = 0.7213 / (1.0 + 1.079 / register_count);
        let inverse_sum: f64 = self.0.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let raw_estimate = alpha * register_count * register_count / inverse_sum;
        let empty_registers = self.0.iter().filter(|rank| **rank == 0).count();
        if raw_estimate <= 2.5 * register_count && empty_registers > 0 {
            let linear_count = register_count * (register_count / empty_registers as f64).ln();
            return linear_count.round() as u64;
        }
        raw_estimate.round() as u64
    }

    /// The registers, to be stored.
    pub fn registers(&self) -> &[u8] {
        &self.0[..]
    }
}
