//! What the store is asked at five times the rate.

use std::thread;
use std::time::Duration;

use tollgate::clock::Clock;

use crate::common::redis::Redis;
use crate::fleet::Fleet;
use crate::greedy::Crowd;
use crate::machine::attempts;
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
