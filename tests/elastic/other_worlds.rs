//! The same promises where the world is another: capacities, mixtures, a service that grows slow by itself.
//! Nothing in the module knows the numbers of the scenarios.

use tollgate::limit::pressure::RequestClass;

use super::figures::Figures;
use super::upstream::Service;
use super::world::{Simulation, World};

fn surge(name: &str, calm: World, seed: u64) -> (Figures, Figures) {
    let mut simulation = Simulation::new(calm, seed);
    simulation.run(30.0);
    let before = simulation.run(60.0);
    simulation.world.critical *= 3.0;
    let trouble = simulation.run(60.0);
    println!("{name}\n  calm    {before}\n  trouble {trouble}");
    (before, trouble)
}

#[test]
fn small_and_large_upstreams() {
    for (times, gateways) in [(0.25, 1), (0.25, 4), (4.0, 1), (4.0, 4)] {
        let calm = World::calm(gateways).times(times);
        let name = format!("{} workers, {gateways} gateways", calm.workers);
        let (calm, trouble) = surge(&name, calm, 1);
        assert!(trouble.admitted(RequestClass::Critical) >= 98.0);
        assert!(trouble.latency(0.99) <= 2.0 * calm.latency(0.99));
        assert!(calm.admitted(RequestClass::Normal) >= 98.0);
        assert!(calm.mean_factor() > 1.15);
    }
}

#[test]
fn fast_and_slow_services() {
    for (mean, times) in [(5.0, 0.25), (200.0, 10.0)] {
        let mut calm = World::calm(1);
        calm.service.mean = mean;
        calm.workers = (calm.workers as f64 * times) as usize;
        let (calm, trouble) = surge(&format!("{mean} ms of service"), calm, 1);
        assert!(trouble.admitted(RequestClass::Critical) >= 98.0);
        assert!(trouble.latency(0.99) <= 2.0 * calm.latency(0.99));
        assert!(calm.admitted(RequestClass::Normal) >= 98.0);
    }
}

/// Two requests in five take ten times as long as the others.
#[test]
fn mixed_latencies() {
    let mut calm = World::calm(1);
    calm.service = Service {
        mean: 20.0 / 4.6,
        spread: 0.5,
        long: 0.4,
    };
    let (calm, trouble) = surge("mixed", calm, 1);
    assert!(trouble.admitted(RequestClass::Critical) >= 98.0);
    assert!(trouble.latency(0.99) <= 2.0 * calm.latency(0.99));
    assert!(calm.admitted(RequestClass::Normal) >= 98.0);
}

/// A route that takes ten times as long as the other has a twentieth of the requests, then two in five, while
/// there is room for all: to a gateway that knows the routes it is no queue.
#[test]
fn a_mixture_of_routes_shifts() {
    for gateways in [1, 4] {
        let mut calm = World::calm(gateways);
        calm.routes = true;
        calm.workers = 64;
        calm.service = Service {
            mean: 10.0,
            spread: 0.5,
            long: 0.05,
        };
        let mut simulation = Simulation::new(calm, 3);
        simulation.run(30.0);
        simulation.world.service.long = 0.4;
        simulation.world.greedy = 300.0;
        let shifted = simulation.run(30.0);
        println!("{gateways} gateways, more of what takes long: {shifted}");
        for class in [
            RequestClass::Critical,
            RequestClass::Normal,
            RequestClass::Low,
        ] {
            assert!(shifted.admitted(class) >= 99.9, "{class:?}");
        }
        assert!(shifted.mean_factor() > 6.0);
        // A queue is one still.
        let calm = simulation.run(60.0);
        simulation.world.critical *= 4.0;
        let trouble = simulation.run(60.0);
        println!("  calm    {calm}\n  trouble {trouble}");
        assert!(trouble.admitted(RequestClass::Critical) >= 98.0);
        assert!(trouble.latency(0.99) <= 2.0 * calm.latency(0.99));
    }
}

/// Slower by a twentieth every five seconds, doubling in 75: not a queue.
#[test]
fn a_drifting_baseline_is_followed() {
    for gateways in [1, 4] {
        let mut calm = World::calm(gateways);
        calm.workers = 32;
        let mut simulation = Simulation::new(calm, 2);
        simulation.run(30.0);
        for _ in 0..15 {
            simulation.run(5.0);
            simulation.world.service.mean *= 1.047;
        }
        let late = simulation.run(30.0);
        println!("{gateways} gateways, twice as slow: {late}");
        assert!(late.admitted(RequestClass::Critical) >= 98.0);
        assert!(late.admitted(RequestClass::Normal) >= 98.0);
        assert!(late.mean_factor() > 1.2);
    }
}

/// An upstream with room to spare takes three times as long from one moment to the next: some are shed until
/// a probe has found out that it is no queue, and nobody after. Where each gateway sees little of the
/// upstream, it takes several probes.
#[test]
fn slower_is_not_a_queue() {
    for (gateways, seconds) in [(1, 20.0), (4, 20.0), (16, 90.0)] {
        let mut calm = World::calm(gateways);
        calm.workers = 64;
        let mut simulation = Simulation::new(calm, 4);
        simulation.run(30.0);
        simulation.world.service.mean *= 3.0;
        let first = simulation.run(seconds);
        let late = simulation.run(30.0);
        println!("{gateways} gateways, three times as slow\n  first {first}\n  late  {late}");
        assert!(first.admitted(RequestClass::Critical) >= 98.0);
        assert!(late.admitted(RequestClass::Critical) >= 98.0);
        assert!(late.admitted(RequestClass::Normal) >= 98.0);
    }
}
