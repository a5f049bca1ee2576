//! Histories that the script and the arithmetic of `limit` decide side by side, and what only the script does.

use tollgate::base::clock::{Nanos, WallOffset};
use tollgate::limit::{
    Algorithm, Fingerprint, KeyState, LimitStanding, Rate, RateLimit, Scale, ThrottleMode,
};

use crate::draw::Draw;
use crate::scripted::{Scripted, call, part};
use tollgate::store::Taking;

pub fn limit(rates: &[&str], algorithm: Algorithm, throttle: ThrottleMode) -> RateLimit {
    RateLimit {
        windows: rates.iter().map(|rate| rate.parse().unwrap()).collect(),
        algorithm,
        throttle,
        reserves: false,
        max_plan_factor: 4,
    }
}

/// Microseconds: the ticks of all logs here fit into it.
const TICK: u64 = 1_024;

/// A limit whose buckets and stamps are exact in both clocks.
fn drawn(draw: &mut Draw) -> RateLimit {
    let mut windows = Vec::new();
    for seconds in [3, 6, 60, 600] {
        if windows.is_empty() || draw.once_in(3) {
            let quota = draw.within(1, 20) as u32;
            windows.push(Rate::new(quota, Nanos::from_secs(seconds)).unwrap());
        }
    }
    let algorithms = [
        Algorithm::SlidingLog,
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::MultiLevel,
        Algorithm::FixedWindow,
        Algorithm::Gcra { burst: None },
        Algorithm::Gcra { burst: Some(3) },
        Algorithm::LeakyBucket {
            max_delay: Nanos::from_millis(1_500),
        },
    ];
    let throttles = [
        ThrottleMode::Hard,
        ThrottleMode::Soft { percent: 25 },
        ThrottleMode::Elastic {
            at_most: 3,
            base: 1,
        },
    ];
    RateLimit {
        windows,
        algorithm: algorithms[draw.below(8) as usize],
        throttle: throttles[draw.below(3) as usize],
        reserves: false,
        max_plan_factor: 4,
    }
}

#[test]
fn the_script_says_what_a_cell_says() {
    for store in Scripted::each() {
        says_what_a_cell_says(store);
    }
}

fn says_what_a_cell_says(mut store: Scripted) {
    let seed = 20_261_122;
    let mut draw = Draw::new(seed);
    let (mut steps, mut refused) = (0, 0);
    for history in 0..400_u64 {
        let limit = drawn(&mut draw);
        let key = Fingerprint(u128::from(draw.next()) << 64 | u128::from(draw.next()));
        let scale = Scale {
            plan_factor: draw.within(1, 4) as u32,
            lent: [0, 700, 2_000][draw.below(3) as usize],
        };
        let mut words = vec![0; limit.max_words()];
        // Some years in, where the numbers are large.
        let mut now = 1_732_000_000_000 + draw.below(1_000_000);
        for step in 0..60 {
            now += match draw.below(6) {
                0 => draw.below(20_000),
                1 => 0,
                _ => draw.below(700),
            };
            let cost = draw.within(1, 3) as u32;
            let moment = Nanos(now * TICK * 1_000);
            let mut cell = KeyState {
                limit: &limit,
                key,
                wall: WallOffset::default(),
                words: &mut words,
            };
            let mut expected = cell.assess(moment, cost, scale);
            let took = if expected.standing.admits() {
                cell.take_units(&expected, moment, cost, scale);
                cost
            } else {
                0
            };
            cell.complete_finding(&mut expected, moment, took, scale.plan_factor);
            store.now = now * TICK;
            let said = store.ask(&call(1, [part(&limit, history, key.0, cost, scale)]));
            let answer = &said.counters[0];
            let place = format!(
                "seed {seed} history {history} step {step}: {limit:?} {scale:?} {expected:?} {answer:?}"
            );
            assert_eq!(answer.standing, expected.standing, "{place}");
            assert_eq!(answer.window_index, expected.window, "{place}");
            assert_eq!(answer.remaining, expected.remaining, "{place}");
            assert_eq!(answer.granted_units, took, "{place}");
            // A log's ticks are nanoseconds here and microseconds there; intervals are rounded up; what is lent
            // is counted in 2^-20 units here.
            let lent = limit.throttle.is_elastic();
            let slack = 250_000
                + if lent {
                    limit.longest_window().0 >> 18
                } else {
                    0
                };
            for (one, other) in [
                (answer.retry_after, expected.wait),
                (answer.reset_after, expected.reset),
                (answer.delay, expected.delay),
            ] {
                assert!(one.0.abs_diff(other.0) <= slack, "{place}");
            }
            steps += 1;
            refused += u32::from(!expected.standing.admits());
        }
    }
    println!("{steps} steps, {refused} refused");
    assert!(refused > steps / 10 && refused < steps / 10 * 9);
}

#[test]
fn all_or_none() {
    Scripted::each().for_each(|mut store| {
        let wide = limit(&["5/m"], Algorithm::SlidingLog, ThrottleMode::Hard);
        let tight = limit(&["2/m"], Algorithm::SlidingWindow, ThrottleMode::Hard);
        let plain = Scale::plan(1);
        store.now = 1_000_000_000;
        for taken in 1..=4 {
            let mut shadow = part(&tight, 3, 9, 1, plain);
            shadow.is_shadow = true;
            let parts = [
                part(&wide, 1, 7, 1, plain),
                part(&tight, 2, 8, 1, plain),
                shadow,
            ];
            let said = store.ask(&call(1, parts));
            let fits = taken <= 2;
            assert_eq!(said.is_admitted, fits);
            assert_eq!(
                said.counters[0].used_units[0],
                taken.min(2),
                "refused requests use up nothing"
            );
            assert_eq!(said.counters[1].used_units[0], taken.min(2));
            assert_eq!(
                said.counters[2].used_units[0],
                taken.min(2),
                "a shadow decides alone"
            );
        }
        let mut peek = call(1, [part(&wide, 1, 7, 1, plain)]);
        peek.taking = Taking::Nothing;
        assert_eq!(store.ask(&peek).counters[0].used_units[0], 2);
        assert_eq!(store.ask(&peek).counters[0].granted_units, 0);
    });
}

#[test]
fn grants_come_back_once() {
    Scripted::each().for_each(|mut store| {
        for (number, algorithm) in (1..).zip([
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::FixedWindow,
        ]) {
            let limit = limit(&["10/m"], algorithm, ThrottleMode::Hard);
            store.now = 1_000_000_000;
            let mut want = part(&limit, number, 7, 1, Scale::plan(1));
            want.wanted_units = 6;
            let first = store.ask(&call(1, [want.clone()]));
            assert_eq!(first.counters[0].granted_units, 6);
            store.now += 10_000;
            let second = store.ask(&call(2, [want.clone()]));
            assert_eq!(second.counters[0].granted_units, 4, "as many as there are");
            store.now += 10_000;
            let back = want
                .give_back_call(1, 5, first.counters[0].granted_at_micros)
                .numbered();
            let said = store.ask(&back);
            assert_eq!(said.counters[0].used_units[0], 5, "{algorithm:?}");
            assert_eq!(store.ask(&back).counters[0].used_units[0], 5, "once");
            assert_eq!(store.ask(&call(2, [want])).counters[0].granted_units, 5);
        }
    });
}

/// A replica that was behind takes over: what the master granted last to calls that were given up is not there, and
/// neither comes back nor counts as lost.
#[test]
fn what_another_master_granted_does_not_come_back() {
    Scripted::each().for_each(|mut store| {
        for (number, algorithm) in (1..).zip([
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::MultiLevel,
            Algorithm::FixedWindow,
            Algorithm::Gcra { burst: None },
        ]) {
            let limit = limit(&["20/h"], algorithm, ThrottleMode::Hard);
            store.now = 3_600_000_000;
            let mut ask = part(&limit, number, 7, 1, Scale::plan(1));
            let take = |store: &mut Scripted| {
                store.now += 1_000;
                store.ask(&call(1, [ask.clone()])).counters[0].clone()
            };
            (0..10).for_each(|_| _ = take(&mut store));
            let key = Scripted::key(&part(&limit, number, 7, 1, Scale::plan(1)).name);
            store.run(redis::cmd("COPY").arg(&key).arg("behind"));
            let lost: Vec<_> = (0..3).map(|_| take(&mut store)).collect();
            store.run(redis::cmd("RENAME").arg("behind").arg(&key));
            for answer in lost.iter().rev() {
                let mut back = ask
                    .give_back_call(1, 1, answer.granted_at_micros)
                    .numbered();
                (
                    back.parts[0].gateway_total,
                    back.parts[0].acknowledged_total,
                ) = (answer.gateway_total, answer.gateway_total);
                let said = store.ask(&back);
                assert_eq!(said.counters[0].used_units[0], 10, "{algorithm:?}");
            }
            (ask.gateway_total, ask.units_in_window) = (10, 10);
            let said = store.ask(&call(1, [ask.clone()]));
            assert_eq!(said.counters[0].used_units[0], 11, "{algorithm:?}");
            // Of this one it knows.
            let mut back = ask
                .give_back_call(1, 1, said.counters[0].granted_at_micros)
                .numbered();
            (
                back.parts[0].gateway_total,
                back.parts[0].acknowledged_total,
            ) = (11, 11);
            assert_eq!(
                store.ask(&back).counters[0].used_units[0],
                10,
                "{algorithm:?}"
            );
        }
    });
}

#[test]
fn what_the_store_lost_counts_again_and_only_once() {
    Scripted::each().for_each(|mut store| {
        let limit = limit(&["10/m"], Algorithm::SlidingLog, ThrottleMode::Hard);
        store.now = 1_000_000_000;
        let mut ask = part(&limit, 1, 7, 1, Scale::plan(1));
        for total in 0..4 {
            ask.gateway_total = total;
            ask.units_in_window = total as u32;
            let said = store.ask(&call(1, [ask.clone()]));
            assert_eq!(u64::from(said.counters[0].used_units[0]), total + 1);
            assert_eq!(said.counters[0].gateway_total, total + 1);
        }
        store.run(redis::cmd("DEL").arg(Scripted::key(&ask.name)));
        ask.gateway_total = 4;
        ask.units_in_window = 4;
        for used in 5..=10 {
            // The gateway asks again before it has heard, so that it tells less than the store knows.
            assert_eq!(
                store.ask(&call(1, [ask.clone()])).counters[0].used_units[0],
                used
            );
        }
        let said = store.ask(&call(2, [ask.clone()]));
        assert_eq!(
            said.counters[0].standing,
            LimitStanding::Refused,
            "another gateway's are its own"
        );
        assert_eq!(said.counters[0].used_units[0], 14);
    });
}

#[test]
fn networks_are_charged_what_keys_are_granted() {
    Scripted::each().for_each(|mut store| {
        let narrow = limit(&["10/m"], Algorithm::SlidingLog, ThrottleMode::Hard);
        let network = limit(
            &["12/m"],
            Algorithm::Gcra { burst: None },
            ThrottleMode::Hard,
        );
        store.now = 1_000_000_000;
        for (key, granted) in [(1, 8), (2, 4), (3, 0)] {
            let mut one = part(&narrow, 1, key, 1, Scale::plan(1));
            one.wanted_units = 8;
            let mut around = part(&network, 2, 99, 1, Scale::plan(1));
            around.wanted_units = 8;
            around.key_part_index = Some(0);
            let said = store.ask(&call(1, [one, around]));
            assert_eq!(said.counters[0].granted_units, granted);
            assert_eq!(said.counters[1].granted_units, granted);
        }
    });
}

/// Processes come and go; those that are there keep their place, and nothing counts twice.
#[test]
fn gateways_that_are_gone_make_room() {
    Scripted::each().for_each(|mut store| {
        let limit = limit(&["1000/m"], Algorithm::SlidingWindow, ThrottleMode::Hard);
        store.now = 1_000_000_000;
        let mut ask = part(&limit, 1, 7, 1, Scale::plan(1));
        ask.wanted_units = 5;
        for gone in 1..=100 {
            store.ask(&call(gone, [ask.clone()]));
        }
        let mut totals = [0; 8];
        for turn in 1..=10 {
            for (gateway, total) in (1_000..).zip(&mut totals) {
                let mut ask = part(&limit, 1, 7, 1, Scale::plan(1));
                ask.gateway_total = *total;
                ask.units_in_window = *total as u32;
                let answer = &store.ask(&call(gateway, [ask])).counters[0];
                *total = answer.gateway_total;
                assert_eq!(*total, turn);
            }
        }
        let said = store.ask(&call(1_000, [part(&limit, 1, 7, 1, Scale::plan(1))]));
        assert_eq!(said.counters[0].used_units[0], 100 * 5 + 10 * 8 + 1);
    });
}

/// A user of a small plan behind the same address, or a gateway with another policy, does not make others' use
/// forgotten.
#[test]
fn what_counts_stays_whoever_asks() {
    Scripted::each().for_each(|mut store| {
        let limit = limit(&["10/m"], Algorithm::SlidingLog, ThrottleMode::Hard);
        store.now = 1_000_000_000;
        let free = part(&limit, 1, 7, 1, Scale::plan(1));
        let granted_at_micros = store.ask(&call(1, [free.clone()])).counters[0].granted_at_micros;
        store.now += 1_000;
        let mut gold = part(&limit, 1, 7, 1, Scale::plan(4));
        gold.wanted_units = 40;
        assert_eq!(store.ask(&call(1, [gold])).counters[0].granted_units, 39);
        store.ask(&free.give_back_call(1, 1, granted_at_micros).numbered());
        let mut told = free;
        (told.gateway_total, told.units_in_window) = (41, 1);
        store.ask(&call(1, [told]));
        let gold = part(&limit, 1, 7, 1, Scale::plan(4));
        let said = store.ask(&call(1, [gold]));
        assert_eq!(said.counters[0].standing, LimitStanding::Refused);
        assert_eq!(said.counters[0].used_units[0], 40);
    });
}

/// What an operator forgets, no gateway brings back.
#[test]
fn what_is_forgotten_stays_forgotten() {
    Scripted::each().for_each(|mut store| {
        let algorithms = [
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::FixedWindow,
            Algorithm::Gcra { burst: None },
        ];
        for (number, algorithm) in (1..).zip(algorithms) {
            let limit = limit(
                &["10/m"],
                algorithm,
                ThrottleMode::Elastic {
                    at_most: 3,
                    base: 1,
                },
            );
            store.now = 1_000_000_000;
            let mut ask = part(&limit, number, 7, 1, Scale::plan(1));
            assert!(!store.forget(&call(0, [ask.clone()])));
            for _ in 0..10 {
                store.ask(&call(1, [ask.clone()]));
            }
            assert!(store.forget(&call(0, [ask.clone()])));
            (ask.gateway_total, ask.units_in_window) = (10, 10);
            let said = store.ask(&call(1, [ask]));
            assert_eq!(said.counters[0].used_units[0], 1, "{algorithm:?}");
        }
    });
}

/// After years of a busy token.
#[test]
fn totals_are_large() {
    Scripted::each().for_each(|mut store| {
        let limit = limit(&["10/m"], Algorithm::SlidingWindow, ThrottleMode::Hard);
        store.now = 1_000_000_000;
        let mut ask = part(&limit, 1, 7, 1, Scale::plan(1));
        (ask.gateway_total, ask.units_in_window) = (1 << 40, 2);
        for used in 3..=10 {
            let answer = &store.ask(&call(1, [ask.clone()])).counters[0];
            assert_eq!(answer.used_units[0], used);
            assert_eq!(answer.gateway_total, ask.gateway_total + 1);
            ask.gateway_total = answer.gateway_total;
        }
    });
}

/// What a user of 500/h costs, and what a log of a thousand does when it is never empty.
#[test]
fn bytes_of_a_key() {
    Scripted::each().for_each(|mut store| {
        store.now = 1_000_000_000_000;
        let algorithms = [
            ("sliding-log", Algorithm::SlidingLog, 2_000),
            ("sliding-window", Algorithm::SlidingWindow, 700),
            ("fixed-window", Algorithm::FixedWindow, 400),
            ("gcra", Algorithm::Gcra { burst: None }, 400),
        ];
        println!(
            "500/h, all used, through eight gateways\nalgorithm       bytes a key (MEMORY USAGE)"
        );
        for (number, (name, algorithm, most)) in algorithms.into_iter().enumerate() {
            let limit = limit(&["500/h"], algorithm, ThrottleMode::Hard);
            let limit = RateLimit {
                max_plan_factor: 1,
                ..limit
            };
            let ask = part(
                &limit,
                number as u64,
                0x0123_4567_89ab_cdef << 64,
                1,
                Scale::plan(1),
            );
            for turn in 0..500 {
                store.now += 1_000_000;
                let gateway = 1 + turn % 8;
                assert!(
                    store.ask(&call(gateway, [ask.clone()])).is_admitted,
                    "{name}"
                );
            }
            let bytes = store.bytes(&ask.name);
            println!("{name:<15} {bytes}");
            assert!(bytes <= most, "{name}: {bytes}");
        }
    });
}
