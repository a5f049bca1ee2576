//! What is promised of a surge, of an upstream that grows slow, and of too much that is critical, each
//! with 1, 4 and 16 gateways: a minute of calm, a minute of trouble from its first moment on, the recovery.

use tollgate::limit::pressure::RequestClass;

use super::figures::Figures;
use super::world::{Simulation, World};

const SEEDS: u64 = 4;
const GATEWAYS: [usize; 3] = [1, 4, 16];

struct Run {
    calm: Figures,
    trouble: Figures,
    /// Seconds until the factor was above 1.2 again.
    back: f64,
}

fn run(calm: World, seed: u64, change: fn(&mut World)) -> Run {
    let mut simulation = Simulation::new(calm, seed);
    simulation.run(10.0);
    let before = simulation.run(60.0);
    change(&mut simulation.world);
    let trouble = simulation.run(60.0);
    simulation.world = calm;
    let back = simulation.until_above(1.2, 20.0);
    Run {
        calm: before,
        trouble,
        back,
    }
}

/// Runs a scenario with all gateways and seeds, and holds what is promised of each: `check` adds what is so
/// of this trouble.
fn each(name: &str, change: fn(&mut World), check: fn(&Run)) {
    for gateways in GATEWAYS {
        for seed in 0..SEEDS {
            let run = run(World::calm(gateways), seed, change);
            let Run {
                calm,
                trouble,
                back,
            } = &run;
            println!("{name}, {gateways} gateways, seed {seed}: back in {back:.1} s");
            println!("  calm    {calm}  Jain {:.4}", calm.fairness());
            println!("  trouble {trouble}");
            assert!(calm.utilisation() >= 85.0);
            assert!(calm.fairness() >= 0.99);
            assert!(calm.admitted(RequestClass::Critical) >= 98.0);
            // What is guaranteed is not shed for what is lent.
            assert!(calm.admitted(RequestClass::Normal) >= 98.0);
            assert!(*back <= 15.0);
            check(&run);
        }
    }
}

/// 990 requests a second are guaranteed, of which 600 are critical; the upstream serves 800.
#[test]
fn critical_traffic_triples() {
    each(
        "critical x3",
        |world| world.critical *= 3.0,
        |Run { calm, trouble, .. }| {
            assert!(trouble.admitted(RequestClass::Critical) >= 98.0);
            assert!(trouble.latency(0.99) <= 2.0 * calm.latency(0.99));
            assert!(trouble.admitted(RequestClass::Normal) > trouble.admitted(RequestClass::Low));
            assert!(trouble.utilisation() >= 85.0);
        },
    );
}

/// The upstream serves 400 a second of 590 that are guaranteed, 200 of them critical. A request on an idle
/// upstream takes twice as long, which no gateway can help, so the bound is 2 times what calm would be
/// there: 4 times the calm p99 before.
#[test]
fn upstream_takes_twice_as_long() {
    each(
        "upstream twice slower",
        |world| world.service.mean *= 2.0,
        |Run { calm, trouble, .. }| {
            assert!(trouble.admitted(RequestClass::Critical) >= 98.0);
            assert!(trouble.latency(0.99) <= 2.0 * (2.0 * calm.latency(0.99)));
            assert!(trouble.admitted(RequestClass::Normal) > trouble.admitted(RequestClass::Low));
            assert!(trouble.utilisation() >= 80.0);
        },
    );
}

/// 1,000 critical requests a second: all others give way, and nine tenths of the upstream serve critical
/// ones as fast as before. The rest is what probes and chance cost.
#[test]
fn critical_traffic_alone_is_too_much() {
    each(
        "critical alone above capacity",
        |world| world.critical *= 5.0,
        |Run { calm, trouble, .. }| {
            assert!(trouble.critical_rate() >= 0.9 * 800.0);
            assert!(trouble.latency(0.99) <= 2.0 * calm.latency(0.99));
            assert!(trouble.admitted(RequestClass::Normal) <= 10.0);
            assert!(trouble.lent() <= 10.0);
        },
    );
}
