//! [`BucketPlan`]: which buckets a limit needs. [`BucketView`]: what the counts of these buckets mean for a request. A
//! bucket is a stretch of time, and its count is an item of memcached.
//!
//! This is the arithmetic of [`crate::limit`] on such counts. It does no I/O and never changes an item. Times are in
//! microseconds since the Unix epoch.

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

/// The number of buckets of a window, for limits of which other stores keep a log of single units. The current bucket
/// counts besides these, so a window admits at least 60/61 of its quota.
const BUCKETS_PER_LOG_WINDOW: u64 = 60;
/// The largest difference of clocks and delays at which no request overlooks another, in microseconds.
const MAX_CLOCK_SKEW_MICROS: u64 = 50_000;
/// The most buckets after the current one that are read. Only buckets shorter than 17 ms would need more for
/// [`MAX_CLOCK_SKEW_MICROS`]: those of windows shorter than a second.
const MAX_FUTURE_BUCKETS: u64 = 3;

/// A sequence of buckets of one length. Their numbers count from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// The length of a bucket, in microseconds.
    pub bucket_micros: u64,
    /// How much earlier buckets begin than multiples of their length, in microseconds.
    pub phase_micros: u64,
    /// The number of buckets before the current one that may still count.
    pub past_buckets: u64,
    /// The number of buckets after the current one that count: a request with a later time may have come earlier.
    pub future_buckets: u64,
    /// When three windows of a calendar begin and the last of them ends. Then each of them is one bucket, whose number is
    /// the second with which it begins. `None` for buckets of one length.
    pub calendar_bounds: Option<[u64; 4]>,
}

/// How long the bucket of a calendar's window is kept behind its end, for a gateway whose clock is behind.
const CALENDAR_GRACE_MICROS: u64 = 86_400_000_000;

impl Track {
    /// A track for a window that slides, of which `past_buckets` before the current one may count.
    fn sliding(bucket_micros: u64, past_buckets: u64) -> Track {
        let bucket_micros = bucket_micros.max(1);
        Track {
            bucket_micros,
            phase_micros: 0,
            past_buckets,
            future_buckets: MAX_CLOCK_SKEW_MICROS
                .div_ceil(bucket_micros)
                .clamp(1, MAX_FUTURE_BUCKETS),
            calendar_bounds: None,
        }
    }

    /// The number of the bucket at this time.
    pub(super) fn bucket_at(&self, at_micros: u64) -> u64 {
        if let Some(bounds) = self.calendar_bounds {
            let windows = bounds.windows(2);
            let is_in_window = |window: &&[u64]| window[0] <= at_micros && at_micros < window[1];
            // A time outside is that of a late give-back, whose bucket is gone.
            let start = windows
                .into_iter()
                .find(is_in_window)
                .map(|window| window[0]);
            return start.unwrap_or(at_micros) / 1_000_000;
        }
        at_micros.saturating_add(self.phase_micros) / self.bucket_micros
    }

    /// When a bucket leaves a window that covers `past_buckets` buckets before the current one, since the Unix epoch.
    fn leaves_at_micros(&self, bucket_number: u64, past_buckets: u64) -> u64 {
        if let Some(bounds) = self.calendar_bounds {
            let start_micros = bucket_number.saturating_mul(1_000_000);
            let end = bounds.into_iter().find(|bound| *bound > start_micros);
            return end.unwrap_or(start_micros);
        }
        let end = bucket_number.saturating_add(past_buckets).saturating_add(1);
        end.saturating_mul(self.bucket_micros)
            .saturating_sub(self.phase_micros)
    }

    /// When a bucket is no longer needed, in microseconds since the Unix epoch.
    pub(super) fn expiry(&self, bucket_number: u64) -> u64 {
        let grace_micros = self.calendar_bounds.map_or(0, |_| CALENDAR_GRACE_MICROS);
        let leaves_at = self.leaves_at_micros(bucket_number, self.past_buckets);
        leaves_at.saturating_add(grace_micros)
    }

    /// The numbers of all buckets that may count.
    pub(super) fn counting_buckets(&self, now_micros: u64) -> std::ops::RangeInclusive<u64> {
        let current = self.bucket_at(now_micros);
        current.saturating_sub(self.past_buckets)..=current.saturating_add(self.future_buckets)
    }

    /// The index of the current bucket among [`Track::counting_buckets`].
    pub(super) fn current_index(&self, now_micros: u64) -> usize {
        (self.bucket_at(now_micros) - self.counting_buckets(now_micros).start()) as usize
    }
}

/// The buckets of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketPlan {
    /// The tracks in which the limit is counted.
    pub tracks: SmallVec<[Track; 2]>,
    /// The buckets that each window covers.
    windows: SmallVec<[WindowBuckets; 2]>,
}

/// The buckets that one window covers: the current bucket of a track, and some before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WindowBuckets {
    /// The index of the track in [`BucketPlan::tracks`].
    track_index: usize,
    /// The number of buckets before the current one.
    past_buckets: u64,
}

impl BucketPlan {
    /// The plan of a limit; `None` if the limit needs arrival times, or a window names a ring that it lacks.
    pub(super) fn new(spec: &LimitSpec) -> Option<BucketPlan> {
        let mut tracks: SmallVec<[Track; 2]> = SmallVec::new();
        let mut windows = SmallVec::new();
        if spec.kind == StateKind::Rings {
            let rings = spec.rings.iter();
            tracks.extend(rings.map(|ring| {
                Track::sliding(ring.bucket_micros, ring.bucket_count.saturating_sub(1))
            }));
        }
        for window in &spec.windows {
            match spec.kind {
                StateKind::Log { .. } => {
                    let bucket_micros =
                        window.window_micros.div_ceil(BUCKETS_PER_LOG_WINDOW).max(1);
                    let past_buckets = window.window_micros.div_ceil(bucket_micros);
                    windows.push(WindowBuckets {
                        track_index: tracks.len(),
                        past_buckets,
                    });
                    tracks.push(Track::sliding(bucket_micros, past_buckets));
                }
                StateKind::Rings => {
                    let track_index = usize::try_from(window.ring_phase_or_interval).ok()?;
                    let bucket_micros = tracks.get(track_index)?.bucket_micros;
                    windows.push(WindowBuckets {
                        track_index,
                        past_buckets: window.window_micros.div_ceil(bucket_micros),
                    });
                }
                StateKind::Fixed | StateKind::Calendar => {
                    windows.push(WindowBuckets {
                        track_index: tracks.len(),
                        past_buckets: 0,
                    });
                    tracks.push(Track {
                        bucket_micros: window.window_micros.max(1),
                        phase_micros: window.ring_phase_or_interval,
                        past_buckets: 0,
                        future_buckets: 0,
                        calendar_bounds: (spec.kind == StateKind::Calendar)
                            .then_some(window.bounds_micros),
                    });
                }
                StateKind::Gcra | StateKind::Leaky => return None,
            }
        }
        Some(BucketPlan { tracks, windows })
    }
}

/// The counts of a part's buckets: for each track, one for each of [`Track::counting_buckets`].
pub(super) type BucketCounts = SmallVec<[Vec<u64>; 2]>;

/// The counts of a part's buckets at one time.
pub(super) struct BucketView<'a> {
    /// The part whose counter has these buckets.
    pub part: &'a CallPart,
    /// The plan of the part's limit.
    pub plan: &'a BucketPlan,
    pub counts: BucketCounts,
    /// The time of the counts, since the Unix epoch.
    pub now_micros: u64,
}

/// What a part's counts say of its cost, before any units are kept.
pub(super) struct PartVerdict {
    /// The reply, as if no units were granted.
    pub reply: CounterReply,
    /// How many units the counter grants, if the call is admitted.
    pub grantable_units: u32,
}

impl BucketView<'_> {
    /// The number of a window's first bucket, and the counts of its buckets, oldest first.
    fn window_counts(&self, window_index: usize) -> (u64, &[u64]) {
        let WindowBuckets {
            track_index,
            past_buckets,
        } = self.plan.windows[window_index];
        let track = &self.plan.tracks[track_index];
        let first_counting = *track.counting_buckets(self.now_micros).start();
        let current = track.bucket_at(self.now_micros);
        let oldest = current.saturating_sub(past_buckets).max(first_counting);
        let counts = self.counts[track_index].get((oldest - first_counting) as usize..);
        (oldest, counts.unwrap_or_default())
    }

    /// Units that count in a window.
    fn used_units(&self, window_index: usize) -> u32 {
        let (_, counts) = self.window_counts(window_index);
        let sum = counts
            .iter()
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// How long until `units` of the units in a window no longer count; zero if fewer are in it.
    fn time_until_free(&self, window_index: usize, units: u32) -> Nanos {
        let WindowBuckets {
            track_index,
            past_buckets,
        } = self.plan.windows[window_index];
        let (oldest, counts) = self.window_counts(window_index);
        let mut remaining_units = u64::from(units);
        for (bucket_number, count) in (oldest..).zip(counts) {
            if *count >= remaining_units {
                let leaves_at =
                    self.plan.tracks[track_index].leaves_at_micros(bucket_number, past_buckets);
                return Nanos(
                    leaves_at
                        .saturating_sub(self.now_micros)
                        .saturating_mul(1_000),
                );
            }
            remaining_units -= count;
        }
        Nanos::ZERO
    }

    /// What the counts say of the part's cost.
    pub(super) fn evaluate(&self) -> PartVerdict {
        // A give-back asks for no units.
        let (cost, wanted_units) = match self.part.give_back {
            Some(_) => (0, 0),
            None => (self.part.cost, self.part.wanted_units),
        };
        let (mut is_over, mut grantable_units) = (false, wanted_units.max(cost));
        let mut deciding_reply: Option<CounterReply> = None;
        for (window_index, window) in self.part.spec.windows.iter().enumerate() {
            let used_units = self.used_units(window_index);
            let mut reply = CounterReply {
                standing: LimitStanding::Within,
                window_index: window_index as u8,
                remaining: window.base.saturating_sub(used_units),
                ..neutral_reply(self.now_micros)
            };
            let excess_over =
                |bound: u32| (u64::from(used_units) + u64::from(cost)).saturating_sub(bound.into());
            let excess = excess_over(window.ceiling);
            if cost > window.ceiling {
                reply.standing = LimitStanding::Unsatisfiable;
            } else if excess > 0 {
                reply.standing = LimitStanding::Refused;
                reply.retry_after =
                    self.time_until_free(window_index, u32::try_from(excess).unwrap_or(u32::MAX));
            } else {
                is_over |= excess_over(window.base) > 0;
                grantable_units = grantable_units.min(window.ceiling - used_units);
            }
            let outranks = |earlier: &CounterReply| rank(&reply) >= rank(earlier);
            if deciding_reply.as_ref().is_none_or(outranks) {
                deciding_reply = Some(reply);
            }
        }
        let mut reply = deciding_reply.unwrap_or_else(|| neutral_reply(self.now_micros));
        if reply.standing == LimitStanding::Within && is_over {
            reply.standing = LimitStanding::Over;
        }
        PartVerdict {
            reply,
            grantable_units,
        }
    }

    /// Adds the granted units to the counts, and completes the reply by them.
    pub(super) fn complete_reply(&mut self, reply: &mut CounterReply, granted_units: u32) {
        for (track, counts) in self.plan.tracks.iter().zip(&mut self.counts) {
            if let Some(count) = counts.get_mut(track.current_index(self.now_micros)) {
                *count = count.saturating_add(u64::from(granted_units));
            }
        }
        reply.granted_units = granted_units;
        reply.remaining = reply.remaining.saturating_sub(granted_units);
        let windows = 0..self.part.spec.windows.len();
        reply.used_units = windows
            .map(|window_index| self.used_units(window_index))
            .collect();
        let window_index = usize::from(reply.window_index);
        let Some(window) = self.part.spec.windows.get(window_index) else {
            return;
        };
        let used_units = self.used_units(window_index);
        if used_units > 0 {
            // One more unit is free once the units above the quota and one other have left the window.
            let units = used_units.saturating_add(1) - window.base.min(used_units);
            reply.reset_after = self.time_until_free(window_index, units);
        }
    }
}

/// A reply that admits and grants no units, as of a counter without windows.
pub(super) fn neutral_reply(now_micros: u64) -> CounterReply {
    CounterReply {
        standing: LimitStanding::Within,
        window_index: 0,
        remaining: u32::MAX,
        retry_after: Nanos::ZERO,
        reset_after: Nanos::ZERO,
        delay: Nanos::ZERO,
        granted_units: 0,
        gateway_total: 0,
        granted_at_micros: now_micros,
        used_units: SmallVec::new(),
    }
}

/// The rank by which one window of a limit decides, as in [`crate::limit::KeyState`]: the highest one does.
fn rank(reply: &CounterReply) -> (u8, u64) {
    match reply.standing {
        LimitStanding::Unsatisfiable => (3, 0),
        LimitStanding::Refused => (2, reply.retry_after.0),
        LimitStanding::Over => (1, 0),
        LimitStanding::Within => (0, u64::from(u32::MAX - reply.remaining)),
    }
}
