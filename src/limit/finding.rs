//! [`LimitFinding`]: what one limit says of one request, with the figures that responses show. The rule and the key
//! that it is about are not part of it.

use super::CalendarWindow;
use crate::base::clock::Nanos;

/// Whether a limit admits a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitStanding {
    /// Within the rate.
    Within,
    /// Admitted above the rate, by what a soft limit adds or an elastic one lends.
    Over,
    /// Refused, because it would exceed the limit now.
    Refused,
    /// Refused, because it costs more than the limit can ever admit.
    Unsatisfiable,
}

impl LimitStanding {
    /// The word for the standing in the access log.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitStanding::Within => "within",
            LimitStanding::Over => "over",
            LimitStanding::Refused => "refused",
            LimitStanding::Unsatisfiable => "unsatisfiable",
        }
    }

    /// Whether the limit admits the request.
    pub fn admits(self) -> bool {
        matches!(self, LimitStanding::Within | LimitStanding::Over)
    }
}

/// What one limit says about one request. Once it is complete, the units that the request has taken are counted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitFinding {
    /// Whether the request is admitted, and why not.
    pub standing: LimitStanding,
    /// The index of the window that the other figures are about; 0 for open requests. It is a window that can never
    /// admit the request. Without one it is the window with the longest wait among those that refuse, or else the one
    /// with the least remaining units.
    pub window: u8,
    /// The quota of this window, or of permits, with the plan's multiplier.
    pub quota: u32,
    /// The units that are free below the quota, or below the burst or delay that is admitted at once; or the permits
    /// that are free.
    pub remaining: u32,
    /// The time until this request would be admitted; zero if it is, or if it never can be. It is a guess where only
    /// the end of other requests frees units.
    pub wait: Nanos,
    /// The time until one more unit than `remaining` is free; zero if nothing is used, and for open requests. It is a whole
    /// window where only the settling of a reservation frees the unit.
    pub reset: Nanos,
    /// The time for which a leaky bucket holds back the admitted request; zero for other limits.
    pub delay: Nanos,
    /// The window of the calendar that the other figures are about; `None` if the rate is not by the calendar.
    pub calendar_window: Option<CalendarWindow>,
    /// Whether the store had no room for the key, so that its overflow sketch decided.
    pub sketched: bool,
}

impl LimitFinding {
    /// The finding before the first window was read.
    pub(super) const INITIAL: LimitFinding = LimitFinding {
        standing: LimitStanding::Within,
        window: 0,
        quota: u32::MAX,
        remaining: u32::MAX,
        wait: Nanos::ZERO,
        reset: Nanos::ZERO,
        delay: Nanos::ZERO,
        calendar_window: None,
        sketched: false,
    };
}
