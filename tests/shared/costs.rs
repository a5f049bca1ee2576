//! What the store is asked at five times the rate, and what requests hold in it whose cost is not known yet.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::common::redis::Redis;
use crate::common::{self, Client, Gate, wait_until};
use crate::fleet::Fleet;
use crate::greedy::Crowd;
use crate::machine::attempts;
use crate::memcached;
use crate::upstream::Upstream;

/// Two gateways, a limit of 2000/10s by address, some 1,000 requests a second for two windows.
fn check(sharing: &str, most: f64) {
    attempts(|| run(sharing, most));
}

fn run(sharing: &str, most: f64) -> Result<(), String> {
    let clock = Clock::system();
    let (store, upstream) = (Redis::start(), Upstream::start(&clock));
    let limits = format!("  per-ip: {{ key: ip, rate: 2000/10s, sharing: {sharing} }}\n");
    let terms = format!("store: {{ address: {}, budget: 500ms }}", store.url());
    let fleet = Fleet::start(2, upstream.address, &terms, &limits);
    let before = store.scripts();
    let crowd = Crowd::start(
        &fleet.addresses(),
        &["a", "b", "c"],
        Duration::from_millis(5),
        &clock,
    );
    thread::park_timeout(Duration::from_secs(20));
    let answers = crowd.stop();
    // Twice a second both gateways say that they are there.
    let calls = (store.scripts() - before) as f64;
    let (asked, admitted) = (
        answers.len() as f64,
        answers.iter().filter(|a| a.status == 200).count(),
    );
    let times = asked / 4_000.0;
    println!(
        "{sharing}: {asked} requests, {times:.1} times the rate, {admitted} admitted, {:.4} calls a request",
        calls / asked
    );
    let second = |at: &u64| (at - answers[0].at) / 1_000_000_000;
    let passed: Vec<u64> = answers
        .iter()
        .filter(|a| a.status == 200)
        .map(|a| second(&a.at))
        .collect();
    println!(
        "by second {:?}",
        (0..21)
            .map(|s| passed.iter().filter(|p| **p == s).count())
            .collect::<Vec<_>>()
    );
    // Calls are few where most requests are refused.
    if !(3.5..7.0).contains(&times) {
        return Err(format!("the clients asked {times:.1} times the rate"));
    }
    assert!(calls / asked <= most, "{calls} calls for {asked} requests");
    match admitted >= 3_880 {
        true => Ok(()),
        false => Err(format!("{admitted} of 4000 were admitted")),
    }
}

#[test]
fn leased() {
    check("leased", 0.02);
}

#[test]
fn strict() {
    check("strict", 0.25);
}

/// 50 requests at once through two gateways, each of which holds 900 of 10,000: 11 reach the server before any of them ends.
#[track_caller]
fn check_at_once(store: &str, algorithm: &str) {
    let (gate, reached) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (open, count) = (gate.clone(), reached.clone());
    let upstream = common::Upstream::scripted(move |mut served, _| {
        while served.request().is_ok() {
            count.fetch_add(1, SeqCst);
            open.pass();
            served.send("HTTP/1.1 200 OK\r\nx-cost: 900\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let limits = format!(
        "  units: {{ key: ip, rate: 10000/h, count: cost header x-cost, reserve: 900, algorithm: {algorithm} }}\n"
    );
    let store = format!("store: {{ address: '{store}', budget: 1s }}");
    let fleet = Fleet::start(2, upstream.address, &store, &limits);
    let refused = AtomicUsize::new(0);
    let addresses = fleet.addresses();
    thread::scope(|scope| {
        for number in 0..50 {
            let (address, refused) = (addresses[number % 2], &refused);
            scope.spawn(move || {
                let status = Client::connect(address).get("/").status();
                assert!(matches!(status, 200 | 429), "{status}");
                refused.fetch_add(usize::from(status == 429), SeqCst);
            });
        }
        wait_until("all are decided", || {
            reached.load(SeqCst) + refused.load(SeqCst) == 50
        });
        gate.open();
    });
    let alone: usize = fleet.counts().iter().map(|counts| counts.alone).sum();
    assert_eq!(alone, 0, "{algorithm}: decided without the store");
    assert_eq!(reached.load(SeqCst), 11, "{algorithm}");
}

#[test]
fn requests_at_once_never_pass_a_sliding_log() {
    check_at_once(&Redis::start().url(), "sliding-log");
}

#[test]
fn requests_at_once_never_pass_a_sliding_window() {
    check_at_once(&Redis::start().url(), "sliding-window");
}

#[test]
fn requests_at_once_never_pass_the_limit_in_memcached() {
    let memcached = memcached::Server::start();
    let store = format!("memcached://{}", memcached.address);
    check_at_once(&store, "sliding-window");
}

/// What one gateway takes of a limit on the items of batches, another has not.
fn check_batches(store: &str) {
    let upstream = common::Upstream::plain();
    let limits = "  items: { key: ip, rate: 100/h, count: cost request items }\n";
    let store = format!("store: {{ address: '{store}', budget: 1s }}");
    let fleet = Fleet::start(2, upstream.address, &store, limits);
    let addresses = fleet.addresses();
    let status = |gateway: usize, items: usize| {
        let body = format!("[{}]", vec!["{}"; items].join(","));
        let mut client = Client::connect(addresses[gateway]);
        client.send(format!(
            "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        client.answer().status()
    };
    for (gateway, items, expected) in [(0, 60, 200), (1, 41, 429), (1, 40, 200), (0, 1, 429)] {
        assert_eq!(status(gateway, items), expected, "{items} items");
    }
    let alone: usize = fleet.counts().iter().map(|counts| counts.alone).sum();
    assert_eq!(alone, 0, "decided without the store");
}

#[test]
fn batches_are_counted_by_all_gateways_together() {
    check_batches(&Redis::start().url());
    let memcached = memcached::Server::start();
    check_batches(&format!("memcached://{}", memcached.address));
}

/// The messages of two WebSockets through two gateways use up one limit.
fn check_messages(store: &str) {
    let upstream = common::Upstream::scripted(|mut served, report| {
        while let Ok(mut request) = served.request() {
            served.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
            let _ = served.reader.read_to_end(&mut request.body);
            report(request);
        }
    });
    let limits = "  messages: { key: ip, rate: 10/h, count: cost messages, sharing: strict }\n";
    let store = format!("store: {{ address: '{store}', budget: 1s }}");
    let fleet = Fleet::start(2, upstream.address, &store, limits);
    let message = b"\x81\x80\x01\x02\x03\x04";
    let mut clients = fleet.addresses().into_iter().map(|address| {
        let mut client = Client::connect(address);
        client.send(
            "GET /chat HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        );
        assert_eq!(client.head().unwrap().status(), 101);
        client
    });
    let (mut first, mut second) = (clients.next().unwrap(), clients.next().unwrap());
    // Two of ten are gone with the handshakes.
    for _ in 0..9 {
        first.send(message);
    }
    let end = b"\x88\x11\x03\xf5Try again later";
    assert_eq!(first.rest(), end);
    assert_eq!(upstream.next().body.len(), 8 * message.len());
    second.send(message);
    assert_eq!(second.rest(), end);
    assert_eq!(upstream.next().body.len(), 0);
}

#[test]
fn messages_are_counted_by_all_gateways_together() {
    check_messages(&Redis::start().url());
}
