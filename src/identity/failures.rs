//! Limits the signatures of one address that fail to verify, because a check costs a hundred times as much as a
//! refusal.
//!
//! Each address, grouped as for limits by ip, may fail [`MAX_FAILURES`] times at once and then once each
//! [`RECOVERY_INTERVAL`]. Beyond [`MAX_ADDRESSES`] addresses the least used ones are forgotten.

use parking_lot::Mutex;

use super::fingerprint_cache::FingerprintCache;
use crate::base::clock::Nanos;
use crate::limit::Fingerprint;

/// Signatures of one address that may fail at once.
pub const MAX_FAILURES: u64 = 20;

/// Time after which one failure is forgotten.
pub const RECOVERY_INTERVAL: Nanos = Nanos::from_secs(1);

/// Addresses whose failures are remembered.
pub const MAX_ADDRESSES: usize = 4_096;

/// Maps each address to the time at which all of its failures will be forgotten.
#[derive(Debug)]
pub(super) struct SignatureFailures(Mutex<FingerprintCache<Nanos>>);

impl Default for SignatureFailures {
    fn default() -> SignatureFailures {
        SignatureFailures(Mutex::new(FingerprintCache::new(MAX_ADDRESSES)))
    }
}

impl SignatureFailures {
    /// Whether another signature of this address may be checked.
    pub(super) fn may_fail_again(&self, address: Fingerprint, now: Nanos) -> bool {
        let all_forgotten_at = self.0.lock().get(address).copied().unwrap_or_default();
        all_forgotten_at.since(now).0 + RECOVERY_INTERVAL.0 <= MAX_FAILURES * RECOVERY_INTERVAL.0
    }

    /// Counts a signature of this address that did not verify.
    pub(super) fn add(&self, address: Fingerprint, now: Nanos) {
        let mut cache = self.0.lock();
        let all_forgotten_at = cache.get(address).copied().unwrap_or_default();
        cache.put(address, all_forgotten_at.max(now).after(RECOVERY_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_may_fail_so_often_and_recovers() {
        let (failures, mut now) = (SignatureFailures::default(), Nanos::from_secs(1_000));
        let (one, other) = (Fingerprint(1), Fingerprint(2));
        let fails = |address, now| {
            let may_fail = failures.may_fail_again(address, now);
            if may_fail {
                failures.add(address, now);
            }
            may_fail
        };
        let at_once = (0..100).filter(|_| fails(one, now)).count();
        assert_eq!(at_once as u64, MAX_FAILURES);
        assert!(fails(other, now));
        for _ in 0..100 {
            now = now.after(RECOVERY_INTERVAL);
            assert!(fails(one, now));
            assert!(!fails(one, now));
        }
        now = now.after(Nanos::from_secs(3_600));
        let at_once = (0..100).filter(|_| fails(one, now)).count();
        assert_eq!(at_once as u64, MAX_FAILURES);
    }
}
