//! Queries that ask for as much as they can: each has an answer in time, they take little memory, and what clients ask
//! meanwhile is answered.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::record::{Record, Second, Series, SeriesKind, Settings};

use super::common::child::Server;
use super::common::{Client, Message, Upstream, assert_contains, wait_until, write};

/// Histograms of the record, and buckets of each.
const HISTOGRAMS: [u64; 2] = [64, 20];

/// The last minutes of many histograms.
fn record(folder: &Path) {
    let settings = Settings {
        folder: Some(folder.to_owned()),
        max_bytes: 1 << 30,
    };
    let record = Record::open(&settings).unwrap();
    let now = Clock::system().wall().as_secs();
    let mut numbers = Vec::new();
    for place in 0..HISTOGRAMS[0] * HISTOGRAMS[1] {
        let labels = [
            ("le", place % HISTOGRAMS[1]),
            ("route", place / HISTOGRAMS[1]),
        ];
        let series = Series {
            name: "t_bucket".into(),
            labels: labels.map(|(n, v)| (n.to_owned(), v.to_string())).into(),
            kind: SeriesKind::Counter,
            decimals: 0,
        };
        numbers.push(record.number_of(&series).unwrap());
    }
    for at in now - 300..now {
        let values = numbers.iter().map(|number| (*number, 1)).collect();
        record.add(Second { at, values });
    }
    record.close().unwrap();
}

/// A gateway that remembers them, and limits nobody.
fn gateway(upstream: &Upstream) -> (Server, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let gateway = "admin: 127.0.0.1:0\nrecord: data/record\n";
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 1000000/s } }\n";
    write(&folder, upstream.address, gateway, &[("all", policy)]);
    record(&folder.path().join("data/record"));
    let server = Server::start(folder.path(), true);
    let known = |server: &Server| server.ask("GET", "/v1/record/series", "").text();
    wait_until("the record is there", || {
        known(&server).contains("t_bucket")
    });
    (server, folder)
}

fn encoded(query: &str) -> String {
    let each = query.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    each.collect()
}

/// A query in 10,000 steps, of a span of so many seconds.
fn request(admin: SocketAddr, query: &str, seconds: u64, timeout: &str) -> String {
    let end = Clock::system().wall().as_secs();
    let step = seconds as f64 / 10_000.0;
    let span = format!("start={}&end={end}&step={step}", end - seconds);
    let body = format!("query={}&{span}&timeout={timeout}", encoded(query));
    let length = body.len();
    format!(
        "POST /prometheus/api/v1/query_range HTTP/1.1\r\nhost: {admin}\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn ask(admin: SocketAddr, query: &str, seconds: u64, timeout: &str) -> Message {
    let mut client = Client::connect(admin);
    client.send(request(admin, query, seconds, timeout));
    client.answer()
}

/// Most memory that a process ever had.
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

/// An operator around another, again and again.
fn nested(times: usize, around: impl Fn(&str) -> String) -> String {
    (0..times).fold("t_bucket".into(), |of, _| around(&of))
}

/// The worst of 16 KiB.
fn hostile() -> [String; 6] {
    let names = "le,".repeat(5_000);
    let others = "a,".repeat(5_000);
    let patterns = (0..200).map(|n| format!("l{n}!~'(?:.{{9}}){{9}}.*{n}x|',"));
    [
        // Hours of work.
        nested(125, |of| format!("-({of})")),
        format!("sum by ({names}) (t_bucket)"),
        format!("t_bucket * on (le, route) group_left ({others}) t_bucket"),
        "quantile_over_time(0.5, t_bucket[9h])".into(),
        format!("{{{}route!=''}}", patterns.collect::<String>()),
        // Gigabytes of labels.
        nested(40, |of| {
            format!("label_replace({of}, 'le', '$1$1', 'le', '(.*)')")
        }),
    ]
}

#[test]
fn hostile_queries_end_and_keep_nobody_waiting() {
    let upstream = Upstream::plain();
    let (server, _folder) = gateway(&upstream);
    let admin = server.admin.unwrap();
    let (clock, before) = (Clock::system(), peak(&server));
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for query in hostile() {
                let begun = clock.now();
                let answer = ask(admin, &query, 500, "1s");
                let took = Duration::from(clock.now().since(begun));
                let head = &query[..30];
                println!("{head} {} {took:?} {:.200}", answer.status(), answer.text());
                assert!(took < Duration::from_secs(6), "{head}: {took:?}");
                let ends = matches!(answer.status(), 200 | 422 | 503);
                assert!(ends, "{head}: {:.400}", answer.text());
            }
        });
        let (mut client, mut longest) = (server.connect(), Nanos::ZERO);
        while !asking.is_finished() {
            let begun = clock.now();
            assert_eq!(client.get("/").status(), 200);
            longest = longest.max(clock.now().since(begun));
        }
        let longest = Duration::from(longest);
        assert!(longest < Duration::from_secs(2), "{longest:?}");
    });
    let grown = (peak(&server) - before) >> 20;
    println!("{grown} MiB");
    assert!(grown < 128, "{grown} MiB");
}

#[test]
fn histograms_take_little_memory() {
    let upstream = Upstream::plain();
    let (server, _folder) = gateway(&upstream);
    let (admin, before) = (server.admin.unwrap(), peak(&server));
    for query in [
        "sum({__name__='t_count'})",
        "sum(t_bucket{le='+Inf'})",
        "sum by (route) (rate(t_bucket[5m]))",
    ] {
        let answer = ask(admin, query, 31_000, "");
        assert_eq!(answer.status(), 200, "{query}: {:.400}", answer.text());
    }
    let grown = (peak(&server) - before) >> 20;
    println!("{grown} MiB");
    assert!(grown < 64, "{grown} MiB");
}

#[test]
fn a_query_ends_with_who_asked_for_it() {
    let upstream = Upstream::plain();
    let (server, _folder) = gateway(&upstream);
    let admin = server.admin.unwrap();
    let long = request(admin, &hostile()[0], 500, "");
    let mut asking: Vec<Client> = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(admin);
        client.send(&long);
        asking.push(client);
    }
    wait_until("others wait", || {
        let answer = ask(admin, "1", 500, "100ms");
        if answer.status() == 200 {
            return false;
        }
        assert_eq!(answer.status(), 503);
        assert_contains(
            &answer.text(),
            &["query timed out in query queue", "\"timeout\""],
        );
        true
    });
    drop(asking);
    assert_eq!(ask(admin, "1", 500, "5s").status(), 200);
}
