//! Gateways that share a store share accounts: orders at several of them at once all count.

use std::thread;

use rustix::process::Signal;
use serde_json::json;

use crate::common::redis::Redis;
use crate::common::{assert_contains, wait_until, within_a_second};
use crate::{ALICE, PREPAID, Site, get, json_of};

/// Two gateways on one store, each with a folder of its own.
fn pair(redis: &Redis) -> [Site; 2] {
    let port = redis.port;
    let gateway = format!("store: {{ address: \"redis://127.0.0.1:{port}\", budget: 1s }}\n");
    let pair = [(); 2].map(|()| Site::start(&gateway, PREPAID));
    for site in &pair {
        wait_for_store(site);
    }
    pair
}

fn wait_for_store(site: &Site) {
    wait_until("the store is shared", || {
        let status = json_of(&site.ask("rita", "GET", "/v1/status", ""));
        status["store"]["state"] == "shared"
    });
}

/// Both gateways together, until both refuse.
fn admitted_by_both(pair: &[Site; 2]) -> usize {
    let counts = thread::scope(|scope| {
        let doors = pair.each_ref().map(Site::doors);
        let threads = doors.map(|doors| scope.spawn(move || doors.admitted(ALICE)));
        threads.map(|thread| thread.join().unwrap())
    });
    counts.iter().sum()
}

#[test]
fn an_order_holds_at_the_other_gateway_within_a_second() {
    let redis = Redis::start();
    let pair = pair(&redis);
    pair[0].add("user=alice", 20);
    assert_eq!(pair[0].status(ALICE), 200, "at once");
    within_a_second("the other knows it", || pair[1].added("user=alice") == 20);
    assert_eq!(admitted_by_both(&pair), 19);
    pair[1].add("user=alice", 7);
    within_a_second("the first knows it", || pair[0].added("user=alice") == 27);
    assert_eq!(pair[0].status(ALICE), 200);
    let revoked = json_of(&pair[1].revoke("user=alice"));
    assert_eq!(revoked["revoked"], 6, "{revoked}");
    within_a_second("the first knows that too", || {
        pair[0].added("user=alice") == 21
    });
    for site in &pair {
        assert_eq!(site.status(ALICE), 429);
    }
}

/// 50 orders at each, of different sizes, so that no other sum could be right by chance.
#[test]
fn orders_at_both_gateways_at_once_all_count() {
    let redis = Redis::start();
    let pair = pair(&redis);
    thread::scope(|scope| {
        for doors in pair.each_ref().map(Site::doors) {
            for key in ["user=alice", "user=bob"] {
                scope.spawn(move || (1..=25).for_each(|credits| drop(doors.add(key, credits))));
            }
        }
    });
    let expected: u64 = 2 * (1..=25).sum::<u64>();
    for site in &pair {
        within_a_second("all orders are known", || {
            let keys = ["user=alice", "user=bob"];
            keys.iter().all(|key| site.added(key) == expected)
        });
    }
    let orders = pair[0].key("user=alice")["account"]["orders"].clone();
    assert_eq!(orders.as_array().unwrap().len(), 50);
    assert_eq!(admitted_by_both(&pair) as u64, expected);
    for site in &pair {
        assert_eq!(site.status(ALICE), 429);
    }
}

/// A client repeats an order at the other gateway, at once and later.
#[test]
fn an_order_that_is_repeated_elsewhere_counts_once() {
    let redis = Redis::start();
    let pair = pair(&redis);
    let order = |add: u64, id: &str| json!({ "limit": "prepaid", "key": "user=alice", "add": add, "order": id });
    for site in &pair {
        assert_eq!(site.order(&order(9, "inv-1")).status(), 200);
    }
    pair[0].add("user=alice", 1);
    within_a_second("both know both orders", || {
        pair.iter().all(|site| site.added("user=alice") == 10)
    });
    let again = json_of(&pair[1].order(&order(9, "inv-1")));
    assert_eq!(again["order"]["repeated"], true, "{again}");
    assert_eq!(pair[1].order(&order(8, "inv-1")).status(), 409);
    assert_eq!(admitted_by_both(&pair), 10);
}

#[test]
fn what_is_left_is_taken_back_once() {
    let redis = Redis::start();
    let pair = pair(&redis);
    pair[0].add("user=alice", 50);
    within_a_second("the other knows it", || pair[1].added("user=alice") == 50);
    for site in &pair {
        assert_eq!(get(&mut site.server.connect(), ALICE).status(), 200);
    }
    thread::scope(|scope| {
        for doors in pair.each_ref().map(Site::doors) {
            scope.spawn(move || assert_eq!(doors.revoke("user=alice").status(), 200));
        }
    });
    pair[0].add("user=alice", 5);
    within_a_second("both know all orders", || {
        pair.iter().all(|site| site.added("user=alice") == 7)
    });
    assert_eq!(admitted_by_both(&pair), 5);
}

#[test]
fn nothing_is_ordered_while_the_store_is_away() {
    let mut redis = Redis::start();
    let pair = pair(&redis);
    pair[0].add("user=alice", 5);
    within_a_second("the other knows it", || pair[1].added("user=alice") == 5);
    redis.kill();
    wait_until("the store is away", || {
        let status = json_of(&pair[0].ask("rita", "GET", "/v1/status", ""));
        status["store"]["state"] != "shared"
    });
    let refused = pair[0].revoke("user=alice");
    assert_eq!(refused.status(), 503, "{}", refused.text());
    assert_contains(
        &refused.text(),
        &["the shared store is away", "nothing was taken back"],
    );
    // Credits could be lost: what is counted together elsewhere meanwhile would take their place.
    let order = json!({ "limit": "prepaid", "key": "user=alice", "add": 2, "order": "inv-2" });
    let refused = pair[0].order(&order);
    assert_eq!(refused.status(), 503, "{}", refused.text());
    let expected = ["the shared store is away", "repeat the order"];
    assert_contains(&refused.text(), &expected);
    redis.revive();
    for site in &pair {
        wait_for_store(site);
    }
    assert_eq!(pair[0].order(&order).status(), 200);
    within_a_second("the other knows it", || pair[1].added("user=alice") == 7);
    assert_eq!(admitted_by_both(&pair), 7);
}

/// The other gateway knows it, although the first may never come back.
#[test]
fn an_order_just_before_the_end_is_not_lost() {
    let redis = Redis::start();
    let [mut first, second] = pair(&redis);
    first.add("user=alice", 6);
    first.server.signal(Signal::TERM);
    first.server.ended();
    within_a_second("the other knows it", || second.added("user=alice") == 6);
}

/// It was killed, and its file is gone.
#[test]
fn a_new_gateway_knows_the_accounts_before_it_serves() {
    let redis = Redis::start();
    let [mut first, second] = pair(&redis);
    second.add("user=alice", 6);
    within_a_second("the first knows it", || first.added("user=alice") == 6);
    first.server.signal(Signal::KILL);
    first.server.ended();
    std::fs::remove_file(first.folder.path().join("record/orders")).unwrap();
    first.restart();
    assert_eq!(first.added("user=alice"), 6, "at once");
}
