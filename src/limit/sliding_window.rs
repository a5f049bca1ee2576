//! 60 buckets for each window and the one that is leaving, counted in full: never more than the
//! quota in any window; a steady client gets at least 60/61 of it.

use super::buckets::Ring;
use crate::clock::Nanos;

/// Buckets of a window.
pub(crate) const BUCKETS: u32 = 60;

/// The ring of one window.
pub(super) fn ring(window: Nanos) -> Ring {
    Ring {
        length: Nanos(window.0.div_ceil(u64::from(BUCKETS))),
        buckets: BUCKETS,
    }
}
