//! The times of the steps of a query, and their bounds.

use super::error::Error;

/// The times at which a range query is evaluated, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// The first time at which the query is evaluated.
    pub start_ms: i64,
    /// No time is after this one. If it is before `start_ms`, there are no times.
    pub end_ms: i64,
    /// Milliseconds from each time to the next; at least 1.
    pub step_ms: i64,
}

impl StepTimes {
    /// The greatest distance of a time from 1970, some 285,000 years. Sums of such times, of ranges and of offsets
    /// cannot overflow.
    const MAX_DISTANCE_MS: i64 = 1 << 53;

    /// Checks the bounds of the times.
    ///
    /// # Errors
    ///
    /// Fails if a time is too far from 1970 or the step is not positive.
    pub(super) fn validate(self) -> Result<(), Error> {
        let is_near = |time_ms: i64| {
            (-StepTimes::MAX_DISTANCE_MS..=StepTimes::MAX_DISTANCE_MS).contains(&time_ms)
        };
        let why = if !is_near(self.start_ms) || !is_near(self.end_ms) {
            "times must be within 285,000 years of 1970"
        } else if self.step_ms <= 0 {
            "the step must be longer than zero"
        } else {
            return Ok(());
        };
        Err(Error::Invalid(why.into()))
    }
}
