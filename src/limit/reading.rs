//! What one limit says about one request.

use crate::base::clock::Nanos;

/// Whether a limit admits a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitStanding {
    /// Within the rate.
    Within,
    /// Admitted above the rate, by what a soft limit adds or an elastic one lends.
    Over,
    /// Refused: it would exceed the limit now.
    Refused,
    /// Refused: it costs more than the limit can ever admit.
    Unsatisfiable,
}

impl LimitStanding {
    /// The word in the access log.
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

/// What one limit says about one request. If units were taken, they are counted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReading {
    /// Whether the request is admitted, and why not.
    pub standing: LimitStanding,
    /// Index of the window that the other figures are about: of the windows that refuse, the one with the longest wait;
    /// else the one with the least remaining units.
    pub window: u8,
    /// Units that this window admits, with the plan's multiplier.
    pub quota: u32,
    /// Units left below the quota, or permits that are free.
    pub remaining: u32,
    /// Time until this request would be admitted; zero if it is. A guess where only the end of other requests frees
    /// units.
    pub wait: Nanos,
    /// Time until one more unit than `remaining` is free; zero if nothing is used, or if the time is not known.
    pub reset: Nanos,
    /// How long an admitted request must be held back, by a leaky bucket.
    pub delay: Nanos,
    /// The store had no room for the key, so its overflow sketch decided.
    pub sketched: bool,
}
