//! Upstreams that fail and clients that are slow.

use std::io::{BufReader, ErrorKind, Read};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Gateway, Served, Upstream, ok, read_body, read_head, status};

const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");

#[test]
fn an_upstream_that_cannot_be_reached_is_503() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gateway = Gateway::start(closed, "", &[ALL]);
    let answer = gateway.connect().get("/");
    assert_eq!(answer.status(), 503);
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["detail"], "The upstream cannot be reached.");
    assert!(
        gateway
            .app
            .metrics()
            .contains("reason=\"connect failed\"} 1")
    );
}

#[test]
fn a_connection_the_upstream_closed_costs_no_get() {
    // Each connection serves one request, then is closed while the gateway believes it open.
    let upstream = Upstream::scripted(|mut served, report| {
        if let Ok(request) = served.request() {
            report(request);
            served.send(ok("one"));
        }
    });
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[ALL]);
    let mut client = gateway.connect();
    for _ in 0..200 {
        assert_eq!(client.get("/").status(), 200);
    }
}

#[test]
fn a_post_is_never_sent_twice() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let upstream = Upstream::scripted(move |mut served, _| {
        let mut first = true;
        while let Ok(request) = served.request() {
            if request.start.starts_with("POST") {
                counted.fetch_add(1, Ordering::Relaxed);
                return;
            }
            assert!(std::mem::take(&mut first), "one GET on each connection");
            served.send(ok("warm"));
        }
    });
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[ALL]);
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 200);
    client.send("POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 1\r\n\r\nx");
    assert_eq!(client.answer().status(), 502);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[test]
fn servers_are_taken_in_turn_and_a_dead_one_is_passed_over() {
    let (one, two) = (
        Upstream::answering(|_| ok("one")),
        Upstream::answering(|_| ok("two")),
    );
    let dead = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let servers = format!(
        "workers: 1\nupstreams: {{ up: [\"http://{}\", \"http://{}\", \"http://{dead}\"] }}\n",
        one.address, two.address
    );
    let gateway = Gateway::start(one.address, &servers, &[ALL]);
    let mut client = gateway.connect();
    let answers: Vec<_> = (0..30).map(|_| client.get("/").text()).collect();
    assert!(
        answers.iter().all(|text| text == "one" || text == "two"),
        "{answers:?}"
    );
    assert!(
        answers.iter().filter(|text| *text == "two").count() >= 10,
        "{answers:?}"
    );
}

#[test]
fn a_drain_finishes_what_runs() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            wait.lock().unwrap().recv().unwrap();
            served.send(ok("late"));
        }
    });
    let gateway = Gateway::start(upstream.address, "timeouts: { drain: 10s }\n", &[ALL]);
    let mut client = gateway.connect();
    let mut idle = gateway.connect();
    client.send("GET /slow HTTP/1.1\r\nhost: t\r\n\r\n");
    upstream.next();
    let address = gateway.address;
    let app = gateway.app;
    let stopping = std::thread::spawn(move || app.shut_down());
    assert_eq!(idle.rest(), b"", "an idle connection is closed at once");
    go.send(()).unwrap();
    assert_eq!(client.answer().text(), "late");
    assert_eq!(client.rest(), b"");
    stopping.join().unwrap();
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "nothing listens any more"
    );
}

#[test]
fn an_upstream_that_takes_its_time_with_a_request_is_not_late() {
    let upstream = Upstream::scripted(|mut served, _| {
        let head = read_head(&mut served.reader).unwrap();
        let length: usize = head.field("content-length").unwrap().parse().unwrap();
        let mut piece = vec![0; length / 32];
        for _ in 0..32 {
            served.reader.read_exact(&mut piece).unwrap();
            std::thread::sleep(Duration::from_millis(70));
        }
        served.send(ok("taken"));
    });
    let timeouts = "timeouts: { first_byte: 1500ms }\n";
    let gateway = Gateway::start(upstream.address, timeouts, &[ALL]);
    let mut client = gateway.connect();
    let body = vec![b'x'; 128 << 20];
    client.send(format!(
        "PUT / HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    client.send(body);
    assert_eq!(client.answer().text(), "taken");
}

#[test]
fn a_204_with_a_length_is_not_followed_by_another_answer() {
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    let upstream = Upstream::scripted(move |mut served, _| {
        count.fetch_add(1, Ordering::Relaxed);
        while served.request().is_ok() {
            served.send("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n");
        }
    });
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let mut client = gateway.connect();
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!(
            (answer.status(), answer.field("content-length")),
            (204, None)
        );
    }
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

#[test]
fn an_old_client_sees_that_an_answer_broke_off() {
    let upstream = Upstream::scripted(|mut served, _| {
        if served.request().is_ok() {
            served.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n");
        }
    });
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 200);
    let mut body = Vec::new();
    let end = client.reader.read_to_end(&mut body);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_request_the_server_may_have_got_is_used_up() {
    // Reads a second request on the connection, then goes away for good.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let mut served = Served { reader, stream };
        served.request().unwrap();
        served.send(status(401));
        drop(listener);
        served.request().unwrap();
    });
    let limit = "limits: { tries: { key: ip, rate: 2/h, count: status 401-502 } }\n";
    let policy = format!("match: /**\nupstream: up\n{limit}");
    let gateway = Gateway::start(address, "", &[("all", &policy)]);
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 401);
    assert_eq!(client.get("/").status(), 502);
    assert_eq!(client.get("/").status(), 429);
    server.join().unwrap();
}

#[test]
fn a_server_is_asked_before_a_waiting_client_sends() {
    let upstream = Upstream::scripted(|mut served, _| {
        while let Ok(mut request) = read_head(&mut served.reader) {
            if request.start.contains("/no") {
                served.send("HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n");
                return;
            }
            served.send("HTTP/1.1 100 Continue\r\n\r\n");
            read_body(&mut served.reader, &mut request).unwrap();
            served.send(ok(&request.text()));
        }
    });
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let fields = "host: t\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n";
    let mut client = gateway.connect();
    client.send(format!("PUT /yes HTTP/1.1\r\n{fields}"));
    assert_eq!(read_head(&mut client.reader).unwrap().status(), 100);
    client.send("body");
    assert_eq!(client.answer().text(), "body");
    client.send(format!("PUT /no HTTP/1.1\r\n{fields}"));
    let answer = read_head(&mut client.reader).unwrap();
    assert_eq!(answer.status(), 413);
    assert_eq!(client.rest(), b"");
}

#[test]
fn many_small_chunks_are_few_packets() {
    let upstream = Upstream::scripted(|mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            served.send(ok("fine"));
        }
    });
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    let mut client = gateway.connect();
    let chunks = "1\r\nx\r\n".repeat(100_000);
    client.send(format!(
        "PUT / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
    ));
    let before = writes();
    assert_eq!(client.answer().text(), "fine");
    assert_eq!(upstream.next().body.len(), 100_000);
    assert!(writes() - before < 2_000, "{} writes", writes() - before);
}

/// Calls by which this process has written so far.
fn writes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("syscw: "));
    line.unwrap().parse().unwrap()
}
