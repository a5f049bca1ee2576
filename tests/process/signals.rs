//! Signals: none that others use for logs or for the end of a process kills it, and none is lost while it starts.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::common::child::{self, Guard, Server, line_with, lines};
use super::common::{Gate, Upstream, ok, wait_until};
use super::{folder, text};

/// Policies that take far longer to read than the tests wait.
const MANY: usize = 1000;

fn slow_to_start(upstream: &Upstream) -> tempfile::TempDir {
    let folder = folder(upstream, "admin: off\n");
    for number in 0..MANY {
        let policy = format!(
            "match: GET /{number}/{{id}}\nupstream: up\nlimits: {{ a: {{ key: ip, rate: 5/m }} }}\n"
        );
        let path = folder.path().join(format!("policies/p{number}.yaml"));
        fs::write(path, policy).unwrap();
    }
    folder
}

/// The gateway as the first process of a PID namespace; gives the one that started it, and its number outside.
fn as_first(folder: &Path) -> (Guard, Pid) {
    let exe = fs::canonicalize(env!("CARGO_BIN_EXE_tollgate")).unwrap();
    let mut arguments = vec!["--pid", "--fork", "--kill-child"];
    if !geteuid().is_root() {
        arguments.extend(["--user", "--map-root-user"]);
    }
    arguments.extend([exe.to_str().unwrap(), "run"]);
    let child = Guard(
        child::program("unshare", folder, &arguments)
            .spawn()
            .unwrap(),
    );
    let parent = child.0.id();
    let mut first = None;
    wait_until("the gateway is the first process", || {
        let children = text(Path::new(&format!("/proc/{parent}/task/{parent}/children")));
        let process = children.trim().parse::<i32>().ok();
        first = process.filter(|process| {
            fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|program| program == exe)
        });
        first.is_some()
    });
    (child, first.and_then(Pid::from_raw).unwrap())
}

/// How far a process has started: what it does then, and whether it does.
type Stage = (&'static str, fn(Pid) -> bool);

/// A field of `/proc/PID/status`.
fn status(process: Pid, field: &str) -> String {
    let status = text(Path::new(&format!(
        "/proc/{}/status",
        process.as_raw_nonzero()
    )));
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

/// Whether SIGTERM is in this mask of the process.
fn holds(process: Pid, mask: &str) -> bool {
    let mask = u64::from_str_radix(&status(process, mask), 16);
    mask.is_ok_and(|mask| mask & (1 << (Signal::TERM.as_raw() - 1)) != 0)
}

fn has_handler(process: Pid) -> bool {
    holds(process, "SigCgt")
}

/// SIGTERM waits for the process, or has a handler.
fn hears(process: Pid) -> bool {
    holds(process, "SigBlk") || has_handler(process)
}

/// The files are read on a thread of their own.
fn loads(process: Pid) -> bool {
    status(process, "Threads") != "1"
}

/// The kernel gives the first process no signal that has no handler and is not blocked. That is so until `main` begins.
#[test]
fn the_first_process_of_a_container_ends_while_it_starts() {
    let upstream = Upstream::plain();
    let folder = slow_to_start(&upstream);
    let stages: [Stage; 3] = [
        ("hears", hears),
        ("has handlers", has_handler),
        ("loads", loads),
    ];
    for (stage, reached) in stages.repeat(4) {
        let (mut child, process) = as_first(folder.path());
        let err = lines(child.0.stderr.take().unwrap());
        wait_until(stage, || reached(process));
        kill_process(process, Signal::TERM).unwrap();
        assert_eq!(child.ended().code(), Some(0), "it {stage}");
        let said: Vec<String> = err.iter().collect();
        assert!(
            !said.iter().any(|line| line.contains("listening on")),
            "the handler stands before the policies are read: {said:?}"
        );
    }
}

#[test]
fn signals_that_end_let_requests_end_first() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let gate = Gate::default();
        let held = gate.clone();
        let upstream = Upstream::scripted(move |mut served, report| {
            while let Ok(request) = served.request() {
                report(request);
                held.pass();
                served.send(ok("fine"));
            }
        });
        let folder = folder(&upstream, "admin: off\n");
        let mut server = Server::start(folder.path(), false);
        let mut client = server.connect();
        client.send("GET /slow HTTP/1.1\r\nhost: t\r\n\r\n");
        upstream.next();
        server.signal(signal);
        line_with(&server.err, "draining");
        gate.open();
        assert_eq!(client.answer().text(), "fine");
        assert_eq!(server.ended(), Some(0), "{signal:?}");
    }
}

/// SIGUSR1 alone once nothing is written any more: whoever compresses the old file looks for the new one.
#[test]
fn signals_reopen_the_log() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "admin: off\naccess_log: access.log\n");
    let mut server = Server::start(folder.path(), false);
    let log = folder.path().join("access.log");
    let mut before = 0;
    for (turn, signal) in [Signal::USR1, Signal::HUP, Signal::USR1].iter().enumerate() {
        assert_eq!(server.connect().get(&format!("/{turn}")).status(), 200);
        wait_until("its line is written", || {
            text(&log).contains(&format!("\"/{turn}\""))
        });
        let old = folder.path().join(format!("access.log.{turn}"));
        fs::rename(&log, &old).unwrap();
        server.signal(*signal);
        wait_until("the file is there again", || log.exists());
        let told = line_with(&server.err, "the access log is opened anew");
        assert!(told.contains("access.log"), "{told}");
        before += text(&old).lines().count();
    }
    assert_eq!(before, 3);
    // One that cannot be opened is told, and lines go where they went.
    let old = folder.path().join("moved");
    assert_eq!(server.connect().get("/a").status(), 200);
    wait_until("its line is written", || text(&log).contains("\"/a\""));
    fs::rename(&log, &old).unwrap();
    fs::create_dir(&log).unwrap();
    server.signal(Signal::USR1);
    line_with(&server.err, "cannot be opened anew");
    assert_eq!(server.connect().get("/b").status(), 200);
    wait_until("its line is written", || text(&old).contains("\"/b\""));
    server.signal(Signal::TERM);
    assert_eq!(server.ended(), Some(0));
}

/// A signal while the gateway starts is heard when it serves.
#[test]
fn signals_wait_for_the_start() {
    let upstream = Upstream::plain();
    let folder = slow_to_start(&upstream);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("run").current_dir(folder.path());
    command.stderr(std::process::Stdio::piped());
    let mut child = Guard(command.spawn().unwrap());
    let err = lines(child.0.stderr.take().unwrap());
    wait_until("it hears", || hears(Pid::from_child(&child.0)));
    for signal in [Signal::USR1, Signal::HUP] {
        child.signal(signal);
    }
    line_with(&err, "listening on");
    line_with(&err, "policies reloaded");
    child.signal(Signal::TERM);
    assert_eq!(child.ended().code(), Some(0));
}

/// A reload says whether anything has changed, and what.
#[test]
fn a_reload_says_what_has_changed() {
    let upstream = Upstream::plain();
    let gateway = "admin: { address: 127.0.0.1:0, token_file: token }\n\
        identity: { user: { jwt: sub, secret: key } }\n";
    let folder = folder(&upstream, gateway);
    let at = |name: &str| folder.path().join(name);
    fs::write(at("token"), "0123456789abcdef").unwrap();
    fs::write(at("key"), "0123456789abcdef0123456789abcdef").unwrap();
    let server = Server::start(folder.path(), true);
    let token = "authorization: Bearer 0123456789abcdef\r\n";
    let reload = || {
        let answer = server.ask_with("POST", "/v1/reload", token, "");
        serde_json::from_str::<serde_json::Value>(&answer.text()).unwrap()
    };
    let before = reload();
    assert_eq!(before["changed"], false, "{before}");
    server.signal(Signal::HUP);
    line_with(&server.err, "changed=nothing");
    // Whoever watches the files may be first; then the reload that is asked for finds nothing new.
    let limited = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 5/m } }\n";
    fs::write(at("policies/all.yaml"), limited).unwrap();
    server.signal(Signal::HUP);
    let told = line_with(&server.err, "limits: 1");
    assert!(told.contains("all.yaml changed"), "{told}");
    assert_eq!(reload()["changed"], false);
    fs::write(at("key"), "abcdef0123456789abcdef0123456789").unwrap();
    server.signal(Signal::HUP);
    line_with(&server.err, "a file that the configuration names");
}
