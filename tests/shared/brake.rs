//! An emergency brake: a rate is lowered on all gateways below what is used already, with the store and without it.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tollgate::base::clock::Clock;

use crate::common::redis::Redis;
use crate::common::{Client, wait_until};
use crate::fleet::Fleet;
use crate::upstream::Upstream;

const GATEWAYS: usize = 3;
const LIMITS: &str = "  l: { key: user, rate: 100/h }\n";
const QUOTA: usize = 100;
const USED: usize = 90;
/// Until what gateways had in hand is used or back.
const LEASE: Duration = Duration::from_secs(7);

struct Stage {
    fleet: Fleet,
    clients: Vec<Client>,
    admitted: usize,
}

impl Stage {
    /// Sends so many requests to each gateway in turn.
    fn ask(&mut self, rounds: usize) {
        for client in (0..rounds).flat_map(|_| 0..GATEWAYS) {
            let client = &mut self.clients[client];
            client.send("GET / HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
            self.admitted += usize::from(client.answer().status() == 200);
        }
    }

    fn set(&self, rate: &str) {
        self.fleet.rewrite(&LIMITS.replace("100/h", rate));
        for gateway in &self.fleet.gateways {
            let said = gateway.ask("POST", "/v1/reload", "");
            assert_eq!(said.status(), 200);
            assert!(!said.text().contains("anew"), "{}", said.text());
        }
    }
}

fn braked(away: bool) {
    let (store, upstream) = (Redis::start(), Upstream::start(&Clock::system()));
    let terms = format!(
        "store: {{ memory: 1MiB, address: {}, budget: 500ms }}",
        store.url()
    );
    let fleet = Fleet::start(GATEWAYS, upstream.address, &terms, LIMITS);
    let clients = fleet.gateways.iter().map(|gateway| gateway.connect());
    let mut stage = Stage {
        clients: clients.collect(),
        fleet,
        admitted: 0,
    };
    wait_until("nearly all is used", || {
        stage.ask(1);
        stage.admitted >= USED
    });
    if away {
        store.signal(Signal::STOP);
        wait_until("no gateway asks the store", || {
            let ready = stage.fleet.ready();
            ready.iter().all(|said| said.contains("store away"))
        });
    }
    stage.set("10/h");
    let before = stage.admitted;
    stage.ask(20);
    println!(
        "away: {away}, {} more by what was in hand",
        stage.admitted - before
    );
    thread::park_timeout(LEASE);
    let before = stage.admitted;
    stage.ask(20);
    assert_eq!(stage.admitted, before, "the brake holds");
    if away {
        store.signal(Signal::CONT);
        stage.fleet.until_shared();
        stage.ask(20);
        assert_eq!(stage.admitted, before, "the brake holds");
    }
    stage.set("100/h");
    wait_until("the rest is admitted", || {
        stage.ask(1);
        stage.admitted >= QUOTA
    });
    stage.ask(20);
    assert_eq!(stage.admitted, QUOTA, "as many as before");
}

#[test]
fn a_rate_is_lowered_below_what_is_used() {
    braked(false);
}

#[test]
fn a_rate_is_lowered_while_the_store_is_away() {
    braked(true);
}
