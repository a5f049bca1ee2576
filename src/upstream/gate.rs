//! The gate before an upstream's connections: a circuit breaker for new connections alone. When no server has accepted
//! a connection, all requests that need one fail at once for a moment, instead of waiting in vain. Then one request at
//! a time tries to connect for all of them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::base::clock::Nanos;

/// The time for which all requests fail at once after no server has accepted a connection. It is short, because a
/// server that restarts accepts connections again soon.
const SHUT_TIME: Nanos = Nanos::from_millis(100);

/// The gate before one upstream's connections, shared by all workers.
#[derive(Debug, Default)]
pub struct Gate {
    /// The time until which no request may try to connect, in nanoseconds of the clock; 0 while the gate is open.
    shut_until: AtomicU64,
}

impl Gate {
    /// Whether a request may try to connect. After [`SHUT_TIME`] one request may try. All others fail until the gate opens;
    /// each `connect_timeout` later one more may try.
    pub fn try_pass(&self, now: Nanos, connect_timeout: Duration) -> bool {
        let shut_until = self.shut_until.load(Relaxed);
        if shut_until == 0 {
            return true;
        }
        let next_shut_until = now.after(connect_timeout.into()).0;
        let claim_attempt = || {
            self.shut_until
                .compare_exchange(shut_until, next_shut_until, Relaxed, Relaxed)
                .is_ok()
        };
        shut_until <= now.0 && claim_attempt()
    }

    /// Shuts the gate for [`SHUT_TIME`], because no server accepted a connection.
    pub fn shut(&self, now: Nanos) {
        self.shut_until.store(now.after(SHUT_TIME).0, Relaxed);
    }

    /// Opens the gate, because a server accepted a connection.
    pub fn open(&self) {
        self.shut_until.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tries_for_all() {
        let gate = Gate::default();
        let connect_timeout = Duration::from_secs(2);
        let mut now = Nanos::from_secs(5);
        assert!(gate.try_pass(now, connect_timeout) && gate.try_pass(now, connect_timeout));
        gate.shut(now);
        assert!(!gate.try_pass(now, connect_timeout));
        now = now.after(SHUT_TIME);
        assert!(gate.try_pass(now, connect_timeout), "the one that tries");
        assert!(!gate.try_pass(now, connect_timeout));
        now = now.after(connect_timeout.into());
        assert!(
            gate.try_pass(now, connect_timeout),
            "the one before went away"
        );
        gate.open();
        assert!(gate.try_pass(now, connect_timeout) && gate.try_pass(now, connect_timeout));
    }
}
