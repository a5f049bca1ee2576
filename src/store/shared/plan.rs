//! How one limit is shared: what a store is asked for, and what holds without it.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use super::call::{CallPart, CounterName};
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, Fingerprint, Limit, OnError, Rate, Scale, Sharing};
use crate::store::Registered;

/// Units that are granted in advance. What a gateway uses at one moment was granted at most `life` before, as its
/// own clock counts from when it asked; so all that is used in a window was granted in one that is longer by
/// that, and there the store admits no more than the limit says.
#[derive(Clone, Debug)]
pub struct LeaseTerms {
    /// How long a unit may be used.
    pub life: Nanos,
    /// What the store counts by: the limit with longer windows.
    pub limit: Limit,
}

impl LeaseTerms {
    fn of(limit: &Limit) -> Option<LeaseTerms> {
        let life = limit.lease_life();
        // Clocks of two machines go differently fast, by less than a thousandth.
        let longer = Nanos(life.0 + life.0 / 1_000);
        let windows = limit.windows.iter();
        let windows = windows.map(|rate| Rate::new(rate.quota(), rate.window().after(longer)));
        let windows = windows.collect::<Result<_, _>>().ok()?;
        let limit = Limit {
            windows,
            ..limit.clone()
        };
        Some(LeaseTerms { life, limit })
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct SharingPlan {
    /// Hash of the limit's scope and of the shape of what is counted.
    pub hash: u64,
    /// What this gateway counts by.
    pub limit: Limit,
    /// Where it does. The place is not given to another limit while somebody counts by this.
    pub registered: Registered,
    /// How units are granted in advance, if they are.
    pub lease: Option<LeaseTerms>,
    /// What holds without the store.
    pub on_error: OnError,
}

impl SharingPlan {
    /// How the limit of `scope` is shared; nothing when it is not.
    pub fn new(
        scope: &str,
        limit: &Limit,
        registered: &Registered,
        (sharing, on_error): (Sharing, OnError),
    ) -> Option<SharingPlan> {
        let lease = match sharing {
            Sharing::Local => return None,
            Sharing::Strict => None,
            Sharing::Leased => LeaseTerms::of(limit).filter(|_| Sharing::leasable(limit)),
        };
        // Gateways of several versions share counters: the hash may never change.
        let mut hasher = SipHasher13::new_with_keys(0x746f_6c6c_6761_7465, 1);
        hasher.write(scope.as_bytes());
        let counted = lease.as_ref().map_or(limit, |lease| &lease.limit);
        for rate in &counted.windows {
            hasher.write_u64(rate.window().0);
        }
        hasher.write_u8(match counted.algorithm {
            Algorithm::SlidingLog => 1,
            Algorithm::SlidingWindow => 2,
            Algorithm::MultiLevel => 3,
            Algorithm::FixedWindow => 4,
            Algorithm::Gcra { .. } => 5,
            Algorithm::LeakyBucket { .. } => 6,
        });
        counted.throttle.lends().hash(&mut hasher);
        Some(SharingPlan {
            hash: hasher.finish(),
            limit: limit.clone(),
            registered: registered.clone(),
            lease,
            on_error,
        })
    }

    /// What the store counts by.
    pub fn counted(&self) -> &Limit {
        self.lease
            .as_ref()
            .map_or(&self.limit, |lease| &lease.limit)
    }

    /// A counter of this limit.
    pub fn name(&self, key: Fingerprint) -> CounterName {
        CounterName {
            limit: self.hash,
            key,
        }
    }

    /// Asks for units of a key.
    pub fn part(&self, key: Fingerprint, scale: Scale, cost: u32) -> CallPart {
        CallPart::new(self.name(key), self.counted().spec(key, scale), cost)
    }

    /// The most units of the smallest quota that one grant may hold, among so many gateways.
    pub fn most(&self, multiply: u32, gateways: u32) -> u32 {
        let quotas = self.limit.windows.iter().map(|rate| rate.times(multiply));
        let least = quotas.min().unwrap_or(1);
        (least / gateways.saturating_mul(4).max(1)).clamp(1, 1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::{Memory, Settings};

    /// The ledger keeps plans for a window, and looks up by them what was used.
    #[test]
    fn a_plan_keeps_its_slot() {
        let memory = Memory::new(Settings {
            budget: Settings::LEAST,
        });
        let memory = memory.unwrap();
        let limit = Limit::hard("5/m".parse().unwrap());
        let registered = memory.register("first", &limit).unwrap();
        let terms = (Sharing::Strict, OnError::Local);
        let plan = SharingPlan::new("first", &limit, &registered, terms).unwrap();
        let slot = registered.slot();
        drop(registered);
        for number in 0..=u32::from(u16::MAX) {
            let other = memory.register(&number.to_string(), &limit).unwrap();
            assert_ne!(other.slot(), slot, "after {number} limits");
        }
        assert_eq!(plan.registered.slot(), slot);
    }
}
