//! The limit of a rule: on a rate, or on the number of open requests.

use super::{Algorithm, Concurrency, Limit, LimitReading, Rate, ThrottleMode, sliding_log};
use crate::base::clock::Nanos;

/// A limit of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleLimit {
    /// On units in a window.
    Rate(Limit),
    /// On requests that are open at once.
    Open(Concurrency),
}

impl From<Limit> for RuleLimit {
    fn from(limit: Limit) -> RuleLimit {
        RuleLimit::Rate(limit)
    }
}

impl From<Concurrency> for RuleLimit {
    fn from(limit: Concurrency) -> RuleLimit {
        RuleLimit::Open(limit)
    }
}

impl RuleLimit {
    /// The limit on a rate, if it is one.
    #[inline]
    pub fn rate(&self) -> Option<&Limit> {
        match self {
            RuleLimit::Rate(limit) => Some(limit),
            RuleLimit::Open(_) => None,
        }
    }

    /// The limit on open requests, if it is one.
    pub fn open(&self) -> Option<&Concurrency> {
        match self {
            RuleLimit::Rate(_) => None,
            RuleLimit::Open(limit) => Some(limit),
        }
    }

    /// The window that a reading names.
    #[inline]
    pub fn window(&self, index: u8) -> Option<&Rate> {
        self.rate()?.windows.get(usize::from(index))
    }

    /// What the limit does above its rate or number.
    pub fn throttle(&self) -> ThrottleMode {
        match self {
            RuleLimit::Rate(limit) => limit.throttle,
            RuleLimit::Open(limit) => limit.throttle,
        }
    }

    /// Whether it admits no more than `other` guarantees in each of its windows, what is lent included.
    pub(super) fn is_as_strict_as(&self, other: &RuleLimit) -> bool {
        let (own, others) = (self.throttle(), other.throttle());
        let most = |quota: u32| u64::from(own.ceiling(quota)) + u64::from(own.lends_at_most(quota));
        let promised = |quota: u32| u64::from(others.ceiling(quota));
        match (self, other) {
            (RuleLimit::Rate(own), RuleLimit::Rate(other)) => {
                // Other algorithms may admit more than the quota in some windows.
                let moves = own.algorithm.has_moving_windows();
                (moves || own.algorithm == other.algorithm)
                    && other.windows.iter().all(|theirs| {
                        own.windows.iter().any(|rate| {
                            let times = theirs.window().0.div_ceil(rate.window().0.max(1));
                            most(rate.quota()).saturating_mul(times) <= promised(theirs.quota())
                        })
                    })
            }
            (RuleLimit::Open(own), RuleLimit::Open(other)) => {
                most(own.most) <= promised(other.most)
            }
            _ => false,
        }
    }

    /// The largest plan multiplier of a request.
    pub fn max_multiply(&self) -> u32 {
        match self {
            RuleLimit::Rate(limit) => limit.max_multiply,
            RuleLimit::Open(limit) => limit.max_multiply,
        }
    }

    /// What clients see of a reading: the units left, and the time until there is one more, if that is known. Both are
    /// cut to the quota and the window that stand beside them: a burst or a delay admits more than the quota at once,
    /// and a bucket outlives its window.
    #[inline]
    pub fn left(&self, reading: &LimitReading) -> (u32, Option<Nanos>) {
        let window = self.window(reading.window);
        let reset = window.map(|rate| reading.reset.min(rate.window()));
        (reading.remaining.min(reading.quota), reset)
    }

    /// A wait or a reset in whole seconds, rounded up after subtracting what coarse stamps add.
    pub fn seconds(&self, span: Nanos) -> u64 {
        self.without_coarseness(span).ceil_secs()
    }

    /// For how long [`RuleLimit::seconds`] of the rest of `span` stays the same.
    pub fn same_seconds(&self, span: Nanos) -> Nanos {
        self.without_coarseness(span).until_next_second()
    }

    fn without_coarseness(&self, span: Nanos) -> Nanos {
        self.rate()
            .map_or(span, |limit| span.since(coarseness(limit)))
    }

    /// What the limit guarantees, as one sentence without a full stop. Plans multiply the numbers.
    pub fn guarantee(&self) -> String {
        match self {
            RuleLimit::Rate(limit) => limit.guarantee(),
            RuleLimit::Open(limit) => limit.guarantee(),
        }
    }
}

/// How much coarse stamps may add to a wait or a reset.
fn coarseness(limit: &Limit) -> Nanos {
    match limit.algorithm {
        Algorithm::SlidingLog => sliding_log::coarseness(limit),
        _ => Nanos::ZERO,
    }
}
