//! The binary as people call it: what it prints, where, and with which exit code.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};

use common::child::{self, Ended, Guard, Server, line_with};
use common::{Client, Gate, Upstream, assert_contains, ok, wait_until, write};
use rustix::io::ioctl_fionread;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const IDENTITY: &str = "admin: off\nidentity: { token: { header: x-api-key } }\n";
const API: &str = "\
match: GET /api/**
upstream: up
limits:
  per-ip: { key: ip, rate: 10/m }
  per-key: { key: token, rate: [5/m, 100/d], throttle: soft 20% }
";

/// A folder with a configuration whose upstream nobody asks.
fn folder(gateway: &str, policies: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let nobody: SocketAddr = "127.0.0.1:9".parse().unwrap();
    write(&folder, nobody, gateway, policies);
    folder
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Runs to the end and checks the exit code.
#[track_caller]
fn run(folder: &TempDir, arguments: &[&str], code: i32) -> Ended {
    let ended = child::run(folder.path(), arguments);
    assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:#?}");
    ended
}

#[test]
fn check_tells_what_is_logged() {
    let log = "access_log: { fields: [host, device, request_id] }\nrequest_id: X-Trace\n";
    let identity = "identity: { token: { header: x-api-key }, device: { header: x-device } }\n";
    let folder = folder(&format!("{log}{identity}"), &[("api", API)]);
    let parts = [
        "Each request has an id in the header `x-trace`.",
        "Requests are logged with host, device.",
    ];
    assert_contains(&run(&folder, &["check"], 0).out, &parts);
    let shown = json(&run(&folder, &["check", "--json"], 0).out);
    assert_eq!(shown["request_id"], "x-trace");
    let fields = serde_json::json!({ "format": "json", "fields": ["host", "device"] });
    assert_eq!(shown["access_log"], fields);
}

#[test]
fn check_tells_what_limits_guarantee() {
    let folder = folder(
        &format!("{IDENTITY}store: {{ memory: 64MiB }}\n"),
        &[("api", API)],
    );
    let ended = run(&folder, &["check"], 0);
    assert_contains(
        &ended.out,
        &[
            "api: GET /api/** to up",
            "  per-ip: never more than 10 in any 60 s",
            "  per-key: ",
            "by token, 5/m and 100/d, soft 20%",
            "B a key, the store holds about ",
            "Counts take at most 64MiB of memory.",
        ],
    );
    let per_key = ended.out.lines().find(|line| line.contains("per-key:"));
    assert_contains(
        per_key.unwrap(),
        &[
            "never more than 5 in any 60 s and never more than 100 in any 86400 s",
            "up to 20 % more admitted and marked",
        ],
    );
    let shown = json(&run(&folder, &["check", "--json"], 0).out);
    let limits = &shown["limits"];
    assert_eq!(limits[0]["guarantee"], "never more than 10 in any 60 s");
    assert_eq!(shown["store_budget"], 64 << 20);
}

#[test]
fn check_tells_how_limits_are_shared() {
    let policy = "match: /api/**\nupstream: up\nlimits:\n  \
                  many: { key: ip, rate: 600/m }\n  \
                  few: { key: ip, rate: 5/m, sharing: strict, on_store_error: closed }\n  \
                  crowd: { key: ip, rate: 2000/m }\n  \
                  kept: { key: ip, rate: 2000/m, algorithm: sliding-window }\n  \
                  own: { key: ip, rate: 9/m, sharing: local }\n";
    let folder = folder(
        "admin: off\nstore: rediss://me:secret@10.0.0.5/3\n",
        &[("api", policy)],
    );
    let ended = run(&folder, &["check"], 0);
    assert_contains(
        &ended.out,
        &[
            "grants units for 1200 ms in advance, a steady client gets 98.0 % of the rate; without the store each gateway admits its part",
            "the store is asked about each request; without the store nothing passes",
            "each gateway counts for itself",
            "with a number above 1024 it would be sliding-window and its counts begin anew",
            "with a number up to 1024 it would be sliding-log and its counts begin anew",
            "through rediss://10.0.0.5:6379/3; a request waits for it for at most 5 ms",
        ],
    );
    assert!(!ended.out.contains("secret"), "{}", ended.out);
    let changes = ended.out.matches("with a number").count();
    assert_eq!(changes, 3, "of many, few and crowd: {}", ended.out);
}

#[test]
fn check_tells_every_mistake() {
    let wrong = "mtach: /api/**\nupstream: pu\nlimits:\n  a: { key: ipp, rate: 5/m }\n";
    let policies = [
        ("api", wrong),
        ("b", "match: /b\nupstream: up\npriorty: low\n"),
    ];
    let folder = folder("admin: off\ntimeout: { idle: 5s }\n", &policies);
    let ended = run(&folder, &["check"], 2);
    for (place, line, marks, help) in [
        (
            "tollgate.yaml:8:1: ",
            "timeout: { idle: 5s }",
            "^^^^^^^",
            "timeouts",
        ),
        (
            "policies/api.yaml:1:1: ",
            "mtach: /api/**",
            "^^^^^",
            "match",
        ),
        ("policies/api.yaml:2:11: ", "upstream: pu", "^^", "up"),
        (
            "policies/api.yaml:4:13: ",
            "  a: { key: ipp, rate: 5/m }",
            "^^^",
            "ip",
        ),
        (
            "policies/b.yaml:3:1: ",
            "priorty: low",
            "^^^^^^^",
            "priority",
        ),
    ] {
        let at = ended
            .err
            .find(place)
            .unwrap_or_else(|| panic!("{place} in:\n{}", ended.err));
        let told: Vec<&str> = ended.err[at..].lines().take(4).collect();
        let number = place.split(':').nth(1).unwrap();
        assert_eq!(told[1], format!(" {number} | {line}"));
        assert_eq!(told[2].trim_start_matches([' ', '|']), marks);
        assert_eq!(told[3], format!("   help: did you mean `{help}`?"));
    }
    assert_contains(&ended.err, &["mistakes\n"]);
    assert_eq!(ended.out, "");
    let shown = json(&run(&folder, &["check", "--json"], 2).out);
    assert_eq!(shown["ok"], false);
    assert_eq!(
        shown["diagnostics"].as_array().unwrap().len(),
        5,
        "{shown:#}"
    );
    assert_eq!(
        run(&folder, &["run"], 2).err,
        ended.err,
        "a run says the same"
    );
}

#[test]
fn explain_names_every_limit() {
    let policy = format!("{API}compress: [zstd, gzip]\n");
    let folder = folder(IDENTITY, &[("api", &policy)]);
    let question = ["explain", "GET", "/api/items?page=2", "--ip", "1.2.3.4"];
    let with_key = [&question[..], &["-H", "x-api-key: a"]].concat();
    let ended = run(&folder, &with_key, 0);
    assert_contains(
        &ended.out,
        &[
            "200 admitted\nroute api (GET /api/**) to up, compresses responses by zstd, gzip\n",
            "from ip 1.2.3.4\n",
            "  ip=1.2.3.4: address of the connection, verified\n",
            ": header x-api-key, not verified\n",
            "  per-ip (policies/api.yaml:4): within for ip=1.2.3.4; 10 of 10 left in 60 s",
            "* per-key (policies/api.yaml:5): within for token=#",
            "; 5 of 5 left in 60 s",
            "* decides\n",
            "nothing has been counted",
        ],
    );
    let without = run(&folder, &question, 0);
    assert_contains(
        &without.out,
        &[
            "* per-ip (",
            "per-key (policies/api.yaml:5): does not apply, none of its keys is known",
        ],
    );
    let shown = json(&run(&folder, &[&with_key[..], &["--json"]].concat(), 0).out);
    assert_eq!(shown["status"], 200);
    assert_eq!(shown["limits"][1]["limit"], "per-key");
    assert_eq!(shown["limits"][1]["decides"], true);
}

#[test]
fn explain_tells_what_matches_nothing() {
    let folder = folder(IDENTITY, &[("api", API)]);
    let ended = run(&folder, &["explain", "GET", "/other"], 0);
    assert!(
        ended
            .out
            .starts_with("404 not served: no policy matches this request\n"),
        "{}",
        ended.out
    );
    let ended = run(&folder, &["explain", "POST", "/api/items"], 0);
    assert_contains(&ended.out, &["405 not served: ", "other methods"]);
    let ended = run(&folder, &["explain", "GET", "/api/x", "-H", "no colon"], 2);
    assert_contains(&ended.err, &["`no colon` is not written `name: value`"]);
}

#[test]
fn explain_asks_a_running_gateway() {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    let gateway = IDENTITY.replace("admin: off", "admin: 127.0.0.1:0");
    write(&folder, upstream.address, &gateway, &[("api", API)]);
    let server = Server::start(folder.path(), true);
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/api/x").status(), 200);
    }
    let admin = server.admin.unwrap().to_string();
    let ended = run(&folder, &["explain", "GET", "/api/x", "--admin", &admin], 0);
    assert_contains(
        &ended.out,
        &["* per-ip (policies/api.yaml:4): within for ip=127.0.0.1; 7 of 10 left"],
    );
    drop(server);
    let ended = run(&folder, &["explain", "GET", "/api/x", "--admin", &admin], 1);
    assert_contains(&ended.err, &["no answer from", &admin]);
}

#[test]
fn schemas() {
    let folder = tempfile::tempdir().unwrap();
    let schema = |arguments: &[&str]| json(&run(&folder, arguments, 0).out);
    let policy = schema(&["schema"]);
    let gateway = schema(&["schema", "gateway"]);
    let defaults = schema(&["schema", "defaults"]);
    for schema in [&policy, &gateway, &defaults] {
        let version = schema["$schema"].as_str().unwrap();
        assert!(
            version.starts_with("https://json-schema.org/draft/"),
            "{version}"
        );
    }
    assert!(policy["properties"]["match"].is_object(), "{policy:#}");
    assert!(gateway["properties"]["listen"].is_object(), "{gateway:#}");
    assert!(
        defaults["properties"]["upstream"].is_object(),
        "{defaults:#}"
    );
    assert_eq!(schema(&["schema", "policy"]), policy);
    run(&folder, &["schema", "polciy"], 2);
}

#[test]
fn run_without_a_file_or_a_free_address() {
    let folder = folder(
        "admin: off\n",
        &[("api", API.split("limits").next().unwrap())],
    );
    for verb in ["run", "check"] {
        let ended = run(&folder, &[verb, "--config", "no-such.yaml"], 2);
        assert_contains(&ended.err, &["no-such.yaml", "does not exist"]);
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("127.0.0.1:0", &address)).unwrap();
    let ended = run(&folder, &["run"], 1);
    assert_contains(&ended.err, &[&format!("cannot listen on {address}: ")]);
}

#[test]
fn unknown_verbs_and_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(&folder, &["chekc"], 2);
    assert_contains(&ended.err, &["chekc", "check", "Usage: tollgate"]);
    let ended = run(&folder, &[], 2);
    assert_contains(
        &ended.err,
        &[
            "Usage: tollgate",
            "run",
            "check",
            "explain",
            "demo",
            "schema",
        ],
    );
    let ended = run(&folder, &["run", "--confg", "a"], 2);
    assert_contains(&ended.err, &["--confg", "--config"]);
    let ended = run(&folder, &["--version"], 0);
    assert_eq!(
        ended.out,
        concat!("tollgate ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

fn refuses(address: SocketAddr) -> bool {
    let connected = TcpStream::connect(address).map(drop);
    connected.is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

/// Serves what is under way, and nothing new, when it is told to stop.
#[test]
fn sigterm_drains() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            held.pass();
            served.send(ok("whole"));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let policies = [("api", "match: /api/**\nupstream: up\n")];
    let gateway = "admin: off\naccess_log: stdout\n";
    write(&folder, upstream.address, gateway, &policies);
    let mut server = Server::start(folder.path(), false);
    let mut client = server.connect();
    let mut idle = server.connect();
    assert_eq!(idle.get("/other").status(), 404);
    client.send("GET /api/slow HTTP/1.1\r\nhost: t\r\n\r\n");
    upstream.next();
    server.signal(Signal::TERM);
    line_with(&server.err, "draining");
    assert_eq!(idle.rest(), b"", "an idle connection ends at once");
    wait_until("nothing new is served", || refuses(server.address));
    gate.open();
    let answer = client.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "whole"));
    assert_eq!(answer.field("connection"), Some("close"));
    drop(client);
    assert_eq!(server.ended(), Some(0));
    let line = line_with(&server.out, "/api/slow");
    assert_eq!(
        json(&line)["outcome"],
        "admitted",
        "the last line is not lost"
    );
}

/// The output may be slower than the requests: what it has not taken yet is written at the end.
#[test]
fn the_access_log_is_written_to_its_end() {
    let folder = folder(
        "admin: off\naccess_log: stdout\n",
        &[("a", "match: /a\nupstream: up\n")],
    );
    let mut command = child::command(folder.path(), &["run"]);
    let mut child = Guard(command.spawn().unwrap());
    let err = child::lines(child.0.stderr.take().unwrap());
    let said = line_with(&err, "listening on http://");
    let address: SocketAddr = said.rsplit('/').next().unwrap().parse().unwrap();
    let mut client = Client::connect(address);
    // More than a pipe holds, in lines of a kilobyte.
    for number in 0..400 {
        let path = format!("/{number}?{}", "x".repeat(1000));
        assert_eq!(client.get(&path).status(), 404);
    }
    drop(client);
    let mut out = child.0.stdout.take().unwrap();
    wait_until("the pipe is full", || {
        ioctl_fionread(&out).unwrap() > 60 * 1024
    });
    child.signal(Signal::TERM);
    line_with(&err, "draining");
    wait_until("nothing new is served", || refuses(address));
    let mut log = String::new();
    out.read_to_string(&mut log).unwrap();
    let targets: Vec<Value> = log
        .lines()
        .map(|line| json(line)["target"].clone())
        .collect();
    assert_eq!(targets.len(), 400);
    let last = targets[399].as_str().unwrap();
    assert!(last.starts_with("/399?x"), "{last}");
    assert_eq!(child.ended().code(), Some(0));
}

#[test]
fn access_log_lines_name_the_limit() {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    let gateway = IDENTITY.to_owned() + "access_log: stdout\n";
    let api = API.replace("10/m", "7/h").replace("[5/m, 100/d]", "5/h");
    write(&folder, upstream.address, &gateway, &[("api", &api)]);
    let server = Server::start(folder.path(), false);
    let mut client = server.connect();
    let mut ask = |path: &str| {
        client.send(format!(
            "GET {path} HTTP/1.1\r\nhost: t\r\nx-api-key: sesame\r\n\r\n"
        ));
        let status = client.answer().status();
        let text = server.out.recv_timeout(common::MAX_WAIT).unwrap();
        assert!(!text.contains("sesame"), "{text}");
        let line = json(&text);
        assert_eq!(
            (&line["status"], &line["target"]),
            (&status.into(), &path.into())
        );
        assert_eq!(
            (&line["method"], &line["ip"]),
            (&"GET".into(), &"127.0.0.1".into())
        );
        assert!(line["seconds"].as_f64().is_some_and(|s| s < 20.0), "{line}");
        assert!(line["time"].as_f64().is_some_and(|t| t > 1.7e9), "{line}");
        line
    };
    let decided = |line: &Value| {
        let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
        [text("outcome"), text("limit"), text("standing")].join(" ")
    };
    for _ in 0..5 {
        let line = ask("/api/a?b=c");
        assert_eq!(decided(&line), "admitted per-key within");
        assert_eq!(line["route"], "api");
        assert_eq!(line["server"], upstream.address.to_string(), "{line}");
        assert_eq!(line["bytes"], 4);
    }
    assert_eq!(decided(&ask("/api/a")), "admitted per-key over");
    let refused = ask("/api/a");
    assert_eq!(decided(&refused), "refused per-key refused");
    assert_eq!(refused["limit_at"], "policies/api.yaml:5");
    assert_eq!(decided(&ask("/nowhere")), "rejected - -");
}

#[test]
fn the_demo_removes_its_files_when_a_signal_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut command = child::command(folder.path(), &[&["demo"], &listen[..]].concat());
    let mut demo = Guard(command.spawn().unwrap());
    let files = std::env::temp_dir().join(format!("tollgate-demo-{}", demo.0.id()));
    let output = BufReader::new(demo.0.stdout.take().unwrap());
    let mut lines = output.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("1. Usual traffic")));
    assert!(files.join("policies").exists());
    demo.signal(Signal::INT);
    assert_eq!(demo.ended().code(), Some(0));
    assert!(!files.exists());
}

#[test]
fn the_demo_shows_its_policies_and_a_response_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let ended = run(&folder, &[&["demo", "--for", "1"], &listen[..]].concat(), 0);
    assert_contains(
        &ended.out,
        &[
            "dashboard  http://127.0.0.1:",
            "policies/login.yaml",
            "failed-logins: { key: [ip, email], rate: 5/15m, count: status 401 }",
            "HTTP/1.1 200 OK",
            "upstream saw: GET /api/hello",
            "0:00  1. Usual traffic",
        ],
    );
    assert!(!ended.out.contains("127.0.0.1:0 "), "{}", ended.out);
    let left = ended
        .out
        .lines()
        .find_map(|line| line.trim().strip_prefix("policies   "));
    let left = std::path::Path::new(left.unwrap().trim());
    assert!(left.is_absolute() && !left.exists(), "{}", left.display());
}
