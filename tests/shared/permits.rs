//! Limits on open requests that gateways share: never more are open at the upstream than the limit has, whatever becomes
//! of gateways and stores, and all permits come back.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use tollgate::base::clock::Clock;

use crate::common::redis::Redis;
use crate::common::topology::Cluster;
use crate::common::{Client, assert_contains, wait_until};
use crate::fleet::Fleet;
use crate::memcached;
use crate::open::{Busy, OpenUpstream, get, held_over_http2, hold, open};
use crate::scene::pass;

/// The number of permits of a user.
pub const PERMITS: usize = 6;
/// The life of a lease, and what a busy machine adds to it.
const LEASE: Duration = Duration::from_secs(4);
const SLACK: Duration = Duration::from_secs(4);

/// A gateway's lines about the store.
pub fn store(address: &str) -> String {
    format!("store: {{ memory: 1MiB, budget: 1s, permit_lease: 4s, address: \"{address}\" }}")
}

/// One limit with these fields.
pub fn limit(fields: &str) -> String {
    format!("  parallel: {{ key: user, concurrent: {PERMITS}{fields} }}\n")
}

pub fn start(count: usize, address: &str, fields: &str) -> (OpenUpstream, Fleet) {
    let upstream = OpenUpstream::start();
    let fleet = Fleet::start(count, upstream.address, &store(address), &limit(fields));
    (upstream, fleet)
}

/// Waits until all permits are in use at once.
#[track_caller]
pub fn all_in_use(upstream: &OpenUpstream) {
    wait_until("all permits are in use", || upstream.open("u") == PERMITS);
}

/// Holds one more request of a user open at a gateway, so that `count` are open. A refused client tries again.
#[track_caller]
pub fn hold_one(upstream: &OpenUpstream, gateway: SocketAddr, count: usize) -> Client {
    let mut held = None;
    wait_until("a permit is free", || {
        let mut client = hold(gateway, "u");
        let mut is_refused = false;
        wait_until("the request is open or refused", || {
            client.stream.set_nonblocking(true).unwrap();
            is_refused = client.stream.peek(&mut [0]).is_ok();
            client.stream.set_nonblocking(false).unwrap();
            is_refused || upstream.open("u") == count
        });
        match is_refused {
            true => assert_eq!(client.answer().status(), 429, "{count} shall be open"),
            false => held = Some(client),
        }
        held.is_some()
    });
    held.unwrap()
}

/// Has all permits held at one gateway, one by one, and ends these requests again.
#[track_caller]
pub fn all_are_free(upstream: &OpenUpstream, fleet: &Fleet) {
    let gateway = fleet.gateways.last().unwrap().address;
    let counts = 1..=PERMITS;
    let clients: Vec<Client> = counts
        .map(|count| hold_one(upstream, gateway, count))
        .collect();
    assert_eq!(get(fleet.gateways[0].address, "u", "1"), 429);
    upstream.release();
    for mut client in clients {
        assert_eq!(client.answer().status(), 200);
    }
}

/// The permits that a gateway's metrics say are open.
fn permits_open(fleet: &Fleet, index: usize) -> String {
    let text = fleet.gateways[index].ask("GET", "/metrics", "").text();
    let name = "tollgate_permits_open{limit=\"parallel\"} ";
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap().to_owned()
}

#[test]
fn one_after_the_other_at_all_gateways() {
    let redis = Redis::start();
    let (upstream, fleet) = start(3, &redis.url(), "");
    let mut held = Vec::new();
    for count in 1..=PERMITS {
        held.push(hold(fleet.gateways[count % 3].address, "u"));
        wait_until("the request is open", || upstream.open("u") == count);
        // The first gateway has none of the first two itself.
        let key = fleet.gateways[0].ask("GET", "/v1/limits/parallel/keys/user=u", "");
        let remaining = format!("\"remaining\":{}", PERMITS - count);
        assert_contains(&key.text(), &[&remaining]);
    }
    for gateway in &fleet.gateways {
        let mut client = gateway.connect();
        client.send("GET /1 HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
        let refused = client.answer();
        assert_eq!(refused.status(), 429);
        let fields = ["retry-after", "ratelimit-policy", "ratelimit"];
        let expected = [
            "1",
            "\"parallel\";q=6;qu=\"concurrent-requests\"",
            "\"parallel\";r=0",
        ];
        assert_eq!(fields.map(|field| refused.field(field)), expected.map(Some));
        // Others have permits of their own.
        assert_eq!(get(gateway.address, "v", "1"), 200);
    }
    assert_eq!(permits_open(&fleet, 0), "2");
    upstream.release();
    for mut client in held {
        assert_eq!(client.answer().status(), 200);
    }
    // Whoever is told that a request has ended may send the next one to any gateway.
    for count in 0..60 {
        let mut client = fleet.gateways[count % 3].connect();
        client.send("GET /1 HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
        let admitted = client.answer();
        assert_eq!(admitted.status(), 200, "request {count}");
    }
    assert_eq!(upstream.most(), PERMITS);
    // Nothing is left in the store: a hash goes with its last field.
    wait_until("the permits are back", || {
        redis.ask("KEYS tollgate:permits:*").starts_with("*0")
    });
}

#[test]
fn killed_gateways_and_stalled_stores() {
    let redis = Redis::start();
    let (upstream, mut fleet) = start(3, &redis.url(), ", on_store_error: closed");
    let clock = Clock::system();
    let busy = Busy::start(30, "u", &fleet.addresses());
    all_in_use(&upstream);
    let killed = fleet.gateways.remove(0);
    killed.signal(Signal::KILL);
    drop(killed);
    let since = clock.now();
    all_in_use(&upstream);
    let took = Duration::from(clock.now().since(since));
    assert!(took < LEASE + SLACK, "the permits came back after {took:?}");
    // Shorter than a lease, and longer.
    for millis in [1_000, 6_000] {
        redis.signal(Signal::STOP);
        pass(millis);
        redis.signal(Signal::CONT);
        wait_until("the store is shared", || {
            fleet
                .ready()
                .iter()
                .all(|said| said.contains("store shared"))
        });
        all_in_use(&upstream);
    }
    let statuses = busy.stop();
    println!("{statuses:?}");
    assert_eq!(upstream.most(), PERMITS, "{statuses:?}");
    wait_until("all requests have ended", || upstream.open("u") == 0);
    all_are_free(&upstream, &fleet);
    assert_eq!(upstream.most(), PERMITS);
}

#[test]
fn a_gateway_that_is_cut_off_ends_what_it_cannot_answer_for() {
    let redis = Redis::start();
    let (upstream, fleet) = start(2, &redis.url(), ", on_store_error: closed");
    let gateway = fleet.gateways[0].address;
    let mut held = [hold(gateway, "u"), hold(gateway, "u")];
    let mut streams = [(); 2].map(|()| open(gateway, "u", "stream"));
    let over_http2 = held_over_http2(gateway, "u");
    for stream in &mut streams {
        assert_eq!(stream.head().unwrap().status(), 200);
    }
    all_in_use(&upstream);
    redis.signal(Signal::STOP);
    // No byte of a response has come, so the connection ends without one.
    for client in &mut held {
        assert!(client.rest().is_empty());
    }
    for stream in &mut streams {
        assert_eq!(stream.rest(), b"5\r\nhello\r\n", "no last chunk");
    }
    over_http2.join().unwrap();
    wait_until("no request is open", || upstream.open("u") == 0);
    redis.signal(Signal::CONT);
    all_are_free(&upstream, &fleet);
    assert_eq!(upstream.most(), PERMITS);
}

#[test]
fn a_gateway_that_stood_still_ends_what_it_has_lost() {
    let redis = Redis::start();
    let (upstream, fleet) = start(2, &redis.url(), ", on_store_error: closed");
    let [stopped, other] = [0, 1].map(|index: usize| &fleet.gateways[index]);
    let mut lost = [(); PERMITS].map(|()| hold(stopped.address, "u"));
    all_in_use(&upstream);
    stopped.signal(Signal::STOP);
    // Its lease ends, so another gateway gets all permits.
    let counts = PERMITS + 1..=2 * PERMITS;
    let kept: Vec<Client> = counts
        .map(|count| hold_one(&upstream, other.address, count))
        .collect();
    stopped.signal(Signal::CONT);
    all_in_use(&upstream);
    for client in &mut lost {
        assert!(client.rest().is_empty());
    }
    upstream.release();
    for mut client in kept {
        assert_eq!(client.answer().status(), 200);
    }
    all_are_free(&upstream, &fleet);
}

#[test]
fn an_outage_leaves_each_gateway_its_part() {
    let redis = Redis::start();
    let (upstream, fleet) = start(2, &redis.url(), "");
    let mut held: Vec<Client> = (0..PERMITS)
        .map(|_| hold(fleet.gateways[0].address, "u"))
        .collect();
    all_in_use(&upstream);
    redis.signal(Signal::STOP);
    wait_until("half of the requests have ended", || {
        upstream.open("u") == PERMITS / 2
    });
    // Nobody knows of another user, so each gateway has half of the permits.
    wait_until("the store is away", || {
        get(fleet.gateways[1].address, "v", "1");
        fleet.ready().iter().all(|said| said.contains("away"))
    });
    let alone: Vec<Client> = (0..PERMITS / 2)
        .map(|_| hold(fleet.gateways[1].address, "v"))
        .collect();
    wait_until("they are open", || upstream.open("v") == PERMITS / 2);
    assert_eq!(get(fleet.gateways[1].address, "v", "1"), 429);
    redis.signal(Signal::CONT);
    fleet.until_shared();
    // What was admitted without the store counts: the other gateway has the rest.
    let rest: Vec<Client> = (0..PERMITS / 2)
        .map(|_| hold(fleet.gateways[0].address, "v"))
        .collect();
    wait_until("the rest is open", || upstream.open("v") == PERMITS);
    assert_eq!(get(fleet.gateways[0].address, "v", "1"), 429);
    upstream.release();
    for mut client in alone.into_iter().chain(rest) {
        assert_eq!(client.answer().status(), 200);
    }
    let kept = held
        .iter_mut()
        .filter_map(|client| client.head().ok())
        .filter(|head| head.status() == 200);
    assert_eq!(kept.count(), PERMITS / 2);
    all_are_free(&upstream, &fleet);
}

#[test]
fn two_gateways_over_memcached() {
    let memcached = memcached::Server::start();
    let address = format!("memcached://{}", memcached.address);
    let (upstream, mut fleet) = start(2, &address, ", on_store_error: closed");
    let busy = Busy::start(16, "u", &fleet.addresses());
    all_in_use(&upstream);
    memcached.stop();
    pass(1_000);
    memcached.signal(Signal::CONT);
    wait_until("the store is shared", || {
        fleet
            .ready()
            .iter()
            .all(|said| said.contains("store shared"))
    });
    all_in_use(&upstream);
    let killed = fleet.gateways.remove(0);
    killed.signal(Signal::KILL);
    drop(killed);
    all_in_use(&upstream);
    let statuses = busy.stop();
    println!("{statuses:?}");
    wait_until("all requests have ended", || upstream.open("u") == 0);
    all_are_free(&upstream, &fleet);
    assert_eq!(upstream.most(), PERMITS, "{statuses:?}");
}

/// A user's permits, those of another user and the lease are on several servers.
#[test]
fn two_gateways_over_a_cluster() {
    let cluster = Cluster::start(&[]);
    let (upstream, mut fleet) = start(2, &cluster.url(), ", on_store_error: closed");
    let busy = Busy::start(16, "u", &fleet.addresses());
    all_in_use(&upstream);
    for user in ["v", "w", "x", "y"] {
        assert_eq!(get(fleet.gateways[1].address, user, "1"), 200);
    }
    let killed = fleet.gateways.remove(0);
    killed.signal(Signal::KILL);
    drop(killed);
    all_in_use(&upstream);
    busy.stop();
    wait_until("all requests have ended", || upstream.open("u") == 0);
    all_are_free(&upstream, &fleet);
    assert_eq!(upstream.most(), PERMITS);
}
