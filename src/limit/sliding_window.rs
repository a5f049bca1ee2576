//! 60 buckets for each window and the one that is leaving, counted in full: never more than the
//! quota in any window; a steady client gets at least 60/61 of it.

use super::buckets::Ring;
use super::interval::Interval;

/// Buckets of a window.
pub(crate) const BUCKETS: u32 = 60;

/// The ring of a window with buckets of this length.
#[inline(always)]
pub(super) fn ring(length: Interval) -> Ring {
    Ring {
        length,
        buckets: BUCKETS,
    }
}
