//! The store is killed, stopped, started empty: clients notice nothing, and no limit is passed.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tollgate::clock::Clock;

use crate::common::redis::Redis;
use crate::fleet::Fleet;
use crate::greedy::{Answer, Crowd, percentile};
use crate::upstream::{Upstream, worst};

const WINDOW: u64 = 10_000_000_000;
const QUOTA: usize = 300;
const BUDGET: Duration = Duration::from_millis(20);

struct Scene {
    clock: Clock,
    store: Redis,
    upstream: Upstream,
    fleet: Fleet,
    sharing: &'static str,
}

impl Scene {
    fn new(sharing: &'static str) -> Scene {
        let clock = Clock::system();
        let (store, upstream) = (Redis::start(), Upstream::start(&clock));
        let limits =
            format!("  per-user: {{ key: user, rate: {QUOTA}/10s, sharing: {sharing} }}\n");
        let terms = format!(
            "store: {{ address: {}, budget: {}ms }}",
            store.url(),
            BUDGET.as_millis()
        );
        let fleet = Fleet::start(3, upstream.address, &terms, &limits);
        Scene {
            clock,
            store,
            upstream,
            fleet,
            sharing,
        }
    }

    /// Greedy clients of two users at all gateways while something happens to the store.
    fn run(mut self, name: &str, happens: impl FnOnce(&mut Redis)) {
        let addresses = self.fleet.addresses();
        let crowd = Crowd::start(
            &addresses,
            &["a", "b"],
            Duration::from_millis(4),
            &self.clock,
        );
        let begun = self.clock.now().0;
        happens(&mut self.store);
        let answers = crowd.stop();
        self.check(name, begun, &answers);
    }

    fn check(&self, name: &str, begun: u64, answers: &[Answer]) {
        let late = answers.iter().map(|answer| answer.took).max().unwrap();
        let calm: Vec<Answer> = answers
            .iter()
            .filter(|a| a.at < begun + 4_000_000_000)
            .copied()
            .collect();
        let rest: Vec<Answer> = answers
            .iter()
            .filter(|a| a.at >= begun + 4_000_000_000)
            .copied()
            .collect();
        let (calm, rest) = (percentile(&calm, 99.0), percentile(&rest, 99.0));
        let sharing = self.sharing;
        println!(
            "{name}, {sharing}: {} asked, p99 {calm:?} before and {rest:?} after, slowest {:?}",
            answers.len(),
            Duration::from_nanos(late)
        );
        for (user, times) in self.upstream.seen() {
            let most = worst(&times, WINDOW - late.min(WINDOW / 20));
            let seconds: Vec<usize> = (0..40)
                .map(|second| {
                    let second = begun + second * 1_000_000_000;
                    times
                        .iter()
                        .filter(|at| (second..second + 1_000_000_000).contains(at))
                        .count()
                })
                .collect();
            println!(
                "  {user}: {} admitted, at most {most} in 10 s; by second {seconds:?}",
                times.len()
            );
            assert!(most <= QUOTA, "{user}: {most}");
        }
        let odd: Vec<u16> = answers
            .iter()
            .map(|a| a.status)
            .filter(|s| ![200, 429].contains(s))
            .collect();
        assert!(odd.is_empty(), "{odd:?}");
    }
}

fn pass(seconds: u64) {
    thread::park_timeout(Duration::from_secs(seconds));
}

fn killed(store: &mut Redis) {
    pass(4);
    store.kill();
    pass(8);
    store.revive();
    pass(13);
}

fn stopped(store: &mut Redis) {
    pass(4);
    store.signal(Signal::STOP);
    pass(10);
    store.signal(Signal::CONT);
    pass(11);
}

fn emptied(store: &mut Redis) {
    pass(4);
    store.ask("FLUSHALL");
    pass(12);
}

#[test]
fn killed_strict() {
    Scene::new("strict").run("killed for 8 s, empty after", killed);
}

#[test]
fn killed_leased() {
    Scene::new("leased").run("killed for 8 s, empty after", killed);
}

#[test]
fn stopped_strict() {
    Scene::new("strict").run("stopped for 10 s", stopped);
}

#[test]
fn stopped_leased() {
    Scene::new("leased").run("stopped for 10 s", stopped);
}

#[test]
fn emptied_strict() {
    Scene::new("strict").run("emptied", emptied);
}

#[test]
fn emptied_leased() {
    Scene::new("leased").run("emptied", emptied);
}
