//! Random numbers, limits and moments, reproducible from a seed.

use tollgate::base::clock::Nanos;
use tollgate::limit::{Algorithm, Rate, RateLimit, ThrottleMode};

/// Histories of each algorithm and subject.
pub const HISTORIES: u64 = 100_000;

pub const SECOND: u64 = 1_000_000_000;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x746f_6c6c_6761_7465)
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

    /// From `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `many`.
    pub fn once_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A moment to start at: the gateway's first day, or centuries in.
    pub fn start(&mut self) -> u64 {
        let years = self.one_of(&[0, 0, 1, 140, 300]) * 365 * 86_400 * SECOND;
        years + self.within(86_400 * SECOND, 2 * 86_400 * SECOND)
    }

    fn window(&mut self) -> u64 {
        const MINUTE: u64 = 60 * SECOND;
        const DAY: u64 = 86_400 * SECOND;
        match self.below(8) {
            0 => self.within(SECOND, 100 * SECOND),
            1 => self.within(SECOND, Rate::MAX_WINDOW.0),
            2 => Rate::MAX_WINDOW.0,
            _ => self.one_of(&[
                SECOND,
                10 * SECOND,
                MINUTE,
                MINUTE + SECOND,
                15 * MINUTE,
                60 * MINUTE,
                90 * MINUTE,
                DAY,
                7 * DAY,
                60 * DAY,
            ]),
        }
    }

    fn quota(&mut self, algorithm: Algorithm) -> u32 {
        let most = match self.below(16) {
            0 => 300,
            1 if algorithm != Algorithm::SlidingLog => u64::from(Rate::MAX_QUOTA),
            2 => 1,
            3..=6 => 30,
            _ => 6,
        };
        self.within(most.div_ceil(4), most) as u32
    }

    /// Rates with growing windows, most often growing quotas too.
    fn rates(&mut self, algorithm: Algorithm) -> Vec<Rate> {
        let many = self.one_of(&[1, 1, 1, 2, 3, 4]);
        let mut windows: Vec<u64> = (0..many).map(|_| self.window()).collect();
        windows.sort_unstable();
        windows.dedup();
        let mut quotas: Vec<u32> = windows.iter().map(|_| self.quota(algorithm)).collect();
        if !self.once_in(8) {
            quotas.sort_unstable();
        }
        let each = windows.into_iter().zip(quotas);
        each.map(|(window, quota)| Rate::new(quota, Nanos(window)).unwrap())
            .collect()
    }

    pub fn limit(&mut self, algorithm: Algorithm) -> RateLimit {
        let throttle = match self.below(4) {
            0 => ThrottleMode::Soft {
                percent: self.one_of(&[1, 10, 50, 100, 1000]),
            },
            _ => ThrottleMode::Hard,
        };
        let windows = self.rates(algorithm);
        let algorithm = match algorithm {
            Algorithm::Gcra { .. } => Algorithm::Gcra {
                burst: self
                    .once_in(2)
                    .then(|| self.within(1, 2 * u64::from(windows[0].quota())) as u32),
            },
            Algorithm::LeakyBucket { .. } => {
                // Queues of more than 2^32 units are cut.
                let intervals = windows
                    .iter()
                    .map(|rate| rate.window().0 / u64::from(rate.quota()));
                let most = (intervals.min().unwrap_or(1) / 5).max(1) << 31;
                Algorithm::LeakyBucket {
                    max_delay: Nanos(self.within(0, most.min(2 * windows[0].window().0))),
                }
            }
            other => other,
        };
        let leaky = matches!(algorithm, Algorithm::LeakyBucket { .. });
        RateLimit {
            windows,
            algorithm,
            throttle: if leaky { ThrottleMode::Hard } else { throttle },
            reserves: false,
            max_plan_factor: self.one_of(&[1, 1, 1, 2, 5]),
        }
    }

    /// How far to move on under `limit`: by nothing, by a nanosecond, to and around the edges of
    /// buckets, hours and windows, or by years.
    pub fn step(&mut self, now: u64, limit: &RateLimit, wait: Nanos) -> u64 {
        let rate = self.one_of(&limit.windows);
        let window = rate.window().0;
        let to_edge = |of: u64| (now / of + 1) * of - now;
        let span = match self.below(16) {
            0..=2 => 0,
            3 => 1,
            4 | 5 => self.below(window / u64::from(rate.quota()) * 2 + 2),
            6 => self.below(window + window / 8),
            7 => window,
            8 => to_edge(window.div_ceil(60)),
            9 => to_edge(self.one_of(&[SECOND, 60 * SECOND, 3_600 * SECOND])),
            10 => to_edge(window),
            11 if self.once_in(4) => self.within(1, 20) * 365 * 86_400 * SECOND,
            _ => wait.0,
        };
        let nudge = self.below(8);
        match nudge {
            0 => span.saturating_sub(1),
            1 => span + 1,
            _ => span,
        }
    }

    /// What to ask for when `most` is the most that could ever pass.
    pub fn cost(&mut self, most: u32) -> u32 {
        match self.below(8) {
            0 => self.within(1, u64::from(most)) as u32,
            1 => most,
            2 if self.once_in(4) => most.saturating_add(1),
            3 => self.within(1, u64::from(most.div_ceil(3))) as u32,
            _ => 1,
        }
    }
}

/// Runs `each` with a seed of its own for every history, and names the seed that fails.
pub fn histories(many: u64, each: impl Fn(&mut Draw)) {
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the history of seed {} fails", self.0);
            }
        }
    }
    for seed in 0..many {
        let _named = Named(seed);
        each(&mut Draw::new(seed));
    }
}

pub const LOG: Algorithm = Algorithm::SlidingLog;
pub const BUCKETS: Algorithm = Algorithm::SlidingWindow;
pub const LEVELS: Algorithm = Algorithm::MultiLevel;
pub const FIXED: Algorithm = Algorithm::FixedWindow;
pub const GCRA: Algorithm = Algorithm::Gcra { burst: None };
pub const LEAKY: Algorithm = Algorithm::LeakyBucket {
    max_delay: Nanos::ZERO,
};
