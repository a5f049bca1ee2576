//! How long queries to the record take over HTTP. A gateway has a year of 500 series, none of them idle. The paths are
//! those that the dashboard fetches.
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
use tollgate::record::insight::distinct_count::DistinctCount;
use tollgate::record::insight::{KeyList, KeyLists, LimitKey, ListedKey, MAX_LISTED_KEYS};
use tollgate::record::{Note, Record, Second, Series, SeriesKind, Settings, Topic};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const DAY_SECONDS: u64 = 86_400;
/// How long the record keeps every second.
const WEEK_SECONDS: u64 = 7 * DAY_SECONDS;
/// How long the record keeps every minute.
const QUARTER_SECONDS: u64 = 90 * DAY_SECONDS;
const ROUTE_COUNT: usize = 20;
/// The most connections that a browser opens to one host.
const BROWSER_CONNECTIONS: usize = 6;

/// What the dashboard's screen Now fetches, below `/v1/`, where it is 1,400 pixels wide.
const NOW_SCREEN_PATHS: [&str; 12] = [
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

struct RecordedSeries {
    series: Series,
    /// The mean of events in a second.
    mean: u64,
}

fn recorded_series(name: &str, labels: &[(&str, String)], mean: u64) -> RecordedSeries {
    let labels = labels.iter();
    let labels = labels.map(|(name, value)| ((*name).to_owned(), value.clone()));
    let series = Series {
        name: name.to_owned(),
        labels: labels.collect(),
        kind: SeriesKind::Counter,
        decimals: 0,
    };
    RecordedSeries { series, mean }
}

/// The series of a gateway with [`ROUTE_COUNT`] routes, each with two limits.
fn all_series() -> Vec<RecordedSeries> {
    let mut all = Vec::new();
    let outcomes = ["admitted", "refused", "failed"];
    let statuses = [("200", "upstream"), ("404", "upstream"), ("429", "gateway")];
    for route in 0..ROUTE_COUNT {
        let mean = 2_000 >> (route / 2);
        let name = || format!("route-{route}");
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let labels = [("route", name()), ("outcome", outcome.to_owned())];
            all.push(recorded_series(
                "tollgate_requests_total",
                &labels,
                mean >> (3 * index),
            ));
        }
        for (index, (status, origin)) in statuses.into_iter().enumerate() {
            let labels = [
                ("route", name()),
                ("status", status.to_owned()),
                ("origin", origin.to_owned()),
            ];
            all.push(recorded_series(
                "tollgate_responses_total",
                &labels,
                mean >> (3 * index),
            ));
        }
        for limit in ["per-ip", "per-user"] {
            for (index, outcome) in ["within", "over", "refused"].into_iter().enumerate() {
                let labels = [
                    ("route", name()),
                    ("limit", format!("{limit}-{route}")),
                    ("outcome", outcome.to_owned()),
                ];
                all.push(recorded_series(
                    "tollgate_limit_decisions_total",
                    &labels,
                    mean >> (3 * index),
                ));
            }
        }
        for bucket in 0..11_u32 {
            let bound = 0.001 * 1.5_f64.powi(bucket as i32);
            let labels = [("route", name()), ("le", format!("{bound}"))];
            let distance = bucket.abs_diff(4);
            all.push(recorded_series(
                "tollgate_request_duration_seconds_bucket",
                &labels,
                mean >> distance,
            ));
        }
        all.push(recorded_series(
            "tollgate_response_bytes_total",
            &[("route", name())],
            mean * 900,
        ));
    }
    all.push(recorded_series("all:tollgate_requests_total", &[], 8_000));
    all.push(recorded_series("all:tollgate_requests_open", &[], 30));
    for (index, outcome) in outcomes.into_iter().enumerate() {
        let labels = [("outcome", outcome.to_owned())];
        all.push(recorded_series(
            "outcome:tollgate_requests_total",
            &labels,
            8_000 >> (3 * index),
        ));
        all.push(recorded_series(
            "outcome:tollgate_limit_decisions_total",
            &labels,
            8_000 >> (3 * index),
        ));
    }
    for (status, origin) in statuses {
        let labels = [("status", status.to_owned()), ("origin", origin.to_owned())];
        all.push(recorded_series(
            "status:tollgate_responses_total",
            &labels,
            3_000,
        ));
    }
    all
}

/// The most frequent keys of the step with this number, as many as a list holds. Every second key is in the next step's
/// list too.
fn key_lists(number: u64) -> KeyLists {
    let mut distinct = DistinctCount::default();
    (0..10_000).for_each(|key| distinct.add(mix(key)));
    let listed = |rank: u64| {
        let name = number * MAX_LISTED_KEYS as u64 / 2 + rank;
        let key = LimitKey {
            limit: format!("per-ip-{}", rank % 7),
            key: format!("ip=2001:db8:{:x}:{:x}::/64", name >> 16, name & 0xffff),
        };
        let (hash, count) = (mix(name), 10_000 / (rank + 1));
        ListedKey { key, hash, count }
    };
    let list = || {
        let keys = (0..MAX_LISTED_KEYS as u64).map(listed).collect();
        KeyList::new(100_000, keys, Some(distinct.clone()), 1)
    };
    KeyLists {
        decided: list(),
        refused: list(),
    }
}

/// A number that looks random (SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Writes the lists of the minute, hour and day that end with the second `end`, as the gateway keeps them.
fn write_lists(record: &Record, end: u64, now: u64) -> Result<()> {
    for (topic, step) in [
        (Topic::Minute, 60),
        (Topic::Hour, 3_600),
        (Topic::Day, DAY_SECONDS),
    ] {
        // A week of minutes is as fast to read as a day: a file at a time.
        let kept = topic
            .retention_seconds()
            .min(if step == 60 { DAY_SECONDS } else { u64::MAX });
        if end.is_multiple_of(step) && end + kept > now {
            let text = serde_json::to_vec(&key_lists(end / step))?;
            let at = end - step;
            record.add_note(topic, Note { at, text }, true);
        }
    }
    Ok(())
}

/// Writes a record of so many days until now, and returns the number of its series. It has every second of the last
/// week. Before that it has one second a minute, then one in five minutes, because no query is answered from more.
fn write_record(folder: &Path, now: u64, days: u64) -> Result<usize> {
    let settings = Settings {
        folder: Some(folder.to_owned()),
        max_bytes: 4 << 30,
    };
    let record = Record::open(&settings)?;
    let all = all_series();
    let numbers = all
        .iter()
        .map(|recorded| record.number_of(&recorded.series));
    let numbers: Vec<u32> = numbers.collect::<Option<_>>().ok_or("too many series")?;
    let mut state = 88_172_645_463_325_252_u64;
    let mut second = (now - days * DAY_SECONDS).next_multiple_of(300);
    while second < now {
        let values = all.iter().zip(&numbers).map(|(recorded, number)| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Values scatter as widely as those of independent events. Rare events happen in some seconds only.
            let noise = (recorded.mean * 12).isqrt() + 1;
            let value = (recorded.mean + state % (noise + 1)).saturating_sub(noise / 2);
            (*number, value)
        });
        let values = values.filter(|(_, value)| *value > 0).collect();
        record.add(Second { at: second, values });
        if second.is_multiple_of(60) {
            write_lists(&record, second, now)?;
        }
        if second.is_multiple_of(600) {
            record.write_pending()?;
        }
        second += match now - second {
            0..WEEK_SECONDS => 1,
            WEEK_SECONDS..QUARTER_SECONDS => 60,
            _ => 300,
        };
    }
    record.close()?;
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

    /// Fetches a path and returns the body. An error unless the status is 200.
    fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        write!(
            self.0.get_mut(),
            "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )?;
        let (mut line, mut length) = (String::new(), 0);
        self.0.read_line(&mut line)?;
        let is_ok = line.starts_with("HTTP/1.1 200");
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line)?;
            if let Some(("content-length", value)) = line.trim().split_once(": ") {
                length = value.parse()?;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        let failure = || format!("{path}: {}", String::from_utf8_lossy(&body)).into();
        if is_ok { Ok(body) } else { Err(failure()) }
    }
}

/// Prints a row with the median, the 99th percentile and the longest time.
fn print_row(name: &str, mut durations: Vec<Duration>, bytes: usize) {
    durations.sort_unstable();
    let percentile =
        |percent: usize| durations[(durations.len() * percent / 100).min(durations.len() - 1)];
    println!(
        "| {name} | {:.2?} | {:.2?} | {:.2?} | {bytes} |",
        percentile(50),
        percentile(99),
        percentile(100)
    );
}

fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let clock = Clock::system();
    let folder = tempfile::tempdir()?;
    let now = clock.wall().as_secs();
    let days = if quick { 8 } else { 365 };
    let started_at = clock.now();
    let count = write_record(&folder.path().join("record"), now, days)?;
    let elapsed = Duration::from(clock.now().since(started_at));
    println!("{days} days of {count} series, written in {elapsed:.1?}");
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
        let mut durations = Vec::new();
        let mut bytes = 0;
        for _ in 0..1_000 {
            let started_at = clock.now();
            bytes = client.get(&path)?.len();
            durations.push(Duration::from(clock.now().since(started_at)));
        }
        print_row(&format!("{name}, 24 h, 1,200 points"), durations, bytes);
    }
    for range in ["15m", "1h", "6h", "24h", "7d", "30d", "1y"] {
        if quick && range.ends_with('y') {
            continue;
        }
        let range = if range == "15m" { "900s" } else { range };
        let mut durations = Vec::new();
        let mut bytes = 0;
        for _ in 0..30 {
            let started_at = clock.now();
            bytes = load_screen(gateway.admin, range)?;
            durations.push(Duration::from(clock.now().since(started_at)));
        }
        print_row(&format!("Now, {range}"), durations, bytes);
    }
    Ok(())
}

/// Fetches all paths of the screen as a browser does, over several connections. Returns the bytes of all bodies.
fn load_screen(admin: SocketAddr, range: &str) -> Result<usize> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let clients = (0..BROWSER_CONNECTIONS).map(|_| {
            scope.spawn(|| -> Result<usize> {
                let mut client = Client::new(admin)?;
                let mut bytes = 0;
                while let Some(path) = NOW_SCREEN_PATHS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let path = path.replace("{from}", &format!("-{range}"));
                    bytes += client.get(&format!("/v1/{path}"))?.len();
                }
                Ok(bytes)
            })
        });
        let clients: Vec<_> = clients.collect();
        let bytes = clients
            .into_iter()
            .map(|client| client.join().map_err(|_| "a client panicked")?);
        bytes.sum()
    })
}
