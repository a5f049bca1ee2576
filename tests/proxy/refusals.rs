//! A refusal reaches the client whole, and what the client was still sending is never taken for a
//! request.

use std::io::Write;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{Client, Gateway, Upstream, read_body, status};

const ONE: &str = "match: /**\nupstream: up\nlimits:\n  once: { key: ip, rate: 1/h }\n";
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n";

fn used_up(upstream: &Upstream) -> Gateway {
    let gateway = Gateway::start(upstream.address, "", &[("all", ONE)]);
    assert_eq!(gateway.connect().get("/first").status(), 200);
    upstream.next();
    gateway
}

/// Sends as much as the gateway takes, as fast as it takes it.
fn pour(client: &Client, bytes: usize) -> thread::JoinHandle<usize> {
    let mut stream = client.stream.try_clone().unwrap();
    let piece = SMUGGLED.repeat(512);
    thread::spawn(move || {
        let mut sent = 0;
        while sent < bytes {
            match stream.write(&piece.as_bytes()[..piece.len().min(bytes - sent)]) {
                Ok(n) if n > 0 => sent += n,
                _ => break,
            }
        }
        sent
    })
}

#[test]
fn a_client_in_the_middle_of_a_large_body_gets_the_whole_429() {
    let upstream = Upstream::plain();
    let gateway = used_up(&upstream);
    for _ in 0..20 {
        let mut client = gateway.connect();
        let size = 50_000_000;
        client.send(format!(
            "POST /big HTTP/1.1\r\nhost: t\r\ncontent-length: {size}\r\n\r\n"
        ));
        let sender = pour(&client, size);
        let answer = client.answer();
        assert_eq!(answer.status(), 429);
        assert!(answer.field("retry-after").is_some());
        assert!(
            answer.text().contains("\"violated-policies\":[\"once\"]"),
            "{}",
            answer.text()
        );
        assert_eq!(
            client.rest(),
            b"",
            "nothing of the body was answered as a request"
        );
        sender.join().unwrap();
    }
    assert!(upstream.drain().is_empty(), "nothing reached the upstream");
}

#[test]
fn a_chunked_body_is_drained_too() {
    let upstream = Upstream::plain();
    let gateway = used_up(&upstream);
    let mut client = gateway.connect();
    let chunk = format!("{:x}\r\n{SMUGGLED}\r\n", SMUGGLED.len());
    client.send("POST /c HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(chunk.repeat(100) + "0\r\n\r\n");
    assert_eq!(client.answer().status(), 429);
    assert_eq!(client.get("/next").status(), 429, "the connection goes on");
    assert!(upstream.drain().is_empty());
}

#[test]
fn a_small_body_costs_no_connection() {
    let upstream = Upstream::plain();
    let gateway = used_up(&upstream);
    let mut client = gateway.connect();
    for _ in 0..3 {
        client.send(format!(
            "POST /s HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n{SMUGGLED}",
            SMUGGLED.len()
        ));
        assert_eq!(client.answer().status(), 429);
    }
    assert!(upstream.drain().is_empty());
}

#[test]
fn a_client_that_waits_for_100_is_refused_without_it() {
    let upstream = Upstream::plain();
    let gateway = used_up(&upstream);
    let mut client = gateway.connect();
    client.send("POST /e HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n");
    let first = crate::common::read_head(&mut client.reader).unwrap();
    assert_eq!(first.status(), 429, "no 100 before it");
}

#[test]
fn what_a_refusal_looks_like() {
    let upstream = Upstream::plain();
    let gateway = used_up(&upstream);
    let answer = gateway.connect().get("/x");
    assert_eq!(
        answer.field("content-type"),
        Some("application/problem+json")
    );
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        body["type"],
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
    assert_eq!(
        (&body["status"], &body["violated-policies"][0]),
        (&429.into(), &"once".into())
    );
    let wait: u64 = answer.field("retry-after").unwrap().parse().unwrap();
    assert!((3590..=3600).contains(&wait), "{wait}");
    assert_eq!(
        answer.field("ratelimit-policy"),
        Some("\"once\";q=1;w=3600")
    );
    assert!(
        answer
            .field("ratelimit")
            .unwrap()
            .starts_with("\"once\";r=0;t=")
    );
}

#[test]
fn a_refusal_told_again_says_its_length_once() {
    let upstream = Upstream::plain();
    let gateway = used_up(&upstream);
    let mut client = gateway.connect();
    for number in 0..12 {
        let method = ["GET", "GET", "HEAD"][number % 3];
        client.send(format!("{method} /a HTTP/1.1\r\nhost: t\r\n\r\n"));
        let mut answer = client.head().unwrap();
        assert_eq!(answer.status(), 429);
        let lengths = answer.fields.iter().filter(|(n, _)| n == "content-length");
        assert_eq!(lengths.count(), 1, "{answer:?}");
        if method == "GET" {
            read_body(&mut client.reader, &mut answer).unwrap();
            assert!(answer.text().ends_with('}'), "{answer:?}");
        }
    }
}

#[test]
fn grpc_is_refused_in_its_own_words() {
    let upstream = Upstream::plain();
    let gateway = used_up(&upstream);
    let mut client = gateway.connect();
    client.send(
        "POST /pkg.Service/Call HTTP/1.1\r\nhost: t\r\ncontent-type: application/grpc+proto\r\n\
         content-length: 5\r\n\r\n\0\0\0\0\0",
    );
    let answer = client.answer();
    assert_eq!(
        (answer.status(), answer.field("grpc-status")),
        (200, Some("8"))
    );
    assert_eq!(answer.field("content-type"), Some("application/grpc"));
    assert!(answer.field("retry-after").is_some());
}

#[test]
fn header_styles() {
    let upstream = Upstream::plain();
    let policy = |style: &str| {
        format!(
            "match: /{style}\nupstream: up\nheaders: {style}\nlimits:\n  l{style}: {{ key: ip, rate: 5/m }}\n"
        )
    };
    let texts: Vec<_> = ["ietf", "legacy", "both", "none"]
        .map(|s| (s, policy(s)))
        .into();
    let policies: Vec<_> = texts
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let gateway = Gateway::start(upstream.address, "", &policies);
    let mut client = gateway.connect();
    let mut check = |style: &str, ietf: bool, legacy: bool| {
        let answer = client.get(&format!("/{style}"));
        assert_eq!(answer.field("ratelimit").is_some(), ietf, "{style}");
        assert_eq!(
            answer.field("x-ratelimit-remaining"),
            legacy.then_some("4"),
            "{style}"
        );
    };
    check("ietf", true, false);
    check("legacy", false, true);
    check("both", true, true);
    check("none", false, false);
}

/// The server is heard to its end, so hanging up buys no further guess.
#[test]
fn a_client_that_hangs_up_is_counted_by_the_status_it_did_not_see() {
    let gone = Arc::new(Barrier::new(2));
    let left = gone.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            let hang = request.start.contains("/hang");
            report(request);
            if hang {
                left.wait();
            }
            served.send(status(401));
        }
    });
    let policy = "match: POST /**\nupstream: up\nlimits:\n  \
                  failed: { key: ip, rate: 2/h, count: status 401 }\n";
    let gateway = Gateway::start(upstream.address, "", &[("login", policy)]);
    let mut client = gateway.connect();
    client.send("POST /hang HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n");
    upstream.next();
    drop(client);
    gone.wait();
    let mut client = gateway.connect();
    client.send("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(client.answer().status(), 401);
    client.send("POST /b HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n");
    let refused = client.answer();
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!(wait > 3000, "counted, not still pending: {wait}");
}

#[test]
fn what_no_policy_serves() {
    let upstream = Upstream::plain();
    let policies = [
        ("read", "match: GET /a\nupstream: up\n"),
        ("write", "match: PUT,POST /a\nupstream: up\n"),
    ];
    let gateway = Gateway::start(upstream.address, "", &policies);
    let mut client = gateway.connect();
    assert_eq!(client.get("/nowhere").status(), 404);
    client.send("DELETE /a HTTP/1.1\r\nhost: t\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.status(), 405);
    let mut allowed: Vec<_> = answer.field("allow").unwrap().split(", ").collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST", "PUT"]);
    assert!(upstream.drain().is_empty());
}

/// Refusals that were told before are told again: each must be that of its route, its client and its time.
#[test]
fn refusals_of_many_clients_in_turn() {
    let identity = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n";
    let upstream = Upstream::plain();
    let policy = |route: &str, limits: &str| {
        format!("match: /{route}\nupstream: up\nlimits: {{ {limits} }}\n")
    };
    let one = policy("one", "hour: { key: ip, rate: 1/h, throttle: hard }");
    let two = policy(
        "two",
        "hour: { key: ip, rate: 1/h, throttle: hard }, day: { key: ip, rate: 3/d, throttle: hard }",
    );
    let hidden = policy(
        "hidden",
        "minute: { key: ip, rate: 1/m, throttle: hard, disclose: none }, day: { key: ip, rate: 9/d, throttle: hard }",
    );
    let files = [("one", &*one), ("two", &*two), ("hidden", &*hidden)];
    let gateway = Gateway::start(upstream.address, identity, &files);
    let mut client = gateway.connect();
    let mut known = std::collections::HashMap::new();
    for number in 0_usize..600 {
        let route = ["one", "two", "hidden"][number * 7 / 5 % 3];
        let from = number * 11 / 3 % 8;
        client.send(format!(
            "GET /{route} HTTP/1.1\r\nhost: t\r\nx-forwarded-for: 192.0.2.{from}\r\n\r\n"
        ));
        let answer = client.answer();
        if answer.status() == 200 {
            continue;
        }
        assert_eq!(answer.status(), 429);
        let wait: u64 = answer.field("retry-after").unwrap().parse().unwrap();
        let text = answer.text();
        assert!(text.contains(&format!("try again in {wait} s.")), "{text}");
        let violated = match route {
            "hidden" => "}",
            _ => "\"violated-policies\":[\"hour\"]",
        };
        assert!(text.contains(violated), "{route}: {text}");
        let policy = answer.field("ratelimit-policy").unwrap();
        let told = match route {
            "one" => "\"hour\";q=1;w=3600",
            "two" => "\"hour\";q=1;w=3600, \"day\";q=3;w=86400",
            _ => "\"day\";q=9;w=86400",
        };
        assert_eq!(policy, told);
        // What is left of the day is the client's own; what is waited for only becomes less.
        let limit = answer.field("ratelimit").unwrap();
        let left = limit.split(";t=").next().unwrap().to_owned();
        let (least, same) = known.entry((route, from)).or_insert((wait, left.clone()));
        assert!(
            wait <= *least && wait + 30 > *least,
            "{route} {from}: {wait}, {least}"
        );
        assert_eq!(left, *same);
        *least = wait;
    }
    assert_eq!(known.len(), 24);
}
