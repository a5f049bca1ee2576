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
    CounterReply, GatewayHeartbeat, HeartbeatSender, LiveGateways, StoreError, StoreLoss,
    StoreReply, UNGRANTED_UNITS_BIT,
};
use tollgate::store::shared::pending_call::FirstStep;
use tollgate::store::shared::recovery::{MissingReports, Recovery, RecoveryStep};

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

/// Heartbeats, each with the number of its gateway, its time, and whether the gateway has reported.
fn heartbeats(senders: &[(u32, u64, bool)]) -> LiveGateways {
    let heartbeat = |(gateway, sent_at_micros, has_reported): &(u32, u64, bool)| GatewayHeartbeat {
        sender: HeartbeatSender {
            gateway: *gateway,
            has_reported: *has_reported,
        },
        sent_at_micros: *sent_at_micros,
    };
    LiveGateways {
        now_micros: 0,
        heartbeats: senders.iter().map(heartbeat).collect(),
    }
}

/// A gateway with the number 1, and one limit of a minute.
fn gateway_of_a_minute() -> Gateway {
    let rule = Rule {
        scope: "user",
        sharing: Sharing::Strict,
        algorithm: Algorithm::SlidingLog,
        windows: &[(10, 60)],
        keys: 1,
    };
    Gateway::new(&[rule], 1, 0, (1_000_000_000_000, 0))
}

/// Takes all steps up to a heartbeat, and returns whether that states that all is reported.
fn until_heartbeat(one: &Gateway, recovery: &mut Recovery, now: Nanos) -> bool {
    loop {
        match recovery.next_step(&one.decider, now) {
            RecoveryStep::Heartbeat { has_reported } => return has_reported,
            RecoveryStep::Report(call) => one.decider.record_report(&call, now),
            step => panic!("{step:?}"),
        }
    }
}

/// Those are waited for that live, and as many as there were.
#[test]
fn all_gateways_that_live_must_report() {
    let one = gateway_of_a_minute();
    let (decider, now) = (&one.decider, one.local(0));
    decider.breaker.start_learning(now);
    decider.breaker.set_gateway_count(2);
    decider.breaker.finish_learning(now);
    decider.breaker.record_outage(now);
    let mut recovery = Recovery::default();
    recovery.on_identified(decider, StoreLoss::All, now);
    recovery.on_listed(decider, heartbeats(&[]));
    let now = now.after(Nanos(1));
    assert!(until_heartbeat(&one, &mut recovery, now));
    let mut reply = |senders: &[(u32, u64, bool)]| {
        recovery.on_heartbeat(decider, &heartbeats(senders), true, now)
    };
    let missing = |reported_count, gateway_count| {
        Err(MissingReports {
            reported_count,
            gateway_count,
        })
    };
    assert_eq!(reply(&[(1, 9, true)]), missing(1, 2));
    assert_eq!(reply(&[(1, 9, true), (2, 9, false)]), missing(1, 2));
    let starting = [(1, 9, true), (2, 9, true), (3, 9, false)];
    assert_eq!(reply(&starting), missing(2, 3));
    assert_eq!(decider.breaker.gateway_count(), 3, "all count in shares");
    assert_eq!(reply(&[(1, 9, true), (2, 9, true)]), Ok(()));
    assert_eq!(decider.breaker.gateway_count(), 2);
}

/// A gateway that starts does not trust a store while another has not reported to it.
#[test]
fn a_gateway_that_starts_waits_for_reports() {
    let one = gateway_of_a_minute();
    let (decider, start) = (&one.decider, one.local(0));
    let mut recovery = Recovery::default();
    recovery.on_identified(decider, StoreLoss::All, start);
    recovery.on_listed(decider, heartbeats(&[(1, 4, false), (2, 5, true)]));
    assert_eq!(decider.breaker.gateway_count(), 2);
    assert!(!until_heartbeat(&one, &mut recovery, start));
    let now = start.after(Nanos::from_secs(2));
    assert!(until_heartbeat(&one, &mut recovery, now));
    let mut reply = |senders: &[(u32, u64, bool)]| {
        let outcome = recovery.on_heartbeat(decider, &heartbeats(senders), true, now);
        outcome.is_ok()
    };
    assert!(!reply(&[(1, 9, true), (2, 9, false)]));
    assert!(!reply(&[(1, 9, true), (2, 5, true)]), "sent before");
    assert!(reply(&[(1, 9, true), (2, 9, true)]));
}

/// What a gateway counts alone while the store is late in the middle of its return, and cannot report.
#[test]
fn units_that_are_counted_on_the_way_back_are_waited_for() {
    let one = gateway_of_a_minute();
    let (decider, start) = (&one.decider, one.local(0));
    let mut recovery = Recovery::default();
    recovery.on_identified(decider, StoreLoss::All, start);
    recovery.on_listed(decider, heartbeats(&[]));
    let late = start.after(Nanos::from_secs(50));
    for key in 0..4_000 {
        match decider.begin_decision(one.lines(&[key]), Taking::All, late) {
            FirstStep::AskStore(call) => {
                decider.finish_decision(&call, Err(StoreError::Late), late);
            }
            FirstStep::Decided(_) => panic!("the store is learning"),
        }
    }
    let after = |seconds| start.after(Nanos::from_secs(seconds));
    assert!(!until_heartbeat(&one, &mut recovery, after(62)));
    let reply = heartbeats(&[(1, 9, true)]);
    assert!(
        recovery
            .on_heartbeat(decider, &reply, true, after(62))
            .is_err()
    );
    assert!(until_heartbeat(&one, &mut recovery, after(112)));
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
