//! The record: what is asked of it is what was put in, whatever happens to the process, the clock and the files.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod damage;
mod histories;
mod peaks;
mod peers;
mod random;
mod sizes;

use std::path::Path;

use tollgate::record::{Record, Second, Series, SeriesKind, Settings};

/// A midnight that begins no file of a longer step.
const MIDNIGHT: u64 = 20_011 * 86_400;

fn open(folder: &Path) -> Record {
    Record::open(&Settings {
        folder: Some(folder.to_owned()),
        max_bytes: 1 << 30,
    })
    .unwrap()
}

fn series(number: usize) -> Series {
    Series {
        name: format!("things_{number}"),
        labels: vec![(String::from("route"), String::from("a \"b\""))],
        kind: SeriesKind::Counter,
        decimals: 0,
    }
}

/// The numbers of `count` series.
fn numbers(record: &Record, count: usize) -> Vec<u32> {
    let number = |place| record.number_of(&series(place)).unwrap();
    (0..count).map(number).collect()
}

/// A second in which these series did this.
fn second(at: u64, numbers: &[u32], values: impl IntoIterator<Item = u64>) -> Second {
    Second {
        at,
        values: numbers.iter().copied().zip(values).collect(),
    }
}
