//! Gateways that share a store share grants, and admit together what is granted.

use rustix::process::Signal;

use crate::common::redis::Redis;
use crate::common::{wait_until, within_a_second};
use crate::memcached::Server as Memcached;
use crate::{Site, json_of};

const ALICE: &str = "x-user: alice\r\n";

/// Two gateways on one store, each with a folder of its own.
pub fn pair(store: &str, limits: &str) -> [Site; 2] {
    let gateway = format!("store: {{ address: \"{store}\", budget: 1s }}\n");
    let pair = [(); 2].map(|()| Site::start(&gateway, limits));
    for site in &pair {
        wait_until("the store is shared", || {
            let status = json_of(&site.server.ask("GET", "/v1/status", ""));
            status["store"]["state"] == "shared"
        });
    }
    pair
}

fn has_quota(site: &Site, quota: u64) -> bool {
    site.key("few", "user=alice")["quota"] == quota
}

/// Both gateways together, until both refuse.
pub fn admitted_by_both(pair: &[Site; 2]) -> usize {
    let mut total = 0;
    loop {
        let mut clients = pair.each_ref().map(|site| site.server.connect());
        let admitted = clients
            .each_mut()
            .map(|client| crate::get(client, ALICE).status() == 200);
        total += admitted.iter().filter(|is_admitted| **is_admitted).count();
        if admitted == [false, false] {
            return total;
        }
    }
}

/// Each algorithm has counters of its own in the store.
fn grants_hold_at_all_gateways(store: &str, algorithms: &[&str]) {
    for algorithm in algorithms {
        let limits = format!(
            "{{ few: {{ key: user, rate: 4/h, algorithm: {algorithm}, sharing: strict }} }}"
        );
        let pair = pair(store, &limits);
        assert_eq!(admitted_by_both(&pair), 4, "{algorithm}");
        pair[0].grant("few", "user=alice", ("times", 5));
        let is_admitted = pair[0].status(ALICE) == 200;
        assert!(is_admitted, "no refusal of the store is remembered");
        within_a_second("the other knows the grant", || has_quota(&pair[1], 20));
        assert_eq!(admitted_by_both(&pair), 15, "{algorithm}");
        assert_eq!(pair[1].revoke("few", "user=alice").status(), 200);
        within_a_second("the first has revoked it", || has_quota(&pair[0], 4));
        for site in &pair {
            assert_eq!(site.status(ALICE), 429, "{algorithm}");
        }
    }
}

#[test]
fn grants_hold_at_all_gateways_of_redis() {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    grants_hold_at_all_gateways(&store, &["sliding-log", "fixed-window"]);
}

#[test]
fn grants_hold_at_all_gateways_of_memcached() {
    let memcached = Memcached::start();
    let store = format!("memcached://{}", memcached.address);
    let algorithms = ["sliding-log", "sliding-window", "fixed-window"];
    grants_hold_at_all_gateways(&store, &algorithms);
}

/// A gateway is granted units in advance, and together they never use more than the grant has.
fn leases_stay_within_the_grant(store: &str) {
    let limits = "{ few: { key: user, rate: 20/h, sharing: leased } }";
    let pair = pair(store, limits);
    let before = admitted_by_both(&pair);
    assert!((15..=20).contains(&before), "{before}");
    pair[0].grant("few", "user=alice", ("times", 5));
    within_a_second("the other knows the grant", || has_quota(&pair[1], 100));
    let after = admitted_by_both(&pair);
    println!("{before} of 20, then {after} more of 100");
    assert!(
        (75..=100).contains(&(before + after)),
        "{before} and {after}"
    );
}

#[test]
fn leases_of_redis_stay_within_the_grant() {
    let redis = Redis::start();
    leases_stay_within_the_grant(&format!("redis://127.0.0.1:{}", redis.port));
}

#[test]
fn leases_of_memcached_stay_within_the_grant() {
    let memcached = Memcached::start();
    leases_stay_within_the_grant(&format!("memcached://{}", memcached.address));
}

/// Each gateway counts for itself, but the grant is known to both.
#[test]
fn local_counts_have_the_grant_too() {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let pair = pair(&store, "{ few: { key: user, rate: 2/h, sharing: local } }");
    pair[0].grant("few", "user=alice", ("add", 3));
    within_a_second("the other knows the grant", || has_quota(&pair[1], 5));
    for site in &pair {
        assert_eq!(site.admitted(ALICE), 5);
    }
}

/// It was killed, and its file is gone.
#[test]
fn a_new_gateway_knows_the_grants_before_it_serves() {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let [mut first, second] = pair(&store, "{ few: { key: user, rate: 2/h } }");
    second.grant("few", "user=alice", ("times", 3));
    within_a_second("the first knows it", || has_quota(&first, 6));
    first.server.signal(Signal::KILL);
    first.server.ended();
    std::fs::remove_file(first.folder.path().join("record/orders")).unwrap();
    first.restart();
    assert!(has_quota(&first, 6), "at once");
}
