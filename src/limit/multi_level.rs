//! Buckets of a second, a minute, an hour and a day: four levels, of which a limit keeps those that its windows need. Each
//! window is summed over the finest level that covers it with at most 60 buckets; one of more than 60 days is summed over
//! days. The bucket that is leaving counts in full. So no window has more than the quota, and a unit counts for up to one
//! bucket longer than the window.

use super::RateLimit;
use super::bucket_ring::BucketRing;
use super::interval::Interval;
use crate::base::clock::Nanos;

/// The lengths of the buckets of each level.
const LEVELS: [Interval; 4] = [seconds(1), seconds(60), seconds(3_600), seconds(86_400)];

/// The largest number of buckets that a window is summed over, on all levels but the last.
const MAX_BUCKETS: u64 = 60;

const fn seconds(count: u64) -> Interval {
    Interval::new(Nanos::from_secs(count).0)
}

/// The index of the level that a window is summed over.
fn level_index(window: Nanos) -> usize {
    let covers = |length: &Interval| length.div_ceil(window) <= MAX_BUCKETS;
    LEVELS.iter().position(covers).unwrap_or(LEVELS.len() - 1)
}

/// The rings of a limit, finest first, each with the offset of its words.
pub(super) fn rings(limit: &RateLimit) -> impl Iterator<Item = (usize, BucketRing)> {
    // Windows are sorted by length, so those of a level are adjacent and its longest comes last.
    let windows = limit.windows.iter().map(|rate| rate.window());
    let next_windows = windows.clone().skip(1).map(Some).chain([None]);
    let longest_of_levels = windows
        .zip(next_windows)
        .filter(|(window, next)| next.is_none_or(|next| level_index(next) != level_index(*window)));
    longest_of_levels.scan(0, |next_offset, (window, _)| {
        let ring = ring(window);
        let offset = *next_offset;
        *next_offset += ring.word_count();
        Some((offset, ring))
    })
}

/// The ring for windows up to the length `longest`.
fn ring(longest: Nanos) -> BucketRing {
    let bucket_length = LEVELS[level_index(longest)];
    BucketRing {
        bucket_length,
        bucket_count: bucket_length.div_ceil(longest) as u32,
    }
}

/// The ring that a window is summed over, with the offset of its words and the window's length in buckets.
pub(super) fn ring_for(limit: &RateLimit, window: Nanos) -> (usize, BucketRing, u32) {
    let own_ring = ring(window);
    let shared_ring = rings(limit).find(|(_, ring)| ring.bucket_length == own_ring.bucket_length);
    let (offset, ring) = shared_ring.unwrap_or((0, own_ring));
    (offset, ring, own_ring.bucket_count)
}

/// The length of the buckets that a window is summed over. A unit may count beyond the window for this time.
pub(super) fn bucket_length(window: Nanos) -> Nanos {
    Nanos(LEVELS[level_index(window)].nanos())
}
