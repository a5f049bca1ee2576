//! The moments of a query.

use super::error::Error;

/// The moments of a range query, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first moment.
    pub start: i64,
    /// The last moment, if the steps meet it.
    pub end: i64,
    /// From each moment to the next; at least 1.
    pub step: i64,
}

impl Times {
    /// The bound of moments. Spans and offsets are added to them, and the sums must not overflow.
    const MOST: i64 = 1 << 53;

    pub(super) fn check(self) -> Result<(), Error> {
        let near = |at: i64| (-Times::MOST..=Times::MOST).contains(&at);
        let why = "times must be within 285,000 years of 1970";
        let fine = near(self.start) && near(self.end) && self.step > 0;
        fine.then_some(()).ok_or_else(|| Error::Invalid(why.into()))
    }
}
