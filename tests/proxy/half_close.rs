//! Clients that close their sending side before they have the answer: RFC 9112 section 9.6 leaves the receiving side open.

use std::io::Read;
use std::net::Shutdown;
use std::time::Duration;

use tollgate::base::clock::Clock;

use crate::common::certificate::Certificate;
use crate::common::tls::{Tls, put, trusting};
use crate::common::{Gate, Gateway, Message, Upstream, ok, wait_until, write};

const ALL_PATHS: (&str, &str) = ("all", "match: /**\nupstream: up\n");

/// Answers when the gate is open.
fn held() -> (Gate, Upstream) {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            let text = format!("{} {}", request.start, request.text());
            report(request);
            held.pass();
            served.send(ok(&text));
        }
    });
    (gate, upstream)
}

#[test]
fn whole_requests_are_answered() {
    let (gate, upstream) = held();
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[ALL_PATHS]);
    let get = "GET /a HTTP/1.1\r\nhost: t\r\n\r\n";
    let post =
        "POST /b HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let older = "GET /c HTTP/1.0\r\nhost: t\r\n\r\n";
    let mut clients = Vec::new();
    for text in [
        get.to_owned(),
        post.into(),
        older.into(),
        format!("{get}{post}"),
    ] {
        let mut client = gateway.connect();
        client.send(&text);
        client.stream.shutdown(Shutdown::Write).unwrap();
        clients.push((text, client));
    }
    for _ in 0..clients.len() {
        upstream.next();
    }
    gate.open();
    for (text, mut client) in clients {
        let rest = String::from_utf8(client.rest()).unwrap();
        let answers = text.matches(" HTTP/1.").count();
        assert_eq!(
            rest.matches("HTTP/1.1 200 ").count(),
            answers,
            "{text}: {rest}"
        );
        let last = rest.rsplit("\r\n\r\n").next().unwrap();
        assert!(
            !last.is_empty() && text.contains(&last[..6]),
            "{text}: {rest}"
        );
    }
}

/// Half a request is none.
#[test]
fn others_are_not() {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[ALL_PATHS]);
    for (text, answer) in [
        ("GET / HTTP/1.1\r\nhost: t\r\n", ""),
        (
            "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\n\r\nab",
            "HTTP/1.1 400 ",
        ),
    ] {
        let mut client = gateway.connect();
        client.send(text);
        client.stream.shutdown(Shutdown::Write).unwrap();
        let rest = String::from_utf8(client.rest()).unwrap();
        assert!(
            rest.starts_with(answer) && rest.is_empty() == answer.is_empty(),
            "{rest}"
        );
    }
    let whole = |request: &Message| !request.start.is_empty() && request.body.len() == 3;
    assert!(!upstream.drain().iter().any(whole));
}

#[test]
fn clients_may_be_taken_to_have_gone() {
    let (_gate, upstream) = held();
    let settings = "workers: 1\ntimeouts: { half_close: gone }\naccess_log: { file: access.log }\n";
    let gateway = Gateway::start(upstream.address, settings, &[ALL_PATHS]);
    let mut client = gateway.connect();
    client.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
    upstream.next();
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"");
    let log = gateway.folder.path().join("access.log");
    wait_until("it is logged", || {
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("\"client left\"")
    });
}

/// A client that has closed its sending side and then resets the connection has left: its request ends at the server too.
#[test]
fn a_reset_after_a_half_close() {
    let upstream = Upstream::scripted(|mut served, report| {
        // Answers nothing; a request without a start is the end.
        while let Ok(request) = served.request() {
            report(request);
        }
        report(Message::default());
    });
    let settings = "workers: 1\naccess_log: { file: access.log }\n";
    let policy = ("a", "match: /a\nupstream: up\n");
    let gateway = Gateway::start(upstream.address, settings, &[policy]);
    let mut client = gateway.connect();
    client.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(upstream.next().start, "GET /a HTTP/1.1");
    client.stream.shutdown(Shutdown::Write).unwrap();
    // The worker has seen that before it answers this.
    assert_eq!(gateway.connect().get("/none").status(), 404);
    assert!(upstream.drain().is_empty(), "it still waits for the answer");
    socket2::SockRef::from(&client.stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    assert_eq!(upstream.next().start, "");
    let log = gateway.folder.path().join("access.log");
    wait_until("it is logged", || {
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("\"client left\"")
    });
}

/// RFC 8446 section 6.1: TLS 1.3 closes by halves, TLS 1.2 does not.
#[test]
fn under_tls() {
    use rustls::SupportedProtocolVersion;
    use rustls::version::{TLS12, TLS13};
    let own = Certificate::of(&["a.example"]);
    let (gate, upstream) = held();
    let folder = tempfile::tempdir().unwrap();
    put(&folder, 0, &own);
    write(&folder, upstream.address, "workers: 1\n", &[ALL_PATHS]);
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = "listen: { address: 127.0.0.1:0, tls: { cert: 0.pem, key: 0.key } }\n";
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
    let gateway = Gateway::start_in(folder, Clock::system());
    let begin = |version: &'static SupportedProtocolVersion| {
        let mut client = Tls::connect(&gateway, "a.example", &trusting(&[&own], &[version]));
        client.send(b"GET /a HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n");
        upstream.next();
        let stream = client.0.get_mut();
        stream.conn.send_close_notify();
        stream.conn.write_tls(&mut stream.sock).unwrap();
        stream.sock.shutdown(Shutdown::Write).unwrap();
        client
    };
    let mut older = begin(&TLS12);
    assert_eq!(older.0.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    let mut newer = begin(&TLS13);
    gate.open();
    assert_eq!(newer.answer().status(), 200);
}
