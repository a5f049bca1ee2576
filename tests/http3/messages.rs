//! Requests and responses: bodies, limits, the log, and what TCP says of HTTP/3.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::common::certificate::Certificate;
use crate::common::tls::{ALL, Tls, put, trusting};
use crate::common::{Gateway, Upstream, ok, wait_until};
use crate::site::{Client, NAME, start, write_site};
use tollgate::base::clock::Clock;

const OPEN: (&str, &str) = ("open", "match: /open/**\nupstream: up\n");
const FIVE: (&str, &str) = (
    "five",
    "match: /five\nupstream: up\nlimits: { five: { key: ip, rate: 5/h } }\n",
);
const SMALL: (&str, &str) = ("small", "match: /small\nupstream: up\nmax_body: 1KB\n");

/// The lines of the access log.
fn log_lines(gateway: &Gateway, count: usize) -> Vec<serde_json::Value> {
    let file = gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("all is logged", || read().lines().count() >= count);
    let text = read();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[test]
fn a_request_is_served_as_over_other_versions() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "", &[OPEN]);
    let mut client = Client::connected(&gateway);
    let response = client.fetch_one(json!({ "path": "/open/a?b=c", "fields": [["x-own", "1"]] }));
    assert_eq!(response["status"], 200, "{response}");
    assert!(response["fields"].get("alt-svc").is_none(), "{response}");
    let request = upstream.next();
    assert_eq!(request.start, "GET /open/a?b=c HTTP/1.1");
    assert_eq!(request.field("via"), Some("3.0 tollgate"));
    assert_eq!(request.field("host"), Some(NAME));
    assert_eq!(request.field("x-forwarded-proto"), Some("https"));
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("x-own"), Some("1"));
    let lines = log_lines(&gateway, 1);
    assert_eq!(lines[0]["target"], "/open/a?b=c");
    assert_eq!(lines[0]["outcome"], "admitted");
    assert_eq!(lines[0]["protocol"], "HTTP/3.0");
    assert_eq!(lines[0]["tls"], "TLSv1.3");
}

#[test]
fn large_bodies_pass_in_both_directions_and_small_bounds_hold() {
    let upstream = Upstream::scripted(|mut served, report| {
        while let Ok(request) = served.request() {
            let body = String::from_utf8(request.body.clone()).unwrap();
            served.send(ok(&body));
            report(request);
        }
    });
    let gateway = start(&upstream, "", &[OPEN, SMALL]);
    let mut client = Client::connected(&gateway);
    let length = 10 << 20;
    let sent =
        json!({ "method": "POST", "path": "/open/", "body": length, "trailers": [["x-end", "1"]] });
    let response = client.fetch_one(sent);
    assert_eq!(response["status"], 200, "{response}");
    assert_eq!(response["bytes"], length);
    let body = upstream.next().body;
    assert_eq!(body.len(), length);
    let expected: Vec<u8> = b"0123456789abcdef"
        .iter()
        .copied()
        .cycle()
        .take(length)
        .collect();
    assert!(body == expected, "the body has changed");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &expected);
    let hex: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(response["sha"], hex.as_str());
    // With a length that is said first, and without one.
    let said = json!({ "method": "POST", "path": "/small", "body": 1001, "fields": [["content-length", "1001"]] });
    assert_eq!(client.fetch_one(said)["status"], 413);
    let unsaid = json!({ "method": "POST", "path": "/small", "body": 100_000 });
    assert_eq!(client.fetch_one(unsaid)["status"], 413);
    let fitting = json!({ "method": "POST", "path": "/small", "body": 1000 });
    assert_eq!(client.fetch_one(fitting)["status"], 200);
}

#[test]
fn a_limit_is_exact_under_parallel_streams() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "", &[FIVE]);
    let mut client = Client::connected(&gateway);
    let responses = client.fetch(&vec![json!({ "path": "/five" }); 32]);
    let count = |status: u16| {
        let of_status = responses
            .iter()
            .filter(|response| response["status"] == status);
        of_status.count()
    };
    assert_eq!((count(200), count(429)), (5, 27));
    let refused = responses.iter().find(|response| response["status"] == 429);
    let fields = &refused.unwrap()["fields"];
    assert_eq!(fields["ratelimit-policy"], "\"five\";q=5;w=3600");
    assert!(
        fields["ratelimit"]
            .as_str()
            .unwrap()
            .starts_with("\"five\";r=0")
    );
    let wait: u64 = fields["retry-after"].as_str().unwrap().parse().unwrap();
    // A window of an hour has units again after its end, or earlier.
    assert!((1..=3_600).contains(&wait), "{wait}");
}

#[test]
fn other_protocols_and_malformed_requests_are_refused() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "", &[OPEN]);
    let mut client = Client::connected(&gateway);
    let connect = json!({ "head": [[":method", "CONNECT"], [":authority", NAME]] });
    assert_eq!(client.fetch_one(connect)["status"], 400);
    let websocket = json!({ "head": [[":method", "CONNECT"], [":protocol", "websocket"],
        [":scheme", "https"], [":authority", NAME], [":path", "/open/"]] });
    let response = client.fetch_one(websocket);
    assert_eq!(response["status"], 400);
    assert!(
        response["text"].as_str().unwrap().contains("HTTP/3"),
        "{response}"
    );
    let other_host = json!({ "path": "/open/", "host": "other" });
    assert_eq!(client.fetch_one(other_host)["status"], 421);
    // 0x10e: the message is malformed.
    for fields in [
        json!([["connection", "close"]]),
        json!([["transfer-encoding", "chunked"]]),
    ] {
        let response = client.fetch_one(json!({ "path": "/open/", "fields": fields }));
        assert_eq!(response["reset"], 0x10e, "{response}");
    }
    let short = json!({ "path": "/open/", "method": "POST", "body": 5, "fields": [["content-length", "6"]] });
    let response = client.fetch_one(short);
    assert_eq!(response["reset"], 0x10e, "{response}");
    assert!(response.get("status").is_none(), "{response}");
    assert_eq!(client.fetch_one(json!({ "path": "/open/" }))["status"], 200);
}

#[test]
fn responses_over_tcp_announce_http3_where_it_is_served() {
    let upstream = Upstream::plain();
    for (listener, announces) in [
        (", http3: true", true),
        (", http3: false", false),
        ("", false),
    ] {
        let folder = write_site(&upstream, listener, "", &[OPEN]);
        let pem = std::fs::read_to_string(folder.path().join("0.pem")).unwrap();
        let gateway = Gateway::start_in(folder, Clock::system());
        let certificate = pem_certificate(&pem);
        let mut tls = Tls::connect(&gateway, NAME, &trusting(&[&certificate], ALL));
        for path in ["/open/", "/missing"] {
            tls.send(format!("GET {path} HTTP/1.1\r\nhost: {NAME}\r\n\r\n").as_bytes());
            let expected = format!("h3=\":{}\"; ma=86400", gateway.address.port());
            let expected = announces.then_some(expected.as_str());
            assert_eq!(tls.answer().field("alt-svc"), expected, "{listener}");
        }
    }
}

/// A certificate without its key.
fn pem_certificate(pem: &str) -> Certificate {
    use rustls::pki_types::pem::PemObject;
    Certificate {
        pem: pem.into(),
        key: String::new(),
        der: rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap(),
    }
}

#[test]
fn a_reload_replaces_the_certificate_and_other_protocols_fail() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "", &[OPEN]);
    let port = gateway.address.port();
    let mut client = Client::start(gateway.folder.path());
    let first = client.connect(port);
    assert_eq!(first["protocol"], "h3", "{first}");
    put(&gateway.folder, 0, &Certificate::of(&[NAME]));
    gateway.reload().unwrap();
    let second = client.ask(json!({ "do": "connect", "port": port, "name": NAME, "as": "new" }));
    assert_ne!(first["serial"], second["serial"]);
    // Requests of the old connection are still served.
    assert_eq!(client.fetch_one(json!({ "path": "/open/" }))["status"], 200);
    let other =
        json!({ "do": "connect", "port": port, "name": NAME, "alpn": ["hq-interop"], "as": "x" });
    let answer = client.ask(other);
    let error = answer["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("ConnectionError"), "{answer}");
}

/// Trailers end no body that is shorter than its stated length, and no request before its stream ends. Otherwise the server
/// would wait for the rest of the body, and take the next request on that connection for it.
#[test]
fn trailers_complete_nothing_that_is_incomplete() {
    let (whole_count, connection_count) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, connected) = (whole_count.clone(), connection_count.clone());
    let upstream = Upstream::scripted(move |mut served, report| {
        connected.fetch_add(1, Ordering::Relaxed);
        while let Ok(request) = served.request() {
            counted.fetch_add(1, Ordering::Relaxed);
            served.send(ok("whole"));
            report(request);
        }
    });
    let gateway = start(&upstream, "", &[OPEN]);
    let mut client = Client::connected(&gateway);
    let trailers = json!([["x-end", "1"]]);
    let short = json!({
        "method": "POST", "path": "/open/", "body": 5, "fields": [["content-length", "400"]], "trailers": trailers
    });
    let response = client.fetch_one(short);
    assert_eq!(response["reset"], 0x10e, "{response}");
    log_lines(&gateway, 1);
    let known_connections = connection_count.load(Ordering::Relaxed);
    let mut leaving = Client::connected(&gateway);
    let opened = leaving.ask(json!({
        "do": "open", "method": "POST", "path": "/open/", "body": 5, "trailers": trailers
    }));
    wait_until("the server gets its head", || {
        connection_count.load(Ordering::Relaxed) > known_connections
    });
    leaving.ask(json!({ "do": "reset", "stream": opened["stream"] }));
    let lines = log_lines(&gateway, 2);
    assert!(lines.iter().all(|line| line["status"] != 200), "{lines:?}");
    assert_eq!(whole_count.load(Ordering::Relaxed), 0);
    let whole = json!({ "method": "POST", "path": "/open/", "body": 5, "trailers": trailers });
    assert_eq!(client.fetch_one(whole)["status"], 200);
}
