//! Buckets of a second, a minute, an hour and a day, shared by all windows of a limit: each window is
//! summed over the finest level that covers it with at most 60 buckets, and the bucket that is leaving
//! is counted in full. Never more than the quota in any window; a unit holds for up to one bucket
//! longer than the window.

use smallvec::SmallVec;

use super::Limit;
use super::buckets::Ring;
use crate::clock::Nanos;

const LEVELS: [Nanos; 4] = [
    Nanos::from_secs(1),
    Nanos::from_secs(60),
    Nanos::from_secs(3_600),
    Nanos::from_secs(86_400),
];

/// Most buckets of a level that one window is summed over.
const MOST: u64 = 60;

/// The level of a window: its place among the levels.
fn level(window: Nanos) -> usize {
    let covers = |length: &Nanos| window.0.div_ceil(length.0) <= MOST;
    LEVELS.iter().position(covers).unwrap_or(LEVELS.len() - 1)
}

/// The rings that a limit needs, finest first, each with the offset of its words.
pub(super) fn rings(limit: &Limit) -> SmallVec<[(usize, Ring); 4]> {
    let mut rings = SmallVec::new();
    let mut offset = 0;
    for (place, length) in LEVELS.into_iter().enumerate() {
        let here = limit
            .windows
            .iter()
            .map(|rate| rate.window())
            .filter(|w| level(*w) == place);
        if let Some(longest) = here.max() {
            let buckets = longest.0.div_ceil(length.0) as u32;
            let ring = Ring { length, buckets };
            rings.push((offset, ring));
            offset += ring.words();
        }
    }
    rings
}

/// The ring that answers a window.
pub(super) fn ring_of(limit: &Limit, window: Nanos) -> (usize, Ring) {
    let length = LEVELS[level(window)];
    let found = rings(limit)
        .into_iter()
        .find(|(_, ring)| ring.length == length);
    found.unwrap_or((0, Ring { length, buckets: 1 }))
}

/// Length of the buckets that a window is summed over.
pub(super) fn bucket(window: Nanos) -> Nanos {
    LEVELS[level(window)]
}
