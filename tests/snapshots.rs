//! What a process leaves to the next: counts that are kept in a folder, through clean stops, crashes, damage
//! and another process in its place.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use common::child::{self, Server, line_with};
use common::{Client, MAX_WAIT, Upstream, assert_contains, ok, wait_until, write};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tollgate::base::clock::{Clock, Nanos};

/// A gateway with one limit by address, which keeps its counts.
fn folder(upstream: &Upstream, rate: &str, store: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let gateway = format!("admin: off\nstore: {{ memory: 4MiB, snapshots: data/counts{store} }}\n");
    let policy =
        format!("match: /**\nupstream: up\nlimits: {{ few: {{ key: ip, rate: {rate} }} }}\n");
    write(&folder, upstream.address, &gateway, &[("all", &policy)]);
    folder
}

fn files(folder: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path().join("data/counts")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Requests one after another until one is refused; how many passed.
fn until_refused(client: &mut Client) -> usize {
    let mut passed = 0;
    loop {
        match client.get("/").status() {
            200 => passed += 1,
            429 => return passed,
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_clean_stop_forgives_nothing() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "100/h", "");
    let mut server = Server::start(folder.path(), false);
    let mut client = server.connect();
    for _ in 0..70 {
        assert_eq!(client.get("/").status(), 200);
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    for path in files(&folder) {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    let mut server = Server::start(folder.path(), false);
    assert_eq!(until_refused(&mut server.connect()), 30);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    // And again, with a larger store and another algorithm.
    let rewrite = |name: &str, from: &str, to: &str| {
        let path = folder.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        fs::write(path, text.replace(from, to)).unwrap();
    };
    rewrite("tollgate.yaml", "4MiB", "9MiB");
    rewrite("policies/all.yaml", "100/h", "110/h, algorithm: gcra");
    let server = Server::start(folder.path(), false);
    assert_eq!(until_refused(&mut server.connect()), 10);
}

/// Asks all the time, until the gateway is gone.
fn ask_on(address: SocketAddr) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut client = Client::connect(address);
        loop {
            client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
            assert_eq!(client.answer().status(), 200);
            // Not so fast that the limit is reached before the crash.
            thread::park_timeout(Duration::from_millis(2));
        }
    })
}

/// When the newest whole snapshot was begun, by the wall clock: its file is made then. `None` without one.
fn newest_began(folder: &TempDir) -> Option<Duration> {
    let whole = files(folder)
        .into_iter()
        .filter(|path| ["a", "b"].map(Some).contains(&extension(path)));
    let made = whole.filter_map(|path| fs::metadata(path).ok()?.created().ok());
    Some(made.max()?.duration_since(UNIX_EPOCH).unwrap())
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

/// A crash after some seconds. How old the newest snapshot was then.
fn crash() -> Duration {
    const QUOTA: usize = 9_000;
    let clock = Clock::system();
    let admitted: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (times, watch) = (admitted.clone(), clock.clone());
    let upstream = Upstream::answering(move |_| {
        times.lock().unwrap().push(watch.wall());
        ok("fine")
    });
    let folder = folder(&upstream, &format!("{QUOTA}/h"), ", every: 1s");
    let mut server = Server::start(folder.path(), false);
    let began = clock.now();
    let clients = [0, 1].map(|_| ask_on(server.address));
    // Several snapshots are whole by then, unless the disk is slow.
    wait_until("three seconds and a half pass", || {
        clock.now().since(began) > Nanos::from_millis(3_500) && newest_began(&folder).is_some()
    });
    let killed = clock.wall();
    server.signal(Signal::KILL);
    assert_eq!(server.ended(), None);
    let gone = clients.map(|client| client.join().is_err());
    assert_eq!(gone, [true, true], "they were asking");
    let before = admitted.lock().unwrap().clone();
    let copied = newest_began(&folder).expect("a whole snapshot");
    let since = before.iter().filter(|at| **at >= copied).count();
    let server = Server::start(folder.path(), false);
    let after = until_refused(&mut server.connect());
    let before = before.len();
    let forgiven = (before + after).saturating_sub(QUOTA);
    let age = killed.saturating_sub(copied);
    println!(
        "{before} before, {since} of them in the {age:?} after the snapshot was begun; {after} after; {forgiven} forgiven"
    );
    assert!(before < QUOTA && before > since, "{before}");
    // What was admitted and did not reach the upstream: one for each client.
    assert!(before + after + 2 >= QUOTA, "nothing is counted twice");
    assert!(forgiven <= since, "{forgiven} of {since}");
    age
}

#[test]
fn a_crash_forgives_what_the_last_second_counted() {
    // Where the disk or the machine is slow, a snapshot is older; three times in a row it is not their fault.
    let old = |age: &Duration| *age > Duration::from_secs(1);
    let ages: Vec<Duration> = (0..3).map(|_| crash()).take_while(old).collect();
    assert!(ages.len() < 3, "{ages:?}");
}

#[test]
fn a_damaged_file_is_put_aside() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "100/h", ", every: 10m");
    let stop = |mut server: Server| {
        server.signal(Signal::TERM);
        assert_eq!(server.ended(), Some(0));
    };
    let server = Server::start(folder.path(), false);
    let mut client = server.connect();
    for _ in 0..60 {
        assert_eq!(client.get("/").status(), 200);
    }
    drop(client);
    stop(server);
    // The one that was written last is the larger; the other was written before anybody had asked.
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    let newest = files(&folder).into_iter().max_by_key(size).unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&newest, bytes).unwrap();
    let mut command = child::command(folder.path(), &["run", "--config", "tollgate.yaml"]);
    let mut process = child::Guard(command.spawn().unwrap());
    let err = child::lines(process.0.stderr.take().unwrap());
    let line = line_with(&err, "is put aside");
    assert_contains(
        &line,
        &[
            "ERROR",
            "the block at byte 20",
            "data/counts/counts.",
            "corrupt-1",
            "Check the disk",
        ],
    );
    let line = line_with(&err, "listening on http://");
    let address = line.rsplit("http://").next().unwrap().parse().unwrap();
    // What the older one knows: nothing.
    assert_eq!(until_refused(&mut Client::connect(address)), 100);
    let aside = |path: &&PathBuf| path.display().to_string().ends_with(".corrupt-1");
    assert_eq!(files(&folder).iter().filter(aside).count(), 1);
}

#[test]
fn another_process_goes_on_counting() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "100/h", ", every: 10m");
    let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let hears = || {
        let mut text = [0; 256];
        let length = manager.recv(&mut text).expect("the manager is told");
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    let mut command = child::command(folder.path(), &["run", "--config", "tollgate.yaml"]);
    command.env("NOTIFY_SOCKET", folder.path().join("notify"));
    let mut server = Server::of(&mut command, false);
    assert_eq!(hears(), "READY=1");
    let mut client = server.connect();
    for _ in 0..60 {
        assert_eq!(client.get("/").status(), 200);
    }
    drop(client);
    server.signal(Signal::USR2);
    assert_eq!(hears(), "READY=1");
    let told = hears();
    let successor = told.strip_prefix("MAINPID=").expect(&told).parse().unwrap();
    let successor = Pid::from_raw(successor).unwrap();
    assert_eq!(server.ended(), Some(0));
    let mut client = server.connect();
    for _ in 0..30 {
        assert_eq!(client.get("/").status(), 200);
    }
    drop(client);
    // It writes in the place of the one before.
    kill_process(successor, Signal::TERM).unwrap();
    // Nobody but the two of them has what they write to.
    while server.err.recv_timeout(MAX_WAIT).is_ok() {}
    let gone = server.err.try_recv();
    assert_eq!(gone, Err(TryRecvError::Disconnected), "it has ended");
    let server = Server::start(folder.path(), false);
    assert_eq!(until_refused(&mut server.connect()), 10);
}

/// A folder that cannot be is no reason to run without it.
#[test]
fn a_folder_that_cannot_be_used_is_said() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "100/h", "");
    fs::write(folder.path().join("data"), "a file").unwrap();
    let ended = child::run(folder.path(), &["run", "--config", "tollgate.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_contains(
        &ended.err,
        &[
            "data/counts` cannot be used for snapshots",
            "choose another with `snapshots`",
        ],
    );
    let check = || child::run(folder.path(), &["check", "--config", "tollgate.yaml"]);
    let ended = check();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_contains(&ended.err, &["data/counts"]);
    fs::remove_file(folder.path().join("data")).unwrap();
    assert_contains(
        &check().out,
        &["a crash forgives at most what was counted in the last 10s"],
    );
}
