//! Heads, statuses, trailers, and the ends of streams and connections.

use std::sync::{Arc, Barrier};

use http::HeaderMap;

use crate::common::http2::{Client, get, request, run, whole};
use crate::common::{Gate, Gateway, Upstream, assert_contains, ok};

const OPEN: &str = "match: /**\nupstream: up\n";

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::start(upstream.address, "", &[("all", OPEN)])
}

/// Requests of one connection are answered side by side, each by its own answer.
#[test]
fn streams_do_not_mix() {
    let all_there = Arc::new(Barrier::new(100));
    let upstream = Upstream::answering(move |request| {
        all_there.wait();
        ok(&request.start)
    });
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let answers: Vec<_> = (0..100)
            .map(|n| client.begin(get(&format!("/{n}")), true).0)
            .collect();
        for (n, answer) in answers.into_iter().enumerate() {
            let answer = whole(answer.await.unwrap()).await.unwrap();
            assert_eq!(answer.status, 200);
            assert_eq!(answer.body, format!("GET /{n} HTTP/1.1"));
        }
    });
}

/// RFC 9113 section 8.3.1 and 8.2.3: the authority becomes the Host, cookie crumbs one field. RFC 9110
/// section 7.6.3: Via names the version.
#[test]
fn a_request_becomes_one_of_http1() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let crumbs = request("GET", "/a?b=c%20d")
            .header("cookie", "a=1")
            .header("x-own", "kept")
            .header("cookie", "b=2")
            .header("te", "trailers")
            .body(());
        let answer = client.begin(crumbs.unwrap(), true).0.await.unwrap();
        let answer = whole(answer).await.unwrap();
        assert_eq!(answer.body, "fine");
        assert!(answer.field("date").is_some() && answer.field("connection").is_none());
    });
    let seen = upstream.next();
    assert_eq!(seen.start, "GET /a?b=c%20d HTTP/1.1");
    assert_eq!(seen.field("host"), Some("test"));
    assert_eq!(seen.field("cookie"), Some("a=1; b=2"));
    assert_eq!(seen.field("via"), Some("2.0 tollgate"));
    assert_eq!(seen.field("x-own"), Some("kept"));
    assert_eq!(seen.field("te"), Some("trailers"));
    let hosts = seen.fields.iter().filter(|(name, _)| name == "host");
    assert_eq!(hosts.count(), 1);
    assert!(seen.field("transfer-encoding").is_none() && seen.field("content-length").is_none());
}

/// RFC 9113 section 8.1: trailers pass both ways, also to a server of HTTP/1.1.
#[test]
fn trailers_pass() {
    let upstream = Upstream::answering(|request| {
        let sum = request.trailers.iter().find(|(name, _)| name == "x-sum");
        let sum = sum.map_or("none", |(_, value)| value);
        format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nx-back: {sum}\r\n\r\n"
        )
    });
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let post = request("POST", "/").body(()).unwrap();
        let (answer, mut body) = client.begin(post, false);
        body.send_data("content".into(), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "42".parse().unwrap());
        // RFC 9110 section 6.5.1: no routing in trailers.
        trailers.insert("host", "other".parse().unwrap());
        body.send_trailers(trailers).unwrap();
        let answer = whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.body, "body");
        assert_eq!(answer.trailers.unwrap()["x-back"], "42");
    });
    let seen = upstream.next();
    assert_eq!(seen.body, b"content");
    assert_eq!(seen.trailers, [("x-sum".to_owned(), "42".to_owned())]);
}

/// RFC 9110 sections 9.3.2, 15.3.5 and 15.4.5: answers without a body say what they would have.
#[test]
fn answers_without_a_body() {
    let upstream = Upstream::answering(|request| match request.start.as_str() {
        "GET /204 HTTP/1.1" => "HTTP/1.1 204 No Content\r\n\r\n".into(),
        "GET /304 HTTP/1.1" => "HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n".into(),
        _ => "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n".into(),
    });
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let head = request("HEAD", "/").body(()).unwrap();
        let answer = client.begin(head, true).0.await.unwrap();
        assert!(answer.body().is_end_stream());
        let answer = whole(answer).await.unwrap();
        assert_eq!(answer.field("content-length"), Some("12"));
        assert!(answer.body.is_empty());
        for status in [204, 304] {
            let answer = client.get(&format!("/{status}")).await;
            assert_eq!((answer.status, answer.body.len()), (status, 0));
            assert!(answer.field("content-length").is_none());
        }
    });
}

/// RFC 9110 section 15.2: interim answers pass; 100 comes when the server asks for the body.
#[test]
fn interim_answers_pass() {
    let upstream = Upstream::scripted(|mut served, _| {
        let mut request = crate::common::read_head(&mut served.reader).unwrap();
        served.send("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
        crate::common::read_body(&mut served.reader, &mut request).unwrap();
        served.send(ok(&request.text()));
    });
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let post = request("POST", "/").header("expect", "100-continue");
        let post = post.header("content-length", 4).body(()).unwrap();
        let (mut answer, mut body) = client.begin(post, false);
        let interim = std::future::poll_fn(|cx| answer.poll_informational(cx));
        let interim = interim.await.unwrap().unwrap();
        assert_eq!(interim.status(), 103);
        assert_eq!(interim.headers()["link"], "</a>");
        let interim = std::future::poll_fn(|cx| answer.poll_informational(cx));
        assert_eq!(interim.await.unwrap().unwrap().status(), 100);
        body.send_data("body".into(), true).unwrap();
        let answer = whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.body, "body");
    });
}

/// A limit is kept however many requests come at once, and refusals leave the connection as it is.
#[test]
fn a_limit_holds_for_all_streams_together() {
    let upstream = Upstream::plain();
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 5/h } }\n";
    let gateway = Gateway::start(upstream.address, "", &[("all", policy)]);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let post = || request("POST", "/").body(()).unwrap();
        let answers: Vec<_> = (0..100).map(|_| client.begin(post(), false)).collect();
        let mut admitted = 0;
        for (answer, mut body) in answers {
            // It may have been refused already, without a look at the body.
            let _ = body.send_data(vec![1; 100].into(), true);
            let answer = whole(answer.await.unwrap()).await.unwrap();
            match answer.status {
                200 => admitted += 1,
                429 => assert_contains(std::str::from_utf8(&answer.body).unwrap(), &["\"few\""]),
                status => panic!("{status}"),
            }
        }
        assert_eq!(admitted, 5);
        assert_eq!(client.get("/").await.status, 429);
    });
    assert_eq!(upstream.drain().len(), 5);
}

/// A gRPC call that is refused sees RESOURCE_EXHAUSTED in an answer of one head.
#[test]
fn grpc_is_refused_in_its_own_words() {
    let upstream = Upstream::plain();
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 1/h } }\n";
    let gateway = Gateway::start(upstream.address, "", &[("all", policy)]);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        client.get("/").await;
        let call = request("POST", "/a.B/C").header("content-type", "application/grpc");
        let (answer, _body) = client.begin(call.body(()).unwrap(), false);
        let answer = answer.await.unwrap();
        assert!(answer.body().is_end_stream());
        let answer = whole(answer).await.unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("grpc-status"), Some("8"));
        // Who retries waits as long: gRFC A6.
        let number = |name: &str| answer.field(name).unwrap().parse::<u64>().unwrap();
        let seconds = number("retry-after");
        assert!((3590..=3600).contains(&seconds), "{answer:?}");
        assert_eq!(number("grpc-retry-pushback-ms"), seconds * 1000);
    });
}

/// A request that is taken back is taken back from the server too.
#[test]
fn cancellation_reaches_the_server() {
    let upstream = Upstream::scripted(|mut served, report| {
        report(served.request().unwrap());
        served.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n");
        // The end of the connection.
        assert!(served.request().is_err());
        report(Default::default());
    });
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let (answer, mut body) = client.begin(get("/"), true);
        let _begun = answer.await.unwrap();
        upstream.next();
        body.send_reset(h2::Reason::CANCEL);
        tokio::task::yield_now().await;
        let upstream = upstream;
        let ended = tokio::task::spawn_blocking(move || upstream.next());
        assert_eq!(ended.await.unwrap().start, "");
    });
}

/// RFC 9112 section 8: an answer that broke off does not look whole; other streams go on.
#[test]
fn broken_answers_are_reset() {
    let upstream = Upstream::scripted(|mut served, _| {
        while let Ok(request) = served.request() {
            if request.start.contains("/broken") {
                return served.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345");
            }
            served.send(ok("fine"));
        }
    });
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        for _ in 0..3 {
            let (answer, _) = client.begin(get("/broken"), true);
            let result = match answer.await {
                Ok(answer) => whole(answer).await.map(|_| ()),
                Err(error) => Err(error),
            };
            assert_eq!(
                result.unwrap_err().reason(),
                Some(h2::Reason::INTERNAL_ERROR)
            );
            assert_eq!(client.get("/").await.body, "fine");
        }
    });
}

/// RFC 9113 section 6.8: a drain lets what runs finish and tells clients to go elsewhere.
#[test]
fn a_drain_says_goaway_and_finishes() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            held.pass();
            served.send(ok("fine"));
        }
    });
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let (answer, _) = client.begin(get("/"), true);
        let other = Client::connect(gateway.address).await;
        while !other.send.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let asked = tokio::task::spawn_blocking(move || upstream.next());
        asked.await.unwrap();
        let (app, folder) = (gateway.app, gateway.folder);
        let drained = tokio::task::spawn_blocking(move || {
            app.shut_down();
            drop(folder);
        });
        // Without a request it ends at once.
        other.ends.await.unwrap().unwrap();
        gate.open();
        assert_eq!(whole(answer.await.unwrap()).await.unwrap().body, "fine");
        drop(client.send);
        client.ends.await.unwrap().unwrap();
        drained.await.unwrap();
    });
}

/// A connection without a request is told its end before it is closed.
#[test]
fn idle_connections_are_told() {
    let upstream = Upstream::plain();
    let timeouts = "timeouts: { idle: 300ms }\n";
    let gateway = Gateway::start(upstream.address, timeouts, &[("all", OPEN)]);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        assert_eq!(client.get("/").await.status, 200);
        // Holding `send` keeps the connection open from this side.
        client.ends.await.unwrap().unwrap();
        let unused = Client::connect(gateway.address).await;
        unused.ends.await.unwrap().unwrap();
    });
}

/// RFC 9113 section 3.4: a preface that stops is late as a head is.
#[test]
fn half_a_preface_is_late() {
    use std::io::{Read, Write};
    let upstream = Upstream::plain();
    let timeouts = "timeouts: { header: 300ms }\n";
    let gateway = Gateway::start(upstream.address, timeouts, &[("all", OPEN)]);
    let mut client = std::net::TcpStream::connect(gateway.address).unwrap();
    client
        .set_read_timeout(Some(crate::common::MAX_WAIT))
        .unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\n").unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
}

/// RFC 9113 section 8.3.1: a `Host` may stand in the place of the authority. RFC 9110 section 8.6: servers of
/// HTTP/1.1 are told that nothing follows.
#[test]
fn a_host_without_an_authority() {
    use crate::common::raw::{END_HEADERS, END_STREAM, HEADERS, Raw, block, frame};
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    let mut raw = Raw::connect(gateway.address, &[]);
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        ("host", "other"),
    ]);
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
    assert_eq!(raw.next(HEADERS).unwrap().payload[0], 0x88);
    let seen = upstream.next();
    assert_eq!(seen.field("host"), Some("other"));
    assert_eq!(seen.field("content-length"), Some("0"));
}

/// RFC 9113 section 8.3.1: an authority and a `Host` may spell the same host and port in two ways, the scheme's default port
/// among them (RFC 9110 section 4.2). Otherwise the request is malformed.
#[test]
fn an_authority_and_a_host() {
    use crate::common::raw::{END_HEADERS, END_STREAM, HEADERS, Raw, block, frame};
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    for (scheme, authority, host, same) in [
        ("https", "a.test:443", "a.test", true),
        ("https", "a.test", "A.Test.:0443", true),
        ("http", "a.test:80", "a.test", true),
        ("http", "[0::1]", "[::1]:80", true),
        ("http", "a.test:443", "a.test", false),
        ("https", "a.test:80", "a.test", false),
        ("http", "a.test:8080", "a.test", false),
        ("http", "a.test", "b.test", false),
        ("http", "a..test", "A..test", false),
    ] {
        let mut raw = Raw::connect(gateway.address, &[]);
        let head = block(&[
            (":method", "GET"),
            (":scheme", scheme),
            (":authority", authority),
            (":path", "/"),
            ("host", host),
        ]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
        let mut frames = std::iter::from_fn(|| raw.frame());
        let about = frames.find(|frame| frame.stream == 1).unwrap();
        assert_eq!(about.kind == HEADERS, same, "{scheme} {authority} {host}");
        let hosts = upstream.drain().len();
        assert_eq!(hosts, usize::from(same), "{scheme} {authority} {host}");
    }
}

/// An authority is read as the `Host` of HTTP/1.1 is: one form goes on, and what is no host is refused.
#[test]
fn an_authority_is_forwarded_in_one_form() {
    use crate::common::raw::{END_HEADERS, END_STREAM, HEADERS, Raw, block, frame};
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    for (authority, host) in [
        ("a.test", Some("a.test")),
        ("A.Test.:080", Some("a.test:80")),
        ("[0::1]", Some("[::1]")),
        ("a.test,x", None),
        ("a.test;x", None),
        ("me@a.test", None),
        ("a..test", None),
        ("127.1", None),
        ("[::1%25eth0]", None),
        ("a.test:65536", None),
    ] {
        for name in [":authority", "host"] {
            let mut raw = Raw::connect(gateway.address, &[]);
            let head = block(&[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (name, authority),
            ]);
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
            let status = raw.next(HEADERS).unwrap().payload[0];
            // Entries of the static table for 200 and 400.
            let expected = if host.is_some() { 0x88 } else { 0x8c };
            assert_eq!(status, expected, "{name} {authority}");
            if let Some(host) = host {
                let seen = upstream.next();
                assert_eq!(seen.field("host"), Some(host), "{name} {authority}");
                assert_eq!(seen.field("x-forwarded-host"), Some(host));
            }
        }
    }
    assert!(upstream.drain().is_empty());
}

/// RFC 9112 section 6.2: a body that is read ahead and has trailers goes on in chunks, whatever length it has said.
#[test]
fn a_length_and_trailers_do_not_meet() {
    let upstream = Upstream::answering(|request| ok(&request.text()));
    let identity = "identity: { email: { body: email } }\n";
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: email, rate: 5/h } }\n";
    let gateway = Gateway::start(upstream.address, identity, &[("all", policy)]);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let post = request("POST", "/")
            .header("content-type", "application/json")
            .header("content-length", 25);
        let (answer, mut body) = client.begin(post.body(()).unwrap(), false);
        let content = "{\"email\":\"a@example.org\"}";
        body.send_data(content.into(), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-a", "b".parse().unwrap());
        body.send_trailers(trailers).unwrap();
        let answer = whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.body, content);
    });
    let seen = upstream.next();
    assert_eq!(seen.field("transfer-encoding"), Some("chunked"));
    assert_eq!(seen.field("content-length"), None);
    assert_eq!(seen.trailers, [("x-a".to_owned(), "b".to_owned())]);
}
