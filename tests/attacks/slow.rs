//! Clients that take their time: slowloris and its kin. Each deadline runs whatever trickles in, and the
//! others do not notice.

use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use crate::case::{ALL, Asker, Site, each};
use crate::common::wait_until;

const TIMEOUTS: &str =
    "timeouts: { header: 1s, idle: 1s, body_idle: 1s, send: 1s, first_byte: 10s }\n";

/// Sends a byte every 20 ms until nobody takes it; what came back.
fn trickle(site: &Site, start: &str, byte: &str) -> Vec<u8> {
    let mut asker = site.connect();
    asker.send(start);
    let mut stream = asker.stream.try_clone().unwrap();
    let byte = byte.to_owned();
    let sender = thread::spawn(move || {
        let times = if byte.is_empty() { 0 } else { 500 };
        (0..times)
            .take_while(|_| {
                thread::sleep(Duration::from_millis(20));
                stream.write_all(byte.as_bytes()).is_ok()
            })
            .count()
    });
    let rest = asker.rest();
    let _ = asker.stream.shutdown(Shutdown::Both);
    let sent = sender.join().unwrap();
    assert!(sent < 400, "{start:?} went on for {sent} bytes");
    rest
}

/// A head has its deadline as a whole; before it, empty lines are no reason to wait.
#[test]
fn heads_that_trickle() {
    let site = Site::start(TIMEOUTS, &[ALL]);
    let cases = [
        ("", "G"),
        ("", "\r\n"),
        ("GET /", "a"),
        ("GET /a HTTP/1.1\r\nhost: t\r\nx: ", "y"),
        ("GET /a HTTP/1.1\r\nhost: t\r\n", "x: y\r\n"),
        ("PRI * HTTP/2.0\r\n\r\nS", ""),
    ];
    each(&cases, |(start, byte)| {
        assert_eq!(trickle(&site, start, byte), b"", "{start:?}");
    });
    // The same behind a request.
    let rest = trickle(
        &site,
        "GET /a HTTP/1.1\r\nhost: t\r\n\r\nGET /b HTTP/1.1\r\n",
        "x",
    );
    assert!(
        rest.starts_with(b"HTTP/1.1 200 ")
            && rest.windows(9).filter(|w| w == b"HTTP/1.1 ").count() == 1
    );
    assert_eq!(site.recorder.take().requests.len(), 1);
}

/// RFC 9110 15.5.9: a body that stops is 408, and so is one of which only what frames it trickles in.
#[test]
fn bodies_that_stop() {
    let site = Site::start(TIMEOUTS, &[ALL]);
    let cases = [
        ("content-length: 10\r\n\r\nabc", ""),
        ("content-length: 10\r\n\r\n", ""),
        ("transfer-encoding: chunked\r\n\r\n", ""),
        ("transfer-encoding: chunked\r\n\r\n", "0"),
        ("transfer-encoding: chunked\r\n\r\n3;", "x"),
        (
            "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: ",
            "y",
        ),
        (
            "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
            "x: y\r\n",
        ),
    ];
    each(&cases, |(start, byte)| {
        let start = format!("POST /a HTTP/1.1\r\nhost: t\r\n{start}");
        let rest = trickle(&site, &start, byte);
        let late = rest.starts_with(b"HTTP/1.1 408 ");
        assert!(late, "{start:?} {}", rest.escape_ascii());
    });
    let whole = site.recorder.take().requests;
    assert!(whole.is_empty(), "{whole:?} looked whole");
    // One that goes on is waited for.
    let mut asker = site.connect();
    asker.send("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 30\r\n\r\n");
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(50));
        asker.send("x");
    }
    assert_eq!(asker.answer(false).unwrap().status(), 200);
}

/// Connections that say nothing, before or after a request, are closed.
#[test]
fn idle_connections() {
    let site = Site::start(TIMEOUTS, &[ALL]);
    assert_eq!(site.connect().rest(), b"");
    let mut asker = site.connect();
    asker.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(asker.answer(false).unwrap().status(), 200);
    assert_eq!(asker.rest(), b"");
}

/// A client that reads nothing is let go, with what it asked for a thousand times.
#[test]
fn clients_that_do_not_read() {
    let upstream = crate::common::Upstream::answering(|_| crate::common::ok(&"x".repeat(1 << 20)));
    let gateway = crate::common::Gateway::start(upstream.address, TIMEOUTS, &[ALL]);
    let mut asker = Asker::connect(gateway.address);
    asker.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n".repeat(1000));
    wait_until("it is let go", || {
        gateway
            .app
            .metrics()
            .contains("tollgate_connections_open 0")
    });
    assert!(upstream.drain().len() < 100, "it was served all the same");
}

/// A client that reads late gets every answer, whoever sends what it did not take at once.
#[test]
fn clients_that_read_late() {
    const MANY: usize = 20_000;
    let none =
        "match: /none\nupstream: up\nlimits: { few: { key: ip, rate: 1/h, throttle: hard } }\n";
    let site = Site::start("", &[("none", none)]);
    let mut asker = site.connect();
    let mut stream = asker.stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        let requests = "GET /none HTTP/1.1\r\nhost: t\r\n\r\n".repeat(MANY);
        stream.write_all(requests.as_bytes()).unwrap();
    });
    thread::sleep(Duration::from_millis(500));
    for number in 0..MANY {
        let status = asker.answer(false).unwrap().status();
        assert_eq!(status, if number == 0 { 200 } else { 429 }, "{number}");
    }
    sender.join().unwrap();
    asker.send("GET /other HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(asker.answer(false).unwrap().status(), 404);
}

/// Many slow ones make nobody else wait.
#[test]
fn crowds() {
    let site = Site::start("timeouts: { header: 10s }\n", &[ALL]);
    let slow: Vec<Asker> = (0..400)
        .map(|number| {
            let mut asker = site.connect();
            asker.send(match number % 3 {
                0 => "GET /a HTTP/1.1\r\nhost: t\r\nx: ",
                1 => "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n5;",
                _ => "",
            });
            asker
        })
        .collect();
    let mut asker = site.connect();
    for _ in 0..100 {
        asker.send("GET /b HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(asker.answer(false).unwrap().status(), 200);
    }
    drop(slow);
    wait_until("they are gone", || {
        site.gateway
            .app
            .metrics()
            .contains("tollgate_connections_open 1")
    });
}
