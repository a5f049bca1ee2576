//! What the store is asked at five times the rate, and what requests hold in it whose cost is not known yet.

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
