//! The health of one server: whether it gets requests, its share of them, and how many are open. All workers share it,
//! and it is kept over reloads. Reads no clock.
//!
//! A request to a healthy server costs one relaxed load here, and one addition at each end.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::settings::Ejection;
use crate::base::clock::Nanos;

/// A server's whole share of its weight.
pub const FULL: u32 = 1024;
/// The share of a server on trial, and the first share in a slow start.
pub const LEAST: u32 = FULL / 10;
/// The longest ejection, unless the first one is configured longer.
const LONGEST: Duration = Duration::from_secs(300);

/// How long no new connections are tried to a server that did not accept the last one in time.
const UNREACHABLE_FOR: Nanos = Nanos::from_secs(5);

/// Flag: the server is ejected, for its requests failed.
pub const EJECTED: u8 = 1;
/// Flag: its health checks fail.
pub const FAILING: u8 = 2;
/// Flag: it is in its slow start.
pub const STARTING: u8 = 4;
/// Flag: it was ejected and has sent no response since.
pub const TRIAL: u8 = 8;

/// See the module. On a cache line of its own, for workers write to it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ServerHealth {
    /// The flags that are set; 0 for a healthy server.
    flags: AtomicU8,
    open: AtomicU32,
    /// Failures in a row.
    failures: AtomicU32,
    ejected_until: AtomicU64,
    /// Ejections in a row: each is longer than the one before.
    spell: AtomicU32,
    back_since: AtomicU64,
    ejections: AtomicU64,
    failed_checks: AtomicU64,
    /// No new connections are tried until then; 0 while it accepts them.
    unreachable_until: AtomicU64,
}

/// Whether new connections to a server are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// It accepted the last one, or none was tried.
    Reachable,
    /// It did not accept the last one; the caller that gets this tries it again, beside another server.
    Retry,
    /// It did not accept the last one.
    Unreachable,
}

impl ServerHealth {
    /// What of `mask` is not as it should be.
    pub fn flags(&self, mask: u8) -> u8 {
        self.flags.load(Relaxed) & mask
    }

    /// Open requests.
    pub fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    /// A request begins.
    pub fn opened(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    /// A request has ended.
    pub fn closed(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// Whether a new connection to it is tried. [`Reachability::Retry`] is given to one caller.
    pub fn reach(&self, now: Nanos) -> Reachability {
        let until = self.unreachable_until.load(Relaxed);
        if until == 0 {
            return Reachability::Reachable;
        }
        let next = now.after(UNREACHABLE_FOR).0;
        let claim = || {
            self.unreachable_until
                .compare_exchange(until, next, Relaxed, Relaxed)
                .is_ok()
        };
        if until <= now.0 && claim() {
            return Reachability::Retry;
        }
        Reachability::Unreachable
    }

    /// Whether it did not accept its last connection in time.
    pub fn is_unreachable(&self) -> bool {
        self.unreachable_until.load(Relaxed) != 0
    }

    /// It did not accept a connection before the next attempt started.
    pub fn mark_unreachable(&self, now: Nanos) {
        self.unreachable_until
            .store(now.after(UNREACHABLE_FOR).0, Relaxed);
    }

    /// It accepted a connection.
    pub fn mark_reachable(&self) {
        if self.unreachable_until.load(Relaxed) != 0 {
            self.unreachable_until.store(0, Relaxed);
        }
    }

    /// Ejections so far.
    pub fn ejections(&self) -> u64 {
        self.ejections.load(Relaxed)
    }

    /// Failed checks so far.
    pub fn failed_checks(&self) -> u64 {
        self.failed_checks.load(Relaxed)
    }

    /// It has begun to answer as a server that is well would.
    pub fn answers(&self) {
        if self.flags(TRIAL) != 0 {
            self.flags.fetch_and(!TRIAL, Relaxed);
        }
    }

    /// A request was answered to its end as a server that is well would.
    pub fn succeeded(&self) {
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
        }
    }

    /// A request failed; says whether that is enough to eject the server.
    pub fn failed(&self, after: u32) -> bool {
        if self.flags(EJECTED) != 0 {
            return false;
        }
        self.failures.fetch_add(1, Relaxed).saturating_add(1) >= after
    }

    /// Leaves it alone: the first time for the span of `eject`, the n-th time in a row for n times that,
    /// as Envoy does. A server that has been back for as long as it was out begins anew.
    pub fn eject(&self, eject: Ejection, now: Nanos) -> Duration {
        let longest = LONGEST.max(eject.span);
        let length = |spell: u32| eject.span.saturating_mul(spell).min(longest);
        let before = self.spell.load(Relaxed);
        let back = now.since(Nanos(self.ejected_until.load(Relaxed)));
        let spell = if back > length(before).into() {
            1
        } else {
            before.saturating_add(1)
        };
        let length = length(spell);
        self.spell.store(spell, Relaxed);
        let until = now.after(length.into());
        self.ejected_until.store(until.0, Relaxed);
        self.ejections.fetch_add(1, Relaxed);
        self.flags.fetch_or(EJECTED, Relaxed);
        length
    }

    /// Whether it is ejected and its time is over.
    pub fn is_due(&self, now: Nanos) -> bool {
        self.flags(EJECTED) != 0 && self.ejected_until.load(Relaxed) <= now.0
    }

    /// Ends its ejection, on trial: it gets little before it has answered something, and one more failure
    /// ejects it again.
    pub fn readmit(&self, eject: Ejection, now: Nanos) {
        self.failures.store(eject.after.saturating_sub(1), Relaxed);
        self.flags.fetch_or(TRIAL, Relaxed);
        self.come_back(EJECTED, now);
    }

    /// Its checks have come to a verdict.
    pub fn judged(&self, well: bool, now: Nanos) {
        if well {
            self.come_back(FAILING, now);
        } else {
            self.flags.fetch_or(FAILING, Relaxed);
        }
    }

    /// One check failed.
    pub fn check_failed(&self) {
        self.failed_checks.fetch_add(1, Relaxed);
    }

    /// It begins with a small share.
    pub fn start_slowly(&self, now: Nanos) {
        self.come_back(0, now);
    }

    fn come_back(&self, from: u8, now: Nanos) {
        self.back_since.store(now.0, Relaxed);
        self.flags.fetch_or(STARTING, Relaxed);
        self.flags.fetch_and(!from, Relaxed);
    }

    /// Its share while it starts slowly: from a tenth to all, in a straight line.
    pub fn started(&self, slow_start: Duration, now: Nanos) -> u32 {
        let back = now.since(Nanos(self.back_since.load(Relaxed)));
        let whole = Nanos::from(slow_start).0.max(1);
        let share = u128::from(back.0) * u128::from(FULL) / u128::from(whole);
        let share = u32::try_from(share).map_or(FULL, |share| share.min(FULL));
        if share == FULL {
            self.flags.fetch_and(!STARTING, Relaxed);
        }
        share.max(LEAST)
    }
}

/// Counts the checks of one server.
#[derive(Debug)]
pub struct Judge {
    fall: u32,
    rise: u32,
    well: bool,
    /// Checks in a row that say otherwise.
    against: u32,
}

impl Judge {
    /// Of a server that is taken to be `well`, or not, until its first check, which alone may say
    /// otherwise.
    pub fn new(fall: u32, rise: u32, well: bool) -> Judge {
        Judge {
            fall,
            rise,
            well,
            against: if well { fall } else { rise }.saturating_sub(1),
        }
    }

    /// One check's result; the new verdict when there is one.
    pub fn saw(&mut self, well: bool) -> Option<bool> {
        if well == self.well {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let enough = if well { self.rise } else { self.fall };
        if self.against < enough {
            return None;
        }
        (self.well, self.against) = (well, 0);
        Some(well)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EJECT: Ejection = Ejection {
        after: 3,
        span: Duration::from_secs(10),
    };

    #[test]
    fn failures_count_only_in_a_row() {
        let health = ServerHealth::default();
        assert!(!health.failed(3) && !health.failed(3));
        health.succeeded();
        assert!(!health.failed(3) && !health.failed(3));
        assert!(health.failed(3));
    }

    #[test]
    fn each_ejection_in_a_row_is_longer_until_it_stays_well() {
        let health = ServerHealth::default();
        let mut now = Nanos::from_secs(1_000);
        for expected in [10, 20, 30] {
            let length = health.eject(EJECT, now);
            assert_eq!(length, Duration::from_secs(expected));
            assert!(!health.is_due(now));
            now = now.after(length.into());
            assert!(health.is_due(now));
            health.readmit(EJECT, now);
            assert_eq!(health.flags(EJECTED), 0);
            assert!(health.failed(3), "one failure on trial is enough");
        }
        now = now.after(Nanos::from_secs(31));
        assert_eq!(health.eject(EJECT, now), EJECT.span);
        for _ in 0..100 {
            health.eject(EJECT, now);
        }
        assert_eq!(health.eject(EJECT, now), LONGEST);
        assert_eq!(health.ejections(), 105);
    }

    #[test]
    fn one_caller_at_a_time_retries_an_unreachable_server() {
        let health = ServerHealth::default();
        let start = Nanos::from_secs(1_000);
        assert_eq!(health.reach(start), Reachability::Reachable);
        health.mark_unreachable(start);
        for time in 0..3 {
            let now = start.after(Nanos::from_secs(5 * time));
            let early = now.after(Nanos::from_millis(4_999));
            assert_eq!(health.reach(early), Reachability::Unreachable);
            let now = now.after(UNREACHABLE_FOR);
            assert_eq!(health.reach(now), Reachability::Retry);
            assert_eq!(health.reach(now), Reachability::Unreachable);
        }
        health.mark_reachable();
        assert_eq!(health.reach(start), Reachability::Reachable);
    }

    #[test]
    fn a_slow_start_is_a_straight_line() {
        let health = ServerHealth::default();
        let start = Nanos::from_secs(5);
        health.start_slowly(start);
        let span = Duration::from_secs(100);
        let share = |seconds| health.started(span, start.after(Nanos::from_secs(seconds)));
        let shares = [0, 10, 25, 50, 75, 99].map(share);
        assert_eq!(shares, [102, 102, 256, 512, 768, 1013]);
        assert_eq!(health.flags(STARTING), STARTING);
        assert_eq!((share(100), health.flags(STARTING)), (FULL, 0));
    }

    #[test]
    fn checks_take_out_and_bring_back_in_a_row() {
        let mut judge = Judge::new(3, 2, true);
        let verdicts = [
            (true, None),
            (false, None),
            (false, None),
            (true, None),
            (false, None),
            (false, None),
            (false, Some(false)),
            (false, None),
            (true, None),
            (false, None),
            (true, None),
            (true, Some(true)),
        ];
        for (place, (well, expected)) in verdicts.into_iter().enumerate() {
            assert_eq!(judge.saw(well), expected, "check {place}");
        }
        assert_eq!(Judge::new(3, 2, true).saw(false), Some(false));
    }
}
