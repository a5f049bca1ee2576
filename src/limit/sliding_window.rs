//! Sliding windows: 60 buckets for each window, and the one that is leaving it, counted in full. So no window has more
//! than the quota, and a steady client gets at least 60/61 of it. The arithmetic is in `bucket_ring.rs`.

use super::bucket_ring::BucketRing;
use super::interval::Interval;

/// The number of buckets of a window, without the bucket that is leaving it.
pub(crate) const BUCKETS: u32 = 60;

/// The ring of a window with buckets of this length.
#[inline(always)]
pub(super) fn ring(bucket_length: Interval) -> BucketRing {
    BucketRing {
        bucket_length,
        bucket_count: BUCKETS,
    }
}
