//! The same through memcached: counted in buckets, by the clocks of the gateways.

use std::thread;
use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::fleet::Fleet;
use crate::greedy::{Crowd, most, percentile, says};
use crate::machine::attempts;
use crate::memcached::Server;
use crate::upstream::Upstream;

const USERS: [&str; 3] = ["a", "b", "c"];
const SECOND: u64 = 1_000_000_000;

/// After 5.7 s nobody has been admitted for a second, so that both gateways know the same.
const CALM: u64 = 57 * SECOND / 10;
/// A refusal is remembered for a second, and then the store is asked again.
const REMEMBERED: u64 = 11 * SECOND / 10;

/// Greedy clients at two gateways, while something may happen to the store.
fn check(seconds: u64, at_least: usize, happens: Option<fn(&mut Server)>) {
    attempts(|| run(seconds, at_least, happens));
}

fn run(seconds: u64, at_least: usize, happens: Option<fn(&mut Server)>) -> Result<(), String> {
    let clock = Clock::system();
    let (mut store, upstream) = (Server::start(), Upstream::start(&clock));
    let limits = "  per-ip: { key: ip, rate: 500/10s }\n  \
                  per-user: { key: user, rate: 40/2s }\n";
    let terms = format!(
        "store: {{ address: 'memcached://{}', budget: 500ms }}",
        store.address
    );
    let fleet = Fleet::start(2, upstream.address, &terms, limits);
    let pause = Duration::from_millis(5);
    let crowd = Crowd::start(&fleet.addresses(), &USERS, pause, &clock);
    thread::park_timeout(Duration::from_nanos(CALM));
    let fault = clock.now().0;
    if let Some(happens) = happens {
        happens(&mut store);
    }
    thread::park_timeout(Duration::from_secs(seconds));
    let answers = crowd.stop();
    let late: usize = fleet.counts().iter().map(|counts| counts.late).sum();
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    let p99 = percentile(&answers, 99.0);
    println!("{} asked, {admitted} admitted, p99 {p99:?}", answers.len());
    assert!(
        answers
            .iter()
            .all(|answer| [200, 429].contains(&answer.status))
    );
    assert_eq!(
        upstream.seen().values().map(Vec::len).sum::<usize>(),
        admitted
    );
    if late > 0 {
        return Err(format!("{late} answers of the store took more than 500 ms"));
    }
    // Of what the other gateway was admitted since the last word from the store, each may add a half.
    let more = |user: Option<usize>| {
        let lately = fault - REMEMBERED..fault;
        let unheard = answers.iter().filter(|a| {
            a.status == 200 && lately.contains(&a.at) && user.is_none_or(|user| a.user == user)
        });
        happens.map_or(0, |_| unheard.count().div_ceil(2))
    };
    for (place, user) in USERS.iter().enumerate() {
        let most = most(answers.iter().filter(|a| a.user == place), 2 * SECOND);
        println!(
            "  {user}: at most {most} in 2 s, {} unheard",
            more(Some(place))
        );
        assert!(most <= 40 + more(Some(place)), "{user}: {most}");
    }
    let most = most(answers.iter(), 10 * SECOND);
    println!("  at most {most} in 10 s, {} unheard", more(None));
    assert!(most <= 500 + more(None), "{most} in 10 s");
    says(&answers, 2 * SECOND)?;
    match admitted >= at_least {
        true => Ok(()),
        false => Err(format!("{admitted} were admitted")),
    }
}

#[test]
fn two_gateways() {
    check(15, 960, None);
}

#[test]
fn restarted_empty() {
    let killed = |store: &mut Server| {
        store.kill();
        thread::park_timeout(Duration::from_secs(3));
        store.again();
    };
    check(12, 510, Some(killed));
}
