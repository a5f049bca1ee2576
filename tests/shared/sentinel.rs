//! A master that sentinels watch: it is killed, stopped and comes back, replaced by command.

use std::time::Duration;

use rustix::process::Signal;

use crate::common::topology::Watched;
use crate::common::wait_until;
use crate::machine::attempts;
use crate::scene::{HANDFUL, Limits, Scene, pass};

const BUDGET: Duration = Duration::from_millis(20);
const FAULT: u64 = 6_000;
const LIMITS: Limits = Limits {
    sharing: "strict",
    seconds: 5,
    ip: 300,
    user: 100,
};

/// What happens, and the gateways' way back to a master that is another.
fn check(name: &str, happens: fn(&mut Watched)) {
    attempts(|| {
        let mut watched = Watched::start();
        let budget = BUDGET.as_millis();
        let store = format!("{}\", budget: {budget}ms", watched.url());
        let scene = Scene::new(3, &store, LIMITS, &["a", "b", "c", "d"]);
        let seen = scene.run(Duration::from_millis(80), || {
            pass(FAULT);
            scene.fault();
            happens(&mut watched);
            wait_until("another leads", || watched.leader() != 0);
            scene.until_shared();
            pass(4_000);
        });
        seen.bounded(name, BUDGET, HANDFUL)
    });
}

#[test]
fn the_master_is_killed() {
    check("sentinel, killed", |watched| watched.nodes[0].kill());
}

#[test]
fn the_master_and_a_sentinel_stop() {
    check("sentinel, stopped", |watched| {
        // What is asked first is as dead as the master.
        watched.sentinels[0].signal(Signal::STOP);
        watched.nodes[0].signal(Signal::STOP);
        wait_until("another leads", || watched.leader() != 0);
        pass(1_000);
        // It takes itself for the master until it is told otherwise.
        watched.nodes[0].signal(Signal::CONT);
    });
}

#[test]
fn a_replica_takes_over_by_command() {
    check("sentinel, failover", |watched| {
        let said = watched.sentinels[1].ask("SENTINEL FAILOVER limits");
        assert_eq!(said, "+OK\r\n");
    });
}
