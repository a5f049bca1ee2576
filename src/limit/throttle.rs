//! What a limit does with requests above its rate: refuse them, admit a few more, or lend spare capacity. The pace of
//! lending is in `lending.rs`.

/// What a limit does above its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleMode {
    /// Refuses every request above the rate.
    Hard,
    /// Admits and marks requests up to `percent` above the rate.
    Soft {
        /// Per cent above the rate, 1 to 1000.
        percent: u16,
    },
    /// Lends spare capacity: admits and marks requests up to `at_most` where the rate admits `base`.
    Elastic {
        /// The largest number of units that are admitted in a window, with lent ones.
        at_most: u32,
        /// The units of the rate in the same window, at least 1.
        base: u32,
    },
}

impl ThrottleMode {
    /// The largest number of units that a window with this `quota` admits, without lent ones; at most `u32::MAX`.
    pub fn ceiling(self, quota: u32) -> u32 {
        match self {
            ThrottleMode::Hard | ThrottleMode::Elastic { .. } => quota,
            ThrottleMode::Soft { percent } => {
                let added = u64::from(quota) * u64::from(percent) / 100;
                u32::try_from(u64::from(quota) + added).unwrap_or(u32::MAX)
            }
        }
    }

    /// Whether the limit lends.
    pub fn is_elastic(self) -> bool {
        matches!(self, ThrottleMode::Elastic { .. })
    }

    /// The largest number of units above `quota` that may be lent in a window; 0 unless the limit is elastic.
    pub fn max_lent(self, quota: u32) -> u32 {
        match self {
            ThrottleMode::Elastic { at_most, base } => {
                let quota = u64::from(quota);
                // Rounded up: else a short window beside that of `at_most` might never lend anything.
                let with_lent = (quota * u64::from(at_most)).div_ceil(u64::from(base.max(1)));
                u32::try_from(with_lent.saturating_sub(quota)).unwrap_or(u32::MAX)
            }
            ThrottleMode::Hard | ThrottleMode::Soft { .. } => 0,
        }
    }

    /// The end of a guarantee's sentence; empty for hard limits.
    pub(super) fn guarantee_suffix(self) -> String {
        match self {
            ThrottleMode::Hard => String::new(),
            ThrottleMode::Soft { percent } => {
                format!("; up to {percent} % more admitted and marked")
            }
            ThrottleMode::Elastic { at_most, base } => {
                format!(
                    "; what is spare admitted and marked, up to {at_most} in the place of {base}"
                )
            }
        }
    }
}

/// The factors by which a limit is larger for a request than written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The plan's multiplier, at least 1.
    pub plan_factor: u32,
    /// What an elastic limit lends now, in thousandths of the rate; 0 for other limits.
    pub lent: u32,
}

impl Scale {
    /// The scale of a plan with this multiplier, with nothing lent.
    pub fn plan(plan_factor: u32) -> Scale {
        Scale {
            plan_factor,
            lent: 0,
        }
    }
}
