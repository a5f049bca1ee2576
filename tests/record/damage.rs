//! Files that are not as they were written.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::record::{Grid, RangeResult, Record, Topic, verify};

use super::random::Random;
use super::{MIDNIGHT, numbers, open, second};

const SERIES: usize = 3;
const SECONDS: u64 = 86_400 + 2 * 3_600 + 100;

/// A day and two hours, and some more in a journal.
fn recorded(folder: &Path) {
    let record = open(folder);
    let numbers = numbers(&record, SERIES);
    let mut random = Random(7);
    for at in 0..SECONDS {
        let values = [random.poisson(3.0), random.poisson(0.1), 5];
        record.add(second(MIDNIGHT + at, &numbers, values));
        if at % 60 == 0 {
            record.write_pending().unwrap();
        }
    }
    record.write_pending().unwrap();
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.file_name().unwrap() != "lock" {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let place = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
}

/// All that there is.
fn everything(record: &Record, grid: &Grid) -> RangeResult {
    let numbers: Vec<u32> = (0..SERIES as u32).collect();
    record.read(grid, &numbers).unwrap()
}

/// What is said of damaged files is true, or nothing is said.
fn compare(damaged: &RangeResult, sound: &RangeResult, place: &str) {
    for (bucket, covered) in damaged.covered_seconds.iter().enumerate() {
        assert!(*covered <= sound.covered_seconds[bucket], "{place}");
        for (series, column) in &damaged.columns {
            let known = &sound.columns[series];
            if *covered == sound.covered_seconds[bucket] {
                assert_eq!(column.sums[bucket], known.sums[bucket], "{place}");
                assert_eq!(column.maxima[bucket], known.maxima[bucket], "{place}");
            } else {
                assert!(column.sums[bucket] <= known.sums[bucket], "{place}");
                assert!(column.maxima[bucket] <= known.maxima[bucket], "{place}");
            }
        }
        if *covered == 0 {
            assert!(
                damaged
                    .columns
                    .values()
                    .all(|column| column.sums[bucket] == 0)
            );
        }
    }
}

#[test]
fn damaged_files_say_nothing_wrong() {
    let whole = tempfile::tempdir().unwrap();
    recorded(whole.path());
    let record = open(whole.path());
    let sound = [2, 200, 100_000].map(|most| {
        let grid = record
            .finest_grid(MIDNIGHT, MIDNIGHT + SECONDS, most)
            .unwrap();
        (grid, everything(&record, &grid))
    });
    drop(record);
    let all = files(whole.path());
    let mut random = Random(99);
    let mut aside = 0;
    for round in 0..300 {
        let folder = tempfile::tempdir().unwrap();
        copy(whole.path(), folder.path());
        let place = all[random.below(all.len() as u64) as usize]
            .strip_prefix(whole.path())
            .unwrap();
        if place.ends_with("series") {
            // What is lost of it, nobody asks for by a name; see below.
            continue;
        }
        let file = folder.path().join(place);
        let mut bytes = fs::read(&file).unwrap();
        let how = if round % 2 == 0 {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            format!("round {round}: a bit of byte {at} of {}", place.display())
        } else {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
            format!(
                "round {round}: {} bytes of {}",
                bytes.len(),
                place.display()
            )
        };
        fs::write(&file, bytes).unwrap();
        let record = open(folder.path());
        for (grid, sound) in &sound {
            compare(&everything(&record, grid), sound, &how);
        }
        // It goes on.
        record.add(second(MIDNIGHT + SECONDS + 3_600, &[0], [1]));
        record.write_pending().unwrap();
        aside += fs::read_dir(folder.path().join("damaged")).unwrap().count();
    }
    assert!(aside > 100, "{aside} files were put aside");
}

/// A number of which the name is lost is not given to another, not even by the process after the next.
#[test]
fn lost_names_are_nobodys() {
    for left in [0, 10, 24, 40] {
        let folder = tempfile::tempdir().unwrap();
        recorded(folder.path());
        let file = folder.path().join("series");
        let mut bytes = fs::read(&file).unwrap();
        bytes.truncate(left);
        fs::write(&file, bytes).unwrap();
        for _ in 0..3 {
            assert_eq!(open(folder.path()).series(), []);
        }
        let record = open(folder.path());
        assert_eq!(numbers(&record, 2), [3, 4], "{left} bytes were left");
    }
}

#[test]
fn what_is_wrong_is_found() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path());
    let verified = verify(folder.path()).unwrap();
    assert!(verified.faults.is_empty(), "{:?}", verified.faults);
    // Minutes and five minutes of a day, its hours and itself, and some more minutes.
    assert!(verified.compared_buckets > 1_440 + 288 + 24, "{verified:?}");
    let mut random = Random(5);
    for file in files(folder.path()) {
        let sound = fs::read(&file).unwrap();
        let mut bytes = sound.clone();
        bytes[random.below(sound.len() as u64) as usize] ^= 1 << random.below(8);
        fs::write(&file, bytes).unwrap();
        let verified = verify(folder.path()).unwrap();
        // What is lost of the names, nobody has.
        let faults = if file.ends_with("series") { 2 } else { 1 };
        assert_eq!(verified.faults.len(), faults, "{:?}", verified.faults);
        assert!(verified.faults.iter().all(|fault| fault.path == file));
        fs::write(&file, sound).unwrap();
    }
    // A file that is sound by itself, but not what its seconds make.
    let other = tempfile::tempdir().unwrap();
    let record = open(other.path());
    let numbers = numbers(&record, SERIES);
    for at in 0..90_000 {
        record.add(second(MIDNIGHT + at, &numbers, [1, 2, 3]));
        if at % 600 == 0 {
            record.write_pending().unwrap();
        }
    }
    let minutes = format!("1m/{MIDNIGHT}");
    fs::copy(other.path().join(&minutes), folder.path().join(&minutes)).unwrap();
    let verified = verify(folder.path()).unwrap();
    assert!(verified.faults.len() > 24, "{}", verified.faults.len());
}

/// Who writes into a folder that nobody sees any more says so, and goes on when it is back.
#[test]
fn a_folder_that_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let record = open(&here);
    let numbers = numbers(&record, 1);
    record.add(second(MIDNIGHT, &numbers, [1]));
    record.write_pending().unwrap();
    fs::rename(&here, &there).unwrap();
    record.add(second(MIDNIGHT + 1, &numbers, [2]));
    let error = record.write_pending().unwrap_err().to_string();
    assert!(error.contains("put that back, or restart"), "{error}");
    fs::rename(&there, &here).unwrap();
    record.write_pending().unwrap();
    drop(record);
    let grid = Grid::new(MIDNIGHT, MIDNIGHT + 2, 2, |_| true);
    let read = open(&here).read(&grid, &numbers).unwrap();
    assert_eq!(read.columns[&0].sums, [1, 2]);
}

/// What another process has noted until it gave way is found beside what this one notes later of earlier seconds.
#[test]
fn notes_of_two_processes() {
    let folder = tempfile::tempdir().unwrap();
    let note = |record: &Record, at: u64| {
        let text = b"same".to_vec();
        record.add_note(Topic::Minute, tollgate::record::Note { at, text }, true);
        record.write_pending().unwrap();
    };
    let before = open(folder.path());
    note(&before, MIDNIGHT + 60);
    note(&before, MIDNIGHT + 120);
    before.close().unwrap();
    drop(before);
    let after = open(folder.path());
    after.add(second(MIDNIGHT + 200, &[], []));
    note(&after, MIDNIGHT);
    note(&after, MIDNIGHT + 120);
    note(&after, MIDNIGHT + 240);
    let seen = |from: u64| {
        let mut seen = Vec::new();
        let see = |note: &tollgate::record::Note| {
            seen.push(note.at - MIDNIGHT);
            std::ops::ControlFlow::Continue(())
        };
        after
            .visit_notes(Topic::Minute, (from, MIDNIGHT + 300), see)
            .unwrap();
        seen.sort_unstable();
        seen
    };
    assert_eq!(seen(MIDNIGHT), [0, 60, 120, 120, 240]);
    assert_eq!(seen(MIDNIGHT + 60), [60, 120, 120, 240]);
    assert_eq!(seen(MIDNIGHT + 201), [240]);
}

#[test]
fn a_folder_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let settings = tollgate::record::Settings {
        folder: Some(folder.path().to_owned()),
        max_bytes: 1 << 30,
    };
    let first = Record::open(&settings).unwrap();
    let second = Record::open(&settings).unwrap_err().to_string();
    assert!(
        second.starts_with("another process writes the record in"),
        "{second}"
    );
    drop(first);
    Record::open(&settings).unwrap();
}

/// What was in memory only while the disk was away may be lost until its hour is a file, whatever was written after it.
#[test]
fn what_is_in_no_journal_outlives_no_crash() {
    let folder = tempfile::tempdir().unwrap();
    let record = open(folder.path());
    let numbers = numbers(&record, 1);
    let journals = folder.path().join("journal");
    let away = folder.path().join("away");
    let live = |seconds: std::ops::Range<u64>| {
        for at in seconds {
            record.add(second(MIDNIGHT + at, &numbers, [1]));
            // It may fail.
            let _ = record.write_pending();
        }
    };
    fs::rename(&journals, &away).unwrap();
    live(0..1_000);
    fs::rename(&away, &journals).unwrap();
    live(1_000..2_000);
    assert!(
        record.durable_until() <= MIDNIGHT,
        "a hundred seconds are in no journal"
    );
    live(2_000..4_000);
    assert!(record.durable_until() >= MIDNIGHT + 3_990);
}
