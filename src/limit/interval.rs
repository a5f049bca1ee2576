//! Time spans that others are divided by often.

use crate::base::clock::Nanos;

/// A span in nanoseconds, between two units of a steady flow or of one bucket. It divides other spans by
/// multiplication: a division would be a large part of the cost of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interval {
    nanos: u64,
    /// `floor((2^64 - 1) / nanos)`: a product with it is short of the quotient by one at most.
    inverse: u64,
}

impl Interval {
    pub(crate) const fn new(nanos: u64) -> Interval {
        let nanos = if nanos == 0 { 1 } else { nanos };
        Interval {
            nanos,
            inverse: u64::MAX / nanos,
        }
    }

    pub(crate) fn nanos(self) -> u64 {
        self.nanos
    }

    /// The quotient, at most one too small, and the remainder for it.
    #[inline]
    fn divide(self, span: Nanos) -> (u64, u64) {
        let least = ((u128::from(span.0) * u128::from(self.inverse)) >> 64) as u64;
        (least, span.0 - least * self.nanos)
    }

    /// How many intervals `span` touches: the quotient, rounded up.
    #[inline]
    pub(crate) fn count(self, span: Nanos) -> u64 {
        let (least, rest) = self.divide(span);
        least + u64::from(rest > 0) + u64::from(rest > self.nanos)
    }

    /// How many intervals fit into `span`: the quotient, rounded down.
    #[inline]
    pub(crate) fn whole(self, span: Nanos) -> u64 {
        let (least, rest) = self.divide(span);
        least + u64::from(rest >= self.nanos)
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
                    let count = Interval::new(nanos).count(Nanos(span));
                    assert_eq!(count, span.div_ceil(nanos), "{span} / {nanos}");
                    let whole = Interval::new(nanos).whole(Nanos(span));
                    assert_eq!(whole, span / nanos, "{span} / {nanos}");
                }
            }
        }
    }
}
