//! How several gateways hold one limit together.

use super::{Algorithm, Limit};
use crate::base::clock::Nanos;

/// How gateways share what a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The store is asked about each request.
    Strict,
    /// The store grants units in advance, for a while.
    Leased,
    /// Not at all: each gateway counts for itself.
    Local,
}

/// What holds while the store cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Each gateway admits its share.
    #[default]
    Local,
    /// All is admitted.
    Open,
    /// Nothing is admitted.
    Closed,
}

/// The shortest window for which leases are the default.
pub const LEASED_FROM: Nanos = Nanos::from_secs(10);

impl Sharing {
    /// What a limit gets where nothing else is said. Its quotas do not matter, so that a changed number finds the counts
    /// of the one before: of a small one nothing is granted in advance.
    pub fn default_for(limit: &Limit) -> Sharing {
        let long = limit
            .windows
            .iter()
            .all(|rate| rate.window() >= LEASED_FROM);
        if long && Sharing::leasable(limit) {
            Sharing::Leased
        } else {
            Sharing::Strict
        }
    }

    /// Whether units of it may be granted in advance: what was granted in a longer window bounds what is used
    /// in any window only where counts leave one by one.
    pub fn leasable(limit: &Limit) -> bool {
        let exact = matches!(
            limit.algorithm,
            Algorithm::SlidingLog | Algorithm::SlidingWindow
        );
        exact && !limit.reserves && !limit.throttle.lends()
    }

    /// As policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Sharing::Strict => "strict",
            Sharing::Leased => "leased",
            Sharing::Local => "local",
        }
    }
}

impl Limit {
    /// How long a unit that was granted in advance may be used: a fiftieth of the shortest window, 100 ms to 5 s.
    pub fn lease_life(&self) -> Nanos {
        let shortest = self
            .windows
            .first()
            .map_or(Nanos::ZERO, |rate| rate.window());
        Nanos(shortest.0 / 50).clamp(Nanos::from_millis(100), Nanos::from_secs(5))
    }
}

impl OnError {
    /// As policies write it.
    pub fn as_str(self) -> &'static str {
        match self {
            OnError::Local => "local",
            OnError::Open => "open",
            OnError::Closed => "closed",
        }
    }
}
