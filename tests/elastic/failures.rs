//! What goes wrong with the signals: gone, lying, rare, drifting.

use tollgate::limit::pressure::{OrcaReport, RequestClass, Trust};

use super::world::{Simulation, World};

/// Nobody asks for anything.
fn silent(world: World) -> World {
    let tiny = 1e-9;
    World {
        critical: tiny,
        normal: tiny,
        low: tiny,
        greedy: tiny,
        ..world
    }
}

#[test]
fn an_upstream_that_nobody_asks_lends_as_much_again() {
    for gateways in [1, 16] {
        let calm = World::calm(gateways);
        let mut simulation = Simulation::new(calm, 7);
        simulation.run(30.0);
        assert!(simulation.factor() > 1.2);
        simulation.world = silent(calm);
        // What is under way is answered first, in 0.2 s.
        simulation.run(5.0);
        assert_eq!(simulation.factor(), 2.0);
    }
}

#[test]
fn an_upstream_that_hangs_is_no_signal() {
    let calm = World::calm(1);
    let mut simulation = Simulation::new(calm, 7);
    simulation.run(30.0);
    simulation.world.service.mean = 1e7;
    simulation.run(2.2);
    assert_eq!(simulation.factor(), 1.0);
}

/// As much as that is lent however large a factor was.
#[test]
fn without_a_signal_limits_are_hard_in_two_seconds() {
    let idle = World {
        workers: 1_000,
        ..World::calm(1)
    };
    let mut simulation = Simulation::new(idle, 7);
    simulation.run(120.0);
    assert!(simulation.factor() > 9.0);
    simulation.world.service.mean = 1e7;
    simulation.run(2.2);
    assert_eq!(simulation.factor(), 1.0);
}

#[track_caller]
fn lies(trust: Trust, report: f64, change: fn(&mut World)) -> (f64, super::figures::Figures) {
    let mut world = World {
        trust,
        ..World::calm(1)
    };
    change(&mut world);
    let mut honest = Simulation::new(world, 3);
    honest.run(20.0);
    let expected = honest.run(40.0).mean_factor();
    let text = format!("application_utilization:{report}");
    let report = OrcaReport::parse(text.as_bytes(), None).ok();
    world.report = report.and_then(|report| report.load());
    let mut lying = Simulation::new(world, 3);
    lying.run(20.0);
    (expected, lying.run(40.0))
}

#[test]
fn reports_never_raise_what_latency_forbids() {
    for report in [0.0, 0.1, f64::NAN, -1.0, f64::INFINITY, 1e9] {
        // Nothing is there to lend when critical traffic alone is nearly all.
        let (expected, figures) = lies(Trust::Lower, report, |world| world.critical = 640.0);
        assert!(expected < 1.1 && figures.mean_factor() < 1.1, "{report}");
        let (expected, figures) = lies(Trust::Lower, report, |_| {});
        assert!(figures.mean_factor() <= 1.05 * expected, "{report}");
    }
    // Even a trusted one ends where the queue begins.
    let (_, figures) = lies(Trust::Full, 0.0, |_| {});
    assert!(figures.admitted(RequestClass::Critical) >= 98.0);
    assert!(figures.latency(0.99) <= 130.0, "{figures}");
}

#[test]
fn reports_of_overload_cut_only_what_is_lent() {
    for trust in [Trust::Lower, Trust::Full] {
        let (_, figures) = lies(trust, 10.0, |_| {});
        println!("{figures}");
        assert_eq!(figures.mean_factor(), 1.0);
        for class in [
            RequestClass::Critical,
            RequestClass::Normal,
            RequestClass::Low,
        ] {
            assert!(figures.admitted(class) >= 99.9, "{figures}");
        }
    }
}

#[test]
fn few_requests_are_lent_as_much_again() {
    let few = World {
        critical: 0.5,
        normal: 0.5,
        low: 0.25,
        greedy: 0.25,
        ..World::calm(1)
    };
    let mut simulation = Simulation::new(few, 5);
    let limits = |simulation: &Simulation| {
        simulation
            .figures_of_all()
            .map(|now| now.capacity)
            .sum::<f64>()
    };
    let before = limits(&simulation);
    let figures = simulation.run(120.0);
    assert_eq!(limits(&simulation), before);
    assert!(figures.mean_factor() > 1.9);
    for class in RequestClass::ALL {
        assert_eq!(figures.admitted(class), 100.0);
    }
}

/// Five minutes of a surge: what is learned under load must not become what is usual.
#[test]
fn a_long_surge_does_not_drift() {
    for gateways in [1, 4, 16] {
        let mut simulation = Simulation::new(World::calm(gateways), 11);
        simulation.run(10.0);
        let calm = simulation.run(30.0);
        simulation.world.critical *= 3.0;
        simulation.run(180.0);
        let mut bases = 0.0;
        for _ in 0..60 {
            simulation.run(1.0);
            let now = simulation.figures_of_all().filter_map(|now| now.baseline);
            bases += now.map(|base| base.0 as f64).sum::<f64>() / gateways as f64;
        }
        let late = simulation.run(60.0);
        println!("{gateways} gateways, late in a long surge: {late}");
        assert!(late.admitted(RequestClass::Critical) >= 98.0);
        assert!(late.latency(0.99) <= 2.0 * calm.latency(0.99));
        // 17.7 ms is the median of the service.
        let mean = bases / 60.0;
        assert!(mean < 25_000_000.0, "{mean}");
    }
}
