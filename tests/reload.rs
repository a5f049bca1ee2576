//! Reloads under load: no request fails and no count is lost, whichever way the reload is asked for.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use common::child::{Server, line_with};
use common::{Client, Gate, Gateway, Upstream, ok, wait_until, write};
use rustix::process::Signal;
use tempfile::TempDir;
use tollgate::app::Error;

const THREADS: usize = 8;
const RELOADS: usize = 100;
/// What the steady limit admits in an hour.
const STEADY: u64 = 700;

/// Requests that reached the upstream, by path.
#[derive(Clone, Default)]
struct Counts {
    steady: Arc<AtomicU64>,
    edited: Arc<AtomicU64>,
    other: Arc<AtomicU64>,
}

impl Counts {
    fn upstream(&self) -> Upstream {
        let counts = self.clone();
        Upstream::answering(move |request| {
            let count = match request.start.as_str() {
                "GET /steady HTTP/1.1" => &counts.steady,
                "GET /edited HTTP/1.1" => &counts.edited,
                _ => &counts.other,
            };
            count.fetch_add(1, Ordering::SeqCst);
            ok("fine")
        })
    }
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::SeqCst)
}

/// Clients that ask without a pause, each over one connection, until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    threads: Vec<JoinHandle<BTreeMap<u16, u64>>>,
}

impl Load {
    fn start(address: SocketAddr, paths: &'static [&'static str]) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicU64::new(0));
        let client = |number| {
            let (stop, asked) = (stop.clone(), asked.clone());
            thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut answers = BTreeMap::new();
                for turn in number.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let answer = client.get(paths[turn % paths.len()]);
                    *answers.entry(answer.status()).or_default() += 1;
                    asked.fetch_add(1, Ordering::SeqCst);
                }
                answers
            })
        };
        let threads = (0..THREADS).map(client).collect();
        Load {
            stop,
            asked,
            threads,
        }
    }

    /// Waits until so many more answers have come.
    fn goes_on(&self, answers: u64) {
        let until = read(&self.asked) + answers;
        wait_until("answers come", || read(&self.asked) >= until);
    }

    /// Answers by status. A client whose connection broke has panicked, and so does this.
    fn end(self) -> BTreeMap<u16, u64> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = BTreeMap::new();
        for thread in self.threads {
            let answers = thread
                .join()
                .expect("every request was answered on one connection");
            assert!(answers.values().sum::<u64>() > 0, "every client asked");
            for (status, count) in answers {
                *all.entry(status).or_default() += count;
            }
        }
        all
    }
}

/// Two limits on one route: the steady one, and one beside it that is edited.
fn steady(beside: u64) -> String {
    format!(
        "match: GET /steady\nupstream: up\nlimits:\n  steady: {{ key: ip, rate: {STEADY}/h }}\n  \
         beside: {{ key: ip, rate: {beside}/h }}\n"
    )
}

fn edited(quota: u64) -> String {
    format!("match: GET /edited\nupstream: up\nlimits:\n  edited: {{ key: ip, rate: {quota}/h }}\n")
}

fn route(path: &str) -> String {
    format!("match: GET {path}\nupstream: up\n")
}

fn timeouts(turn: usize) -> String {
    format!("timeouts: {{ idle: 1h, first_byte: {}s }}\n", 50 + turn)
}

/// Writes one policy of a folder anew, or removes it. Writing into the file that is there would wait
/// for the disk each time.
fn anew(folder: &TempDir, name: &str, text: Option<&str>) {
    let path = folder.path().join("policies").join(format!("{name}.yaml"));
    // It may not be there yet.
    let _ = std::fs::remove_file(path);
    if text.is_some() {
        policy(folder, name, text);
    }
}

/// Writes one policy of a folder, or removes it.
fn policy(folder: &TempDir, name: &str, text: Option<&str>) {
    let path = folder.path().join("policies").join(format!("{name}.yaml"));
    match text {
        Some(text) => std::fs::write(path, text).unwrap(),
        None => std::fs::remove_file(path).unwrap(),
    }
}

#[test]
fn a_hundred_reloads_under_load() {
    let counts = Counts::default();
    let upstream = counts.upstream();
    let policies = [("steady", steady(900)), ("edited", edited(10))];
    let policies = policies.each_ref().map(|(n, t)| (*n, t.as_str()));
    let gateway = Gateway::start(upstream.address, &timeouts(0), &policies);
    let load = Load::start(gateway.address, &["/steady", "/edited"]);
    let mut client = gateway.connect();
    let (mut there, mut refused, mut highest) = (false, 0, 10);
    for turn in 1..=RELOADS {
        load.goes_on(20);
        if turn % 10 == 0 {
            // A mistake: what runs stays as it is, and answers as before.
            anew(&gateway.folder, "edited", Some("mtach: GET /edited\n"));
            assert!(matches!(gateway.reload(), Err(Error::Policy(_))));
            refused += 1;
            let status = client.get("/added").status();
            assert_eq!(status, if there { 200 } else { 404 });
            continue;
        }
        // Up and down by turns, from 10 to 309; the one beside now and then refuses all.
        let quota = (turn as u64 * 137) % 300 + 10;
        highest = highest.max(quota);
        anew(&gateway.folder, "edited", Some(&edited(quota)));
        let beside = if turn % 3 == 0 { 1 } else { 800 + quota };
        anew(&gateway.folder, "steady", Some(&steady(beside)));
        if turn % 2 == 0 {
            anew(&gateway.folder, "added", Some(&route("/added")));
            there = true;
        } else if there {
            anew(&gateway.folder, "added", None);
            there = false;
        }
        if turn % 7 == 0 {
            std::fs::remove_file(gateway.folder.path().join("tollgate.yaml")).unwrap();
            write(&gateway.folder, upstream.address, &timeouts(turn), &[]);
        }
        let reloaded = gateway
            .reload()
            .unwrap_or_else(|e| panic!("reload {turn}: {e}"));
        assert!(
            reloaded.needs_restart.is_empty(),
            "{:?}",
            reloaded.needs_restart
        );
        let status = client.get("/added").status();
        assert_eq!(status, if there { 200 } else { 404 }, "reload {turn}");
        assert!(read(&counts.steady) <= STEADY, "reload {turn}");
        assert!(read(&counts.edited) <= highest, "reload {turn}");
    }
    assert_eq!(refused, RELOADS / 10);
    anew(&gateway.folder, "steady", Some(&steady(1000)));
    anew(&gateway.folder, "edited", Some(&edited(highest)));
    gateway.reload().unwrap();
    wait_until("all are used up", || read(&counts.steady) >= STEADY);
    wait_until("all are used up", || read(&counts.edited) >= highest);
    load.goes_on(2000);
    let answers = load.end();
    assert!(
        answers.keys().all(|status| matches!(status, 200 | 429)),
        "{answers:?}"
    );
    let [steady, edited] = [&counts.steady, &counts.edited].map(|c| read(c));
    assert_eq!(steady, STEADY, "no count was lost");
    assert_eq!(edited, highest, "no count was lost");
    assert_eq!(answers[&200], steady + edited);
}

#[test]
fn a_lowered_quota_admits_nothing_more_and_a_raised_one_the_rest() {
    let counts = Counts::default();
    let upstream = counts.upstream();
    let gateway = Gateway::start(upstream.address, &timeouts(0), &[("edited", &edited(20))]);
    let load = Load::start(gateway.address, &["/edited"]);
    let set = |quota| {
        anew(&gateway.folder, "edited", Some(&edited(quota)));
        gateway.reload().unwrap();
    };
    let mut most = 20;
    for turn in 0..RELOADS as u64 / 2 {
        wait_until("all are used up", || read(&counts.edited) == most);
        // Half, one less, or just one.
        set([most / 2, most - 1, 1][turn as usize % 3]);
        load.goes_on(100);
        assert_eq!(read(&counts.edited), most, "lowered {turn} times");
        // Up to 970: as long as every one of them is remembered.
        most += 1 + turn % 37;
        set(most);
        wait_until("the rest are admitted", || read(&counts.edited) >= most);
        load.goes_on(100);
        assert_eq!(read(&counts.edited), most, "raised {turn} times");
    }
    assert_eq!(load.end()[&200], most);
}

/// What a changed policy makes count from nothing is named. The store need not be there for that.
#[test]
fn counts_that_begin_anew_are_named() {
    let upstream = Counts::default().upstream();
    let alone = |rest: &str| format!("match: /**\nupstream: up\nlimits: {{ l: {{ {rest} }} }}\n");
    let check = |store: &str, before: &str, after: &str, named: Option<&str>| {
        let gateway = Gateway::start(upstream.address, store, &[("one", &alone(before))]);
        anew(&gateway.folder, "one", Some(&alone(after)));
        let notes = gateway.reload().unwrap().warnings;
        let notes: Vec<_> = notes.iter().map(|note| note.message.clone()).collect();
        let named = named.map(|cause| format!("counts of `l` begin anew: {cause}"));
        let notes = notes.into_iter().filter(|note| note.contains("begin anew"));
        assert_eq!(
            notes.collect::<Vec<_>>(),
            Vec::from_iter(named),
            "{before} to {after}"
        );
    };
    let shared = "store: redis://127.0.0.1:1\n";
    // A number changes nothing else, but for the one from which on buckets are the default.
    check(shared, "key: ip, rate: 100/h", "key: ip, rate: 10/h", None);
    check(shared, "key: ip, rate: 10/s", "key: ip, rate: 100/s", None);
    let buckets = "its algorithm is sliding-log, no longer sliding-window";
    check(
        shared,
        "key: ip, rate: 2000/h",
        "key: ip, rate: 10/h",
        Some(buckets),
    );
    let windows = "its windows or what it lends are others, and the store counts by them";
    check(
        shared,
        "key: ip, rate: 10/h",
        "key: ip, rate: 10/d",
        Some(windows),
    );
    let sharing = "`sharing` is strict, no longer leased";
    let strict = "key: ip, rate: 10/h, sharing: strict";
    check(shared, "key: ip, rate: 10/h", strict, Some(sharing));
    // What a gateway counts itself is converted, but not to other keys.
    check("", "key: ip, rate: 2000/h", "key: ip, rate: 10/d", None);
    let tokens = "identity: { token: { header: x-api-key } }\n";
    let key = "it counts by token, no longer by ip";
    check(
        tokens,
        "key: ip, rate: 10/h",
        "key: token, rate: 10/h",
        Some(key),
    );
}

#[test]
fn requests_under_way_finish_by_what_they_began_with() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            let slow = request.start.contains("/slow");
            report(request);
            if slow {
                held.pass();
                served.send(ok("late"));
            }
        }
    });
    let gateway = Gateway::start(upstream.address, "", &[("slow", &route("/slow"))]);
    let mut client = gateway.connect();
    client.send("GET /slow HTTP/1.1\r\nhost: t\r\n\r\n");
    upstream.next();
    policy(&gateway.folder, "slow", None);
    policy(&gateway.folder, "other", Some(&route("/other")));
    let gateway_file = "upstreams: { up: { servers: [\"http://{upstream}\"], \
                        timeouts: { first_byte: 100ms } } }\n";
    write(&gateway.folder, upstream.address, gateway_file, &[]);
    gateway.reload().unwrap();
    // The new timeout is over for a request that came after the reload; not for the one before.
    let shorter = gateway.connect().get("/other").status();
    assert_eq!(shorter, 504, "the new timeout holds for the next request");
    gate.open();
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "late"));
    assert_eq!(client.get("/slow").status(), 404, "the connection goes on");
}

/// A child with the edited limit at 5, all of it used up, and load on it.
fn child(counts: &Counts, upstream: SocketAddr, folder: &TempDir) -> (Server, Load) {
    write(
        folder,
        upstream,
        "admin: off\ntimeouts: { idle: 1h }\n",
        &[("edited", &edited(5))],
    );
    let server = Server::start(folder.path(), false);
    let load = Load::start(server.address, &["/edited"]);
    wait_until("all are used up", || read(&counts.edited) == 5);
    (server, load)
}

fn only_good_answers(load: Load, admitted: u64) {
    load.goes_on(200);
    let answers = load.end();
    let kinds: Vec<u16> = answers.keys().copied().collect();
    assert_eq!(kinds, [200, 429]);
    assert_eq!(answers[&200], admitted);
}

#[test]
fn sighup_reloads() {
    let (counts, folder) = (Counts::default(), tempfile::tempdir().unwrap());
    let upstream = counts.upstream();
    let (server, load) = child(&counts, upstream.address, &folder);
    let mut client = server.connect();
    assert_eq!(client.get("/added").status(), 404);

    anew(&folder, "added", Some(&route("/added")));
    anew(&folder, "edited", Some(&edited(8)));
    server.signal(Signal::HUP);
    line_with(&server.err, "policies reloaded cause=\"SIGHUP\"");
    assert_eq!(client.get("/added").status(), 200);
    wait_until("the rest are admitted", || read(&counts.edited) == 8);

    anew(
        &folder,
        "edited",
        Some("match: GET /edited\nupstream: pu\n"),
    );
    server.signal(Signal::HUP);
    let refused = "reload refused; the policies before still run cause=\"SIGHUP\"";
    line_with(&server.err, refused);
    line_with(&server.err, "edited.yaml:2:11: there is no upstream `pu`");
    line_with(&server.err, "help: did you mean `up`?");
    assert_eq!(client.get("/added").status(), 200, "what ran runs");

    anew(&folder, "edited", Some(&edited(8)));
    anew(&folder, "added", None);
    server.signal(Signal::HUP);
    line_with(&server.err, "policies reloaded cause=\"SIGHUP\"");
    assert_eq!(client.get("/added").status(), 404);
    only_good_answers(load, 8);
}

#[test]
fn a_changed_file_is_noticed() {
    let (counts, folder) = (Counts::default(), tempfile::tempdir().unwrap());
    let upstream = counts.upstream();
    let (server, load) = child(&counts, upstream.address, &folder);
    let mut client = server.connect();
    let noticed = "policies reloaded cause=\"a changed file\"";

    policy(&folder, "edited", Some(&edited(9)));
    line_with(&server.err, noticed);
    wait_until("the rest are admitted", || read(&counts.edited) == 9);
    // As editors do it: a new file takes the place of the old one.
    let new = folder.path().join("policies/.edited.yaml.swp");
    std::fs::write(&new, edited(12)).unwrap();
    std::fs::rename(new, folder.path().join("policies/edited.yaml")).unwrap();
    line_with(&server.err, noticed);
    wait_until("the rest are admitted", || read(&counts.edited) == 12);

    policy(&folder, "added", Some(&route("/added")));
    line_with(&server.err, noticed);
    assert_eq!(client.get("/added").status(), 200);

    policy(
        &folder,
        "edited",
        Some("match: GET /edited\nupstreem: up\n"),
    );
    let refused = "reload refused; the policies before still run cause=\"a changed file\"";
    line_with(&server.err, refused);
    line_with(&server.err, "help: did you mean `upstream`?");
    assert_eq!(client.get("/added").status(), 200, "what ran runs");

    policy(&folder, "edited", Some(&edited(12)));
    line_with(&server.err, noticed);
    policy(&folder, "added", None);
    line_with(&server.err, noticed);
    assert_eq!(client.get("/added").status(), 404);
    only_good_answers(load, 12);
}
