//! Servers that fail: the client has 502 or 504 in time, or sees that its answer broke off, and the next
//! request is served as if nothing had been.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::case::{ALL, Asker, Cut, each};
use crate::common::{Gate, Gateway, Served, Upstream, ok, read_head};
use crate::replay::{Replay, Script, Then};
use crate::strict::{self, Stop};
use tollgate::base::clock::Clock;

const TIMEOUTS: &str = "workers: 1\ntimeouts: { connect: 500ms, first_byte: 1s }\n";

/// Time enough for an answer that is late by a second on a busy machine, and no more.
const DEADLINE: Duration = Duration::from_secs(5);

const GET: &str = "GET /case HTTP/1.1\r\nhost: t\r\n\r\n";

#[track_caller]
fn in_time<T>(name: &str, what: impl FnOnce() -> T) -> T {
    let clock = Clock::system();
    let start = clock.now();
    let result = what();
    let took = Duration::from_nanos(clock.now().0 - start.0);
    assert!(took < DEADLINE, "{name} took {took:?}");
    result
}

/// Nobody listens, or nobody answers the call.
#[test]
fn servers_that_refuse() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let gateway = Gateway::start(address, TIMEOUTS, &[ALL]);
    let mut asker = Asker::connect(gateway.address);
    for _ in 0..3 {
        asker.send(GET);
        let answer = in_time("refused", || asker.answer(false).unwrap());
        assert_eq!(answer.status(), 503);
    }
    // It hangs up on everybody, with what it was sent unread.
    let upstream = Upstream::scripted(|served, _| drop(served));
    let gateway = Gateway::start(upstream.address, TIMEOUTS, &[ALL]);
    let mut asker = Asker::connect(gateway.address);
    for _ in 0..3 {
        asker.send(GET);
        let answer = in_time("hung up", || asker.answer(false).unwrap());
        assert_eq!(answer.status(), 502);
    }
}

/// RFC 9110 15.6.5: an answer that does not begin in time is 504, also one that trickles.
#[test]
fn answers_that_do_not_begin() {
    let cases = [
        ("", Then::Stay),
        ("H", Then::Stay),
        ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n", Then::Stay),
        ("HTTP/1.1 103 Early Hints\r\n\r\n", Then::Stay),
        ("HTTP/1.1 200 OK\r\na: b", Then::Trickle),
        ("HTTP/1.1 200 O", Then::Trickle),
    ];
    each(&cases, |&(answer, then)| {
        let replay = Replay::start();
        let gateway = Gateway::start(replay.address, TIMEOUTS, &[ALL]);
        replay.say(Script::new(answer, then, Cut::Whole));
        let mut asker = Asker::connect(gateway.address);
        asker.send(GET);
        let late = in_time(answer, || asker.answer(false).unwrap());
        assert_eq!(late.status(), 504, "{answer:?} {then:?}");
        asker.send("GET /marker HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(
            asker.answer(false).unwrap().body,
            b"GET /marker []",
            "{answer:?}"
        );
    });
}

/// One that begins and does not go on ends with the connection; one that trickles goes on.
#[test]
fn answers_that_do_not_go_on() {
    let cases = [
        "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nhalf",
        "HTTP/1.1 200 OK\r\n\r\nhalf",
    ];
    each(&cases, |answer| {
        let replay = Replay::start();
        let gateway = Gateway::start(replay.address, TIMEOUTS, &[ALL]);
        replay.say(Script::new(*answer, Then::Stay, Cut::Whole));
        let mut asker = Asker::connect(gateway.address);
        asker.send(GET);
        let all = in_time(answer, || asker.rest());
        assert_eq!(
            strict::answer(&all, false, true),
            Err(Stop::More),
            "{answer:?}"
        );
    });
    let replay = Replay::start();
    let gateway = Gateway::start(replay.address, TIMEOUTS, &[ALL]);
    replay.say(Script::new(
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx",
        Then::Trickle,
        Cut::Whole,
    ));
    let mut asker = Asker::connect(gateway.address);
    asker.send(GET);
    assert_eq!(asker.answer(false).unwrap().body, [b'x'; 100]);
}

/// A server may answer before it has read: what of the request is left ends that connection, and is
/// no other request.
#[test]
fn early_answers() {
    let early = |mut served: Served, _: &dyn Fn(crate::common::Message)| {
        while let Ok(head) = read_head(&mut served.reader) {
            assert!(!head.start.contains("smuggled"), "{head:?}");
            served.send(ok(&head.start));
        }
    };
    let upstream = Upstream::scripted(early);
    let gateway = Gateway::start(upstream.address, TIMEOUTS, &[ALL]);
    let inner = "GET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n".repeat(100);
    let length = inner.len();
    for framing in [
        format!("content-length: {length}\r\n\r\n"),
        format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n"),
    ] {
        let mut asker = Asker::connect(gateway.address);
        asker.send(format!("POST /a HTTP/1.1\r\nhost: t\r\n{framing}"));
        let answer = in_time("early", || asker.answer(false).unwrap());
        assert_eq!(answer.body, b"POST /a HTTP/1.1");
        let end = if framing.contains("chunked") {
            "\r\n0\r\n\r\n"
        } else {
            ""
        };
        asker.send(format!(
            "{inner}{end}GET /marker HTTP/1.1\r\nhost: t\r\n\r\n"
        ));
        if let Some(marker) = asker.answer(false) {
            assert_eq!(marker.body, b"GET /marker HTTP/1.1");
        }
        let mut other = Asker::connect(gateway.address);
        other.send("GET /other HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(other.answer(false).unwrap().body, b"GET /other HTTP/1.1");
    }
}

/// CVE-2024-24791: a body that was asked for, or was not, leaves the connections as they were.
#[test]
fn expectations() {
    let upstream = Upstream::scripted(|mut served, _| {
        while let Ok(mut head) = read_head(&mut served.reader) {
            if head.start.contains("/no") {
                served.send("HTTP/1.1 417 No\r\ncontent-length: 0\r\n\r\n");
                continue;
            }
            if head.start.contains("/twice") {
                served.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
            }
            crate::common::read_body(&mut served.reader, &mut head).unwrap();
            served.send(ok(&format!("{} {}", head.start, head.text())));
        }
    });
    let gateway = Gateway::start(upstream.address, TIMEOUTS, &[ALL]);
    let fields = "host: t\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    for (path, status) in [("/no", 417), ("/twice", 200), ("/a", 200), ("/no", 417)] {
        let mut asker = Asker::connect(gateway.address);
        asker.send(format!("PUT {path} HTTP/1.1\r\n{fields}"));
        if status == 200 {
            asker.send("body");
        }
        assert_eq!(asker.answer(false).unwrap().status(), status, "{path}");
        let mut other = Asker::connect(gateway.address);
        other.send("GET /other HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(
            other.answer(false).unwrap().body,
            b"GET /other HTTP/1.1 ",
            "{path}"
        );
    }
}

/// Bytes that come when nobody asked: the connection is not used again.
#[test]
fn what_a_server_says_unasked() {
    let (said, wait) = std::sync::mpsc::channel();
    let upstream = Upstream::scripted(move |mut served, _| {
        while let Ok(request) = served.request() {
            served.send(ok(&request.start));
            if request.start.contains("/case") {
                thread::sleep(Duration::from_millis(30));
                served.send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison");
                said.send(()).unwrap();
            }
        }
    });
    let gateway = Gateway::start(upstream.address, TIMEOUTS, &[ALL]);
    for _ in 0..5 {
        let mut asker = Asker::connect(gateway.address);
        asker.send(GET);
        assert_eq!(asker.answer(false).unwrap().body, b"GET /case HTTP/1.1");
        wait.recv().unwrap();
        asker.send("GET /marker HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(asker.answer(false).unwrap().body, b"GET /marker HTTP/1.1");
    }
}

/// One that stops reading holds up its own client only, and not for ever.
#[test]
fn servers_that_do_not_read() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, _| {
        let head = read_head(&mut served.reader).unwrap();
        if head.start.starts_with("POST") {
            held.pass();
        }
        served.send(ok("fine"));
    });
    let gateway = Gateway::start(upstream.address, TIMEOUTS, &[ALL]);
    let mut asker = Asker::connect(gateway.address);
    asker.send("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 100000000\r\n\r\n");
    let stream = asker.stream.try_clone().unwrap();
    let sender = thread::spawn(move || crate::case::pour(&stream, &vec![b'x'; 100_000_000]));
    let mut other = Asker::connect(gateway.address);
    other.send(GET);
    assert_eq!(other.answer(false).unwrap().body, b"fine");
    let answer = in_time("stuck", || asker.answer(false).unwrap());
    assert_eq!(answer.status(), 504);
    gate.open();
    drop(asker);
    sender.join().unwrap();
}
