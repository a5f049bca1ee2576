//! What two readers of HTTP could read differently is refused, and what belongs to one connection
//! stays on it.

use crate::common::{Gateway, Upstream};

const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");

#[track_caller]
fn refused(request: &str) {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let mut client = gateway.connect();
    client.send(request);
    let answer = client.answer();
    assert_eq!(answer.status(), 400, "{request:?}");
    client.rest();
    assert!(
        upstream.drain().is_empty(),
        "{request:?} reached the upstream"
    );
}

#[test]
fn hosts() {
    refused("GET / HTTP/1.1\r\n\r\n");
    refused("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
    refused("GET / HTTP/1.1\r\nhost: a b\r\n\r\n");
    refused("GET / HTTP/1.1\r\nhost: a/b\r\n\r\n");
    refused("GET / HTTP/1.1\r\nhost:\r\n\r\n");
}

#[test]
fn absolute_targets() {
    refused("GET http://a/ HTTP/1.1\r\n\r\n");
    refused("GET http://a/ HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
    refused("GET http://a/ HTTP/1.1\r\nhost: a b\r\n\r\n");
    refused("GET http://me@a/ HTTP/1.1\r\nhost: a\r\n\r\n");
    refused("GET ftp://a/ HTTP/1.1\r\nhost: a\r\n\r\n");
}

#[test]
fn lines() {
    refused("GET / HTTP/1.1\nhost: t\r\n\r\n");
    refused("GET / HTTP/1.1\r\nhost: t\nx: y\r\n\r\n");
    refused("GET / HTTP/1.1\r\nhost: t\r\n\n");
    refused("GET /a b HTTP/1.1\r\nhost: t\r\n\r\n");
}

#[test]
fn paths() {
    refused("GET /a%00b HTTP/1.1\r\nhost: t\r\n\r\n");
    refused("GET /a%zz HTTP/1.1\r\nhost: t\r\n\r\n");
    refused("GET /a/..;/b HTTP/1.1\r\nhost: t\r\n\r\n");
}

#[test]
fn lengths_and_codings() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n";
    for fields in [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5\r\ncontent-length: 5",
        "content-length: 5\r\ntransfer-encoding: chunked",
        "content-length: +5",
        "content-length: 5, 6",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding : chunked",
        "transfer-encoding: identity\r\ncontent-length: 5",
    ] {
        refused(&format!(
            "POST / HTTP/1.1\r\nhost: t\r\n{fields}\r\n\r\n0\r\n\r\n{smuggled}"
        ));
    }
}

#[test]
fn fields_of_one_connection_are_not_passed_on() {
    let upstream = Upstream::answering(|_| {
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: x-hop\r\nx-hop: 1\r\n\
         keep-alive: timeout=5\r\nx-end: 2\r\n\r\n"
            .into()
    });
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let mut client = gateway.connect();
    client.send(
        "GET /x HTTP/1.1\r\nhost: t\r\nconnection: x-secret, x-forwarded-for\r\nx-secret: 1\r\n\
         x-forwarded-for: 6.6.6.6\r\ntollgate-user: root\r\nproxy-connection: close\r\n\
         upgrade: h2c\r\nte: gzip\r\nx-end: 1\r\n\r\n",
    );
    let answer = client.answer();
    assert_eq!(
        (answer.field("x-hop"), answer.field("keep-alive")),
        (None, None)
    );
    assert_eq!(answer.field("x-end"), Some("2"));
    let seen = upstream.next();
    for gone in [
        "x-secret",
        "tollgate-user",
        "proxy-connection",
        "upgrade",
        "te",
    ] {
        assert_eq!(seen.field(gone), None, "{gone}");
    }
    assert_eq!(seen.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.field("x-end"), Some("1"));
    assert_eq!(
        seen.field("forwarded"),
        Some("for=127.0.0.1;host=\"t\";proto=http")
    );
}

#[test]
fn targets_go_on_as_they_were_written() {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let mut client = gateway.connect();
    for target in ["/a%2Fb/./c//d?x=%20&y", "/%41", "/a;v=1?", "/?//"] {
        client.send(format!("GET {target} HTTP/1.1\r\nhost: t\r\n\r\n"));
        assert_eq!(client.answer().status(), 200);
        assert_eq!(upstream.next().start, format!("GET {target} HTTP/1.1"));
    }
    client.send("GET http://other.example:81/abs HTTP/1.1\r\nhost: lies\r\n\r\n");
    client.answer();
    let seen = upstream.next();
    assert_eq!(seen.start, "GET /abs HTTP/1.1");
    assert_eq!(seen.field("host"), Some("other.example:81"));
    client.send("GET http://other.example?q HTTP/1.1\r\nhost: lies\r\n\r\n");
    client.answer();
    assert_eq!(upstream.next().start, "GET /?q HTTP/1.1");
}

#[test]
fn what_fields_may_not_say_trailers_may_not_either() {
    let upstream = Upstream::plain();
    let identity = "identity: { user: { header: x-user, from: [10.0.0.0/8] } }\n";
    let gateway = Gateway::start(upstream.address, identity, &[ALL]);
    let mut client = gateway.connect();
    client.send(
        "POST / HTTP/1.1\r\nhost: t\r\nx-user: root\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\
         x-user: root\r\ntollgate_user: root\r\nx-real-ip: 6.6.6.6\r\nhost: b\r\nx-sum: 1\r\n\r\n",
    );
    assert_eq!(client.answer().status(), 200);
    let seen = upstream.next();
    assert_eq!(seen.field("x-user"), None);
    assert_eq!(seen.trailers, [("x-sum".to_owned(), "1".to_owned())]);
}

#[test]
fn requests_in_one_write_are_answered_in_turn() {
    let upstream = Upstream::answering(|request| crate::common::ok(&request.start));
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let mut client = gateway.connect();
    client.send("GET /1 HTTP/1.1\r\nhost: t\r\n\r\nGET /2 HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.answer().text(), "GET /1 HTTP/1.1");
    assert_eq!(client.answer().text(), "GET /2 HTTP/1.1");
}
