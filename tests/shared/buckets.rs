//! The same through memcached: counted in buckets, by the clocks of the gateways.

use std::thread;
use std::time::Duration;

use tollgate::clock::Clock;

use crate::fleet::Fleet;
use crate::greedy::{Crowd, percentile};
use crate::memcached::Server;
use crate::upstream::{Upstream, worst};

const WINDOW: u64 = 10_000_000_000;

/// Greedy clients at two gateways, while something happens to the store after 5 s.
fn check(seconds: u64, at_least: usize, happens: impl FnOnce(&mut Server)) {
    let clock = Clock::system();
    let (mut store, upstream) = (Server::start(), Upstream::start(&clock));
    let limits = "  per-ip: { key: ip, rate: 500/10s }\n  \
                  per-user: { key: user, rate: 40/2s }\n";
    let terms = format!(
        "store: {{ address: 'memcached://{}', budget: 500ms }}",
        store.address
    );
    let fleet = Fleet::start(2, upstream.address, &terms, limits);
    let addresses = fleet.addresses();
    let crowd = Crowd::start(
        &addresses,
        &["a", "b", "c"],
        Duration::from_millis(5),
        &clock,
    );
    thread::park_timeout(Duration::from_secs(5));
    happens(&mut store);
    thread::park_timeout(Duration::from_secs(seconds));
    let answers = crowd.stop();
    let late = answers.iter().map(|answer| answer.took).max().unwrap();
    let mut all = Vec::new();
    for (user, times) in upstream.seen() {
        let most = worst(&times, 2_000_000_000 - late.min(100_000_000));
        println!("{user}: {} admitted, at most {most} in 2 s", times.len());
        assert!(most <= 40, "{user}: {most}");
        all.extend(times);
    }
    all.sort_unstable();
    let most = worst(&all, WINDOW - late.min(WINDOW / 20));
    let p99 = percentile(&answers, 99.0);
    println!(
        "{} asked, {} admitted, at most {most} in 10 s, p99 {p99:?}",
        answers.len(),
        all.len()
    );
    assert!(most <= 500, "{most} in 10 s");
    assert!(all.len() >= at_least, "{} admitted", all.len());
    assert!(
        answers
            .iter()
            .all(|answer| [200, 429].contains(&answer.status))
    );
}

#[test]
fn two_gateways() {
    check(15, 960, |_| {});
}

#[test]
fn restarted_empty() {
    check(12, 510, |store| {
        store.kill();
        thread::park_timeout(Duration::from_secs(3));
        store.again();
    });
}
