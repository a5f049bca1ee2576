//! The examples run as people run them: each as a process of its own, asked over a plain connection.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::child::{Server, finish, program};
use common::{Client, Gateway, Message};

/// An example that runs until this is dropped.
struct Example {
    process: Child,
    address: SocketAddr,
}

impl Example {
    /// Starts an example on a free port, which it tells in its first line.
    fn start(name: &str) -> Example {
        let process = Command::new(built(name))
            .args(["--port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        // Made before its output is read, so that a panic there ends the process too.
        let mut example = Example {
            process,
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
        };
        // The pipe stays open in `process`: an example that prints more must not break.
        let output = example.process.stdout.as_mut().unwrap();
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://");
        example.address = address.and_then(|a| a.parse().ok()).expect(&line);
        example
    }

    /// One request on a connection of its own.
    fn get(&self, path: &str, fields: &str) -> Message {
        get(self.address, path, fields)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where cargo puts an example: beside the folder of the test binaries.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    profile.join("examples").join(file)
}

fn get(address: SocketAddr, path: &str, fields: &str) -> Message {
    let mut client = Client::connect(address);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nhost: test\r\n{fields}connection: close\r\n\r\n"
    ));
    client.answer()
}

#[track_caller]
fn admitted(answer: &Message, body: &str, remaining: u32, limit: &str) {
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(answer.text().contains(body), "{answer:?}");
    let left = answer.field("ratelimit").expect("a RateLimit field");
    assert!(
        left.starts_with(&format!("\"{limit}\";r={remaining};t=")),
        "{left}"
    );
}

#[track_caller]
fn refused(answer: &Message, limit: &str) {
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert_eq!(
        answer.field("content-type"),
        Some("application/problem+json")
    );
    let wait: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let policy = answer.field("ratelimit-policy").unwrap();
    assert!(
        policy.contains(&format!("\"{limit}\";q=3;w=60")),
        "{policy}"
    );
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"][0], limit);
}

#[test]
fn axum() {
    let service = Example::start("axum");
    let ask = |key: &str| service.get("/items", &format!("x-api-key: {key}\r\n"));
    for remaining in [2, 1, 0] {
        admitted(&ask("abc"), "three items", remaining, "per-key");
    }
    refused(&ask("abc"), "per-key");
    let other = ask("other");
    admitted(&other, "three items", 2, "per-key");
    let policy = other.field("ratelimit-policy").unwrap();
    let parallel = "\"parallel\";q=10;qu=\"concurrent-requests\"";
    assert!(policy.ends_with(parallel), "{policy}");
    let open = service.get("/healthz", "x-api-key: abc\r\n");
    assert_eq!((open.status(), open.field("ratelimit")), (200, None));
}

#[test]
fn hyper() {
    let service = Example::start("hyper");
    let ask = |key: &str| service.get("/items", &format!("x-api-key: {key}\r\n"));
    for remaining in [2, 1, 0] {
        admitted(&ask("abc"), "three items", remaining, "per-key");
    }
    refused(&ask("abc"), "per-key");
    admitted(&ask("other"), "three items", 2, "per-key");
}

#[test]
fn custom_identity() {
    let service = Example::start("custom_identity");
    // The third is the same tenant in another spelling.
    for (path, remaining) in [("/acme/a", 2), ("/acme/b", 1), ("//%61cme/c", 0)] {
        admitted(&service.get(path, ""), "`acme`", remaining, "per-tenant");
    }
    refused(&service.get("/acme/d", ""), "per-tenant");
    admitted(&service.get("/globex/a", ""), "`globex`", 2, "per-tenant");
}

/// The upstream refuses nothing itself: the gateway before it does.
#[test]
fn upstream() {
    let upstream = Example::start("upstream");
    let policy = "match: /**\nupstream: up\nlimits: { per-ip: { key: ip, rate: 3/m } }\n";
    let gateway = Gateway::start(upstream.address, "admin: off\n", &[("all", policy)]);
    let ask = || get(gateway.address, "/a?b=c", "x-mine: 1\r\n");
    for remaining in [2, 1, 0] {
        let answer = ask();
        admitted(&answer, "\"x-mine\": \"1\"", remaining, "per-ip");
        let seen: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(seen["path"], "/a?b=c");
    }
    refused(&ask(), "per-ip");
    let alone = upstream.get("/a", "");
    assert_eq!((alone.status(), alone.field("ratelimit")), (200, None));
}

/// The tests of the quick start's policies as they ship, and after a mistake in a policy.
#[test]
fn tests_of_policies() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("policies")).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart");
    let names = [
        "tollgate.yaml",
        "test.sh",
        "policies/api.yaml",
        "policies/login.yaml",
    ];
    for name in names {
        fs::copy(shipped.join(name), folder.path().join(name)).unwrap();
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_tollgate"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let run = || finish(program("/bin/sh", folder.path(), &["test.sh"]).env("PATH", &path));
    let ended = run();
    assert_eq!((ended.code, &*ended.out, &*ended.err), (Some(0), "", ""));

    let policy = folder.path().join("policies/api.yaml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, text.replace("key: token", "key: ip")).unwrap();
    let ended = run();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let difference =
        "tollgate: GET /api/items: expected limit!=per-key, found limit=per-ip, per-key\n";
    assert_eq!(ended.err, difference);
    assert!(
        ended.out.starts_with("200 admitted\nroute api"),
        "{ended:?}"
    );
}

/// The files of the quick start as they ship, but for ports of their own, asked as the README says.
#[test]
fn quickstart() {
    let upstream = Example::start("upstream");
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("policies")).unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart");
    for name in ["policies/api.yaml", "policies/login.yaml"] {
        fs::copy(shipped.join(name), folder.path().join(name)).unwrap();
    }
    let mut text = fs::read_to_string(shipped.join("tollgate.yaml")).unwrap();
    let up = upstream.address.to_string();
    for (from, to) in [("127.0.0.1:8080", "127.0.0.1:0"), ("127.0.0.1:3000", &up)] {
        assert_eq!(text.matches(from).count(), 1, "{from} in\n{text}");
        text = text.replace(from, to);
    }
    // Where operators connect is not said in it: 127.0.0.1:9900.
    text.push_str("admin: 127.0.0.1:0\n");
    fs::write(folder.path().join("tollgate.yaml"), text).unwrap();
    let server = Server::start(folder.path(), true);
    assert_eq!(server.ask("GET", "/readyz", "").status(), 200);
    let ask = || get(server.address, "/api/items", "x-api-key: abc\r\n");
    for remaining in [4, 3, 2, 1, 0] {
        admitted(&ask(), "\"path\": \"/api/items\"", remaining, "per-key");
    }
    let answer = ask();
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert!(answer.text().contains("[\"per-key\"]"), "{answer:?}");
    let mut client = Client::connect(server.address);
    client.send("POST /login HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n");
    let login = client.answer();
    let policy = login.field("ratelimit-policy").unwrap();
    assert!(policy.contains("\"failed-logins\";q=5;w=900"), "{policy}");
}
