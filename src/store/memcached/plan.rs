//! Which buckets a limit needs, and what their counts mean for a request. It is the arithmetic of [`crate::limit`] on
//! counts in items of their own. It does no I/O and never changes an item. Times are in microseconds since the Unix epoch.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::spec::StateKind;
use crate::limit::{LimitSpec, LimitStanding};
use crate::store::shared::call::{CallPart, CounterReply, StoreError};

/// The error for limits that need arrival times.
pub(super) const NEEDS_ARRIVAL_TIMES: StoreError = StoreError::Other(Cow::Borrowed(
    "memcached cannot keep arrival times (gcra, leaky-bucket)",
));

/// Buckets of a window, for limits that other stores keep a log for.
const LOG_BUCKETS: u64 = 60;
/// Largest difference of clocks and delays at which no request overlooks another, in microseconds.
const MAX_CLOCK_SKEW: u64 = 50_000;

/// A sequence of buckets of one length. Their numbers count from the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// Length of a bucket, in microseconds.
    pub length: u64,
    /// How much earlier buckets begin than multiples of their length.
    pub phase: u64,
    /// Buckets before the current one that may still count.
    pub past_buckets: u64,
    /// Buckets after the current one that count: a request with a later time may have come earlier.
    pub future_buckets: u64,
}

impl Track {
    /// A track for a window that slides, of which `past_buckets` before the current one may count.
    fn sliding(length: u64, past_buckets: u64) -> Track {
        let length = length.max(1);
        Track {
            length,
            phase: 0,
            past_buckets,
            future_buckets: MAX_CLOCK_SKEW.div_ceil(length).clamp(1, 3),
        }
    }

    /// The number of the bucket at a time.
    pub(super) fn bucket_at(&self, at: u64) -> u64 {
        at.saturating_add(self.phase) / self.length
    }

    /// When a bucket leaves a window that covers `past_buckets` buckets before the current one.
    fn leaving_time(&self, bucket: u64, past_buckets: u64) -> u64 {
        let end = bucket.saturating_add(past_buckets).saturating_add(1);
        end.saturating_mul(self.length).saturating_sub(self.phase)
    }

    /// When a bucket is no longer needed.
    pub(super) fn expiry(&self, bucket: u64) -> u64 {
        self.leaving_time(bucket, self.past_buckets)
    }

    /// The numbers of all buckets that may count.
    pub(super) fn counting_buckets(&self, now: u64) -> std::ops::RangeInclusive<u64> {
        let current = self.bucket_at(now);
        current.saturating_sub(self.past_buckets)..=current.saturating_add(self.future_buckets)
    }

    /// The index of the current bucket among [`Track::counting_buckets`].
    pub(super) fn current_index(&self, now: u64) -> usize {
        (self.bucket_at(now) - self.counting_buckets(now).start()) as usize
    }
}

/// The buckets of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketPlan {
    /// The tracks in which the limit is counted.
    pub tracks: SmallVec<[Track; 2]>,
    /// For each window, the index of its track and the buckets before the current one that it covers.
    windows: SmallVec<[(usize, u64); 2]>,
}

impl BucketPlan {
    /// The plan of a limit; `None` where it needs arrival times.
    pub(super) fn new(spec: &LimitSpec) -> Option<BucketPlan> {
        let mut tracks: SmallVec<[Track; 2]> = SmallVec::new();
        let mut windows = SmallVec::new();
        if spec.kind == StateKind::Rings {
            let rings = spec.rings.iter();
            tracks
                .extend(rings.map(|ring| {
                    Track::sliding(ring.bucket_length, ring.buckets.saturating_sub(1))
                }));
        }
        for span in &spec.windows {
            match spec.kind {
                StateKind::Log { .. } => {
                    let length = span.window.div_ceil(LOG_BUCKETS).max(1);
                    let past_buckets = span.window.div_ceil(length);
                    windows.push((tracks.len(), past_buckets));
                    tracks.push(Track::sliding(length, past_buckets));
                }
                StateKind::Rings => {
                    let index = usize::try_from(span.parameter).ok()?;
                    windows.push((index, span.window.div_ceil(tracks.get(index)?.length)));
                }
                StateKind::Fixed => {
                    windows.push((tracks.len(), 0));
                    tracks.push(Track {
                        length: span.window.max(1),
                        phase: span.parameter,
                        past_buckets: 0,
                        future_buckets: 0,
                    });
                }
                StateKind::Gcra | StateKind::Leaky => return None,
            }
        }
        Some(BucketPlan { tracks, windows })
    }
}

/// Counts of the buckets: for each track those of [`Track::counting_buckets`].
pub(super) type BucketCounts = SmallVec<[Vec<u64>; 2]>;

/// The counts of a part's buckets at one time.
pub(super) struct BucketView<'a> {
    pub part: &'a CallPart,
    pub plan: &'a BucketPlan,
    pub counts: BucketCounts,
    pub now: u64,
}

impl BucketView<'_> {
    /// The number of a window's first bucket, and the counts of its buckets, oldest first.
    fn window_counts(&self, window: usize) -> (u64, &[u64]) {
        let (index, past_buckets) = self.plan.windows[window];
        let track = &self.plan.tracks[index];
        let first = *track.counting_buckets(self.now).start();
        let current = track.bucket_at(self.now);
        let oldest = current.saturating_sub(past_buckets).max(first);
        let counts = self.counts[index].get((oldest - first) as usize..);
        (oldest, counts.unwrap_or_default())
    }

    /// Units that count in a window.
    fn used(&self, window: usize) -> u32 {
        let (_, counts) = self.window_counts(window);
        let sum = counts
            .iter()
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// How long until `units` of those in the window no longer count.
    fn wait(&self, window: usize, units: u32) -> Nanos {
        let (index, past_buckets) = self.plan.windows[window];
        let (oldest, counts) = self.window_counts(window);
        let mut remaining_units = u64::from(units);
        for (bucket, count) in (oldest..).zip(counts) {
            if *count >= remaining_units {
                let leaves_at = self.plan.tracks[index].leaving_time(bucket, past_buckets);
                return Nanos(leaves_at.saturating_sub(self.now).saturating_mul(1_000));
            }
            remaining_units -= count;
        }
        Nanos::ZERO
    }

    /// The limit's reply to the part's cost, and how many units it grants if it admits.
    pub(super) fn evaluate(&self) -> (CounterReply, u32) {
        // A give-back asks for no units.
        let (cost, want) = match self.part.give_back {
            Some(_) => (0, 0),
            None => (self.part.cost, self.part.want),
        };
        let (mut is_over, mut granted) = (false, want.max(cost));
        let mut deciding: Option<CounterReply> = None;
        for (index, span) in self.part.spec.windows.iter().enumerate() {
            let used = self.used(index);
            let mut reply = CounterReply {
                standing: LimitStanding::Within,
                window: index as u8,
                remaining: span.base.saturating_sub(used),
                ..neutral_reply(self.now)
            };
            let excess_over =
                |units: u32| (u64::from(used) + u64::from(cost)).saturating_sub(units.into());
            let excess = excess_over(span.ceiling);
            if cost > span.ceiling {
                reply.standing = LimitStanding::Unsatisfiable;
            } else if excess > 0 {
                reply.standing = LimitStanding::Refused;
                reply.wait = self.wait(index, u32::try_from(excess).unwrap_or(u32::MAX));
            } else {
                is_over |= excess_over(span.base) > 0;
                granted = granted.min(span.ceiling - used);
            }
            let outranks = |before: &CounterReply| rank(&reply) >= rank(before);
            if deciding.as_ref().is_none_or(outranks) {
                deciding = Some(reply);
            }
        }
        let mut reply = deciding.unwrap_or_else(|| neutral_reply(self.now));
        if reply.standing == LimitStanding::Within && is_over {
            reply.standing = LimitStanding::Over;
        }
        (reply, granted)
    }

    /// Adds the units that were taken to the counts, and completes the reply by them.
    pub(super) fn complete_reply(&mut self, reply: &mut CounterReply, granted_units: u32) {
        for (track, counts) in self.plan.tracks.iter().zip(&mut self.counts) {
            if let Some(count) = counts.get_mut(track.current_index(self.now)) {
                *count = count.saturating_add(u64::from(granted_units));
            }
        }
        reply.granted_units = granted_units;
        reply.remaining = reply.remaining.saturating_sub(granted_units);
        let windows = 0..self.part.spec.windows.len();
        reply.used = windows.map(|window| self.used(window)).collect();
        let window = usize::from(reply.window);
        let Some(span) = self.part.spec.windows.get(window) else {
            return;
        };
        let used = self.used(window);
        if used > 0 {
            let units = used.saturating_add(1) - span.base.min(used);
            reply.reset = self.wait(window, units);
        }
    }
}

/// A reply that admits without any count.
pub(super) fn neutral_reply(now: u64) -> CounterReply {
    CounterReply {
        standing: LimitStanding::Within,
        window: 0,
        remaining: u32::MAX,
        wait: Nanos::ZERO,
        reset: Nanos::ZERO,
        delay: Nanos::ZERO,
        granted_units: 0,
        total: 0,
        stamped: now,
        used: SmallVec::new(),
    }
}

/// The rank by which one window of a limit decides, as in [`crate::limit::KeyState`].
fn rank(reply: &CounterReply) -> (u8, u64) {
    match reply.standing {
        LimitStanding::Unsatisfiable => (3, 0),
        LimitStanding::Refused => (2, reply.wait.0),
        LimitStanding::Over => (1, 0),
        LimitStanding::Within => (0, u64::from(u32::MAX - reply.remaining)),
    }
}
