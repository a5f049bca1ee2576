//! Permits of open requests: how many are out for each key. They belong to this process, wherever rates are counted, because
//! only it knows when a request has ended. No permit can be forgotten: dropping the [`PermitGuard`] returns it.
//!
//! Bound: one entry of 48 bytes for each key with an open request and for each network around it. The entry goes with the
//! last request; the tables keep their size.

mod locked;
mod request;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use self::locked::{LockedShards, PermitShard, SHARDS, shard_of};
use self::request::PermitKey;
use crate::limit::LimitReading;

pub use request::{PermitRequest, PermitScope};

/// See the module.
#[derive(Debug)]
pub struct Permits {
    shards: Box<[PermitShard]>,
}

impl Default for Permits {
    fn default() -> Permits {
        let shards = (0..SHARDS).map(|_| PermitShard::default());
        Permits {
            shards: shards.collect(),
        }
    }
}

impl Permits {
    /// Takes a permit for each want, or none at all. `others` decides about everything else that the
    /// request must pass: it learns whether the permits are there and says whether all else admits. It is called
    /// once, while none of these permits can be taken or returned. So it must not wait.
    ///
    /// Leaves one reading for each want and says whether the request passes.
    pub fn take(
        self: &Arc<Self>,
        wants: &[PermitRequest<'_>],
        readings: &mut SmallVec<[LimitReading; 2]>,
        others: impl FnOnce(bool) -> bool,
    ) -> (bool, PermitGuard) {
        // Made before the locks, so that whatever happens they are gone when it is dropped.
        let mut taken = PermitGuard {
            permits: Arc::clone(self),
            places: SmallVec::new(),
        };
        let mut locked = LockedShards::new(&self.shards, wants);
        let there = locked.look(wants, readings);
        let admitted = others(there) && there;
        if admitted {
            locked.give(wants, readings, &mut taken.places);
        }
        (admitted, taken)
    }

    /// What [`Permits::take`] would say, taking nothing.
    pub fn peek(
        &self,
        wants: &[PermitRequest<'_>],
        readings: &mut SmallVec<[LimitReading; 2]>,
    ) -> bool {
        LockedShards::new(&self.shards, wants).look(wants, readings)
    }

    /// The number of permits that are out, by scope.
    pub fn out(&self) -> HashMap<PermitScope, u64> {
        let mut sums = HashMap::new();
        for shard in &self.shards {
            for (place, count) in &*shard.0.lock() {
                *sums.entry(place.scope).or_insert(0) += u64::from(*count);
            }
        }
        sums
    }

    /// The number of keys and networks with a permit out.
    pub fn entries(&self) -> usize {
        let each = self.shards.iter().map(|shard| shard.0.lock().len());
        each.sum()
    }

    fn give_back(&self, place: PermitKey) {
        let counts = &mut *self.shards[shard_of(&place)].0.lock();
        let left = counts.get_mut(&place).map(|count| {
            *count = count.saturating_sub(1);
            *count
        });
        debug_assert!(left.is_some(), "what comes back was given out");
        if left == Some(0) {
            counts.remove(&place);
        }
    }
}

/// The permits of one request. Dropping the guard gives them back at once.
#[derive(Debug)]
#[must_use = "permits that are dropped are free again"]
pub struct PermitGuard {
    permits: Arc<Permits>,
    places: SmallVec<[PermitKey; 1]>,
}

impl PermitGuard {
    /// Whether it holds no permits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        for place in self.places.drain(..) {
            self.permits.give_back(place);
        }
    }
}
