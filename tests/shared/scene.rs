//! Greedy clients at several gateways while something happens to their store, and what became of it.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use tollgate::clock::Clock;

use crate::fleet::Fleet;
use crate::greedy::{Answer, Crowd, percentile};
use crate::upstream::{Upstream, worst};

/// What a request may wait for a processor, on a machine that runs a dozen servers beside the gateways.
const SCHEDULING: Duration = Duration::from_millis(300);

/// Two limits that a request must both pass, in seconds and units.
#[derive(Clone, Copy)]
pub struct Limits {
    pub sharing: &'static str,
    pub seconds: u64,
    pub ip: usize,
    pub user: usize,
}

pub struct Scene {
    pub fleet: Fleet,
    clock: Clock,
    upstream: Upstream,
    limits: Limits,
    users: Vec<&'static str>,
}

/// What clients saw and what reached the upstream.
pub struct Seen {
    pub answers: Vec<Answer>,
    /// When the clients began, in nanoseconds.
    pub begun: u64,
    /// Times of each user at the upstream.
    pub users: Vec<Vec<u64>>,
    limits: Limits,
}

impl Scene {
    /// So many gateways with this store: an address, and other settings after commas.
    pub fn new(gateways: usize, store: &str, limits: Limits, users: &[&'static str]) -> Scene {
        let clock = Clock::system();
        let upstream = Upstream::start(&clock);
        let Limits {
            sharing,
            seconds,
            ip,
            user,
        } = limits;
        let text = format!(
            "  per-ip: {{ key: ip, rate: {ip}/{seconds}s, sharing: {sharing} }}\n  \
             per-user: {{ key: user, rate: {user}/{seconds}s, sharing: {sharing} }}\n"
        );
        let store = format!("store: {{ address: \"{store} }}");
        Scene {
            fleet: Fleet::start(gateways, upstream.address, &store, &text),
            clock,
            upstream,
            limits,
            users: users.to_vec(),
        }
    }

    /// Decisions without the store so far.
    pub fn alone(&self) -> usize {
        let alone = "tollgate_shared_store_decisions_total{outcome=\"alone\"}";
        self.fleet.sum(alone) as usize
    }

    /// Clients of all users at all gateways, until what happens has happened.
    pub fn run(&self, pause: Duration, happens: impl FnOnce(&Clock)) -> Seen {
        let gateways = self.fleet.gateways.iter();
        let addresses: Vec<SocketAddr> = gateways.map(|gateway| gateway.address).collect();
        let begun = self.clock.now().0;
        let crowd = Crowd::start(&addresses, &self.users, pause, &self.clock);
        happens(&self.clock);
        Seen {
            answers: crowd.stop(),
            begun,
            users: self.upstream.seen().into_values().collect(),
            limits: self.limits,
        }
    }
}

impl Seen {
    /// Nobody was told anything but yes or no, and no more than this passed in any window.
    #[track_caller]
    pub fn check(&self, name: &str, ip: usize, user: usize) {
        let slowest = self.slowest(0, u64::MAX);
        let mut all: Vec<u64> = self.users.iter().flatten().copied().collect();
        all.sort_unstable();
        let mosts: Vec<usize> = self.users.iter().map(|times| self.most(times)).collect();
        println!(
            "{name}: {} asked, {} admitted, at most {} and each {mosts:?} in {} s, p50 {:?}, p99 {:?}, slowest {slowest:?}",
            self.answers.len(),
            all.len(),
            self.most(&all),
            self.limits.seconds,
            percentile(&self.answers, 50.0),
            percentile(&self.answers, 99.0),
        );
        let second = |number: u64| {
            let first = self.begun + number * 1_000_000_000;
            let inside = |at: &&u64| (first..first + 1_000_000_000).contains(at);
            all.iter().filter(inside).count()
        };
        let last = self.length() / 1_000;
        let length = self.limits.seconds * 1_000_000_000;
        let most = self.most(&all);
        let first = all
            .windows(most)
            .find(|some| some[most - 1] - some[0] < length);
        let place = |at: u64| at.saturating_sub(self.begun) / 1_000_000;
        println!(
            "  worst window: {:?} ms",
            first.map(|some| (place(some[0]), place(some[most - 1])))
        );
        println!(
            "  by second {:?}",
            (0..=last).map(second).collect::<Vec<_>>()
        );
        let mut slow = self.answers.clone();
        slow.sort_by_key(|answer| std::cmp::Reverse(answer.took));
        let slow = slow.iter().take(8).map(|answer| {
            let at = answer.at.saturating_sub(self.begun) / 1_000_000;
            (at, answer.took / 1_000_000, answer.status)
        });
        println!("  slowest (at, took in ms) {:?}", slow.collect::<Vec<_>>());
        let odd = self.answers.iter().map(|answer| answer.status);
        let odd: Vec<u16> = odd.filter(|status| ![200, 429].contains(status)).collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
        let admitted = self.answers.iter().filter(|answer| answer.status == 200);
        assert_eq!(all.len(), admitted.count());
        assert!(self.most(&all) <= ip, "{name}: {}", self.most(&all));
        assert!(mosts.iter().all(|most| *most <= user), "{name}: {mosts:?}");
    }

    /// The same around a fault at so many milliseconds: no limit is passed but by what was decided because an answer
    /// was `late` before, requests wait for the budget at most, and only those that were first to notice.
    #[track_caller]
    pub fn bounded(&self, name: &str, fault: u64, budget: u64, late: usize) {
        let (calm, hit, after) = (
            self.median(1_000, fault),
            self.p99(fault, fault + 2_000),
            self.median(fault + 2_000, self.length()),
        );
        let slowest = self.slowest(1_000, u64::MAX);
        println!(
            "{name}: p99 {calm:?} before, {hit:?} in the two seconds from the fault, {after:?} after, slowest {slowest:?}; \
             {late} answers late before"
        );
        self.check(name, self.limits.ip + late, self.limits.user + late);
        let budget = Duration::from_millis(budget);
        let twice = calm.max(Duration::from_millis(10)) * 2;
        assert!(hit <= twice + budget * 2, "{name}: {hit:?}");
        assert!(after <= twice, "{name}: {after:?}");
        assert!(slowest <= budget + SCHEDULING, "{name}: {slowest:?}");
    }

    /// The most in any window, less what a request may have been late at the upstream.
    fn most(&self, times: &[u64]) -> usize {
        let window = self.limits.seconds * 1_000_000_000;
        let slowest = self.slowest(0, u64::MAX).as_nanos() as u64;
        worst(times, window - slowest.min(window / 20))
    }

    /// Answers to what was asked from one moment to another, in milliseconds after the start.
    pub fn between(&self, first: u64, last: u64) -> Vec<Answer> {
        let millis = |answer: &&Answer| {
            let at = answer.at.saturating_sub(self.begun) / 1_000_000;
            first <= at && at < last
        };
        self.answers.iter().filter(millis).copied().collect()
    }

    pub fn slowest(&self, first: u64, last: u64) -> Duration {
        percentile(&self.between(first, last), 100.0)
    }

    pub fn p99(&self, first: u64, last: u64) -> Duration {
        percentile(&self.between(first, last), 99.0)
    }

    /// The 99th hundredth of the median second: another program's turn spoils a second, not most of them.
    fn median(&self, first: u64, last: u64) -> Duration {
        let seconds = (first..last)
            .step_by(1_000)
            .map(|at| self.p99(at, at + 1_000));
        let mut seconds: Vec<Duration> = seconds.collect();
        seconds.sort_unstable();
        seconds.get(seconds.len() / 2).copied().unwrap_or_default()
    }

    /// Milliseconds that the clients asked for.
    fn length(&self) -> u64 {
        let last = self.answers.last().map_or(0, |answer| answer.at);
        last.saturating_sub(self.begun) / 1_000_000
    }

    pub fn admitted(&self) -> usize {
        self.users.iter().map(Vec::len).sum()
    }
}

pub fn pass(millis: u64) {
    thread::park_timeout(Duration::from_millis(millis));
}
