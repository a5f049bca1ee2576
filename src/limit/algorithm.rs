//! The algorithms that count the use of a limit: their names and properties. The arithmetic of each is in the file of
//! its name. `gcra.rs` has that of the leaky bucket too.

use crate::base::clock::Nanos;

/// The largest quota, as written and in units, for which the sliding log is the default.
pub const LOG_DEFAULT_MAX_QUOTA: u32 = 1_024;

/// The largest quota in units, with plans and throttle, for which the sliding log is the default. Its stamps fill 64
/// KiB.
pub const LOG_DEFAULT_MAX_SCALED_QUOTA: u32 = 16_384;

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
    /// The generic cell rate algorithm (GCRA), which admits the same requests as a token bucket.
    Gcra {
        /// The units that may come at once; the quota if absent.
        burst: Option<u32>,
    },
    /// GCRA that delays requests instead of refusing them.
    LeakyBucket {
        /// The longest delay; a request that would wait longer is refused.
        max_delay: Nanos,
    },
}

impl Algorithm {
    /// Whether every window of the limit's length keeps to the quota, wherever the window begins.
    pub(crate) fn has_moving_windows(self) -> bool {
        matches!(
            self,
            Algorithm::SlidingLog | Algorithm::SlidingWindow | Algorithm::MultiLevel
        )
    }

    /// Whether the state has arrival times instead of counts.
    pub(crate) fn is_gcra(self) -> bool {
        matches!(self, Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. })
    }

    /// The word for the algorithm in policies.
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

    /// The default algorithm: the exact log where it stays small, else buckets that may refuse too much but never admit
    /// too much. `quota` is the largest quota as written, `scaled_quota` the largest with plans and throttle.
    pub fn default_for(quota: u32, scaled_quota: u32) -> Algorithm {
        if quota <= LOG_DEFAULT_MAX_QUOTA && scaled_quota <= LOG_DEFAULT_MAX_SCALED_QUOTA {
            Algorithm::SlidingLog
        } else {
            Algorithm::SlidingWindow
        }
    }
}
