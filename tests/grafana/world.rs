//! Two hours that both servers know: what was recorded, and the same as text for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;
use tollgate::record::{Record, Second, Series, SeriesKind, Settings};

/// The first second of the two hours, before now: what is older than a week is no longer kept in seconds.
pub const START: u64 = 27 * 3_600;
/// How long they are.
pub const END: u64 = 7_200;
/// When nothing was recorded in them.
pub const GAP: (u64, u64) = (2_700, 3_300);

const ROUTES: [&str; 4] = ["api", "login", "shop", "static"];
const OUTCOMES: [&str; 4] = ["admitted", "failed", "refused", "shed"];
const BOUNDS: [&str; 8] = ["0.005", "0.01", "0.025", "0.1", "0.25", "1", "5", "+Inf"];

/// A series, and what it does in each second.
struct Known {
    series: Series,
    does: Box<dyn Fn(u64) -> u64>,
}

fn known(
    name: &str,
    labels: &[(&str, &str)],
    (kind, decimals): (SeriesKind, u8),
    does: impl Fn(u64) -> u64 + 'static,
) -> Known {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Known {
        series: Series {
            name: name.to_owned(),
            labels: labels.iter().map(own).collect(),
            kind,
            decimals,
        },
        does: Box::new(does),
    }
}

/// Up to `most`, another in each second and for each series.
fn chance(series: u64, second: u64, most: u64) -> u64 {
    let mut mixed =
        series.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ second.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 32) % (most + 1)
}

/// Traffic that comes and goes within half an hour.
fn tide(second: u64) -> u64 {
    (second % 1_800).min(1_800 - second % 1_800) / 60
}

const COUNTER: (SeriesKind, u8) = (SeriesKind::Counter, 0);

fn all() -> Vec<Known> {
    let mut all = Vec::new();
    let mut next = 0..;
    let mut number = || next.next().unwrap_or(0);
    for route in ROUTES {
        for (place, outcome) in (1..).zip(OUTCOMES) {
            let labels = [("route", route), ("outcome", outcome)];
            let own = number();
            // The last ones happen now and then.
            let does = move |at: u64| match place {
                4 if at % 97 > 1 => 0,
                _ => (tide(at) + chance(own, at, 9)) / place,
            };
            all.push(known("tollgate_requests_total", &labels, COUNTER, does));
        }
        let own = number();
        let does = move |at: u64| chance(own, at, 2_500_000);
        let micros = (SeriesKind::Counter, 6);
        all.push(known(
            "tollgate_request_seconds_total",
            &[("route", route)],
            micros,
            does,
        ));
    }
    for limit in ["few", "many", "\"odd\"\\"] {
        for outcome in ["over", "refused", "shadow_refused", "within"] {
            let own = number();
            let labels = [("limit", limit), ("outcome", outcome)];
            let does = move |at: u64| chance(own, at, 3).saturating_sub(chance(own, at / 60, 3));
            all.push(known(
                "tollgate_limit_decisions_total",
                &labels,
                COUNTER,
                does,
            ));
        }
        let own = number();
        let does = move |at: u64| chance(own, at / 10, 20);
        all.push(known(
            "tollgate_permits_open",
            &[("limit", limit)],
            (SeriesKind::Gauge, 0),
            does,
        ));
    }
    for route in &ROUTES[..2] {
        for status in ["200", "304", "404", "429", "503"] {
            for origin in ["gateway", "upstream"] {
                let own = number();
                let labels = [("route", *route), ("status", status), ("origin", origin)];
                let does = move |at: u64| chance(own, at, 40).saturating_sub(35);
                all.push(known("tollgate_responses_total", &labels, COUNTER, does));
            }
        }
        for (place, bound) in (0..).zip(BOUNDS) {
            let own = number();
            let labels = [("route", *route), ("le", bound)];
            let does = move |at: u64| chance(own, at, 12 - place) / (1 + place / 3);
            all.push(known(
                "tollgate_request_duration_seconds_bucket",
                &labels,
                COUNTER,
                does,
            ));
        }
    }
    for upstream in ["backend", "images"] {
        let own = number();
        let does = move |at: u64| tide(at) * 40 + chance(own, at, 250);
        all.push(known(
            "tollgate_upstream_load",
            &[("upstream", upstream)],
            (SeriesKind::Gauge, 3),
            does,
        ));
    }
    let does = |at: u64| tide(at) * 7 + chance(77, at, 3);
    all.push(known(
        "tollgate_connections_open",
        &[],
        (SeriesKind::Gauge, 0),
        does,
    ));
    all
}

fn seconds() -> impl Iterator<Item = u64> {
    (0..END).filter(|at| !(GAP.0..GAP.1).contains(at))
}

/// Writes the record.
pub fn record(folder: &Path, start: u64) {
    let settings = Settings {
        folder: Some(folder.to_owned()),
        max_bytes: 1 << 30,
    };
    let record = Record::open(&settings).unwrap();
    let all = all();
    let numbers = all
        .iter()
        .map(|known| record.number_of(&known.series).unwrap());
    let numbers: Vec<u32> = numbers.collect();
    for at in seconds() {
        let values = all.iter().map(|known| (known.does)(at));
        record.add(Second {
            at: start + at,
            values: numbers.iter().copied().zip(values).collect(),
        });
        if at % 300 == 0 {
            record.write_pending().unwrap();
        }
    }
    record.close().unwrap();
}

/// The names of the metrics of the two hours.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = all().into_iter().map(|known| known.series.name).collect();
    names.dedup();
    names
}

/// What Prometheus is to know: names with labels, as text, and what the series did.
type Samples = BTreeMap<String, Box<dyn Fn(u64) -> f64>>;

fn labelled(name: &str, labels: &BTreeMap<String, String>) -> String {
    let pairs = labels.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{value}\"")
    });
    format!("{name}{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

/// The series of the two hours by name and labels, as Prometheus counts them: buckets hold those beneath.
fn samples() -> Samples {
    let mut samples = Samples::new();
    let mut beneath: BTreeMap<String, Vec<(u64, Known)>> = BTreeMap::new();
    for (place, known) in (0..).zip(all()) {
        let labels: BTreeMap<_, _> = known.series.labels.iter().cloned().collect();
        if labels.contains_key("le") {
            let histogram = labels["route"].clone();
            beneath.entry(histogram).or_default().push((place, known));
            continue;
        }
        let unit = 10_f64.powi(known.series.decimals.into());
        let name = labelled(&known.series.name, &labels);
        samples.insert(name, value(vec![known], unit));
    }
    for known in beneath.into_values() {
        for last in 0..known.len() {
            let labels: BTreeMap<_, _> = known[last].1.series.labels.iter().cloned().collect();
            let place = known[0].0 as usize;
            let parts = || all().into_iter().skip(place).take(last + 1).collect();
            samples.insert(
                labelled(&known[last].1.series.name, &labels),
                value(parts(), 1.0),
            );
            if last + 1 == known.len() {
                let route = BTreeMap::from([(String::from("route"), labels["route"].clone())]);
                let name = labelled("tollgate_request_duration_seconds_count", &route);
                samples.insert(name, value(parts(), 1.0));
            }
        }
    }
    samples
}

/// What one sample says, of calls for each second in order.
fn value(parts: Vec<Known>, unit: f64) -> Box<dyn Fn(u64) -> f64> {
    let total = std::cell::Cell::new(0_u64);
    Box::new(move |at| {
        let now: u64 = parts.iter().map(|known| (known.does)(at)).sum();
        let counts = parts[0].series.kind == SeriesKind::Counter;
        total.set(if counts { total.get() + now } else { now });
        total.get() as f64 / unit
    })
}

/// The same as OpenMetrics. `recorded` are all series of the record: what did nothing in the two hours has zeros.
pub fn text(start: u64, recorded: &[Value]) -> String {
    let mut samples = samples();
    let names = names();
    for series in recorded {
        let name = series["name"].as_str().unwrap();
        let labels = series["labels"].as_object().unwrap().iter();
        let labels = labels.map(|(n, v)| (n.clone(), v.as_str().unwrap().to_owned()));
        if names.iter().any(|known| known == name)
            && !series["labels"].as_object().unwrap().contains_key("le")
        {
            let own = labelled(name, &labels.collect());
            samples.entry(own).or_insert_with(|| Box::new(|_| 0.0));
        }
    }
    let mut text = String::new();
    for (series, value) in samples {
        for at in seconds() {
            writeln!(text, "{series} {} {}", value(at), start + at + 1).unwrap();
        }
    }
    text + "# EOF\n"
}
