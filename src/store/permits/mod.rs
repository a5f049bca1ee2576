//! Permits of open requests: how many each key holds. They belong to this process, because only it knows when a request
//! has ended. No permit can be forgotten: dropping the [`PermitGuard`] returns it.
//!
//! Where gateways share a limit, a permit is also one of those that the store counts for this gateway. This module decides
//! what to say to the store, and what its replies mean; `store/shared/` sends the calls.
//!
//! Bound: one entry of 48 bytes for each key with an open request and for each network around it. The entry is removed with
//! the key's last request; the tables keep their size. A key that gateways share has an entry of 200 bytes more, until the
//! store has confirmed that this gateway holds none of its permits.
//!
//! | file | what it is |
//! |---|---|
//! | `permit_request` | a request for one permit of a limit, and the keys that count it |
//! | `locked_shards` | the shards of the counts that a request needs |
//! | `permit_call` | calls to a store about permits, and its replies |
//! | `shared_key` | what this gateway holds of a key that gateways share |
//! | `shared_taking` | how a request takes permits that gateways share |
//! | `shared_calls` | the calls that are due, and what their replies change |

mod locked_shards;
pub mod permit_call;
mod permit_request;
mod shared_calls;
mod shared_key;
mod shared_taking;
#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

use smallvec::SmallVec;

use self::locked_shards::{LockedShards, PermitShard, SHARD_COUNT, ShardCounts, shard_index};
use self::permit_call::PermitReturns;
use crate::base::clock::Clock;
use crate::limit::LimitFinding;

pub use permit_request::{PermitKey, PermitRequest, PermitScope, SharedTerms};
pub use shared_key::{LATE_CALL_TIME, STORED_TIME};
pub use shared_taking::{PermitDecision, TakeStep, WaitingPermits};

/// The permits that open requests hold, by key.
#[derive(Debug)]
pub struct Permits {
    shards: Box<[PermitShard]>,
    /// The clock, where permits are shared.
    clock: Option<Clock>,
    /// The number of calls that were made about shared permits.
    call_count: AtomicU64,
    /// Until then a call that had no reply may still be executed, in nanoseconds.
    late_calls_until: AtomicU64,
    /// The number of looks for calls that are due.
    look_count: AtomicU64,
    /// The lease under which the store counts shared permits; 0 before the first.
    lease: AtomicU64,
    /// Requests that were admitted under leases below this one may have to end: see [`PermitGuard::is_revoked`]. 0 where
    /// none must.
    revoking_below: AtomicU64,
    /// Who sends the calls; unset where no permits are shared.
    returns: OnceLock<Weak<dyn PermitReturns>>,
}

impl Default for Permits {
    fn default() -> Permits {
        let shards = (0..SHARD_COUNT).map(|_| PermitShard::default());
        Permits {
            shards: shards.collect(),
            clock: None,
            call_count: AtomicU64::new(0),
            late_calls_until: AtomicU64::new(0),
            look_count: AtomicU64::new(0),
            lease: AtomicU64::new(0),
            revoking_below: AtomicU64::new(0),
            returns: OnceLock::new(),
        }
    }
}

impl Permits {
    /// Permits that gateways may share.
    pub fn shared(clock: Clock) -> Permits {
        Permits {
            clock: Some(clock),
            ..Permits::default()
        }
    }

    /// Sets who sends the calls about shared permits. Only the first call has an effect.
    pub fn connect(&self, returns: Weak<dyn PermitReturns>) {
        let _ = self.returns.set(returns);
    }

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
        let mut guard = PermitGuard::new(Arc::clone(self), 0);
        let mut locked = LockedShards::new(&self.shards, requests);
        let has_room = locked.evaluate(requests, findings, false);
        let is_admitted = decide_others(has_room) && has_room;
        if is_admitted {
            locked.take_permits(requests, findings, &mut guard.keys);
        }
        (is_admitted, guard)
    }

    /// Returns whether there is room for all permit requests but shadows, and takes nothing. The findings are those before
    /// permits are taken. Of permits that gateways share, those of others count as far as this gateway knows.
    pub fn peek(
        &self,
        requests: &[PermitRequest<'_>],
        findings: &mut SmallVec<[LimitFinding; 2]>,
    ) -> bool {
        LockedShards::new(&self.shards, requests).evaluate(requests, findings, true)
    }

    /// The number of permits that are held, by scope. Those of networks are counted under other scopes than the limits'.
    pub fn counts_by_scope(&self) -> HashMap<PermitScope, u64> {
        let mut sums = HashMap::new();
        for shard in &self.shards {
            for (key, count) in &shard.0.lock().open {
                *sums.entry(key.scope).or_insert(0) += u64::from(*count);
            }
        }
        sums
    }

    /// The number of permits that a key holds.
    pub fn open_count(&self, key: &PermitKey) -> u32 {
        self.shards[shard_index(key)].0.lock().open_count(key)
    }

    /// The number of keys and networks with a permit.
    pub fn key_count(&self) -> usize {
        let lengths = self.shards.iter().map(|shard| shard.0.lock().open.len());
        lengths.sum()
    }

    /// Returns one permit of a key, of a request that was admitted under `lease`. `is_revoked` says that it had lost its
    /// permits.
    fn return_permit(&self, key: PermitKey, lease: u64, is_revoked: bool, connection_index: u16) {
        let may_be_lost = lease < self.revoking_below.load(Acquire);
        let is_call_due = {
            let ShardCounts { open, shared: keys } = &mut *self.shards[shard_index(&key)].0.lock();
            let remaining = open.get_mut(&key).map(|count| {
                *count = count.saturating_sub(1);
                *count
            });
            debug_assert!(remaining.is_some(), "a permit that is returned was taken");
            if remaining == Some(0) {
                open.remove(&key);
            }
            // Most gateways share no permits.
            let shared = match keys.is_empty() {
                true => None,
                false => keys.get_mut(&key),
            };
            let (open_count, clock) = (remaining.unwrap_or(0), self.clock.as_ref());
            let (mut is_due, mut is_idle) = (false, false);
            if let Some((shared, clock)) = shared.zip(clock) {
                if is_revoked {
                    shared.revoked = shared.revoked.saturating_sub(1);
                } else if may_be_lost {
                    shared.to_revoke = shared.to_revoke.saturating_sub(1);
                }
                if open_count == 0 {
                    shared.forget_uncounted();
                }
                is_due = shared.needs_call(open_count, clock.now());
                is_idle = open_count == 0 && shared.is_idle();
            }
            if is_idle {
                keys.remove(&key);
            }
            is_due
        };
        if is_call_due {
            self.report_due_call(connection_index, key);
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
    /// The connection over which shared permits return.
    connection_index: u16,
    /// The lease under which the request was admitted; 0 before the first.
    lease: u64,
    /// Whether the request must end.
    is_revoked: AtomicBool,
}

impl PermitGuard {
    fn new(permits: Arc<Permits>, connection_index: u16) -> PermitGuard {
        PermitGuard {
            lease: permits.lease.load(Acquire),
            permits,
            keys: SmallVec::new(),
            connection_index,
            is_revoked: AtomicBool::new(false),
        }
    }

    /// A guard with the permit of one key that gateways share.
    fn of_shared(permits: Arc<Permits>, connection_index: u16, key: PermitKey) -> PermitGuard {
        let mut guard = PermitGuard::new(permits, connection_index);
        guard.keys.push(key);
        guard
    }

    /// Whether the guard holds no permits.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether gateways may share some of the permits, so that the request may lose them. A reload may share the permits
    /// of requests that are open already.
    pub fn may_be_lost(&self) -> bool {
        self.permits.clock.is_some() && !self.keys.is_empty()
    }

    /// Takes over the permits of another guard, which no request has used yet.
    fn absorb(&mut self, mut other: PermitGuard) {
        self.keys.append(&mut other.keys);
    }
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        let is_revoked = self.is_revoked.load(Relaxed);
        for key in std::mem::take(&mut self.keys) {
            self.permits
                .return_permit(key, self.lease, is_revoked, self.connection_index);
        }
    }
}
