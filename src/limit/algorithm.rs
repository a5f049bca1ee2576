//! The algorithms that count the use of a limit. Only their names and properties stand here; each has its
//! arithmetic in a file of its own.

use crate::base::clock::Nanos;

/// The largest quota, as written, for which the exact log of stamps is the default.
pub const LOG_DEFAULT_QUOTA: u32 = 1_024;

/// The most units that the largest plan may make of it: 64 KiB of stamps.
pub const LOG_DEFAULT_MOST: u32 = 16_384;

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

impl Algorithm {
    /// As policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Algorithm::SlidingLog => "sliding-log",
            Algorithm::SlidingWindow => "sliding-window",
            Algorithm::MultiLevel => "multi-level",
            Algorithm::FixedWindow => "fixed-window",
            Algorithm::Gcra { .. } => "gcra",
            Algorithm::LeakyBucket { .. } => "leaky-bucket",
        }
    }

    /// The exact log where it stays small, else conservative buckets. `quota` is the largest as
    /// written, `most` the largest that any plan and throttle make of it.
    pub fn default_for(quota: u32, most: u32) -> Algorithm {
        if quota <= LOG_DEFAULT_QUOTA && most <= LOG_DEFAULT_MOST {
            Algorithm::SlidingLog
        } else {
            Algorithm::SlidingWindow
        }
    }
}
