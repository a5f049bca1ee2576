//! What a rule holds requests to: a rate, or a number that are open at once.

use super::{Algorithm, Concurrency, Limit, Rate, Reading, ThrottleMode, sliding_log};
use crate::base::clock::Nanos;

/// Either kind of limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleLimit {
    /// So many in a window.
    Rate(Limit),
    /// So many at once.
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

    /// What happens above it.
    pub fn throttle(&self) -> ThrottleMode {
        match self {
            RuleLimit::Rate(limit) => limit.throttle,
            RuleLimit::Open(limit) => limit.throttle,
        }
    }

    /// Whether no more passes it, of what is lent too, than `other` promises over each of its windows.
    pub(super) fn is_as_strict_as(&self, other: &RuleLimit) -> bool {
        let (own, others) = (self.throttle(), other.throttle());
        let most = |quota: u32| u64::from(own.ceiling(quota)) + u64::from(own.lends_at_most(quota));
        let promised = |quota: u32| u64::from(others.ceiling(quota));
        match (self, other) {
            (RuleLimit::Rate(own), RuleLimit::Rate(other)) => {
                // Others may admit more than the quota in some windows, or have windows of their own.
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

    /// The largest plan multiplier that a request may bring.
    pub fn max_multiply(&self) -> u32 {
        match self {
            RuleLimit::Rate(limit) => limit.max_multiply,
            RuleLimit::Open(limit) => limit.max_multiply,
        }
    }

    /// What is disclosed of a reading: units left, and the time until there is one more, where that is known. A burst or
    /// a delay admits more at once than the quota, and a bucket outlives its window; neither is more than the quota and
    /// the window that stand beside it.
    #[inline]
    pub fn left(&self, reading: &Reading) -> (u32, Option<Nanos>) {
        let window = self.window(reading.window);
        let reset = window.map(|rate| reading.reset.min(rate.window()));
        (reading.remaining.min(reading.quota), reset)
    }

    /// A wait or a reset in whole seconds, rounded up but for what coarse stamps add to it.
    pub fn seconds(&self, span: Nanos) -> u64 {
        self.but_for_stamps(span).ceil_secs()
    }

    /// For how long [`RuleLimit::seconds`] of what is left of it is the same.
    pub fn same_seconds(&self, span: Nanos) -> Nanos {
        self.but_for_stamps(span).until_next_second()
    }

    fn but_for_stamps(&self, span: Nanos) -> Nanos {
        self.rate()
            .map_or(span, |limit| span.since(coarseness(limit)))
    }

    /// What it promises, as one sentence without a full stop. Plans multiply the numbers.
    pub fn guarantee(&self) -> String {
        match self {
            RuleLimit::Rate(limit) => limit.guarantee(),
            RuleLimit::Open(limit) => limit.guarantee(),
        }
    }
}

/// What coarse stamps add to a wait or a reset.
fn coarseness(limit: &Limit) -> Nanos {
    match limit.algorithm {
        Algorithm::SlidingLog => sliding_log::coarseness(limit),
        _ => Nanos::ZERO,
    }
}
