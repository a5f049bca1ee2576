//! Redirects of a subtree: the rest of the path follows a target that no client can leave.

use serde_json::Value;

use crate::common::child::{self, Server};
use crate::common::tls::{ALL, Tls, trusting};
use crate::common::{Gateway, Upstream, http2, write};
use crate::{TWO_LISTENERS, Trick, check_tricks, start};

const POLICIES: [(&str, &str); 6] = [
    (
        "url",
        "match: /old/**\nstrip: /old\nredirect: https://new.example/base\n",
    ),
    (
        "slash",
        "match: /slash/**\nstrip: /slash\nredirect: { to: \"https://new.example/base/\", status: 301 }\n",
    ),
    (
        "origin",
        "match: /origin/**\nstrip: /origin\nredirect: https://new.example\n",
    ),
    (
        "path",
        "match: /path/**\nstrip: /path\nredirect: { to: /new, status: 302 }\n",
    ),
    (
        "root",
        "match: /a/b/**\nstrip: /a/b\nredirect: { to: /, status: 307 }\n",
    ),
    ("rest", "match: /**\nrespond: { status: 404 }\n"),
];

/// Requests with the host `t`, and the `Location` of their responses.
const CASES: &[(&str, Option<&str>)] = &[
    ("/old/a/b?q=1", Some("https://new.example/base/a/b?q=1")),
    ("/old", Some("https://new.example/base")),
    ("/old/", Some("https://new.example/base/")),
    ("/old?q=1", Some("https://new.example/base?q=1")),
    ("/old?", Some("https://new.example/base?")),
    (
        "/old/a?q=//x/../y",
        Some("https://new.example/base/a?q=//x/../y"),
    ),
    ("/old/a%2Fb;c=d", Some("https://new.example/base/a%2Fb;c=d")),
    ("/old/a//b", Some("https://new.example/base/a//b")),
    ("/old/old/a", Some("https://new.example/base/old/a")),
    ("/old/a\\b", Some("https://new.example/base/a%5Cb")),
    ("/old/a|b\"", Some("https://new.example/base/a%7Cb%22")),
    (
        "/old/@evil.example",
        Some("https://new.example/base/@evil.example"),
    ),
    ("/old/:80", Some("https://new.example/base/:80")),
    (
        "http://evil.example/old/a",
        Some("https://new.example/base/a"),
    ),
    ("/slash", Some("https://new.example/base/")),
    ("/slash/", Some("https://new.example/base/")),
    ("/slash/a", Some("https://new.example/base/a")),
    ("/origin", Some("https://new.example/")),
    ("/origin?a", Some("https://new.example/?a")),
    (
        "/origin/@evil.example",
        Some("https://new.example/@evil.example"),
    ),
    (
        "/origin/.evil.example",
        Some("https://new.example/.evil.example"),
    ),
    ("/path/a?b", Some("/new/a?b")),
    ("/path", Some("/new")),
    ("/a/b", Some("/")),
    ("/a/b/", Some("/")),
    ("/a/b/c?d", Some("/c?d")),
    // These are not below the prefix.
    ("/oldx", None),
    ("/old.evil.example", None),
    ("/older/a", None),
    ("/old@evil.example", None),
    ("//evil.example", None),
    ("//evil.example/old/a", None),
    ("/\\evil.example", None),
    ("/a", None),
    // These could name a host, lead above the target, or begin another field.
    ("/old//evil.example", None),
    ("/old///evil.example", None),
    ("/old/\\evil.example", None),
    ("/old\\/evil.example", None),
    ("/old\\evil.example", None),
    ("/old/%2f%2fevil.example", None),
    ("/old/%2fevil.example", None),
    ("/old/%5cevil.example", None),
    ("/old/%252fevil.example", None),
    ("/old%2f%2fevil.example", None),
    ("/old%2fa", None),
    ("/a/b//evil.example", None),
    ("/a/b/\\evil.example", None),
    ("/a/b/%2fevil.example", None),
    ("/a/b/%5c%5cevil.example", None),
    ("/origin//evil.example", None),
    ("/path//evil.example", None),
    ("/old/..", None),
    ("/old/../x", None),
    ("/old/a/../../x", None),
    ("/old/./a", None),
    ("/old/%2e%2e", None),
    ("/old/%2E%2e/x", None),
    ("/old/.%2e/x", None),
    ("/old/%252e%252e/x", None),
    ("/old/..;x/y", None),
    ("/old/..%2fx", None),
    ("/old/a\\..\\..\\x", None),
    ("/old/..%5cx", None),
    ("/x/../old/a", None),
    ("//old/a", None),
    ("/./old/a", None),
    ("/%6fld/a", None),
    ("/old;x/a", None),
    ("/old/%0d%0aset-cookie:a=b", None),
    ("/old/%00", None),
    ("/old/\u{1}", None),
    ("/old/\t", None),
    ("/old/%zz", None),
];

#[test]
fn the_rest_of_a_path_follows_the_target_and_nothing_else() {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, "", &POLICIES);
    let tricks = CASES.iter();
    let tricks: Vec<Trick<'_>> = tricks
        .map(|(target, location)| ("GET", *target, "t", *location))
        .collect();
    check_tricks(gateway.address, &tricks);
    // The same path with another query, over one connection that remembers the route of its last request.
    let mut client = gateway.connect();
    for path in ["/old/a?x", "/old/b?y", "/old/b?y", "/path/z", "/old/b?y"] {
        let expected = path
            .replace("/old", "https://new.example/base")
            .replace("/path", "/new");
        let answer = client.get(path);
        assert_eq!(answer.field("location"), Some(&*expected), "{path}");
    }
    let statuses =
        ["/old/a", "/slash/a", "/path/a", "/a/b/c"].map(|path| client.get(path).status());
    assert_eq!(statuses, [308, 301, 302, 307]);
    assert!(upstream.drain().is_empty());
}

#[test]
fn every_protocol_and_method_is_redirected_alike() {
    let upstream = Upstream::plain();
    let policies = [
        POLICIES[0],
        (
            "plain",
            "match: /docs/**\nstrip: /docs\nlisten: plain\nredirect: https\n",
        ),
    ];
    let (gateway, certificate) = start(upstream.address, TWO_LISTENERS, "", &policies);
    let tls_address = gateway.app.addresses()[1].tcp().unwrap();
    let port = tls_address.port();
    let mut tls = Tls::to(tls_address, "a.example", &trusting(&[&certificate], ALL));
    let moved = tls.get("/old/a?b");
    assert_eq!(
        moved.field("location"),
        Some("https://new.example/base/a?b")
    );
    assert_eq!(tls.get("/old/a/%2e%2e/b").status(), 400);
    http2::run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let moved = client.get("/old/a?b").await;
        assert_eq!(moved.status, 308);
        assert_eq!(
            moved.field("location"),
            Some("https://new.example/base/a?b")
        );
        assert_eq!(client.get("/old//evil.example").await.status, 400);
    });
    let mut client = gateway.connect();
    client.send("POST /old/a HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\n\r\nhello");
    let moved = client.answer();
    assert_eq!(moved.field("location"), Some("https://new.example/base/a"));
    client.send("GET /docs/a?b HTTP/1.1\r\nhost: a.example\r\n\r\n");
    let location = client.answer().field("location").map(str::to_owned);
    // The listener is at any free port, so the target is the default one.
    assert_ne!(port, 443);
    assert_eq!(location.as_deref(), Some("https://a.example/a?b"));
    assert!(upstream.drain().is_empty());
}

#[test]
fn explanations_agree_and_limits_hold() {
    let policies = [(
        "old",
        "match: /old/**\nstrip: /old\nredirect: /new\nlimits:\n  per-ip: { key: ip, rate: 2/h }\n",
    )];
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::plain();
    write(&folder, upstream.address, "admin: 127.0.0.1:0\n", &policies);
    let server = Server::start(folder.path(), true);
    let explain = |path: &str| -> Value {
        let request = serde_json::json!({ "method": "GET", "path": path });
        let answer = server.ask("POST", "/v1/explain", &request.to_string());
        serde_json::from_str(&answer.text()).unwrap()
    };
    let explanation = explain("/old/a");
    assert_eq!(explanation["status"], 308, "{explanation:#}");
    let action = &explanation["route"]["action"];
    assert_eq!(action, "redirected to /new/… with 308");
    assert_eq!(explain("/old//a")["status"], 400);
    let mut client = server.connect();
    let statuses = ["/old/a", "/old/b", "/old/c"].map(|path| client.get(path).status());
    assert_eq!(statuses, [308, 308, 429]);
    assert_eq!(explain("/old/a")["status"], 429);
}

/// An explanation says what a client is told and what an upstream gets, as both then are.
#[test]
fn explanations_say_where_requests_go() {
    let policies = [
        ("old", "match: /old/**\nstrip: /old\nredirect: /new\n"),
        ("here", "match: /here\nredirect: https://www.example.com\n"),
        (
            "api",
            "match: /api/**\nstrip: /api\nprefix: /v1\nupstream: up\n",
        ),
        (
            "plain",
            "match: /plain\nupstream: up\nlimits: { few: { key: ip, rate: 1/h } }\n",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::plain();
    write(&folder, upstream.address, "admin: 127.0.0.1:0\n", &policies);
    let server = Server::start(folder.path(), true);
    let admin = server.admin.unwrap().to_string();
    let explain = |path: &str| {
        let arguments = ["explain", "GET", path, "--host", "a.example"];
        let text = child::run(folder.path(), &arguments).out;
        let arguments = [&arguments[..], &["--admin", &admin, "--json"]].concat();
        let json = child::run(folder.path(), &arguments).out;
        (text, serde_json::from_str::<Value>(&json).unwrap())
    };
    let mut client = server.connect();
    let mut get = |path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nhost: a.example\r\n\r\n"));
        client.answer()
    };
    for path in ["/old/a?b=c", "/old", "/here?b"] {
        let moved = get(path);
        let location = moved.field("location").expect(path);
        let (text, json) = explain(path);
        let first_line = format!("308 redirected to {location}\n");
        assert!(text.starts_with(&first_line), "{text}");
        assert_eq!(
            (&json["location"], &json["forwarded"]),
            (&location.into(), &Value::Null)
        );
    }
    upstream.drain();
    for path in ["/api/items?b=c", "/api"] {
        assert_eq!(get(path).status(), 200);
        let start = upstream.next().start;
        let target = start.split(' ').nth(1).unwrap();
        let (text, json) = explain(path);
        assert!(
            text.contains(&format!("\nforwarded as {target}\n")),
            "{text}"
        );
        assert_eq!(
            (&json["location"], &json["forwarded"]),
            (&Value::Null, &target.into())
        );
    }
    let nowhere = |json: Value| json["location"].is_null() && json["forwarded"].is_null();
    assert!(nowhere(explain("/plain").1), "it goes on as it came");
    assert!(nowhere(explain("/api/../a").1), "it is refused");
    assert_eq!(get("/plain").status(), 200);
    assert!(nowhere(explain("/plain").1), "its limit refuses it");
}
