//! How requests are spread over servers, by each method.

use std::cell::RefCell;

use super::*;
use crate::base::clock::Nanos;
use crate::limit::Identity;
use crate::upstream::Servers;
use crate::upstream::tests::settings;

/// A view whose figures the test sets, by the index of the server.
struct FixedView {
    factors: Vec<u32>,
    open_requests: RefCell<Vec<u32>>,
}

impl FixedView {
    fn with_factors(factors: &[u32]) -> FixedView {
        FixedView {
            factors: factors.to_vec(),
            open_requests: RefCell::new(vec![0; factors.len()]),
        }
    }
}

impl ServerView for FixedView {
    fn has_full_weight(&self, index: usize) -> bool {
        self.factors[index] == FULL_FACTOR
    }
    fn weight_factor(&self, index: usize) -> u32 {
        self.factors[index]
    }
    fn open_requests(&self, index: usize) -> u32 {
        self.open_requests.borrow()[index]
    }
}

fn balancer(method: BalanceMethod, weights: &[u32]) -> Balancer {
    let mut settings = settings(weights.len());
    for (server, weight) in settings.servers.iter_mut().zip(weights) {
        server.weight = *weight;
    }
    settings.balance_method = method;
    balancer_with_seed(settings, 7)
}

fn balancer_with_seed(settings: Settings, seed: u64) -> Balancer {
    let servers = Servers::new(settings, None, Nanos::ZERO);
    Balancer::new(&servers.settings, &servers.endpoints(), seed)
}

fn hash_balancer(weights: &[u32]) -> Balancer {
    balancer(BalanceMethod::Hash(vec![Identity::User]), weights)
}

fn count_choices(balancer: &Balancer, view: &FixedView, requests: usize) -> Vec<usize> {
    let mut counts = vec![0; view.factors.len()];
    for _ in 0..requests {
        counts[balancer.choose(None, true, view).unwrap()] += 1;
    }
    counts
}

#[test]
fn round_robin_follows_weights_and_factors() {
    let check = |weights: &[u32], factors: &[u32], requests, expected: &[usize]| {
        let balancer = balancer(BalanceMethod::RoundRobin, weights);
        let counts = count_choices(&balancer, &FixedView::with_factors(factors), requests);
        for (count, expected_count) in counts.iter().zip(expected) {
            assert!(
                count.abs_diff(*expected_count) <= expected_count / 10,
                "{counts:?}"
            );
        }
    };
    check(
        &[1, 1, 1],
        &[FULL_FACTOR, FULL_FACTOR, FULL_FACTOR],
        300,
        &[100, 100, 100],
    );
    check(
        &[1, 1, 1],
        &[FULL_FACTOR, 0, FULL_FACTOR],
        300,
        &[150, 0, 150],
    );
    check(&[1, 1, 1], &[0, 0, FULL_FACTOR], 300, &[0, 0, 300]);
    check(
        &[1, 2, 3],
        &[FULL_FACTOR, FULL_FACTOR, FULL_FACTOR],
        600,
        &[100, 200, 300],
    );
    check(
        &[1, 2, 3],
        &[FULL_FACTOR, 0, FULL_FACTOR],
        400,
        &[100, 0, 300],
    );
    check(
        &[1, 1],
        &[FULL_FACTOR, FULL_FACTOR / 4],
        8_000,
        &[7_000, 1_000],
    );
    check(
        &[4, 4],
        &[FULL_FACTOR, FULL_FACTOR / 2],
        8_000,
        &[6_000, 2_000],
    );
    check(&[1, 1], &[1, 0], 10, &[10, 0]);
}

#[test]
fn heavy_servers_are_not_asked_in_a_row() {
    let balancer = balancer(BalanceMethod::RoundRobin, &[5, 1, 1]);
    let view = FixedView::with_factors(&[FULL_FACTOR; 3]);
    let order: Vec<_> = (0..7)
        .map(|_| balancer.choose(None, true, &view).unwrap())
        .collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn workers_begin_at_different_servers() {
    let first_server = |seed| {
        let balancer = balancer_with_seed(settings(3), seed);
        balancer.choose(None, true, &FixedView::with_factors(&[FULL_FACTOR; 3]))
    };
    assert_eq!([0, 1, 2].map(first_server), [Some(0), Some(1), Some(2)]);
}

#[test]
fn nobody_is_asked_when_none_may_be() {
    for method in [
        BalanceMethod::RoundRobin,
        BalanceMethod::LeastRequests,
        BalanceMethod::Hash(vec![Identity::User]),
    ] {
        let balancer = balancer(method, &[1, 1]);
        let view = FixedView::with_factors(&[0, 0]);
        assert_eq!(balancer.choose(Some(1), true, &view), None);
        assert_eq!(balancer.choose(None, false, &view), None);
    }
}

#[test]
fn the_busy_one_of_two_is_spared() {
    let least = balancer(BalanceMethod::LeastRequests, &[1, 1, 1]);
    let view = FixedView::with_factors(&[FULL_FACTOR; 3]);
    view.open_requests.borrow_mut()[1] = 1_000;
    assert_eq!(count_choices(&least, &view, 300)[1], 0);
    // No request ends, so the open requests follow the weights.
    let least = balancer(BalanceMethod::LeastRequests, &[1, 2, 1]);
    let view = FixedView::with_factors(&[FULL_FACTOR, FULL_FACTOR, 0]);
    for _ in 0..3_000 {
        let server = least.choose(None, true, &view).unwrap();
        view.open_requests.borrow_mut()[server] += 1;
    }
    let open = view.open_requests.borrow();
    assert!(open[0].abs_diff(1_000) < 30 && open[2] == 0, "{open:?}");
}

#[test]
fn a_key_stays_and_only_keys_of_a_lost_server_move() {
    let balancer = hash_balancer(&[1; 5]);
    let choose = |key: u64, factors: &[u32]| {
        balancer.choose(Some(mix(key)), true, &FixedView::with_factors(factors))
    };
    let mut counts = [0; 5];
    let mut moved_count = 0;
    for key in 0..10_000 {
        let before = choose(key, &[FULL_FACTOR; 5]).unwrap();
        counts[before] += 1;
        assert_eq!(choose(key, &[FULL_FACTOR; 5]), Some(before));
        let after = choose(
            key,
            &[FULL_FACTOR, FULL_FACTOR, 0, FULL_FACTOR, FULL_FACTOR],
        )
        .unwrap();
        if before == 2 {
            moved_count += 1;
        } else {
            assert_eq!(before, after, "of a server that stayed");
        }
    }
    assert_eq!(moved_count, counts[2]);
    assert!(
        counts.iter().all(|n| (1_800..2_200).contains(n)),
        "{counts:?}"
    );
}

#[test]
fn keys_follow_weights() {
    let balancer = hash_balancer(&[1, 3]);
    let heavy_count = (0..10_000)
        .filter(|key| {
            balancer.choose(
                Some(mix(*key)),
                true,
                &FixedView::with_factors(&[FULL_FACTOR; 2]),
            ) == Some(1)
        })
        .count();
    assert!((7_300..7_700).contains(&heavy_count), "{heavy_count}");
}
