//! A limit on a rate: so many units in each of its windows.

use super::algorithm::Algorithm;
use super::calendar::CalendarWindow;
use super::finding::{LimitFinding, LimitStanding};
use super::rate::Rate;
use super::throttle::ThrottleMode;
use crate::base::clock::Nanos;

/// The largest number of windows that one limit may have.
pub const MAX_WINDOWS: usize = 8;

/// A limit on a rate, as a store enforces it: all of its windows must admit a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// 1 to [`MAX_WINDOWS`] rates, shortest window first, no two with the same window.
    pub windows: Vec<Rate>,
    /// How use is counted.
    pub algorithm: Algorithm,
    /// What the limit does above the rate.
    pub throttle: ThrottleMode,
    /// Whether the use of a request is known only after its admission. Then admission reserves units, which are settled
    /// later.
    pub reserves: bool,
    /// The largest plan multiplier of a request; the state has room for it.
    pub max_plan_factor: u32,
}

impl RateLimit {
    /// A hard limit with the default algorithm.
    pub fn hard(rate: Rate) -> RateLimit {
        RateLimit {
            windows: vec![rate],
            algorithm: Algorithm::default_for(rate.quota(), rate.quota()),
            throttle: ThrottleMode::Hard,
            reserves: false,
            max_plan_factor: 1,
        }
    }

    /// A hard limit with credits, of which no key has any. [`RuleLimit::granted`](super::RuleLimit::granted) adds them.
    pub fn of_credits(reserves: bool) -> RateLimit {
        RateLimit {
            windows: vec![Rate::of_credits()],
            algorithm: Algorithm::FixedWindow,
            throttle: ThrottleMode::Hard,
            reserves,
            max_plan_factor: 1,
        }
    }

    /// Whether the units are credits, which no time frees. Such a limit has one window.
    #[inline]
    pub fn is_credits(&self) -> bool {
        matches!(&self.windows[..], [rate] if rate.is_credits())
    }

    /// The calendar's window of `wall` time, of the rate with this index; `None` if the rate is not by the calendar.
    #[inline]
    pub fn calendar_window(&self, index: u8, wall: Nanos) -> Option<CalendarWindow> {
        let calendar = self.windows.get(usize::from(index))?.calendar()?;
        Some(calendar.window_at(wall))
    }

    /// Whether the units that this finding admits are lent.
    pub fn is_lent(&self, finding: &LimitFinding) -> bool {
        self.throttle.is_elastic() && finding.standing == LimitStanding::Over
    }
}
