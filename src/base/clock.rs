//! Time as a value. This file alone reads the clocks of the machine. All other code gets a [`Clock`] or a time as an
//! argument, so tests move time by hand. Timers of tokio and of threads, which only wait, run by the machine's clock.

use std::sync::Arc;
#[cfg(not(feature = "gateway"))]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "gateway"))]
use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "gateway")]
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A point in time, in nanoseconds since the origin of a [`Clock`], or a span of time in nanoseconds. Points are
/// monotonic unless a field says that it holds wall time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The clock's origin, or an empty span.
    pub const ZERO: Nanos = Nanos(0);

    /// A span of whole seconds, or the largest value if that overflows.
    pub const fn from_secs(seconds: u64) -> Nanos {
        Nanos(seconds.saturating_mul(1_000_000_000))
    }

    /// A span of milliseconds, or the largest value if that overflows.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis.saturating_mul(1_000_000))
    }

    /// `self + span`, or the largest value if that overflows.
    pub const fn after(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }

    /// The span since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// The whole seconds of a span, rounded up.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// If this is a span that runs down, the time until its [`Nanos::ceil_secs`] is one less. An empty span runs down
    /// no more, so the result is the largest value.
    pub const fn until_next_second(self) -> Nanos {
        match self.0 {
            0 => Nanos(u64::MAX),
            nanos => Nanos((nanos - 1) % 1_000_000_000 + 1),
        }
    }
}

/// How far wall time, in nanoseconds since the Unix epoch, is ahead of the readings of a [`Clock`]. It changes only when
/// the wall clock is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallOffset(pub i64);

impl WallOffset {
    /// The wall time at a reading of the clock.
    pub const fn wall_at(self, reading: Nanos) -> Nanos {
        Nanos(reading.0.saturating_add_signed(self.0))
    }

    /// The reading of the clock at a wall time; zero before the clock's origin.
    pub const fn reading_at(self, wall: Nanos) -> Nanos {
        Nanos(wall.0.saturating_add_signed(self.0.saturating_neg()))
    }
}

impl From<Duration> for Nanos {
    fn from(span: Duration) -> Nanos {
        Nanos::from_secs(span.as_secs()).after(Nanos(u64::from(span.subsec_nanos())))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Duration {
        Duration::from_nanos(span.0)
    }
}

/// The source of time, which the process creates once and passes to all its parts.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The monotonic clock and the wall clock of the machine.
    System {
        /// The reading of the machine's monotonic clock when this clock reads zero, in nanoseconds. It wraps around if
        /// that was before the machine's start.
        origin: u64,
    },
    /// A clock that a test moves. It is atomic because a test may move it from any thread; no other data depends on it,
    /// so relaxed ordering is enough.
    Manual {
        /// The reading of this clock, in nanoseconds.
        now: Arc<AtomicU64>,
    },
}

/// The first reading of a system clock, unless it continues another one: one day, so that a time somewhat before the
/// first request does not fall below zero.
const FIRST_READING: Nanos = Nanos::from_secs(86_400);

impl Clock {
    /// The machine's clock, which reads one day now.
    pub fn system() -> Clock {
        let now = machine_nanos();
        Clock::System {
            origin: now.wrapping_sub(FIRST_READING.0),
        }
    }

    /// A clock that stands at `start` until a test moves it.
    pub fn manual(start: Nanos) -> Clock {
        Clock::Manual {
            now: Arc::new(AtomicU64::new(start.0)),
        }
    }

    /// The monotonic time since the clock's origin.
    pub fn now(&self) -> Nanos {
        match self {
            Clock::System { origin } => Nanos(machine_nanos().wrapping_sub(*origin)),
            Clock::Manual { now } => Nanos(now.load(Ordering::Relaxed)),
        }
    }

    /// Wall-clock time since the Unix epoch; zero before it. It is for logs, the record, the expiry of tokens and
    /// certificates, time that other gateways share, and windows of the calendar. Other windows in this process's memory
    /// are measured by [`Clock::now`]. A manual clock returns its reading.
    #[allow(clippy::disallowed_methods)]
    pub fn wall(&self) -> Duration {
        match self {
            Clock::System { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or(Duration::ZERO),
            Clock::Manual { now } => Duration::from_nanos(now.load(Ordering::Relaxed)),
        }
    }

    /// How far [`Clock::wall`] is ahead of [`Clock::now`]; zero for a manual clock.
    pub fn wall_offset(&self) -> WallOffset {
        let (wall, now) = (Nanos::from(self.wall()), self.now());
        WallOffset(wall.0.wrapping_sub(now.0).cast_signed())
    }

    /// Processor time that the process has used; `None` under a manual clock.
    #[cfg(feature = "gateway")]
    #[allow(clippy::disallowed_methods)]
    pub fn cpu_time(&self) -> Option<Nanos> {
        match self {
            Clock::System { .. } => Some(Nanos(to_nanos(clock_gettime(ClockId::ProcessCPUTime)))),
            Clock::Manual { .. } => None,
        }
    }

    /// Shifts this clock to read `reading` now, so that it continues the clock of a process that has ended. A manual
    /// clock is shifted with its clones, and never back.
    pub fn resumed(self, reading: Nanos) -> Clock {
        match self {
            Clock::System { origin } => Clock::System {
                origin: origin.wrapping_add(self.now().0).wrapping_sub(reading.0),
            },
            Clock::Manual { now } => {
                now.fetch_max(reading.0, Ordering::Relaxed);
                Clock::Manual { now }
            }
        }
    }

    /// Moves a manual clock forward. It does nothing to a system clock.
    pub fn advance(&self, span: Nanos) {
        if let Clock::Manual { now } = self {
            now.fetch_add(span.0, Ordering::Relaxed);
        }
    }
}

/// The reading of the machine's monotonic clock, in nanoseconds.
#[cfg(feature = "gateway")]
#[inline]
#[allow(clippy::disallowed_methods)]
fn machine_nanos() -> u64 {
    to_nanos(clock_gettime(ClockId::Monotonic))
}

/// The time since the first call, in nanoseconds, by the monotonic clock of the standard library.
#[cfg(not(feature = "gateway"))]
#[allow(clippy::disallowed_methods)]
fn machine_nanos() -> u64 {
    static FIRST_CALL: OnceLock<Instant> = OnceLock::new();
    let elapsed = FIRST_CALL.get_or_init(Instant::now).elapsed();
    elapsed.as_nanos() as u64
}

/// Converts the reading of a clock that is never negative to nanoseconds. The result wraps after 584 years.
#[cfg(feature = "gateway")]
fn to_nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}
