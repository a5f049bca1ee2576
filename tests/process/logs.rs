//! The access log's file while others move it away.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use flate2::read::GzDecoder;
use rustix::process::Signal;

use super::common::child::Server;
use super::common::{Upstream, soon};
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
        soon("lines are written", || text(&log).len() > 20_000);
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
