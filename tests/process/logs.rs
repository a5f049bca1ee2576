//! The access log's file while others move it away.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::Receiver;

use flate2::read::GzDecoder;
use rustix::process::Signal;

use super::common::child::{self, Server};
use super::common::{Upstream, assert_contains, wait_until};
use super::{Load, folder, text};

/// How often each target stands in all the files of a log, compressed or not.
fn logged(folder: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.starts_with("access.log") {
            continue;
        }
        let text = match name.ends_with(".gz") {
            true => {
                let file = fs::File::open(&path).unwrap();
                std::io::read_to_string(GzDecoder::new(file)).unwrap()
            }
            false => text(&path),
        };
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            let target = line["target"].as_str().unwrap().to_owned();
            *found.entry(target).or_default() += 1;
        }
    }
    found
}

#[track_caller]
fn all_there_once(folder: &Path, sent: &[u64]) {
    let found = logged(folder);
    let expected = sent.iter().enumerate().flat_map(|(client, sent)| {
        (0..*sent).map(move |number| (format!("/{client}/{number}"), 1))
    });
    let lacking: Vec<_> = expected
        .filter(|(target, times)| found.get(target) != Some(times))
        .collect();
    assert!(lacking.is_empty(), "{} of {sent:?}", lacking.len());
    assert_eq!(found.values().sum::<u64>(), sent.iter().sum::<u64>());
}

/// What cannot be put aside is told at the start, not when the file is full.
#[test]
fn a_folder_that_takes_no_other_file_is_a_mistake_at_the_start() {
    let upstream = Upstream::plain();
    let log = "access_log: { file: /proc/self/comm, rotate: { size: 1MiB, keep: 2 } }\n";
    let folder = folder(&upstream, &format!("admin: off\n{log}"));
    let ended = child::run(folder.path(), &["run", "--config", "tollgate.yaml"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_contains(
        &ended.err,
        &["cannot open the access log", "`/proc/self`", "rotate"],
    );
}

/// As Debian's package for nginx has it: rename, signal, compress at once.
#[test]
fn logrotate_under_load_loses_no_line() {
    const TURNS: u64 = 10;
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\naccess_log: access.log\n");
    let mut server = Server::start(folder.path(), false);
    let rules = format!(
        "{}/access.log {{\n rotate 100\n compress\n missingok\n postrotate\n  kill -USR1 {}\n endscript\n}}\n",
        folder.path().display(),
        server.id()
    );
    let rules_file = folder.path().join("rules");
    fs::write(&rules_file, rules).unwrap();
    let load = Load::start(&server);
    let log = folder.path().join("access.log");
    for turn in 1..=TURNS {
        wait_until("lines are written", || text(&log).len() > 20_000);
        let logrotate = Command::new("/usr/sbin/logrotate")
            .arg("--force")
            .arg("--state")
            .arg(folder.path().join("state"))
            .arg(&rules_file)
            .output()
            .unwrap();
        assert!(logrotate.status.success(), "{logrotate:?}");
        let old = folder.path().join(format!("access.log.{turn}.gz"));
        assert!(old.exists(), "{turn}");
    }
    let sent = load.end();
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    all_there_once(folder.path(), &sent);
}

#[test]
fn the_gateway_puts_its_log_aside_and_loses_no_line() {
    const SIZE: u64 = 32 * 1024;
    let upstream = Upstream::plain();
    let gateway =
        "admin: off\naccess_log: { file: access.log, rotate: { size: 32KiB, keep: 1000 } }\n";
    let folder = folder(&upstream, gateway);
    let mut server = Server::start(folder.path(), false);
    let load = Load::start(&server);
    let tenth = folder.path().join("access.log.10");
    wait_until("ten files are full", || tenth.exists());
    let sent = load.end();
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    all_there_once(folder.path(), &sent);
    // What a worker collects in a tenth of a second is written at once, and is longer here or there.
    let pieces = 64 * 1024;
    for number in 1..=10 {
        let file = folder.path().join(format!("access.log.{number}"));
        assert!(file.metadata().unwrap().len() <= SIZE.max(pieces + 4096));
    }
}

/// Words that say that there is to be none, or which stream it is, make no file or folder of their name.
#[test]
fn words_mean_what_they_say() {
    let upstream = Upstream::plain();
    let entries = |folder: &Path| {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for (setting, out, err) in [
        ("access_log: false", false, false),
        ("access_log: no", false, false),
        ("access_log: none", false, false),
        ("access_log: off", false, false),
        ("access_log: \"-\"", true, false),
        ("access_log: true", true, false),
        ("access_log: { file: stdout }", true, false),
        ("access_log: stderr", false, true),
        ("access_log: { file: stderr }", false, true),
        ("access_log: off\nrecord: false", false, false),
        ("access_log: off\nrecord: no", false, false),
        ("access_log: off\nrecord: true", false, false),
        ("access_log: off\nstore: { snapshots: false }", false, false),
    ] {
        let folder = folder(&upstream, &format!("admin: no\n{setting}\n"));
        let mut server = Server::start(folder.path(), false);
        assert_eq!(server.connect().get("/here").status(), 200);
        server.signal(Signal::TERM);
        assert_eq!(server.ended(), Some(0));
        let logged = |lines: &Receiver<String>| lines.iter().any(|line| line.contains("/here"));
        assert_eq!(
            (logged(&server.out), logged(&server.err)),
            (out, err),
            "{setting}"
        );
        assert_eq!(
            entries(folder.path()),
            ["policies", "tollgate.yaml"],
            "{setting}"
        );
    }
}

/// What is filled into the configuration, and what is written there as a password, is nowhere to be read.
#[test]
fn secrets_are_nowhere_shown() {
    let upstream = Upstream::plain();
    let gateway = "admin: 127.0.0.1:0\nstore: \"redis://tollgate:${env:TOLLGATE_TEST_SECRET}@127.0.0.1:1\"\n\
        record: { push: [{ to: prometheus, url: \"http://127.0.0.1:1/${file:secret}\", every: 1s }] }\n";
    let folder = folder(&upstream, gateway);
    fs::write(folder.path().join("secret"), "sesame-of-push\n").unwrap();
    let command = |verb: &str| {
        let arguments = [verb, "--config", "tollgate.yaml"];
        let mut command = child::command(folder.path(), &arguments);
        command.env("TOLLGATE_TEST_SECRET", "sesame-of-store");
        command
    };
    let check = child::finish(&mut command("check"));
    assert_eq!(check.code, Some(0), "{check:?}");
    let mut server = Server::of(&mut command("run"), true);
    assert_eq!(server.connect().get("/").status(), 200);
    wait_until("the engine is away", || {
        server
            .ask("GET", "/v1/status", "")
            .text()
            .contains("127.0.0.1:1/${file:secret}")
    });
    let mut said = format!("{check:?}{:?}", server.early);
    for path in [
        "/v1/status",
        "/v1/policies",
        "/v1/limits",
        "/v1/upstreams",
        "/readyz",
        "/metrics",
        "/v1/record/events",
        "/",
    ] {
        said += &server.ask("GET", path, "").text();
    }
    said += &server.ask("POST", "/v1/reload", "").text();
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    said.extend(server.err.iter());
    assert!(said.contains("${env:TOLLGATE_TEST_SECRET}"), "{said}");
    assert!(!said.contains("sesame"), "{said}");
}
