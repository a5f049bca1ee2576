//! Costs that responses state: in fields, trailers and bodies of every form, and what is charged where none is stated.

use std::io::Write;
use std::net::TcpListener;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use super::common::http2::{self, reached};
use super::common::{Client, Gate, Upstream, ok, wait_until};
use super::*;

/// What one answer takes of 100 an hour, as the next answer tells.
#[track_caller]
fn check_cost(limit: &str, answer: impl AsRef<[u8]>, used: u32) {
    let limit = format!("units: {{ key: ip, rate: 100/h, {limit} }}");
    let bytes = answer.as_ref().to_vec();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            served.send(&bytes);
        }
    });
    let site = Site::start("", &[&limit], upstream);
    let start = &answer.as_ref()[..answer.as_ref().len().min(200)];
    let answer = start.escape_ascii();
    // One is reserved until the answer tells.
    for expected in [99, 99 - used] {
        let got = site.get("");
        if expected == 99 {
            assert!(got.field("ratelimit").unwrap().ends_with(";t=3600"));
        }
        assert_eq!(got.status(), 200, "{limit}, {answer}");
        assert_eq!(told(&got), format!("units {expected}"), "{limit}, {answer}");
    }
}

fn with_cost(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}content-length: 4\r\n\r\nfine")
}

#[test]
fn costs_in_a_header() {
    for (fields, used) in [
        ("x-cost: 7\r\n", 7),
        ("X-Cost:  12 \r\n", 12),
        ("x-cost: 0\r\n", 0),
        ("x-cost: 99\r\n", 99),
        // What is no number counts as one request.
        ("", 1),
        ("x-cost: \r\n", 1),
        ("x-cost: -5\r\n", 1),
        ("x-cost: 2.5\r\n", 3),
        ("x-cost: 9e1\r\n", 90),
        ("x-cost: many\r\n", 1),
    ] {
        check_cost("count: cost header x-cost", with_cost(fields), used);
    }
    for algorithm in [
        "sliding-log",
        "sliding-window",
        "multi-level",
        "fixed-window",
        "gcra",
    ] {
        let limit = format!("count: cost header x-cost, algorithm: {algorithm}");
        check_cost(&limit, with_cost("x-cost: 40\r\n"), 40);
    }
}

#[test]
fn costs_in_a_json_body() {
    let limit = "count: cost json usage.total_tokens";
    for (body, used) in [
        (r#"{"usage":{"total_tokens":42}}"#, 42),
        (
            r#" { "id": 1, "usage" : { "a": [], "total_tokens" : 8 } } "#,
            8,
        ),
        (r#"{"usage":{"total_tokens":0}}"#, 0),
        // Where no number is found the request counts as one.
        (r#"{"usage":{"total_tokens":"42"}}"#, 42),
        (r#"{"usage":{"total_tokens":41.5}}"#, 42),
        ("\u{feff}{\"usage\":{\"total_tokens\":42}}", 42),
        (r#"{"usage":{"total_tokens":-3}}"#, 1),
        (r#"{"usage":{"total_tokens":null}}"#, 1),
        (r#"{"usage":[42]}"#, 1),
        (r#"{"total_tokens":42}"#, 1),
        // What is there counts, though the document has no end.
        (r#"{"usage":{"total_tokens":42}"#, 42),
        ("", 1),
    ] {
        check_cost(limit, ok(body), used);
    }
    // However it is cut into pieces.
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                  19\r\n{\"usage\":{\"total_tokens\":\r\n1\r\n4\r\n3\r\n2}}\r\n0\r\n\r\n";
    check_cost(limit, chunks, 42);
    let padded = |bytes: usize| {
        let start = r#"{"usage":{"total_tokens":42}}"#;
        ok(&format!("{start}{}", " ".repeat(bytes - start.len())))
    };
    check_cost(limit, padded(5 * 1024 * 1024), 42);
}

#[test]
fn a_cost_above_what_is_left_refuses_the_next() {
    let upstream = Upstream::answering(|_| with_cost("x-cost: 5000000000\r\n"));
    let limit = "units: { key: ip, rate: 100/h, count: cost header x-cost }";
    let site = Site::start("", &[limit], upstream);
    assert_eq!(site.get("").status(), 200);
    assert_eq!(violated(&site.get("")), ["units"]);
    site.pass(Nanos::from_secs(3599));
    assert_eq!(violated(&site.get("")), ["units"]);
    site.pass(Nanos::from_secs(1));
    assert_eq!(told(&site.get("")), "units 99");
}

#[test]
fn costs_are_reserved_until_the_answer_ends() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            served.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"cost\":");
            held.pass();
            let _ = served.stream.write_all(b"0}");
        }
    });
    let limit = "units: { key: ip, rate: 3/h, count: cost json cost }";
    let site = Site::start("", &[limit], upstream);
    let mut running: Vec<Client> = (0..3).map(|_| site.gateway.connect()).collect();
    for (client, left) in running.iter_mut().zip([2, 1, 0]) {
        client.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
        let head = client.head().unwrap();
        assert_eq!(told(&head), format!("units {left}"));
    }
    assert_eq!(violated(&site.get("")), ["units"]);
    assert_eq!(site.upstream.drain().len(), 3);
    gate.open();
    for client in &mut running {
        let mut body = [0; 10];
        std::io::Read::read_exact(&mut client.reader, &mut body).unwrap();
        assert_eq!(&body, b"{\"cost\":0}");
    }
    assert_eq!(told(&site.get("")), "units 2", "all of it came back");
}

#[test]
fn what_reaches_no_upstream_costs_nothing() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let upstreams = format!("upstreams: {{ up: \"http://{address}\" }}\n");
    let limit = "units: { key: ip, rate: 2/h, count: cost header x-cost }";
    let site = Site::start(&upstreams, &[limit], Upstream::plain());
    for _ in 0..5 {
        assert_eq!(site.get("").status(), 503);
    }
}

/// A response to a request whose cost is in its body.
fn with_body(fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\n{fields}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn costs_in_streams_and_packed_bodies() {
    let limit = "count: cost json usage.total_tokens";
    let document = br#"{"text":"a b c a b c","usage":{"total_tokens":42}}"#;
    let events = concat!(
        "data: {\"usage\":null}\n\n",
        "data: {\"choices\":[],\ndata: \"usage\":{\"total_tokens\":42}}\n\n",
        "data: [DONE]\n\n",
    );
    let lines = "{\"usage\":{\"total_tokens\":7}}\n{\"usage\":{\"total_tokens\":42}}\n";
    let gzip = || {
        let mut out = GzEncoder::new(Vec::new(), Compression::default());
        out.write_all(document).unwrap();
        out.finish().unwrap()
    };
    let zlib = || {
        let mut out = ZlibEncoder::new(Vec::new(), Compression::default());
        out.write_all(document).unwrap();
        out.finish().unwrap()
    };
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = || ruzstd::encoding::compress_to_vec(&document[..], level);
    for (fields, body, used) in [
        ("content-type: text/event-stream\r\n", events.into(), 42),
        ("content-type: text/plain\r\n", events.into(), 42),
        ("content-type: application/x-ndjson\r\n", lines.into(), 42),
        ("content-type: text/plain\r\n", document.to_vec(), 42),
        ("content-encoding: gzip\r\n", gzip(), 42),
        ("content-encoding: deflate\r\n", zlib(), 42),
        ("content-encoding: zstd\r\n", zstd(), 42),
        (
            "content-encoding: gzip\r\ncontent-encoding: identity\r\n",
            gzip(),
            42,
        ),
        // Nobody here can read it.
        ("content-encoding: lzma\r\n", document.to_vec(), 1),
        ("content-encoding: gzip\r\n", document.to_vec(), 1),
    ] {
        check_cost(limit, with_body(fields, &body), used);
    }
}

#[test]
fn costs_in_trailers_and_doubled_fields() {
    let limit = "count: cost header x-cost";
    let trailers =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\nx-cost: 42\r\n\r\n";
    check_cost(limit, trailers, 42);
    check_cost(limit, trailers.replace("x-cost", "x-other"), 1);
    check_cost(
        limit,
        with_cost("x-cost: 5\r\nx-cost: 50\r\nx-cost: 7, 9\r\n"),
        50,
    );
}

#[test]
fn costs_that_break_off() {
    let limit = "count: cost json cost";
    for (body, used) in [
        ("{\"cost\":50,\"text\":\"", 50),
        ("{\"cost\":50", 1),
        ("{\"text\":", 1),
    ] {
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{body}");
        let limit = format!("units: {{ key: ip, rate: 100/h, {limit} }}");
        let upstream = Upstream::scripted(move |mut served, report| {
            if let Ok(request) = served.request() {
                report(request);
                served.send(&answer);
            }
        });
        let site = Site::start("", &[&limit], upstream);
        for expected in [99, 99 - used] {
            let mut client = site.gateway.connect();
            client.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
            let head = client.head().unwrap();
            assert_eq!(told(&head), format!("units {expected}"), "{body}");
            // Until the gateway has seen the end.
            let mut rest = Vec::new();
            let _ = std::io::Read::read_to_end(&mut client.reader, &mut rest);
        }
    }
}

/// A server that sends `first`, and when the gate is open `last`; of `/free` a response that costs nothing.
fn held(gate: &Gate, first: &str, last: &str) -> Upstream {
    let (gate, first, last) = (gate.clone(), first.to_owned(), last.to_owned());
    Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            if request.start.contains(" /free ") {
                served.send(ok("{\"cost\":0}"));
                continue;
            }
            report(request);
            served.send(&first);
            gate.pass();
            served.send(&last);
        }
    })
}

/// What of 1,000 units is used, as a request says that costs nothing.
fn used(site: &Site) -> u32 {
    let answer = site.gateway.connect().get("/free");
    let left = told(&answer);
    let left = left.strip_prefix("units ").expect("the limit speaks");
    999 - left.parse::<u32>().unwrap()
}

/// 20 clients that leave, and one that stays, are charged alike.
#[track_caller]
fn check_leaving(first: &str, last: &str, reads: usize) {
    let gate = Gate::default();
    let limit = "units: { key: ip, rate: 1000/h, count: cost json cost }";
    let site = Site::start("", &[limit], held(&gate, first, last));
    for _ in 0..20 {
        let mut client = site.gateway.connect();
        client.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
        site.upstream.next();
        let mut part = vec![0; reads];
        std::io::Read::read_exact(&mut client.reader, &mut part).unwrap();
    }
    http2::run(async {
        let mut client = http2::Client::connect(site.gateway.address).await;
        for _ in 0..10 {
            let (answer, mut body) = client.begin(http2::get("/a"), true);
            reached(&site.upstream).await;
            if reads > 0 {
                assert_eq!(answer.await.unwrap().status(), 200);
            }
            body.send_reset(h2::Reason::CANCEL);
        }
        // All of them have been read.
        assert_eq!(client.get("/free").await.status, 200);
    });
    gate.open();
    assert_eq!(site.get("").status(), 200);
    wait_until(first, || used(&site) == 31 * 9);
}

#[test]
fn clients_that_leave_are_charged_as_those_that_stay() {
    let (head, first) = (
        "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n",
        "{\"t\":\"abc\",",
    );
    check_leaving("", &format!("{head}{first}\"cost\":9}}"), 0);
    check_leaving(&format!("{head}{first}"), "\"cost\":9}", 0);
    check_leaving(&format!("{head}{first}"), "\"cost\":9}", 40);
    let events =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let first = format!("{events}b\r\ndata: {{}}\n\n\n\r\n");
    check_leaving(&first, "11\r\ndata: {\"cost\":9}\n\r\n0\r\n\r\n", 20);
}

#[test]
fn head_costs_what_get_costs() {
    let upstream = Upstream::answering(|request| {
        assert!(request.start.starts_with("GET "), "{}", request.start);
        let free = request.start.contains(" /free ");
        ok(if free { "{\"cost\":0}" } else { "{\"cost\":9}" })
            .replace("OK\r\n", "OK\r\naccept-ranges: bytes\r\n")
    });
    let limit = "units: { key: ip, rate: 1000/h, count: cost json cost }";
    let site = Site::start("", &[limit], upstream);
    let mut client = site.gateway.connect();
    for number in 1..10 {
        client.send("HEAD /a HTTP/1.1\r\nhost: t\r\nrange: bytes=0-1\r\n\r\n");
        let head = client.head().unwrap();
        assert_eq!(head.field("content-length"), Some("10"));
        assert_eq!(head.field("accept-ranges"), Some("none"));
        let request = site.upstream.next();
        assert_eq!(
            (request.field("range"), request.field("accept-encoding")),
            (None, Some("identity"))
        );
        // The body is read after the client has its head.
        wait_until("it is charged", || used(&site) == number * 9);
        site.upstream.drain();
    }
}

#[test]
fn what_never_becomes_known_is_counted() {
    let limits = [
        "units: { key: ip, rate: 1000/h, count: cost json cost }",
        "fields: { key: ip, rate: 1000/h, count: cost header x-cost }",
    ];
    let upstream = Upstream::answering(|_| ok("{\"cost\":9}"));
    let site = Site::start("access_log: access.log\n", &limits, upstream);
    for _ in 0..3 {
        assert_eq!(site.get("").status(), 200);
    }
    let unknown = |limit: &str| {
        let series = format!("tollgate_cost_unknown_total{{limit=\"{limit}\"}} ");
        let text = site.gateway.app.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.map(|value| value.parse::<u32>().unwrap())
    };
    assert_eq!((unknown("units"), unknown("fields")), (Some(0), Some(3)));
    let log = site.gateway.folder.path().join("access.log");
    let line = ",\"cost\":9,\"cost_unknown\":true,";
    wait_until("the log says so", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.matches(line).count() == 3
    });
}
