//! Retries, circuit breaking and the time that a whole request may take.

use std::net::TcpListener;
use std::time::Duration;

use crate::common::backend::{Backend, Mode};
use crate::common::{Gateway, Upstream, assert_contains, wait_until};
use crate::{ALL, answers, gateway, never_shaking_hands, timed};

const GET: &str = "GET / HTTP/1.1\r\nhost: t\r\n\r\n";

#[test]
fn a_server_that_fails_does_not_get_twice_the_work() {
    let backends = Backend::several(1);
    backends[0].set(Mode::OneEach);
    let gateway = gateway(&backends, "", "workers: 1\n");
    let counts = answers(&mut gateway.connect(), 400);
    assert_eq!(counts["a"], 400, "no client notices");
    let asked = backends[0].asked();
    // The floor, what comes back of it in 20 seconds, and a fifth.
    assert!(
        asked > 400 && asked <= 400 + 10 + 20 + 80,
        "{asked} for 400"
    );
    assert_contains(
        &gateway.app.metrics(),
        &[&format!(
            "tollgate_upstream_retries_total{{upstream=\"up\"}} {}",
            asked - 400
        )],
    );
}

#[test]
fn no_more_requests_are_open_than_may_be() {
    let backends = Backend::several(2);
    backends.iter().for_each(|backend| backend.set(Mode::Hang));
    let gateway = gateway(&backends, "max_requests: 2", "workers: 2\n");
    let mut waiting: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    for client in &mut waiting {
        client.send(GET);
    }
    let asked = || backends.iter().map(Backend::asked).sum::<usize>();
    wait_until("both are at a server", || asked() == 2);
    let mut client = gateway.connect();
    let (answer, time) = timed(|| client.get("/"));
    assert!(time < Duration::from_millis(100), "after {time:?}");
    assert_eq!(answer.status(), 503);
    assert_contains(&answer.text(), &["The upstream has too many requests."]);
    backends.iter().for_each(|backend| backend.set(Mode::Well));
    for client in &mut waiting {
        assert_eq!(client.answer().status(), 200);
    }
    wait_until("there is room again", || client.get("/").status() == 200);
    assert_eq!(answers(&mut client, 20).values().sum::<usize>(), 20);
}

#[test]
fn no_more_requests_wait_for_a_connection_than_may() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = never_shaking_hands(&silent, "max_pending: 1", "timeouts: { connect: 1h }\n");
    let mut waiting = gateway.connect();
    waiting.send(GET);
    let _held = silent.accept().unwrap();
    let answer = gateway.connect().get("/");
    assert_eq!(answer.status(), 503);
    assert_contains(&answer.text(), &["The upstream has too many requests."]);
}

#[test]
fn a_whole_request_may_take_so_long() {
    let (head, piece) = ("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", "x");
    let upstream = Upstream::scripted(move |mut served, _| {
        let Ok(request) = served.request() else {
            return;
        };
        if request.start.contains("/drip") {
            served.send(head);
            // Never silent for long, and never done.
            while served.stream.peer_addr().is_ok() && {
                std::thread::park_timeout(Duration::from_millis(20));
                std::io::Write::write_all(&mut served.stream, piece.as_bytes()).is_ok()
            } {}
        } else {
            let _ = served.request();
        }
    });
    let text = "timeouts: { total: 300ms }\n";
    let gateway = Gateway::start(upstream.address, text, &[ALL]);
    let mut client = gateway.connect();
    let answer = client.get("/silent");
    assert_eq!(answer.status(), 504);
    assert_contains(&gateway.app.metrics(), &["reason=\"total timeout\"} 1"]);
    let mut client = gateway.connect();
    client.send("GET /drip HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 200);
    assert!(client.rest().len() < 1_000, "it breaks off");
}
