//! Limits how many signatures from one address may fail to verify, because verifying one costs far more CPU time than
//! refusing a request.
//!
//! At each worker, an address may fail [`MAX_FAILURES`] times at once and then once each [`RECOVERY_INTERVAL`].
//! Addresses are grouped as for limits by ip. The failures are in a `FingerprintCache` of [`MAX_ADDRESSES`] entries.
//! When one of its sets is full, it forgets an address, even if the cache as a whole has room.

use parking_lot::Mutex;

use super::fingerprint_cache::FingerprintCache;
use crate::base::clock::Nanos;
use crate::limit::Fingerprint;

/// Maximum number of signatures of one address that may fail at once, before further ones are not checked.
pub const MAX_FAILURES: u64 = 20;

/// Time after which one failure is forgotten.
pub const RECOVERY_INTERVAL: Nanos = Nanos::from_secs(1);

/// Maximum number of addresses whose failures are remembered.
pub const MAX_ADDRESSES: usize = 4_096;

/// Maps the hash of each address to the time at which all of its failures will be forgotten.
#[derive(Debug)]
pub(super) struct SignatureFailures(Mutex<FingerprintCache<Nanos>>);

impl Default for SignatureFailures {
    fn default() -> SignatureFailures {
        SignatureFailures(Mutex::new(FingerprintCache::new(MAX_ADDRESSES)))
    }
}

impl SignatureFailures {
    /// Whether another signature of this address may be checked at `now`. Threads that check at the same time may
    /// exceed the maximum.
    pub(super) fn may_fail_again(&self, address: Fingerprint, now: Nanos) -> bool {
        let all_forgotten_at = self.0.lock().get(address).copied().unwrap_or_default();
        // Each remembered failure takes one interval until `all_forgotten_at`, and another one must fit.
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
