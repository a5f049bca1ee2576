//! The calls that the keys of shared permits leave to be made, and what their replies change. One call about a key is
//! under way at a time.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::locked_shards::{SHARD_COUNT, ShardCounts, shard_index};
use super::permit_call::{LeasePhase, PermitCall, PermitDecider, PermitReply, StoreView};
use super::permit_request::{PermitKey, PermitScope, SharedTerms};
use super::shared_key::{LATE_CALL_TIME, SharedKey, WaitEnd, Waiter};
use super::{PermitGuard, Permits};
use crate::base::clock::Nanos;

/// What requests that waited get. It is sent without a lock, because a permit that nobody waits for any more returns.
type Deliveries = Vec<(Waiter, WaitEnd)>;

impl Permits {
    /// Makes the call about a key that is due, and marks it as under way. Requests get permits that are free here. `None`
    /// where no call is due, or another one is under way.
    pub fn next_call(&self, key: PermitKey, view: &StoreView, now: Nanos) -> Option<PermitCall> {
        let mut deliveries = Deliveries::new();
        let call = {
            let counts = &mut *self.shards[shard_index(&key)].0.lock();
            let ShardCounts { open, shared: keys } = counts;
            let shared = keys.get_mut(&key)?;
            let open_count = open.entry(key).or_insert(0);
            shared.waiters.retain(|waiter| !waiter.sender.is_closed());
            if can_grant(view) {
                grant(shared, open_count, &mut deliveries);
            }
            let call = shared.needs_call(*open_count, now).then(|| {
                let number = self.call_count.fetch_add(1, Relaxed) + 1;
                let lease = self.lease.load(Acquire);
                let may_be_overtaken = now.0 < self.late_calls_until.load(Relaxed);
                shared.make_call(key, lease, number, *open_count, may_be_overtaken, now)
            });
            let (is_unused, is_idle) = (*open_count == 0, shared.is_idle());
            if is_unused {
                open.remove(&key);
            }
            if is_unused && is_idle {
                keys.remove(&key);
            }
            call
        };
        self.deliver(key, deliveries);
        call
    }

    /// Records the reply to a call; `None` if it failed. Requests that it asked for get permits or are refused. Does
    /// nothing if the lease has changed since the call.
    pub fn record_reply(
        &self,
        call: &PermitCall,
        reply: Option<PermitReply>,
        view: &StoreView,
        now: Nanos,
    ) {
        let mut deliveries = Deliveries::new();
        if reply.is_none() {
            let until = now.after(LATE_CALL_TIME).0;
            self.late_calls_until.fetch_max(until, Relaxed);
        }
        {
            let counts = &mut *self.shards[shard_index(&call.key)].0.lock();
            let ShardCounts { open, shared: keys } = counts;
            let Some(shared) = keys.get_mut(&call.key) else {
                return;
            };
            let open_count = open.entry(call.key).or_insert(0);
            let is_current =
                shared.record_reply(call.number, reply, *open_count, view.decider, now);
            let is_decided = is_current && reply.is_some() && can_grant(view);
            if is_decided {
                grant(shared, open_count, &mut deliveries);
            }
            if is_current {
                let (asked, others): (Vec<_>, Vec<_>) = shared
                    .waiters
                    .drain(..)
                    .partition(|waiter| waiter.is_asked_for || reply.is_none());
                shared.waiters.extend(others);
                deliveries.extend(asked.into_iter().map(|waiter| {
                    let end = match is_decided {
                        true => WaitEnd::Refused,
                        false => WaitEnd::Undecided,
                    };
                    (waiter, end)
                }));
            }
            if *open_count == 0 {
                open.remove(&call.key);
                if shared.is_idle() {
                    keys.remove(&call.key);
                }
            }
        }
        self.deliver(call.key, deliveries);
    }

    /// Sends requests what they get. A request that has left gets nothing, and its permit returns.
    fn deliver(&self, key: PermitKey, deliveries: Deliveries) {
        for (waiter, end) in deliveries {
            let is_lost = waiter.sender.send(end).is_err();
            if is_lost && matches!(end, WaitEnd::Granted { .. }) {
                let lease = self.lease.load(Acquire);
                self.return_permit(key, lease, false, waiter.connection_index);
            }
        }
    }

    /// Keys about which calls are due, at most `max_count`. Each look begins with another shard, so that none has to wait
    /// for ever.
    pub fn due_keys(&self, max_count: usize, now: Nanos) -> Vec<PermitKey> {
        let mut due = Vec::new();
        let first = self.look_count.fetch_add(1, Relaxed) as usize % SHARD_COUNT;
        let (end, start) = self.shards.split_at(first);
        for shard in start.iter().chain(end) {
            let counts = shard.0.lock();
            let is_due = |(key, shared): &(&PermitKey, &SharedKey)| {
                shared.needs_call(counts.open_count(key), now)
            };
            let keys = counts.shared.iter().filter(is_due).map(|(key, _)| *key);
            due.extend(keys.take(max_count - due.len()));
        }
        due
    }

    /// Keys whose permits the store may count wrongly and about which no call is under way, at most `max_count`. And
    /// whether there are further such keys.
    pub fn unconfirmed_keys(&self, max_count: usize) -> (Vec<PermitKey>, bool) {
        let (mut keys, mut are_all) = (Vec::new(), true);
        for shard in &self.shards {
            let counts = shard.0.lock();
            for (key, shared) in counts
                .shared
                .iter()
                .filter(|(_, shared)| shared.must_confirm)
            {
                match shared.call.is_none() && keys.len() < max_count {
                    true => keys.push(*key),
                    false => are_all = false,
                }
            }
        }
        (keys, are_all)
    }

    /// Has the store count the requests of a limit that are open already. They were admitted before gateways shared it.
    /// `ceiling` is the number of permits of each of its keys; that of networks is set by their next requests.
    pub fn adopt(&self, scope: PermitScope, terms: SharedTerms, ceiling: u32, now: Nanos) {
        for shard in &self.shards {
            let ShardCounts { open, shared: keys } = &mut *shard.0.lock();
            for key in open.keys().filter(|key| key.scope.belongs_to(scope)) {
                let ceiling = match key.scope == scope {
                    true => ceiling,
                    false => u32::MAX,
                };
                let new_entry = || SharedKey::uncounted(terms, ceiling, now);
                keys.entry(*key).or_insert_with(new_entry);
            }
        }
    }

    /// Begins the lease with this number: the store counts nothing for this gateway yet. Open requests are to be counted.
    pub fn begin_lease(&self, lease: u64) {
        // Stored first, so that no call is made under the former lease once its key is reset.
        self.lease.store(lease, Release);
        for shard in &self.shards {
            let ShardCounts { open, shared: keys } = &mut *shard.0.lock();
            keys.retain(|key, shared| {
                let open_count = open.get(key).copied().unwrap_or(0);
                shared.begin_lease(open_count);
                open_count > 0 || !shared.is_idle()
            });
        }
    }

    /// The lease ends: requests beyond those that may outlive it must end. Each learns it by [`PermitGuard::is_revoked`],
    /// also after the next lease has begun.
    pub fn revoke(&self, view: &StoreView) {
        // Set first, so that each request that ends from now on is one fewer to end.
        let next_lease = self.lease.load(Acquire).saturating_add(1);
        self.revoking_below.store(next_lease, Release);
        let mut revoked_count = 0;
        for shard in &self.shards {
            let ShardCounts { open, shared: keys } = &mut *shard.0.lock();
            for (key, shared) in keys {
                let open_count = open.get(key).copied().unwrap_or(0);
                let staying_count = open_count.saturating_sub(shared.revoked);
                shared.to_revoke = staying_count.saturating_sub(shared.outliving_count(view));
                revoked_count += u64::from(shared.to_revoke);
            }
        }
        if revoked_count > 0 {
            tracing::warn!(
                requests = revoked_count,
                "requests end, because the lease of their permits could not be renewed"
            );
        }
    }

    /// Spares requests the look whether they must end, once all that must end know it. Call it where
    /// [`Permits::revoke`] is called, and not at the same time.
    pub fn finish_revocation(&self) {
        if self.revoking_below.load(Relaxed) == 0 {
            return;
        }
        let is_pending = |counts: &ShardCounts| {
            let mut keys = counts.shared.values();
            keys.any(|shared| shared.to_revoke > 0)
        };
        let mut shards = self.shards.iter();
        if !shards.any(|shard| is_pending(&shard.0.lock())) {
            self.revoking_below.store(0, Release);
        }
    }

    /// The number of open requests whose keys gateways share.
    pub fn shared_open_count(&self) -> u64 {
        let count_in = |counts: &ShardCounts| {
            let keys = counts.shared.keys();
            keys.map(|key| u64::from(counts.open_count(key)))
                .sum::<u64>()
        };
        let shards = self.shards.iter();
        shards.map(|shard| count_in(&shard.0.lock())).sum()
    }

    /// Tells the store's side that a call about a key is due.
    pub(super) fn report_due_call(&self, connection_index: u16, key: PermitKey) {
        if let Some(returns) = self.returns.get().and_then(std::sync::Weak::upgrade) {
            returns.call_is_due(connection_index, key);
        }
    }
}

impl PermitGuard {
    /// Whether the request must end, because its permit is lost with the lease. The store may give it to another gateway.
    pub fn is_revoked(&self) -> bool {
        if self.is_revoked.load(Relaxed) {
            return true;
        }
        // Requests that were admitted under a later lease are not those that lost their permits.
        if self.lease >= self.permits.revoking_below.load(Acquire) {
            return false;
        }
        let must_end = |key: &PermitKey| {
            let counts = &*self.permits.shards[shard_index(key)].0.lock();
            let shared = counts.shared.get(key);
            shared.is_some_and(|shared| shared.to_revoke > 0)
        };
        if !self.keys.iter().any(must_end) {
            return false;
        }
        let was_revoked = self.is_revoked.swap(true, AcqRel);
        debug_assert!(!was_revoked, "one task asks");
        // The end of the request gives back the permits of all its keys.
        for key in &self.keys {
            let counts = &mut *self.permits.shards[shard_index(key)].0.lock();
            if let Some(shared) = counts.shared.get_mut(key) {
                shared.to_revoke = shared.to_revoke.saturating_sub(1);
                shared.revoked += 1;
            }
        }
        true
    }
}

/// Whether permits that the store counts for this gateway may be given to requests.
fn can_grant(view: &StoreView) -> bool {
    view.decider != PermitDecider::Part && view.phase == LeasePhase::Fresh
}

/// Gives permits that are free here to requests that wait, the first ones first. Plans differ in their ceilings, so one
/// that has no room may stand before one that has.
fn grant(shared: &mut SharedKey, open_count: &mut u32, deliveries: &mut Deliveries) {
    let mut index = 0;
    while shared.held > *open_count {
        let counted = open_count.saturating_add(shared.others).saturating_add(1);
        let Some(waiter) = shared.waiters.get(index) else {
            return;
        };
        if counted > waiter.ceiling {
            index += 1;
        } else if let Some(waiter) = shared.waiters.remove(index) {
            *open_count += 1;
            deliveries.push((waiter, WaitEnd::Granted { counted }));
        }
    }
}
