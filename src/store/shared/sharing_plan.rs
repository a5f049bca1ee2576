//! [`SharingPlan`]: how one limit is shared. It has the limits by which this gateway and the store count, the terms of
//! leases, and what holds without the store. A plan never changes; an edited limit gets another plan.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use super::call::{CallPart, CounterName};
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, Alignment, Fingerprint, OnStoreError, RateLimit, Scale, Sharing};
use crate::store::RegisteredLimit;

/// How units are granted in advance. A gateway uses a granted unit at most `life` after its call, by its own clock. So all
/// units used in a window were granted in a window that is longer by `life`. In that window the store grants no more than
/// the limit admits.
#[derive(Clone, Debug)]
pub struct LeaseTerms {
    /// How long after its call a gateway may use the granted units.
    pub life: Nanos,
    /// The limit by which the store counts. Its windows are longer; see [`CLOCK_DRIFT_DIVISOR`].
    pub limit: RateLimit,
}

impl LeaseTerms {
    /// The terms for a limit; `None` if one of the longer windows is out of range for a rate.
    fn new(limit: &RateLimit) -> Option<LeaseTerms> {
        let life = limit.lease_life();
        let extension = Nanos(life.0 + life.0 / CLOCK_DRIFT_DIVISOR);
        let rates = limit.windows.iter();
        let windows = rates.map(|rate| rate.extended(extension));
        let windows = windows.collect::<Result<_, _>>().ok()?;
        let limit = RateLimit {
            windows,
            ..limit.clone()
        };
        Some(LeaseTerms { life, limit })
    }
}

/// The store's windows are longer by a lease's life, and by that life divided by this number, because the store's clock
/// may be faster. The clocks of two machines differ in speed by less than a thousandth.
const CLOCK_DRIFT_DIVISOR: u64 = 1_000;

/// One grant holds at most a gateway's equal part of the quota, divided by this number. So the part is granted in several
/// steps.
const GRANTS_PER_QUOTA: u32 = 4;

/// The keys of the hash that names counters: `tollgate` in ASCII, and the version of the hash.
const HASH_KEYS: (u64, u64) = (0x746f_6c6c_6761_7465, 1);

/// The most units of one grant, whatever the quota. It bounds the units of a key that stay unused when a gateway dies.
const MAX_GRANT_UNITS: u32 = 1 << 20;

/// How long limits with credits refuse everything while gateways have not reported what they used: longer than a gateway
/// takes to find a store that is back.
const MAX_CREDIT_REPORT_TIME: Nanos = Nanos::from_secs(60);

/// How one limit is shared.
#[derive(Clone, Debug)]
pub struct SharingPlan {
    /// The hash of the limit's scope, the store's windows, the algorithm, and whether the limit is elastic. Quotas are left
    /// out, so that an edited quota keeps its counters.
    pub hash: u64,
    /// The limit by which this gateway counts.
    pub limit: RateLimit,
    /// Holds the limit's slot in this gateway's memory, so that no limit of another scope gets it while the plan exists.
    pub registered: RegisteredLimit,
    /// How units are granted in advance; `None` if the store grants units only to requests that wait for it.
    pub lease: Option<LeaseTerms>,
    /// What holds while the store is away.
    pub on_store_error: OnStoreError,
}

impl SharingPlan {
    /// The plan of a limit; `None` if it is not shared. The plan has no lease if `sharing` is strict, if the limit cannot
    /// be leased, or if a longer window is out of range.
    pub fn new(
        scope: &str,
        limit: &RateLimit,
        registered: &RegisteredLimit,
        sharing: Sharing,
        on_store_error: OnStoreError,
    ) -> Option<SharingPlan> {
        let lease = match sharing {
            Sharing::Local => return None,
            Sharing::Strict => None,
            Sharing::Leased => LeaseTerms::new(limit).filter(|_| Sharing::can_lease(limit)),
        };
        // Gateways of different versions share counters, so the hash must never change.
        let mut hasher = SipHasher13::new_with_keys(HASH_KEYS.0, HASH_KEYS.1);
        hasher.write(scope.as_bytes());
        let store_limit = lease.as_ref().map_or(limit, |lease| &lease.limit);
        for rate in &store_limit.windows {
            hasher.write_u64(rate.window().0);
        }
        hasher.write_u8(match store_limit.algorithm {
            Algorithm::SlidingLog => 1,
            Algorithm::SlidingWindow => 2,
            Algorithm::MultiLevel => 3,
            // Not the zone and the start of a calendar, so that a counter keeps its units when these are edited.
            Algorithm::FixedWindow => {
                match store_limit.windows.first().map(|rate| rate.alignment()) {
                    Some(Alignment::Calendar(_)) => 7,
                    Some(Alignment::Clock) => 8,
                    Some(Alignment::Key) | None => 4,
                }
            }
            Algorithm::Gcra { .. } => 5,
            Algorithm::LeakyBucket { .. } => 6,
        });
        store_limit.throttle.is_elastic().hash(&mut hasher);
        Some(SharingPlan {
            hash: hasher.finish(),
            limit: limit.clone(),
            registered: registered.clone(),
            lease,
            on_store_error,
        })
    }

    /// The limit by which the store counts.
    pub fn store_limit(&self) -> &RateLimit {
        self.lease
            .as_ref()
            .map_or(&self.limit, |lease| &lease.limit)
    }

    /// How long a store that was away may lack units of the limit that no gateway reports: for its longest window. Units of
    /// gateways that are gone never leave the window of credits, so these are decided about again after a while.
    pub fn learning_window(&self) -> Nanos {
        match self.limit.is_credits() {
            true => MAX_CREDIT_REPORT_TIME,
            false => self.store_limit().longest_window(),
        }
    }

    /// The name of a key's counter.
    pub fn counter_name(&self, key: Fingerprint) -> CounterName {
        CounterName {
            limit: self.hash,
            key,
        }
    }

    /// The part of a call that asks for `cost` units of a key at a time of the wall clock, and for none in advance.
    pub fn call_part(&self, key: Fingerprint, scale: Scale, cost: u32, wall: Nanos) -> CallPart {
        CallPart::new(
            self.counter_name(key),
            self.store_limit().spec(key, scale, wall),
            cost,
        )
    }

    /// The most units that one grant may hold: a quarter of a gateway's part of the smallest quota, 1 to 2^20. A client's
    /// plan multiplies the quota by `plan_factor`.
    pub fn max_grant_units(&self, plan_factor: u32, gateway_count: u32) -> u32 {
        let quotas = self
            .limit
            .windows
            .iter()
            .map(|rate| rate.quota_times(plan_factor));
        let smallest_quota = quotas.min().unwrap_or(1);
        (smallest_quota / gateway_count.saturating_mul(GRANTS_PER_QUOTA).max(1))
            .clamp(1, MAX_GRANT_UNITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::{MemoryStore, Settings};

    /// The ledger keeps plans for a window, and looks up used units by their slots.
    #[test]
    fn a_plan_keeps_its_slot() {
        let memory = MemoryStore::new(Settings {
            budget_bytes: Settings::MIN_BUDGET_BYTES,
        });
        let memory = memory.unwrap();
        let limit = RateLimit::hard("5/m".parse().unwrap());
        let registered = memory.register("first", &limit).unwrap();
        let (sharing, on_error) = (Sharing::Strict, OnStoreError::Local);
        let plan = SharingPlan::new("first", &limit, &registered, sharing, on_error).unwrap();
        let slot = registered.slot();
        drop(registered);
        for number in 0..=u32::from(u16::MAX) {
            let other = memory.register(&number.to_string(), &limit).unwrap();
            assert_ne!(other.slot(), slot, "after {number} limits");
        }
        assert_eq!(plan.registered.slot(), slot);
    }
}
