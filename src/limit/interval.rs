//! [`Interval`]: a duration by which other durations are divided on every request. The division is a multiplication by the
//! inverse.

use crate::base::clock::Nanos;

/// A duration in nanoseconds: the time between two units of a steady flow, or the length of a bucket. A true division by it
/// would be a large part of the cost of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interval {
    nanos: u64,
    /// `floor((2^64 - 1) / nanos)`. `(span * inverse) >> 64` is `span / nanos`, or one less.
    inverse: u64,
}

impl Interval {
    /// Makes an interval; 0 becomes 1.
    pub(crate) const fn new(nanos: u64) -> Interval {
        let nanos = if nanos == 0 { 1 } else { nanos };
        Interval {
            nanos,
            inverse: u64::MAX / nanos,
        }
    }

    /// The duration in nanoseconds, at least 1.
    pub(crate) fn nanos(self) -> u64 {
        self.nanos
    }

    /// A quotient that is at most one too small, and its remainder, which is then too large by `nanos`.
    #[inline]
    fn estimate_quotient(self, span: Nanos) -> (u64, u64) {
        let quotient = ((u128::from(span.0) * u128::from(self.inverse)) >> 64) as u64;
        (quotient, span.0 - quotient * self.nanos)
    }

    /// `span` divided by the interval, rounded up. Any remainder adds one, and one above `nanos` shows that the estimate
    /// was too small.
    #[inline]
    pub(crate) fn div_ceil(self, span: Nanos) -> u64 {
        let (quotient, remainder) = self.estimate_quotient(span);
        quotient + u64::from(remainder > 0) + u64::from(remainder > self.nanos)
    }

    /// `span` divided by the interval, rounded down.
    #[inline]
    pub(crate) fn div_floor(self, span: Nanos) -> u64 {
        let (quotient, remainder) = self.estimate_quotient(span);
        quotient + u64::from(remainder >= self.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;

    #[test]
    fn intervals_count_as_a_division_would() {
        let edges = [0, 1, 2, 3, 7, 599_999_999, 600_000_000, 1 << 32, 1 << 62];
        let spans = edges.map(|n| [n, u64::MAX - n]).into_iter().flatten();
        for span in spans.chain((0..10_000).map(|n| n * 0x0123_4567_89ab)) {
            for nanos in edges.into_iter().skip(1).chain([Rate::MAX_WINDOW.0]) {
                for span in [span, span / nanos * nanos] {
                    let count = Interval::new(nanos).div_ceil(Nanos(span));
                    assert_eq!(count, span.div_ceil(nanos), "{span} / {nanos}");
                    let whole = Interval::new(nanos).div_floor(Nanos(span));
                    assert_eq!(whole, span / nanos, "{span} / {nanos}");
                }
            }
        }
    }
}
