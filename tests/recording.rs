//! The record of a running gateway: asked over the admin listener, through crashes, stops and another process in its
//! place, it says exactly what clients did.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "recording/queries.rs"]
mod queries;

use std::io::Write;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::child::{Server, run};
use common::{Client, Message, Upstream, assert_contains, read_body, wait_until, write};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tollgate::base::clock::{Clock, Nanos};

fn folder(upstream: &Upstream, record: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let gateway = format!("workers: 2\nadmin: 127.0.0.1:0\n{record}");
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 30/h } }\n";
    write(&folder, upstream.address, &gateway, &[("all", policy)]);
    folder
}

fn asked(server: &Server, question: &str) -> Message {
    server.ask("GET", &format!("/v1/record/range?{question}"), "")
}

fn json(message: &Message) -> Value {
    assert_eq!(message.status(), 200, "{}", message.text());
    serde_json::from_str(&message.text()).unwrap()
}

/// All that a list of an answer says.
fn sum(answer: &Value, list: &str) -> u64 {
    let series = answer["series"].as_array().unwrap();
    let lists = series
        .iter()
        .flat_map(|series| series[list].as_array().unwrap());
    lists.map(|value| value.as_u64().unwrap()).sum()
}

/// Requests in all that is recorded, by how they ended.
fn recorded(server: &Server, outcome: &str, points: usize) -> u64 {
    let series = format!("tollgate_requests_total%7Broute=%22all%22,outcome=%22{outcome}%22%7D");
    let question = format!("series={series}&from=-1d&points={points}");
    sum(&json(&asked(server, &question)), "sum")
}

fn soon_recorded(server: &Server, admitted: u64, refused: u64) {
    wait_until("everything is recorded", || {
        let all = ["admitted", "refused"].map(|outcome| recorded(server, outcome, 10));
        all.iter().sum::<u64>() >= admitted + refused
    });
    for points in [2, 10, 600, 11_000] {
        assert_eq!(recorded(server, "admitted", points), admitted, "{points}");
        assert_eq!(recorded(server, "refused", points), refused, "{points}");
    }
}

fn ask(server: &Server, times: usize) {
    let mut client = server.connect();
    for _ in 0..times {
        let status = client.get("/").status();
        assert!(status == 200 || status == 429, "{status}");
    }
}

#[test]
fn every_request_is_recorded_once() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "record: data/record\n");
    let mut server = Server::start(folder.path(), true);
    ask(&server, 50);
    soon_recorded(&server, 30, 20);
    // What it has said once, it says after a crash.
    server.signal(Signal::KILL);
    assert_eq!(server.ended(), None);
    let mut server = Server::start(folder.path(), true);
    soon_recorded(&server, 30, 20);
    ask(&server, 40);
    soon_recorded(&server, 60, 30);
    // And all of it after a stop.
    ask(&server, 7);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    let server = Server::start(folder.path(), true);
    soon_recorded(&server, 60, 37);
    // Beside the gateway.
    let ended = run(folder.path(), &["log", "verify"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_contains(&ended.out, &["no damage found"]);
}

/// Asks until the gateway is gone. When each request was answered, by the wall clock.
fn ask_until_gone(mut client: Client) -> JoinHandle<Vec<Duration>> {
    thread::spawn(move || {
        let clock = Clock::system();
        let mut answered = Vec::new();
        loop {
            let asked = client
                .stream
                .write_all(b"GET / HTTP/1.1\r\nhost: t\r\n\r\n");
            let answer = asked.and_then(|()| {
                let mut answer = client.head()?;
                read_body(&mut client.reader, &mut answer)?;
                Ok(answer)
            });
            match answer {
                Ok(answer) => assert_eq!(answer.status(), 200),
                Err(_) => return answered,
            }
            answered.push(clock.wall());
        }
    })
}

/// However often it is killed: what was answered two seconds before is recorded, and nothing that was not asked.
#[test]
fn killed_again_and_again() {
    let times = std::env::var("KILLS").map_or(12, |times| times.parse().unwrap());
    const LOST: Duration = Duration::from_secs(2);
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "record: data/record\n");
    std::fs::write(
        folder.path().join("policies/all.yaml"),
        "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 1000000/s } }\n",
    )
    .unwrap();
    let clock = Clock::system();
    let (mut least, mut most, mut starts) = (0, 0, Vec::new());
    for time in 0..times {
        let begun = clock.now();
        let mut server = Server::start(folder.path(), true);
        starts.push(Duration::from(clock.now().since(begun)));
        let recorded = recorded(&server, "admitted", 10);
        assert!(
            (least..=most).contains(&recorded),
            "{recorded} of {least} to {most}"
        );
        let clients = [0, 1].map(|_| ask_until_gone(server.connect()));
        // Lives of all lengths up to four seconds.
        let life = Nanos::from_millis(time * 2_654_435_761 % 4_001);
        let begun = clock.now();
        wait_until("its life is over", || clock.now().since(begun) >= life);
        let killed = clock.wall();
        server.signal(Signal::KILL);
        assert_eq!(server.ended(), None);
        (least, most) = (recorded, recorded);
        for client in clients {
            let answered = client.join().unwrap();
            least += answered.iter().filter(|at| **at + LOST < killed).count() as u64;
            // The last one may have been answered without being heard.
            most += answered.len() as u64 + 1;
        }
    }
    starts.sort_unstable();
    println!(
        "{most} asked, at least {least} recorded; ready after {:?}, at most {:?}",
        starts[starts.len() / 2],
        starts[starts.len() - 1]
    );
    // One of them may have had the bad luck of a busy machine.
    assert!(
        starts[starts.len() - 2] < Duration::from_millis(300),
        "{starts:?}"
    );
}

#[test]
fn seconds_that_were_not_recorded_are_no_zeros() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "record: memory\n");
    let server = Server::start(folder.path(), true);
    ask(&server, 3);
    soon_recorded(&server, 3, 0);
    let answer = json(&asked(
        &server,
        "series=tollgate_requests_total&from=-1h&points=11000",
    ));
    assert_eq!(answer["step"], 1);
    let covered = answer["covered"].as_array().unwrap();
    let recorded = covered
        .iter()
        .filter(|covered| covered.as_u64() == Some(1))
        .count();
    assert!(
        (1..60).contains(&recorded),
        "{recorded} of {}",
        covered.len()
    );
    // All three came within few seconds.
    assert!(sum(&answer, "max") >= 1);
    assert_eq!(sum(&answer, "sum"), 3);
}

#[test]
fn series_are_those_of_the_metrics() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "");
    let server = Server::start(folder.path(), true);
    let names = || {
        let answer = json(&server.ask("GET", "/v1/record/series", ""));
        let series = answer["series"].as_array().unwrap().clone();
        let names = series
            .iter()
            .map(|series| series["name"].as_str().unwrap().to_owned());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    wait_until("the first second is over", || !names().is_empty());
    let metrics = server.ask("GET", "/metrics", "").text();
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let name = line.split(['{', ' ']).next().unwrap();
        wait_until(name, || names().contains(name));
    }
}

#[test]
fn questions_that_are_unclear() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "");
    let server = Server::start(folder.path(), true);
    let check = |question: &str, part: &str| {
        let answer = asked(&server, question);
        assert_eq!(answer.status(), 400, "{question}");
        assert_contains(&answer.text(), &[part]);
    };
    check("from=-1h", "missing field `series`");
    check("series=a&from=-1h&most=3", "unknown field `most`");
    check(
        "series=a%7Bb&from=-1h",
        "`series` is a selector that names a metric",
    );
    check("series=a&from=yesterday", "`from` and `to` are");
    check("series=a&from=now&to=-1h", "`from` must be before `to`");
    check(
        "series=a&from=-1h&points=1",
        "`points` must be between 2 and 11000",
    );
    check("series=a&from=-1h&points=11001", "`points` must be between");
    let answer = json(&asked(&server, "series=nothing&from=-20y&points=2"));
    assert_eq!(answer["series"], Value::Array(Vec::new()));
}

#[test]
fn nothing_is_recorded() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "record: off\n");
    let server = Server::start(folder.path(), true);
    let answer = asked(&server, "series=a&from=-1h");
    assert_eq!(answer.status(), 404);
    assert_contains(&answer.text(), &["record: off"]);
}
