//! Time as a value: the only file that may read a clock. Everything below the gateway's edge gets
//! `now` as an argument, so tests drive time by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since the clock's origin; monotonic, never the wall clock. Also used for spans.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// A span of whole seconds.
    pub const fn from_secs(seconds: u64) -> Nanos {
        Nanos(seconds.saturating_mul(1_000_000_000))
    }

    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis.saturating_mul(1_000_000))
    }

    /// `self + span`, stopping at the end of time.
    pub const fn after(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }

    /// The span since `earlier`, zero when `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Whole seconds, rounded up.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// What must pass of a span until [`Nanos::ceil_secs`] of the rest is another; the end of time when nothing is left.
    pub const fn until_next_second(self) -> Nanos {
        match self.0 {
            0 => Nanos(u64::MAX),
            left => Nanos((left - 1) % 1_000_000_000 + 1),
        }
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

/// Where time comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clocks.
    System {
        /// What the monotonic clock says when this one reads as zero, which may lie before the machine's start.
        /// It is one day before the clock's making, so that windows reaching back from the first request stay
        /// above zero.
        origin: u64,
    },
    /// A clock that a test moves.
    Manual {
        /// What [`Clock::now`] says.
        now: Arc<AtomicU64>,
    },
}

const HEAD_START: Nanos = Nanos::from_secs(86_400);

impl Clock {
    /// The machine's clock.
    #[allow(clippy::disallowed_methods)]
    pub fn system() -> Clock {
        let now = nanos(clock_gettime(ClockId::Monotonic));
        Clock::System {
            origin: now.wrapping_sub(HEAD_START.0),
        }
    }

    /// A clock standing at `start` until moved.
    pub fn manual(start: Nanos) -> Clock {
        Clock::Manual {
            now: Arc::new(AtomicU64::new(start.0)),
        }
    }

    /// Monotonic time.
    #[allow(clippy::disallowed_methods)]
    pub fn now(&self) -> Nanos {
        match self {
            Clock::System { origin } => {
                Nanos(nanos(clock_gettime(ClockId::Monotonic)).wrapping_sub(*origin))
            }
            Clock::Manual { now } => Nanos(now.load(Ordering::Relaxed)),
        }
    }

    /// Wall-clock time since the Unix epoch: for logs and token expiry, never for a window.
    #[allow(clippy::disallowed_methods)]
    pub fn wall(&self) -> Duration {
        match self {
            Clock::System { .. } => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or(Duration::ZERO),
            Clock::Manual { now } => Duration::from_nanos(now.load(Ordering::Relaxed)),
        }
    }

    /// Time that the process has used of its processors; nothing under a manual clock.
    #[allow(clippy::disallowed_methods)]
    pub fn cpu(&self) -> Option<Nanos> {
        match self {
            Clock::System { .. } => Some(Nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))),
            Clock::Manual { .. } => None,
        }
    }

    /// This clock reading `at` now, to go on where another process has ended. A manual one is moved there
    /// if that is later.
    pub fn resumed(self, at: Nanos) -> Clock {
        match self {
            Clock::System { origin } => Clock::System {
                origin: origin.wrapping_add(self.now().0).wrapping_sub(at.0),
            },
            Clock::Manual { now } => {
                now.fetch_max(at.0, Ordering::Relaxed);
                Clock::Manual { now }
            }
        }
    }

    /// Moves a manual clock on; a system clock moves by itself.
    pub fn advance(&self, span: Nanos) {
        if let Clock::Manual { now } = self {
            now.fetch_add(span.0, Ordering::Relaxed);
        }
    }
}

/// The clocks that are read here say nothing below zero, and nothing above 584 years.
fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}
