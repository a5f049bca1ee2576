//! Tests of what requests see of a pressure: slots, refusals, and the figures that control steps publish.

use std::thread;

use super::super::{CONTROL_STEP, Controller, GatewayLoad, Settings, StepContext, Trust};
use super::*;

/// The key of every request: cohorts do not matter here.
fn key() -> u64 {
    7
}

const CONTEXT: StepContext = StepContext {
    wall: Nanos::from_secs(1),
    gateways: 1,
    gateway_load: GatewayLoad {
        cpu: Some(0.25),
        connections: None,
    },
};

fn new_pressure(max_open: u32) -> (Arc<Pressure>, Controller) {
    let settings = Settings {
        max_open,
        max_factor: 4.0,
        trust: Trust::Lower,
    };
    Controller::new(settings, 1, Nanos::ZERO)
}

/// Takes all slots that the class gets, until one request is shed.
fn take_all_slots(pressure: &Arc<Pressure>, class: RequestClass) -> Vec<UpstreamSlot> {
    let admit = || match pressure.admit(class, Nanos::ZERO, key) {
        Ok(slot) => Some(slot),
        Err(shed) => {
            pressure.record_shed(&shed);
            None
        }
    };
    std::iter::from_fn(admit).collect()
}

/// Responds to 200 requests after `millis` each, and takes a control step.
fn respond_and_step(
    pressure: &Arc<Pressure>,
    controller: &mut Controller,
    millis: u64,
    now: Nanos,
) {
    for _ in 0..200 {
        let slot = pressure
            .admit(RequestClass::Critical, Nanos::ZERO, key)
            .unwrap();
        slot.record_latency(pressure.kind("all"), Nanos::from_millis(millis));
    }
    controller.step(now, &CONTEXT);
}

#[test]
fn classes_find_room_in_order() {
    let (pressure, mut controller) = new_pressure(1_000);
    // Without a queue there is room for all.
    let held = take_all_slots(&pressure, RequestClass::Normal);
    assert_eq!(held.len(), 1_000);
    drop(held);
    respond_and_step(&pressure, &mut controller, 10, CONTROL_STEP);
    respond_and_step(&pressure, &mut controller, 40, Nanos::from_secs(1));
    let classes = [
        RequestClass::Low,
        RequestClass::Normal,
        RequestClass::Critical,
    ];
    let mut held = Vec::new();
    let open = classes.map(|class| {
        held.extend(take_all_slots(&pressure, class));
        held.len()
    });
    assert!(open.is_sorted_by(|a, b| a < b) && open[2] < 60, "{open:?}");
    assert_eq!(pressure.lending_factor(), ElasticFactor::ONE);
    held.iter()
        .take(3)
        .for_each(|slot| slot.record_admission(true));
    let now = pressure.figures();
    assert_eq!((now.open as usize, now.lent), (open[2], 3));
    assert_eq!(now.shed, [1, 2, 1]);
    let shed = pressure
        .admit(RequestClass::Critical, Nanos::ZERO, key)
        .unwrap_err();
    assert_eq!(shed.retry_after, MIN_RETRY_AFTER);
    drop(held);
    assert_eq!(pressure.figures().open, 0);
}

#[test]
fn the_hard_cap_is_for_all() {
    let (pressure, _) = new_pressure(3);
    assert_eq!(take_all_slots(&pressure, RequestClass::Critical).len(), 3);
    let (pressure, _) = new_pressure(0);
    assert_eq!(take_all_slots(&pressure, RequestClass::Critical).len(), 1);
}

#[test]
fn never_more_are_open_than_may_be() {
    let (pressure, _) = new_pressure(20);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    let slot = pressure.admit(RequestClass::Critical, Nanos::ZERO, key);
                    // Each of the other threads may be about to give back a slot that it did not get.
                    assert!(pressure.figures().open <= 20 + 3);
                    drop(slot);
                }
            });
        }
    });
    assert_eq!(pressure.figures().open, 0);
    assert_eq!(take_all_slots(&pressure, RequestClass::Critical).len(), 20);
}

#[test]
fn a_step_publishes_what_it_found() {
    let (pressure, mut controller) = new_pressure(1_000);
    let before = pressure.figures();
    assert_eq!(
        (before.factor, before.baseline, before.cpu),
        (ElasticFactor::ONE, None, None)
    );
    let mut now = Nanos::ZERO;
    for _ in 0..20 {
        for millis in 1..=100 {
            let slot = pressure
                .admit(RequestClass::Normal, Nanos::ZERO, key)
                .unwrap();
            slot.record_latency(pressure.kind("all"), Nanos::from_millis(millis));
            slot.record_load(Utilisation::new(0.5).unwrap());
        }
        now = now.after(CONTROL_STEP);
        controller.step(now, &CONTEXT);
    }
    let after = pressure.figures();
    let near = |span: Option<Nanos>, millis: u64| {
        let span = span.map_or(0, |span| span.0 / 100_000);
        assert!(span.abs_diff(10 * millis) < millis / 2, "{span}");
    };
    near(after.p50, 50);
    near(after.p90, 90);
    near(after.baseline, 50);
    assert!(after.factor > ElasticFactor::new(1.2), "{after:?}");
    assert_eq!((after.cpu, after.level), (Some(0.25), 4.0));
    assert!((after.load - 0.5).abs() < 1e-6 && after.reported == Some(after.load));
    // One request in ten fails.
    for _ in 0..10 {
        for request in 0..100 {
            let slot = pressure
                .admit(RequestClass::Normal, Nanos::ZERO, key)
                .unwrap();
            match request % 10 {
                0 => slot.record_failure(),
                _ => slot.record_latency(pressure.kind("all"), Nanos::from_millis(50)),
            }
        }
        now = now.after(CONTROL_STEP);
        controller.step(now, &CONTEXT);
    }
    assert_eq!(pressure.factor(), ElasticFactor::ONE);
}

#[test]
fn a_busy_gateway_lends_nothing() {
    for (cpu, lends) in [(0.5, true), (0.95, false), (f64::NAN, true), (-1.0, true)] {
        let (pressure, mut controller) = new_pressure(1_000);
        let around = StepContext {
            gateway_load: GatewayLoad {
                cpu: Some(cpu),
                connections: Some(f64::INFINITY),
            },
            ..CONTEXT
        };
        for step in 1..=20 {
            for _ in 0..50 {
                let slot = pressure
                    .admit(RequestClass::Normal, Nanos::ZERO, key)
                    .unwrap();
                slot.record_latency(pressure.kind("all"), Nanos::from_millis(5));
            }
            controller.step(Nanos::from_millis(100 * step), &around);
        }
        assert_eq!(pressure.factor() > ElasticFactor::ONE, lends, "{cpu}");
        assert_eq!(pressure.figures().cpu.is_some(), cpu >= 0.0);
    }
}
