//! What the record costs on the disk.

use std::fs;
use std::path::Path;

use tollgate::record::Record;

use super::random::{MIX, Random};
use super::{MIDNIGHT, numbers, open, second};

fn bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}

/// Traffic that swings by half in a day.
fn swing(at: u64) -> f64 {
    1.0 + 0.5 * (at as f64 / 86_400.0 * std::f64::consts::TAU).sin()
}

/// Records some seconds from midnight on.
fn traffic(record: &Record, means: &[f64], seconds: std::ops::Range<u64>) {
    let numbers = numbers(record, means.len());
    let mut random = Random(42 + seconds.start);
    for at in seconds {
        let values = means.iter().map(|mean| random.poisson(mean * swing(at)));
        record.add(second(MIDNIGHT + at, &numbers, values.collect::<Vec<_>>()));
        if at % 60 == 0 {
            record.write_pending().unwrap();
        }
    }
}

fn written() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("wchar:"))
        .unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn seconds_of_a_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let record = open(folder.path());
    let before = written();
    traffic(&record, &MIX, 0..2 * 86_400 + 200);
    let points = (MIX.len() as u64 * 2 * 86_400) as f64;
    let each = bytes(&folder.path().join("1s")) as f64 / points;
    let cost = (written() - before) as f64 / points;
    println!("{each:.3} bytes for a second of a series, {cost:.2} written");
    assert!(each <= 0.8, "{each}");
    assert!(cost <= 8.0, "{cost}");
}

/// Three weeks are recorded; every tier is as long as it is kept in a year.
#[test]
fn a_busy_series_for_a_year() {
    const DAYS: u64 = 21;
    let folder = tempfile::tempdir().unwrap();
    let record = open(folder.path());
    let numbers = numbers(&record, 1);
    let mut random = Random(1);
    for at in 0..DAYS * 86_400 + 1_000 {
        let value = random.poisson(2_000.0 * swing(at));
        record.add(second(MIDNIGHT + at, &numbers, [value]));
        if at % 600 == 0 {
            record.write_pending().unwrap();
        }
    }
    // Seconds are kept for a week, minutes for a quarter of a year.
    let kept = [
        ("1s", 7, 7),
        ("1m", DAYS, 90),
        ("5m", DAYS, 365),
        ("1h", DAYS, 365),
        ("1d", DAYS, 365),
    ];
    let each = kept.map(|(tier, days, year)| bytes(&folder.path().join(tier)) * year / days);
    let all = each.iter().sum::<u64>() as f64 / 1e6;
    println!("{all:.2} MB, by tier {each:?}");
    assert!(all <= 2.5, "{all} MB");
}
