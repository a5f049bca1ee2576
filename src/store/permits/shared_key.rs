//! [`SharedKey`]: what this gateway holds of one key whose permits gateways share. The store counts the permits of each
//! gateway; this entry says how many of them may be used here, and which requests wait for more.
//!
//! Two rules keep the permits that all gateways use below the limit. A permit is used only after the store has said that
//! it counts it for this gateway. And a permit is no longer usable before the call is sent that returns it.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::permit_call::{LeasePhase, PermitCall, PermitDecider, PermitReply, StoreView};
use super::permit_request::{PermitKey, SharedTerms};
use crate::base::clock::Nanos;
use crate::limit::OnStoreError;

/// How long a gateway keeps permits that it took in advance and does not use.
const IDLE_TIME: Nanos = Nanos::from_secs(1);
/// A gateway takes at most its equal part of the permits in advance, divided by this number.
const SPARES_PER_PART: u32 = 4;
/// How long the store keeps a key without a call: longer than a lease. A live gateway repeats itself four times as often.
pub const STORED_TIME: Nanos = Nanos::from_secs(7_200);
/// How long a call without a reply may still be executed. The store knows the numbers of later calls until then.
pub const LATE_CALL_TIME: Nanos = Nanos::from_secs(600);

/// How the wait for a permit has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    /// A permit is out for the request. With it so many are counted of all gateways.
    Granted { counted: u32 },
    /// All permits are out.
    Refused,
    /// The store has not decided.
    Undecided,
}

/// A request that waits for the store.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The number of permits of the key, by the plan of the request's client.
    pub(super) ceiling: u32,
    /// Whether the call under way asks for a permit for it.
    pub(super) is_asked_for: bool,
    pub(super) connection_index: u16,
    pub(super) sender: oneshot::Sender<WaitEnd>,
}

/// Whether a request may take a permit.
#[derive(Debug)]
pub(super) enum KeyStep {
    /// It may.
    Taken,
    /// Only the store knows.
    AskStore,
    /// It may not.
    Refused,
}

/// What this gateway holds of one key. Open requests are counted beside it.
#[derive(Debug)]
pub(super) struct SharedKey {
    pub(super) terms: SharedTerms,
    /// The number of permits of the key, as of the last request.
    pub(super) ceiling: u32,
    /// Permits that the store counts for this gateway, and that may be used.
    pub(super) held: u32,
    /// Permits that others hold, by the store's last reply.
    pub(super) others: u32,
    /// The call whose reply is awaited.
    pub(super) call: Option<PermitCall>,
    pub(super) waiters: VecDeque<Waiter>,
    /// Whether the store may count another number than `held`.
    pub(super) must_confirm: bool,
    /// Whether a call was never answered.
    is_unclean: bool,
    /// Permits that may stay in hand although no request uses them.
    spare: u32,
    last_used_at: Nanos,
    acknowledged_at: Nanos,
    /// Open requests that must end, because the lease ends, and do not know it yet.
    pub(super) to_revoke: u32,
    /// Open requests that know that they must end.
    pub(super) revoked: u32,
}

impl SharedKey {
    pub(super) fn new(terms: SharedTerms, now: Nanos) -> SharedKey {
        SharedKey {
            terms,
            ceiling: 0,
            held: 0,
            others: 0,
            call: None,
            waiters: VecDeque::new(),
            must_confirm: false,
            is_unclean: false,
            spare: 0,
            last_used_at: now,
            acknowledged_at: now,
            to_revoke: 0,
            revoked: 0,
        }
    }

    /// The entry of a key with open requests that the store does not know.
    pub(super) fn uncounted(terms: SharedTerms, ceiling: u32, now: Nanos) -> SharedKey {
        SharedKey {
            ceiling,
            must_confirm: true,
            ..SharedKey::new(terms, now)
        }
    }

    /// Records a request that the key counts, by its terms.
    pub(super) fn record_use(
        &mut self,
        terms: SharedTerms,
        ceiling: u32,
        view: &StoreView,
        now: Nanos,
    ) {
        (self.terms, self.ceiling, self.last_used_at) = (terms, ceiling, now);
        self.spare = match terms.is_leased {
            true => ceiling / view.gateway_count.saturating_mul(SPARES_PER_PART).max(1),
            false => 0,
        };
    }

    /// Decides about a request as far as this gateway can, where it has `open_count` open requests of the key.
    pub(super) fn decide(&self, open_count: u32, view: &StoreView) -> KeyStep {
        use PermitDecider::{Both, Part, Store};
        let is_fresh = view.phase == LeasePhase::Fresh;
        if is_fresh && view.decider == Store {
            return match self.has_room(open_count) && self.waiters.is_empty() {
                true => KeyStep::Taken,
                false => KeyStep::AskStore,
            };
        }
        let is_admitted_alone = self.admits_alone(open_count, view);
        match view.decider {
            // The store counts the request, and then this gateway's part bounds it too.
            Both if is_fresh && is_admitted_alone => KeyStep::AskStore,
            Store | Both | Part if is_admitted_alone => KeyStep::Taken,
            Store | Both | Part => KeyStep::Refused,
        }
    }

    /// Whether one of the permits that this gateway holds is free. All gateways together may hold more than there are: after
    /// a reload with a lower number, and where requests of an ended lease were counted anew before they had ended.
    fn has_room(&self, open_count: u32) -> bool {
        self.held > open_count && open_count.saturating_add(self.others) < self.ceiling
    }

    /// Whether the request passes without a reply of the store.
    pub(super) fn admits_alone(&self, open_count: u32, view: &StoreView) -> bool {
        match self.terms.on_store_error {
            OnStoreError::Open => true,
            OnStoreError::Closed => {
                view.phase == LeasePhase::Fresh
                    && view.decider != PermitDecider::Both
                    && self.has_room(open_count)
            }
            OnStoreError::Local => open_count < self.own_part(view),
        }
    }

    /// The number of requests that may be open here while the store is away. First the permits of this gateway and an equal
    /// part of those that were free; once all leases have ended an equal part of all. In between the smaller of the two,
    /// because others may still have theirs.
    pub(super) fn own_part(&self, view: &StoreView) -> u32 {
        let gateway_count = view.gateway_count.max(1);
        let equal_part = self.ceiling / gateway_count;
        let free_count = self
            .ceiling
            .saturating_sub(self.held.saturating_add(self.others));
        let first_part = self.held.saturating_add(free_count / gateway_count);
        match view.phase {
            LeasePhase::Fresh | LeasePhase::Stale => first_part,
            LeasePhase::Ended => first_part.min(equal_part),
            LeasePhase::Forgotten => equal_part,
        }
    }

    /// The number of open requests that may outlive the lease.
    pub(super) fn outliving_count(&self, view: &StoreView) -> u32 {
        if self.terms.is_shadow {
            return u32::MAX;
        }
        match self.terms.on_store_error {
            OnStoreError::Open => u32::MAX,
            OnStoreError::Closed => 0,
            OnStoreError::Local => self.own_part(view),
        }
    }

    /// Whether a call to the store is due.
    pub(super) fn needs_call(&self, open_count: u32, now: Nanos) -> bool {
        let is_idle = now.since(self.last_used_at) >= IDLE_TIME;
        let spare = if is_idle { 0 } else { self.spare };
        let is_old = now.since(self.acknowledged_at).0 >= STORED_TIME.0 / 4;
        self.call.is_none()
            && (self.must_confirm
                || !self.waiters.is_empty()
                || self.held > open_count.saturating_add(spare)
                || (is_old && self.held > 0))
    }

    /// Makes the call that is due, and marks it as under way. Permits that it returns are no longer usable.
    /// `may_be_overtaken` says that an earlier call may still be executed.
    pub(super) fn make_call(
        &mut self,
        key: PermitKey,
        lease: u64,
        number: u64,
        open_count: u32,
        may_be_overtaken: bool,
        now: Nanos,
    ) -> PermitCall {
        let is_idle = now.since(self.last_used_at) >= IDLE_TIME;
        let mut ceiling = self.ceiling;
        for waiter in &mut self.waiters {
            waiter.is_asked_for = true;
            ceiling = ceiling.max(waiter.ceiling);
        }
        let needed = open_count.saturating_add(self.waiters.len() as u32);
        let spare = if is_idle { 0 } else { self.spare };
        self.held = self.held.min(needed.saturating_add(spare));
        let call = PermitCall {
            key,
            lease,
            number,
            // Requests may take those that are held while the call is under way, so the store must not count fewer.
            used: open_count.max(self.held),
            needed,
            spare,
            ceiling,
            is_clean: !self.is_unclean && !may_be_overtaken,
        };
        self.call = Some(call);
        call
    }

    /// Records the reply to the call with this number, or that it failed. Returns whether the call was still under way.
    pub(super) fn record_reply(
        &mut self,
        number: u64,
        reply: Option<PermitReply>,
        open_count: u32,
        decider: PermitDecider,
        now: Nanos,
    ) -> bool {
        let Some(call) = self.call.take_if(|call| call.number == number) else {
            return false;
        };
        match reply {
            Some(reply) => {
                self.held = reply.held;
                self.others = match decider {
                    // Others may not have reported yet what they hold.
                    PermitDecider::Both => self.others.max(reply.others),
                    PermitDecider::Store | PermitDecider::Part => reply.others,
                };
                // Requests may have been admitted meanwhile without the store. And with fewer permits than the call says
                // are used, the reply is not one to this call.
                self.must_confirm = reply.held < call.used.max(open_count);
                self.is_unclean &= call.needed > 0;
                self.acknowledged_at = now;
            }
            None => (self.must_confirm, self.is_unclean) = (true, true),
        }
        true
    }

    /// Forgets what the store said under the former lease. Open requests are counted anew, also those that must end. A call
    /// that is under way may be one under the new lease already, so its number is not known either.
    pub(super) fn begin_lease(&mut self, open_count: u32) {
        self.is_unclean = self.call.take().is_some();
        self.held = 0;
        self.must_confirm = self.is_unclean || open_count > 0;
    }

    /// Forgets requests that only this gateway counted, once all have ended. So an outage leaves no entries behind.
    pub(super) fn forget_uncounted(&mut self) {
        if self.held == 0 && !self.is_unclean {
            self.must_confirm = false;
        }
    }

    /// Whether the entry says no more than a new one.
    pub(super) fn is_idle(&self) -> bool {
        self.held == 0 && self.call.is_none() && self.waiters.is_empty() && !self.must_confirm
    }
}
