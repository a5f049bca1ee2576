//! No request waits for the store longer than the budget, and none at all once it is known to be away.

use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tollgate::base::clock::Clock;
use tollgate::store::shared::Settings;

use crate::common::redis::Redis;
use crate::common::wait_until;
use crate::fleet::{Counts, Fleet};
use crate::greedy::{Answer, Crowd};
use crate::machine::{NOISE, Watch, attempts};
use crate::proxy::Proxy;
use crate::scene::{HANDFUL, pass};
use crate::upstream::Upstream;

/// Nobody reaches it, so every request asks the store.
const LIMITS: &str = "  per-user: { key: user, rate: 20000/10s, sharing: strict }\n";
const USERS: [&str; 4] = ["a", "b", "c", "d"];
const PAUSE: Duration = Duration::from_millis(5);

/// What gateways have missed since.
fn late(fleet: &Fleet, since: &[Counts]) -> Vec<usize> {
    let each = fleet.counts().into_iter().zip(since);
    each.map(|(now, then)| now.since(then).late).collect()
}

fn few(name: &str, late: &[usize]) -> Result<(), String> {
    println!("{name}: {late:?} calls were late");
    match late.iter().all(|late| *late <= HANDFUL) {
        true => Ok(()),
        false => Err(format!("{name}: {late:?} calls were late")),
    }
}

#[test]
fn a_store_that_stops_holds_up_a_handful() {
    attempts(|| {
        let (store, clock) = (Redis::start(), Clock::system());
        let upstream = Upstream::start(&clock);
        let terms = format!("store: {{ address: {}, budget: 20ms }}", store.url());
        let fleet = Fleet::start(2, upstream.address, &terms, LIMITS);
        let crowd = Crowd::start(&fleet.addresses(), &USERS, PAUSE, &clock);
        pass(1_000);
        let (before, first) = (fleet.counts(), &fleet.gateways[0]);
        let begun = clock.now();
        store.signal(Signal::STOP);
        wait_until("a call is late", || Counts::of(first).late > before[0].late);
        let missed = clock.now();
        wait_until("the gateway says so", || {
            first
                .ask("GET", "/readyz", "")
                .text()
                .contains("store away")
        });
        let opened = Duration::from(clock.now().since(missed));
        println!("the store is away {opened:?} after the first late call");
        while Duration::from(clock.now().since(begun)) < Duration::from_secs(10) {
            pass(100);
        }
        let late = late(&fleet, &before);
        store.signal(Signal::CONT);
        let answers = crowd.stop();
        assert!(answers.iter().all(|answer| answer.status == 200));
        let during = answers.iter().filter(|answer| answer.at > begun.0);
        println!("{} asked while it stood still", during.count());
        few("stopped for 10 s", &late)?;
        match opened <= Duration::from_millis(250) {
            true => Ok(()),
            false => Err(format!("the gateway needed {opened:?} to see it")),
        }
    });
}

/// With the budget that holds where nothing is said: a store that answers in time costs what it takes, one that
/// does not costs nothing once that is known.
#[test]
fn a_store_that_is_far_away_costs_the_budget_at_most() {
    attempts(|| {
        let (store, clock) = (Redis::start(), Clock::system());
        let (proxy, upstream) = (Proxy::start(store.port, &clock), Upstream::start(&clock));
        let terms = format!("store: redis://127.0.0.1:{}", proxy.port);
        let fleet = Fleet::start(1, upstream.address, &terms, LIMITS);
        let watch = Watch::start(&clock);
        let crowd = Crowd::start(&fleet.addresses(), &USERS, PAUSE, &clock);
        let mut parts = Vec::new();
        for micros in [0, 1_500, 25_000] {
            let before = fleet.counts();
            proxy.delay.store(micros, Relaxed);
            let begun = clock.now().0;
            pass(4_000);
            let counts = fleet.counts()[0].since(&before[0]);
            println!("{micros} us each way: {counts:?}");
            parts.push((begun..clock.now().0, counts.late));
        }
        let (answers, pings) = (crowd.stop(), watch.stop());
        assert!(answers.iter().all(|answer| answer.status == 200));
        let [calm, near, far] = [0, 1, 2].map(|place: usize| {
            let inside = |answer: &&Answer| parts[place].0.contains(&answer.at);
            answers.iter().filter(inside).copied().collect::<Vec<_>>()
        });
        for (name, part) in [("3 ms away", &near), ("50 ms away", &far)] {
            let (calm, then) = pings.compare(name, &calm, part)?;
            if then > calm + Settings::DEFAULT_BUDGET + NOISE {
                return Err(format!("{name}: p99 is {then:?} after {calm:?}"));
            }
        }
        few("50 ms away", &[parts[2].1])
    });
}

#[test]
fn connections_are_tried_at_a_bounded_rate() {
    const WORKERS: usize = 3;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Relaxed);
            // The other side may have gone before.
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    let clock = Clock::system();
    let upstream = Upstream::start(&clock);
    let terms = format!("workers: {WORKERS}\nstore: redis://{address}");
    let fleet = Fleet::alone(1, upstream.address, &terms, LIMITS);
    let crowd = Crowd::start(&fleet.addresses(), &USERS, PAUSE, &clock);
    let (begun, before) = (clock.now(), tried.load(Relaxed));
    pass(10_000);
    let count = tried.load(Relaxed) - before;
    let seconds = Duration::from(clock.now().since(begun)).as_secs_f64();
    let answers = crowd.stop();
    assert!(answers.iter().all(|answer| answer.status == 200));
    let asked = answers.len();
    println!("{count} connections in {seconds:.1} s for {asked} requests");
    // The keeper has one too: it tries again after 0.4 s at most, workers after ever longer pauses.
    let rate = count as f64 / seconds;
    assert!(rate >= 1.0, "nobody looks for the store: {rate} a second");
    assert!(rate <= 5.0 + WORKERS as f64, "{rate} a second");
}
