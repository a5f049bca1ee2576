//! Random numbers, reproducible from a seed.

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x656c_6173_7469_6321)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to but not including `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Above 0 and at most 1.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Between two events of a Poisson process, in the unit of `mean`.
    pub fn gap(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// Of a lognormal distribution with this mean and this deviation of the logarithm.
    pub fn lognormal(&mut self, mean: f64, spread: f64) -> f64 {
        // Box and Muller 1958.
        let normal = (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos();
        mean * (spread * normal - spread * spread / 2.0).exp()
    }
}
