//! Random histories beside a list of everything that happened.

use std::collections::BTreeMap;
use std::path::Path;

use tollgate::record::{Grid, RangeResult, Record, Second};

use super::random::Random;
use super::{MIDNIGHT, numbers, open, second};

/// Everything that was recorded: by second, what each series did.
#[derive(Default)]
struct Model(BTreeMap<u64, Vec<u64>>);

impl Model {
    fn take(&mut self, seconds: &mut Vec<Second>) {
        for Second { at, values } in seconds.drain(..) {
            let known = self.0.entry(at).or_insert_with(|| vec![0; values.len()]);
            known
                .iter_mut()
                .zip(values)
                .for_each(|(sum, (_, value))| *sum += value);
        }
    }

    /// Holds what was found against what happened.
    fn check(&self, grid: &Grid, found: &RangeResult, numbers: &[u32], from: u64, to: u64) {
        let end = grid.from + grid.bucket_count as u64 * grid.step_seconds;
        assert!(grid.from <= from && end >= to && grid.from + grid.step_seconds > from);
        for bucket in 0..grid.bucket_count {
            let start = grid.from + bucket as u64 * grid.step_seconds;
            let seconds: Vec<_> = self.0.range(start..start + grid.step_seconds).collect();
            let place = format!("bucket {bucket} of {grid:?}");
            assert_eq!(
                found.covered_seconds[bucket] as usize,
                seconds.len(),
                "{place}"
            );
            for (series, number) in numbers.iter().enumerate() {
                let values = || seconds.iter().map(|(_, values)| values[series]);
                let known = match found.columns.get(number) {
                    Some(column) => (
                        column.sums[bucket],
                        column.minima[bucket],
                        column.maxima[bucket],
                    ),
                    None => (0, 0, 0),
                };
                let expected = (
                    values().sum::<u64>(),
                    values().min().unwrap_or(0),
                    values().max().unwrap_or(0),
                );
                assert_eq!(known, expected, "series {series}, {place}");
            }
        }
    }
}

/// Asks for random spans.
fn ask(
    random: &mut Random,
    record: &Record,
    model: &Model,
    numbers: &[u32],
    (begin, end): (u64, u64),
) {
    for _ in 0..4 {
        let scale = 4 + random.below(18);
        let length = 1 + random.below(1 << scale);
        let from = begin + random.below(end - begin + 1);
        let to = (from + length).min(end + 10);
        let most = [2, 10, 100, 1_200][random.below(4) as usize];
        let grid = record.finest_grid(from, to, most).unwrap();
        assert!(grid.bucket_count <= most.max(2), "{grid:?}");
        let found = record.read(&grid, numbers).unwrap();
        model.check(&grid, &found, numbers, from, to);
        let totals = record.totals_before(grid.from, numbers).unwrap();
        for (series, number) in numbers.iter().enumerate() {
            let before = model.0.range(..grid.from);
            let all: u64 = before.map(|(_, values)| values[series]).sum();
            assert_eq!(totals.get(number).copied().unwrap_or(0), all, "{grid:?}");
        }
    }
}

/// Days of traffic with pauses, small steps of the clock, and processes that die and come back.
fn history(seed: u64) {
    const SERIES: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = folder.path();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model::default();
    let mut record = open(path);
    let numbers = numbers(&record, SERIES);
    let begin = MIDNIGHT + random.below(200_000);
    let mut now = begin;
    let mut unwritten: Vec<Second> = Vec::new();
    for _ in 0..40 {
        let seconds = random.below(9_000);
        let rate = [0.0, 0.01, 1.0, 40.0, 3_000.0][random.below(5) as usize];
        for _ in 0..seconds {
            let mut values: Vec<u64> = (0..SERIES as u32)
                .map(|series| random.poisson(rate / f64::from(1 << (2 * series))))
                .collect();
            if random.below(5_000) == 0 {
                let height = random.below(60);
                values[0] += random.next() >> (4 + height);
            }
            let second = second(now, &numbers, values);
            record.add(second.clone());
            unwritten.push(second);
            if random.below(40) == 0 {
                record.write_pending().unwrap();
                model.take(&mut unwritten);
            }
            now += 1;
        }
        match random.below(6) {
            // Nobody was there.
            0 => now += random.below(100_000),
            1 => now += random.below(20 * 86_400),
            // It dies: what it had not written is gone.
            2 => {
                unwritten.clear();
                record = open_again(record, path);
            }
            // The clock goes back within the hour.
            3 => now -= random.below(1 + (now % 3_600).min(200)),
            _ => {}
        }
        record.write_pending().unwrap();
        model.take(&mut unwritten);
        ask(&mut random, &record, &model, &numbers, (begin, now));
    }
    let record = open_again(record, path);
    for _ in 0..10 {
        ask(&mut random, &record, &model, &numbers, (begin, now));
    }
}

fn open_again(record: Record, path: &Path) -> Record {
    drop(record);
    open(path)
}

#[test]
fn what_is_asked_is_what_happened() {
    for seed in 1..=4 {
        println!("seed {seed}");
        history(seed);
    }
}

/// A burst of one second is as high as it was, however far one looks from.
#[test]
fn a_burst_is_seen_from_ten_years() {
    let folder = tempfile::tempdir().unwrap();
    let record = open(folder.path());
    let numbers = numbers(&record, 1);
    for day in 0..4 {
        for at in 0..86_400 {
            let value = if (day, at) == (1, 40_000) { 54_321 } else { 7 };
            record.add(second(MIDNIGHT + day * 86_400 + at, &numbers, [value]));
            if at % 60 == 0 {
                record.write_pending().unwrap();
            }
        }
    }
    let burst = MIDNIGHT + 86_400 + 40_000;
    for span in [
        1,
        10,
        600,
        86_400,
        30 * 86_400,
        366 * 86_400,
        10 * 366 * 86_400,
    ] {
        for most in [2, 100, 1_200, 4_000] {
            let grid = record
                .finest_grid(burst - span / 2, burst - span / 2 + span, most)
                .unwrap();
            let found = record.read(&grid, &numbers).unwrap();
            let column = &found.columns[&numbers[0]];
            assert_eq!(
                column.maxima.iter().max(),
                Some(&54_321),
                "{span} s, {grid:?}"
            );
        }
    }
}

/// What is asked of a record that has just begun is told by seconds.
#[test]
fn a_new_record_has_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Record::open(&tollgate::record::Settings {
        folder: None,
        max_bytes: 0,
    });
    for record in [memory.unwrap(), open(folder.path())] {
        let numbers = numbers(&record, 1);
        for at in 0..10 {
            record.add(second(MIDNIGHT + at, &numbers, [at]));
            record.write_pending().unwrap();
        }
        let grid = record.finest_grid(MIDNIGHT, MIDNIGHT + 10, 1_200).unwrap();
        assert_eq!((grid.step_seconds, grid.bucket_count), (1, 10));
        let found = record.read(&grid, &numbers).unwrap();
        assert_eq!(
            found.columns[&numbers[0]].sums,
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        );
    }
}

/// A clock that was ahead for a moment, and one that goes back far: nothing that was recorded changes, and what has a place
/// is recorded there.
#[test]
fn clocks_that_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let mut record = open(folder.path());
    let numbers = numbers(&record, 1);
    let mut put = |record: &Record, from: u64, seconds: u64, counts: bool| {
        for at in from..from + seconds {
            let second = second(at, &numbers, [at % 7 + 1]);
            record.add(second.clone());
            record.write_pending().unwrap();
            if counts {
                model.take(&mut vec![second]);
            }
        }
    };
    put(&record, MIDNIGHT, 9_000, true);
    put(&record, MIDNIGHT + 86_400 * 365, 30, true);
    // Its hour has its file by then.
    put(&record, MIDNIGHT + 9_000, 1_800, false);
    put(&record, MIDNIGHT + 10_800, 7_200, true);
    record = open_again(record, folder.path());
    put(&record, MIDNIGHT + 18_000, 3_000, true);
    // Two hours back, to what has its file.
    put(&record, MIDNIGHT + 12_000, 100, false);
    put(&record, MIDNIGHT + 21_000, 3_000, true);
    record = open_again(record, folder.path());
    let (from, to) = (MIDNIGHT, MIDNIGHT + 86_400 * 365 + 60);
    for (to, most) in [
        (to, 2),
        (to, 1_200),
        (MIDNIGHT + 24_000, 100),
        (MIDNIGHT + 24_000, 100_000),
    ] {
        let grid = record.finest_grid(from, to, most).unwrap();
        let found = record.read(&grid, &[0]).unwrap();
        model.check(&grid, &found, &[0], from, to);
    }
}
