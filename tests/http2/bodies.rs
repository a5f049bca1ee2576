//! Bodies stream both ways and are held back with the slower side: RFC 9113 section 5.2.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::common::http2::{Client, get, request, run, whole};
use crate::common::raw::{DATA, END_HEADERS, END_STREAM, HEADERS, Raw, block, frame};
use crate::common::{Gate, Gateway, Upstream, ok, read_body, read_head, wait_until};

const OPEN: &str = "match: /**\nupstream: up\n";
const PIECE: &[u8] = &[b'x'; 64 * 1024];

/// More than all windows, buffers of sockets included, can hold.
const MUCH: usize = 64 * 1024 * 1024;

/// Sends so many bytes, as the windows allow, and the end.
async fn send_all(body: &mut h2::SendStream<Bytes>, bytes: usize) {
    send(body, bytes).await;
    body.send_data(Bytes::new(), true).unwrap();
}

/// Sends so many bytes, as the windows allow.
pub async fn send(body: &mut h2::SendStream<Bytes>, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        body.reserve_capacity(left.min(PIECE.len()));
        let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
        let room = room.unwrap().unwrap().min(left).min(PIECE.len());
        left -= room;
        body.send_data(Bytes::from_static(&PIECE[..room]), false)
            .unwrap();
    }
}

/// A part of a body does not wait for the rest of its frame, and padding is no part of it.
#[test]
fn frames_pass_on_as_they_arrive() {
    let upstream = Upstream::scripted(|mut served, report| {
        let mut request = read_head(&mut served.reader).unwrap();
        let mut part = vec![0; b"5\r\nfirst\r\n".len()];
        served.reader.read_exact(&mut part).unwrap();
        request.body = part;
        report(request.clone());
        request.body.clear();
        read_body(&mut served.reader, &mut request).unwrap();
        served.send(ok(&String::from_utf8(request.body).unwrap()));
    });
    let gateway = Gateway::start(upstream.address, "", &[("all", OPEN)]);
    let mut raw = Raw::connect(gateway.address, &[]);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", "/"),
    ];
    raw.send(&frame(HEADERS, END_HEADERS, 1, &block(&fields)));
    const PADDED: u8 = 8;
    let content = [&b"\x05first"[..], b" and last", &[0; 5]].concat();
    let data = frame(DATA, PADDED | END_STREAM, 1, &content);
    let (begin, rest) = data.split_at(9 + b"\x05first".len());
    raw.send(begin);
    assert_eq!(upstream.next().body, b"5\r\nfirst\r\n");
    for byte in rest {
        raw.send(&[*byte]);
    }
    assert_eq!(raw.next(DATA).unwrap().payload, b" and last");
}

/// A form that may name another method is read ahead before it is passed on, whole and unchanged.
#[test]
fn a_method_in_a_form() {
    let policies = [
        (
            "drop",
            "match: DELETE /items/{id}\nupstream: up\nlimits: { drop: { key: ip, rate: 1/h, throttle: hard } }\n",
        ),
        ("rest", OPEN),
    ];
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, "", &policies);
    // The status of a form with so many bytes in front of this end.
    let status = |bytes: usize, end: &'static str| {
        run(async {
            let mut client = Client::connect(gateway.address).await;
            let form = "application/x-www-form-urlencoded";
            let post = request("POST", "/items/1").header("content-type", form);
            let (answer, mut body) = client.begin(post.body(()).unwrap(), false);
            send(&mut body, bytes).await;
            body.send_data(end.into(), true).unwrap();
            answer.await.unwrap().status()
        })
    };
    let most = 1024 * 1024;
    for bytes in [1, most - 100] {
        assert_eq!(status(bytes, "=1&a=b"), 200, "{bytes}");
        assert_eq!(upstream.next().body.len(), bytes + "=1&a=b".len());
    }
    assert_eq!(status(most - 100, "=1&_method=DELETE"), 200);
    assert!(upstream.next().body.ends_with(b"x=1&_method=DELETE"));
    assert_eq!(status(1, "=1&_method=DELETE"), 429);
    // What is longer may name any.
    assert_eq!(status(most + 200_000, "=1"), 429);
    assert_eq!(status(1, "=1&a=b"), 200);
}

/// A call of gRPC may have its response before its first message: it is not read ahead.
#[test]
fn a_call_is_not_waited_for() {
    let limits = "limits: { few: { key: token, rate: 9/h } }";
    let policies = [
        (
            "drop",
            &*format!("match: DELETE /s/m\nupstream: up\n{limits}\n"),
        ),
        (
            "call",
            &*format!("match: POST /s/m\nupstream: up\n{limits}\n"),
        ),
    ];
    let upstream = Upstream::scripted(|mut served, report| {
        report(read_head(&mut served.reader).unwrap());
        served.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    });
    let identity = "identity: { token: { query: key } }\n";
    let gateway = Gateway::start(upstream.address, identity, &policies);
    run(async {
        for kind in ["application/grpc", "application/connect+proto"] {
            let mut client = Client::connect(gateway.address).await;
            let post = request("POST", "/s/m").header("content-type", kind);
            let (answer, body) = client.begin(post.body(()).unwrap(), false);
            assert_eq!(answer.await.unwrap().status(), 200, "{kind}");
            drop(body);
        }
    });
}

#[test]
fn large_bodies_pass_both_ways() {
    let upstream = Upstream::scripted(|mut served, report| {
        let mut request = read_head(&mut served.reader).unwrap();
        let length = request.field("content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        served.reader.read_exact(&mut body).unwrap();
        assert!(body.iter().all(|byte| *byte == b'x'));
        request.body = length.to_string().into();
        report(request);
        served.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {MUCH}\r\n\r\n"));
        for _ in 0..MUCH / PIECE.len() {
            served.send(PIECE);
        }
    });
    let gateway = Gateway::start(upstream.address, "", &[("all", OPEN)]);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let post = request("POST", "/").header("content-length", MUCH);
        let (answer, mut body) = client.begin(post.body(()).unwrap(), false);
        send_all(&mut body, MUCH).await;
        let answer = whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.body.len(), MUCH);
    });
    assert_eq!(upstream.next().text(), MUCH.to_string());
}

/// A body without a length is chunked for a server of HTTP/1.1.
#[test]
fn bodies_of_unknown_length_are_chunked() {
    let upstream = Upstream::answering(|request| ok(&request.body.len().to_string()));
    let gateway = Gateway::start(upstream.address, "", &[("all", OPEN)]);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let post = request("POST", "/").body(()).unwrap();
        let (answer, mut body) = client.begin(post, false);
        send_all(&mut body, 300_000).await;
        let answer = whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.body, "300000");
    });
    assert_eq!(upstream.next().field("transfer-encoding"), Some("chunked"));
}

/// A server that does not read holds back the client, and other streams go on.
#[test]
fn a_server_that_does_not_read_holds_back_the_client() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = read_head(&mut served.reader) {
            if request.start.starts_with("POST") {
                held.pass();
                let read = std::io::copy(
                    &mut served.reader.by_ref().take(MUCH as u64),
                    &mut std::io::sink(),
                );
                assert_eq!(read.unwrap(), MUCH as u64);
            }
            report(request);
            served.send(ok("fine"));
        }
    });
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[("all", OPEN)]);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let post = request("POST", "/").header("content-length", MUCH);
        let (answer, mut body) = client.begin(post.body(()).unwrap(), false);
        let mut sending = std::pin::pin!(send_all(&mut body, MUCH));
        let stuck = tokio::time::timeout(std::time::Duration::from_millis(500), &mut sending);
        assert!(stuck.await.is_err(), "somebody buffers all of it");
        // What waits on that stream must not eat the window of the connection.
        for _ in 0..10 {
            assert_eq!(client.get("/").await.body, "fine");
        }
        gate.open();
        sending.await;
        assert_eq!(whole(answer.await.unwrap()).await.unwrap().body, "fine");
    });
}

/// A client that takes nothing holds back the server.
#[test]
fn a_client_that_does_not_read_holds_back_the_server() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let upstream = Upstream::scripted(move |mut served, _| {
        use std::io::Write;
        read_head(&mut served.reader).unwrap();
        served.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {MUCH}\r\n\r\n"));
        while served.stream.write_all(PIECE).is_ok() {
            if counted.fetch_add(PIECE.len(), Ordering::Relaxed) >= MUCH {
                break;
            }
        }
    });
    let gateway = Gateway::start(upstream.address, "", &[("all", OPEN)]);
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let (answer, _) = client.begin(get("/"), true);
        let answer = answer.await.unwrap();
        let (mut before, mut same) = (0, 0);
        wait_until("the server is held back", || {
            let now = sent.load(Ordering::Relaxed);
            same = if now == before { same + 1 } else { 0 };
            before = now;
            same > 40
        });
        assert!(before < MUCH / 2, "{before} bytes are held");
        assert_eq!(whole(answer).await.unwrap().body.len(), MUCH);
    });
}
