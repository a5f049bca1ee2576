//! As many gateways as one Redis may have, each a process: whoever a request comes to, all of the limit is admitted
//! and nothing more.
//!
//! `make stalls` runs the largest fleets.

use std::env;
use std::time::Duration;

use rustix::process::Signal;
use tollgate::base::clock::Clock;

use crate::common::redis::Redis;
use crate::common::{raise_descriptor_limit, wait_until};
use crate::fleet::{Counts, Fleet};
use crate::machine::attempts;
use crate::upstream::Upstream;

const QUOTA: usize = 1_000;
/// How Redis keeps what strict limits count: as a log, in buckets, as an arrival time.
const STRICT: &str = "  log: { key: user, rate: 1000/d, sharing: strict }
  window: { key: user, rate: 1000/d, sharing: strict, algorithm: sliding-window }
  gcra: { key: user, rate: 1000/d, sharing: strict, algorithm: gcra }
";
const LEASED: &str = "  leased: { key: user, rate: 1000/d, sharing: leased }\n";
/// Until units that were granted in advance and not used have come back.
const LEASE: Duration = Duration::from_secs(7);

/// The one of every run, or all of them.
fn sizes(one: usize, all: &[usize]) -> Vec<usize> {
    match env::var("STALLS").as_deref() {
        Ok("all") => all.to_vec(),
        _ => vec![one],
    }
}

/// With an upstream that lives as long.
struct Stage {
    fleet: Fleet,
    upstream: Upstream,
    _store: Redis,
}

impl Stage {
    fn new(count: usize, limits: &str) -> Stage {
        raise_descriptor_limit(8 * count as u64);
        let (store, upstream) = (Redis::start(), Upstream::start(&Clock::system()));
        // Hundreds of processes share few cores here, and what is decided without the store is another test's.
        let terms = format!(
            "store: {{ memory: 1MiB, address: {}, budget: 1s }}",
            store.url()
        );
        let fleet = Fleet::start(count, upstream.address, &terms, limits);
        Stage {
            fleet,
            upstream,
            _store: store,
        }
    }

    /// So many requests, to one gateway after another; how many were admitted.
    fn ask(&self, requests: usize) -> usize {
        let count = self.fleet.gateways.len();
        let asked = (0..requests).map(|request| {
            // Over a connection of its own: one that is idle for as long as all others are asked may be closed.
            let mut client = self.fleet.gateways[request % count].connect();
            client.send("GET / HTTP/1.1\r\nhost: a\r\nx-user: u\r\n\r\n");
            client.answer().status()
        });
        asked.filter(|status| *status == 200).count()
    }

    /// Starts so many and ends the oldest.
    fn replace(&mut self, count: usize) {
        for _ in 0..count {
            let gateway = self.fleet.another();
            self.fleet.gateways.push(gateway);
        }
        for mut gateway in self.fleet.gateways.drain(..count) {
            gateway.signal(Signal::TERM);
            assert_eq!(gateway.ended(), Some(0));
        }
    }

    /// Nothing if the store decided all; `admitted` reached the upstream.
    fn decided(&self, admitted: usize) -> Result<(), String> {
        let seen = self.upstream.seen().values().map(Vec::len).sum::<usize>();
        assert_eq!(seen, admitted);
        match self
            .fleet
            .gateways
            .iter()
            .map(Counts::of)
            .find(|one| one.alone > 0)
        {
            None => Ok(()),
            Some(counts) => Err(format!("decided without the store: {counts:?}")),
        }
    }
}

fn all_are_admitted(count: usize) -> Result<(), String> {
    let stage = Stage::new(count, STRICT);
    let admitted = stage.ask(QUOTA);
    let more = stage.ask(count);
    println!("{count} gateways, strict: {admitted} of {QUOTA}, and {more} more");
    stage.decided(admitted + more)?;
    assert_eq!((admitted, more), (QUOTA, 0));
    Ok(())
}

/// A gateway may hold some units in advance, together a quarter of the limit, for as long as a lease lives.
fn most_at_once_and_the_rest_soon(count: usize) -> Result<(), String> {
    let stage = Stage::new(count, LEASED);
    let mut admitted = stage.ask(QUOTA);
    println!("{count} gateways, leased: {admitted} of {QUOTA} at once");
    assert!(admitted * 4 >= QUOTA * 3, "{admitted} of {QUOTA} at once");
    std::thread::park_timeout(LEASE);
    wait_until("the rest is admitted", || {
        admitted += stage.ask(count);
        admitted >= QUOTA
    });
    admitted += stage.ask(count);
    stage.decided(admitted)?;
    assert_eq!(admitted, QUOTA);
    Ok(())
}

/// Five at a time, in all as many as there are.
fn deployed(count: usize) -> Result<(), String> {
    const STEP: usize = 5;
    let mut stage = Stage::new(count, STRICT);
    let steps = count / STEP;
    let mut admitted = 0;
    for _ in 0..steps {
        admitted += stage.ask(QUOTA / steps);
        stage.replace(STEP);
    }
    admitted += stage.ask(QUOTA % steps);
    let more = stage.ask(count);
    println!("{count} gateways replaced: {admitted} of {QUOTA}, and {more} more");
    stage.decided(admitted + more)?;
    assert_eq!((admitted, more), (QUOTA, 0));
    Ok(())
}

#[test]
fn many_gateways() {
    for count in sizes(65, &[65, 100, 200]) {
        attempts(|| all_are_admitted(count));
    }
}

#[test]
fn many_gateways_leased() {
    for count in sizes(10, &[65, 100, 200]) {
        attempts(|| most_at_once_and_the_rest_soon(count));
    }
}

#[test]
fn a_fleet_is_replaced() {
    for count in sizes(20, &[100]) {
        attempts(|| deployed(count));
    }
}
