//! What a limit does with requests above its rate: refuse them, admit a few more, or lend spare capacity.

/// What a limit does above its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleMode {
    /// Refuses every request above the rate.
    Hard,
    /// Admits and marks requests up to this many per cent above the rate.
    Soft {
        /// Per cent above the rate, 1 to 1000.
        percent: u16,
    },
    /// Lends spare capacity: admits and marks requests up to `most` where the rate admits `of`.
    Elastic {
        /// The most units that are admitted, with those lent.
        most: u32,
        /// Units of the rate in the same window, at least 1.
        of: u32,
    },
}

impl ThrottleMode {
    /// The most units that a window with this `quota` admits, without those lent.
    pub fn ceiling(self, quota: u32) -> u32 {
        match self {
            ThrottleMode::Hard | ThrottleMode::Elastic { .. } => quota,
            ThrottleMode::Soft { percent } => {
                let above = u64::from(quota) * u64::from(percent) / 100;
                u32::try_from(u64::from(quota) + above).unwrap_or(u32::MAX)
            }
        }
    }

    /// Whether the limit is elastic.
    pub fn lends(self) -> bool {
        matches!(self, ThrottleMode::Elastic { .. })
    }

    /// Units above `quota` that may be lent in a window.
    pub fn lends_at_most(self, quota: u32) -> u32 {
        match self {
            ThrottleMode::Elastic { most, of } => {
                let quota = u64::from(quota);
                // Rounded up: else a short window beside that of `at_most` might never lend anything.
                let most = (quota * u64::from(most)).div_ceil(u64::from(of.max(1)));
                u32::try_from(most.saturating_sub(quota)).unwrap_or(u32::MAX)
            }
            ThrottleMode::Hard | ThrottleMode::Soft { .. } => 0,
        }
    }
}

impl ThrottleMode {
    /// The end of a guarantee's sentence.
    pub(super) fn lent(self) -> String {
        match self {
            ThrottleMode::Hard => String::new(),
            ThrottleMode::Soft { percent } => {
                format!("; up to {percent} % more admitted and marked")
            }
            ThrottleMode::Elastic { most, of } => {
                format!("; what is spare admitted and marked, up to {most} in the place of {of}")
            }
        }
    }
}

/// By how much a limit is larger for a request than written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The plan's multiplier, at least 1.
    pub multiply: u32,
    /// What elastic limits lend now, in thousandths of the rate.
    pub lent: u32,
}

impl Scale {
    /// A plan's multiplier, with nothing lent.
    pub fn plan(multiply: u32) -> Scale {
        Scale { multiply, lent: 0 }
    }
}
