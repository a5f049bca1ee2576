//! Permits of open requests: how many each key holds. They belong to this process even where rates are shared, because only
//! it knows when a request has ended. No permit can be forgotten: dropping the [`PermitGuard`] returns it.
//!
//! Bound: one entry of 48 bytes for each key with an open request and for each network around it. The entry is removed with
//! the key's last request; the tables keep their size.

mod locked_shards;
mod permit_request;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use self::locked_shards::{LockedShards, PermitShard, SHARD_COUNT, shard_index};
use self::permit_request::PermitKey;
use crate::limit::LimitFinding;

pub use permit_request::{PermitRequest, PermitScope};

/// The permits that open requests hold, by key.
#[derive(Debug)]
pub struct Permits {
    shards: Box<[PermitShard]>,
}

impl Default for Permits {
    fn default() -> Permits {
        let shards = (0..SHARD_COUNT).map(|_| PermitShard::default());
        Permits {
            shards: shards.collect(),
        }
    }
}

impl Permits {
    /// Takes a permit for each permit request that has room. Takes none at all if one that is not a shadow has no room, or
    /// if `decide_others` returns `false`.
    ///
    /// `decide_others` decides about the other limits of the request. It receives whether there is room for the permits,
    /// and returns whether the other limits admit. It is called once, while none of these permits can be taken or
    /// returned. So it must not wait.
    ///
    /// Leaves one finding for each permit request; if permits are taken, they no longer count as remaining. Returns whether
    /// the request passes, and its permits.
    pub fn take(
        self: &Arc<Self>,
        requests: &[PermitRequest<'_>],
        findings: &mut SmallVec<[LimitFinding; 2]>,
        decide_others: impl FnOnce(bool) -> bool,
    ) -> (bool, PermitGuard) {
        // Made before the locks, so that they are released before it is dropped, whatever happens.
        let mut guard = PermitGuard {
            permits: Arc::clone(self),
            keys: SmallVec::new(),
        };
        let mut locked = LockedShards::new(&self.shards, requests);
        let has_room = locked.evaluate(requests, findings);
        let is_admitted = decide_others(has_room) && has_room;
        if is_admitted {
            locked.take_permits(requests, findings, &mut guard.keys);
        }
        (is_admitted, guard)
    }

    /// Returns whether there is room for all permit requests but shadows, and takes nothing. The findings are those before
    /// permits are taken.
    pub fn peek(
        &self,
        requests: &[PermitRequest<'_>],
        findings: &mut SmallVec<[LimitFinding; 2]>,
    ) -> bool {
        LockedShards::new(&self.shards, requests).evaluate(requests, findings)
    }

    /// The number of permits that are held, by scope. Those of networks are counted under other scopes than the limits'.
    pub fn counts_by_scope(&self) -> HashMap<PermitScope, u64> {
        let mut sums = HashMap::new();
        for shard in &self.shards {
            for (key, count) in &*shard.0.lock() {
                *sums.entry(key.scope).or_insert(0) += u64::from(*count);
            }
        }
        sums
    }

    /// The number of keys and networks with a permit.
    pub fn key_count(&self) -> usize {
        let lengths = self.shards.iter().map(|shard| shard.0.lock().len());
        lengths.sum()
    }

    /// Returns one permit of a key.
    fn return_permit(&self, key: PermitKey) {
        let counts = &mut *self.shards[shard_index(&key)].0.lock();
        let remaining = counts.get_mut(&key).map(|count| {
            *count = count.saturating_sub(1);
            *count
        });
        debug_assert!(remaining.is_some(), "a permit that is returned was taken");
        if remaining == Some(0) {
            counts.remove(&key);
        }
    }
}

/// The permits of one request. Dropping the guard gives them back at once.
#[derive(Debug)]
#[must_use = "permits that are dropped are free again"]
pub struct PermitGuard {
    permits: Arc<Permits>,
    /// The keys under which the permits are counted: those of the permit requests, and those of the networks.
    keys: SmallVec<[PermitKey; 1]>,
}

impl PermitGuard {
    /// Whether the guard holds no permits.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        for key in self.keys.drain(..) {
            self.permits.return_permit(key);
        }
    }
}
