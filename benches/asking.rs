//! How long questions to the record take over HTTP: a gateway with a year of 500 series, of which each did something.
//!
//! `cargo bench --bench asking [-- --quick]`

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::base::clock::Clock;
use tollgate::record::insight::distinct::DistinctCount;
use tollgate::record::insight::{KeyList, KeyLists, LONGEST, LimitKey, ListedKey};
use tollgate::record::{Kind, Record, Second, Series, Settings, Topic};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const DAY: u64 = 86_400;
/// How long seconds are kept, and minutes.
const WEEK: u64 = 7 * DAY;
const QUARTER: u64 = 90 * DAY;
const ROUTES: usize = 20;
/// Of a browser to one host.
const CONNECTIONS: usize = 6;

/// What the screen Now asks, 1,400 pixels wide.
const NOW: [&str; 12] = [
    "record/range?from={from}&points=924&series=outcome:tollgate_requests_total",
    "record/range?from={from}&points=924&series=outcome:tollgate_limit_decisions_total%7Boutcome=%22over%22%7D",
    "record/range?from=-900s&points=454&series=tollgate_limit_decisions_total&by=limit,outcome",
    "record/range?from={from}&points=304&series=status:tollgate_responses_total",
    "record/range?from={from}&points=304&series=tollgate_request_duration_seconds_bucket&by=&quantiles=0.5,0.95,0.99",
    "record/range?from={from}&points=120&series=all:tollgate_requests_open",
    "record/range?from={from}&points=240&series=tollgate_limit_decisions_total&by=limit,outcome",
    "record/range?from={from}&points=60&series=tollgate_requests_total&by=route,outcome",
    "record/range?from={from}&points=60&series=tollgate_request_duration_seconds_bucket&by=route&quantiles=0.99",
    "record/top?from={from}&of=refused&most=8",
    "record/events?from={from}",
    "limits",
];

struct Kept {
    series: Series,
    /// Of events a second.
    mean: u64,
}

fn kept(name: &str, labels: &[(&str, String)], mean: u64) -> Kept {
    let labels = labels.iter();
    let labels = labels.map(|(name, value)| ((*name).to_owned(), value.clone()));
    let series = Series {
        name: name.to_owned(),
        labels: labels.collect(),
        kind: Kind::Counter,
        decimals: 0,
    };
    Kept { series, mean }
}

/// Those of a gateway with some routes, each with two limits.
fn all_series() -> Vec<Kept> {
    let mut all = Vec::new();
    let outcomes = ["admitted", "refused", "failed"];
    let statuses = [("200", "upstream"), ("404", "upstream"), ("429", "gateway")];
    for route in 0..ROUTES {
        let mean = 2_000 >> (route / 2);
        let name = || format!("route-{route}");
        for (part, outcome) in outcomes.into_iter().enumerate() {
            let labels = [("route", name()), ("outcome", outcome.to_owned())];
            all.push(kept("tollgate_requests_total", &labels, mean >> (3 * part)));
        }
        for (part, (status, origin)) in statuses.into_iter().enumerate() {
            let labels = [
                ("route", name()),
                ("status", status.to_owned()),
                ("origin", origin.to_owned()),
            ];
            all.push(kept(
                "tollgate_responses_total",
                &labels,
                mean >> (3 * part),
            ));
        }
        for limit in ["per-ip", "per-user"] {
            for (part, outcome) in ["within", "over", "refused"].into_iter().enumerate() {
                let labels = [
                    ("route", name()),
                    ("limit", format!("{limit}-{route}")),
                    ("outcome", outcome.to_owned()),
                ];
                all.push(kept(
                    "tollgate_limit_decisions_total",
                    &labels,
                    mean >> (3 * part),
                ));
            }
        }
        for bucket in 0..11_u32 {
            let bound = 0.001 * 1.5_f64.powi(bucket as i32);
            let labels = [("route", name()), ("le", format!("{bound}"))];
            let far = bucket.abs_diff(4);
            all.push(kept(
                "tollgate_request_duration_seconds_bucket",
                &labels,
                mean >> far,
            ));
        }
        all.push(kept(
            "tollgate_response_bytes_total",
            &[("route", name())],
            mean * 900,
        ));
    }
    all.push(kept("all:tollgate_requests_total", &[], 8_000));
    all.push(kept("all:tollgate_requests_open", &[], 30));
    for (part, outcome) in outcomes.into_iter().enumerate() {
        let labels = [("outcome", outcome.to_owned())];
        all.push(kept(
            "outcome:tollgate_requests_total",
            &labels,
            8_000 >> (3 * part),
        ));
        all.push(kept(
            "outcome:tollgate_limit_decisions_total",
            &labels,
            8_000 >> (3 * part),
        ));
    }
    for (status, origin) in statuses {
        let labels = [("status", status.to_owned()), ("origin", origin.to_owned())];
        all.push(kept("status:tollgate_responses_total", &labels, 3_000));
    }
    all
}

/// Who was counted, as many as a list holds, of whom every second one is in the next list too.
fn lists(number: u64) -> KeyLists {
    let mut distinct = DistinctCount::default();
    (0..10_000).for_each(|key| distinct.add(hash(key)));
    let listed = |place: u64| {
        let name = number * LONGEST as u64 / 2 + place;
        let key = LimitKey {
            limit: format!("per-ip-{}", place % 7),
            key: format!("ip=2001:db8:{:x}:{:x}::/64", name >> 16, name & 0xffff),
        };
        let (hash, count) = (hash(name), 10_000 / (place + 1));
        ListedKey { key, hash, count }
    };
    let list = || {
        let keys = (0..LONGEST as u64).map(listed).collect();
        KeyList::new(100_000, keys, Some(distinct.clone()), 1)
    };
    KeyLists {
        asked: list(),
        refused: list(),
    }
}

/// Numbers that look random.
fn hash(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The lists that end with a second, as the gateway keeps them.
fn note(record: &Record, over: u64, now: u64) -> Result<()> {
    for (topic, step) in [(Topic::Minute, 60), (Topic::Hour, 3_600), (Topic::Day, DAY)] {
        // A week of minutes is as fast to read as a day: a file at a time.
        let kept = topic.kept().min(if step == 60 { DAY } else { u64::MAX });
        if over.is_multiple_of(step) && over + kept > now {
            let text = serde_json::to_vec(&lists(over / step))?;
            record.note(topic, (over - step, text), true);
        }
    }
    Ok(())
}

/// A year until now: every second of the last week, before that one in each minute, then in five, for no question is answered from
/// more.
fn record(folder: &Path, now: u64, days: u64) -> Result<usize> {
    let settings = Settings {
        folder: Some(folder.to_owned()),
        most_bytes: 4 << 30,
    };
    let record = Record::open(&settings)?;
    let all = all_series();
    let numbers = all.iter().map(|kept| record.number(&kept.series));
    let numbers: Vec<u32> = numbers.collect::<Option<_>>().ok_or("too many series")?;
    let mut state = 88_172_645_463_325_252_u64;
    let mut second = (now - days * DAY).next_multiple_of(300);
    while second < now {
        let values = all.iter().zip(&numbers).map(|(kept, number)| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // As wide as independent events scatter, and where there are few, in some seconds.
            let noise = (kept.mean * 12).isqrt() + 1;
            let value = (kept.mean + state % (noise + 1)).saturating_sub(noise / 2);
            (*number, value)
        });
        let values = values.filter(|(_, value)| *value > 0).collect();
        record.add(Second { at: second, values });
        if second.is_multiple_of(60) {
            note(&record, second, now)?;
        }
        if second.is_multiple_of(600) {
            record.keep()?;
        }
        second += match now - second {
            0..WEEK => 1,
            WEEK..QUARTER => 60,
            _ => 300,
        };
    }
    record.leave()?;
    Ok(all.len())
}

struct Gateway {
    child: Child,
    admin: SocketAddr,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn start(folder: &Path) -> Result<Gateway> {
        let text = "version: 1\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\nrecord: record\nupstreams: { up: [\"http://127.0.0.1:9\"] }\n";
        fs::write(folder.join("tollgate.yaml"), text)?;
        fs::create_dir_all(folder.join("policies"))?;
        fs::write(
            folder.join("policies/all.yaml"),
            "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 1/s } }\n",
        )?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .args(["run", "--config", "tollgate.yaml"])
            .current_dir(folder);
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no output")?).lines();
        let admin = loop {
            let line = lines.next().ok_or("the gateway ended")??;
            if let Some((_, rest)) = line.split_once("admin on http://") {
                break rest.split(['/', ' ']).next().unwrap_or(rest).parse()?;
            }
        };
        thread::spawn(move || lines.for_each(drop));
        Ok(Gateway { child, admin })
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client(BufReader::new(stream)))
    }

    /// The bytes of an answer.
    fn ask(&mut self, path: &str) -> Result<Vec<u8>> {
        write!(
            self.0.get_mut(),
            "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )?;
        let (mut line, mut length) = (String::new(), 0);
        self.0.read_line(&mut line)?;
        let fine = line.starts_with("HTTP/1.1 200");
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line)?;
            if let Some(("content-length", value)) = line.trim().split_once(": ") {
                length = value.parse()?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let said = || format!("{path}: {}", String::from_utf8_lossy(&body)).into();
        if fine { Ok(body) } else { Err(said()) }
    }
}

/// Middle, 99th of a hundred and longest.
fn told(name: &str, mut took: Vec<Duration>, bytes: usize) {
    took.sort_unstable();
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)];
    println!(
        "| {name} | {:.2?} | {:.2?} | {:.2?} | {bytes} |",
        at(50),
        at(99),
        at(100)
    );
}

fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let clock = Clock::system();
    let folder = tempfile::tempdir()?;
    let now = clock.wall().as_secs();
    let days = if quick { 8 } else { 365 };
    let begun = clock.now();
    let count = record(&folder.path().join("record"), now, days)?;
    let took = Duration::from(clock.now().since(begun));
    println!("{days} days of {count} series, written in {took:.1?}");
    let gateway = Gateway::start(folder.path())?;
    println!("\n| question | p50 | p99 | longest | bytes |\n|---|---|---|---|---|");

    let mut client = Client::new(gateway.admin)?;
    for (name, series) in [
        ("one series", "all:tollgate_requests_total".to_owned()),
        (
            "one of each route",
            "tollgate_requests_total{route=%22route-3%22,outcome=%22admitted%22}".to_owned(),
        ),
    ] {
        let path = format!("/v1/record/range?series={series}&from=-24h&points=1200");
        let mut took = Vec::new();
        let mut bytes = 0;
        for _ in 0..1_000 {
            let begun = clock.now();
            bytes = client.ask(&path)?.len();
            took.push(Duration::from(clock.now().since(begun)));
        }
        told(&format!("{name}, 24 h, 1,200 points"), took, bytes);
    }
    for range in ["15m", "1h", "6h", "24h", "7d", "30d", "1y"] {
        if quick && range.ends_with('y') {
            continue;
        }
        let range = if range == "15m" { "900s" } else { range };
        let mut took = Vec::new();
        let mut bytes = 0;
        for _ in 0..30 {
            let begun = clock.now();
            bytes = screen(gateway.admin, range)?;
            took.push(Duration::from(clock.now().since(begun)));
        }
        told(&format!("Now, {range}"), took, bytes);
    }
    Ok(())
}

/// All questions of the screen, as a browser asks them. The bytes of all answers.
fn screen(admin: SocketAddr, range: &str) -> Result<usize> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let each = (0..CONNECTIONS).map(|_| {
            scope.spawn(|| -> Result<usize> {
                let mut client = Client::new(admin)?;
                let mut bytes = 0;
                while let Some(path) = NOW.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let path = path.replace("{from}", &format!("-{range}"));
                    bytes += client.ask(&format!("/v1/{path}"))?.len();
                }
                Ok(bytes)
            })
        });
        let each: Vec<_> = each.collect();
        let each = each
            .into_iter()
            .map(|one| one.join().map_err(|_| "a client panicked")?);
        each.sum()
    })
}
