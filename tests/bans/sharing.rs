//! Gateways that share a store share their bans, whatever happens to the store or to one of them.

use std::hash::Hasher;
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::json;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::store::shared::shared_entries::MAX_YIELDING;

use crate::common::child::Server;
use crate::common::redis::Redis;
use crate::common::wait_until;
use crate::memcached::Server as Memcached;
use crate::{Site, from, json_of};

/// How often something that shall take a second at most is done. A busy machine may delay one of them.
const ATTEMPTS: usize = 3;

/// The lines of a gateway file that name a store.
fn by(store: &str) -> String {
    format!("store: {{ address: \"{store}\", budget: 1s }}\n")
}

/// Two gateways on one store, each with a folder of its own.
fn pair(store: &str) -> [Site; 2] {
    pair_with(&by(store))
}

/// Two gateways with these lines in their files, which name a store.
fn pair_with(gateway: &str) -> [Site; 2] {
    let pair = [Site::start(gateway), Site::start(gateway)];
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

/// Waits until something happens, and returns how long it took.
fn time_until(what: &str, mut happens: impl FnMut() -> bool) -> Nanos {
    let clock = Clock::system();
    let begin = clock.now();
    wait_until(what, &mut happens);
    clock.now().since(begin)
}

/// Checks that the fastest of some attempts took a second at most.
#[track_caller]
fn assert_within_a_second(what: &str, times: &[Nanos]) {
    println!("{what}: {times:?}");
    let fastest = times.iter().min().unwrap();
    assert!(*fastest <= Nanos::from_secs(1), "{what}: {times:?}");
}

/// Orders by the command line and by the API reach the other gateway, and end there too, within a second.
fn orders_reach_all_gateways_within_a_second(store: &str) {
    let [first, second] = pair(store);
    let (mut begins, mut lifts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let clock = Clock::system();
    for number in 0..ATTEMPTS {
        let key = format!("user=u{number}");
        let fields = format!("x-user: u{number}\r\n");
        let banned = first.command(&["ban", &key, "--for", "1h"]);
        assert_eq!(banned.code, Some(0), "{}", banned.err);
        assert!(is_banned(&first, &fields), "at once where it is ordered");
        begins.push(time_until("the other refuses", || {
            is_banned(&second, &fields)
        }));
        let lifted = second.command(&["unban", &key]);
        assert_eq!(lifted.code, Some(0), "{}", lifted.err);
        assert!(!is_banned(&second, &fields), "at once where it is lifted");
        lifts.push(time_until("the first has lifted it", || {
            !is_banned(&first, &fields)
        }));
        let network = format!("198.51.{number}.0/24");
        let fields = from(&format!("198.51.{number}.9"));
        let ban = json_of(&first.ban(&json!({ "key": network, "for": "2s" })));
        let until = ban["until"].as_f64().unwrap();
        begins.push(time_until("the other refuses the network", || {
            is_banned(&second, &fields)
        }));
        for site in [&first, &second] {
            wait_until("the ban ends", || !is_banned(site, &fields));
            let late = clock.wall().as_secs_f64() - until;
            assert!(late > -0.01, "it ends no sooner: {late} s");
            ends.push(Nanos((late.max(0.0) * 1e9) as u64));
        }
    }
    assert_within_a_second("orders", &begins);
    assert_within_a_second("what is lifted", &lifts);
    assert_within_a_second("ends", &ends);
}

#[test]
fn orders_reach_all_gateways_within_a_second_by_redis() {
    let redis = Redis::start();
    orders_reach_all_gateways_within_a_second(&redis.url());
}

#[test]
fn orders_reach_all_gateways_within_a_second_by_memcached() {
    let memcached = Memcached::start();
    orders_reach_all_gateways_within_a_second(&format!("memcached://{}", memcached.address));
}

fn orders_reach_all_gateways(store: &str) {
    let [first, second] = pair(store);
    first.ban_key("192.0.2.0/24");
    wait_until("the other refuses the network", || {
        is_banned(&second, &from("192.0.2.9"))
    });
    second.ban_key("user=alice");
    second.ban_key("token=secret-key");
    wait_until("the first refuses the user", || {
        is_banned(&first, "x-user: alice\r\n")
    });
    wait_until("keys that are hashed are shared too", || {
        is_banned(&first, "x-key: secret-key\r\n")
    });
    assert_eq!(second.unban("192.0.2.0/24").status(), 200);
    wait_until("the first has lifted it", || {
        !is_banned(&first, &from("192.0.2.9"))
    });
    assert_eq!(first.keys(), second.keys());
}

#[test]
fn orders_reach_all_gateways_by_redis() {
    let redis = Redis::start();
    orders_reach_all_gateways(&redis.url());
}

#[test]
fn orders_reach_all_gateways_by_memcached() {
    let memcached = Memcached::start();
    orders_reach_all_gateways(&format!("memcached://{}", memcached.address));
}

fn an_emptied_store_is_filled_again(store: &str, empty: impl FnOnce()) {
    let [first, second] = pair(store);
    first.ban_key("user=alice");
    wait_until("the other has it", || {
        is_banned(&second, "x-user: alice\r\n")
    });
    empty();
    let third = Site::start(&by(store));
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
    let store = redis.url();
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
    let store = redis.url();
    let [first, second] = pair(&store);
    first.ban_key("192.0.2.0/24");
    wait_until("the store has it", || {
        is_banned(&second, &from("192.0.2.9"))
    });
    let third = Site::start(&by(&store));
    assert!(is_banned(&third, &from("192.0.2.9")));
}

/// What was ordered without the store holds at once, and reaches the others when it is back. Of two orders about one key the
/// later one counts.
#[test]
fn orders_without_the_store_are_made_known_later() {
    let redis = Redis::start();
    let store = redis.url();
    let [first, second] = pair(&store);
    first.ban_key("user=carl");
    wait_until("both have it", || is_banned(&second, "x-user: carl\r\n"));
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

/// Its own file has what it knew, and the store what was ordered meanwhile.
fn a_gateway_that_was_killed_knows_what_the_others_know(
    store: &str,
    stop: impl FnOnce(),
    go_on: impl FnOnce(),
) {
    let [mut first, second] = pair(store);
    first.ban_key("user=alice");
    wait_until("both have it", || is_banned(&second, "x-user: alice\r\n"));
    first.server.signal(Signal::KILL);
    first.server.ended();
    second.ban_key("user=bob");
    assert_eq!(second.unban("user=alice").status(), 200);
    stop();
    first.server = Server::start(first.folder.path(), true);
    assert!(is_banned(&first, "x-user: alice\r\n"), "by its file");
    go_on();
    wait_until("it has learnt the others", || {
        is_banned(&first, "x-user: bob\r\n") && !is_banned(&first, "x-user: alice\r\n")
    });
    assert_eq!(first.keys(), second.keys());
}

#[test]
fn a_gateway_that_was_killed_knows_what_the_others_know_by_redis() {
    let redis = Redis::start();
    let (stop, go_on) = (|| redis.signal(Signal::STOP), || redis.signal(Signal::CONT));
    a_gateway_that_was_killed_knows_what_the_others_know(&redis.url(), stop, go_on);
}

#[test]
fn a_gateway_that_was_killed_knows_what_the_others_know_by_memcached() {
    let memcached = Memcached::start();
    let store = format!("memcached://{}", memcached.address);
    let go_on = || memcached.signal(Signal::CONT);
    a_gateway_that_was_killed_knows_what_the_others_know(&store, || memcached.stop(), go_on);
}

/// Gateways that have no file of their own keep what they know by the store.
#[test]
fn the_store_keeps_bans_of_gateways_that_were_all_killed() {
    let redis = Redis::start();
    let [mut first, mut second] = pair(&redis.url());
    first.ban_key("user=alice");
    wait_until("both have it", || is_banned(&second, "x-user: alice\r\n"));
    for site in [&mut first, &mut second] {
        site.server.signal(Signal::KILL);
        site.server.ended();
    }
    let third = Site::start(&by(&redis.url()));
    assert!(
        is_banned(&third, "x-user: alice\r\n"),
        "from its first request on"
    );
}

/// The number of the item of memcached that has the ban of a key.
fn item_of(key: &str) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(format!("ban {key}").as_bytes());
    hasher.finish() % 64
}

/// What others have put there cannot be dropped, and all other bans are shared nevertheless.
#[test]
fn a_full_item_of_memcached_keeps_no_other_ban_from_the_others() {
    let memcached = Memcached::start();
    let [first, second] = pair(&format!("memcached://{}", memcached.address));
    let full = item_of("user=full");
    let other = (0..).map(|number| format!("u{number}"));
    let mut others = other.filter(|user| item_of(&format!("user={user}")) != full);
    let text = format!("ban user=x\t{}\n", "x".repeat(524_200));
    memcached.set(&format!("tollgate:entries:{full}"), &text);
    for _ in 0..2 {
        let user = others.next().unwrap();
        first.ban_key("user=full");
        first.ban_key(&format!("user={user}"));
        wait_until("the other has it", || {
            is_banned(&second, &format!("x-user: {user}\r\n"))
        });
    }
    assert!(is_banned(&first, "x-user: full\r\n"));
    assert!(!is_banned(&second, "x-user: full\r\n"), "the item is full");
}

/// What others have put there keeps no order from the other gateways, and bans by limits give way.
#[test]
fn a_full_redis_takes_orders_and_no_bans_by_limits() {
    let redis = Redis::start();
    let limit = "limits: { few: { key: tenant, rate: 1/h, ban: { after: 1 refusal in 10m } } }\n";
    let [first, second] = pair_with(&format!("{}{limit}", by(&redis.url())));
    first.ban_key("user=bob");
    wait_until("both share", || is_banned(&second, "x-user: bob\r\n"));
    let reply = redis.ask("KEYS *entries");
    let key = reply.split_whitespace().last().unwrap();
    let mut command = format!("*4\r\n$4\r\nHSET\r\n${}\r\n{key}\r\n", key.len()).into_bytes();
    command.extend(b"$5\r\nbytes\r\n$2\r\n\xff\xfe\r\n");
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port)).unwrap();
    stream.write_all(&command).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b":1\r\n");
    let foreign: Vec<String> = (0..MAX_YIELDING)
        .map(|number| format!("x{number} y"))
        .collect();
    for fields in foreign.chunks(4_000) {
        redis.ask(&format!("HSET {key} {}", fields.join(" ")));
    }
    for status in [200, 429] {
        assert_eq!(first.get("x-tenant: red\r\n").status(), status);
    }
    wait_until("the limit bans", || first.keys().len() == 2);
    first.ban_key("user=alice");
    wait_until("the other has the order", || {
        is_banned(&second, "x-user: alice\r\n")
    });
    assert_eq!(second.keys(), ["user=alice", "user=bob"]);
    let names = redis.ask(&format!("HKEYS {key}"));
    assert!(names.contains("ban user=alice") && !names.contains("~ban"));
}
