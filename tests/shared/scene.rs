//! Greedy clients at several gateways while something happens to their store, and what became of it.

use std::cell::RefCell;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::common::wait_until;
use crate::fleet::{Counts, Fleet};
use crate::greedy::{Answer, Crowd, most, percentile, says};
use crate::machine::{NOISE, Pings, Watch};
use crate::upstream::Upstream;

/// What a request may wait for a processor, on a machine that runs a dozen servers beside the gateways.
const SCHEDULING: Duration = Duration::from_millis(300);
/// Nanoseconds in which clients begin.
const START: u64 = 200_000_000;
/// And from a gateway's last word of a limit that has room to when the store is gone for it, mostly.
const UNHEARD: u64 = 50_000_000;
/// Calls of one gateway that may be late in one outage: five in a row open the breaker, each client has one under
/// way by then, nobody waits for some that tell what was decided alone, and the way back may need a second attempt.
pub const HANDFUL: usize = 20;

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
    events: RefCell<Events>,
}

/// What happened to the store, and what each gateway counted.
#[derive(Default)]
struct Events {
    /// When faults began and were over, in nanoseconds.
    faults: Vec<Range<u64>>,
    last: Vec<Counts>,
    /// What was counted while the store was well, for each time that it was.
    well: Vec<Vec<Counts>>,
    /// Late calls since it was not.
    late: Vec<usize>,
}

impl Events {
    fn well_until_now(&mut self, counts: Vec<Counts>) {
        let each = counts.iter().zip(&self.last);
        self.well
            .push(each.map(|(now, then)| now.since(then)).collect());
        self.last = counts;
    }
}

/// What clients saw and what reached the upstream.
pub struct Seen {
    pub answers: Vec<Answer>,
    /// When the clients began, in nanoseconds.
    begun: u64,
    pings: Pings,
    events: Events,
    limits: Limits,
    users: usize,
    /// Requests that reached the upstream.
    passed: usize,
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
        // Two users and an address need no more.
        let store = format!("store: {{ memory: 1MiB, address: \"{store} }}");
        Scene {
            fleet: Fleet::start(gateways, upstream.address, &store, &text),
            clock,
            upstream,
            limits,
            users: users.to_vec(),
            events: RefCell::default(),
        }
    }

    /// Clients of all users at all gateways, until what happens has happened.
    pub fn run(&self, pause: Duration, happens: impl FnOnce()) -> Seen {
        self.events.borrow_mut().last = self.fleet.counts();
        let begun = self.clock.now().0;
        let watch = Watch::start(&self.clock);
        let crowd = Crowd::start(&self.fleet.addresses(), &self.users, pause, &self.clock);
        happens();
        let answers = crowd.stop();
        let mut events = self.events.take();
        events.well_until_now(self.fleet.counts());
        Seen {
            answers,
            begun,
            pings: watch.stop(),
            events,
            limits: self.limits,
            users: self.users.len(),
            passed: self.upstream.seen().values().map(Vec::len).sum(),
        }
    }

    /// Something is about to happen to the store.
    pub fn fault(&self) {
        let mut events = self.events.borrow_mut();
        events.well_until_now(self.fleet.counts());
        events.faults.push(self.clock.now().0..u64::MAX);
    }

    /// Waits until the store is shared again after that. How long it took.
    pub fn until_shared(&self) -> Duration {
        let since = self.clock.now();
        let mut before = Vec::new();
        wait_until("all gateways share the store", || {
            before = self.fleet.counts();
            self.fleet.shares()
        });
        let took = Duration::from(self.clock.now().since(since));
        let mut counts = self.fleet.counts();
        let mut events = self.events.borrow_mut();
        let late = before.iter().zip(&events.last);
        let late = late.map(|(now, then)| now.since(then).late).sum();
        events.late.push(late);
        for (now, before) in counts.iter_mut().zip(&before) {
            // The store may have been well already when these calls found no answer.
            let gap = now.since(before);
            now.alone = now.alone.saturating_sub(gap.late + gap.failed);
        }
        events.last = counts;
        if let Some(fault) = events.faults.last_mut() {
            fault.end = self.clock.now().0;
        }
        took
    }
}

impl Seen {
    /// Nobody was told anything but yes or no, and no more than is promised passed in any window.
    #[track_caller]
    pub fn held(&self, name: &str) -> Result<(), String> {
        let window = self.limits.seconds * 1_000_000_000;
        let mosts: Vec<usize> = (0..self.users)
            .map(|user| {
                let theirs = self.answers.iter().filter(|answer| answer.user == user);
                most(theirs, window)
            })
            .collect();
        let all = most(self.answers.iter(), window);
        self.print(name, all, &mosts);
        let odd = self.answers.iter().map(|answer| answer.status);
        let odd: Vec<u16> = odd.filter(|status| ![200, 429].contains(status)).collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
        assert_eq!(self.passed, self.admitted());
        let (ip, user) = (self.limits.ip, self.limits.user);
        println!("  {} more may pass", self.more(ip));
        assert!(all <= ip + self.more(ip), "{name}: {all}");
        let most = user + self.more(user);
        assert!(mosts.iter().all(|each| *each <= most), "{name}: {mosts:?}");
        let well = self.events.well.iter().flatten();
        let alone: usize = well.map(|counts| counts.alone).sum();
        if alone * 20 > self.answers.len() {
            let asked = self.answers.len();
            return Err(format!("{name}: {alone} of {asked} answers were late"));
        }
        says(&self.answers, window)
    }

    /// What may be admitted beyond so many units: by late answers, and of what the other gateways were admitted
    /// between a gateway's last word and a fault an equal part at each.
    fn more(&self, units: usize) -> usize {
        let gateways = self.events.last.len();
        let each = self.events.well.iter().flatten();
        let late: usize = each
            .map(|counts| (units / gateways).min(counts.alone))
            .sum();
        let unheard = self.events.faults.iter().map(|fault| {
            let near = fault.start - UNHEARD..fault.end;
            let near = self.answers.iter().filter(|a| near.contains(&a.at));
            most(near, UNHEARD)
        });
        let unheard = unheard.max().unwrap_or(0);
        late + (unheard * (gateways - 1)).div_ceil(gateways)
    }

    /// Late calls since the first fault.
    fn late(&self) -> usize {
        let well = self.events.well.iter().skip(1).flatten();
        well.map(|counts| counts.late).sum::<usize>() + self.events.late.iter().sum::<usize>()
    }

    fn print(&self, name: &str, all: usize, mosts: &[usize]) {
        let (late, well) = (&self.events.late, self.events.well.iter().enumerate());
        println!(
            "{name}: {} asked, {} admitted, at most {all} and each {mosts:?} in {} s, p50 {:?}, p99 {:?}",
            self.answers.len(),
            self.admitted(),
            self.limits.seconds,
            percentile(&self.answers, 50.0),
            percentile(&self.answers, 99.0),
        );
        println!("  {late:?} calls late while the store was not well");
        for (place, counts) in well {
            if counts.iter().any(|counts| counts.alone > 0) {
                println!("  time {place} while it was: {counts:?}");
            }
        }
        let second = |number: u64| {
            let first = self.begun + number * 1_000_000_000;
            let inside = |answer: &&Answer| {
                answer.status == 200 && (first..first + 1_000_000_000).contains(&answer.at)
            };
            self.answers.iter().filter(inside).count()
        };
        let last = self.answers.last().map_or(0, |answer| answer.at);
        let seconds = 0..=last.saturating_sub(self.begun) / 1_000_000_000;
        println!("  by second {:?}", seconds.map(second).collect::<Vec<_>>());
        let mut slow = self.answers.clone();
        slow.sort_by_key(|answer| std::cmp::Reverse(answer.took));
        let slow = slow.iter().take(8).map(|answer| {
            let at = answer.at.saturating_sub(self.begun) / 1_000_000;
            (at, answer.took / 1_000_000, answer.status)
        });
        println!("  slowest (at, took in ms) {:?}", slow.collect::<Vec<_>>());
    }

    /// The same around faults, in which no more than `late` calls of each gateway wait for the budget, and no
    /// other request waits longer than before.
    #[track_caller]
    pub fn bounded(&self, name: &str, budget: Duration, late: usize) -> Result<(), String> {
        self.held(name)?;
        let most = late * self.events.last.len();
        let waited = self.events.late.iter().max().copied().unwrap_or(0);
        if waited > most {
            return Err(format!("{name}: {waited} calls were late in one fault"));
        }
        let at = |time: u64| self.answers.partition_point(|answer| answer.at < time);
        let fault = at(self.events.faults[0].start);
        // In the beginning all clients connect at once.
        let before = &self.answers[at(self.begun + START)..fault];
        // Those who waited for the budget are counted, and left out of how long all others took.
        let mut after = self.answers[fault..].to_vec();
        after.sort_by_key(|answer| answer.took);
        after.truncate(after.len().saturating_sub(self.late()));
        after.sort_by_key(|answer| answer.at);
        let longest = (budget + SCHEDULING).as_nanos() as u64;
        let slow = self.pings.undisturbed(&self.answers);
        let slow = slow.iter().filter(|answer| answer.took > longest).count();
        // The clients of a gateway that had no processor, where pings did.
        if slow > self.users {
            return Err(format!(
                "{name}: {slow} requests took more than {longest} ns"
            ));
        }
        let (calm, then) = self.pings.compare(name, before, &after)?;
        match then <= calm.max(NOISE) * 2 {
            true => Ok(()),
            false => Err(format!("{name}: p99 is {then:?} after {calm:?}")),
        }
    }

    pub fn admitted(&self) -> usize {
        let admitted = self.answers.iter().filter(|answer| answer.status == 200);
        admitted.count()
    }
}

pub fn pass(millis: u64) {
    thread::park_timeout(Duration::from_millis(millis));
}
