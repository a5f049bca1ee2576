//! Bounds on the size of requests' bodies: a larger one gets 413, before it is read where that is known.

use crate::common::raw::{DATA, END_HEADERS, END_STREAM, HEADERS, Raw, block, frame};
use crate::common::{Gateway, Message, Upstream, assert_contains, ok, read_head};

const KIB: &str = "match: /a/**\nupstream: up\nmax_body: 1KiB\n";
const ALL: &str = "match: /**\nupstream: up\n";

fn upstream() -> Upstream {
    Upstream::answering(|request| ok(&request.body.len().to_string()))
}

fn gateway(upstream: &Upstream) -> Gateway {
    let policies = [("kib", KIB), ("all", ALL)];
    Gateway::start(upstream.address, "workers: 1\n", &policies)
}

#[track_caller]
fn assert_too_large(answer: &Message, upstream: &Upstream) {
    assert_eq!(answer.status(), 413);
    let text = answer.text();
    assert_contains(&text, &["The request body is larger than 1024 bytes."]);
    assert!(upstream.drain().is_empty(), "the server has the request");
}

fn chunk(bytes: usize) -> String {
    format!("{bytes:x}\r\n{}\r\n", "b".repeat(bytes))
}

const CHUNKED: &str = "POST /a/x HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n";

#[test]
fn a_body_that_says_to_be_too_large_is_not_read() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    for more in ["", "expect: 100-continue\r\n"] {
        let mut client = gateway.connect();
        client.send(format!(
            "POST /a/x HTTP/1.1\r\nhost: t\r\n{more}content-length: 1025\r\n\r\n"
        ));
        let head = read_head(&mut client.reader).unwrap();
        assert_eq!(head.status(), 413, "{more}");
    }
    // The path as frameworks fold it, and as servers resolve it.
    for path in ["/A/x", "/b/../a/x"] {
        let mut client = gateway.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: 1025\r\n\r\n"
        ));
        assert_too_large(&client.answer(), &upstream);
    }
    let mut client = gateway.connect();
    for (path, bytes) in [("/a/x", 1024), ("/b", 1025), ("/a/x", 0)] {
        let body = "b".repeat(bytes);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {bytes}\r\n\r\n{body}"
        ));
        let answer = client.answer();
        let expected = (200, bytes.to_string());
        assert_eq!((answer.status(), answer.text()), expected, "{path}");
    }
    let metrics = gateway.app.metrics();
    let rejected = "tollgate_requests_total{route=\"kib\",outcome=\"rejected\"} 4";
    assert_contains(&metrics, &[rejected]);
}

#[test]
fn a_body_in_chunks_ends_where_it_is_too_large() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    for chunks in [&[1024, 1][..], &[1025], &[512, 513], &[100_000]] {
        let mut client = gateway.connect();
        client.send(CHUNKED);
        for bytes in chunks {
            client.send(chunk(*bytes));
        }
        assert_too_large(&client.answer(), &upstream);
    }
    let mut client = gateway.connect();
    client.send([CHUNKED, &chunk(1000), &chunk(24), "0\r\n\r\n"].concat());
    assert_eq!(client.answer().text(), "1024");
}

/// What is searched for an identity before it passes counts once.
#[test]
fn a_body_that_is_read_ahead_is_bounded() {
    let upstream = upstream();
    let identity = "workers: 1\nidentity: { email: { body: email } }\n";
    let limits = "limits: { few: { key: email, rate: 100/m } }\n";
    let policy = [KIB, limits].concat();
    let gateway = Gateway::start(upstream.address, identity, &[("kib", &policy)]);
    let head = CHUNKED.replace(
        "host: t\r\n",
        "host: t\r\ncontent-type: application/x-www-form-urlencoded\r\n",
    );
    let email = "1b\r\nemail=a%40example.com&rest=\r\n";
    for (bytes, status) in [(1024 - 27, 200), (1025 - 27, 413)] {
        let mut client = gateway.connect();
        client.send([&head, email, &chunk(bytes), "0\r\n\r\n"].concat());
        assert_eq!(client.answer().status(), status, "{bytes}");
    }
    assert_eq!(upstream.drain().len(), 1);
}

/// A body that may name another method is read before its route is known for sure.
#[test]
fn a_body_that_may_name_a_method_is_bounded() {
    let upstream = upstream();
    let limits = "limits: { few: { key: ip, rate: 3/h } }\n";
    let post = [&KIB.replace("/a/**", "POST /a/**"), limits].concat();
    let delete = "match: DELETE /a/**\nupstream: up\nlimits: { few: { key: ip, rate: 9/m } }\n";
    let policies = [("post", &*post), ("delete", delete)];
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &policies);
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let head = CHUNKED.replace("host: t\r\n", &format!("host: t\r\n{form}"));
    let mut client = gateway.connect();
    client.send([&head, "7\r\n_method\r\n", &chunk(1018)].concat());
    assert_too_large(&client.answer(), &upstream);
    let mut client = gateway.connect();
    client.send(head.replace("transfer-encoding: chunked", "content-length: 1025"));
    assert_too_large(&client.answer(), &upstream);
    let mut client = gateway.connect();
    client.send([&head, &chunk(1024), "0\r\n\r\n"].concat());
    assert_eq!(client.answer().text(), "1024");
    let mut client = gateway.connect();
    client.send([&*head, &chunk(2000)].concat());
    assert_eq!(client.head().unwrap().status(), 429, "all count");
}

#[test]
fn bodies_over_http2_are_bounded() {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "t"),
        (":path", "/a/x"),
    ];
    let declared = [&fields[..], &[("content-length", "1025")]].concat();
    for (head, bytes) in [(&declared[..], 0), (&fields[..], 1025)] {
        let mut raw = Raw::connect(gateway.address, &[]);
        raw.send(&frame(HEADERS, END_HEADERS, 1, &block(head)));
        raw.send(&frame(DATA, 0, 1, &vec![b'b'; bytes]));
        let answer = raw.next(HEADERS).unwrap();
        // The value of `:status` is no entry of the static table: it follows the name as a literal.
        assert!(answer.payload.windows(3).any(|value| value == b"413"));
        assert!(upstream.drain().is_empty());
        raw.send(&frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            3,
            &block(&fields),
        ));
        while raw.next(HEADERS).unwrap().stream != 3 {}
        assert_eq!(upstream.next().body.len(), 0, "the connection goes on");
    }
}

/// The bytes of a tunnel are no body.
#[test]
fn tunnels_are_not_bounded() {
    let upstream = Upstream::scripted(|mut served, _| {
        let _ = read_head(&mut served.reader);
        served.send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        );
        let _ = std::io::copy(&mut served.reader, &mut served.stream);
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send("GET /a/x HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    assert_eq!(read_head(&mut client.reader).unwrap().status(), 101);
    let sent = vec![b'b'; 5000];
    client.send(&sent);
    let mut echoed = vec![0; sent.len()];
    std::io::Read::read_exact(&mut client.reader, &mut echoed).unwrap();
    assert_eq!(echoed, sent);
}

#[test]
fn a_folder_has_a_bound_for_its_policies() {
    let upstream = upstream();
    let policies = [
        ("_defaults", "max_body: 1KiB\n"),
        ("small", "match: /a/**\nupstream: up\n"),
        ("large", "match: /b/**\nupstream: up\nmax_body: 2KiB\n"),
    ];
    let gateway = Gateway::start(upstream.address, "", &policies);
    for (path, bytes, status) in [
        ("/a/x", 1025, 413),
        ("/b/x", 1025, 200),
        ("/b/x", 2049, 413),
    ] {
        let mut client = gateway.connect();
        let body = "b".repeat(bytes);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {bytes}\r\n\r\n{body}"
        ));
        assert_eq!(client.answer().status(), status, "{path} {bytes}");
    }
}
