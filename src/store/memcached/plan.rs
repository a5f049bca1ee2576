//! Which buckets a limit needs, and what their counts mean for a request: the arithmetic of [`crate::limit`] on counts in
//! items of their own.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::spec::StateKind;
use crate::limit::{LimitSpec, LimitStanding};
use crate::store::shared::call::{CallPart, CounterReply, StoreError};

/// The error for limits that need arrival times.
pub(super) const IMPOSSIBLE: StoreError = StoreError::Other(Cow::Borrowed(
    "memcached cannot keep arrival times (gcra, leaky-bucket)",
));

/// Buckets of a window, for limits that other stores keep a log for.
const LOG_BUCKETS: u64 = 60;
/// Largest difference of clocks and delays at which no request overlooks another, in microseconds.
const APART: u64 = 50_000;

/// Buckets of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// Length of a bucket, in microseconds.
    pub length: u64,
    /// How much earlier buckets begin than multiples of their length.
    pub phase: u64,
    /// Buckets before the current one that may still count.
    pub behind: u64,
    /// Buckets after the current one that count: a request with a later time may have come earlier.
    pub ahead: u64,
}

impl Track {
    fn ring(length: u64, behind: u64) -> Track {
        let length = length.max(1);
        Track {
            length,
            phase: 0,
            behind,
            ahead: APART.div_ceil(length).clamp(1, 3),
        }
    }

    /// The number of the bucket at a time.
    pub(super) fn number(&self, at: u64) -> u64 {
        at.saturating_add(self.phase) / self.length
    }

    /// When a bucket has left all windows of `span` buckets.
    fn leaves(&self, number: u64, span: u64) -> u64 {
        let end = number.saturating_add(span).saturating_add(1);
        end.saturating_mul(self.length).saturating_sub(self.phase)
    }

    /// When a bucket is no longer needed.
    pub(super) fn ends(&self, number: u64) -> u64 {
        self.leaves(number, self.behind)
    }

    /// The numbers of all buckets that are read.
    pub(super) fn numbers(&self, now: u64) -> std::ops::RangeInclusive<u64> {
        let number = self.number(now);
        number.saturating_sub(self.behind)..=number.saturating_add(self.ahead)
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketPlan {
    /// The tracks in which the limit is counted.
    pub tracks: SmallVec<[Track; 2]>,
    /// For each window, its track and the buckets before the current one that it covers.
    spans: SmallVec<[(usize, u64); 2]>,
}

impl BucketPlan {
    /// The plan of a limit; `None` where it needs arrival times.
    pub(super) fn new(spec: &LimitSpec) -> Option<BucketPlan> {
        let mut tracks: SmallVec<[Track; 2]> = SmallVec::new();
        let mut spans = SmallVec::new();
        if spec.kind == StateKind::Rings {
            let rings = spec.rings.iter();
            tracks.extend(
                rings.map(|ring| Track::ring(ring.bucket_length, ring.buckets.saturating_sub(1))),
            );
        }
        for span in &spec.windows {
            match spec.kind {
                StateKind::Log { .. } => {
                    let length = span.window.div_ceil(LOG_BUCKETS).max(1);
                    let covers = span.window.div_ceil(length);
                    spans.push((tracks.len(), covers));
                    tracks.push(Track::ring(length, covers));
                }
                StateKind::Rings => {
                    let place = usize::try_from(span.parameter).ok()?;
                    spans.push((place, span.window.div_ceil(tracks.get(place)?.length)));
                }
                StateKind::Fixed => {
                    spans.push((tracks.len(), 0));
                    tracks.push(Track {
                        length: span.window.max(1),
                        phase: span.parameter,
                        behind: 0,
                        ahead: 0,
                    });
                }
                StateKind::Gcra | StateKind::Leaky => return None,
            }
        }
        Some(BucketPlan { tracks, spans })
    }
}

/// Counts of the buckets: for each track those of [`Track::numbers`].
pub(super) type BucketCounts = SmallVec<[Vec<u64>; 2]>;

/// A part's buckets at one time.
pub(super) struct BucketView<'a> {
    /// The part.
    pub part: &'a CallPart,
    /// Its buckets.
    pub plan: &'a BucketPlan,
    /// The buckets' counts.
    pub counts: BucketCounts,
    /// The time.
    pub now: u64,
}

impl BucketView<'_> {
    /// The counts of a window, oldest first, after the number of the first bucket.
    fn covered(&self, window: usize) -> (u64, &[u64]) {
        let (place, span) = self.plan.spans[window];
        let track = &self.plan.tracks[place];
        let first = *track.numbers(self.now).start();
        let oldest = track.number(self.now).saturating_sub(span).max(first);
        let counts = self.counts[place].get((oldest - first) as usize..);
        (oldest, counts.unwrap_or_default())
    }

    fn used(&self, window: usize) -> u32 {
        let (_, counts) = self.covered(window);
        let sum = counts
            .iter()
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// How long until `units` of those in the window no longer count.
    fn wait(&self, window: usize, units: u32) -> Nanos {
        let (place, span) = self.plan.spans[window];
        let (oldest, counts) = self.covered(window);
        let mut left = u64::from(units);
        for (number, count) in (oldest..).zip(counts) {
            if *count >= left {
                let leaves = self.plan.tracks[place].leaves(number, span);
                return Nanos(leaves.saturating_sub(self.now).saturating_mul(1_000));
            }
            left -= count;
        }
        Nanos::ZERO
    }

    /// What the limit says about the part's cost, and how many units it grants if it admits.
    pub(super) fn stand(&self) -> (CounterReply, u32) {
        // A give-back asks for no units.
        let (cost, want) = match self.part.give_back {
            Some(_) => (0, 0),
            None => (self.part.cost, self.part.want),
        };
        let (mut over, mut granted) = (false, want.max(cost));
        let mut speaking: Option<CounterReply> = None;
        for (index, span) in self.part.spec.windows.iter().enumerate() {
            let used = self.used(index);
            let mut said = CounterReply {
                standing: LimitStanding::Within,
                window: index as u8,
                remaining: span.base.saturating_sub(used),
                ..nothing(self.now)
            };
            let above = |units: u32| (u64::from(used) + u64::from(cost)).checked_sub(units.into());
            if cost > span.ceiling {
                said.standing = LimitStanding::Unsatisfiable;
            } else if let Some(excess) = above(span.ceiling).filter(|excess| *excess > 0) {
                said.standing = LimitStanding::Refused;
                said.wait = self.wait(index, u32::try_from(excess).unwrap_or(u32::MAX));
            } else {
                over |= above(span.base).is_some_and(|excess| excess > 0);
                granted = granted.min(span.ceiling - used);
            }
            if speaking
                .as_ref()
                .is_none_or(|before| rank(&said) >= rank(before))
            {
                speaking = Some(said);
            }
        }
        let mut said = speaking.unwrap_or_else(|| nothing(self.now));
        if said.standing == LimitStanding::Within && over {
            said.standing = LimitStanding::Over;
        }
        (said, granted)
    }

    /// Adds the units that were taken, and completes the reply.
    pub(super) fn finish(&mut self, answer: &mut CounterReply, took: u32) {
        for (track, counts) in self.plan.tracks.iter().zip(&mut self.counts) {
            let current = track.number(self.now) - track.numbers(self.now).start();
            if let Some(count) = counts.get_mut(current as usize) {
                *count = count.saturating_add(u64::from(took));
            }
        }
        answer.took = took;
        answer.remaining = answer.remaining.saturating_sub(took);
        let windows = 0..self.part.spec.windows.len();
        answer.used = windows.map(|window| self.used(window)).collect();
        let window = usize::from(answer.window);
        let Some(span) = self.part.spec.windows.get(window) else {
            return;
        };
        let used = self.used(window);
        if used > 0 {
            let units = used.saturating_add(1) - span.base.min(used);
            answer.reset = self.wait(window, units);
        }
    }
}

/// A reply that admits and says no more.
pub(super) fn nothing(now: u64) -> CounterReply {
    CounterReply {
        standing: LimitStanding::Within,
        window: 0,
        remaining: u32::MAX,
        wait: Nanos::ZERO,
        reset: Nanos::ZERO,
        delay: Nanos::ZERO,
        took: 0,
        total: 0,
        stamped: now,
        used: SmallVec::new(),
    }
}

/// The rank by which one window of a limit decides, as in [`crate::limit::KeyState`].
fn rank(answer: &CounterReply) -> (u8, u64) {
    match answer.standing {
        LimitStanding::Unsatisfiable => (3, 0),
        LimitStanding::Refused => (2, answer.wait.0),
        LimitStanding::Over => (1, 0),
        LimitStanding::Within => (0, u64::from(u32::MAX - answer.remaining)),
    }
}
