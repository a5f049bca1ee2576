//! Routes that the gateway answers by itself: fixed responses and redirects. No spelling of a request evades such a
//! route, and no client chooses where it is sent.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "answers/methods.rs"]
mod methods;
#[path = "answers/redirecting.rs"]
mod redirecting;
#[path = "answers/subtrees.rs"]
mod subtrees;

use std::net::SocketAddr;

use common::certificate::Certificate;
use common::http2;
use common::tls::{ALL, Tls, put, trusting};
use common::{Client, Gateway, Message, Upstream};
use redirecting::TO_HTTPS;
use tempfile::TempDir;
use tollgate::base::clock::Clock;

/// The listeners of a gateway with one listener without TLS and one with TLS.
const TWO_LISTENERS: &str = "- { name: plain, address: 127.0.0.1:0 }\n  - { name: public, address: 127.0.0.1:0, tls: { cert: 1.pem, key: 1.key } }";

/// Starts a gateway with these listeners. The first one must have no TLS.
fn start(
    upstream: SocketAddr,
    listen: &str,
    gateway: &str,
    policies: &[(&str, &str)],
) -> (Gateway, Certificate) {
    let folder = tempfile::tempdir().unwrap();
    let certificate = Certificate::of(&["a.example"]);
    put(&folder, 1, &certificate);
    let text = format!(
        "version: 1\nlisten:\n  {listen}\nworkers: 1\naccess_log: off\nadmin: off\nupstreams: {{ up: [\"http://{upstream}\"] }}\n{gateway}"
    );
    std::fs::write(folder.path().join("tollgate.yaml"), text).unwrap();
    write_policies(&folder, policies);
    (Gateway::start_in(folder, Clock::system()), certificate)
}

fn write_policies(folder: &TempDir, policies: &[(&str, &str)]) {
    let dir = folder.path().join("policies");
    std::fs::create_dir_all(&dir).unwrap();
    for (name, text) in policies {
        std::fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
    }
}

/// Sends a request over a connection of its own. `host` is left out if it is empty.
fn send(address: SocketAddr, method: &str, target: &str, host: &str) -> Message {
    let mut client = Client::connect(address);
    let host = match host {
        "" => String::new(),
        host => format!("host: {host}\r\n"),
    };
    client.send(format!(
        "{method} {target} HTTP/1.1\r\n{host}connection: close\r\n\r\n"
    ));
    client.answer()
}

#[test]
fn a_fixed_response_touches_no_upstream() {
    let upstream = Upstream::plain();
    let policies = [
        (
            "down",
            "match: /down/**\nrespond: { status: 503, body: back soon }\nlimits:\n  per-ip: { key: ip, rate: 3/h }\n",
        ),
        ("none", "match: /none\nrespond: { status: 204 }\n"),
        (
            "html",
            "match: /html\nrespond: { status: 200, body: <p>, type: text/html }\n",
        ),
    ];
    let gateway = Gateway::start(upstream.address, "", &policies);
    let mut client = gateway.connect();
    let answer = client.get("/down/x");
    assert_eq!((answer.status(), &*answer.text()), (503, "back soon"));
    let content_type = answer.field("content-type");
    assert_eq!(content_type, Some("text/plain; charset=utf-8"));
    assert!(answer.field("ratelimit").is_some(), "{answer:?}");

    client.send("HEAD /down/x HTTP/1.1\r\nhost: test\r\n\r\n");
    let head = client.head().unwrap();
    assert_eq!(head.field("content-length"), Some("9"));
    // A body that is not read is no request.
    client.send("POST /down/x HTTP/1.1\r\nhost: test\r\ncontent-length: 31\r\n\r\nGET /html HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.answer().status(), 503);
    assert_eq!(client.get("/down/x").status(), 429);

    let answer = client.get("/none");
    assert_eq!(answer.status(), 204);
    assert_eq!(answer.field("content-length"), None);
    assert_eq!(answer.field("content-type"), None);
    let answer = client.get("/html");
    assert_eq!(answer.field("content-type"), Some("text/html"));
    assert_eq!(answer.text(), "<p>");
    assert!(upstream.drain().is_empty());
}

#[test]
fn identities_sizes_and_permits_hold() {
    let upstream = Upstream::plain();
    let policies = [
        (
            "known",
            "match: /known\nrequire: token\nrespond: { status: 200, body: hello }\n",
        ),
        (
            "small",
            "match: /small\nmax_body: 10B\nrespond: { status: 200, body: hello }\n",
        ),
        (
            "one",
            "match: /one\nrespond: { status: 200, body: hello }\nlimits:\n  open: { key: everyone, concurrent: 1 }\n  failures: { key: ip, rate: 1/h, count: status 404 }\n",
        ),
        (
            "missing",
            "match: /missing\nrespond: { status: 404 }\nlimits:\n  failures: { key: ip, rate: 2/h, count: status 404 }\n",
        ),
    ];
    let identity = "identity: { token: { header: x-key } }\n";
    let gateway = Gateway::start(upstream.address, identity, &policies);
    let mut client = gateway.connect();
    assert_eq!(client.get("/known").status(), 401);
    client.send("GET /known HTTP/1.1\r\nhost: test\r\nx-key: k\r\n\r\n");
    assert_eq!(client.answer().text(), "hello");
    client.send("POST /small HTTP/1.1\r\nhost: test\r\ncontent-length: 11\r\n\r\nhello world");
    assert_eq!(client.answer().status(), 413);
    for _ in 0..3 {
        assert_eq!(client.get("/one").status(), 200, "the permit came back");
    }
    let statuses = [404, 404, 429].map(|_| client.get("/missing").status());
    assert_eq!(statuses, [404, 404, 429]);
    assert!(upstream.drain().is_empty());
}

#[test]
fn a_body_comes_from_a_file_that_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let text = "version: 1\nlisten: 127.0.0.1:0\naccess_log: off\nadmin: off\nworkers: 1\nupstreams: { up: http://127.0.0.1:1 }\n";
    std::fs::write(folder.path().join("tollgate.yaml"), text).unwrap();
    let body: Vec<u8> = (0..=255).cycle().take(1024 * 1024).collect();
    std::fs::write(folder.path().join("body.bin"), &body).unwrap();
    let policy = "match: /**\nrespond: { status: 200, body_file: body.bin, type: application/octet-stream }\n";
    write_policies(&folder, &[("all", policy)]);
    let path = folder.path().to_owned();
    let gateway = Gateway::start_in(folder, Clock::system());
    assert_eq!(gateway.connect().get("/x").body, body);
    let write = |bytes: &[u8]| std::fs::write(path.join("body.bin"), bytes).unwrap();
    let fingerprint = || {
        let loaded = tollgate::policy::load(&path.join("tollgate.yaml")).unwrap();
        loaded.fingerprint
    };
    let fingerprint_before = fingerprint();
    write(b"new");
    assert_ne!(fingerprint(), fingerprint_before, "the file is watched");
    let reload = || http2::run(gateway.app.reload());
    reload().unwrap();
    assert_eq!(gateway.connect().get("/x").text(), "new");
    // A file that is too large is a mistake, and the last one stays.
    write(&vec![0; 1024 * 1024 + 1]);
    let report = reload().unwrap_err().to_string();
    assert!(report.contains("body.bin"), "{report}");
    assert_eq!(gateway.connect().get("/x").text(), "new");
}

#[test]
fn both_versions_and_tls_are_answered_alike() {
    let upstream = Upstream::plain();
    let policies = [
        (
            "text",
            "match: /text\nrespond: { status: 200, body: hello }\n",
        ),
        (
            "moved",
            "match: /old/**\nredirect: { to: \"https://b.example\", status: 302 }\n",
        ),
    ];
    let (gateway, certificate) = start(upstream.address, TWO_LISTENERS, "", &policies);
    let tls_address = gateway.app.addresses()[1].tcp().unwrap();
    let mut tls = Tls::to(tls_address, "a.example", &trusting(&[&certificate], ALL));
    assert_eq!(tls.get("/text").text(), "hello");
    let moved = tls.get("/old/a?b");
    assert_eq!(moved.field("location"), Some("https://b.example/old/a?b"));
    http2::run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let answer = client.get("/text").await;
        assert_eq!((answer.status, &*answer.body), (200, &b"hello"[..]));
        let request = http2::request("HEAD", "/text").body(()).unwrap();
        let (response, _) = client.begin(request, true);
        let answer = http2::whole(response.await.unwrap()).await.unwrap();
        assert_eq!(answer.field("content-length"), Some("5"));
        // The body of the request is never read.
        let request = http2::request("POST", "/text").body(()).unwrap();
        let (response, mut body) = client.begin(request, false);
        body.send_data(vec![0; 1000].into(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
        let moved = client.get("/old/a?b").await;
        assert_eq!(moved.status, 302);
        assert_eq!(moved.field("location"), Some("https://b.example/old/a?b"));
    });
    assert!(upstream.drain().is_empty());
}

/// A request, and the `location` of its response; `None` where the response must have none.
type Trick<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

#[track_caller]
fn check_tricks(address: SocketAddr, tricks: &[Trick<'_>]) {
    for (method, target, host, location) in tricks {
        let answer = send(address, method, target, host);
        let context = format!("{method} {target} at {host}: {answer:?}");
        assert_eq!(answer.field("location"), *location, "{context}");
        assert!(answer.field("set-cookie").is_none(), "{context}");
        let expected_class = match location {
            Some(_) => 3,
            None => 4,
        };
        assert_eq!(answer.status() / 100, expected_class, "{context}");
    }
}

#[test]
fn no_client_chooses_the_host_of_a_redirect() {
    let upstream = Upstream::plain();
    let policies = [
        ("site", "match: /**\nredirect: https://b.example\n"),
        (
            "path",
            "match: /old/**\nhost: a.example\nredirect: { to: /new, status: 301 }\n",
        ),
        (
            "new",
            "match: /new\nhost: a.example\nrespond: { status: 200 }\n",
        ),
    ];
    let gateway = Gateway::start(upstream.address, "", &policies);
    check_tricks(
        gateway.address,
        &[
            ("GET", "/", "t", Some("https://b.example/")),
            ("POST", "/a?b=c&d", "t", Some("https://b.example/a?b=c&d")),
            (
                "GET",
                "/a/b%20c?%2F",
                "t",
                Some("https://b.example/a/b%20c?%2F"),
            ),
            (
                "GET",
                "//evil.example",
                "t",
                Some("https://b.example/evil.example"),
            ),
            (
                "GET",
                "///evil.example/x",
                "t",
                Some("https://b.example/evil.example/x"),
            ),
            (
                "GET",
                "/\\evil.example",
                "t",
                Some("https://b.example/evil.example"),
            ),
            ("GET", "\\\\evil.example", "t", None),
            (
                "GET",
                "/\\/evil.example",
                "t",
                Some("https://b.example/evil.example"),
            ),
            (
                "GET",
                "/%2f/evil.example",
                "t",
                Some("https://b.example/%2f/evil.example"),
            ),
            (
                "GET",
                "/%5cevil.example",
                "t",
                Some("https://b.example/%5cevil.example"),
            ),
            (
                "GET",
                "/@evil.example",
                "t",
                Some("https://b.example/@evil.example"),
            ),
            ("GET", "@evil.example", "t", None),
            (".", "/", "t", Some("https://b.example/")),
            ("GET", ".evil.example/", "t", None),
            ("GET", ":80@evil.example/", "t", None),
            ("GET", "evil.example", "t", None),
            ("OPTIONS", "*", "t", None),
            (
                "GET",
                "http://evil.example/x",
                "t",
                Some("https://b.example/x"),
            ),
            (
                "GET",
                "http://evil.example",
                "t",
                Some("https://b.example/"),
            ),
            (
                "GET",
                "http://evil.example//evil.example",
                "t",
                Some("https://b.example/evil.example"),
            ),
            ("GET", "ftp://evil.example/x", "t", None),
            ("GET", "http://b.example@evil.example/x", "t", None),
            ("GET", "/x%0d%0aset-cookie:a=b", "t", None),
            (
                "GET",
                "/x?%0d%0aset-cookie:a=b",
                "t",
                Some("https://b.example/x?%0d%0aset-cookie:a=b"),
            ),
            ("GET", "/x%00", "t", None),
            ("GET", "/a|b\"", "t", Some("https://b.example/a%7Cb%22")),
            (
                "GET",
                "/x?//evil.example",
                "t",
                Some("https://b.example/x?//evil.example"),
            ),
            ("GET", "/x", "evil.example", Some("https://b.example/x")),
            ("GET", "/x", "evil.example/b.example", None),
            ("GET", "/x", "b.example@evil.example", None),
            ("GET", "/x", "", None),
            // A fixed target depends on nothing that the client sends.
            ("GET", "/old//evil.example?a", "a.example", Some("/new")),
            ("GET", "/old/\\evil.example", "a.example", Some("/new")),
            (
                "GET",
                "/OLD/x",
                "a.example",
                Some("https://b.example/OLD/x"),
            ),
            ("GET", "http://a.example/old/x", "t", Some("/new")),
        ],
    );
    assert!(upstream.drain().is_empty());
}

#[test]
fn a_redirect_to_https_names_only_hosts_in_canonical_form() {
    let upstream = Upstream::plain();
    let policies = [
        ("plain", "match: /**\nlisten: plain\nredirect: https\n"),
        ("public", "match: /**\nlisten: public\nupstream: up\n"),
    ];
    let (gateway, certificate) = start(upstream.address, TWO_LISTENERS, "", &policies);
    check_tricks(gateway.address, TO_HTTPS);
    check_tricks(
        gateway.address,
        &[
            ("GET", "/x?y", "a.example", Some("https://a.example/x?y")),
            ("GET", "/", "A.Example.", Some("https://a.example/")),
            ("GET", "/", "a.example:8080", Some("https://a.example/")),
            ("GET", "/", "[::1]:80", Some("https://[::1]/")),
            ("GET", "/", "a.example@evil.example", None),
            ("GET", "/", "a.example#evil.example", None),
            ("GET", "/", "a.example\\evil.example", None),
            ("GET", "/", "a.example,evil.example", None),
            ("GET", "/", "a.example evil.example", None),
            ("GET", "/", "a.example:80:81", None),
            ("GET", "/", "a.example:99999", None),
            ("GET", "/", "0x7f.1", None),
            ("GET", "/", "a.example\r\nhost: evil.example", None),
            ("GET", "/", "%61.example", None),
            ("GET", "/", "", None),
        ],
    );
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status(), answer.field("location")), (400, None));
    let tls_address = gateway.app.addresses()[1].tcp().unwrap();
    let mut tls = Tls::to(tls_address, "a.example", &trusting(&[&certificate], ALL));
    assert_eq!(tls.get("/x").status(), 200);
}

#[test]
fn no_spelling_evades_an_answer_of_the_gateway() {
    let upstream = Upstream::plain();
    let policies = [
        ("all", "match: /**\nupstream: up\n"),
        ("admin", "match: /admin/**\nrespond: { status: 403 }\n"),
        (
            "undeletable",
            "match: DELETE /items/*\nrespond: { status: 405 }\n",
        ),
        ("items", "match: /items/*\nupstream: up\n"),
    ];
    let gateway = Gateway::start(upstream.address, "", &policies);
    for target in [
        "/admin",
        "/admin/x",
        "/ADMIN/x",
        "/%61dmin/x",
        "/admin;v=1/x",
        "//admin/x",
        "/./admin/x",
        "/y/../admin/x",
        "/y/%2e%2e/admin/x",
        "/y/..%2fadmin/x",
        "/admin%2fx",
        "/\\admin/x",
        "/admin.json",
        "/admin/",
        "//evil.example/admin/x",
        "/index.php/admin/x",
        "/index.php?r=/admin/x",
        "http://t/admin/x",
    ] {
        let answer = send(gateway.address, "GET", target, "t");
        assert_eq!(answer.status(), 403, "{target}");
    }
    let mut client = gateway.connect();
    client.send("POST /items/1 HTTP/1.1\r\nhost: t\r\nx-http-method-override: DELETE\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.answer().status(), 405);
    assert!(upstream.drain().is_empty());
    // A word to search for is no path, and other names are no spelling.
    for target in [
        "/search?q=admin/x",
        "/?s=admin",
        "/administrator",
        "/x/admin",
    ] {
        assert_eq!(
            send(gateway.address, "GET", target, "t").status(),
            200,
            "{target}"
        );
    }
    assert_eq!(client.get("/items/1").status(), 200);
}

#[test]
fn a_broader_answer_takes_nothing_from_an_upstream() {
    let upstream = Upstream::plain();
    let policies = [
        (
            "rest",
            "match: /**\nrespond: { status: 404, body: nothing here }\n",
        ),
        (
            "api",
            "match: /api/**\nupstream: up\nlimits:\n  per-ip: { key: ip, rate: 100/s }\n",
        ),
    ];
    let gateway = Gateway::start(upstream.address, "", &policies);
    for target in [
        "/api/x",
        "/api//x",
        "//api/x",
        "/api;v=1/x",
        "/y/../api/x",
        "/api/x?r=z",
    ] {
        let answer = send(gateway.address, "GET", target, "t");
        assert_eq!(answer.status(), 200, "{target}");
    }
    for target in ["/other", "/API/x"] {
        assert_eq!(send(gateway.address, "GET", target, "t").status(), 404);
    }
}
