//! How [`SharedStore`] sends the calls about permits that gateways share, and keeps the lease of this gateway's permits.
//! `store/permits/` decides what to send.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::breaker::{DecidedBy, StoreStatus};
use super::call::StoreError;
use super::pending_call::SharedDecision;
use super::permit_lease::LeaseStep;
use super::shared_item::SharedItems;
use super::shared_store::{BACKGROUND_TIMEOUT, SharedStore};
use crate::base::clock::Nanos;
use crate::store::permits::permit_call::{
    LeasePhase, PermitCall, PermitDecider, PermitReply, PermitReturns, StoreView,
};
use crate::store::permits::{PermitDecision, PermitKey, WaitingPermits};

/// The most calls about permits that the keeper sends at a time.
const MAX_CALLS_AT_ONCE: usize = 256;
/// The pause between two looks for calls of requests that are under way.
const CALL_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The pause between two looks at the lease.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// The pause between two looks whether there is a lease.
const UNUSED_INTERVAL: Duration = Duration::from_secs(1);
/// The number of ticks between two looks for calls that no request has made.
const TICKS_PER_LOOK: u64 = 5;

/// What the store's keeper knows of the lease.
#[derive(Debug, Default)]
pub(super) struct LeaseKeeper {
    /// Whether the store may have lost the lease or permits of it, so that a new one must begin.
    must_begin: bool,
    /// Whether the last look found as many calls as are sent at a time.
    has_more_calls: bool,
    /// Whether the lease ended in the store, which may have given its permits to other gateways.
    has_lost: bool,
}

impl SharedStore {
    /// What this gateway knows of the store when it decides about permits.
    pub fn permit_view(&self, connection_index: usize, now: Nanos) -> StoreView {
        let breaker = &self.decider.breaker;
        let decider = match breaker.decided_by(self.permit_lease.life(), now) {
            DecidedBy::Store => PermitDecider::Store,
            DecidedBy::Both => PermitDecider::Both,
            DecidedBy::Share => PermitDecider::Part,
        };
        StoreView {
            decider,
            phase: self.permit_lease.phase(now),
            gateway_count: breaker.gateway_count().max(1),
            connection_index: u16::try_from(connection_index).unwrap_or(u16::MAX),
        }
    }

    /// Records that a limit shares permits. The store's keeper begins a lease then.
    pub fn record_shared_permits(&self) {
        self.permit_lease.record_use();
        // Gateways that died while the store was away may have had open requests for so long.
        self.decider.ledger.record_window(self.permit_lease.life());
    }

    /// The refusal of a request by limits on rates, if this gateway knows it. So no permit is asked for and returned, and a
    /// flood of refused requests spares the store. `None` also where shadow limits count refused requests.
    pub fn refuse_early(&self, items: &SharedItems, now: Nanos) -> Option<SharedDecision> {
        if items.is_empty() || items.iter().any(|item| item.is_shadow) {
            return None;
        }
        let decision = self.decider.peek(items, now);
        let is_refused = !decision.is_admitted;
        is_refused.then(|| {
            self.count_decision(&decision, &self.tally.decided_without_call);
            decision
        })
    }

    /// Waits until the store has decided about permits, for at most [`Settings::budget`](super::Settings::budget). Returns
    /// the decision, and what is left of the budget.
    pub async fn wait_for_permits(
        self: &Arc<Self>,
        waiting: WaitingPermits,
        findings: &mut smallvec::SmallVec<[crate::limit::LimitFinding; 2]>,
        connection_index: usize,
    ) -> (PermitDecision, Duration) {
        let (budget, sent_at) = (self.settings.budget, self.clock.now());
        let view = || {
            let now = self.clock.now();
            (self.permit_view(connection_index, now), now)
        };
        let decision = waiting.wait(findings, budget, view).await;
        let elapsed = Duration::from(self.clock.now().since(sent_at));
        let counter = match decision.is_alone {
            true => &self.tally.decided_alone,
            false => &self.tally.decided_with_call,
        };
        counter.fetch_add(1, Relaxed);
        (decision, budget.saturating_sub(elapsed))
    }

    /// The number of permits of a key that other gateways hold; `None` without a reply of the store.
    pub async fn read_other_permits(&self, connection_index: usize, key: PermitKey) -> Option<u32> {
        let call = PermitCall::read(key, self.permit_lease.number().unwrap_or(0));
        let reply = self.client.set_permits(connection_index, &call);
        let reply = timeout(self.settings.budget, reply).await.ok()?;
        reply.ok().map(|reply| reply.others)
    }

    /// Makes the calls about a key that are due, one after the other, over one connection. Returns whether none failed.
    async fn make_permit_calls(&self, connection_index: usize, key: PermitKey) -> bool {
        loop {
            let now = self.clock.now();
            let view = self.permit_view(connection_index, now);
            if self.permit_lease.number().is_none() {
                return false;
            }
            let Some(call) = self.permits.next_call(key, &view, now) else {
                return true;
            };
            let mut under_way = CallUnderWay {
                shared: self,
                connection_index,
                call,
                reply: None,
            };
            let reply = self.client.set_permits(connection_index, &call);
            let reply = timeout(BACKGROUND_TIMEOUT, reply).await;
            let reply = self.record_outcome(reply.unwrap_or(Err(StoreError::Late)));
            self.record_permit_outcome(&call, reply.as_ref().err(), self.clock.now());
            let has_failed = reply.is_err();
            under_way.reply = reply.ok();
            drop(under_way);
            if has_failed {
                return false;
            }
        }
    }

    /// Tells the breaker whether a call about permits had a reply, and the keeper whether the lease is lost.
    fn record_permit_outcome(&self, call: &PermitCall, error: Option<&StoreError>, now: Nanos) {
        let breaker = &self.decider.breaker;
        match error {
            None | Some(StoreError::LeaseEnded) => breaker.record_reply(now),
            Some(StoreError::MarkMismatch) => {
                breaker.record_outage(now);
            }
            Some(_) => {
                breaker.record_failure(now);
            }
        }
        let is_current = self.permit_lease.number() == Some(call.lease);
        if error == Some(&StoreError::LeaseEnded) && is_current {
            self.has_lost_lease.store(true, Relaxed);
        }
    }

    /// Sends one step of a lease.
    async fn send_lease_step(
        &self,
        connection_index: usize,
        lease: u64,
        step: LeaseStep,
    ) -> Result<(), StoreError> {
        let life = self.permit_lease.life();
        let sent = self
            .client
            .keep_permit_lease(connection_index, lease, step, life);
        let reply = timeout(BACKGROUND_TIMEOUT, sent).await;
        reply.unwrap_or(Err(StoreError::Late))
    }

    /// Tells requests that may not outlive the lease to end.
    fn revoke_permits(&self) {
        let view = self.permit_view(self.background_connection(), self.clock.now());
        let phase = view.phase.max(LeasePhase::Ended);
        self.permits.revoke(&StoreView { phase, ..view });
    }

    /// Begins a new lease, has the store count all open requests under it, and ends the former lease.
    async fn begin_permit_lease(&self, connection_index: usize) -> Result<(), StoreError> {
        let former = self.permit_lease.number();
        // A number whose begin was not acknowledged is never used again.
        let count = self.lease_count.fetch_add(1, Relaxed).wrapping_add(1);
        let lease = u64::from(self.decider.gateway) << 32 | u64::from(count);
        let sent_at = self.clock.now();
        self.send_lease_step(connection_index, lease, LeaseStep::Begin)
            .await?;
        self.permits.begin_lease(lease);
        self.permit_lease.begin(lease, sent_at);
        self.report_open_requests(connection_index).await?;
        if let Some(former) = former {
            // If this fails, the former lease ends by itself.
            let _ = self
                .send_lease_step(connection_index, former, LeaseStep::End)
                .await;
        }
        Ok(())
    }

    /// Has the store count all open requests that it may not know.
    async fn report_open_requests(&self, connection_index: usize) -> Result<(), StoreError> {
        loop {
            let (keys, are_all) = self.permits.unconfirmed_keys(MAX_CALLS_AT_ONCE);
            if keys.is_empty() && are_all {
                return Ok(());
            }
            if keys.is_empty() {
                // Requests have made these calls.
                tokio::time::sleep(CALL_POLL_INTERVAL).await;
            }
            let calls = keys.into_iter();
            let outcomes = join_all(calls.map(|key| self.make_permit_calls(connection_index, key)));
            if outcomes.await.contains(&false) {
                return Err(StoreError::Late);
            }
        }
    }
}

/// A call about permits that was made. Dropping it records its reply, or that it has none: also where a worker ends while
/// it waits.
struct CallUnderWay<'a> {
    shared: &'a SharedStore,
    connection_index: usize,
    call: PermitCall,
    reply: Option<PermitReply>,
}

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        let now = self.shared.clock.now();
        let view = self.shared.permit_view(self.connection_index, now);
        let permits = &self.shared.permits;
        permits.record_reply(&self.call, self.reply, &view, now);
    }
}

/// Tells requests beyond those that may outlive the lease to end, once for each lease that ends. Never returns. It waits
/// for nothing but time, because the store may hang.
pub(super) async fn watch_lease(shared: &SharedStore) {
    let mut has_revoked = false;
    loop {
        let pause = match shared.permit_lease.is_used() {
            true => WATCH_INTERVAL,
            false => UNUSED_INTERVAL,
        };
        tokio::time::sleep(pause).await;
        if shared.permit_lease.number().is_none() {
            continue;
        }
        let phase = shared.permit_lease.phase(shared.clock.now());
        let has_ended = phase >= LeasePhase::Ended;
        if has_ended && !has_revoked {
            shared.revoke_permits();
        }
        has_revoked = has_ended;
        shared.permits.finish_revocation();
    }
}

impl LeaseKeeper {
    /// Keeps the lease, while the store is shared.
    pub(super) async fn tick(
        &mut self,
        shared: &Arc<SharedStore>,
        connection_index: usize,
        tick: u64,
    ) {
        let is_shared = shared.decider.breaker.status() == StoreStatus::Shared;
        if !shared.permit_lease.is_used() || !is_shared {
            return;
        }
        let outcome = self.keep_lease(shared, connection_index).await;
        if let Err(error) = outcome {
            shared.record_error(&error);
            self.has_lost |= error == StoreError::LeaseEnded;
        }
        if self.has_more_calls || tick.is_multiple_of(TICKS_PER_LOOK) {
            let now = shared.clock.now();
            let keys = shared.permits.due_keys(MAX_CALLS_AT_ONCE, now);
            self.has_more_calls = keys.len() == MAX_CALLS_AT_ONCE;
            for key in keys {
                shared.call_is_due(connection_index as u16, key);
            }
        }
    }

    /// Renews the lease if that is due, or begins one.
    async fn keep_lease(
        &mut self,
        shared: &Arc<SharedStore>,
        connection_index: usize,
    ) -> Result<(), StoreError> {
        // A store that was away may lack the lease because it has lost data: nobody has the permits then.
        self.has_lost |= shared.has_lost_lease.swap(false, Relaxed) && !self.must_begin;
        let lease = &shared.permit_lease;
        let sent_at = shared.clock.now();
        // A lease that has ended here may have lost its permits in the store.
        let has_ended = self.has_lost || lease.phase(sent_at) >= LeasePhase::Ended;
        match lease.number() {
            Some(number) if !self.must_begin && !has_ended => {
                if lease.is_due(sent_at) {
                    shared
                        .send_lease_step(connection_index, number, LeaseStep::Renew)
                        .await?;
                    lease.record_renewal(sent_at);
                }
            }
            number => {
                // A process that stood still comes here before it has seen the end of its lease.
                if has_ended && number.is_some() {
                    shared.revoke_permits();
                }
                (self.must_begin, self.has_lost) = (true, false);
                shared.begin_permit_lease(connection_index).await?;
                self.must_begin = false;
            }
        }
        Ok(())
    }

    /// The store was away: what it knows of this gateway's permits may be wrong.
    pub(super) fn on_outage(&mut self) {
        self.must_begin = true;
    }

    /// Has the store count all open requests, before this gateway says that it has reported everything.
    pub(super) async fn recover(
        &mut self,
        shared: &Arc<SharedStore>,
        connection_index: usize,
    ) -> Result<(), StoreError> {
        if !shared.permit_lease.is_used() {
            return Ok(());
        }
        self.keep_lease(shared, connection_index).await?;
        shared.report_open_requests(connection_index).await
    }

    /// Ends the lease when the gateway ends, unless servers may still work for it.
    pub(super) async fn leave(shared: &Arc<SharedStore>, connection_index: usize) {
        let Some(number) = shared.permit_lease.number() else {
            return;
        };
        if shared.permits.shared_open_count() == 0 {
            let _ = shared
                .send_lease_step(connection_index, number, LeaseStep::End)
                .await;
        }
    }
}

impl PermitReturns for SharedStore {
    fn call_is_due(&self, connection_index: u16, key: PermitKey) {
        // Without a runtime, or while the store is away, the keeper makes the call later.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if matches!(self.decider.breaker.status(), StoreStatus::Away(_)) {
            return;
        }
        let Some(shared) = self.this.get().and_then(std::sync::Weak::upgrade) else {
            return;
        };
        let connection_index = usize::from(connection_index).min(shared.worker_count);
        runtime.spawn(async move {
            shared.make_permit_calls(connection_index, key).await;
        });
    }
}
