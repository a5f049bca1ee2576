//! Never more than the limit in any window, and no less than nearly all of it.

use std::thread;
use std::time::Duration;

use tollgate::clock::Clock;

use crate::common::redis::Redis;
use crate::fleet::Fleet;
use crate::greedy::{Crowd, percentile};
use crate::upstream::{Upstream, worst};

const WINDOW: u64 = 10_000_000_000;

/// 20 s of greedy clients at so many gateways: three users of 200/10s behind one address of 500/10s.
fn check(gateways: usize, sharing: &str) {
    let clock = Clock::system();
    let (store, upstream) = (Redis::start(), Upstream::start(&clock));
    let limits = format!(
        "  per-ip: {{ key: ip, rate: 500/10s, sharing: {sharing} }}\n  \
         per-user: {{ key: user, rate: 200/10s, sharing: {sharing} }}\n"
    );
    // Many processes share two cores here, and what is decided without the store is another test's.
    let terms = format!("store: {{ address: {}, budget: 500ms }}", store.url());
    let fleet = Fleet::start(gateways, upstream.address, &terms, &limits);
    let addresses = fleet.addresses();
    let before = store.scripts();
    let pause = Duration::from_millis(2 * gateways as u64);
    let crowd = Crowd::start(&addresses, &["a", "b", "c"], pause, &clock);
    thread::park_timeout(Duration::from_secs(20));
    let answers = crowd.stop();
    let calls = store.scripts() - before;
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    let odd = answers
        .iter()
        .filter(|answer| ![200, 429].contains(&answer.status))
        .count();
    // What a request may be late at the upstream, and so may seem to have come closer to the next.
    let late = answers.iter().map(|answer| answer.took).max().unwrap();
    let mut all: Vec<u64> = Vec::new();
    for (user, times) in upstream.seen() {
        let most = worst(&times, WINDOW - late.min(WINDOW / 20));
        println!("{user}: {} admitted, at most {most} in 10 s", times.len());
        assert!(most <= 200, "{user}: {most}");
        all.extend(times);
    }
    all.sort_unstable();
    let most = worst(&all, WINDOW - late.min(WINDOW / 20));
    let span = (all[all.len() - 1] - all[0]) as f64 / 1e9;
    println!(
        "{gateways} gateways, {sharing}: {} asked, {admitted} admitted, at most {most} in 10 s, p99 {:?}, slowest {:?}, \
         {:.3} calls a request, last {span:.1} s after the first",
        answers.len(),
        percentile(&answers, 99.0),
        Duration::from_nanos(late),
        calls as f64 / answers.len() as f64,
    );
    let alone = "tollgate_shared_store_decisions_total{outcome=\"alone\"}";
    println!("{} decisions without the store", fleet.sum(alone));
    assert_eq!(odd, 0);
    assert_eq!(all.len(), admitted);
    assert!(most <= 500, "{most} in 10 s");
    // In 20 s the first 500 leave once.
    assert!(admitted as f64 >= 1_000.0 * 0.97, "{admitted} of 1000");
    assert!(
        answers.len() > 5 * 1_000,
        "the clients were not greedy enough: {}",
        answers.len()
    );
}

#[test]
fn two_gateways_strict() {
    check(2, "strict");
}

#[test]
fn two_gateways_leased() {
    check(2, "leased");
}

#[test]
fn eight_gateways_strict() {
    check(8, "strict");
}

#[test]
fn eight_gateways_leased() {
    check(8, "leased");
}
