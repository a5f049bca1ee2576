//! The path of `usage`: callers see what they have left of their limits, and nothing of others.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::child::Server;
use common::http2;
use common::redis::Redis;
use common::{Gate, Gateway, Message, Upstream, assert_contains, ok, wait_until, write};
use serde_json::{Value, json};
use tollgate::base::clock::Clock;

const PATH: &str = "/.well-known/limits";
const KEYS: &str = "key-of-ann: { user: ann, plan: gold }\nkey-of-bob: bob\n";
const IDENTITY: &str = "usage: /.well-known/limits\nplans: { free: { multiply: 1 }, gold: { multiply: 3 } }\n\
    identity:\n  token: { header: x-api-key }\n  user: { api_keys: keys.yaml }\n  \
    plan: { api_keys: true, default: free }\n  account: { path: account }\n  \
    device: { header: x-device }\n  field: { body: field }\n";
const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");

fn start(upstream: &Upstream, gateway: &str, policies: &[(&str, &str)]) -> Gateway {
    start_with(IDENTITY, upstream, gateway, policies)
}

fn start_with(
    identity: &str,
    upstream: &Upstream,
    gateway: &str,
    policies: &[(&str, &str)],
) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
    let gateway = [identity, gateway].concat();
    write(&folder, upstream.address, &gateway, policies);
    Gateway::start_in(folder, Clock::system())
}

fn send(gateway: &Gateway, line: &str, fields: &[&str]) -> Message {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let mut client = gateway.connect();
    client.send(format!(
        "{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}\r\n"
    ));
    client.answer()
}

/// The limits of the response to a GET with this query.
#[track_caller]
fn limits_of(gateway: &Gateway, query: &str, fields: &[&str]) -> Vec<Value> {
    let answer = send(gateway, &format!("GET {PATH}{query}"), fields);
    assert_eq!(answer.status(), 200, "{answer:?} {}", answer.text());
    assert_eq!(answer.field("content-type"), Some("application/json"));
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    assert_eq!(answer.field("ratelimit"), None);
    let usage: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(usage["complete"], true);
    usage["limits"].as_array().unwrap().clone()
}

/// The name of each limit, with what remains of its quota.
#[track_caller]
fn left(gateway: &Gateway, query: &str, fields: &[&str]) -> Vec<String> {
    let text = |limit: Value| {
        let name = limit["limit"].as_str().unwrap();
        format!("{name} {} of {}", limit["remaining"], limit["quota"])
    };
    let limits = limits_of(gateway, query, fields);
    limits.into_iter().map(text).collect()
}

const ANN: &str = "x-api-key: key-of-ann";
const BOB: &str = "x-api-key: key-of-bob";

#[test]
fn callers_see_what_they_have_left_and_use_nothing_up() {
    let upstream = Upstream::plain();
    let items = "match: GET /items/**\nupstream: up\nlimits:\n  \
        per-user: { key: user, rate: [20/h, 10/m], plans: true }\n  \
        open: { key: user, concurrent: 2 }\n  \
        hidden: { key: ip, rate: 9/h, disclose: none }\n  \
        planned: { key: ip, rate: 9/h, mode: shadow }\n  \
        errors: { key: ip, rate: 9/h, count: status 500-599 }\n";
    let gateway = start(
        &upstream,
        "limits: { per-ip: { key: ip, rate: 100/h } }\n",
        &[ALL, ("items", items)],
    );
    for _ in 0..3 {
        assert_eq!(send(&gateway, "GET /items/1", &[ANN]).status(), 200);
    }
    assert_eq!(send(&gateway, "GET /items/1", &[BOB]).status(), 200);
    for _ in 0..9 {
        let limits = limits_of(&gateway, "", &[ANN]);
        let reset = |index: usize| limits[index]["reset"].as_u64().unwrap();
        assert!((3500..=3600).contains(&reset(0)), "{limits:?}");
        let mut limits = limits.clone();
        for limit in &mut limits {
            limit.as_object_mut().unwrap().remove("reset");
        }
        let expected = json!([
            { "limit": "per-ip", "counts": "requests", "quota": 100, "window": 3600, "remaining": 96 },
            { "limit": "per-user", "route": "items", "counts": "requests", "quota": 30, "window": 60, "remaining": 27 },
            { "limit": "open", "route": "items", "counts": "open requests", "quota": 2, "remaining": 2 },
            { "limit": "errors", "route": "items", "counts": "responses with status 500-599", "quota": 9, "window": 3600, "remaining": 9 },
        ]);
        assert_eq!(Value::from(limits), expected);
    }
    // Others have their own counts, and those that nobody knows have none.
    let of_bob = left(&gateway, "", &[BOB]);
    assert_eq!(of_bob[1], "per-user 9 of 10");
    assert_eq!(
        left(&gateway, "", &[]),
        ["per-ip 96 of 100", "errors 9 of 9"]
    );
    let mut client = gateway.connect();
    client.send(format!("HEAD {PATH} HTTP/1.1\r\nhost: test\r\n\r\n"));
    assert_eq!(client.head().unwrap().status(), 200);
    assert_eq!(client.get(PATH).status(), 200, "HEAD has no body");
    for line in ["POST", "DELETE", "OPTIONS"] {
        let answer = send(&gateway, &format!("{line} {PATH}"), &["content-length: 0"]);
        assert_eq!(answer.status(), 405, "{line}");
        assert_eq!(answer.field("allow"), Some("GET, HEAD"));
    }
    assert_eq!(upstream.drain().len(), 4);
}

#[test]
fn a_refusing_limit_says_for_how_long_and_does_not_hide_the_rest() {
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 2/h }, many: { key: everyone, rate: 9/h } }\n";
    let gateway = start(&Upstream::plain(), "", &[("all", policy)]);
    for status in [200, 200, 429, 429] {
        assert_eq!(send(&gateway, "GET /", &[]).status(), status);
    }
    let limits = limits_of(&gateway, "", &[]);
    assert_eq!(limits[0]["remaining"], 0);
    let wait = limits[0]["retry_after"].as_u64().unwrap();
    assert!((3500..=3600).contains(&wait), "{limits:?}");
    assert_eq!(limits[1]["remaining"], 7);
    assert!(limits[1].get("retry_after").is_none(), "{limits:?}");
}

#[test]
fn guesses_of_credentials_are_refused_and_counted() {
    let policy = "match: /**\nupstream: up\nlimits: { per-user: { key: user or ip, rate: 9/h } }\n";
    for unverified in ["", ", unverified: anonymous"] {
        let keys = "api_keys: keys.yaml";
        let identity = IDENTITY.replace(keys, &[keys, unverified].concat());
        let limits = "limits: { guesses: { key: ip, rate: 3/h, count: status 401 } }\n";
        // The limit holds here in the gateway file, in a file of defaults, and in a policy.
        let guesses = "guesses: { key: ip, rate: 3/h, count: status 401 }, per-user:";
        let in_policy = policy.replace("per-user:", guesses);
        let policies = [
            (limits, vec![("all", policy)]),
            ("", vec![("_defaults", limits), ("all", policy)]),
            ("", vec![("all", &*in_policy)]),
        ];
        for (gateway, policies) in policies {
            let gateway = start_with(&identity, &Upstream::plain(), gateway, &policies);
            for status in [401, 401, 401, 429, 429] {
                let answer = send(&gateway, &format!("GET {PATH}"), &["x-api-key: guess"]);
                assert_eq!(answer.status(), status, "{unverified} {policies:?}");
            }
            // Beyond the limit a right one is not told apart.
            for (query, field) in [("", ANN), ("?path=/", ANN), ("?path=/", "x-api-key: guess")] {
                let answer = send(&gateway, &format!("GET {PATH}{query}"), &[field]);
                assert_eq!(answer.status(), 429, "{unverified} {policies:?}");
            }
            let expected = ["guesses 0 of 3", "per-user 9 of 9"];
            assert_eq!(left(&gateway, "", &[]), expected, "{policies:?}");
        }
    }
}

#[test]
fn a_credential_of_the_query_stands_beside_the_path() {
    let in_query = IDENTITY.replace("header: x-api-key", "query: api_key");
    let policy = "match: /**\nupstream: up\nlimits: { per-user: { key: user, rate: 9/h } }\n";
    let limits = "limits: { guesses: { key: ip, rate: 2/h, count: status 401 } }\n";
    let gateway = start_with(&in_query, &Upstream::plain(), limits, &[("all", policy)]);
    let status = |query: &str| send(&gateway, &format!("GET {PATH}?{query}"), &[]).status();
    for key in ["guess", "key-of-ann"] {
        for path in ["/x%3Fapi_key%3D", "/x%3Fa%26api_key%3D", "/x;api_key%3D"] {
            assert_eq!(status(&format!("path={path}{key}")), 400, "{path}{key}");
        }
    }
    for query in ["?api_key=key-of-ann", "?path=/x%3Fa&api_key=key-of-ann"] {
        let expected = ["guesses 2 of 2", "per-user 9 of 9"];
        assert_eq!(left(&gateway, query, &[]), expected, "{query}");
    }
    for expected in [401, 401, 429] {
        assert_eq!(status("path=/x&api_key=guess"), expected);
    }
    assert_eq!(status("path=/x&api_key=key-of-ann"), 429);
}

#[test]
fn a_quota_has_the_window_of_the_calendar() {
    let policy = "match: /**\nupstream: up\nlimits: { daily: { key: ip, quota: 9/day } }\n";
    let gateway = start(&Upstream::plain(), "", &[("all", policy)]);
    let limits = limits_of(&gateway, "", &[]);
    assert_eq!(limits[0]["window"], 86_400, "{limits:?}");
}

#[test]
fn values_that_anyone_can_name_show_no_counts() {
    let policy = "match: /**\nupstream: up\nlimits:\n  device: { key: device, rate: 9/h }\n  \
        both: { key: [ip, device], rate: 9/h }\n  field: { key: [ip, field], rate: 9/h }\n  \
        shared: { key: [plan, device], rate: 9/h }\n  per-plan: { key: plan, rate: 9/h }\n";
    let gateway = start(&Upstream::plain(), "", &[("all", policy)]);
    let device = "x-device: one";
    assert_eq!(send(&gateway, "GET /", &[device]).status(), 200);
    for query in ["", "?path=/x"] {
        let expected = ["both 8 of 9", "per-plan 8 of 9"];
        assert_eq!(left(&gateway, query, &[device]), expected, "{query}");
    }
    // The query of the path is known, the body is not.
    let asked = left(&gateway, "?path=/x%3Ffield%3Da", &[device]);
    assert_eq!(asked, ["both 8 of 9", "field 9 of 9", "per-plan 8 of 9"]);
}

#[test]
fn denied_clients_and_routes_that_a_caller_may_not_use_show_nothing() {
    let denied = "deny: { ip: [127.0.0.0/8] }\n";
    let gateway = start(&Upstream::plain(), denied, &[ALL]);
    assert_eq!(send(&gateway, &format!("GET {PATH}"), &[]).status(), 403);
    let denied = "deny: { user: [bob] }\n";
    let staff = "match: /staff/**\nupstream: up\nallow: { user: [ann] }\nlimits: { staff: { key: ip, rate: 5/h } }\n";
    let known = "match: /known/**\nupstream: up\nrequire: user\nlimits: { known: { key: ip, rate: 6/h } }\n";
    let policies = [ALL, ("staff", staff), ("known", known)];
    let gateway = start(&Upstream::plain(), denied, &policies);
    assert_eq!(send(&gateway, &format!("GET {PATH}"), &[BOB]).status(), 403);
    assert_eq!(left(&gateway, "", &[]), [""; 0]);
    assert_eq!(left(&gateway, "", &[ANN]), ["known 6 of 6", "staff 5 of 5"]);
    let at = |path: &str| send(&gateway, &format!("GET {PATH}?path={path}"), &[]).status();
    assert_eq!((at("/staff/a"), at("/known/a"), at("/a")), (403, 401, 200));
}

#[test]
fn a_caller_may_ask_about_one_request() {
    let upstream = Upstream::plain();
    let account = "match: GET /accounts/{account}\nupstream: up\nlimits: { per-account: { key: [account, ip], rate: 5/h } }\n";
    let orders = "match: POST /orders\nupstream: up\nlimits: { orders: { key: ip, rate: 7/h }, per-ip: off }\n";
    let limits = "limits: { per-ip: { key: ip, rate: 100/h } }\n";
    let policies = [("account", account), ("orders", orders)];
    let gateway = start(&upstream, limits, &policies);
    assert_eq!(send(&gateway, "GET /accounts/a", &[]).status(), 200);
    for (query, expected) in [
        ("", &["per-ip 99 of 100", "orders 7 of 7"][..]),
        (
            "?path=/accounts/a",
            &["per-ip 99 of 100", "per-account 4 of 5"],
        ),
        (
            "?path=%2Faccounts%2Fb",
            &["per-ip 99 of 100", "per-account 5 of 5"],
        ),
        ("?method=POST&path=/orders", &["orders 7 of 7"]),
        // As a request without a route is counted. Nobody finds paths here.
        ("?path=/orders", &["per-ip 99 of 100"]),
        ("?path=/nowhere", &["per-ip 99 of 100"]),
        ("?path=/.well-known/limits", &[]),
    ] {
        assert_eq!(left(&gateway, query, &[]), expected, "{query}");
    }
    for query in [
        "?path=orders",
        "?path=",
        "?path=/a%20b",
        "?path=/a%0d%0ax",
        "?path=/%252e%00",
        "?path=/a&path=/b",
        "?path=/a&method=get",
        "?path=/a&method=",
        "?method=P%20T",
        "?path=/%25zz",
    ] {
        let answer = send(&gateway, &format!("GET {PATH}{query}"), &[]);
        assert_eq!(answer.status(), 400, "{query} {}", answer.text());
    }
}

#[test]
fn the_path_comes_before_broad_policies_of_every_host() {
    let of_host = "match: /**\nhost: [test, \"*.example\"]\nupstream: up\nlimits: { hosted: { key: ip, rate: 8/h } }\n";
    let of_others =
        "match: /{a}/**\nhost: other\nupstream: up\nlimits: { other: { key: ip, rate: 9/h } }\n";
    let policies = [ALL, ("hosted", of_host), ("other", of_others)];
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "", &policies);
    for (host, expected) in [
        ("test", "hosted"),
        ("a.example:80", "hosted"),
        ("other", "other"),
        ("none", ""),
    ] {
        let mut client = gateway.connect();
        client.send(format!("GET {PATH} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        let usage: Value = serde_json::from_slice(&client.answer().body).unwrap();
        let name = usage["limits"][0]["limit"].as_str().unwrap_or("");
        assert_eq!(name, expected, "{host}");
    }
    assert!(upstream.drain().is_empty());
}

#[test]
fn limits_of_other_listeners_stay_there() {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
    let inside = "match: /inside/**\nlisten: inside\nupstream: up\nlimits: { inside: { key: ip, rate: 9/h } }\n";
    write(
        &folder,
        upstream.address,
        IDENTITY,
        &[ALL, ("inside", inside)],
    );
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = "listen: [{ name: public, address: 127.0.0.1:0 }, { name: inside, address: 127.0.0.1:0 }]\n";
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
    let mut gateway = Gateway::start_in(folder, Clock::system());
    assert_eq!(left(&gateway, "", &[]), [""; 0]);
    gateway.address = gateway.app.addresses()[1].tcp().unwrap();
    assert_eq!(left(&gateway, "", &[]), ["inside 9 of 9"]);
}

#[test]
fn pages_of_other_origins_may_read_it() {
    let cors = "cors: { origins: https://app.example.com, credentials: true }\n\
        limits: { per-ip: { key: ip, rate: 3/h } }\n";
    let gateway = start(&Upstream::plain(), cors, &[ALL]);
    let origin = "origin: https://app.example.com";
    let asks = "access-control-request-method: GET";
    let preflight = send(&gateway, &format!("OPTIONS {PATH}"), &[origin, asks]);
    assert_eq!(preflight.status(), 204);
    let answer = send(&gateway, &format!("GET {PATH}"), &[origin]);
    for answer in [preflight, answer] {
        let allowed = answer.field("access-control-allow-origin");
        assert_eq!(allowed, Some("https://app.example.com"), "{answer:?}");
    }
}

#[test]
fn it_is_an_outcome_of_its_own() {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
    let gateway = "admin: 127.0.0.1:0\naccess_log: { file: access.log, requests: all }\n";
    write(
        &folder,
        upstream.address,
        &[IDENTITY, gateway].concat(),
        &[ALL],
    );
    let server = Server::start(folder.path(), true);
    http2::run(async {
        let mut client = http2::Client::connect(server.address).await;
        let answer = client.get(PATH).await;
        assert_eq!(
            (answer.status, answer.field("cache-control")),
            (200, Some("no-store"))
        );
        assert_eq!(&*answer.body, br#"{"limits":[],"complete":true}"#);
        assert_eq!(client.get("/").await.status, 200);
    });
    let log = || std::fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
    wait_until("both are logged", || log().lines().count() == 2);
    let text = log();
    let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["outcome"], "usage", "{text}");
    assert_eq!(line["route"], PATH);
    let metrics = server.ask("GET", "/metrics", "").text();
    let counted = format!("tollgate_requests_total{{route=\"{PATH}\",outcome=\"usage\"}} 1");
    assert_contains(&metrics, &[&counted]);
    assert!(
        !metrics.contains("route=\"all\",outcome=\"usage\""),
        "{metrics}"
    );
    let asked = json!({ "method": "GET", "path": PATH }).to_string();
    let explained = server.ask("POST", "/v1/explain", &asked).text();
    assert_contains(&explained, &["\"status\":200", "what callers have left"]);
    for (method, path, status) in [
        ("POST", PATH.to_owned(), 405),
        ("GET", format!("{PATH}?path=a"), 400),
    ] {
        let asked = json!({ "method": method, "path": path }).to_string();
        let explained = server.ask("POST", "/v1/explain", &asked).text();
        assert_contains(&explained, &[&format!("\"status\":{status}")]);
    }
}

#[test]
fn open_requests_are_seen_while_they_are_open() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::answering(move |_| {
        waits.pass();
        ok("late")
    });
    let policy = "match: /**\nupstream: up\nlimits: { open: { key: ip, concurrent: 5 } }\n";
    let gateway = start(&upstream, "", &[("all", policy)]);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    wait_until("it is open", || left(&gateway, "", &[]) == ["open 4 of 5"]);
    gate.open();
    assert_eq!(client.answer().status(), 200);
    wait_until("it has ended", || {
        left(&gateway, "", &[]) == ["open 5 of 5"]
    });
}

#[test]
fn a_shared_store_is_not_asked() {
    let redis = Redis::start();
    let policy =
        "match: /**\nupstream: up\nlimits: { shared: { key: ip, rate: 9/h, sharing: strict } }\n";
    let store = format!("store: {{ address: \"{}\", budget: 1s }}\n", redis.url());
    let gateway = start(&Upstream::plain(), &store, &[("all", policy)]);
    wait_until("the store counts", || {
        send(&gateway, "GET /", &[])
            .field("tollgate-store")
            .is_none()
    });
    let before = left(&gateway, "", &[]);
    assert_eq!(before.len(), 1, "{before:?}");
    let scripts = redis.scripts();
    for _ in 0..9 {
        assert_eq!(left(&gateway, "", &[]), before);
    }
    assert_eq!(redis.scripts(), scripts);
}
