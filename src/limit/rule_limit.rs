//! The limit of a rule: on a rate, or on the number of open requests.

use super::{
    Algorithm, Alignment, Concurrency, LimitFinding, Rate, RateLimit, ThrottleMode, sliding_log,
};
use crate::base::clock::Nanos;

/// A limit of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleLimit {
    /// A limit on the units in a window.
    Rate(RateLimit),
    /// A limit on the requests that are open at once.
    Open(Concurrency),
}

impl From<RateLimit> for RuleLimit {
    fn from(limit: RateLimit) -> RuleLimit {
        RuleLimit::Rate(limit)
    }
}

impl From<Concurrency> for RuleLimit {
    fn from(limit: Concurrency) -> RuleLimit {
        RuleLimit::Open(limit)
    }
}

impl RuleLimit {
    /// The limit on a rate; `None` for a limit on open requests.
    #[inline]
    pub fn rate(&self) -> Option<&RateLimit> {
        match self {
            RuleLimit::Rate(limit) => Some(limit),
            RuleLimit::Open(_) => None,
        }
    }

    /// Whether the units are credits, which no time frees.
    #[inline]
    pub fn is_credits(&self) -> bool {
        self.rate().is_some_and(RateLimit::is_credits)
    }

    /// The limit on open requests; `None` for a limit on a rate.
    pub fn open(&self) -> Option<&Concurrency> {
        match self {
            RuleLimit::Rate(_) => None,
            RuleLimit::Open(limit) => Some(limit),
        }
    }

    /// The window with this index; see [`LimitFinding::window`]. `None` for limits on open requests, and beyond the
    /// last window.
    #[inline]
    pub fn window(&self, index: u8) -> Option<&Rate> {
        self.rate()?.windows.get(usize::from(index))
    }

    /// The length of the window that a finding is about; `None` for limits on open requests and with credits.
    #[inline]
    pub fn window_length(&self, finding: &LimitFinding) -> Option<Nanos> {
        let rate = self.window(finding.window)?;
        (!rate.is_credits()).then(|| rate.window_length(finding.calendar_window))
    }

    /// What the limit does above its rate or number.
    pub fn throttle(&self) -> ThrottleMode {
        match self {
            RuleLimit::Rate(limit) => limit.throttle,
            RuleLimit::Open(limit) => limit.throttle,
        }
    }

    /// Whether this limit, with all that it lends, admits no more in each window of `other` than `other` admits without
    /// lending.
    pub(super) fn is_as_strict_as(&self, other: &RuleLimit) -> bool {
        let (own_throttle, other_throttle) = (self.throttle(), other.throttle());
        let max_admitted_units = |quota: u32| {
            u64::from(own_throttle.ceiling(quota)) + u64::from(own_throttle.max_lent(quota))
        };
        let guaranteed_units = |quota: u32| u64::from(other_throttle.ceiling(quota));
        match (self, other) {
            (RuleLimit::Rate(own), RuleLimit::Rate(other)) => {
                // This many own windows, one after another, cover the other's window.
                let is_within = |own: &Rate, other: &Rate| {
                    if [own, other]
                        .iter()
                        .any(|rate| rate.alignment() != Alignment::Key)
                    {
                        // Other windows may begin inside of these.
                        return (own.window(), own.alignment())
                            == (other.window(), other.alignment())
                            && max_admitted_units(own.quota()) <= guaranteed_units(other.quota());
                    }
                    let windows = other.window().0.div_ceil(own.window().0.max(1));
                    max_admitted_units(own.quota()).saturating_mul(windows)
                        <= guaranteed_units(other.quota())
                };
                // An algorithm without moving windows may admit more than the quota in some windows.
                (own.algorithm.has_moving_windows() || own.algorithm == other.algorithm)
                    && other
                        .windows
                        .iter()
                        .all(|other| own.windows.iter().any(|own| is_within(own, other)))
            }
            (RuleLimit::Open(own), RuleLimit::Open(other)) => {
                max_admitted_units(own.quota(1)) <= guaranteed_units(other.quota(1))
            }
            _ => false,
        }
    }

    /// The largest plan multiplier that a request may have.
    pub fn max_plan_factor(&self) -> u32 {
        match self {
            RuleLimit::Rate(limit) => limit.max_plan_factor,
            RuleLimit::Open(limit) => limit.max_plan_factor,
        }
    }

    /// What clients see of a finding: the units that remain, and the time until there is one more. That time is `None`
    /// for limits on open requests and with credits.
    ///
    /// Responses show both beside the quota and the window, so they are cut to these. A burst or a delay may admit more
    /// than the quota at once, and a bucket outlives its window.
    #[inline]
    pub fn client_figures(&self, finding: &LimitFinding) -> (u32, Option<Nanos>) {
        let window = self.window_length(finding);
        let reset = window.map(|length| finding.reset.min(length));
        (finding.remaining.min(finding.quota), reset)
    }

    /// A wait or a reset in whole seconds, rounded up after subtracting what coarse stamps add.
    pub fn whole_seconds(&self, span: Nanos) -> u64 {
        self.without_coarseness(span).ceil_secs()
    }

    /// The time for which [`RuleLimit::whole_seconds`] stays the same while `span` runs down. Responses about credits have
    /// no seconds, so they stay the same for ever.
    pub fn seconds_unchanged_for(&self, span: Nanos) -> Nanos {
        if self.is_credits() {
            return Nanos(u64::MAX);
        }
        self.without_coarseness(span).until_next_second()
    }

    /// A wait or a reset without what coarse stamps add.
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

/// The most that coarse stamps add to a wait or a reset.
fn coarseness(limit: &RateLimit) -> Nanos {
    match limit.algorithm {
        Algorithm::SlidingLog => sliding_log::coarseness(limit),
        _ => Nanos::ZERO,
    }
}
