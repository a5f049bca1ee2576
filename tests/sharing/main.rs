//! Limits that several gateways share, in simulated time: the real core, ledger, ladder and return of each, one
//! store, and a network, clocks, machines that fail. Every window is held against what may be in it after every
//! unit that is admitted.
//!
//! A failure prints its scenario and seed. `SHARING=emptied:17 cargo nextest run --test sharing one` replays it;
//! once it is fixed it is kept in [`KEPT`].

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::large_enum_variant)]

#[path = "../elastic/draw.rs"]
#[allow(dead_code)]
mod draw;
mod faults;
mod gateway;
mod judge;
mod keeper;
mod scenarios;
mod store;
mod world;

use std::env;

use gateway::{Gateway, Rule};
use tollgate::base::clock::Nanos;
use tollgate::limit::{Algorithm, LimitStanding, Sharing};
use tollgate::store::Taking;
use tollgate::store::shared::call::{
    CounterReply, LiveGateways, StoreLoss, StoreReply, UNGRANTED_UNITS_BIT,
};
use tollgate::store::shared::pending_call::FirstStep;
use tollgate::store::shared::recovery::{Recovery, RecoveryStep};

/// What failed once.
const KEPT: &[(&str, u64)] = &[
    ("down", 1),
    ("down", 46),
    ("down", 79),
    ("emptied", 1),
    ("emptied", 43),
    ("stopped", 7),
    ("stopped", 19),
    ("stopped", 54),
    ("rough", 18),
    ("rough", 66),
    ("rough", 69),
    ("failovers", 0),
    ("failovers", 4),
    ("relapse", 4),
    ("cut", 79),
    ("chaos", 0),
    ("chaos", 5),
    ("chaos", 11),
    ("chaos", 23),
];
/// Steps of all runs together, at least.
const STEPS: u64 = 1_000_000;
/// Runs of each scenario.
const SEEDS: u64 = 16;

#[test]
fn what_failed_once() {
    for (name, seed) in KEPT {
        scenarios::run(name, *seed);
    }
}

/// See the module.
#[test]
fn one() {
    let Ok(which) = env::var("SHARING") else {
        return;
    };
    let (name, seed) = which.split_once(':').unwrap();
    scenarios::run(name, seed.parse().unwrap());
}

/// More keys than a gateway can keep in mind: of a store that comes back empty it does not say that it has told all
/// before what it cannot tell has left the windows.
#[test]
fn what_cannot_be_told_is_waited_for() {
    let rule = Rule {
        scope: "user",
        sharing: Sharing::Strict,
        algorithm: Algorithm::SlidingLog,
        windows: &[(10, 60)],
        keys: 1,
    };
    let one = Gateway::new(&[rule], 1, 0, (1_000_000_000_000, 0));
    let (decider, start) = (&one.decider, one.local(0));
    decider.breaker.start_learning(start);
    decider.breaker.finish_learning(start);
    let told = |lost, after: u64| {
        let (mut back, met) = (Recovery::default(), start.after(Nanos::from_secs(1)));
        back.on_identified(decider, lost, met);
        back.on_listed(
            decider,
            LiveGateways {
                now_micros: 0,
                heartbeats: Vec::new(),
            },
        );
        match back.next_step(decider, met.after(Nanos::from_secs(after))) {
            RecoveryStep::Heartbeat { has_reported } => has_reported,
            other => panic!("{other:?}"),
        }
    };
    assert!(told(StoreLoss::All, 0));
    for key in 0..4_000 {
        if let FirstStep::AskStore(asking) =
            decider.begin_decision(one.lines(&[key]), Taking::All, start)
        {
            decider.abandon_call(&asking, start);
        }
    }
    assert!(told(StoreLoss::Part, 0), "the store has it all");
    assert!(!told(StoreLoss::All, 58));
    assert!(told(StoreLoss::All, 60));
}

/// Without the store a gateway counts arrivals at the pace of its share, so that each moves its own count on by several
/// units. It tells a store that may have lost them as many as there were.
#[test]
fn arrivals_without_the_store_are_told_once() {
    let rule = Rule {
        scope: "user",
        sharing: Sharing::Strict,
        algorithm: Algorithm::Gcra { burst: Some(200) },
        windows: &[(200, 86_400)],
        keys: 1,
    };
    let one = Gateway::new(&[rule], 1, 0, (1_000_000_000_000, 0));
    let (decider, now) = (&one.decider, one.local(0));
    decider.breaker.start_learning(now);
    decider.breaker.set_gateway_count(2);
    decider.breaker.finish_learning(now);
    for total in 1..=10 {
        let FirstStep::AskStore(asking) = decider.begin_decision(one.lines(&[0]), Taking::All, now)
        else {
            panic!("a strict limit asks");
        };
        let answer = CounterReply {
            standing: LimitStanding::Within,
            window_index: 0,
            remaining: 200 - total,
            retry_after: Nanos::ZERO,
            reset_after: Nanos::ZERO,
            delay: Nanos::ZERO,
            granted_units: 1,
            gateway_total: u64::from(total),
            granted_at_micros: 1,
            used_units: [total].into_iter().collect(),
        };
        let said = StoreReply {
            is_admitted: true,
            now_micros: 1,
            counters: [answer].into_iter().collect(),
        };
        assert!(decider.finish_decision(&asking, Ok(said), now).is_admitted);
    }
    decider.breaker.record_outage(now);
    for _ in 0..20 {
        let begun = decider.begin_decision(one.lines(&[0]), Taking::All, now);
        assert!(matches!(begun, FirstStep::Decided(done) if done.is_admitted));
    }
    let told = decider.report_all(&[one.name(0, 0)], now);
    let told = told.iter().map(|asking| {
        let part = &asking.call.parts[0];
        (
            asking.call.gateway,
            part.gateway_total,
            part.units_in_window,
        )
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(1, 10, 10), (1 | UNGRANTED_UNITS_BIT, 20, 20)]
    );
}

#[test]
fn every_window_of_every_scenario() {
    let seeds = env::var("SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let first = env::var("FIRST").map_or(0, |first| first.parse().unwrap());
    let only = env::var("ONLY").ok();
    let mut all = 0;
    for (name, _) in scenarios::ALL {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let (mut steps, mut alone, mut worst, mut stalest) = (0, 0, 0.0_f64, 0);
        for seed in first..first + seeds {
            let world = scenarios::run(name, seed);
            steps += world.steps;
            alone += world.alone;
            stalest = stalest.max(world.stalest);
            for track in world.tracks.iter().flatten() {
                for (most, (quota, _)) in track.worst.iter().zip(&track.windows) {
                    worst = worst.max(f64::from(*most) / f64::from(*quota));
                }
            }
        }
        println!(
            "{name}: {steps} steps, {alone} decided alone, worst window {worst:.3} of its limit, {stalest} % by what was not known"
        );
        all += steps;
    }
    assert!(
        only.is_some() || first > 0 || all >= STEPS,
        "only {all} steps"
    );
}
