//! Keeps requests from waiting in vain for connections. After no server accepted one, all requests fail at once for a
//! moment; then one request tries again for all.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::base::clock::Nanos;

/// The time from a search without success to the next one.
const PAUSE: Nanos = Nanos::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub struct Gate {
    /// The time until which the gate is shut; 0 while it is open.
    until: AtomicU64,
}

impl Gate {
    /// Whether a request may try for a connection. While the gate is shut, the one that may has `patience` to do so before
    /// the next is admitted.
    pub fn admits(&self, now: Nanos, patience: Duration) -> bool {
        let until = self.until.load(Relaxed);
        if until == 0 {
            return true;
        }
        let next = now.after(patience.into()).0;
        let claim = || {
            self.until
                .compare_exchange(until, next, Relaxed, Relaxed)
                .is_ok()
        };
        until <= now.0 && claim()
    }

    /// No server accepted a connection.
    pub fn shut(&self, now: Nanos) {
        self.until.store(now.after(PAUSE).0, Relaxed);
    }

    /// A server accepted a connection.
    pub fn open(&self) {
        self.until.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tries_for_all() {
        let gate = Gate::default();
        let patience = Duration::from_secs(2);
        let mut now = Nanos::from_secs(5);
        assert!(gate.admits(now, patience) && gate.admits(now, patience));
        gate.shut(now);
        assert!(!gate.admits(now, patience));
        now = now.after(PAUSE);
        assert!(gate.admits(now, patience), "the one that tries");
        assert!(!gate.admits(now, patience));
        now = now.after(patience.into());
        assert!(gate.admits(now, patience), "the one before went away");
        gate.open();
        assert!(gate.admits(now, patience) && gate.admits(now, patience));
    }
}
