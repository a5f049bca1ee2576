//! A limit as numbers, for stores that do the arithmetic of [`KeyState`](super::KeyState) elsewhere. Times are in
//! microseconds.

use smallvec::SmallVec;

use super::lending::{Lending, Pace};
use super::{Algorithm, Fingerprint, Limit, Scale};
use super::{fixed_window, multi_level, sliding_log, sliding_window};
use crate::base::clock::Nanos;

/// The kind of a key's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// An exact log of stamps.
    Log {
        /// Length of a tick in microseconds.
        tick: u64,
        /// Units that the log has room for.
        room: u32,
    },
    /// Rings of buckets.
    Rings,
    /// Windows that do not slide.
    Fixed,
    /// Arrival times.
    Gcra,
    /// Arrival times; early requests are delayed.
    Leaky,
}

/// One window of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowSpec {
    /// Length of the window.
    pub window: u64,
    /// Units within the rate.
    pub base: u32,
    /// Units with what the throttle adds.
    pub ceiling: u32,
    /// The index of its ring, its phase, or the interval between two units, by [`StateKind`].
    pub first: u64,
    /// For leaky buckets, by how much more a unit may come early; see `StateWindow`.
    pub second: u64,
    /// The interval between two units without a plan's multiplier; zero without arrival times.
    pub pace: u64,
    /// How far ahead of now an arrival time may be at that pace; zero without arrival times.
    pub most: u64,
}

/// A ring of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// Length of a bucket.
    pub length: u64,
    /// Buckets that are kept.
    pub kept: u64,
}

/// A limit for one key at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The kind of the state.
    pub kind: StateKind,
    /// All windows, shortest first.
    pub spans: SmallVec<[WindowSpec; 2]>,
    /// All rings, finest first.
    pub rings: SmallVec<[RingSpec; 2]>,
    /// Whether the state counts lent units.
    pub lends: bool,
    /// The pace at which the limit lends now.
    pub pace: Pace,
    /// How long an unused key must be kept: then its state is equal to a fresh one.
    pub kept: u64,
}

fn micros(span: Nanos) -> u64 {
    span.0.div_ceil(1_000)
}

impl Limit {
    /// The numbers for one key and one scale.
    pub fn spec(&self, key: Fingerprint, scale: Scale) -> Spec {
        let (mut rings, mut room) = (SmallVec::<[RingSpec; 2]>::new(), 1);
        if self.algorithm == Algorithm::MultiLevel {
            rings.extend(multi_level::rings(self).map(|(_, ring)| RingSpec {
                length: micros(Nanos(ring.length.nanos())),
                kept: u64::from(ring.buckets) + 1,
            }));
        }
        let mut spans = SmallVec::new();
        for rate in &self.windows {
            let (base, ceiling) = self.bounds(rate, scale.multiply);
            room = room.max(ceiling);
            let window = rate.window();
            let (mut first, mut second) = (0, 0);
            let (mut pace, mut most) = (0, 0);
            match self.algorithm {
                Algorithm::SlidingLog => {}
                Algorithm::SlidingWindow => {
                    let ring = sliding_window::ring(rate.bucket());
                    first = rings.len() as u64;
                    rings.push(RingSpec {
                        length: micros(Nanos(ring.length.nanos())),
                        kept: u64::from(ring.buckets) + 1,
                    });
                }
                Algorithm::MultiLevel => {
                    let length = micros(multi_level::bucket(window));
                    let place = rings.iter().position(|ring| ring.length == length);
                    first = place.unwrap_or(0) as u64;
                }
                Algorithm::FixedWindow => first = micros(fixed_window::phase(key, window)),
                Algorithm::Gcra { .. } => {
                    first = micros(Nanos(rate.interval(scale.multiply).nanos()))
                }
                Algorithm::LeakyBucket { max_delay } => {
                    first = micros(Nanos(rate.interval(scale.multiply).nanos()));
                    second = micros(max_delay) % first;
                }
            }
            if self.algorithm.is_gcra() {
                pace = micros(Nanos(rate.interval(1).nanos()));
                // One unit more, because what plans and the throttle add is rounded.
                let units = u64::from(self.bounds(rate, 1).1).saturating_add(1);
                let delay = match self.algorithm {
                    Algorithm::LeakyBucket { max_delay } => micros(max_delay) % pace,
                    _ => 0,
                };
                most = pace.saturating_mul(units).saturating_add(delay);
            }
            spans.push(WindowSpec {
                window: micros(window),
                base,
                ceiling,
                first,
                second,
                pace,
                most,
            });
        }
        Spec {
            kind: self.kind(room),
            spans,
            rings,
            lends: self.throttle.lends(),
            pace: Lending::new(self, scale).map_or_else(Pace::default, Lending::pace),
            kept: self.kept(),
        }
    }

    fn kind(&self, room: u32) -> StateKind {
        match self.algorithm {
            Algorithm::SlidingLog => StateKind::Log {
                tick: sliding_log::tick_micros(self),
                room,
            },
            Algorithm::SlidingWindow | Algorithm::MultiLevel => StateKind::Rings,
            Algorithm::FixedWindow => StateKind::Fixed,
            Algorithm::Gcra { .. } => StateKind::Gcra,
            Algorithm::LeakyBucket { .. } => StateKind::Leaky,
        }
    }

    /// Two windows, because a bucket may outlive its window and a burst may take longer to come back. Longer for limits
    /// that lend.
    fn kept(&self) -> u64 {
        let longest = micros(self.longest());
        let bucket = match self.algorithm {
            Algorithm::MultiLevel => micros(multi_level::bucket(self.longest())),
            _ => 0,
        };
        let burst = self.windows.iter().map(|rate| {
            let (_, ceiling) = self.bounds(rate, self.max_multiply);
            let interval = micros(Nanos(rate.interval(self.max_multiply).nanos()));
            interval.saturating_mul(u64::from(ceiling))
        });
        let span = match self.algorithm.is_gcra() {
            true => burst.max().unwrap_or(0),
            false => longest,
        };
        let lent = if self.throttle.lends() {
            8 * longest
        } else {
            0
        };
        (2 * longest + bucket)
            .max(span.saturating_add(longest))
            .max(lent)
    }
}
