//! How several gateways keep one limit together: what the policy may choose, and what is the default. The sharing
//! itself is done by `store/shared/`.

use super::{Algorithm, RateLimit};
use crate::base::clock::Nanos;

/// How gateways share the counts of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The store decides about each request.
    Strict,
    /// The store leases units to each gateway in advance; see [`RateLimit::lease_life`].
    Leased,
    /// Counts are not shared: each gateway counts for itself.
    Local,
}

/// What a limit does while the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreError {
    /// Each gateway admits its share of the limit.
    #[default]
    Local,
    /// Every request is admitted.
    Open,
    /// No request is admitted.
    Closed,
}

/// The shortest window for which leases are the default. In shorter ones a leased unit would live less than 200 ms.
pub const MIN_LEASED_WINDOW: Nanos = Nanos::from_secs(10);

impl Sharing {
    /// The default for a limit. It does not depend on quotas, so that a limit with a changed quota finds its counts.
    /// Quotas that are too small for leases are decided by the store anyway.
    pub fn default_for(limit: &RateLimit) -> Sharing {
        let has_long_windows = limit
            .windows
            .iter()
            .all(|rate| rate.window() >= MIN_LEASED_WINDOW);
        if has_long_windows && Sharing::can_lease(limit) {
            Sharing::Leased
        } else {
            Sharing::Strict
        }
    }

    /// Whether units of the limit may be leased: it neither reserves nor lends, and its counts leave the window one by one
    /// or bucket by bucket. Only then do the leased units bound the units that are used in any window.
    pub fn can_lease(limit: &RateLimit) -> bool {
        let counts_leave_singly = matches!(
            limit.algorithm,
            Algorithm::SlidingLog | Algorithm::SlidingWindow
        );
        counts_leave_singly && !limit.reserves && !limit.throttle.is_elastic()
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

impl RateLimit {
    /// The time for which a leased unit may be used: a fiftieth of the shortest window, 100 ms to 5 s.
    pub fn lease_life(&self) -> Nanos {
        let shortest = self
            .windows
            .first()
            .map_or(Nanos::ZERO, |rate| rate.window());
        Nanos(shortest.0 / 50).clamp(Nanos::from_millis(100), Nanos::from_secs(5))
    }
}

impl OnStoreError {
    /// The word in policies.
    pub fn as_str(self) -> &'static str {
        match self {
            OnStoreError::Local => "local",
            OnStoreError::Open => "open",
            OnStoreError::Closed => "closed",
        }
    }
}
