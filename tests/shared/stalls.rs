//! A store that hangs while requests are in flight, and executes what lies in its socket when it goes on: each
//! request that was admitted counts once, and each that was not counts no more.
//!
//! `make stalls` runs the whole matrix, up to 30 s of silence.

use std::cell::{Cell, RefCell};
use std::env;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tollgate::base::clock::Clock;

use crate::common::redis::Redis;
use crate::common::topology::{Cluster, Watched};
use crate::common::{Client, wait_until};
use crate::fleet::Fleet;
use crate::machine::attempts;
use crate::memcached;
use crate::upstream::Upstream;

const GATEWAYS: usize = 2;
const QUOTA: usize = 200;
/// Requests of a user before the store hangs.
const BEFORE: usize = 10;
/// Of [`QUOTA`] so many must be admitted in all.
const NEARLY: usize = QUOTA * 97 / 100;
/// Seconds until units that were granted in advance and not used have come back.
const LEASE: usize = 7;
/// Limits of a day, of which nothing leaves the window meanwhile: a name, and the rest of each.
const LIMITS: [(&str, &str); 7] = [
    ("log", "sharing: strict"),
    ("window", "sharing: strict, algorithm: sliding-window"),
    ("fixed", "sharing: strict, algorithm: fixed-window"),
    ("levels", "sharing: strict, algorithm: multi-level"),
    ("leased", "sharing: leased"),
    ("gcra", "sharing: strict, algorithm: gcra, burst: 200"),
    ("failures", "count: status 401"),
];
/// What memcached cannot count.
const ARRIVALS: &str = "gcra";

/// Milliseconds, and requests in flight.
type Case = (u64, usize);

/// Those of every run, or all of them.
fn cases(some: &[Case], all: impl Fn() -> Vec<Case>) -> Vec<Case> {
    match env::var("STALLS").as_deref() {
        Ok("all") => all(),
        _ => some.to_vec(),
    }
}

fn matrix() -> Vec<Case> {
    let stalls = [20, 50, 300, 1_500, 5_000, 12_000, 30_000];
    let flights = [1, 3, 5, 8, 20, 40, 100];
    let each = stalls.iter();
    each.flat_map(|stall| flights.map(|flight| (*stall, flight)))
        .collect()
}

struct Stage<'a> {
    fleet: Fleet,
    limits: Vec<&'static str>,
    hang: &'a dyn Fn(Signal),
    /// Units that may count though nobody used them.
    spare: usize,
    /// Users so far.
    users: Cell<usize>,
    _upstream: Upstream,
}

impl<'a> Stage<'a> {
    fn new(store: &str, skipped: &str, hang: &'a dyn Fn(Signal)) -> Stage<'a> {
        let upstream = Upstream::start(&Clock::system());
        let kept = LIMITS.iter().filter(|(name, _)| *name != skipped);
        let text: String = { kept.clone() }
            .map(|(name, rest)| format!("  {name}: {{ key: user, rate: {QUOTA}/d, {rest} }}\n"))
            .collect();
        let store = format!("store: {{ memory: 1MiB, address: \"{store}\", budget: 10ms }}");
        Stage {
            fleet: Fleet::start(GATEWAYS, upstream.address, &store, &text),
            limits: kept.map(|(name, _)| *name).collect(),
            hang,
            spare: 0,
            users: Cell::new(0),
            _upstream: upstream,
        }
    }

    /// Sends `flight` requests of a new user while the store hangs, then more than what is left.
    fn run(&self, name: &str, (stall, flight): Case) -> Result<(), String> {
        self.users.set(self.users.get() + 1);
        let user = format!("u{}", self.users.get());
        let mut clients: Vec<Client> = (0..flight)
            .map(|place| Client::connect(self.fleet.gateways[place % GATEWAYS].address))
            .collect();
        // Connections are made, and workers have theirs to the store.
        for client in &mut clients {
            get(client, "nobody");
        }
        let early = (0..BEFORE).map(|place| get(&mut clients[place % flight], &user));
        let early = early.filter(|status| *status == 200).count();
        (self.hang)(Signal::STOP);
        for client in &mut clients {
            client.send(format!(
                "GET / HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n\r\n"
            ));
        }
        thread::park_timeout(Duration::from_millis(stall));
        (self.hang)(Signal::CONT);
        let answers = clients.iter_mut().map(|client| client.answer().status());
        let mut admitted = early + answers.filter(|status| *status == 200).count();
        wait_until("all share the store", || self.fleet.shares());
        self.counts(&user, admitted);
        let before = admitted;
        // One that was idle for long is closed.
        let mut client = self.fleet.gateways[0].connect();
        let mut rest = |admitted: usize| {
            let asked = (0..QUOTA + 10 - admitted).map(|_| get(&mut client, &user));
            asked.filter(|status| *status == 200).count()
        };
        admitted += rest(admitted);
        // The other gateway may hold units in advance, for as long as a lease lives.
        for _ in 0..LEASE {
            if admitted < NEARLY {
                thread::park_timeout(Duration::from_secs(1));
                admitted += rest(admitted);
            }
        }
        println!(
            "{name}, {stall} ms, {flight} in flight: {before} admitted by then, {admitted} in all"
        );
        assert!(admitted <= QUOTA, "{admitted} of {user}");
        match admitted >= NEARLY {
            true => Ok(()),
            false => Err(format!(
                "{name}, {stall} ms, {flight} in flight: {admitted}"
            )),
        }
    }

    /// Waits until every limit counts what was admitted, and nothing else but what is to spare.
    fn counts(&self, user: &str, admitted: usize) {
        let gateway = &self.fleet.gateways[0];
        let used = |limit: &str| {
            let path = format!("/v1/limits/{limit}/keys/user={user}");
            let said: Value = serde_json::from_str(&gateway.ask("GET", &path, "").text()).unwrap();
            let number =
                |field: &str| said["limits"][0][field].as_u64().expect("a number") as usize;
            number("quota") - number("remaining")
        };
        for limit in &self.limits {
            let wanted = if *limit == "failures" { 0 } else { admitted };
            let (wanted, mut counted) = (wanted..=wanted + self.spare, used(limit));
            for _ in 0..200 {
                if wanted.contains(&counted) {
                    break;
                }
                thread::park_timeout(Duration::from_millis(100));
                counted = used(limit);
            }
            let counts = format!("{limit} counts {counted} of {user}");
            assert!(wanted.contains(&counted), "{counts}, not {wanted:?}");
        }
    }
}

fn get(client: &mut Client, user: &str) -> u16 {
    client.send(format!(
        "GET / HTTP/1.1\r\nhost: a\r\nx-user: {user}\r\n\r\n"
    ));
    client.answer().status()
}

fn check(name: &str, stage: &Stage<'_>, cases: &[Case]) {
    for case in cases {
        attempts(|| stage.run(name, *case));
    }
}

#[test]
fn redis_hangs() {
    let some = [
        (20, 40),
        (50, 1),
        (50, 5),
        (50, 40),
        (50, 100),
        (300, 8),
        (1_500, 40),
    ];
    let store = Redis::start();
    let hang = |signal| store.signal(signal);
    let stage = Stage::new(&store.url(), "", &hang);
    check("redis", &stage, &cases(&some, matrix))
}

#[test]
fn memcached_hangs() {
    let some = [(50, 5), (50, 40), (300, 100), (1_500, 40), (4_000, 8)];
    let store = memcached::Server::start();
    let hang = |signal| match signal {
        Signal::STOP => store.stop(),
        signal => store.signal(signal),
    };
    let stage = Stage::new(&format!("memcached://{}", store.address), ARRIVALS, &hang);
    check("memcached", &stage, &cases(&some, matrix))
}

#[test]
fn a_master_of_a_cluster_hangs() {
    // By 3 s replicas have taken over. Between 1.5 and 2 s, while they do, units that come back may be lost.
    let some = [(50, 40), (3_000, 40)];
    let cluster = Cluster::start(&[]);
    let led = RefCell::new(Vec::new());
    let hang = |signal| {
        let mut led = led.borrow_mut();
        if signal == Signal::STOP {
            *led = (0..cluster.nodes.len()).collect();
            led.retain(|place| cluster.leads(*place));
        }
        led.iter()
            .for_each(|place| cluster.nodes[*place].signal(signal));
    };
    let stage = Stage::new(&cluster.url(), "", &hang);
    check("cluster", &stage, &cases(&some, matrix))
}

#[test]
fn a_watched_master_hangs() {
    // From 1.5 s on another takes over.
    let some = [(50, 40), (300, 40), (1_500, 40), (1_500, 100)];
    let watched = Watched::start();
    let led = Cell::new(0);
    let hang = |signal| {
        if signal == Signal::STOP {
            led.set(watched.leader());
        }
        watched.nodes[led.get()].signal(signal);
    };
    let mut stage = Stage::new(&watched.url(), "", &hang);
    // What a master granted in advance that another has replaced meanwhile.
    stage.spare = QUOTA - NEARLY;
    check("sentinel", &stage, &cases(&some, matrix))
}

/// A replica takes over that has copied what the master executed when it went on, and nothing that came later.
#[test]
fn a_replica_takes_over_after_a_hang() {
    let watched = Watched::start();
    let led = Cell::new(0);
    let hang = |signal| {
        if signal == Signal::STOP {
            watched.until_settled();
            led.set(watched.leader());
        }
        let master = &watched.nodes[led.get()];
        master.signal(signal);
        if signal == Signal::STOP {
            return;
        }
        thread::park_timeout(Duration::from_millis(30));
        master.ask("ACL SETUSER default -psync -sync");
        master.ask("CLIENT KILL TYPE replica");
        // Meanwhile the gateways share the master again, and give units back.
        thread::park_timeout(Duration::from_secs(2));
        wait_until("a failover begins", || {
            let said = watched.sentinels[0].ask("SENTINEL FAILOVER limits");
            said.contains("+OK")
        });
        wait_until("another leads", || watched.leader() != led.get());
        master.ask("ACL SETUSER default +psync +sync");
        // The gateways stay with it until a sentinel makes it a replica.
        wait_until("it follows", || master.ask("ROLE").contains("slave"));
    };
    let mut stage = Stage::new(&watched.url(), "", &hang);
    stage.spare = QUOTA - NEARLY;
    check("sentinel", &stage, &[(300, 100)])
}
