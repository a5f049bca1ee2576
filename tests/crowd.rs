//! Many connections at a time: what each of them costs, and what those that mean no good cost the others.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::certificate::{Certificate, roots};
use common::child::Server;
use common::{Client, MAX_WAIT, Upstream, raise_descriptor_limit, wait_until, write};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tempfile::TempDir;
use tollgate::base::clock::Clock;

const OPEN: &str = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 1000000/s } }\n";
const SLOW: usize = 2_000;
const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nuser-agent: tests\r\naccept: */*\r\n\r\n";

fn folder(upstream: &Upstream, more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let gateway = format!("workers: 1\nadmin: off\n{more}");
    write(&folder, upstream.address, &gateway, &[("all", OPEN)]);
    folder
}

/// KiB of memory that a process holds.
fn resident(process: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    stream
}

/// One request over a connection that stays.
fn ask(stream: &mut (impl Read + Write)) {
    stream.write_all(GET).unwrap();
    let mut answer = [0; 4096];
    let mut length = 0;
    while !answer[..length].ends_with(b"fine") {
        let read = stream.read(&mut answer[length..]).unwrap();
        assert!(read > 0, "the gateway has closed");
        length += read;
    }
}

#[test]
fn ten_thousand_idle_connections() {
    const MANY: usize = 10_000;
    raise_descriptor_limit(MANY as u64 + 500);
    let upstream = Upstream::plain();
    // Else only as many as could each have a connection to a server too.
    let folder = folder(&upstream, "connections: { total: 11000 }\n");
    let server = Server::start(folder.path(), false);
    // What the first ones cost is not each one's.
    let mut all: Vec<TcpStream> = (0..100).map(|_| connect(server.address)).collect();
    all.iter_mut().for_each(ask);
    let before = resident(server.id());
    while all.len() < MANY {
        let mut stream = connect(server.address);
        ask(&mut stream);
        all.push(stream);
    }
    let each = (resident(server.id()) - before) as f64 / (MANY - 100) as f64;
    println!("{each:.1} KiB for each connection");
    assert!(each <= 16.0, "{each:.1} KiB for each connection");
    // All of them are as good as new.
    all.iter_mut().step_by(97).for_each(ask);
}

#[test]
fn idle_connections_under_tls() {
    const MANY: usize = 1_000;
    raise_descriptor_limit(MANY as u64 + 500);
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "");
    let own = Certificate::of(&["localhost"]);
    std::fs::write(folder.path().join("own.pem"), &own.pem).unwrap();
    std::fs::write(folder.path().join("own.key"), &own.key).unwrap();
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let tls = "listen:\n  - 127.0.0.1:0\n  - { address: 127.0.0.1:0, tls: { cert: own.pem, key: own.key } }\n";
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", tls)).unwrap();
    let server = Server::start(folder.path(), false);
    let line = common::child::line_with(&server.err, "listening on https://");
    let address: SocketAddr = line.rsplit('/').next().unwrap().parse().unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(&[&own]))
        .with_no_client_auth();
    let config = Arc::new(config);
    let connect = || {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config.clone(), name).unwrap();
        let mut stream = StreamOwned::new(connection, connect(address));
        ask(&mut stream);
        stream
    };
    let mut all: Vec<_> = (0..100).map(|_| connect()).collect();
    let before = resident(server.id());
    all.extend((100..MANY).map(|_| connect()));
    let each = (resident(server.id()) - before) as f64 / (MANY - 100) as f64;
    println!("{each:.1} KiB for each connection under TLS");
    assert!(each <= 32.0, "{each:.1} KiB for each connection under TLS");
    all.iter_mut().step_by(97).for_each(ask);
}

/// Heads that come byte by byte and never end hold their own connections only. They are sent all the time: to another
/// gateway or to the one that is measured, so that the machine has the same to do.
#[test]
fn slow_heads_hold_up_nobody() {
    const TRIES: usize = 3;
    raise_descriptor_limit(2 * SLOW as u64 + 500);
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "timeouts: { header: 300s }\n");
    let (measured, other) = (
        Server::start(folder.path(), false),
        Server::start(folder.path(), false),
    );
    let mut client = Client::connect(measured.address);
    let mut slow = [slow_heads(&other), slow_heads(&measured)];
    let (attack, stop) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (attacks, stops) = (attack.clone(), stop.clone());
    // A byte of each in each second, one after another: clients that know nothing of each other do not write at once.
    let attacker = thread::spawn(move || {
        while !stops.load(Ordering::Relaxed) {
            for at in 0..SLOW {
                thread::sleep(Duration::from_secs(1) / SLOW as u32);
                let streams = &mut slow[usize::from(attacks.load(Ordering::Relaxed))];
                streams[at].write_all(b"a").unwrap();
            }
        }
        slow
    });
    slowest_of_hundred(&mut client);
    // A machine that was slow by itself is asked again; heads that hold others up do so each time.
    let fits = (0..TRIES).any(|_| {
        let (before, during) = without_and_with(&attack, &mut client);
        println!("p99 in microseconds: {before} without, {during} with {SLOW} slow heads");
        during <= 2 * before
    });
    stop.store(true, Ordering::Relaxed);
    let slow = attacker.join().unwrap();
    assert!(fits, "p99 more than doubled in each of {TRIES} tries");
    drop(slow);
    wait_until("they are let go", || {
        Client::connect(measured.address).get("/").status() == 200
    });
}

fn slow_heads(server: &Server) -> Vec<TcpStream> {
    let begin = |_| {
        let mut stream = connect(server.address);
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
            .unwrap();
        stream
    };
    (0..SLOW).map(begin).collect()
}

/// The medians of some rounds, by turns: without the attack and with it.
fn without_and_with(attack: &AtomicBool, client: &mut Client) -> (u64, u64) {
    const ROUNDS: usize = 5;
    let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        attack.store(false, Ordering::Relaxed);
        quiet.push(slowest_of_hundred(client));
        attack.store(true, Ordering::Relaxed);
        attacked.push(slowest_of_hundred(client));
    }
    let median = |mut list: Vec<u64>| {
        list.sort_unstable();
        list[list.len() / 2]
    };
    (median(quiet), median(attacked))
}

/// Microseconds that 99 of 100 requests are done in.
fn slowest_of_hundred(client: &mut Client) -> u64 {
    let clock = Clock::system();
    let took = |_| {
        let start = clock.now();
        assert_eq!(client.get("/").status(), 200);
        clock.now().since(start).0 / 1000
    };
    let mut all: Vec<u64> = (0..2_000).map(took).collect();
    all.sort_unstable();
    all[all.len() * 99 / 100]
}
