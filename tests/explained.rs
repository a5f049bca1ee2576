//! What the gateway says of who was refused and why, where names alone would not tell.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::child::{Ended, Server, run};
use common::{Upstream, assert_contains, wait_until, write};
use serde_json::Value;
use tempfile::TempDir;

const GATEWAY: &str = "\
admin: 127.0.0.1:0
identity:
  user: { header: x-user, from: [127.0.0.0/8] }
  plan: { header: x-plan, from: [127.0.0.0/8], default: free }
plans: { free: { multiply: 1 }, gold: { multiply: 5 } }
";

fn policy(route: &str, limits: &str) -> String {
    format!("match: /{route}/**\nupstream: up\nlimits:\n{limits}")
}

fn json(server: &Server, path: &str) -> Value {
    let answer = server.ask("GET", path, "");
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    serde_json::from_str(&answer.text()).unwrap()
}

fn start(gateway: &str, policies: &[(&str, &str)]) -> (Server, TempDir, Upstream) {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream.address, gateway, policies);
    (Server::start(folder.path(), true), folder, upstream)
}

fn ask(server: &Server, path: &str, user: &str, times: usize) {
    let mut client = server.connect();
    for _ in 0..times {
        client.send(format!(
            "GET {path} HTTP/1.1\r\nhost: t\r\nx-user: {user}\r\n\r\n"
        ));
        client.answer();
    }
}

/// Explains the last minute once so many refusals are recorded.
fn explained(server: &Server, refused: u64) -> Value {
    let explain = || json(server, "/v1/record/explain?from=-1m");
    wait_until("all is recorded", || explain()["refused"] == refused);
    // Workers tell whom they refused ten times a second.
    let top = || json(server, "/v1/record/top?from=-1m");
    wait_until("all are listed", || top()["total"] == refused);
    explain()
}

#[test]
fn limits_of_one_name_are_told_with_their_routes() {
    let limit = |rate: &str| format!("  few: {{ key: ip, rate: {rate} }}\n");
    let (one, other) = (
        policy("a", &limit("900/h")),
        policy("b", "  x: { key: ip, rate: 9/s }\n"),
    );
    let other = other + &limit("3/h");
    let (server, ..) = start(GATEWAY, &[("a", &one), ("b", &other)]);
    ask(&server, "/b/", "alice", 10);
    let answer = explained(&server, 7);
    let limit = &answer["limits"][0];
    assert_contains(limit["at"].as_str().unwrap(), &["b.yaml:5"]);
    assert_contains(limit["guarantee"].as_str().unwrap(), &["3 "]);
    assert_eq!(limit["places"].as_array().unwrap().len(), 1, "{limit:#}");
    assert_eq!(limit["places"][0]["routes"][0][0], "b");
    let seconds = answer["seconds"].as_u64().unwrap();
    assert!((1..=61).contains(&seconds), "{answer:#}");
    // Nothing was there before.
    assert_eq!(answer["before"]["seconds"], 0);
    let (usual, asked) = (&answer["usual"], &answer["asked"]);
    assert_eq!(usual["to"], asked["from"], "{answer:#}");
}

#[test]
fn what_a_reload_changes_beside_rates_is_told() {
    let limits = "  dear: { key: user, rate: 9/m, count: cost header x-cost, plans: true }\n";
    let (server, folder, upstream) = start(GATEWAY, &[("a", &policy("a", limits))]);
    let limits = limits.replace("x-cost", "x-price");
    let gateway = GATEWAY.replace("multiply: 5", "multiply: 2");
    write(
        &folder,
        upstream.address,
        &gateway,
        &[("a", &policy("a", &limits))],
    );
    assert_eq!(server.ask("POST", "/v1/reload", "").status(), 200);
    // The gateway may have seen the files change before it was told.
    let changed = || {
        let events = json(&server, "/v1/record/events?from=-1h");
        let mut events = events["events"].as_array().unwrap().iter();
        let change = events.find_map(|event| event["changes"].get(0).cloned());
        change.unwrap_or_default()
    };
    wait_until("the reload is recorded", || changed()["limit"] == "dear");
    let change = changed();
    assert_eq!(
        change["before"], "9/m per user, hard, cost header x-cost, plans free x1, gold x5",
        "{change:#}"
    );
    assert_eq!(
        change["after"],
        "9/m per user, hard, cost header x-price, plans free x1, gold x2"
    );
}

#[test]
fn users_that_are_addresses_of_email_are_not_kept_in_clear() {
    let limits = "  few: { key: user, rate: 3/h }\n  more: { key: [user, plan], rate: 90/h }\n";
    let (server, ..) = start(GATEWAY, &[("a", &policy("a", limits))]);
    ask(&server, "/a/", "ann@example.org", 10);
    let answer = explained(&server, 7);
    let samples = json(&server, "/v1/record/samples?from=-1m").to_string();
    let top = json(&server, "/v1/record/top?from=-1m&of=asked").to_string();
    for text in [&answer.to_string(), &samples, &top] {
        assert!(!text.contains("ann@"), "{text}");
        assert_contains(text, &["#"]);
    }
    // Who knows the address finds it; a key is the one of the limit whose list it stands in.
    let key = json(
        &server,
        "/v1/record/key?from=-1m&key=user%3Dann@example.org",
    );
    let sum = |name: &str| {
        let curve = key[name].as_array().unwrap().iter();
        curve.map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("asked"), sum("refused")), (10, 7), "{key:#}");
    assert!(
        key["key"].as_str().unwrap().starts_with("user=#"),
        "{key:#}"
    );
}

/// One request, as a client and as an operator write it.
struct Odd {
    method: &'static str,
    path: String,
    fields: Vec<(String, String)>,
}

impl Odd {
    fn new(method: &'static str, path: &str, fields: &[(&str, &str)]) -> Odd {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Odd {
            method,
            path: path.to_owned(),
            fields: fields.iter().map(owned).collect(),
        }
    }

    /// The status that the gateway gives, and the limits that refuse.
    fn sent(&self, server: &Server) -> (u16, Vec<Value>) {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.fields.iter().any(|(name, _)| name == "host") {
            text += "host: t\r\n";
        }
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        let mut client = server.connect();
        client.send(text + "\r\n");
        let head = client.head().unwrap();
        let mut answer = head.clone();
        if self.method != "HEAD" {
            common::read_body(&mut client.reader, &mut answer).unwrap();
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let refusing = body["violated-policies"].as_array();
        (head.status(), refusing.cloned().unwrap_or_default())
    }

    /// The status that `explain` says, and the limit that decides.
    fn explained(&self, server: &Server) -> (u64, Option<Value>) {
        let question = serde_json::json!({
            "method": self.method, "path": self.path, "host": "t", "headers": self.fields,
        });
        let answer = server.ask("POST", "/v1/explain", &question.to_string());
        assert_eq!(answer.status(), 200, "{question}: {}", answer.text());
        let answer: Value = serde_json::from_str(&answer.text()).unwrap();
        let limits = answer["limits"].as_array().unwrap();
        let decides = limits.iter().find(|limit| limit["decides"] == true);
        let decides = decides.map(|limit| limit["limit"].clone());
        (answer["status"].as_u64().unwrap(), decides)
    }
}

fn odd_requests() -> Vec<Odd> {
    let many: Vec<(String, String)> = (0..101).map(|n| (format!("x{n}"), "y".into())).collect();
    let key = |keys: &[&'static str]| -> Vec<(&str, &str)> {
        keys.iter().map(|key| ("x-api-key", *key)).collect()
    };
    let host = |hosts: &[&'static str]| -> Vec<(&str, &str)> {
        hosts.iter().map(|host| ("host", *host)).collect()
    };
    let preflight = |path: &str, origin: &'static str, asked: &'static str| {
        let fields = [("origin", origin), ("access-control-request-method", asked)];
        Odd::new("OPTIONS", path, &fields)
    };
    let mut odd = vec![
        preflight("/page", "https://app.test", "GET"),
        preflight("/page", "https://other.test", "GET"),
        preflight("/page", "https://app.test", "PUT"),
        preflight("/me", "https://app.test", "GET"),
        Odd::new("GET", "/a", &[]),
        Odd::new("HEAD", "/a", &[]),
        Odd::new("get", "/a", &[]),
        Odd::new("GeT", "/none", &[]),
        Odd::new("POST", "/a", &[]),
        Odd::new("CONNECT", "t:80", &[]),
        Odd::new("OPTIONS", "*", &[]),
        Odd::new("G\"T", "/a", &[]),
        Odd::new("GET", "/none", &[]),
        Odd::new("GET", "none", &[]),
        Odd::new("GET", "/a b", &[]),
        Odd::new("GET", "/a#b", &[]),
        Odd::new("GET", "/%00", &[]),
        Odd::new("GET", "/x%2f..%2fa", &[]),
        Odd::new("GET", "/x/../a", &[]),
        Odd::new("GET", "//a/", &[]),
        Odd::new("GET", "/A", &[]),
        Odd::new("GET", "http://t/a", &[]),
        Odd::new("GET", "http://T:80/a", &[]),
        Odd::new("GET", "http://t,u/a", &[]),
        Odd::new("GET", "http://u@t/a", &[]),
        Odd::new("GET", "ftp://t/a", &[]),
        Odd::new("GET", "http://other/h", &[]),
        Odd::new("GET", "/h", &host(&["h.test"])),
        Odd::new("GET", "/h", &host(&["H.TEST.:80"])),
        Odd::new("GET", "/h", &host(&["h.test,x"])),
        Odd::new("GET", "/h", &host(&["h.test", "h.test"])),
        Odd::new("GET", "/h", &host(&[""])),
        Odd::new("GET", "/me", &[]),
        Odd::new("GET", "/me", &key(&["wrong"])),
        Odd::new("GET", "/me", &key(&["right"])),
        Odd::new("GET", "/me", &key(&["right", "other"])),
        Odd::new("GET", "/own", &key(&["right", "other"])),
        Odd::new("GET", "/own", &key(&["wrong"])),
        Odd::new("GET", "/own", &key(&["right"])),
        Odd::new("GET", "/a", &[("content-length", "x")]),
        Odd::new(
            "POST",
            "/a",
            &[("content-length", "1"), ("transfer-encoding", "chunked")],
        ),
        Odd::new("GET", &format!("/{}", "x".repeat(20_000)), &[]),
    ];
    odd.push(Odd {
        fields: many,
        ..Odd::new("GET", "/a", &[])
    });
    odd
}

/// There is no second opinion: what the gateway says of a request its explanation has said before.
#[test]
fn odd_requests_are_explained_as_they_are_served() {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    let policies = [
        ("a", "match: GET /a\nupstream: up\n"),
        ("h", "match: GET /h\nhost: h.test\nupstream: up\n"),
        ("me", "match: GET /me\nupstream: up\nrequire: user\n"),
        (
            "page",
            "match: GET /page\nupstream: up\nrequire: user\ncors: { origins: https://app.test }\n",
        ),
        (
            "own",
            "match: GET /own\nupstream: up\nlimits:\n  own: { key: user, rate: 2/h }\n  \
             work: { key: ip, concurrent: 9 }\n  near: { key: ip, rate: 7/h }\n",
        ),
    ];
    let gateway = "admin: 127.0.0.1:0\nlimits: { per-ip: { key: ip, rate: 95/h } }\n\
                   identity: { user: { api_keys: keys.yaml }, token: { header: x-api-key } }\n";
    write(&folder, upstream.address, gateway, &policies);
    std::fs::write(folder.path().join("keys.yaml"), "right: { user: ann }\n").unwrap();
    let server = Server::start(folder.path(), true);
    let mut refused = 0;
    for round in 0..4 {
        for odd in odd_requests() {
            let what = format!("{round}: {} {:.99} {:?}", odd.method, odd.path, odd.fields);
            let (said, decides) = odd.explained(&server);
            let (status, refusing) = odd.sent(&server);
            assert_eq!(said, u64::from(status), "{what:.999}");
            if status == 429 && odd.method != "HEAD" {
                assert_eq!(refusing.first(), decides.as_ref(), "{what:.999}");
                refused += 1;
            }
        }
    }
    // In the last rounds nothing passes.
    assert!(refused > 39, "{refused}");
}

/// Runs `explain GET` with these arguments, and compares the exit code.
#[track_caller]
fn expect(folder: &TempDir, arguments: &[&str], code: i32) -> Ended {
    let ended = run(folder.path(), &[&["explain", "GET"], arguments].concat());
    assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
    ended
}

#[test]
fn what_differs_from_an_expectation_is_told() {
    let limits = "  few: { key: user, rate: 2/h }\n  all: { key: ip, rate: 90/h }\n";
    let (server, folder, _upstream) = start(GATEWAY, &[("a", &policy("a", limits))]);
    let alice = ["/a/x", "-H", "x-user: alice"];
    let met = [
        "--expect",
        "status=200",
        "--expect",
        "route=a",
        "--expect",
        "upstream=up",
        "--expect",
        "limit=few",
        "--expect",
        "user=alice",
        "--expect",
        "plan=free",
    ];
    let ended = expect(&folder, &[&alice[..], &met].concat(), 0);
    assert_eq!((&*ended.out, &*ended.err), ("", ""));
    let ended = expect(&folder, &[&alice[..], &met, &["--json"]].concat(), 0);
    let explanation: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(explanation["status"], 200);

    // Without the user, and of a path without a policy.
    let ended = expect(&folder, &[&["/a/x"], &met[..]].concat(), 1);
    assert_eq!(
        ended.err,
        "tollgate: GET /a/x: expected limit=few, found limit=all (none of its keys is known)\n\
         tollgate: GET /a/x: expected user=alice, found user=none\n"
    );
    assert_contains(&ended.out, &["200 admitted\n", "nothing has been counted"]);
    let ended = expect(&folder, &["/b", "--expect", "status=200", "--json"], 1);
    assert_contains(
        &ended.err,
        &["expected status=200, found status=404 (no policy matches this request)"],
    );
    let explanation: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(explanation["status"], 404);
    let nothing = ["/b", "--expect", "route=none", "--expect", "limit=none"];
    expect(&folder, &nothing, 0);
    let ended = expect(&folder, &["/b", "--expect", "rout=a"], 2);
    assert_contains(&ended.err, &["rout=a", "did you mean `route`?"]);

    // A running gateway goes by its counts, a configuration has none.
    ask(&server, "/a/x", "alice", 2);
    let refused = ["--expect", "status=429", "--expect", "decides=few"];
    expect(&folder, &[&alice[..], &refused].concat(), 1);
    let admin = server.admin.unwrap().to_string();
    let running = ["--admin", &admin];
    expect(&folder, &[&alice[..], &refused, &running].concat(), 0);
    let ended = expect(&folder, &[&alice[..], &met, &running].concat(), 1);
    assert_contains(&ended.err, &["expected status=200, found status=429"]);
    drop(server);
    let ended = expect(
        &folder,
        &["/b", "--expect", "route=none", "--admin", &admin],
        1,
    );
    assert_contains(&ended.err, &["no answer from"]);
}
