//! What changes under the script: the server's clock, rates, and the gateways that ask.

use tollgate::base::clock::Nanos;
use tollgate::limit::{Algorithm, LimitStanding, RateLimit, Scale, ThrottleMode};
use tollgate::store::shared::call::UNGRANTED_UNITS_BIT;

use crate::scripted::{Scripted, call, part};

const SECOND: u64 = 1_000_000;
/// Some years after 1970.
const START: u64 = 1_732_000_000 * SECOND;

fn limit(rate: &str, algorithm: Algorithm) -> RateLimit {
    RateLimit {
        windows: vec![rate.parse().unwrap()],
        algorithm,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 1,
    }
}

const ALL: [Algorithm; 6] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::MultiLevel,
    Algorithm::FixedWindow,
    Algorithm::Gcra { burst: Some(5) },
    Algorithm::LeakyBucket {
        max_delay: Nanos::from_secs(3),
    },
];

/// The clock steps by so many seconds with a key that is used up: nobody waits longer than one window, and after it
/// all is free.
#[test]
fn the_clock_steps() {
    Scripted::each().for_each(|mut store| {
        let mut number = 0;
        for algorithm in ALL {
            for step in [-5, -19, -60, -3_600, -90 * 86_400, 5, 3_600] {
                number += 1;
                stepped(&mut store, number, algorithm, step);
            }
        }
    });
}

fn stepped(store: &mut Scripted, number: u64, algorithm: Algorithm, step: i64) {
    let place = format!("{algorithm:?}, {step} s");
    let limit = limit("20/20s", algorithm);
    let ask = || call(1, [part(&limit, number, 7, 1, Scale::plan(1))]);
    store.now = START;
    let mut admitted = 0;
    while store.ask(&ask()).is_admitted {
        admitted += 1;
        store.now += 1_000;
    }
    store.now = store.now.checked_add_signed(step * SECOND as i64).unwrap();
    // A bucket is open for a second at most.
    let most = 21 * SECOND;
    for _ in 0..3 {
        let said = store.ask(&ask());
        let wait = said.counters[0].retry_after.0 / 1_000;
        assert!(wait <= most, "{place}: waits {wait} us");
        if step < -1 {
            assert_eq!(said.counters[0].standing, LimitStanding::Refused, "{place}");
        }
        store.now += SECOND / 10;
    }
    // From the last that was admitted: a step forward frees what it passes.
    store.now += most;
    let again = (0..40).filter(|_| store.ask(&ask()).is_admitted).count();
    assert_eq!(again, admitted, "{place}");
}

/// Whatever the clock does, a gateway that lives is listed, and one that was killed is not after ten seconds more.
#[test]
fn a_killed_gateway_is_not_listed_for_long() {
    Scripted::each().for_each(|mut store| {
        for step in [-5, -3_600, -90 * 86_400, 0, 5, 3_600] {
            store.now = START;
            store.run(redis::cmd("DEL").arg("list"));
            assert_eq!(store.heartbeat(1), [1]);
            assert_eq!(store.heartbeat(2), [1, 2]);
            store.now = store.now.checked_add_signed(step * SECOND as i64).unwrap();
            for second in 0..=12 {
                let listed = store.heartbeat(2);
                assert!(listed.contains(&2), "{step} s, {second} s later");
                let gone = second > 10;
                assert!(
                    !gone || listed == [2],
                    "{step} s, {second} s later: {listed:?}"
                );
                store.now += SECOND;
            }
        }
    });
}

/// The same for a gateway that has not reported its units, which is listed as such until it has.
#[test]
fn a_gateway_that_has_not_reported_is_listed_until_it_is_killed() {
    Scripted::each().for_each(|mut store| {
        for step in [-5, -3_600, -90 * 86_400, 0, 5, 3_600] {
            store.now = START;
            store.run(redis::cmd("DEL").arg("list"));
            assert_eq!(store.heartbeat_with_state(1, true), [(1, true)]);
            assert_eq!(store.heartbeat_with_state(1, false), [(1, false)]);
            store.now = store.now.checked_add_signed(step * SECOND as i64).unwrap();
            for second in 0..=12 {
                let listed = store.heartbeat_with_state(2, second % 3 > 0);
                assert!(listed.contains(&(2, second % 3 > 0)));
                assert!(!listed.contains(&(1, true)));
                let gone = second > 10 || step > 10;
                assert!(!gone || listed.len() == 1, "{step} s, {second} s later");
                let lives = second + step.max(0) < 10;
                assert!(!lives || listed.len() == 2, "{step} s, {second} s later");
                store.now += SECOND;
            }
        }
    });
}

/// So many gateways ask in turn, each of which says what it knows of itself.
fn turns(store: &mut Scripted, number: u64, algorithm: Algorithm, gateways: &[u32]) -> usize {
    let limit = limit("1000/h", algorithm);
    let mut totals = vec![0; gateways.len()];
    let mut admitted = 0;
    for turn in 0..1_200 {
        store.now += 1_000;
        let place = turn % gateways.len();
        let mut ask = part(&limit, number, 7, 1, Scale::plan(1));
        (ask.gateway_total, ask.acknowledged_total) = (totals[place], totals[place]);
        ask.units_in_window = totals[place] as u32;
        let said = store.ask(&call(gateways[place], [ask]));
        totals[place] = said.counters[0].gateway_total;
        admitted += usize::from(said.is_admitted);
    }
    admitted
}

#[test]
fn all_of_a_limit_is_admitted_however_many_gateways_ask() {
    Scripted::each().for_each(|mut store| {
        let algorithms = [
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::FixedWindow,
            Algorithm::Gcra { burst: None },
        ];
        let mut number = 0;
        for algorithm in algorithms {
            // Gateways that ask, and that each knows of; of more than there is room for some are forgotten.
            for (count, known) in [
                (1, 1),
                (65, 65),
                (100, 100),
                (200, 200),
                (200, 1),
                (700, 200),
            ] {
                number += 1;
                (store.now, store.gateways) = (START, known);
                let gateways: Vec<u32> = (1..=count).collect();
                let admitted = turns(&mut store, number, algorithm, &gateways);
                assert_eq!(admitted, 1_000, "{algorithm:?}, {count} of {known}");
            }
        }
    });
}

/// A hundred gateways make room for a hundred others, both halves serving.
#[test]
fn gateways_are_replaced() {
    Scripted::each().for_each(|mut store| {
        (store.now, store.gateways) = (START, 200);
        let limit = limit("1000/h", Algorithm::SlidingLog);
        let (mut totals, mut admitted) = ([0; 200], 0);
        for turn in 0..1_100_usize {
            store.now += 1_000;
            // The newer half comes one by one, and the older one leaves so.
            let place = (turn / 11 + turn * 7 % 100) % 200;
            let mut ask = part(&limit, 1, 7, 1, Scale::plan(1));
            (
                ask.gateway_total,
                ask.acknowledged_total,
                ask.units_in_window,
            ) = (totals[place], totals[place], totals[place] as u32);
            let said = store.ask(&call(1 + place as u32, [ask]));
            totals[place] = said.counters[0].gateway_total;
            admitted += usize::from(said.is_admitted);
        }
        assert_eq!(admitted, 1_000);
    });
}

/// What gateways admitted without the store counts once, though the store forgets who has told it.
#[test]
fn what_was_admitted_without_the_store_counts_once() {
    Scripted::each().for_each(|mut store| {
        (store.now, store.gateways) = (START, 1);
        let limit = limit("100000/h", Algorithm::SlidingWindow);
        let mut used = 0;
        for turn in 1..=5 {
            for gateway in 1..=200 {
                let mut tell = part(&limit, 1, 7, 0, Scale::plan(1));
                (
                    tell.gateway_total,
                    tell.acknowledged_total,
                    tell.units_in_window,
                ) = (turn * 3, turn * 3 - 3, turn as u32 * 3);
                used += 3;
                for _ in 0..2 {
                    let said = store.ask(&call(gateway | UNGRANTED_UNITS_BIT, [tell.clone()]));
                    assert_eq!(
                        said.counters[0].used_units[0], used,
                        "{gateway}, turn {turn}"
                    );
                }
            }
        }
    });
}

/// Gateways that all began while the store was away took themselves for the only one: what they admitted counts, and
/// nobody waits for many windows.
#[test]
fn what_many_admitted_alone_is_over_soon() {
    Scripted::each().for_each(|mut store| {
        for (number, algorithm) in (1..).zip(ALL) {
            let limit = limit("20/m", algorithm);
            store.now = START;
            for gateway in 1..=10 {
                let mut tell = part(&limit, number, 7, 0, Scale::plan(1));
                (tell.gateway_total, tell.units_in_window) = (20, 20);
                store.ask(&call(gateway | UNGRANTED_UNITS_BIT, [tell]));
            }
            let one = part(&limit, number, 7, 1, Scale::plan(1));
            assert!(
                !store.ask(&call(1, [one.clone()])).is_admitted,
                "{algorithm:?}"
            );
            store.now += 2 * 60 * SECOND;
            assert!(store.ask(&call(1, [one])).is_admitted, "{algorithm:?}");
        }
    });
}

/// Requests that were decided without a store that hung are told of before what it took for them comes back: for that
/// moment more counts than the limit, and after it what was admitted.
#[test]
fn what_counts_beyond_the_limit_for_a_moment_is_not_forgotten() {
    Scripted::each().for_each(|mut store| {
        let algorithms = [
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::MultiLevel,
            Algorithm::FixedWindow,
            Algorithm::Gcra { burst: Some(20) },
        ];
        for (number, algorithm) in (1..).zip(algorithms) {
            let limit = limit("20/d", algorithm);
            store.now = START;
            let one = part(&limit, number, 7, 1, Scale::plan(1));
            let mut stamps = Vec::new();
            for _ in 0..12 {
                store.now += 1_000;
                stamps.push(store.ask(&call(1, [one.clone()])).counters[0].granted_at_micros);
            }
            let mut tell = part(&limit, number, 7, 0, Scale::plan(1));
            (tell.gateway_total, tell.units_in_window) = (10, 10);
            store.ask(&call(1 | UNGRANTED_UNITS_BIT, [tell]));
            for granted_at_micros in stamps.drain(2..) {
                store.now += 1_000;
                store.ask(&one.give_back_call(1, 1, granted_at_micros).numbered());
            }
            let mut look = call(1, [one]);
            look.taking = tollgate::store::Taking::Nothing;
            let used = store.ask(&look).counters[0].used_units[0];
            assert_eq!(used, 12, "{algorithm:?}");
        }
    });
}

/// A key that is used up has what is added as soon as the rate is raised, and nothing more when it is lowered.
#[test]
fn a_rate_changes() {
    Scripted::each().for_each(|mut store| {
        let leaky = Algorithm::LeakyBucket {
            max_delay: Nanos::ZERO,
        };
        let gcra = Algorithm::Gcra { burst: None };
        // Used up at the first rate; what remains at the second, and how long a refusal waits in seconds.
        let cases = [
            (gcra, "10/h", "1000/h", 990, 0),
            (gcra, "1000/h", "10/h", 0, 360),
            (Algorithm::Gcra { burst: Some(5) }, "10/h", "1000/h", 0, 4),
            (leaky, "10/h", "1000/h", 0, 4),
            (leaky, "1000/h", "10/h", 0, 360),
            (Algorithm::FixedWindow, "10/h", "1000/h", 990, 0),
        ];
        for (number, (algorithm, before, after, remaining, wait)) in (1..).zip(cases) {
            store.now = START;
            let ask = |rate: &str| part(&limit(rate, algorithm), number, 7, 1, Scale::plan(1));
            while store.ask(&call(1, [ask(before)])).is_admitted {}
            let mut look = call(1, [ask(after)]);
            look.taking = tollgate::store::Taking::Nothing;
            let answer = &store.ask(&look).counters[0];
            let place = format!("{algorithm:?}, {before} to {after}: {answer:?}");
            assert_eq!(answer.remaining, remaining, "{place}");
            assert_eq!(
                answer.retry_after.0.div_ceil(1_000_000_000),
                wait,
                "{place}"
            );
        }
    });
}
