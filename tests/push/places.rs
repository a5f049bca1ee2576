//! A destination alone, without a gateway around it: what it has when its task panics, and what is told while it catches up.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};

use tempfile::TempDir;
use tollgate::base::clock::Clock;
use tollgate::base::telemetry::Registry;
use tollgate::record::push::cursor::Cursor;
use tollgate::record::push::{Engine, LiveSeries, PushContext, Pusher, Settings};
use tollgate::record::{self, Record, Second, Series, SeriesKind};

use crate::common::{MAX_WAIT, Upstream, status, wait_until};

/// Seconds that are recorded and not sent.
const BEHIND: u64 = 3_000;

fn series() -> Series {
    Series {
        name: "n_total".into(),
        labels: Vec::new(),
        kind: SeriesKind::Counter,
        decimals: 0,
    }
}

/// A record of the last seconds, and a cursor in front of them.
fn record(folder: &TempDir, now: u64) -> (Record, PathBuf) {
    let path = folder.path().join("record");
    let settings = record::Settings {
        folder: Some(path.clone()),
        max_bytes: 1 << 30,
    };
    let record = Record::open(&settings).unwrap();
    let number = record.number_of(&series()).unwrap();
    for at in now - BEHIND..now {
        record.add(Second {
            at,
            values: vec![(number, 1)],
        });
        record.write_pending().unwrap();
    }
    let cursor = Cursor {
        delivered_until: now - BEHIND,
        counted_since: now - BEHIND,
        ..Cursor::default()
    };
    std::fs::create_dir_all(path.join("push")).unwrap();
    cursor.save(&path.join("push"), "alone").unwrap();
    (record, path)
}

fn push(receiver: &Upstream, folder: &TempDir, live_series: LiveSeries) -> Pusher {
    let clock = Clock::system();
    let (record, path) = record(folder, clock.wall().as_secs());
    let url = format!("http://{}/api/v1/write", receiver.address);
    let settings = Settings {
        name: "alone".into(),
        engine: Engine::Prometheus,
        url: url.parse().unwrap(),
        display_url: url,
        step_seconds: 1,
        token: None,
        roots: None,
        labels: Vec::new(),
    };
    let context = PushContext {
        settings: vec![settings],
        record: Arc::new(OnceLock::from(record)),
        folder: Some(path),
        live_series,
        clock,
        registry: Registry::default(),
        seed: 1,
    };
    Pusher::start(context).unwrap()
}

fn living() -> BTreeSet<Series> {
    [series()].into()
}

#[test]
fn a_destination_whose_task_panics_is_begun_again() {
    let (folder, receiver) = (
        tempfile::tempdir().unwrap(),
        Upstream::answering(|_| status(204)),
    );
    let first = AtomicBool::new(true);
    let once = move || {
        assert!(!first.swap(false, Ordering::Relaxed), "for once");
        living()
    };
    let push = push(&receiver, &folder, Arc::new(once));
    wait_until("it is told", || {
        push.statuses()[0].last_error.contains("panicked") || push.statuses()[0].sent_samples > 0
    });
    wait_until("all is sent", || {
        push.statuses()[0].sent_samples + 10 > BEHIND
    });
    assert_eq!(push.statuses()[0].last_error, "");
    push.finish();
}

/// Answers a request whenever it is told to.
fn patient() -> (Upstream, Receiver<()>, Sender<()>) {
    let (came, seen) = channel();
    let (go, gone) = channel();
    let gone = Arc::new(Mutex::new(gone));
    let receiver = Upstream::scripted(move |mut served, _| {
        while served.request().is_ok() {
            let _ = came.send(());
            if gone.lock().unwrap().recv().is_err() {
                return;
            }
            served.send(status(204));
        }
    });
    (receiver, seen, go)
}

#[test]
fn how_far_behind_it_is_is_told_while_it_catches_up() {
    let folder = tempfile::tempdir().unwrap();
    let (receiver, seen, go) = patient();
    let push = push(&receiver, &folder, Arc::new(living));
    let mut told = Vec::new();
    for _ in 0..3 {
        seen.recv_timeout(MAX_WAIT).unwrap();
        told.push(push.statuses()[0].behind_seconds);
        go.send(()).unwrap();
    }
    assert!(told[0] >= BEHIND && told[0] < BEHIND + 60, "{told:?}");
    assert!(told[2] + 1_000 < told[0], "{told:?}");
    drop(go);
    push.finish();
}
