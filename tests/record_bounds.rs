//! What the record takes at most, whatever clients ask, upstreams answer and disks do, and bodies in which a cost is looked
//! for.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::child::{Guard, Server, line_with, lines};
use common::{Client, Gate, MAX_WAIT, Upstream, status, wait_until, write};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tollgate::base::clock::Clock;

/// Series by name with labels.
fn series(server: &Server) -> Vec<String> {
    let answer = server.ask("GET", "/v1/record/series", "");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer: Value = serde_json::from_str(&answer.text()).unwrap();
    let series = answer["series"].as_array().unwrap().iter();
    series.map(|series| series.to_string()).collect()
}

/// All that is recorded of a series.
fn recorded(server: &Server, name: &str) -> u64 {
    let question = format!("/v1/record/range?series={name}&from=-1d&points=10");
    let answer = server.ask("GET", &question, "");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer: Value = serde_json::from_str(&answer.text()).unwrap();
    let series = answer["series"].as_array().unwrap().iter();
    let sums = series.flat_map(|series| series["sum"].as_array().unwrap());
    sums.map(|sum| sum.as_u64().unwrap()).sum()
}

fn resident(process: u32) -> i64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    let pages = text.split(' ').nth(1).unwrap();
    pages.parse::<i64>().unwrap() * 4_096
}

/// A gateway, and requests of which each has a key, a path and a status of its own.
struct Flood {
    server: Server,
    _folder: TempDir,
}

impl Flood {
    const CONNECTIONS: u64 = 4;
    /// Sent before the first is answered.
    const AT_ONCE: u64 = 100;

    fn start(record: &str) -> Flood {
        let upstream = Upstream::answering(|request| {
            let code = request.start.split(['/', ' ']).nth(2).unwrap();
            status(code.parse().unwrap())
        });
        let folder = tempfile::tempdir().unwrap();
        let gateway = format!(
            "workers: 1\nadmin: 127.0.0.1:0\nrecord: {record}\nidentity: {{ token: {{ bearer: true }} }}\n"
        );
        let policy = "match: /**\nupstream: up\nlimits:\n  all: { key: ip, rate: 50000/h }\n  each: { key: token, rate: 1/h }\n";
        write(&folder, upstream.address, &gateway, &[("all", policy)]);
        let server = Server::start(folder.path(), true);
        Flood {
            server,
            _folder: folder,
        }
    }

    fn send(&self, requests: u64) {
        let address = self.server.address;
        thread::scope(|scope| {
            for connection in 0..Flood::CONNECTIONS {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    let mut sent = connection;
                    while sent < requests {
                        let mut some = Vec::new();
                        let mut waiting = 0;
                        while waiting < Flood::AT_ONCE && sent < requests {
                            let code = 200 + sent % 800;
                            write!(some, "GET /{code}/{sent} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer key{sent}\r\n\r\n").unwrap();
                            waiting += 1;
                            sent += Flood::CONNECTIONS;
                        }
                        client.send(&some);
                        for _ in 0..waiting {
                            client.answer();
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn a_million_keys_paths_and_statuses() {
    const REQUESTS: u64 = 1_000_000;
    const WARM: u64 = 10;
    /// Of an upstream, with that of all others.
    const STATUSES: usize = 33;
    /// Of a duration, with that above the last bound; which of them appear is up to the machine.
    const BUCKETS: usize = 36;
    const MOST: i64 = 16 << 20;
    let floods = ["memory", "off"].map(Flood::start);
    for flood in &floods {
        // The second time they are refused.
        flood.send(WARM);
        flood.send(WARM);
    }
    let [recording, _] = &floods;
    let known = || recorded(&recording.server, "all:tollgate_requests_total");
    wait_until("the first are recorded", || known() == 2 * WARM);
    let before = series(&recording.server);
    let grown = floods.each_ref().map(|flood| {
        let before = resident(flood.server.id());
        flood.send(REQUESTS);
        resident(flood.server.id()) - before
    });
    wait_until("all are recorded", || known() == 2 * WARM + REQUESTS);
    let new = series(&recording.server);
    let new: Vec<_> = new.iter().filter(|one| !before.contains(one)).collect();
    println!(
        "{} series, then {} more; {} and {} bytes more",
        before.len(),
        new.len(),
        grown[0],
        grown[1]
    );
    let is_time = |one: &&String| one.contains("_bucket");
    let (times, others): (Vec<&String>, Vec<&String>) = new.into_iter().partition(is_time);
    assert!(others.len() <= 2 * STATUSES, "{others:?}");
    assert!(times.len() <= 2 * BUCKETS, "{times:?}");
    assert!(grown[0] - grown[1] < MOST, "{grown:?}");
}

/// A disk of two megabytes, for as long as a process holds it.
struct Disk {
    _holder: Guard,
    path: PathBuf,
}

impl Disk {
    fn new() -> Disk {
        let script = "mount -t tmpfs -o size=2m tmpfs /mnt && echo mounted && exec sleep 600";
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.stdout(std::process::Stdio::piped());
        let mut holder = Guard(command.spawn().unwrap());
        let out = lines(holder.0.stdout.take().unwrap());
        line_with(&out, "mounted");
        let path = PathBuf::from(format!("/proc/{}/root/mnt", holder.0.id()));
        Disk {
            _holder: holder,
            path,
        }
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.path.join("filler")).unwrap();
        let full = loop {
            if let Err(error) = file.write_all(&[1; 4_096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }

    fn free(&self) {
        fs::remove_file(self.path.join("filler")).unwrap();
    }
}

#[test]
fn a_full_disk() {
    const SLOW: Duration = Duration::from_millis(500);
    let upstream = Upstream::plain();
    let disk = Disk::new();
    let folder = tempfile::tempdir().unwrap();
    let record = disk.path.join("record");
    let gateway = format!("admin: 127.0.0.1:0\nrecord: {}\n", record.display());
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 30/h } }\n";
    write(&folder, upstream.address, &gateway, &[("all", policy)]);
    let mut server = Server::start(folder.path(), true);
    let clock = Clock::system();
    let mut client = server.connect();
    let mut ask = |times: u64| {
        for _ in 0..times {
            let begun = clock.now();
            let status = client.get("/").status();
            assert!(status == 200 || status == 429, "{status}");
            assert!(Duration::from(clock.now().since(begun)) < SLOW);
        }
        times
    };
    let known = |server: &Server| recorded(server, "all:tollgate_requests_total");
    let mut asked = ask(10);
    wait_until("the first are recorded", || known(&server) == asked);
    disk.fill();
    // The last page of each file has room for some seconds yet.
    let told = |line: String| line.contains("the record cannot be written");
    let step = Duration::from_millis(50);
    let full = (0..2_400).any(|_| {
        asked += ask(1);
        server.err.recv_timeout(step).is_ok_and(told)
    });
    assert!(full, "no word of it");
    asked += ask(100);
    wait_until("it is known all the same", || known(&server) == asked);
    disk.free();
    line_with(&server.err, "the record is written again");
    asked += ask(10);
    wait_until("the last are recorded", || known(&server) == asked);
    let begun = clock.now();
    let lost = Duration::from_secs(2);
    wait_until("a crash loses none of them", || {
        Duration::from(clock.now().since(begun)) >= lost
    });
    server.signal(Signal::KILL);
    assert_eq!(server.ended(), None);
    let server = Server::start(folder.path(), true);
    assert_eq!(known(&server), asked);
}

/// Each body has come to its client but for its end, in which the cost is, while all the others have too.
#[test]
fn bodies_with_costs_in_them() {
    const STREAMS: usize = 20;
    const BYTES: usize = 2 * 1024 * 1024;
    const MOST: i64 = 16 * 1024 * 1024;
    let gate = Gate::default();
    let open = gate.clone();
    let item = "{\"text\":\"a \\\"text\\\" with [brackets}\"},".repeat(1000);
    let begin = format!("{{\"data\":[{}", item.repeat(BYTES / item.len() + 1));
    let (end, long) = ("{}],\"cost\":50}", begin.len());
    let upstream = Upstream::scripted(move |mut served, _| {
        while served.request().is_ok() {
            let length = begin.len() + end.len();
            served.send(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{begin}"
            ));
            open.pass();
            served.send(end);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let policy = "match: /**\nupstream: up\nlimits: { all: { key: ip, rate: 1000/h, count: cost json cost } }\n";
    let gateway = "workers: 1\nadmin: off\nrecord: off\n";
    write(&folder, upstream.address, gateway, &[("all", policy)]);
    let server = Server::start(folder.path(), false);
    let before = resident(server.id());
    let clients: Vec<_> = (0..STREAMS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
            stream
                .write_all(b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();
    let (sink, mut most) = (&mut io::sink(), 0);
    for mut client in &clients {
        let read = io::copy(&mut Read::take(&mut client, long as u64), sink).unwrap();
        assert_eq!(read, long as u64);
        most = most.max(resident(server.id()) - before);
    }
    gate.open();
    for mut client in clients {
        io::copy(&mut client, sink).unwrap();
    }
    println!("{most} bytes more for {STREAMS} bodies of {long}");
    assert!(most < MOST, "{most} bytes more");
    // Each was charged what it says.
    assert_eq!(Client::connect(server.address).get("/").status(), 429);
}
