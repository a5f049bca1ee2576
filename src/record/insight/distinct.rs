//! How many different keys there were: HyperLogLog (Flajolet et al., 2007), exact as long as they are few (linear counting).
//!
//! Bounds: [`REGISTERS`] bytes; the standard error is 1.04 / sqrt([`REGISTERS`]), 2.3 %.

/// Registers.
pub const REGISTERS: usize = 2_048;
const BITS: u32 = REGISTERS.trailing_zeros();

/// The register that a key is for, and what it says there.
pub fn place(hash: u64) -> (usize, u8) {
    // Other bits than a sketch takes first.
    let bits = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let rank = (bits << BITS).leading_zeros().min(64 - BITS) as u8 + 1;
    ((bits >> (64 - BITS)) as usize, rank)
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctCount(Box<[u8; REGISTERS]>);

impl Default for DistinctCount {
    fn default() -> DistinctCount {
        DistinctCount(Box::new([0; REGISTERS]))
    }
}

impl DistinctCount {
    /// From what [`DistinctCount::registers`] gave.
    pub fn from_registers(registers: &[u8]) -> Option<DistinctCount> {
        let registers: [u8; REGISTERS] = registers.try_into().ok()?;
        Some(DistinctCount(Box::new(registers)))
    }

    /// Adds a key by its hash, which must look random.
    pub fn add(&mut self, hash: u64) {
        let (register, rank) = place(hash);
        self.0[register] = rank.max(self.0[register]);
    }

    /// Adds what another has.
    pub fn merge(&mut self, other: &DistinctCount) {
        for (own, other) in self.0.iter_mut().zip(other.0.iter()) {
            *own = (*own).max(*other);
        }
    }

    /// About how many keys were added.
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

    /// To be kept.
    pub fn registers(&self) -> &[u8] {
        &self.0[..]
    }
}
