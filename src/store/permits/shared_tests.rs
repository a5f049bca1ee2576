//! What this gateway does with permits that gateways share. `tests/shared/permit_model.rs` has many of them.

use super::permit_call::{LeasePhase, PermitCall, PermitReply, StoreView};
use super::*;
use crate::base::clock::Nanos;
use crate::limit::{Concurrency, Fingerprint, OnStoreError};

const NOW: Nanos = Nanos::from_secs(100);
const FRESH: StoreView = StoreView {
    decider: permit_call::PermitDecider::Store,
    phase: LeasePhase::Fresh,
    gateway_count: 2,
    connection_index: 0,
};
const ENDED: StoreView = StoreView {
    phase: LeasePhase::Ended,
    ..FRESH
};
const CLOSED: SharedTerms = SharedTerms {
    is_leased: false,
    is_shadow: false,
    on_store_error: OnStoreError::Closed,
};

fn permits() -> Arc<Permits> {
    let permits = Arc::new(Permits::shared(Clock::manual(NOW)));
    permits.begin_lease(1);
    permits
}

fn request<'a>(
    limit: &'a Concurrency,
    scope: &str,
    shared: Option<SharedTerms>,
) -> PermitRequest<'a> {
    PermitRequest {
        limit,
        scope: PermitScope::new(scope),
        key: Fingerprint(7),
        plan_factor: 1,
        is_shadow: shared.is_some_and(|terms| terms.is_shadow),
        parents: &[],
        shared,
    }
}

/// Makes the call about a key that is due.
#[track_caller]
fn next_call(permits: &Permits, request: &PermitRequest<'_>) -> PermitCall {
    let call = permits.next_call(request.permit_key(), &FRESH, NOW);
    call.expect("a call is due")
}

/// Starts a request that waits for the store.
#[track_caller]
fn wait(permits: &Arc<Permits>, request: &PermitRequest<'_>) -> WaitingPermits {
    match permits.begin_take(&[*request], &mut SmallVec::new(), &FRESH, NOW) {
        TakeStep::AskStore(waiting) => *waiting,
        TakeStep::Decided(decision) => panic!("{decision:?}"),
    }
}

/// What a request that waits has got by now.
fn resolve(waiting: WaitingPermits, request: &PermitRequest<'_>) -> PermitDecision {
    let mut findings = SmallVec::new();
    findings.push(request.limit.assess(0, 1));
    let waiting = waiting.wait(&mut findings, std::time::Duration::ZERO, || (FRESH, NOW));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    runtime.block_on(waiting)
}

/// The permit of a request that the store grants.
#[track_caller]
fn take_granted(permits: &Arc<Permits>, request: &PermitRequest<'_>) -> PermitGuard {
    let waiting = wait(permits, request);
    let call = next_call(permits, request);
    let (held, others) = (call.needed, 0);
    permits.record_reply(&call, Some(PermitReply { held, others }), &FRESH, NOW);
    let decision = resolve(waiting, request);
    assert!(decision.is_admitted);
    decision.guard
}

#[test]
fn requests_end_although_the_next_lease_has_begun() {
    let (permits, limit) = (permits(), Concurrency::hard(2));
    let request = request(&limit, "a", Some(CLOSED));
    let old = take_granted(&permits, &request);
    permits.revoke(&ENDED);
    permits.begin_lease(2);
    permits.finish_revocation();
    let call = next_call(&permits, &request);
    assert_eq!((call.lease, call.used), (2, 1), "it counts until it ends");
    let reply = PermitReply { held: 1, others: 0 };
    permits.record_reply(&call, Some(reply), &FRESH, NOW);
    let new = take_granted(&permits, &request);
    assert!(!new.is_revoked());
    // Its end is not that of the request that must end.
    drop(new);
    permits.finish_revocation();
    assert!(old.is_revoked());
}

#[test]
fn no_request_ends_because_of_a_shadow() {
    let (permits, limit) = (permits(), Concurrency::hard(2));
    let terms = SharedTerms {
        is_shadow: true,
        ..CLOSED
    };
    let guard = take_granted(&permits, &request(&limit, "a", Some(terms)));
    permits.revoke(&ENDED);
    assert!(!guard.is_revoked());
}

#[test]
fn a_request_that_ends_counts_for_all_its_keys() {
    let (permits, limit) = (permits(), Concurrency::hard(2));
    let both = [("a", CLOSED), ("b", CLOSED)];
    let both = both.map(|(scope, terms)| request(&limit, scope, Some(terms)));
    let mut all = take_granted(&permits, &both[0]);
    all.absorb(take_granted(&permits, &both[1]));
    permits.revoke(&ENDED);
    assert!(all.is_revoked());
    // It was the only one of either key.
    permits.finish_revocation();
    assert_eq!(permits.revoking_below.load(Relaxed), 0);
}

#[test]
fn requests_that_were_open_before_the_limit_was_shared_may_end() {
    let (permits, limit) = (permits(), Concurrency::hard(4));
    let alone = request(&limit, "a", None);
    let take = |_| permits.take(&[alone], &mut SmallVec::new(), |has_room| has_room);
    let guards = [0, 1, 2].map(take).map(|(_, guard)| guard);
    let terms = SharedTerms {
        on_store_error: OnStoreError::Local,
        ..CLOSED
    };
    permits.adopt(alone.scope, terms, 4, NOW);
    permits.revoke(&ENDED);
    assert!(guards.iter().all(PermitGuard::may_be_lost));
    let revoked = guards.iter().filter(|guard| guard.is_revoked());
    assert_eq!(revoked.count(), 1, "an equal part is two");
}

#[test]
fn a_larger_plan_does_not_wait_for_a_smaller_one() {
    let (permits, small, large) = (permits(), Concurrency::hard(1), Concurrency::hard(9));
    let [small, large] = [&small, &large].map(|limit| request(limit, "a", Some(CLOSED)));
    let (first, second) = (wait(&permits, &small), wait(&permits, &large));
    let call = next_call(&permits, &small);
    let reply = PermitReply { held: 2, others: 3 };
    permits.record_reply(&call, Some(reply), &FRESH, NOW);
    assert!(!resolve(first, &small).is_admitted);
    assert!(resolve(second, &large).is_admitted);
}

#[test]
fn the_store_counts_what_may_be_used_while_a_call_is_under_way() {
    let (permits, limit) = (permits(), Concurrency::hard(80));
    let terms = SharedTerms {
        is_leased: true,
        ..CLOSED
    };
    let request = request(&limit, "a", Some(terms));
    let waiting = wait(&permits, &request);
    let call = next_call(&permits, &request);
    assert_eq!((call.used, call.needed, call.spare), (0, 1, 10));
    let reply = PermitReply {
        held: 40,
        others: 0,
    };
    permits.record_reply(&call, Some(reply), &FRESH, NOW);
    let guard = resolve(waiting, &request).guard;
    let call = next_call(&permits, &request);
    assert_eq!((call.used, call.needed), (11, 1));
    drop(guard);
}

#[test]
fn a_call_without_a_reply_is_remembered_for_some_time() {
    let (permits, limit) = (permits(), Concurrency::hard(2));
    let request = request(&limit, "a", Some(CLOSED));
    let waiting = wait(&permits, &request);
    let lost = next_call(&permits, &request);
    permits.record_reply(&lost, None, &FRESH, NOW);
    drop(waiting);
    let none = Some(PermitReply { held: 0, others: 0 });
    let is_clean = || {
        let call = next_call(&permits, &request);
        permits.record_reply(&call, none, &FRESH, NOW);
        call.is_clean
    };
    assert!(!is_clean());
    drop(take_granted(&permits, &request));
    assert!(!is_clean(), "the lost call may still come");
}

#[test]
fn what_others_may_not_have_reported_counts() {
    let (permits, limit) = (permits(), Concurrency::hard(10));
    let request = request(&limit, "a", Some(CLOSED));
    let guard = take_granted(&permits, &request);
    let others = || {
        let counts = permits.shards[shard_index(&request.permit_key())].0.lock();
        counts.shared[&request.permit_key()].others
    };
    let learning = StoreView {
        decider: permit_call::PermitDecider::Both,
        ..FRESH
    };
    for (reported, view, known) in [(6, FRESH, 6), (0, learning, 6), (2, FRESH, 2)] {
        permits.begin_lease(2);
        let call = next_call(&permits, &request);
        let reply = PermitReply {
            held: 1,
            others: reported,
        };
        permits.record_reply(&call, Some(reply), &view, NOW);
        assert_eq!(others(), known);
    }
    drop(guard);
}
