//! How several gateways keep one limit together.

use super::{Algorithm, Limit};
use crate::base::clock::Nanos;

/// How gateways share the counts of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The store decides about each request.
    Strict,
    /// The store leases units in advance, for a short time.
    Leased,
    /// Counts are not shared: each gateway counts for itself.
    Local,
}

/// What a limit does while the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Each gateway admits its share of the limit.
    #[default]
    Local,
    /// Every request is admitted.
    Open,
    /// No request is admitted.
    Closed,
}

/// The shortest window for which leases are the default.
pub const LEASED_FROM: Nanos = Nanos::from_secs(10);

impl Sharing {
    /// The default for a limit. It does not depend on quotas, so that a limit with a changed quota finds its counts. Of
    /// small quotas no units are leased anyway.
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

    /// Whether units of the limit may be leased. That needs an algorithm whose counts leave one by one: only then do the
    /// units that were leased bound the units used in any window.
    pub fn leasable(limit: &Limit) -> bool {
        let exact = matches!(
            limit.algorithm,
            Algorithm::SlidingLog | Algorithm::SlidingWindow
        );
        exact && !limit.reserves && !limit.throttle.lends()
    }

    /// The word in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Sharing::Strict => "strict",
            Sharing::Leased => "leased",
            Sharing::Local => "local",
        }
    }
}

impl Limit {
    /// How long a leased unit may be used: a fiftieth of the shortest window, 100 ms to 5 s.
    pub fn lease_life(&self) -> Nanos {
        let shortest = self
            .windows
            .first()
            .map_or(Nanos::ZERO, |rate| rate.window());
        Nanos(shortest.0 / 50).clamp(Nanos::from_millis(100), Nanos::from_secs(5))
    }
}

impl OnError {
    /// The word in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            OnError::Local => "local",
            OnError::Open => "open",
            OnError::Closed => "closed",
        }
    }
}
