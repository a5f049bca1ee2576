//! The steps of a query in time, and their bounds.

use super::error::Error;

/// The times at which a range query is evaluated, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first time.
    pub start: i64,
    /// No time is after this one.
    pub end: i64,
    /// Milliseconds from each time to the next; at least 1.
    pub step: i64,
}

impl Times {
    /// The greatest distance from 1970. Sums of times, ranges and offsets cannot overflow within it.
    const MAX_MS: i64 = 1 << 53;

    /// Verifies the bounds.
    ///
    /// # Errors
    ///
    /// Fails if a time is too far from 1970 or the step is not positive.
    pub(super) fn validate(self) -> Result<(), Error> {
        let is_near = |time: i64| (-Times::MAX_MS..=Times::MAX_MS).contains(&time);
        let why = "times must be within 285,000 years of 1970";
        let is_valid = is_near(self.start) && is_near(self.end) && self.step > 0;
        is_valid
            .then_some(())
            .ok_or_else(|| Error::Invalid(why.into()))
    }
}
