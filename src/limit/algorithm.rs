//! The algorithms that count the use of a limit. Only their names and properties stand here; each has its
//! arithmetic in a file of its own.

use crate::base::clock::Nanos;

/// The largest quota, as written, for which the sliding log is the default.
pub const LOG_DEFAULT_QUOTA: u32 = 1_024;

/// The largest quota, with plans and throttle, for which the sliding log is the default: 64 KiB of stamps.
pub const LOG_DEFAULT_MOST: u32 = 16_384;

/// How the use of a limit is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// An exact log: one stamp for each unit, one ring for all windows.
    SlidingLog,
    /// 60 buckets for each window, and the one that is leaving it, counted in full.
    SlidingWindow,
    /// Buckets of a second, a minute, an hour and a day, shared by all windows; the oldest is counted in full.
    MultiLevel,
    /// Windows that do not slide; each key has its own phase.
    FixedWindow,
    /// The generic cell rate algorithm, also called token bucket.
    Gcra {
        /// Units that may come at once; the quota if absent.
        burst: Option<u32>,
    },
    /// GCRA that delays requests instead of refusing them.
    LeakyBucket {
        /// The longest delay; a request that would wait longer is refused.
        max_delay: Nanos,
    },
}

impl Algorithm {
    /// Whether no window of the limit's length has more than the quota, wherever the window begins.
    pub(crate) fn has_moving_windows(self) -> bool {
        matches!(
            self,
            Algorithm::SlidingLog | Algorithm::SlidingWindow | Algorithm::MultiLevel
        )
    }

    /// Whether the state is an arrival time instead of counts.
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

    /// The exact log where it stays small, else conservative buckets. `quota` is the largest quota as written, `most`
    /// the largest with plans and throttle.
    pub fn default_for(quota: u32, most: u32) -> Algorithm {
        if quota <= LOG_DEFAULT_QUOTA && most <= LOG_DEFAULT_MOST {
            Algorithm::SlidingLog
        } else {
            Algorithm::SlidingWindow
        }
    }
}
