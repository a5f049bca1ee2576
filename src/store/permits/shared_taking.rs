//! How a request takes permits that gateways share: at once where this gateway holds a free one, or with a reply of the
//! store. A request may need several permits. Those that this gateway can decide about are taken first; if another one is
//! refused, they return.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::locked_shards::{LockedShards, shard_index};
use super::permit_call::{LeasePhase, PermitDecider, StoreView};
use super::permit_request::{PermitKey, PermitRequest, SharedTerms};
use super::shared_key::{KeyStep, SharedKey, WaitEnd, Waiter};
use super::{PermitGuard, Permits};
use crate::base::clock::Nanos;
use crate::limit::concurrency::REFUSAL_WAIT;
use crate::limit::{LimitFinding, LimitStanding, OnStoreError};

/// The first step of a request that takes permits which gateways may share.
pub enum TakeStep {
    /// The decision is made.
    Decided(PermitDecision),
    /// The store must decide; [`WaitingPermits::wait`] comes next.
    AskStore(Box<WaitingPermits>),
}

/// The decision about all permits of a request.
#[derive(Debug)]
#[must_use = "permits that are dropped are free again"]
pub struct PermitDecision {
    /// Whether the request passes.
    pub is_admitted: bool,
    /// Whether this gateway decided about some permit without the store.
    pub is_alone: bool,
    /// The permits of the request; none if it does not pass.
    pub guard: PermitGuard,
}

/// A request that waits for permits. Dropping it returns those that it has.
pub struct WaitingPermits {
    permits: Arc<Permits>,
    /// The permits that each permit request has already.
    guards: SmallVec<[PermitGuard; 2]>,
    waits: SmallVec<[KeyWait; 2]>,
    is_alone: bool,
}

/// The wait for the permit of one key. A permit that it has got and that nobody takes returns when it is dropped.
struct KeyWait {
    permits: Arc<Permits>,
    connection_index: u16,
    key: PermitKey,
    /// The index of the permit request.
    request_index: usize,
    terms: SharedTerms,
    ceiling: u32,
    /// The number of permits up to which the limit is not exceeded.
    quota: u32,
    /// Whether the key is that of a network around the request's key.
    is_network: bool,
    is_shadow: bool,
    receiver: oneshot::Receiver<WaitEnd>,
    /// What has come of it so far.
    end: Option<WaitEnd>,
}

impl KeyWait {
    /// Waits for the end.
    async fn wait(&mut self) {
        let end = (&mut self.receiver).await;
        self.end = Some(end.unwrap_or(WaitEnd::Undecided));
    }

    /// Takes the end; undecided if it has not come. It does not come later.
    fn take_end(&mut self) -> WaitEnd {
        self.receiver.close();
        let end = self.end.take().or_else(|| self.receiver.try_recv().ok());
        end.unwrap_or(WaitEnd::Undecided)
    }
}

impl Drop for KeyWait {
    fn drop(&mut self) {
        if let WaitEnd::Granted { .. } = self.take_end() {
            let lease = self.permits.lease.load(Acquire);
            self.permits
                .return_permit(self.key, lease, false, self.connection_index);
        }
    }
}

impl Permits {
    /// Takes a permit for each permit request that has room, or none, as [`Permits::take`] does. Permits of keys that
    /// gateways share may have to be asked for. Leaves one finding for each permit request.
    pub fn begin_take(
        self: &Arc<Self>,
        requests: &[PermitRequest<'_>],
        findings: &mut SmallVec<[LimitFinding; 2]>,
        view: &StoreView,
        now: Nanos,
    ) -> TakeStep {
        let new_guard = || PermitGuard::new(self.clone(), view.connection_index);
        // Made before the locks, so that they are released before it is dropped, whatever happens.
        let mut guards: SmallVec<[PermitGuard; 2]> = requests.iter().map(|_| new_guard()).collect();
        let mut waits: SmallVec<[KeyWait; 2]> = SmallVec::new();
        let has_store = view.decider == PermitDecider::Store && view.phase == LeasePhase::Fresh;
        let mut is_alone = false;
        let mut locked = LockedShards::new(&self.shards, requests);
        locked.evaluate(requests, findings, false);
        if !has_store {
            admit_open(requests, findings);
        }
        let is_refused = |request: &PermitRequest<'_>, finding: &LimitFinding| {
            !request.is_shadow && !finding.standing.admits()
        };
        let mut pairs = requests.iter().zip(&*findings);
        let mut is_admitted = !pairs.any(|(request, finding)| is_refused(request, finding));
        let mut index = 0;
        while is_admitted && index < requests.len() {
            let (request, finding) = (&requests[index], &mut findings[index]);
            let quota = request.limit.quota(request.plan_factor);
            let admits = finding.standing.admits();
            for (key, ceiling) in request.ceilings().take_while(|_| admits) {
                let Some(terms) = request.shared else {
                    locked.take(key);
                    guards[index].keys.push(key);
                    continue;
                };
                is_alone |= !has_store;
                match locked.begin_shared(key, terms, ceiling, view, now) {
                    SharedStep::Taken => {
                        guards[index].keys.push(key);
                    }
                    SharedStep::Wait(receiver) => waits.push(KeyWait {
                        permits: self.clone(),
                        connection_index: view.connection_index,
                        key,
                        request_index: index,
                        terms,
                        ceiling,
                        is_network: key != request.permit_key(),
                        quota: if key == request.permit_key() {
                            quota
                        } else {
                            ceiling
                        },
                        is_shadow: request.is_shadow,
                        receiver,
                        end: None,
                    }),
                    SharedStep::Refused => {
                        refuse(finding);
                        is_admitted &= request.is_shadow;
                        break;
                    }
                }
            }
            index += 1;
        }
        if is_admitted {
            locked.update_remaining(requests, findings);
            for (request, finding) in requests.iter().zip(findings.iter_mut()) {
                mark_excess(request, finding, &mut locked);
            }
        }
        drop(locked);
        if !is_admitted || waits.is_empty() {
            let decision = PermitDecision {
                is_admitted,
                is_alone,
                guard: merge(guards, findings, is_admitted).unwrap_or_else(new_guard),
            };
            // Those who wait for a permit that is not needed any more leave.
            drop(waits);
            return TakeStep::Decided(decision);
        }
        for wait in &waits {
            self.report_due_call(view.connection_index, wait.key);
        }
        TakeStep::AskStore(Box::new(WaitingPermits {
            permits: self.clone(),
            guards,
            waits,
            is_alone,
        }))
    }

    /// Takes a permit of one key without a reply of the store. `None` if it is refused.
    fn take_alone(
        self: &Arc<Self>,
        wait: &KeyWait,
        view: &StoreView,
        now: Nanos,
    ) -> Option<PermitGuard> {
        let counts = &mut *self.shards[shard_index(&wait.key)].0.lock();
        let open_count = counts.open_count(&wait.key);
        let shared = counts.shared.entry(wait.key);
        let shared = shared.or_insert_with(|| SharedKey::new(wait.terms, now));
        shared.record_use(wait.terms, wait.ceiling, view, now);
        if !shared.admits_alone(open_count, view) {
            return None;
        }
        shared.must_confirm |= open_count >= shared.held;
        counts.open.insert(wait.key, open_count + 1);
        let permits = self.clone();
        Some(PermitGuard::of_shared(
            permits,
            view.connection_index,
            wait.key,
        ))
    }
}

impl WaitingPermits {
    /// Waits for the store, for at most `budget`, and decides. `findings` are those of the first step. `view` returns what
    /// the gateway knows of the store by then.
    pub async fn wait(
        mut self,
        findings: &mut SmallVec<[LimitFinding; 2]>,
        budget: Duration,
        view: impl Fn() -> (StoreView, Nanos),
    ) -> PermitDecision {
        let waits = self.waits.iter_mut();
        let collecting = async {
            for wait in waits {
                wait.wait().await;
            }
        };
        // Those that have not come by then are undecided.
        let _ = timeout(budget, collecting).await;
        let (view, now) = view();
        let mut is_admitted = true;
        for mut wait in std::mem::take(&mut self.waits) {
            let finding = &mut findings[wait.request_index];
            let guard = match wait.take_end() {
                WaitEnd::Granted { counted } => {
                    let remaining = wait.quota.saturating_sub(counted);
                    finding.remaining = match wait.is_network {
                        true => finding.remaining.min(remaining),
                        // What was known before the reply is over.
                        false => remaining,
                    };
                    if !wait.is_network {
                        finding.standing = match counted > wait.quota {
                            true => LimitStanding::Over,
                            false => LimitStanding::Within,
                        };
                    }
                    let permits = self.permits.clone();
                    Some(PermitGuard::of_shared(
                        permits,
                        view.connection_index,
                        wait.key,
                    ))
                }
                WaitEnd::Refused => None,
                WaitEnd::Undecided => {
                    self.is_alone = true;
                    self.permits.take_alone(&wait, &view, now)
                }
            };
            match guard {
                Some(guard) => self.guards[wait.request_index].absorb(guard),
                None => {
                    refuse(finding);
                    is_admitted &= wait.is_shadow;
                }
            }
        }
        let guard = merge(self.guards, findings, is_admitted);
        PermitDecision {
            is_admitted,
            is_alone: self.is_alone,
            guard: guard.unwrap_or_else(|| PermitGuard::new(self.permits, view.connection_index)),
        }
    }
}

/// The first step about one key whose permits gateways share.
enum SharedStep {
    Taken,
    Wait(oneshot::Receiver<WaitEnd>),
    Refused,
}

impl LockedShards<'_> {
    /// Takes a permit of a key that this gateway counts for itself.
    fn take(&mut self, key: PermitKey) {
        if let Some(counts) = self.counts_for(&key) {
            *counts.open.entry(key).or_insert(0) += 1;
        }
    }

    /// Takes a permit of a key that gateways share, or lets the request wait for the store.
    fn begin_shared(
        &mut self,
        key: PermitKey,
        terms: SharedTerms,
        ceiling: u32,
        view: &StoreView,
        now: Nanos,
    ) -> SharedStep {
        let Some(counts) = self.counts_for(&key) else {
            return SharedStep::Refused;
        };
        let open_count = counts.open_count(&key);
        let shared = counts.shared.entry(key);
        let shared = shared.or_insert_with(|| SharedKey::new(terms, now));
        shared.record_use(terms, ceiling, view, now);
        match shared.decide(open_count, view) {
            KeyStep::Taken => {
                shared.must_confirm |= open_count >= shared.held;
                counts.open.insert(key, open_count + 1);
                SharedStep::Taken
            }
            KeyStep::AskStore => {
                let (sender, receiver) = oneshot::channel();
                shared.waiters.push_back(Waiter {
                    ceiling,
                    is_asked_for: false,
                    connection_index: view.connection_index,
                    sender,
                });
                SharedStep::Wait(receiver)
            }
            KeyStep::Refused => {
                if shared.is_idle() {
                    counts.shared.remove(&key);
                }
                SharedStep::Refused
            }
        }
    }
}

/// Without the store limits with `on_store_error: open` refuse nothing.
fn admit_open(requests: &[PermitRequest<'_>], findings: &mut [LimitFinding]) {
    let is_open = |request: &PermitRequest<'_>| {
        let on_store_error = request.shared.map(|terms| terms.on_store_error);
        on_store_error == Some(OnStoreError::Open)
    };
    for (request, finding) in requests.iter().zip(findings) {
        if is_open(request) && !finding.standing.admits() {
            (finding.standing, finding.wait) = (LimitStanding::Over, Nanos::ZERO);
        }
    }
}

/// Marks a finding of a soft limit as exceeded, where the permits of other gateways make it so.
fn mark_excess(
    request: &PermitRequest<'_>,
    finding: &mut LimitFinding,
    locked: &mut LockedShards<'_>,
) {
    if request.shared.is_none() || finding.standing != LimitStanding::Within {
        return;
    }
    let key = request.permit_key();
    let counted = locked.counts_for(&key).map_or(0, |counts| {
        let others = counts.shared.get(&key).map_or(0, |shared| shared.others);
        counts.open_count(&key).saturating_add(others)
    });
    if counted > request.limit.quota(request.plan_factor) {
        finding.standing = LimitStanding::Over;
    }
}

fn refuse(finding: &mut LimitFinding) {
    finding.standing = LimitStanding::Refused;
    finding.wait = REFUSAL_WAIT;
    finding.remaining = 0;
}

/// One guard of all permits. Those of shadows that refuse return, and so do all if the request does not pass. `None`
/// without any.
fn merge(
    guards: SmallVec<[PermitGuard; 2]>,
    findings: &[LimitFinding],
    is_admitted: bool,
) -> Option<PermitGuard> {
    let guards = guards.into_iter().zip(findings);
    let kept = guards.filter(|(_, finding)| is_admitted && finding.standing.admits());
    kept.map(|(guard, _)| guard).reduce(|mut all, guard| {
        all.absorb(guard);
        all
    })
}
