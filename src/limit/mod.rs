//! What a limit promises, and the pure arithmetic that keeps it: no I/O, no clock, no lock.

mod bound;
mod buckets;
pub mod cell;
pub mod concurrency;
pub mod cost;
mod fixed_window;
mod gcra;
mod guarantee;
mod lending;
mod multi_level;
pub mod pressure;
pub mod rate;
mod reserve;
pub mod rule;
mod rules;
pub mod sharing;
mod sliding_log;
mod sliding_window;
pub mod spec;
mod terms;
pub mod texts;
mod window;

use crate::base::clock::Nanos;

pub use bound::Bound;
pub use cell::{Cell, Shape};
pub use concurrency::Concurrency;
pub use rate::Rate;
pub use reserve::{Reserve, Source};
pub use rule::{Count, Disclose, Identity, Name, Rule};
pub use rules::Rules;
pub use sharing::{OnError, Sharing};
pub use spec::Spec;
pub use terms::{Found, Terms};

/// The largest quota, as written, for which the exact log of stamps is the default.
pub const LOG_DEFAULT_QUOTA: u32 = 1_024;

/// The most units that the largest plan may make of it: 64 KiB of stamps.
pub const LOG_DEFAULT_MOST: u32 = 16_384;

/// Most windows that one limit may have.
pub const MAX_WINDOWS: usize = 8;

/// One limit on a rate as a store enforces it: all its windows must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// 1 to [`MAX_WINDOWS`] rates, shortest window first, no two with the same window.
    pub windows: Vec<Rate>,
    /// How use is remembered.
    pub algorithm: Algorithm,
    /// What happens above the rate.
    pub throttle: Throttle,
    /// Use is known only from the response, so admission reserves and the answer settles.
    pub reserves: bool,
    /// The largest plan multiplier that a request may bring; the state has room for it.
    pub max_multiply: u32,
}

impl Limit {
    /// Never more than `rate`, remembered as policies do where they do not say how.
    pub fn hard(rate: Rate) -> Limit {
        Limit {
            windows: vec![rate],
            algorithm: Algorithm::default_for(rate.quota(), rate.quota()),
            throttle: Throttle::Hard,
            reserves: false,
            max_multiply: 1,
        }
    }

    /// Whether what this reading says was admitted is lent.
    pub fn lent(&self, reading: &Reading) -> bool {
        self.throttle.lends() && reading.standing == Standing::Over
    }

    /// What coarse stamps add to a wait or a reset.
    fn coarseness(&self) -> Nanos {
        match self.algorithm {
            Algorithm::SlidingLog => sliding_log::coarseness(self),
            _ => Nanos::ZERO,
        }
    }
}

/// How a store remembers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The exact log: one stamp for each unit, one ring for all windows.
    SlidingLog,
    /// 60 buckets a window and the one that is leaving, counted in full.
    SlidingWindow,
    /// Second, minute, hour and day buckets shared by all windows, the oldest counted in full.
    MultiLevel,
    /// Windows that stand still, each key with its own phase.
    FixedWindow,
    /// The generic cell rate algorithm, also called token bucket.
    Gcra {
        /// Units that may come at once; the quota when absent.
        burst: Option<u32>,
    },
    /// GCRA that delays instead of refusing.
    LeakyBucket {
        /// The longest delay; what would wait longer is refused.
        max_delay: Nanos,
    },
}

impl Algorithm {
    /// Whether no window of the limit's length, wherever it begins, has more than the quota.
    pub(crate) fn has_moving_windows(self) -> bool {
        matches!(
            self,
            Algorithm::SlidingLog | Algorithm::SlidingWindow | Algorithm::MultiLevel
        )
    }

    /// Whether it remembers an arrival time instead of counts.
    pub(crate) fn is_gcra(self) -> bool {
        matches!(self, Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. })
    }
}

/// What happens above the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// Never above the rate.
    Hard,
    /// Up to this many per cent above the rate is admitted and marked.
    Soft {
        /// Per cent above the rate, 1 to 1000.
        percent: u16,
    },
    /// What is spare above the rate is admitted and marked, up to `most` where the rate says `of`.
    Elastic {
        /// Units that are admitted at most.
        most: u32,
        /// Units of the rate in the same window, at least 1.
        of: u32,
    },
}

/// How much of a limit a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The plan's multiplier, at least 1.
    pub multiply: u32,
    /// What elastic limits lend now, in thousandths of the rate.
    pub lent: u32,
}

impl Scale {
    /// A plan's, nothing lent.
    pub fn plan(multiply: u32) -> Scale {
        Scale { multiply, lent: 0 }
    }
}

impl Throttle {
    /// The most units that `quota` admits in a window, what is lent aside.
    pub fn ceiling(self, quota: u32) -> u32 {
        match self {
            Throttle::Hard | Throttle::Elastic { .. } => quota,
            Throttle::Soft { percent } => {
                let above = u64::from(quota) * u64::from(percent) / 100;
                u32::try_from(u64::from(quota) + above).unwrap_or(u32::MAX)
            }
        }
    }

    /// Whether it is elastic.
    pub fn lends(self) -> bool {
        matches!(self, Throttle::Elastic { .. })
    }

    /// Units above `quota` that may be lent in a window.
    pub fn lends_at_most(self, quota: u32) -> u32 {
        match self {
            Throttle::Elastic { most, of } => {
                let quota = u64::from(quota);
                // Up, or a short window beside that of `at_most` might never lend anything.
                let most = (quota * u64::from(most)).div_ceil(u64::from(of.max(1)));
                u32::try_from(most.saturating_sub(quota)).unwrap_or(u32::MAX)
            }
            Throttle::Hard | Throttle::Soft { .. } => 0,
        }
    }
}

/// The keyed hash of who or what is counted; the only form in which a key is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u128);

/// How one limit stands towards one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Within the rate.
    Within,
    /// Above the rate, inside what a soft limit adds or an elastic one lends.
    Over,
    /// Would exceed the limit now.
    Refused,
    /// Costs more than the limit can ever admit.
    Unsatisfiable,
}

impl Standing {
    /// As the log writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Within => "within",
            Standing::Over => "over",
            Standing::Refused => "refused",
            Standing::Unsatisfiable => "unsatisfiable",
        }
    }

    /// Whether the limit lets the request pass.
    pub fn admits(self) -> bool {
        matches!(self, Standing::Within | Standing::Over)
    }
}

/// What one limit said about one request, after taking if it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Pass or not, and why not.
    pub standing: Standing,
    /// Index of the window that speaks: of those that refuse the one with the longest wait,
    /// else the one with the least remaining.
    pub window: u8,
    /// Units that window admits, with the plan's multiplier.
    pub quota: u32,
    /// Units left in that window below the quota, or permits that are free.
    pub remaining: u32,
    /// Until this request would pass, a guess where only the end of others frees something; zero when
    /// it passes.
    pub wait: Nanos,
    /// Until one more unit than `remaining` is free; zero when nothing is used, or nobody knows.
    pub reset: Nanos,
    /// How long an admitted request must be held back (leaky bucket).
    pub delay: Nanos,
    /// The key has no cell of its own and was decided by the overflow sketch.
    pub sketched: bool,
}
