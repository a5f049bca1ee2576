//! A limit as numbers, for stores that do the arithmetic of [`KeyState`](super::KeyState) elsewhere, for instance in a
//! script. Times are in microseconds. Those that are whole numbers are rounded up. Nothing here counts or decides.

use smallvec::SmallVec;

use super::bucket_ring::BucketRing;
use super::lending::{self, Lending, Pace};
use super::{Algorithm, Alignment, Fingerprint, Rate, RateLimit, Scale};
use super::{fixed_window, multi_level, sliding_log, sliding_window};
use crate::base::clock::Nanos;

/// A limit for one key, with the plan and the lending of one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitSpec {
    /// The kind of the key's state.
    pub kind: StateKind,
    /// All windows, shortest first.
    pub windows: SmallVec<[WindowSpec; 2]>,
    /// All rings of [`StateKind::Rings`], finest first; empty for other kinds.
    pub rings: SmallVec<[RingSpec; 2]>,
    /// Whether the state counts lent units, even while none can be lent.
    pub lends: bool,
    /// The pace at which the limit lends now; all zeros if it lends nothing.
    pub pace: Pace,
    /// The time for which an unused key must be kept. After that its state is equal to a fresh one, so it may be
    /// forgotten.
    pub lifetime_micros: u64,
}

/// The kind of a key's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// An exact log of stamps.
    Log {
        /// The unit of stamps: a power of two, so that the longest window has fewer than 2^23 of them.
        tick_micros: u64,
        /// The largest number of units that the log holds, at least 1.
        capacity: u32,
    },
    /// Rings of buckets, listed in [`LimitSpec::rings`].
    Rings,
    /// Windows that do not slide, of one length.
    Fixed,
    /// Windows of a calendar.
    Calendar,
    /// One theoretical arrival time for each window.
    Gcra,
    /// Arrival times as in [`StateKind::Gcra`], for a limit that delays early requests.
    Leaky,
}

/// One window of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowSpec {
    /// The length of the window.
    pub window_micros: u64,
    /// The units that are admitted within the rate.
    pub base: u32,
    /// The units that are admitted with what a soft limit adds.
    pub ceiling: u32,
    /// By the kind of the state: the index of the window's ring, the phase of a fixed window in microseconds, or the
    /// interval between two units in microseconds. Zero for logs.
    pub ring_phase_or_interval: u64,
    /// For leaky buckets, the part of the longest delay that is no whole interval: `ceiling` counts the whole intervals.
    /// Zero for other kinds.
    pub early_slack_micros: u64,
    /// The interval between two units without a plan's multiplier. Zero if the state has no arrival times, or if the
    /// store must not convert them to another interval.
    pub plain_interval_micros: u64,
    /// The most that an arrival time may be ahead of now: the intervals of `ceiling`, the early slack, and one unit for
    /// what is rounded. [`RateLimit::spec`] computes it without a plan's multiplier. Zero if the state has no arrival
    /// times.
    pub max_lead_micros: u64,
    /// Of a calendar: when the windows before, of and after the time of the call begin, and when the last of these ends, in
    /// wall time. The store's clock chooses one of them. Zeros for other kinds.
    pub bounds_micros: [u64; 4],
}

/// A ring of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// The length of a bucket.
    pub bucket_micros: u64,
    /// The number of buckets, with the one that is leaving the window.
    pub bucket_count: u64,
}

impl RingSpec {
    fn new(ring: BucketRing) -> RingSpec {
        RingSpec {
            bucket_micros: micros(Nanos(ring.bucket_length.nanos())),
            bucket_count: u64::from(ring.bucket_count) + 1,
        }
    }
}

/// The time by which windows that do not slide begin before multiples of their length. A calendar has none.
fn fixed_phase(rate: &Rate, key: Fingerprint) -> Nanos {
    match rate.alignment() {
        Alignment::Key => fixed_window::phase(key, rate.window()),
        Alignment::Clock => Nanos(fixed_window::CLOCK_PHASE.0 % rate.window().0),
        Alignment::Calendar(_) => Nanos::ZERO,
    }
}

/// [`WindowSpec::bounds_micros`] at a time of the wall clock.
fn calendar_bounds(rate: &Rate, wall: Nanos) -> [u64; 4] {
    let Some(calendar) = rate.calendar() else {
        return [0; 4];
    };
    let current = calendar.window_at(wall);
    let previous = calendar.window_at_second(current.start.saturating_sub(1));
    let next = calendar.window_at_second(current.end.min(u32::MAX - 1));
    let seconds = [previous.start, current.start, current.end, next.end];
    seconds.map(|second| u64::from(second) * 1_000_000)
}

/// A duration in microseconds, rounded up.
fn micros(span: Nanos) -> u64 {
    span.0.div_ceil(1_000)
}

impl RateLimit {
    /// The numbers of the limit for one key and one scale, at a time of the wall clock.
    pub fn spec(&self, key: Fingerprint, scale: Scale, wall: Nanos) -> LimitSpec {
        let rings = self.ring_specs();
        let windows = self.windows.iter().enumerate();
        let windows: SmallVec<[WindowSpec; 2]> = windows
            .map(|(index, rate)| WindowSpec {
                bounds_micros: calendar_bounds(rate, wall),
                ..self.window_spec(index, rate, &rings, key, scale.plan_factor)
            })
            .collect();
        let bounds = windows.iter().map(|window| window.bounds_micros[3]);
        let until_last_bound = bounds.max().unwrap_or(0).saturating_sub(micros(wall));
        let capacity = windows.iter().map(|window| window.ceiling).max();
        LimitSpec {
            kind: self.state_kind(capacity.unwrap_or(1).max(1)),
            windows,
            rings,
            lends: self.throttle.is_elastic(),
            pace: Lending::new(self, scale).map_or_else(Pace::default, Lending::pace),
            lifetime_micros: self.lifetime_micros().max(until_last_bound),
        }
    }

    fn ring_specs(&self) -> SmallVec<[RingSpec; 2]> {
        match self.algorithm {
            Algorithm::SlidingWindow => {
                let rings = self.windows.iter();
                let rings = rings.map(|rate| sliding_window::ring(rate.bucket_length()));
                rings.map(RingSpec::new).collect()
            }
            Algorithm::MultiLevel => {
                let rings = multi_level::rings(self);
                rings.map(|(_, ring)| RingSpec::new(ring)).collect()
            }
            _ => SmallVec::new(),
        }
    }

    fn window_spec(
        &self,
        index: usize,
        rate: &Rate,
        rings: &[RingSpec],
        key: Fingerprint,
        plan_factor: u32,
    ) -> WindowSpec {
        let (base, ceiling) = self.unit_bounds(rate, plan_factor);
        let window = rate.window();
        let interval_micros = || micros(Nanos(rate.interval(plan_factor).nanos()));
        let (ring_phase_or_interval, early_slack_micros) = match self.algorithm {
            Algorithm::SlidingLog => (0, 0),
            Algorithm::SlidingWindow => (index as u64, 0),
            Algorithm::MultiLevel => {
                let bucket_micros = micros(multi_level::bucket_length(window));
                let has_length = |ring: &RingSpec| ring.bucket_micros == bucket_micros;
                (rings.iter().position(has_length).unwrap_or(0) as u64, 0)
            }
            Algorithm::FixedWindow => (micros(fixed_phase(rate, key)), 0),
            Algorithm::Gcra { .. } => (interval_micros(), 0),
            // The ceiling counts the whole intervals of the delay.
            Algorithm::LeakyBucket { max_delay } => {
                (interval_micros(), micros(max_delay) % interval_micros())
            }
        };
        let (plain_interval_micros, max_lead_micros) = self.plain_interval_and_lead(rate);
        WindowSpec {
            window_micros: micros(window),
            base,
            ceiling,
            ring_phase_or_interval,
            early_slack_micros,
            plain_interval_micros,
            max_lead_micros,
            bounds_micros: [0; 4],
        }
    }

    /// [`WindowSpec::plain_interval_micros`] and [`WindowSpec::max_lead_micros`], both without a plan's multiplier.
    fn plain_interval_and_lead(&self, rate: &Rate) -> (u64, u64) {
        if !self.algorithm.is_gcra() {
            return (0, 0);
        }
        let interval_micros = micros(Nanos(rate.interval(1).nanos()));
        // The ceiling of a plan is rounded, and so is what the throttle adds. Converted to the plain interval, a plan's
        // state may be up to one unit longer than the plain ceiling.
        let max_units = u64::from(self.unit_bounds(rate, 1).1).saturating_add(1);
        let early_slack_micros = match self.algorithm {
            Algorithm::LeakyBucket { max_delay } => micros(max_delay) % interval_micros,
            _ => 0,
        };
        let max_lead_micros = interval_micros
            .saturating_mul(max_units)
            .saturating_add(early_slack_micros);
        (interval_micros, max_lead_micros)
    }

    fn state_kind(&self, capacity: u32) -> StateKind {
        match self.algorithm {
            Algorithm::SlidingLog => StateKind::Log {
                tick_micros: sliding_log::tick_micros(self),
                capacity,
            },
            Algorithm::SlidingWindow | Algorithm::MultiLevel => StateKind::Rings,
            Algorithm::FixedWindow if self.windows.iter().any(|rate| rate.calendar().is_some()) => {
                StateKind::Calendar
            }
            Algorithm::FixedWindow => StateKind::Fixed,
            Algorithm::Gcra { .. } => StateKind::Gcra,
            Algorithm::LeakyBucket { .. } => StateKind::Leaky,
        }
    }

    /// The time for which a state must be kept: at least two of the longest window. It is longer where a bucket
    /// outlives its window, where a burst takes longer to come back, and for limits that lend.
    fn lifetime_micros(&self) -> u64 {
        let longest_micros = micros(self.longest_window());
        let bucket_micros = match self.algorithm {
            Algorithm::MultiLevel => micros(multi_level::bucket_length(self.longest_window())),
            _ => 0,
        };
        let burst_times = self.windows.iter().map(|rate| {
            let (_, ceiling) = self.unit_bounds(rate, self.max_plan_factor);
            let interval_micros = micros(Nanos(rate.interval(self.max_plan_factor).nanos()));
            interval_micros.saturating_mul(u64::from(ceiling))
        });
        let refill_micros = match self.algorithm.is_gcra() {
            true => burst_times.max().unwrap_or(0),
            false => longest_micros,
        };
        let lending_micros = if self.throttle.is_elastic() {
            lending::FORGET_AFTER_WINDOWS * longest_micros
        } else {
            0
        };
        (2 * longest_micros + bucket_micros)
            .max(refill_micros.saturating_add(longest_micros))
            .max(lending_micros)
    }
}
