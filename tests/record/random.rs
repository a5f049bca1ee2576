//! Numbers by chance, the same for the same seed, as traffic has them.

/// The traffic of a gateway: how many events a second each series has on average.
pub const MIX: [f64; 26] = [
    20_000.0, 2_000.0, 2_000.0, 500.0, 200.0, 100.0, 50.0, 50.0, 50.0, 20.0, 10.0, 5.0, 2.0, 1.0,
    1.0, 1.0, 0.5, 0.2, 0.1, 0.1, 0.05, 0.01, 0.01, 0.01, 0.001, 0.001,
];

/// xorshift, 64 bits.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// Between 0 and 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// How many of independent events fall into a second that has so many on average.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 30.0 {
            let (distance, angle) = (self.share().max(1e-12), self.share());
            let normal = (-2.0 * distance.ln()).sqrt() * (angle * std::f64::consts::TAU).cos();
            return (mean + normal * mean.sqrt()).round().max(0.0) as u64;
        }
        let (floor, mut product) = ((-mean).exp(), self.share());
        let mut count = 0;
        while product > floor {
            product *= self.share();
            count += 1;
        }
        count
    }
}
