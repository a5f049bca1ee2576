//! A bound on the failed signatures of one address: checking a signature costs a hundred times as much as a refusal.
//!
//! Bound: [`MOST`] at once and one each [`PACE`] for each address, grouped as for limits by ip. Of [`ADDRESSES`]
//! addresses the least used make room.

use parking_lot::Mutex;

use super::fingerprint_cache::FingerprintCache;
use crate::base::clock::Nanos;
use crate::limit::Fingerprint;

/// Signatures that may fail at once.
pub const MOST: u64 = 20;

/// Time after which one more may fail.
pub const PACE: Nanos = Nanos::from_secs(1);

/// Addresses that are remembered.
pub const ADDRESSES: usize = 4_096;

/// For each address the time at which all that failed is forgotten.
#[derive(Debug)]
pub(super) struct SignatureFailures(Mutex<FingerprintCache<Nanos>>);

impl Default for SignatureFailures {
    fn default() -> SignatureFailures {
        SignatureFailures(Mutex::new(FingerprintCache::new(ADDRESSES)))
    }
}

impl SignatureFailures {
    /// Whether another signature of this address may be checked.
    pub(super) fn has_room(&self, address: Fingerprint, now: Nanos) -> bool {
        let forgotten = self.0.lock().get(address).copied().unwrap_or_default();
        forgotten.since(now).0 + PACE.0 <= MOST * PACE.0
    }

    /// Counts one that did not verify.
    pub(super) fn add(&self, address: Fingerprint, now: Nanos) {
        let mut cache = self.0.lock();
        let forgotten = cache.get(address).copied().unwrap_or_default();
        cache.put(address, forgotten.max(now).after(PACE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_room_which_comes_back() {
        let (failures, mut now) = (SignatureFailures::default(), Nanos::from_secs(1_000));
        let (one, other) = (Fingerprint(1), Fingerprint(2));
        let fails = |address, now| {
            let room = failures.has_room(address, now);
            if room {
                failures.add(address, now);
            }
            room
        };
        let at_once = (0..100).filter(|_| fails(one, now)).count();
        assert_eq!(at_once as u64, MOST);
        assert!(fails(other, now));
        for _ in 0..100 {
            now = now.after(PACE);
            assert!(fails(one, now));
            assert!(!fails(one, now));
        }
        now = now.after(Nanos::from_secs(3_600));
        let at_once = (0..100).filter(|_| fails(one, now)).count();
        assert_eq!(at_once as u64, MOST);
    }
}
