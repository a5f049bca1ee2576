//! The store is killed, stopped, started empty: clients notice nothing, and no limit is passed.

use std::time::Duration;

use rustix::process::Signal;

use crate::common::redis::Redis;
use crate::machine::attempts;
use crate::scene::{HANDFUL, Limits, Scene, pass};

const BUDGET: Duration = Duration::from_millis(20);
const USERS: [&str; 2] = ["a", "b"];

/// Greedy clients of two users at all gateways while something happens to the store.
fn check(name: &str, sharing: &'static str, happens: fn(&mut Redis, &Scene)) {
    attempts(|| {
        let mut store = Redis::start();
        let address = format!("{}\", budget: {}ms", store.url(), BUDGET.as_millis());
        let limits = Limits {
            sharing,
            seconds: 10,
            ip: 600,
            user: 300,
        };
        let scene = Scene::new(3, &address, limits, &USERS);
        let seen = scene.run(Duration::from_millis(4), || {
            pass(4_000);
            scene.fault();
            happens(&mut store, &scene);
            let back = scene.until_shared();
            println!("{name}, {sharing}: shared again {back:?} after");
            // All units leave the window once.
            pass(11_000);
        });
        seen.bounded(&format!("{name}, {sharing}"), BUDGET, HANDFUL)
    });
}

fn killed(store: &mut Redis, _: &Scene) {
    store.kill();
    pass(8_000);
    store.revive();
}

fn stopped(store: &mut Redis, scene: &Scene) {
    store.signal(Signal::STOP);
    pass(10_000);
    let away = |said: &String| said.contains("store away (3 gateways)");
    let ready = scene.fleet.ready();
    assert!(ready.iter().all(away), "{ready:?}");
    store.signal(Signal::CONT);
}

fn emptied(store: &mut Redis, _: &Scene) {
    store.ask("FLUSHALL");
    // Until all have noticed it.
    pass(1_000);
}

#[test]
fn killed_strict() {
    check("killed for 8 s, empty after", "strict", killed);
}

#[test]
fn killed_leased() {
    check("killed for 8 s, empty after", "leased", killed);
}

#[test]
fn stopped_strict() {
    check("stopped for 10 s", "strict", stopped);
}

#[test]
fn stopped_leased() {
    check("stopped for 10 s", "leased", stopped);
}

#[test]
fn emptied_strict() {
    check("emptied", "strict", emptied);
}

#[test]
fn emptied_leased() {
    check("emptied", "leased", emptied);
}
