//! A limit as numbers, for stores that do the arithmetic elsewhere: the same as [`KeyState`](super::KeyState)
//! does, in microseconds.

use smallvec::SmallVec;

use super::lending::{Lending, Pace};
use super::{Algorithm, Fingerprint, Limit, Scale};
use super::{fixed_window, multi_level, sliding_log, sliding_window};
use crate::base::clock::Nanos;

/// What remembers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// The exact log, in ticks of so many microseconds, with room for so many units.
    Log {
        /// Length of a tick.
        tick: u64,
        /// Units.
        room: u32,
    },
    /// Rings of buckets.
    Rings,
    /// Windows that stand still.
    Fixed,
    /// Arrival times.
    Gcra,
    /// Arrival times, and what comes early waits.
    Leaky,
}

/// One window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowSpec {
    /// Its length.
    pub window: u64,
    /// Units within the rate.
    pub base: u32,
    /// Units with what the throttle adds.
    pub ceiling: u32,
    /// Place of its ring, phase, or interval between two units.
    pub first: u64,
    /// How much later than it is, a unit may come.
    pub second: u64,
    /// Interval between two units for a plan's multiplier of one, and how far ahead of now an arrival time may lie
    /// then; zero where there are none.
    pub pace: u64,
    /// See `pace`.
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

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What remembers.
    pub kind: StateKind,
    /// All windows, shortest first.
    pub spans: SmallVec<[WindowSpec; 2]>,
    /// All rings, finest first.
    pub rings: SmallVec<[RingSpec; 2]>,
    /// Whether it remembers what was lent.
    pub lends: bool,
    /// What is lent now.
    pub pace: Pace,
    /// After so long a key that is not used is as good as new.
    pub kept: u64,
}

fn micros(span: Nanos) -> u64 {
    span.0.div_ceil(1_000)
}

impl Limit {
    /// The numbers for one key at one moment.
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
                // A unit more, for what plans and a throttle add is rounded.
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

    /// Two windows, for a bucket may outlive its window and a burst may come back slower; longer where
    /// something is lent.
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
