//! What one limit says about one request.

use crate::base::clock::Nanos;

/// How one limit stands towards one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Within the rate.
    Within,
    /// Above the rate, inside what a soft limit adds or an elastic one lends.
    Over,
    /// Would exceed the limit now.
    Refused,
    /// Costs more than the limit can ever admit.
    Unsatisfiable,
}

impl Standing {
    /// As the log writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Standing::Within => "within",
            Standing::Over => "over",
            Standing::Refused => "refused",
            Standing::Unsatisfiable => "unsatisfiable",
        }
    }

    /// Whether the limit lets the request pass.
    pub fn admits(self) -> bool {
        matches!(self, Standing::Within | Standing::Over)
    }
}

/// What one limit said about one request, after taking if it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Pass or not, and why not.
    pub standing: Standing,
    /// Index of the window that speaks: of those that refuse the one with the longest wait,
    /// else the one with the least remaining.
    pub window: u8,
    /// Units that window admits, with the plan's multiplier.
    pub quota: u32,
    /// Units left in that window below the quota, or permits that are free.
    pub remaining: u32,
    /// Until this request would pass, a guess where only the end of others frees something; zero when
    /// it passes.
    pub wait: Nanos,
    /// Until one more unit than `remaining` is free; zero when nothing is used, or nobody knows.
    pub reset: Nanos,
    /// How long an admitted request must be held back (leaky bucket).
    pub delay: Nanos,
    /// The key has no cell of its own and was decided by the overflow sketch.
    pub sketched: bool,
}
