//! What operators do to a gateway, by accident or because the machine lets them down: a second one
//! on the same port, silent probes, broken links, full disks, readers that leave.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, pipe};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::Receiver;

use common::child::{self, Ended, Guard, Server, line_with};
use common::{Client, Upstream, assert_contains, wait_until, write};
use rustix::process::Signal;
use tempfile::TempDir;

const API: &str = "match: GET /api/**\nupstream: up\n";

/// A folder with a configuration of one route.
fn folder(upstream: &Upstream, gateway: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream.address, gateway, &[("api", API)]);
    folder
}

/// Runs to the end and checks the exit code.
#[track_caller]
fn run(folder: &Path, arguments: &[&str], code: i32) -> Ended {
    let ended = child::run(folder, arguments);
    assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:#?}");
    ended
}

/// The binary behind a line of the shell, where `"$0"` stands for it.
fn shell(folder: &Path, line: &str) -> Command {
    let arguments = ["-c", line, env!("CARGO_BIN_EXE_tollgate")];
    child::program("sh", folder, &arguments)
}

/// A gateway started by any command.
struct Started {
    child: Guard,
    err: Receiver<String>,
    /// Where clients connect.
    client: SocketAddr,
}

impl Started {
    fn new(mut command: Command) -> Started {
        let mut child = Guard(command.spawn().unwrap());
        let err = child::lines(child.0.stderr.take().unwrap());
        let client = address(&err, "listening on http://");
        Started { child, err, client }
    }
}

fn address(err: &Receiver<String>, text: &str) -> SocketAddr {
    let line = line_with(err, text);
    line.rsplit("http://").next().unwrap().parse().unwrap()
}

#[test]
fn silent_operators_starve_no_client_and_are_let_go() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: 127.0.0.1:0\n");
    let command = shell(folder.path(), "ulimit -n 128 && exec \"$0\" run");
    let mut server = Started::new(command);
    let admin = address(&server.err, "admin on http://");
    let mut silent: Vec<Client> = (0..150)
        .map(|_| {
            let mut client = Client::connect(admin);
            client.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n");
            client
        })
        .collect();
    let mut client = Client::connect(server.client);
    assert_eq!(client.get("/api/x").status(), 200);
    // Ended by the gateway, long before the client's patience.
    let mut answer = Vec::new();
    let ended = silent[0].reader.read_to_end(&mut answer);
    // A reset, where what was sent had not been read.
    let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    assert!(ended.as_ref().is_ok_and(|read| *read == 0) || ended.as_ref().is_err_and(reset));
    drop(silent);
    let mut operator = Client::connect(admin);
    operator.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(operator.answer().status(), 200);
    server.child.signal(Signal::TERM);
    assert_eq!(server.child.ended().code(), Some(0));
}

#[test]
fn a_second_gateway_on_the_same_address_does_not_start() {
    let upstream = Upstream::plain();
    let first = folder(&upstream, "admin: 127.0.0.1:0\n");
    let mut server = Server::start(first.path(), true);
    let admin = server.admin.unwrap();
    let taken = [
        (format!("admin: {admin}\n"), admin.to_string(), "`admin`"),
        (
            "admin: off\n".to_owned(),
            server.address.to_string(),
            "`listen`",
        ),
    ];
    for (gateway, address, setting) in taken {
        let second = folder(&upstream, &gateway);
        if setting == "`listen`" {
            listen_on(&second, &address);
        }
        let ended = run(second.path(), &["run"], 1);
        let named = format!("cannot listen on {address}: address in use");
        assert_contains(&ended.err, &[&named, "another gateway", setting]);
        assert!(!ended.err.contains("listening on"), "{}", ended.err);
    }
    // The first one's connections, closed by it, are no obstacle.
    let mut client = server.connect();
    assert_eq!(client.get("/api/x").status(), 200);
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
    listen_on(&first, &server.address.to_string());
    let again = Server::start(first.path(), true);
    assert_eq!(again.connect().get("/api/x").status(), 200);
}

fn listen_on(folder: &TempDir, address: &str) {
    let file = folder.path().join("tollgate.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("listen: 127.0.0.1:0", &format!("listen: {address}"));
    fs::write(&file, text).unwrap();
}

const LIMITED: &str = "match: GET /login\nupstream: up\nlimits:\n  tries: { key: ip, rate: 1/h }\n";

#[test]
fn a_policy_behind_a_broken_link_takes_no_limit_away() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: 127.0.0.1:0\n");
    let login = folder.path().join("policies/login.yaml");
    fs::write(&login, LIMITED).unwrap();
    let server = Server::start(folder.path(), true);
    let mut client = server.connect();
    assert_eq!(client.get("/login").status(), 200);
    assert_eq!(client.get("/login").status(), 429);
    fs::remove_file(&login).unwrap();
    symlink("gone.txt", &login).unwrap();
    let answer = server.ask("POST", "/v1/reload", "");
    assert_eq!(answer.status(), 422, "{}", answer.text());
    assert_contains(
        &answer.text(),
        &["policies/login.yaml", "a link that leads to no file"],
    );
    assert_eq!(client.get("/login").status(), 429);
}

#[test]
fn policies_that_cannot_be_read_are_mistakes() {
    type Make = fn(&Path);
    let cases: [(&[u8], Make, &[&str]); 8] = [
        (
            b"a.yaml",
            |at| symlink("gone", at).unwrap(),
            &["policies/a.yaml:1:1", "remove it"],
        ),
        (
            b"a.yaml",
            |at| symlink("a.yaml", at).unwrap(),
            &["policies/a.yaml:1:1", "remove it"],
        ),
        (
            b"a.yaml",
            |at| fs::create_dir(at).unwrap(),
            &["policies/a.yaml:1:1", "it is a folder"],
        ),
        (
            b"a.yml",
            |at| symlink("gone", at).unwrap(),
            &["`a.yml`", "remove it"],
        ),
        (
            b"a.yml",
            |at| fs::create_dir(at).unwrap(),
            &["`a.yml`", "remove it"],
        ),
        (
            b"LOGIN.YAML",
            |at| fs::write(at, LIMITED).unwrap(),
            &["`LOGIN.YAML`", "rename it"],
        ),
        (
            b"Login.Yml",
            |at| fs::write(at, LIMITED).unwrap(),
            &["`Login.Yml`", "rename it"],
        ),
        (
            b"caf\xe9.yaml",
            |at| fs::write(at, LIMITED).unwrap(),
            &["caf", ".yaml` is not UTF-8"],
        ),
    ];
    let upstream = Upstream::plain();
    for (name, make, expected) in cases {
        let folder = folder(&upstream, "admin: off\n");
        make(&folder.path().join("policies").join(OsStr::from_bytes(name)));
        assert_contains(&run(folder.path(), &["check"], 2).err, expected);
    }
}

#[test]
fn what_is_no_policy_lies_beside_them() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\n");
    let policies = folder.path().join("policies");
    for name in ["x.json", "README.md"] {
        fs::write(policies.join(name), "{").unwrap();
    }
    for name in [".api.yaml.swp", ".hidden.yaml", ".x"] {
        symlink("gone", policies.join(name)).unwrap();
    }
    fs::create_dir(policies.join("..2026")).unwrap();
    fs::create_dir(policies.join("old")).unwrap();
    symlink("..2026", policies.join("..data")).unwrap();
    fs::write(policies.join("..2026/b.yaml"), LIMITED).unwrap();
    symlink("..data/b.yaml", policies.join("b.yaml")).unwrap();
    let ended = run(folder.path(), &["check"], 0);
    assert_contains(&ended.out, &["api: ", "b: GET /login"]);
    assert_eq!(ended.err, "");
}

#[test]
fn readers_that_leave_and_full_disks_are_no_panic() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\n");
    let demo = "demo --for 1 --listen 127.0.0.1:0 --admin 127.0.0.1:0";
    let verbs = [
        "check",
        "check --json",
        "schema",
        "explain GET /api/x",
        demo,
    ];
    for verb in verbs {
        let full = shell(folder.path(), &format!("exec \"$0\" {verb} >/dev/full"));
        let (code, err) = said(full);
        assert_eq!((code, err.lines().count()), (Some(1), 1), "{verb}: {err}");
        assert_contains(
            &err,
            &["tollgate: cannot write to standard output: No space left"],
        );
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let mut left = shell(folder.path(), &format!("exec \"$0\" {verb}"));
        left.stdout(writer);
        assert_eq!(said(left), (Some(0), String::new()), "{verb}");
    }
    let nobody = "exec \"$0\" check --config none.yaml 2>/dev/full";
    assert_eq!(said(shell(folder.path(), nobody)).0, Some(2));
}

/// How a command ended and what it said on standard error.
fn said(mut command: Command) -> (Option<i32>, String) {
    let mut child = Guard(command.spawn().unwrap());
    let mut err = String::new();
    let mut from = child.0.stderr.take().unwrap();
    from.read_to_string(&mut err).unwrap();
    (child.ended().code(), err)
}

#[test]
fn a_log_that_cannot_be_written_is_told_once_in_a_while() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: 127.0.0.1:0\naccess_log: /dev/full\n");
    let mut server = Server::start(folder.path(), true);
    let lost = |server: &Server, count: u32| {
        let line = format!("tollgate_log_dropped_total {count}\n");
        wait_until("the lines are counted", || {
            server.ask("GET", "/metrics", "").text().contains(&line)
        });
    };
    assert_eq!(server.connect().get("/api/x").status(), 200);
    let told = line_with(&server.err, "access log lines are lost");
    assert_contains(&told, &["/dev/full", "No space left on device", "lines=1"]);
    for count in [2, 3] {
        assert_eq!(server.connect().get("/api/x").status(), 200);
        lost(&server, count);
    }
    let help = "lost because the output was too slow or could not be written";
    assert_contains(&server.ask("GET", "/metrics", "").text(), &[help]);
    let more: Vec<String> = server.err.try_iter().collect();
    assert!(!more.concat().contains("lost"), "{more:#?}");
    server.signal(Signal::TERM);
    let told = line_with(&server.err, "access log lines are lost");
    assert_contains(&told, &["lines=2"]);
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn a_log_that_nobody_reads_is_told() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\naccess_log: stdout\n");
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = shell(folder.path(), "exec \"$0\" run");
    command.stdout(writer);
    let server = Started::new(command);
    assert_eq!(Client::connect(server.client).get("/api/x").status(), 200);
    let told = line_with(&server.err, "access log lines are lost");
    assert_contains(&told, &["standard output", "Broken pipe"]);
}

#[test]
fn a_log_that_cannot_be_opened_is_named() {
    let upstream = Upstream::plain();
    for (log, why) in [
        ("policies", "it is a folder"),
        ("none/a.log", "its folder does not exist"),
    ] {
        let folder = folder(&upstream, &format!("admin: off\naccess_log: {log}\n"));
        let ended = run(folder.path(), &["check"], 2);
        let message = format!("cannot write the access log `{log}`: {why}");
        assert_contains(&ended.err, &["tollgate.yaml:7:13: ", &message, "1 mistake"]);
        let json = run(folder.path(), &["check", "--json"], 2).out;
        assert_contains(&json, &[&message]);
        assert!(!folder.path().join("none").exists());
        let ended = run(folder.path(), &["run"], 1);
        assert_contains(
            &ended.err,
            &[&format!("cannot open the access log: {log}: ")],
        );
    }
    let folder = folder(&upstream, "admin: off\naccess_log: a.log\n");
    run(folder.path(), &["check"], 0);
    assert!(!folder.path().join("a.log").exists());
}

#[test]
fn explain_says_that_nobody_answered_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = silent.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let ended = run(
        folder.path(),
        &["explain", "GET", "/", "--admin", &admin],
        1,
    );
    let timed_out = format!("no answer from {admin} within 10 s: check that");
    assert_contains(&ended.err, &[&timed_out, "`admin`"]);
}
