//! The health of one endpoint: whether it gets requests, the factor on its weight, and how many requests are open. An
//! endpoint is one address of a configured server, and is called the server here. All workers share this state, and
//! reloads keep it. [`CheckJudge`] turns results of health checks into verdicts. Nothing here reads a clock.
//!
//! All atomics are relaxed: each is a number or a set of flags of its own, and publishes nothing else. [`Servers`] holds
//! a lock while it ejects or readmits.
//!
//! [`Servers`]: super::servers::Servers
//!
//! A request to a healthy server writes here twice: one addition at its start, and one subtraction at its end. All other
//! accesses are loads.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::settings::Ejection;
use crate::base::clock::Nanos;

/// The factor on the weight of a healthy server. Factors are in 1024ths of the configured weight.
pub const FULL_FACTOR: u32 = 1024;

/// The factor on the weight of a server on trial, and the least one in a slow start: a tenth. It is small, so that a
/// server that still fails gets few requests.
pub const MIN_FACTOR: u32 = FULL_FACTOR / 10;

/// The longest ejection, unless the first one is configured to be longer. Envoy has the same default.
const MAX_EJECTION: Duration = Duration::from_secs(300);

/// The time for which an unreachable server is tried only after all others, counted from a connection that it did not
/// accept in time. It is short, so that a server that is reachable again gets requests soon.
const UNREACHABLE_TIME: Nanos = Nanos::from_secs(5);

/// The flag of a server that is ejected, because requests to it failed.
pub const EJECTED: u8 = 1;

/// The flag of a server whose health checks fail.
pub const FAILING: u8 = 2;

/// The flag of a server that is in its slow start.
pub const STARTING: u8 = 4;

/// The flag of a server that is back from an ejection and has begun no response since, or only failures.
pub const TRIAL: u8 = 8;

/// No flag: the server is healthy.
const NO_FLAG: u8 = 0;

/// The health of one server. It has a cache line of its own (64 bytes), because all workers write to it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct ServerHealth {
    /// The flags that are set; 0 for a healthy server.
    flags: AtomicU8,
    /// The number of open requests of all workers.
    open_requests: AtomicU32,
    /// The number of failed requests since the last success, without those during an ejection. After an ejection it
    /// begins one below the number that ejects.
    failures_in_row: AtomicU32,
    /// The time at which the current or last ejection ends, in nanoseconds of the clock.
    ejected_until: AtomicU64,
    /// The number of ejections in a row, by which the duration of the next one grows.
    ejections_in_row: AtomicU32,
    /// The time at which the current or last slow start began, in nanoseconds of the clock.
    slow_start_began_at: AtomicU64,
    /// The number of all ejections.
    ejections: AtomicU64,
    /// The number of all failed health checks.
    failed_checks: AtomicU64,
    /// The time until which new connections are tried only after those to all other servers, in nanoseconds of the clock.
    /// 0 while the server accepts them.
    unreachable_until: AtomicU64,
}

/// Whether a new connection to a server is tried now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// No attempt has taken too long since the server last accepted a connection.
    Reachable,
    /// The server did not accept a connection in time, and this caller tries it again, beside another server.
    Retry,
    /// The server did not accept a connection in time, and the next attempt is not due or is another caller's.
    Unreachable,
}

impl ServerHealth {
    /// The flags in `mask` that are set.
    pub fn flags(&self, mask: u8) -> u8 {
        self.flags.load(Relaxed) & mask
    }

    /// The number of open requests.
    pub fn open_requests(&self) -> u32 {
        self.open_requests.load(Relaxed)
    }

    /// Counts a request that begins.
    pub fn increment_open(&self) {
        self.open_requests.fetch_add(1, Relaxed);
    }

    /// Counts a request that has ended.
    pub fn decrement_open(&self) {
        self.open_requests.fetch_sub(1, Relaxed);
    }

    /// Whether a new connection is tried now. While the server is unreachable, one caller gets [`Reachability::Retry`] in
    /// every [`UNREACHABLE_TIME`].
    pub fn try_reach(&self, now: Nanos) -> Reachability {
        let unreachable_until = self.unreachable_until.load(Relaxed);
        if unreachable_until == 0 {
            return Reachability::Reachable;
        }
        let next_retry_at = now.after(UNREACHABLE_TIME).0;
        // Of several callers, only the one whose compare-exchange succeeds retries.
        let claim_retry = || {
            self.unreachable_until
                .compare_exchange(unreachable_until, next_retry_at, Relaxed, Relaxed)
                .is_ok()
        };
        if unreachable_until <= now.0 && claim_retry() {
            return Reachability::Retry;
        }
        Reachability::Unreachable
    }

    /// Whether an attempt to connect has taken too long, and the server has accepted no connection since.
    pub fn is_unreachable(&self) -> bool {
        self.unreachable_until.load(Relaxed) != 0
    }

    /// Records that an attempt to connect took so long that an attempt at another server starts beside it.
    pub fn mark_unreachable(&self, now: Nanos) {
        self.unreachable_until
            .store(now.after(UNREACHABLE_TIME).0, Relaxed);
    }

    /// Records that the server accepted a connection.
    pub fn mark_reachable(&self) {
        if self.unreachable_until.load(Relaxed) != 0 {
            self.unreachable_until.store(0, Relaxed);
        }
    }

    /// The number of times that the server was ejected.
    pub fn ejections(&self) -> u64 {
        self.ejections.load(Relaxed)
    }

    /// The number of health checks that have failed.
    pub fn failed_checks(&self) -> u64 {
        self.failed_checks.load(Relaxed)
    }

    /// Records that a response has begun whose status is no failure. A trial ends with it.
    pub fn record_response(&self) {
        if self.flags(TRIAL) != 0 {
            self.flags.fetch_and(!TRIAL, Relaxed);
        }
    }

    /// Records that a response has ended whose status is no failure. A row of failures ends with it.
    pub fn record_success(&self) {
        if self.failures_in_row.load(Relaxed) != 0 {
            self.failures_in_row.store(0, Relaxed);
        }
    }

    /// Records that a request failed. Returns whether at least `max_failures` requests have failed in a row, so that
    /// the server is to be ejected. While it is ejected, failures do not count.
    pub fn record_failure(&self, max_failures: u32) -> bool {
        if self.flags(EJECTED) != 0 {
            return false;
        }
        self.failures_in_row.fetch_add(1, Relaxed).saturating_add(1) >= max_failures
    }

    /// Ejects the server, and returns for how long. The n-th ejection in a row lasts n times the configured duration,
    /// as in Envoy, up to [`MAX_EJECTION`]. The count begins anew once the server has been back for longer than its
    /// last ejection.
    pub fn eject(&self, ejection: Ejection, now: Nanos) -> Duration {
        let max_duration = MAX_EJECTION.max(ejection.first_duration);
        let nth_duration = |ejections_in_row: u32| {
            ejection
                .first_duration
                .saturating_mul(ejections_in_row)
                .min(max_duration)
        };
        let earlier_ejections = self.ejections_in_row.load(Relaxed);
        let time_since_return = now.since(Nanos(self.ejected_until.load(Relaxed)));
        let ejections_in_row = match time_since_return > nth_duration(earlier_ejections).into() {
            true => 1,
            false => earlier_ejections.saturating_add(1),
        };
        let duration = nth_duration(ejections_in_row);
        self.ejections_in_row.store(ejections_in_row, Relaxed);
        let ejected_until = now.after(duration.into());
        self.ejected_until.store(ejected_until.0, Relaxed);
        self.ejections.fetch_add(1, Relaxed);
        self.flags.fetch_or(EJECTED, Relaxed);
        duration
    }

    /// Whether the server is ejected and the time of its ejection is over.
    pub fn is_ejection_over(&self, now: Nanos) -> bool {
        self.flags(EJECTED) != 0 && self.ejected_until.load(Relaxed) <= now.0
    }

    /// Ends the ejection, and begins a trial and a slow start. The server gets few requests until a response begins whose
    /// status is no failure. One failure before a success is enough to eject the server again.
    pub fn readmit(&self, ejection: Ejection, now: Nanos) {
        self.failures_in_row
            .store(ejection.failures.saturating_sub(1), Relaxed);
        self.flags.fetch_or(TRIAL, Relaxed);
        self.clear_and_start_slowly(EJECTED, now);
    }

    /// Records a new verdict of the health checks.
    pub fn record_verdict(&self, is_healthy: bool, now: Nanos) {
        if is_healthy {
            self.clear_and_start_slowly(FAILING, now);
        } else {
            self.flags.fetch_or(FAILING, Relaxed);
        }
    }

    /// Counts one failed health check.
    pub fn record_failed_check(&self) {
        self.failed_checks.fetch_add(1, Relaxed);
    }

    /// Begins the slow start of a new server.
    pub fn start_slowly(&self, now: Nanos) {
        self.clear_and_start_slowly(NO_FLAG, now);
    }

    /// Clears a flag, and begins a slow start.
    fn clear_and_start_slowly(&self, flag: u8, now: Nanos) {
        self.slow_start_began_at.store(now.0, Relaxed);
        // Set before the other flag is cleared, so that the server does not get its full weight in between.
        self.flags.fetch_or(STARTING, Relaxed);
        self.flags.fetch_and(!flag, Relaxed);
    }

    /// The factor on the weight in a slow start. It grows from 0 to [`FULL_FACTOR`] in proportion to time, but is never
    /// less than [`MIN_FACTOR`]. Ends the slow start after its duration.
    pub fn slow_start_factor(&self, slow_start: Duration, now: Nanos) -> u32 {
        let elapsed = now.since(Nanos(self.slow_start_began_at.load(Relaxed)));
        let duration = Nanos::from(slow_start).0.max(1);
        let factor = u128::from(elapsed.0) * u128::from(FULL_FACTOR) / u128::from(duration);
        let factor = u32::try_from(factor).map_or(FULL_FACTOR, |factor| factor.min(FULL_FACTOR));
        if factor == FULL_FACTOR {
            self.flags.fetch_and(!STARTING, Relaxed);
        }
        factor.max(MIN_FACTOR)
    }
}

/// Turns the results of one server's health checks into verdicts: `fall` failures or `rise` successes in a row change
/// the verdict.
#[derive(Debug)]
pub struct CheckJudge {
    /// The number of failed checks in a row that make a healthy server fail.
    fall: u32,
    /// The number of successful checks in a row that make a failing server healthy.
    rise: u32,
    /// The last verdict, which counts until enough checks in a row contradict it.
    is_healthy: bool,
    /// The number of checks in a row against the last verdict.
    contrary_checks: u32,
}

impl CheckJudge {
    /// The judge of a server that counts as healthy or as failing until its first check. One contrary first check is
    /// enough to change the verdict.
    pub fn new(fall: u32, rise: u32, is_healthy: bool) -> CheckJudge {
        let needed_checks = if is_healthy { fall } else { rise };
        CheckJudge {
            fall,
            rise,
            is_healthy,
            contrary_checks: needed_checks.saturating_sub(1),
        }
    }

    /// Counts the result of a check. Returns the new verdict, whether the server is healthy; `None` if it has not changed.
    pub fn record_check(&mut self, has_succeeded: bool) -> Option<bool> {
        if has_succeeded == self.is_healthy {
            self.contrary_checks = 0;
            return None;
        }
        self.contrary_checks += 1;
        let needed_checks = if has_succeeded { self.rise } else { self.fall };
        if self.contrary_checks < needed_checks {
            return None;
        }
        self.is_healthy = has_succeeded;
        self.contrary_checks = 0;
        Some(has_succeeded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EJECTION: Ejection = Ejection {
        failures: 3,
        first_duration: Duration::from_secs(10),
    };

    #[test]
    fn failures_count_only_in_a_row() {
        let health = ServerHealth::default();
        assert!(!health.record_failure(3) && !health.record_failure(3));
        health.record_success();
        assert!(!health.record_failure(3) && !health.record_failure(3));
        assert!(health.record_failure(3));
    }

    #[test]
    fn each_ejection_in_a_row_is_longer_until_it_stays_well() {
        let health = ServerHealth::default();
        let mut now = Nanos::from_secs(1_000);
        for expected in [10, 20, 30] {
            let duration = health.eject(EJECTION, now);
            assert_eq!(duration, Duration::from_secs(expected));
            assert!(!health.is_ejection_over(now));
            now = now.after(duration.into());
            assert!(health.is_ejection_over(now));
            health.readmit(EJECTION, now);
            assert_eq!(health.flags(EJECTED), 0);
            assert!(health.record_failure(3), "one failure on trial is enough");
        }
        now = now.after(Nanos::from_secs(31));
        assert_eq!(health.eject(EJECTION, now), EJECTION.first_duration);
        for _ in 0..100 {
            health.eject(EJECTION, now);
        }
        assert_eq!(health.eject(EJECTION, now), MAX_EJECTION);
        assert_eq!(health.ejections(), 105);
    }

    #[test]
    fn one_caller_at_a_time_retries_an_unreachable_server() {
        let health = ServerHealth::default();
        let start = Nanos::from_secs(1_000);
        assert_eq!(health.try_reach(start), Reachability::Reachable);
        health.mark_unreachable(start);
        for retry in 0..3 {
            let now = start.after(Nanos::from_secs(5 * retry));
            let early = now.after(Nanos::from_millis(4_999));
            assert_eq!(health.try_reach(early), Reachability::Unreachable);
            let now = now.after(UNREACHABLE_TIME);
            assert_eq!(health.try_reach(now), Reachability::Retry);
            assert_eq!(health.try_reach(now), Reachability::Unreachable);
        }
        health.mark_reachable();
        assert_eq!(health.try_reach(start), Reachability::Reachable);
    }

    #[test]
    fn a_slow_start_is_a_straight_line() {
        let health = ServerHealth::default();
        let start = Nanos::from_secs(5);
        health.start_slowly(start);
        let slow_start = Duration::from_secs(100);
        let factor =
            |seconds| health.slow_start_factor(slow_start, start.after(Nanos::from_secs(seconds)));
        let factors = [0, 10, 25, 50, 75, 99].map(factor);
        assert_eq!(factors, [102, 102, 256, 512, 768, 1013]);
        assert_eq!(health.flags(STARTING), STARTING);
        assert_eq!((factor(100), health.flags(STARTING)), (FULL_FACTOR, 0));
    }

    #[test]
    fn checks_take_out_and_bring_back_in_a_row() {
        let mut judge = CheckJudge::new(3, 2, true);
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
        for (index, (has_succeeded, expected)) in verdicts.into_iter().enumerate() {
            let verdict = judge.record_check(has_succeeded);
            assert_eq!(verdict, expected, "check {index}");
        }
        assert_eq!(CheckJudge::new(3, 2, true).record_check(false), Some(false));
    }
}
