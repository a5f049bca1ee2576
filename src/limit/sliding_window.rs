//! 60 buckets for each window and the one that is leaving, counted in full: never more than the
//! quota in any window; a steady client gets at least 60/61 of it.

use super::Rate;
use super::buckets::Ring;

/// Buckets of a window.
pub(crate) const BUCKETS: u32 = 60;

/// The ring of one window.
#[inline]
pub(super) fn ring(rate: &Rate) -> Ring {
    Ring {
        length: rate.bucket(),
        buckets: BUCKETS,
    }
}
