//! Never more than the limit in any window, and no less than nearly all of it.

use std::thread;
use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::common::redis::Redis;
use crate::fleet::Fleet;
use crate::greedy::{Crowd, most, percentile, says};
use crate::machine::attempts;
use crate::upstream::{Upstream, within};

const WINDOW: u64 = 10_000_000_000;
const USERS: [&str; 3] = ["a", "b", "c"];
/// Five times what may pass.
const GREEDY: usize = 5_000;

/// 20 s of greedy clients at so many gateways: three users of 200/10s behind one address of 500/10s.
fn check(store: fn() -> Redis, gateways: usize, sharing: &str) {
    attempts(|| run(&store(), gateways, sharing));
}

fn run(store: &Redis, gateways: usize, sharing: &str) -> Result<(), String> {
    let clock = Clock::system();
    let upstream = Upstream::start(&clock);
    let limits = format!(
        "  per-ip: {{ key: ip, rate: 500/10s, sharing: {sharing} }}\n  \
         per-user: {{ key: user, rate: 200/10s, sharing: {sharing} }}\n"
    );
    // Many processes share two cores here, and what is decided without the store is another test's.
    let terms = format!("store: {{ address: {}, budget: 500ms }}", store.url());
    let fleet = Fleet::start(gateways, upstream.address, &terms, &limits);
    let before = store.scripts();
    let pause = Duration::from_millis(2 * gateways as u64);
    let crowd = Crowd::start(&fleet.addresses(), &USERS, pause, &clock);
    thread::park_timeout(Duration::from_secs(20));
    crowd.until_asked(GREEDY);
    let answers = crowd.stop();
    let calls = store.scripts() - before;
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    let odd = answers
        .iter()
        .filter(|answer| ![200, 429].contains(&answer.status))
        .count();
    let alone: usize = fleet.counts().iter().map(|counts| counts.alone).sum();
    println!(
        "{gateways} gateways, {sharing}: {} asked, {admitted} admitted, p99 {:?}, {:.3} calls a request, \
         {alone} decisions without the store",
        answers.len(),
        percentile(&answers, 99.0),
        calls as f64 / answers.len() as f64,
    );
    assert_eq!(odd, 0);
    assert_eq!(
        upstream.seen().values().map(Vec::len).sum::<usize>(),
        admitted
    );
    if alone > 0 {
        return Err(format!(
            "{alone} answers of the store took more than 500 ms"
        ));
    }
    for (place, user) in USERS.iter().enumerate() {
        let most = most(answers.iter().filter(|a| a.user == place), WINDOW);
        println!("  {user}: at most {most} in 10 s");
        assert!(most <= 200, "{user}: {most}");
    }
    let most = most(answers.iter(), WINDOW);
    println!("  at most {most} in 10 s");
    assert!(most <= 500, "{most} in 10 s");
    // What reached the upstream, by its own log: requests take a while to get there.
    let slowest = answers.iter().map(|answer| answer.took).max();
    let window = WINDOW.saturating_sub(slowest.unwrap_or(0));
    let seen = upstream.seen();
    for (user, times) in &seen {
        let most = within(times, window);
        assert!(most <= 200, "{most} of {user} in {window} ns");
    }
    let mut all: Vec<u64> = seen.into_values().flatten().collect();
    all.sort_unstable();
    let most = within(&all, window);
    println!(
        "  the upstream saw at most {most} in {:?}",
        Duration::from_nanos(window)
    );
    assert!(most <= 500, "{most} in {window} ns");
    says(&answers, WINDOW)?;
    // In 20 s the first 500 leave once.
    match admitted as f64 >= 1_000.0 * 0.97 {
        true => Ok(()),
        false => Err(format!("{admitted} of 1000 were admitted")),
    }
}

#[test]
fn two_gateways_strict() {
    check(Redis::start, 2, "strict");
}

#[test]
fn two_gateways_leased() {
    check(Redis::start, 2, "leased");
}

#[test]
fn eight_gateways_strict() {
    check(Redis::start, 8, "strict");
}

#[test]
fn eight_gateways_leased() {
    check(Redis::start, 8, "leased");
}

#[test]
fn valkey_strict() {
    check(Redis::valkey, 2, "strict");
}

#[test]
fn valkey_leased() {
    check(Redis::valkey, 2, "leased");
}
