//! Changes of protocol: RFC 9110 section 7.8, RFC 8441. What passes afterwards is nobody's business but
//! the client's and the server's; when it may begin, how long it may be silent and how it ends is the
//! gateway's.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::{
    Client, Gate, Gateway, Served, Upstream, assert_contains, ok, read_head, status, wait_until,
};

const OPEN: &str = "match: /**\nupstream: up\n";
const ASK: &str = "GET /chat HTTP/1.1\r\nhost: t\r\nconnection: keep-alive, Upgrade\r\n\
                   upgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                        upgrade: WebSocket\r\nsec-websocket-accept: x\r\n\r\n";

/// Changes to a protocol that says everything back, and reports what it heard when the client ends.
fn echo() -> Upstream {
    Upstream::scripted(|mut served, report| {
        while let Ok(mut request) = served.request() {
            if request.field("upgrade").is_none() {
                report(request);
                served.send(ok("fine"));
                continue;
            }
            served.send(SWITCHED);
            request.body = heard(&mut served);
            served.send("bye");
            report(request);
            break;
        }
    })
}

fn heard(served: &mut Served) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match served.reader.read(&mut piece) {
            Ok(n @ 1..) => {
                all.extend_from_slice(&piece[..n]);
                served.send(&piece[..n]);
            }
            _ => return all,
        }
    }
}

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::start(upstream.address, "", &[("all", OPEN)])
}

#[track_caller]
fn hears(client: &mut Client, text: &str) {
    let mut back = vec![0; text.len()];
    client.reader.read_exact(&mut back).unwrap();
    assert_eq!(String::from_utf8(back).unwrap(), text);
}

#[test]
fn a_tunnel_passes_both_ways_and_ends_one_way_at_a_time() {
    let upstream = echo();
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send(ASK);
    let head = client.head().unwrap();
    assert_eq!(head.status(), 101);
    assert_eq!(head.field("connection"), Some("upgrade"));
    assert_eq!(head.field("upgrade"), Some("websocket"));
    assert_eq!(head.field("sec-websocket-accept"), Some("x"));
    assert!(head.field("transfer-encoding").is_none());
    for text in ["one", "two", "GET / HTTP/1.1\r\n\r\n"] {
        client.send(text);
        hears(&mut client, text);
    }
    client.stream.shutdown(Shutdown::Write).unwrap();
    // What the server says after the client's end still comes.
    assert_eq!(client.rest(), b"bye");
    let seen = upstream.next();
    assert_eq!(seen.body, b"onetwoGET / HTTP/1.1\r\n\r\n");
    assert_eq!(seen.field("connection"), Some("upgrade"));
    assert_eq!(seen.field("upgrade"), Some("websocket"));
}

/// CVE-2026-2833: what a client sends before the server has agreed is no message to anybody yet.
#[test]
fn nothing_passes_before_the_server_agrees() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = read_head(&mut served.reader) {
            let upgrade = request.field("upgrade").is_some();
            report(request);
            if upgrade {
                held.pass();
                assert!(served.reader.buffer().is_empty(), "it came too early");
                served.send(status(403));
            } else {
                served.send(ok("fine"));
            }
        }
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send(format!("{ASK}GET /after HTTP/1.1\r\nhost: t\r\n\r\n"));
    assert!(upstream.next().start.contains("/chat"));
    gate.open();
    assert_eq!(client.answer().status(), 403);
    // The server did not, so it was a request like any other.
    assert_eq!(client.answer().text(), "fine");
    assert!(upstream.next().start.contains("/after"));
}

/// HTTP/2 and TLS are not to be begun behind the gateway's back, and an upgrade that is no upgrade is none.
#[test]
fn what_is_not_passed_on() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    let requests = [
        "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n",
        "connection: upgrade\r\nupgrade: HTTP/2.0\r\n\r\n",
        "connection: upgrade\r\nupgrade: TLS/1.2\r\n\r\n",
        "connection: upgrade\r\nupgrade: websocket, h2c\r\n\r\n",
        "connection: upgrade\r\nupgrade: websocket\r\nupgrade: h2c\r\n\r\n",
        "connection: upgrade\r\nupgrade: a b\r\n\r\n",
        "upgrade: websocket\r\n\r\n",
        "connection: upgrade\r\n\r\n",
        "connection: upgrade\r\nupgrade: websocket\r\ncontent-length: 1\r\n\r\na",
    ];
    for request in requests {
        let mut client = gateway.connect();
        client.send(format!("GET / HTTP/1.1\r\nhost: t\r\n{request}"));
        assert_eq!(client.answer().status(), 200);
        let seen = upstream.next();
        for name in ["connection", "upgrade", "http2-settings"] {
            assert!(seen.field(name).is_none(), "{request:?} {seen:?}");
        }
    }
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.0\r\nhost: t\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    assert!(upstream.next().field("upgrade").is_none());
}

/// A server may change to what it was asked to, and to nothing else.
#[test]
fn a_server_cannot_choose_the_protocol() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\r\n",
    ] {
        let upstream = Upstream::answering(|_| answer.into());
        let gateway = gateway(&upstream);
        let mut client = gateway.connect();
        client.send(ASK);
        assert_eq!(client.answer().status(), 502);
        assert_eq!(client.get("/").status(), 502, "nor unasked");
    }
}

#[test]
fn a_tunnel_may_be_silent_for_so_long() {
    let upstream = echo();
    let timeouts =
        "timeouts: { tunnel: 1500ms, first_byte: 200ms, body_idle: 200ms, idle: 200ms }\n";
    let gateway = Gateway::start(upstream.address, timeouts, &[("all", OPEN)]);
    let mut client = gateway.connect();
    client.send(ASK);
    assert_eq!(client.head().unwrap().status(), 101);
    for _ in 0..5 {
        // Longer than all other deadlines, and all together longer than its own.
        std::thread::sleep(std::time::Duration::from_millis(400));
        client.send("on");
        hears(&mut client, "on");
    }
    assert_eq!(client.rest(), b"");
}

/// Who is slow holds back the other side.
#[test]
fn a_tunnel_holds_no_more_than_its_buffers() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, _| {
        read_head(&mut served.reader).unwrap();
        served.send(SWITCHED);
        held.pass();
        let mut heard = Vec::new();
        let _ = served.reader.read_to_end(&mut heard);
        served.send(heard.len().to_string());
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send(ASK);
    assert_eq!(client.head().unwrap().status(), 101);
    let sent = Arc::new(AtomicUsize::new(0));
    let (counted, mut stream) = (sent.clone(), client.stream.try_clone().unwrap());
    let sender = std::thread::spawn(move || {
        for _ in 0..1024 {
            stream.write_all(&[7; 65536]).unwrap();
            counted.fetch_add(65536, Ordering::Relaxed);
        }
        stream.shutdown(Shutdown::Write).unwrap();
    });
    let (mut before, mut same) = (0, 0);
    wait_until("the client is held back", || {
        let now = sent.load(Ordering::Relaxed);
        same = if now == before { same + 1 } else { 0 };
        before = now;
        same > 40
    });
    assert!(before < 32 << 20, "{before} bytes are held");
    gate.open();
    sender.join().unwrap();
    assert_eq!(client.rest(), (64 << 20).to_string().as_bytes());
}

#[test]
fn a_tunnel_ends_with_either_end() {
    // The server's.
    let upstream = Upstream::scripted(|mut served, _| {
        read_head(&mut served.reader).unwrap();
        served.send(SWITCHED);
        served.send("bye");
    });
    let other = gateway(&upstream);
    let mut client = other.connect();
    client.send(ASK);
    assert_eq!(client.head().unwrap().status(), 101);
    assert_eq!(client.rest(), b"bye");
    // The client's, without a word.
    let upstream = echo();
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    client.send(ASK);
    assert_eq!(client.head().unwrap().status(), 101);
    client.send("last");
    hears(&mut client, "last");
    drop(client);
    assert_eq!(upstream.next().body, b"last");
    wait_until("the connection is over", || {
        gateway
            .app
            .metrics()
            .contains("tollgate_connections_open 0")
    });
}

/// A tunnel outlives reloads, and ends when a drain has no more time.
#[test]
fn reloads_and_drains() {
    let upstream = echo();
    let gateway = Gateway::start(
        upstream.address,
        "timeouts: { drain: 300ms }\n",
        &[("all", OPEN)],
    );
    let mut client = gateway.connect();
    client.send(ASK);
    assert_eq!(client.head().unwrap().status(), 101);
    gateway.reload().unwrap();
    client.send("still");
    hears(&mut client, "still");
    gateway.app.shut_down();
    assert_eq!(client.rest(), b"");
}

/// A change of protocol is a request like any other to limits.
#[test]
fn limits_count_it() {
    let upstream = echo();
    let policy = "match: GET /chat\nupstream: up\nlimits: { few: { key: ip, rate: 1/h } }\n";
    let gateway = Gateway::start(upstream.address, "", &[("all", policy)]);
    let mut first = gateway.connect();
    first.send(ASK);
    let head = first.head().unwrap();
    assert_eq!(head.status(), 101);
    assert_contains(head.field("ratelimit").unwrap(), &["\"few\";r=0"]);
    let mut second = gateway.connect();
    second.send(ASK);
    let refused = second.answer();
    assert_eq!(refused.status(), 429);
    assert!(refused.field("upgrade").is_none());
}

/// RFC 8441: the same from HTTP/2, to a server of HTTP/1.1.
#[test]
fn extended_connect() {
    let upstream = echo();
    let gateway = gateway(&upstream);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.address)
            .await
            .unwrap();
        let (mut send, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        while !send.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut request = http::Request::builder()
            .method("CONNECT")
            .uri("http://t/chat")
            .header("sec-websocket-version", "13")
            .body(())
            .unwrap();
        let protocol = h2::ext::Protocol::from_static("websocket");
        request.extensions_mut().insert(protocol);
        let (answer, mut out) = send.send_request(request, false).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("upgrade"));
        let mut back = answer.into_body();
        for text in ["one", "two"] {
            out.send_data(Bytes::from_static(text.as_bytes()), false)
                .unwrap();
            assert_eq!(back.data().await.unwrap().unwrap(), text);
        }
        out.send_data(Bytes::new(), true).unwrap();
        assert_eq!(back.data().await.unwrap().unwrap(), "bye");
        while let Some(data) = back.data().await {
            assert!(data.unwrap().is_empty());
        }
        // What is no protocol's beginning is refused as CONNECT is.
        let plain = http::Request::connect("t:80").body(()).unwrap();
        let (answer, _) = send.send_request(plain, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 400);
    });
    let seen = upstream.next();
    assert_eq!(seen.start, "GET /chat HTTP/1.1");
    assert_eq!(seen.field("upgrade"), Some("websocket"));
    assert_eq!(seen.field("sec-websocket-key").unwrap().len(), 24);
    assert_eq!(seen.body, b"onetwo");
}

/// A protocol is a token, one that may be passed on, and belongs to a request without a body: what could be read as
/// more in HTTP/1.1 reaches no server. RFC 9113 section 10.3.
#[test]
fn what_extended_connect_may_not_say() {
    use common::raw::{END_HEADERS, HEADERS, RST_STREAM, Raw, block, frame};
    const BAD_REQUEST: u8 = 0x8c;
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    let smuggled = "x\r\n\r\nGET /admin HTTP/1.1\r\nhost: t\r\n\r\n";
    let cases: [(&str, &[(&str, &str)]); 7] = [
        (smuggled, &[]),
        ("h2c", &[]),
        ("HTTP/2.0", &[]),
        ("TLS/1.0", &[]),
        ("a b", &[]),
        ("websocket, h2c", &[]),
        ("websocket", &[("content-length", "5")]),
    ];
    for (protocol, more) in cases {
        let mut raw = Raw::connect(gateway.address, &[]);
        let head = [
            (":method", "CONNECT"),
            (":protocol", protocol),
            (":scheme", "http"),
            (":authority", "t"),
            (":path", "/chat"),
        ];
        let head = block(&[&head, more].concat());
        raw.send(&frame(HEADERS, END_HEADERS, 1, &head));
        let about = |frame: &common::raw::Frame| [HEADERS, RST_STREAM].contains(&frame.kind);
        let first = std::iter::from_fn(|| raw.frame()).find(about);
        let told = first.is_none_or(|f| f.kind == RST_STREAM || f.payload[0] == BAD_REQUEST);
        assert!(told, "{protocol:?}");
    }
    assert!(upstream.drain().is_empty());
}

/// RFC 8441 section 5: any success tells a client of HTTP/2 that the protocol has changed.
#[test]
fn a_success_is_no_agreement() {
    use common::http2::{Client as Http2, run, whole};
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    run(async {
        let mut client = Http2::connect(gateway.address).await;
        while !client.send.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut request = common::http2::request("CONNECT", "/chat").body(()).unwrap();
        let protocol = h2::ext::Protocol::from_static("websocket");
        request.extensions_mut().insert(protocol);
        let (answer, _out) = client.begin(request, false);
        assert_eq!(whole(answer.await.unwrap()).await.unwrap().status, 502);
    });
}

/// Silence in a tunnel is nobody's fault: servers stay in use.
#[test]
fn silent_tunnels_eject_no_server() {
    let servers = [echo(), echo()];
    let [one, two] = servers.each_ref().map(|server| server.address);
    let more = format!(
        "workers: 1\ntimeouts: {{ tunnel: 200ms }}\nupstreams: {{ up: {{ \
         servers: [\"http://{one}\", \"http://{two}\"], eject: {{ after: 1, for: 10s }} }} }}\n"
    );
    let gateway = Gateway::start(one, &more, &[("all", OPEN)]);
    for _ in 0..4 {
        let mut client = gateway.connect();
        client.send(ASK);
        assert_eq!(client.head().unwrap().status(), 101);
        assert_eq!(client.rest(), b"");
    }
    let metrics = gateway.app.metrics();
    let ejections = metrics
        .lines()
        .filter(|line| line.starts_with("tollgate_upstream_server_ejections_total{"));
    for line in ejections {
        assert!(line.ends_with(" 0"), "{line}");
    }
}
