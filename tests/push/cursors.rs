//! What a destination has, on the disk.

use std::fs;

use tollgate::record::push::cursor::{CounterCursor, Cursor};

fn cursor() -> Cursor {
    let counter = |base_count, delivered_value, attempted_value: Option<u64>| CounterCursor {
        base_count,
        delivered_value,
        was_delivered: delivered_value > 0,
        attempted_value,
    };
    Cursor {
        delivered_until: 1_700_000_015,
        attempted_until: 1_700_000_030,
        counted_since: 1_600_000_000,
        base_until: 1_699_999_200,
        counters: [
            (0, counter(1, 2, None)),
            (7, counter(0, 0, Some(300))),
            (u32::MAX, counter(u64::MAX, 3, Some(0))),
        ]
        .into(),
    }
}

#[test]
fn what_is_kept_is_found() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Cursor::load(folder.path(), "a").unwrap(), None);
    for delivered_until in [1, 1_700_000_015] {
        let cursor = Cursor {
            delivered_until,
            ..cursor()
        };
        cursor.save(folder.path(), "a").unwrap();
        assert_eq!(Cursor::load(folder.path(), "a").unwrap(), Some(cursor));
    }
    assert_eq!(Cursor::load(folder.path(), "b").unwrap(), None);
}

/// A crash in the middle of writing leaves the one before.
#[test]
fn what_is_not_whole_is_in_no_place() {
    let folder = tempfile::tempdir().unwrap();
    cursor().save(folder.path(), "a").unwrap();
    let bytes = fs::read(folder.path().join("a")).unwrap();
    for length in 0..bytes.len() {
        fs::write(folder.path().join(".a"), &bytes[..length]).unwrap();
        assert_eq!(Cursor::load(folder.path(), "a").unwrap(), Some(cursor()));
        cursor().save(folder.path(), "a").unwrap();
    }
}

#[test]
fn what_is_damaged_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    cursor().save(folder.path(), "a").unwrap();
    let bytes = fs::read(&path).unwrap();
    for place in 0..bytes.len() {
        fs::write(&path, &bytes[..place]).unwrap();
        assert!(Cursor::load(folder.path(), "a").is_err(), "cut at {place}");
        let mut other = bytes.clone();
        other[place] ^= 1 << (place % 8);
        fs::write(&path, &other).unwrap();
        assert!(
            Cursor::load(folder.path(), "a").is_err(),
            "changed at {place}"
        );
    }
}
