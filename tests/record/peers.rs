//! The same seconds in the record, in VictoriaMetrics and in Prometheus, and what they take on the disk.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::random::Random;
use super::{MIDNIGHT, numbers, open, second};

/// Seconds of each series.
const SECONDS: u64 = 6 * 3_600;

/// A gateway's 26 series: how many events a second on average, and of what a sum in microseconds is the sum.
enum Kind {
    /// Events.
    Count(f64),
    /// Refusals: nothing, but for storms.
    Storms,
    /// Microseconds that so many events took.
    Time(f64),
}

fn mix() -> Vec<Kind> {
    let counts = [
        20_000.0, 2_000.0, 2_000.0, 500.0, 200.0, 50.0, 50.0, 50.0, 50.0, 50.0, 20.0, 5.0, 1.0,
        1.0, 1.0, 1.0, 0.1, 0.01, 0.01, 0.01,
    ];
    let mut mix: Vec<Kind> = counts.map(Kind::Count).into();
    mix.extend([Kind::Storms, Kind::Storms, Kind::Storms]);
    mix.extend([50.0, 50.0, 1.0].map(Kind::Time));
    mix
}

fn value(kind: &Kind, at: u64, random: &mut Random) -> u64 {
    let swing = 1.0 + 0.5 * (at as f64 / 86_400.0 * std::f64::consts::TAU).sin();
    match kind {
        Kind::Count(mean) => random.poisson(mean * swing),
        Kind::Storms if at % 14_400 < 120 => random.poisson(300.0),
        Kind::Storms => 0,
        Kind::Time(mean) => {
            let count = random.poisson(mean * swing);
            (0..count)
                .map(|_| 3_000 + (-9_000.0 * random.share().max(1e-9).ln()) as u64)
                .sum()
        }
    }
}

/// What each series did in each second.
fn samples() -> Vec<Vec<u64>> {
    let mut random = Random(7);
    let each = mix().into_iter().map(|kind| {
        let seconds = 0..SECONDS;
        seconds.map(|at| value(&kind, at, &mut random)).collect()
    });
    each.collect()
}

fn size(path: &Path) -> u64 {
    let found = fs::metadata(path).unwrap();
    if found.is_file() {
        return found.len();
    }
    let entries = fs::read_dir(path).unwrap();
    entries.map(|entry| size(&entry.unwrap().path())).sum()
}

fn ours(samples: &[Vec<u64>]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let record = open(folder.path());
    let numbers = numbers(&record, samples.len());
    for at in 0..SECONDS {
        let values = samples.iter().map(|series| series[at as usize]);
        record.add(second(MIDNIGHT + at, &numbers, values.collect::<Vec<_>>()));
        if at % 600 == 0 {
            record.write_pending().unwrap();
        }
    }
    record.add(second(MIDNIGHT + SECONDS + 200, &numbers, []));
    record.write_pending().unwrap();
    size(&folder.path().join("1s"))
}

/// Cumulative, as whoever scrapes sees it.
fn sums(series: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    let mut sum = 0;
    let each = series.iter().zip(0_u64..);
    each.map(move |(value, at)| {
        sum += value;
        (MIDNIGHT + at + 1, sum)
    })
}

fn prometheus(samples: &[Vec<u64>]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (number, series) in samples.iter().enumerate() {
        let _ = writeln!(text, "# TYPE things_{number} counter");
        for (at, sum) in sums(series) {
            let _ = writeln!(text, "things_{number}_total {sum} {at}");
        }
    }
    text.push_str("# EOF\n");
    let input = folder.path().join("input");
    fs::write(&input, text).unwrap();
    let blocks = folder.path().join("blocks");
    let made = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .args([&input, &blocks])
        .output()
        .expect("promtool: make tools");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    size(&blocks)
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // At its end it writes what it has in memory.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

fn ask(port: u16, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 2").then_some(answer)
}

fn soon<T>(what: &str, mut happens: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(done) = happens() {
            return done;
        }
        thread::park_timeout(Duration::from_millis(50));
    }
    panic!("not so: {what}");
}

fn victoria_metrics(samples: &[Vec<u64>]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let child = Command::new("victoria-metrics")
        .arg(format!("-storageDataPath={}", folder.path().display()))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"))
        .args(["-retentionPeriod=100y", "-loggerLevel=ERROR"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("victoria-metrics: make tools");
    let running = Running(child);
    soon("it answers", || ask(port, "GET", "/health", ""));
    for (number, series) in samples.iter().enumerate() {
        let (times, values): (Vec<_>, Vec<_>) =
            sums(series).map(|(at, sum)| (at * 1_000, sum)).unzip();
        let line = serde_json::json!({
            "metric": { "__name__": format!("things_{number}_total") },
            "values": values,
            "timestamps": times,
        });
        ask(port, "POST", "/api/v1/import", &line.to_string()).expect("it takes samples");
    }
    // Has all of it where it can be found.
    ask(port, "GET", "/internal/force_flush", "").unwrap();
    let counted = || ask(port, "GET", "/api/v1/export?match[]={__name__!=\"\"}", "");
    let wanted = samples.len();
    soon("it has all series", || {
        counted()?
            .matches("__name__")
            .count()
            .ge(&wanted)
            .then_some(())
    });
    drop(running);
    size(&folder.path().join("data"))
}

#[test]
fn it_takes_less_than_others_take() {
    let samples = samples();
    let points = (samples.len() as u64 * SECONDS) as f64;
    let each = [
        ours(&samples),
        victoria_metrics(&samples),
        prometheus(&samples),
    ];
    let [ours, victoria, prometheus] = each.map(|bytes| bytes as f64 / points);
    println!("bytes a point: {ours:.3}, VictoriaMetrics {victoria:.3}, Prometheus {prometheus:.3}");
    assert!(ours <= 0.8 && ours < victoria && ours < prometheus);
}
