//! Which permits are given and refused, and that none is left in the end.

use super::*;
use crate::limit::{Concurrency, Fingerprint, LimitStanding, ThrottleMode};
use crate::store::ParentNetwork;

const TWO: Concurrency = Concurrency {
    added: 0,
    max_open: 2,
    throttle: ThrottleMode::Hard,
    max_plan_factor: 1,
};

fn permit_request<'a>(limit: &'a Concurrency, scope: &str, key: u128) -> PermitRequest<'a> {
    PermitRequest {
        limit,
        scope: PermitScope::new(scope),
        key: Fingerprint(key),
        plan_factor: 1,
        is_shadow: false,
        parents: &[],
        shared: None,
    }
}

/// Takes permits where no other limit decides. Returns the remaining permits of each request, or how each request stands.
fn take(
    permits: &Arc<Permits>,
    requests: &[PermitRequest<'_>],
) -> Result<(PermitGuard, Vec<u32>), Vec<LimitStanding>> {
    let mut findings = SmallVec::new();
    let (admitted, guard) = permits.take(requests, &mut findings, |has_room| has_room);
    if admitted {
        Ok((
            guard,
            findings.iter().map(|finding| finding.remaining).collect(),
        ))
    } else {
        assert!(guard.is_empty());
        Err(findings.iter().map(|finding| finding.standing).collect())
    }
}

#[test]
fn permits_go_round() {
    let permits = Arc::new(Permits::default());
    let ann = [permit_request(&TWO, "a", 1)];
    let (first, left) = take(&permits, &ann).unwrap();
    assert_eq!(left, [1]);
    let (second, left) = take(&permits, &ann).unwrap();
    assert_eq!(left, [0]);
    assert_eq!(take(&permits, &ann).unwrap_err(), [LimitStanding::Refused]);
    // Others have their own, under another limit too.
    drop(take(&permits, &[permit_request(&TWO, "a", 2)]).unwrap());
    drop(take(&permits, &[permit_request(&TWO, "b", 1)]).unwrap());
    drop(first);
    let (third, left) = take(&permits, &ann).unwrap();
    assert_eq!((left, permits.key_count()), (vec![0], 1));
    assert_eq!(permits.counts_by_scope()[&PermitScope::new("a")], 2);
    drop((second, third));
    assert_eq!(
        (permits.key_count(), permits.counts_by_scope().len()),
        (0, 0)
    );
}

#[test]
fn all_or_none() {
    let permits = Arc::new(Permits::default());
    let one = Concurrency::hard(1);
    let held = take(&permits, &[permit_request(&one, "full", 1)]).unwrap();
    let both = [
        permit_request(&TWO, "free", 1),
        permit_request(&one, "full", 1),
    ];
    let standings = take(&permits, &both).unwrap_err();
    assert_eq!(standings, [LimitStanding::Within, LimitStanding::Refused]);
    assert_eq!(permits.key_count(), 1);
    // Another limit refuses: it learns that there is room, and no permit is taken.
    let mut findings = SmallVec::new();
    let (admitted, taken) = permits.take(&both[..1], &mut findings, |has_room| {
        assert!(has_room);
        false
    });
    assert!(!admitted && taken.is_empty());
    assert_eq!((findings[0].remaining, permits.key_count()), (2, 1));
    drop(held);
    let (taken, left) = take(&permits, &both).unwrap();
    assert_eq!(left, [1, 0]);
    drop(taken);
    assert_eq!(permits.key_count(), 0);
}

#[test]
fn the_same_key_twice_in_one_request() {
    let permits = Arc::new(Permits::default());
    let one = Concurrency::hard(1);
    let twice = |limit| [permit_request(limit, "a", 1), permit_request(limit, "a", 1)];
    let standings = take(&permits, &twice(&one)).unwrap_err();
    assert_eq!(standings, [LimitStanding::Within, LimitStanding::Refused]);
    let (taken, left) = take(&permits, &twice(&TWO)).unwrap();
    assert_eq!(left, [0, 0]);
    drop(taken);
    assert_eq!(permits.key_count(), 0);
}

#[test]
fn shadows_never_refuse_and_hold_no_more_than_they_would_admit() {
    let permits = Arc::new(Permits::default());
    let shadow = [PermitRequest {
        is_shadow: true,
        ..permit_request(&TWO, "a", 1)
    }];
    let all: Vec<_> = (0..3).map(|_| take(&permits, &shadow).unwrap()).collect();
    assert_eq!(permits.counts_by_scope()[&PermitScope::new("a")], 2);
    drop(all);
    assert_eq!(permits.key_count(), 0);
}

#[test]
fn a_new_number_holds_for_what_comes() {
    let permits = Arc::new(Permits::default());
    let (three, one) = (Concurrency::hard(3), Concurrency::hard(1));
    let mut held: Vec<_> = (0..3)
        .map(|_| take(&permits, &[permit_request(&three, "a", 1)]).unwrap().0)
        .collect();
    for _ in 0..3 {
        assert!(take(&permits, &[permit_request(&one, "a", 1)]).is_err());
        held.pop();
    }
    assert!(take(&permits, &[permit_request(&one, "a", 1)]).is_ok());
}

#[test]
fn networks_have_room_for_several_of_their_clients() {
    let permits = Arc::new(Permits::default());
    let network = [ParentNetwork {
        key: Fingerprint(77),
        factor: 2,
    }];
    let from = |key| {
        [PermitRequest {
            parents: &network,
            ..permit_request(&TWO, "a", key)
        }]
    };
    let mut held: Vec<_> = [1, 2, 3]
        .iter()
        .map(|key| take(&permits, &from(*key)).unwrap())
        .collect();
    assert_eq!(held[2].1, [1], "of the network four, of the key two");
    held.push(take(&permits, &from(4)).unwrap());
    assert_eq!(held[3].1, [0], "the network's last");
    assert_eq!(
        take(&permits, &from(5)).unwrap_err(),
        [LimitStanding::Refused]
    );
    assert_eq!(
        permits.counts_by_scope()[&PermitScope::new("a")],
        4,
        "networks are no keys"
    );
    held.clear();
    assert_eq!(permits.key_count(), 0);
}

#[test]
fn a_panic_while_others_decide_leaves_nothing_taken_or_locked() {
    let permits = Arc::new(Permits::default());
    let ann = [permit_request(&TWO, "a", 1)];
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut findings = SmallVec::new();
        permits.take(&ann, &mut findings, |_| panic!("on purpose"))
    }));
    assert!(caught.is_err());
    assert_eq!(permits.key_count(), 0);
    assert!(take(&permits, &ann).is_ok());
}
