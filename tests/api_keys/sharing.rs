//! Gateways that share a store share their keys, whatever happens to the store or to one of them.

use rustix::process::Signal;
use serde_json::json;

use crate::common::child::Server;
use crate::common::redis::Redis;
use crate::common::wait_until;
use crate::common::within_a_second;
use crate::memcached::Server as Memcached;
use crate::{Site, json_of};

/// Two gateways on one store, each with a folder of its own.
fn pair(store: &str) -> [Site; 2] {
    let pair = [site_at(store), site_at(store)];
    for site in &pair {
        wait_until("the store is shared", || {
            let status = json_of(&site.server.ask("GET", "/v1/status", ""));
            status["store"]["state"] == "shared"
        });
    }
    pair
}

fn site_at(store: &str) -> Site {
    Site::start(&format!("store: {{ address: \"{store}\", budget: 1s }}\n"))
}

fn keys_reach_all_gateways(store: &str) {
    let [first, second] = pair(store);
    let order = json!({ "user": "alice", "plan": "gold", "set": { "tenant": "acme" } });
    let added = first.add(&order);
    assert!(first.accepts(&added.key), "at once");
    within_a_second("the other accepts it", || second.accepts(&added.key));
    second.upstream.drain();
    assert!(second.accepts(&added.key));
    assert_eq!(
        second.upstream.next().field("tollgate-tenant"),
        Some("acme")
    );
    assert_eq!(second.keys()[0]["id"], added.id.as_str());
    assert_eq!(second.revoke(&added.id).status(), 200);
    assert!(!second.accepts(&added.key), "at once");
    within_a_second("the first refuses it", || !first.accepts(&added.key));
    assert!(first.keys().is_empty());
    let third = site_at(store);
    assert!(!third.accepts(&added.key), "a new gateway knows it too");
}

#[test]
fn keys_reach_all_gateways_by_redis() {
    keys_reach_all_gateways(&Redis::start().url());
}

#[test]
fn keys_reach_all_gateways_by_memcached() {
    let memcached = Memcached::start();
    keys_reach_all_gateways(&format!("memcached://{}", memcached.address));
}

fn an_emptied_store_is_filled_again(store: &str, empty: impl FnOnce()) {
    let [first, second] = pair(store);
    let (alice, bob) = (first.add_for("alice"), first.add_for("bob"));
    within_a_second("the other accepts both", || {
        second.accepts(&alice.key) && second.accepts(&bob.key)
    });
    assert_eq!(first.revoke(&bob.id).status(), 200);
    within_a_second("the other refuses it", || !second.accepts(&bob.key));
    empty();
    let third = site_at(store);
    wait_until("a new gateway accepts it", || third.accepts(&alice.key));
    for site in [&first, &second, &third] {
        assert!(!site.accepts(&bob.key));
    }
    assert_eq!(third.revoke(&alice.id).status(), 200);
    wait_until("all refuse it", || {
        [&first, &second, &third]
            .iter()
            .all(|site| !site.accepts(&alice.key))
    });
}

#[test]
fn an_emptied_redis_is_filled_again() {
    let redis = Redis::start();
    an_emptied_store_is_filled_again(&redis.url(), || {
        redis.ask("FLUSHALL");
    });
}

#[test]
fn an_emptied_memcached_is_filled_again() {
    let memcached = Memcached::start();
    let store = format!("memcached://{}", memcached.address);
    an_emptied_store_is_filled_again(&store, || memcached.flush());
}

/// It has the key in its file, and did not hear of its end.
#[test]
fn a_gateway_that_was_away_does_not_bring_a_revoked_key_back() {
    let redis = Redis::start();
    let [mut first, second] = pair(&redis.url());
    let (alice, bob) = (first.add_for("alice"), first.add_for("bob"));
    within_a_second("the other accepts both", || {
        second.accepts(&alice.key) && second.accepts(&bob.key)
    });
    first.server.signal(Signal::KILL);
    first.server.ended();
    assert_eq!(second.revoke(&alice.id).status(), 200);
    redis.ask("FLUSHALL");
    first.server = Server::start(first.folder.path(), true);
    wait_until("the first has learnt it", || !first.accepts(&alice.key));
    assert!(first.accepts(&bob.key) && second.accepts(&bob.key));
    assert!(!second.accepts(&alice.key));
}

#[test]
fn keys_without_the_store_hold_here_and_reach_the_others_later() {
    let redis = Redis::start();
    let [first, second] = pair(&redis.url());
    let carl = first.add_for("carl");
    within_a_second("both accept it", || second.accepts(&carl.key));
    redis.signal(Signal::STOP);
    let alice = first.add_for("alice");
    assert_eq!(second.revoke(&carl.id).status(), 200);
    assert!(first.accepts(&alice.key) && !second.accepts(&carl.key));
    redis.signal(Signal::CONT);
    wait_until("the other accepts the new one", || {
        second.accepts(&alice.key)
    });
    wait_until("the first refuses the old one", || {
        !first.accepts(&carl.key)
    });
}

#[test]
fn nothing_in_redis_has_a_key() {
    let redis = Redis::start();
    let [first, second] = pair(&redis.url());
    let added = first.add_for("alice");
    within_a_second("the other accepts it", || second.accepts(&added.key));
    let names = redis.ask("KEYS *");
    let names = names.lines().filter(|line| !line.starts_with(['*', '$']));
    let mut dump = String::new();
    for name in names {
        for command in ["GET", "HGETALL"] {
            dump += &redis.ask(&format!("{command} {name}"));
        }
    }
    assert!(dump.contains(&added.id) && dump.contains("alice"), "{dump}");
    assert!(!dump.contains(&added.key[3..10]), "{dump}");
}
