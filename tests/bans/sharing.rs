//! Gateways that share a store share their bans, whatever happens to the store or to one of them.

use rustix::process::Signal;
use tollgate::base::clock::{Clock, Nanos};

use crate::common::redis::Redis;
use crate::common::wait_until;
use crate::memcached::Server as Memcached;
use crate::{Site, from, json_of};

/// Two gateways on one store, each with a folder of its own.
fn pair(store: &str) -> [Site; 2] {
    let gateway = format!("store: \"{store}\"\n");
    let pair = [Site::start(&gateway), Site::start(&gateway)];
    for site in &pair {
        wait_until("the store is shared", || {
            let status = json_of(&site.server.ask("GET", "/v1/status", ""));
            status["store"]["state"] == "shared"
        });
    }
    pair
}

fn is_banned(site: &Site, fields: &str) -> bool {
    site.get(fields).status() == 429
}

/// Waits until a gateway does or does not refuse a client, and checks that it took at most a second.
#[track_caller]
fn within_a_second(what: &str, mut happens: impl FnMut() -> bool) {
    let clock = Clock::system();
    let begin = clock.now();
    wait_until(what, &mut happens);
    let took = clock.now().since(begin);
    println!("{what}: {took:?}");
    assert!(took <= Nanos::from_secs(1), "{what}: {took:?}");
}

fn orders_reach_all_gateways(store: &str) {
    let [first, second] = pair(store);
    first.ban_key("192.0.2.0/24");
    within_a_second("the other refuses the network", || {
        is_banned(&second, &from("192.0.2.9"))
    });
    second.ban_key("user=alice");
    second.ban_key("token=secret-key");
    within_a_second("the first refuses the user", || {
        is_banned(&first, "x-user: alice\r\n")
    });
    within_a_second("keys that are hashed are shared too", || {
        is_banned(&first, "x-key: secret-key\r\n")
    });
    assert_eq!(second.unban("192.0.2.0/24").status(), 200);
    within_a_second("the first has lifted it", || {
        !is_banned(&first, &from("192.0.2.9"))
    });
    assert_eq!(first.keys(), second.keys());
}

#[test]
fn orders_reach_all_gateways_by_redis() {
    let redis = Redis::start();
    orders_reach_all_gateways(&format!("redis://127.0.0.1:{}", redis.port));
}

#[test]
fn orders_reach_all_gateways_by_memcached() {
    let memcached = Memcached::start();
    orders_reach_all_gateways(&format!("memcached://{}", memcached.address));
}

fn an_emptied_store_is_filled_again(store: &str, empty: impl FnOnce()) {
    let [first, second] = pair(store);
    first.ban_key("user=alice");
    within_a_second("the other has it", || {
        is_banned(&second, "x-user: alice\r\n")
    });
    empty();
    let third = Site::start(&format!("store: \"{store}\"\n"));
    wait_until("a new gateway has it", || {
        is_banned(&third, "x-user: alice\r\n")
    });
    assert!(is_banned(&first, "x-user: alice\r\n"));
    assert_eq!(third.unban("user=alice").status(), 200);
    wait_until("it is lifted everywhere", || {
        [&first, &second, &third]
            .iter()
            .all(|site| !is_banned(site, "x-user: alice\r\n"))
    });
}

#[test]
fn an_emptied_redis_is_filled_again() {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    an_emptied_store_is_filled_again(&store, || {
        redis.ask("FLUSHALL");
    });
}

#[test]
fn an_emptied_memcached_is_filled_again() {
    let memcached = Memcached::start();
    let store = format!("memcached://{}", memcached.address);
    an_emptied_store_is_filled_again(&store, || memcached.flush());
}

/// It has no file of the others, and must not serve whom they keep out.
#[test]
fn a_new_gateway_refuses_from_its_first_request_on() {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let [first, second] = pair(&store);
    first.ban_key("192.0.2.0/24");
    within_a_second("the store has it", || {
        is_banned(&second, &from("192.0.2.9"))
    });
    let third = Site::start(&format!("store: \"{store}\"\n"));
    assert!(is_banned(&third, &from("192.0.2.9")));
}

/// What was ordered without the store holds at once, and reaches the others when it is back. Of two orders about one key the
/// later one counts.
#[test]
fn orders_without_the_store_are_made_known_later() {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let [first, second] = pair(&store);
    first.ban_key("user=carl");
    within_a_second("both have it", || is_banned(&second, "x-user: carl\r\n"));
    redis.signal(Signal::STOP);
    first.ban_key("user=alice");
    assert!(is_banned(&first, "x-user: alice\r\n"));
    assert_eq!(second.unban("user=carl").status(), 200);
    assert!(is_banned(&first, "x-user: carl\r\n"));
    redis.signal(Signal::CONT);
    wait_until("the other has the ban", || {
        is_banned(&second, "x-user: alice\r\n")
    });
    wait_until("the first has the end of the other", || {
        !is_banned(&first, "x-user: carl\r\n")
    });
}

/// The second gateway has no file: it learns everything from the store.
#[test]
fn a_gateway_that_was_killed_knows_what_the_others_know() {
    let redis = Redis::start();
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let [mut first, second] = pair(&store);
    first.ban_key("user=alice");
    within_a_second("both have it", || is_banned(&second, "x-user: alice\r\n"));
    first.server.signal(Signal::KILL);
    first.server.ended();
    second.ban_key("user=bob");
    first.server = crate::common::child::Server::start(first.folder.path(), true);
    assert!(is_banned(&first, "x-user: alice\r\n"), "by its file");
    wait_until("it has learnt the other", || {
        is_banned(&first, "x-user: bob\r\n")
    });
}
