//! [`PermitLease`]: this gateway's lease of the permits that gateways share. The store counts the permits of a gateway as
//! long as the gateway renews its lease. Nothing here does I/O.
//!
//! The store's lease ends a lease's life after it has executed a renewal. This gateway counts from when it sent the
//! renewal, by a clock that only goes forward. So it always sees the end first, and has ended its requests by then.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::base::clock::Nanos;
use crate::store::permits::permit_call::LeasePhase;

/// The lease is renewed so many times in its life.
const RENEWALS_PER_LIFE: u64 = 6;
/// The time before a lease's end in which its requests end: this part of its life.
const MARGIN_DIVISOR: u64 = 5;
/// The shortest and the longest such time. Open requests are looked at ten times a second.
const MIN_MARGIN: Nanos = Nanos::from_millis(500);
const MAX_MARGIN: Nanos = Nanos::from_secs(5);

/// One step of a lease in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Begin a lease that was never used.
    Begin,
    /// Renew a lease. It fails with [`StoreError::LeaseEnded`](super::call::StoreError::LeaseEnded) if the store does not
    /// have it any more.
    Renew,
    /// End a lease, and with it all permits of the gateway.
    End,
}

/// The lease of one gateway.
#[derive(Debug)]
pub struct PermitLease {
    /// How long the lease lives after a renewal.
    life: Nanos,
    /// Whether some limit ever shared permits. Before, there is no lease.
    is_used: AtomicBool,
    /// The number of the lease, unlike that of any other lease; 0 before the first.
    number: AtomicU64,
    /// One more than when the last renewal was sent, in nanoseconds; 0 before the first.
    renewed_at: AtomicU64,
}

impl PermitLease {
    /// A lease that has not begun.
    pub fn new(life: Nanos) -> PermitLease {
        PermitLease {
            life,
            is_used: AtomicBool::new(false),
            number: AtomicU64::new(0),
            renewed_at: AtomicU64::new(0),
        }
    }

    /// How long the lease lives after a renewal.
    pub fn life(&self) -> Nanos {
        self.life
    }

    /// Records that some limit shares permits.
    pub fn record_use(&self) {
        self.is_used.store(true, Relaxed);
    }

    /// Whether some limit ever shared permits.
    pub fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// The number of the lease; `None` before the first.
    pub fn number(&self) -> Option<u64> {
        Some(self.number.load(Acquire)).filter(|number| *number > 0)
    }

    /// Sets the number of a lease that the store has begun. `sent_at` is when the call was sent.
    pub fn begin(&self, number: u64, sent_at: Nanos) {
        self.renewed_at.store(sent_at.0 + 1, Release);
        self.number.store(number, Release);
    }

    /// Records a renewal that was sent at this time.
    pub fn record_renewal(&self, sent_at: Nanos) {
        self.renewed_at.fetch_max(sent_at.0 + 1, AcqRel);
    }

    /// Whether it is time to renew the lease.
    pub fn is_due(&self, now: Nanos) -> bool {
        self.age(now)
            .is_none_or(|age| age.0 >= self.life.0 / RENEWALS_PER_LIFE)
    }

    /// How far the lease has come.
    pub fn phase(&self, now: Nanos) -> LeasePhase {
        let margin = Nanos(self.life.0 / MARGIN_DIVISOR).clamp(MIN_MARGIN, MAX_MARGIN);
        match self.age(now) {
            None => LeasePhase::Forgotten,
            Some(age) if age.0 < self.life.0 / 2 => LeasePhase::Fresh,
            Some(age) if age.0 < self.life.0.saturating_sub(margin.0) => LeasePhase::Stale,
            Some(age) if age.0 < self.life.0.saturating_mul(2) => LeasePhase::Ended,
            Some(_) => LeasePhase::Forgotten,
        }
    }

    /// The time since the last renewal was sent; `None` before the first.
    fn age(&self, now: Nanos) -> Option<Nanos> {
        let renewed_at = self.renewed_at.load(Acquire).checked_sub(1)?;
        Some(now.since(Nanos(renewed_at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_here_before_it_ends_in_the_store() {
        let lease = PermitLease::new(Nanos::from_secs(60));
        let at = Nanos::from_secs;
        assert_eq!(lease.phase(at(1)), LeasePhase::Forgotten);
        assert!(lease.is_due(at(1)) && lease.number().is_none());
        lease.begin(7, at(100));
        for (seconds, phase) in [
            (100, LeasePhase::Fresh),
            (129, LeasePhase::Fresh),
            (130, LeasePhase::Stale),
            (154, LeasePhase::Stale),
            (155, LeasePhase::Ended),
            (219, LeasePhase::Ended),
            (220, LeasePhase::Forgotten),
        ] {
            assert_eq!(lease.phase(at(seconds)), phase, "at {seconds} s");
        }
        assert!(!lease.is_due(at(109)) && lease.is_due(at(110)));
        lease.record_renewal(at(110));
        // A reply that comes late says nothing new.
        lease.record_renewal(at(105));
        assert_eq!(lease.phase(at(139)), LeasePhase::Fresh);
    }
}
