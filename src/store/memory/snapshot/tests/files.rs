//! The files of a folder, and the clock that continues after the newest of them.

use super::*;

#[test]
fn clocks_go_on() {
    let settings = |folder: &std::path::Path| Settings {
        folder: folder.join("counts"),
        interval: Settings::DEFAULT_INTERVAL,
    };
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let found = || SavedCounts::newest(&settings).unwrap();
    assert!(found().is_none());
    let write = |wall| {
        let memory = MemoryStore::new(store::Settings {
            budget_bytes: 1 << 20,
        })
        .unwrap();
        let kept = folder::SnapshotFolder::new(&settings.folder).unwrap();
        let copy = |number, out| {
            copy::write_snapshot(
                &memory,
                out,
                number,
                [3; 16],
                &Clock::manual(wall),
                |_, _| true,
            )
        };
        kept.write(copy).unwrap();
    };
    // A manual clock is its own wall clock.
    write(START);
    let hour = Nanos::from_secs(3_600);
    let clock = found().unwrap().clock(Clock::manual(START.after(hour)));
    assert_eq!(clock.now(), START.after(hour), "an hour later");
    let clock = found().unwrap().clock(Clock::manual(Nanos::from_secs(5)));
    assert_eq!(clock.now(), START, "the wall clock was set back");
    let later = found().unwrap().clock(Clock::manual(Nanos(u64::MAX)));
    assert_eq!(later.now(), Nanos(u64::MAX), "a manual clock only moves on");
    // The newer one counts, and the older one when that is damaged.
    write(START.after(hour));
    assert_eq!(found().unwrap().end.now, START.after(hour));
    let path = found().unwrap().path;
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(found().unwrap().end.now, START);
    assert!(!path.exists());
    let aside = format!("{}.corrupt-1", path.display());
    assert!(std::path::Path::new(&aside).exists());
    for _ in 0..9 {
        std::fs::write(&path, b"nothing of ours").unwrap();
        assert_eq!(found().unwrap().end.now, START);
    }
    let files = std::fs::read_dir(&settings.folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.contains("corrupt")).count(), 4);
}
