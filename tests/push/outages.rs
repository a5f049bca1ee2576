//! A gateway with real traffic, and all engines beside it: whatever is down meanwhile, each has what the record has.
//!
//! `PUSH_OUTAGE=120 cargo test --test push` has everything down for two minutes.

use std::collections::BTreeMap;
use std::env;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tollgate::base::clock::{Clock, Nanos};

use crate::common::child::{Server, command};
use crate::common::redis::free_port;
use crate::common::{Client, MAX_WAIT, Upstream, read_body, write};
use crate::peers::{Kind, Peer, Series, shown};

/// How long something is down.
fn outage() -> Nanos {
    let seconds = env::var("PUSH_OUTAGE")
        .ok()
        .and_then(|text| text.parse().ok());
    Nanos::from_secs(seconds.unwrap_or(10))
}

/// The first process and all that it started.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // They may have ended already.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

/// How long a peer may take to have everything, when all is well again: the longest pause, and some.
const PATIENCE: Nanos = Nanos::from_secs(100);

struct Site {
    folder: TempDir,
    /// Hears which process serves.
    manager: UnixDatagram,
    _upstream: Upstream,
    _group: Group,
    server: Option<Server>,
    peers: Vec<Peer>,
    clock: Clock,
    /// Requests that were answered.
    admitted: u64,
    refused: u64,
}

impl Site {
    fn start(record: &str) -> Site {
        let peers: Vec<Peer> = Kind::ALL.into_iter().map(Peer::start).collect();
        let push: Vec<_> = peers.iter().map(|peer| peer.destination("1s")).collect();
        let folder = tempfile::tempdir().unwrap();
        let push = push.join(", ");
        let admin = free_port();
        let gateway = format!(
            "workers: 2\nadmin: 127.0.0.1:{admin}\ntimeouts: {{ drain: 1s }}\nrecord: {{ {record} push: [{push}] }}\n"
        );
        let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 7/s } }\n";
        let upstream = Upstream::plain();
        write(&folder, upstream.address, &gateway, &[("all", policy)]);
        let clock = Clock::system();
        let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        manager.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let mut command = command(folder.path(), &["run", "--config", "tollgate.yaml"]);
        command.env("NOTIFY_SOCKET", folder.path().join("notify"));
        let server = Server::of(command.process_group(0), true);
        let group = Group(Pid::from_raw(server.id() as i32).unwrap());
        Site {
            folder,
            manager,
            _upstream: upstream,
            _group: group,
            server: Some(server),
            peers,
            clock,
            admitted: 0,
            refused: 0,
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Asks, ten times a second.
    fn ask_for(&mut self, span: Nanos) {
        let begun = self.clock.now();
        let address = self.server().address;
        let mut client = Client::connect(address);
        while self.clock.now().since(begun) < span {
            client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
            let answer = client.head().and_then(|mut answer| {
                read_body(&mut client.reader, &mut answer)?;
                Ok(answer.status())
            });
            match answer {
                Ok(200) => self.admitted += 1,
                Ok(429) => self.refused += 1,
                Ok(other) => panic!("{other}"),
                // A process that gives way ends connections that wait for a request.
                Err(_) => client = Client::connect(address),
            }
            thread::park_timeout(Duration::from_millis(100));
        }
    }

    fn stop(&mut self, signal: Signal) {
        let mut server = self.server.take().unwrap();
        server.signal(signal);
        server.ended();
    }

    /// Another process takes over.
    fn hand_over(&mut self) {
        self.server().signal(Signal::USR2);
        let mut text = [0; 256];
        loop {
            let length = self.manager.recv(&mut text);
            let length = length.expect("there is another process");
            if text[..length].starts_with(b"MAINPID=") {
                return;
            }
        }
    }

    fn go_on(&mut self) {
        self.server = Some(Server::start(self.folder.path(), true));
    }

    /// All counters of the record, but those that pushing itself counts.
    fn recorded(&self) -> BTreeMap<String, f64> {
        let json = |path: &str| -> Value {
            let answer = self.server().ask("GET", path, "");
            assert_eq!(answer.status(), 200, "{}", answer.text());
            serde_json::from_str(&answer.text()).unwrap()
        };
        let mut all = BTreeMap::new();
        let mut names: Vec<String> = Vec::new();
        for series in json("/v1/record/series")["series"].as_array().unwrap() {
            let name = series["name"].as_str().unwrap();
            // Nor those that never stand still, nor sums of others, which are not pushed.
            let own = name.starts_with("tollgate_") && !name.starts_with("tollgate_push_");
            let counts = name.ends_with("_total") && own;
            if counts && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        for name in names {
            let question = format!("/v1/record/range?series={name}&from=-1d&points=10");
            for series in json(&question)["series"].as_array().unwrap() {
                let values = series["sum"].as_array().unwrap().iter();
                let sum: f64 = values.map(|value| value.as_f64().unwrap()).sum();
                all.insert(shown(Some(&series["name"]), &series["labels"]), sum);
            }
        }
        all
    }

    /// What is wrong with what a peer has.
    fn wrong(&self, peer: &Peer, recorded: &BTreeMap<String, f64>, had: &Series) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, sum) in recorded {
            let empty = Vec::new();
            let samples = had.get(name).unwrap_or(&empty);
            let most = samples.last().map_or(0.0, |(_, value)| *value);
            if (most - sum).abs() > 1e-6 * sum.max(1.0) {
                wrong.push(format!("{:?}: {name} is {most} of {sum}", peer.kind));
            }
        }
        wrong
    }

    /// Each second that was recorded since the first sample has one.
    fn nothing_is_missing(&self, peer: &Peer, had: &Series) {
        let times: Vec<u64> = had["tollgate_store_keys{}"]
            .iter()
            .map(|(at, _)| *at)
            .collect();
        let question = "/v1/record/range?series=tollgate_store_keys&from=-15m&to=now&points=1000";
        let answer: Value =
            serde_json::from_str(&self.server().ask("GET", question, "").text()).unwrap();
        assert_eq!(answer["step"], 1);
        let from = answer["from"].as_u64().unwrap();
        let covered = answer["covered"].as_array().unwrap().iter().enumerate();
        let recorded = covered.filter(|(_, covered)| covered.as_u64() == Some(1));
        let ends: Vec<u64> = recorded.map(|(place, _)| from + place as u64 + 1).collect();
        let (first, last) = (times[0], *times.last().unwrap());
        let missing: Vec<&u64> = ends
            .iter()
            .filter(|end| (first..=last).contains(end) && !times.contains(end))
            .collect();
        assert!(
            missing.is_empty(),
            "{:?}: {missing:?} of {times:?}",
            peer.kind
        );
        // From the start on, for this series is there from the start; that may take a second longer to look for the first time.
        assert!(first <= ends[0] + 2, "{:?}: {first} of {ends:?}", peer.kind);
    }

    /// Waits until all peers have what is recorded, and holds every sample on the way against the one before.
    fn settle(&mut self, exact: bool) {
        let begun = self.clock.now();
        loop {
            let recorded = self.recorded();
            let had: Vec<Series> = self.peers.iter().map(Peer::series).collect();
            let wrong = self.peers.iter().zip(&had);
            let wrong: Vec<String> = wrong
                .flat_map(|(peer, had)| self.wrong(peer, &recorded, had))
                .collect();
            let count = |outcome: &str| {
                let name = format!("tollgate_requests_total{{outcome={outcome},route=all}}");
                recorded.get(&name).copied().unwrap_or(0.0) as u64
            };
            let counts = (count("admitted"), count("refused"));
            let asked = (self.admitted, self.refused);
            if wrong.is_empty() && counts == asked || wrong.is_empty() && !exact {
                for (peer, had) in self.peers.iter().zip(had) {
                    let admitted = "tollgate_requests_total{outcome=admitted,route=all}";
                    let samples = had.get(admitted).map_or(0, Vec::len);
                    println!(
                        "{:?}: {} admitted and {} refused of {} and {} answered, {} series, {samples} samples of a series, after {:?}",
                        peer.kind,
                        counts.0,
                        counts.1,
                        asked.0,
                        asked.1,
                        had.len(),
                        Duration::from(self.clock.now().since(begun)),
                    );
                    never_less(peer, &had, recorded.keys());
                    // Carbon forgets what it has not written yet when it is told to end.
                    if peer.kind != Kind::Carbon {
                        self.nothing_is_missing(peer, &had);
                    }
                }
                return;
            }
            if self.clock.now().since(begun) > PATIENCE {
                let logs: Vec<String> = self.peers.iter().map(Peer::log).collect();
                let said: Vec<String> = self.server().err.try_iter().collect();
                panic!(
                    "{counts:?} of {asked:?}\n{wrong:#?}\n{said:#?}\n{}",
                    logs.join("\n---\n")
                );
            }
            thread::park_timeout(Duration::from_millis(300));
        }
    }
}

/// A counter that goes back would be taken for one that begins anew, and doubled.
fn never_less<'a>(peer: &Peer, had: &Series, counters: impl Iterator<Item = &'a String>) {
    for name in counters {
        for pair in had.get(name).map_or(&[][..], Vec::as_slice).windows(2) {
            assert!(pair[0].1 <= pair[1].1, "{:?}: {name} {pair:?}", peer.kind);
            let same = pair[0].0 == pair[1].0;
            assert!(
                !same || pair[0].1 == pair[1].1,
                "{:?}: {name} {pair:?}",
                peer.kind
            );
        }
    }
}

#[test]
fn peers_are_down() {
    let mut site = Site::start("dir: data/record,");
    site.ask_for(Nanos::from_secs(3));
    site.peers.iter_mut().for_each(Peer::down);
    site.ask_for(outage());
    site.peers.iter_mut().for_each(Peer::up);
    site.ask_for(Nanos::from_secs(3));
    site.settle(true);
}

#[test]
fn the_gateway_is_restarted() {
    let mut site = Site::start("dir: data/record,");
    for _ in 0..3 {
        site.ask_for(Nanos::from_secs(3));
        site.stop(Signal::TERM);
        site.go_on();
    }
    site.ask_for(outage());
    site.settle(true);
    // What a crash takes from the record was never pushed.
    for _ in 0..3 {
        site.ask_for(Nanos::from_millis(2_300));
        site.stop(Signal::KILL);
        site.go_on();
    }
    site.ask_for(Nanos::from_secs(2));
    site.settle(false);
}

#[test]
fn peers_are_down_and_the_gateway_is_restarted() {
    let mut site = Site::start("dir: data/record,");
    site.ask_for(Nanos::from_secs(3));
    site.peers.iter_mut().for_each(Peer::down);
    let half = Nanos(outage().0 / 2);
    site.ask_for(half);
    site.stop(Signal::TERM);
    site.go_on();
    site.ask_for(half);
    site.peers.iter_mut().for_each(Peer::up);
    site.ask_for(Nanos::from_secs(2));
    site.stop(Signal::TERM);
    site.go_on();
    site.ask_for(Nanos::from_secs(2));
    site.settle(true);
}

/// For a while two processes count in the same seconds, of which the old one sends its own first.
#[test]
fn another_process_takes_over() {
    let mut site = Site::start("dir: data/record,");
    site.ask_for(Nanos::from_secs(7));
    site.hand_over();
    // The old one is still there, and waits for its connections.
    site.ask_for(Nanos::from_secs(4));
    assert_eq!(site.server.as_mut().unwrap().ended(), Some(0));
    site.ask_for(Nanos::from_secs(7));
    site.settle(true);
}
