//! A master that sentinels watch: it is killed, stopped and comes back, replaced by command.

use std::time::Duration;

use rustix::process::Signal;
use tollgate::clock::Clock;

use crate::common::redis::Redis;
use crate::common::soon;
use crate::common::topology::Watched;
use crate::scene::{Limits, Scene, pass};

const BUDGET: u64 = 20;
const FAULT: u64 = 6_000;
const LIMITS: Limits = Limits {
    sharing: "strict",
    seconds: 5,
    ip: 300,
    user: 100,
};

/// What happens, and the gateways' way back to a master that is another.
fn check(name: &str, mut watched: Watched, happens: impl FnOnce(&mut Vec<Redis>, &Redis, &Clock)) {
    let store = format!("{}\", budget: {BUDGET}ms", watched.url());
    let scene = Scene::new(3, &store, LIMITS, &["a", "b", "c", "d"]);
    let mut late = 0;
    let seen = scene.run(Duration::from_millis(80), |clock| {
        pass(FAULT);
        late = scene.alone();
        let sentinel = &watched.sentinels[1];
        happens(&mut watched.nodes, sentinel, clock);
        soon("another leads", || watched.leader() != 0);
        scene.fleet.until_shared();
        pass(4_000);
    });
    seen.bounded(name, FAULT, BUDGET, late);
}

#[test]
fn the_master_is_killed() {
    check("sentinel, killed", Watched::start(), |nodes, _, _| {
        nodes[0].kill()
    });
}

#[test]
fn the_master_and_a_sentinel_stop() {
    let watched = Watched::start();
    // What is asked first is as dead as the master.
    watched.sentinels[0].signal(Signal::STOP);
    check("sentinel, stopped", watched, |nodes, sentinel, _| {
        nodes[0].signal(Signal::STOP);
        let port = format!("\r\n{}\r\n", nodes[0].port);
        soon("another leads", || {
            !sentinel
                .ask("SENTINEL GET-MASTER-ADDR-BY-NAME limits")
                .contains(&port)
        });
        pass(1_000);
        // It takes itself for the master until it is told otherwise.
        nodes[0].signal(Signal::CONT);
    });
}

#[test]
fn a_replica_takes_over_by_command() {
    check("sentinel, failover", Watched::start(), |_, sentinel, _| {
        assert_eq!(sentinel.ask("SENTINEL FAILOVER limits"), "+OK\r\n");
    });
}
