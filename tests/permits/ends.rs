//! Every way in which a request ends, and its permit with it.

use std::net::{Shutdown, TcpListener};

use crate::common::{Client, Gateway, Message, wait_until};
use crate::site::Site;

const LIMIT: &str = "parallel: { key: ip, concurrent: 3 }";

/// Lets requests end in one way, more of them than there are permits.
#[track_caller]
fn check(what: &str, ends: impl Fn(&Site)) {
    let site = Site::shared(&[LIMIT]);
    for _ in 0..4 {
        ends(&site);
        wait_until(what, || site.out() == 0);
    }
    site.all_back(3);
}

/// Sends a request of which nothing comes back yet, and waits until the server has it.
fn sent(site: &Site, text: &str) -> Client {
    let mut client = site.gateway.connect();
    client.send(text);
    site.upstream.next();
    client
}

fn status(site: &Site, path: &str) -> u16 {
    site.get(path).status()
}

#[test]
fn the_client_hangs_up() {
    check("in the middle of the answer", |site| drop(site.open()));
    check("before the answer", |site| {
        drop(sent(site, "GET /silent HTTP/1.1\r\nhost: t\r\n\r\n"));
    });
    check("its sending side only", |site| {
        let client = sent(site, "GET /silent HTTP/1.1\r\nhost: t\r\n\r\n");
        client.stream.shutdown(Shutdown::Write).unwrap();
        let mut client = client;
        client.rest();
    });
    check("with another request behind", |site| {
        let request = "GET /silent HTTP/1.1\r\nhost: t\r\n\r\n";
        drop(sent(site, &request.repeat(2)));
    });
}

#[test]
fn the_request_s_body_breaks_off() {
    let post = |path: &str, framing: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: t\r\n{framing}\r\n\r\nabc")
    };
    for framing in ["content-length: 10", "transfer-encoding: chunked"] {
        check(framing, |site| {
            let mut client = site.gateway.connect();
            client.send(post("/fine", framing));
            wait_until("it holds a permit", || site.out() > 0);
            drop(client);
        });
    }
}

#[test]
fn the_server_fails() {
    check("it dies in the middle of the answer", |site| {
        let (mut client, head) = site.open_with("/dies", "");
        assert_eq!(head.status(), 200);
        client.rest();
    });
    check("it dies before the answer", |site| {
        assert_eq!(status(site, "/dies-first"), 502);
    });
    check("it says nothing", |site| {
        assert_eq!(status(site, "/slow/silent"), 504);
    });
    check("it stops in the middle of the answer", |site| {
        let (mut client, head) = site.open_with("/slow/half", "");
        assert_eq!(head.status(), 200);
        client.rest();
    });
}

#[test]
fn no_server_is_there() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let policy = "match: /**\nupstream: up\nlimits: { parallel: { key: ip, concurrent: 1 } }\n";
    let gateway = Gateway::start(address, "", &[("all", policy)]);
    let mut client = gateway.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/").status(), 503);
    }
    assert_eq!(gateway.app.running().admission.permits().key_count(), 0);
}

/// Who has seen the end of an answer finds the permit free: no other request ever meets the last one.
#[test]
fn it_is_back_before_the_client_sees_the_end() {
    let site = Site::shared(&["parallel: { key: ip, concurrent: 1 }"]);
    let mut client = site.gateway.connect();
    for path in ["/fine", "/chunked", "/empty", "/204", "/304"] {
        for _ in 0..30 {
            let answer = client.get(path);
            assert!(answer.status() < 400, "{path}: {}", answer.start);
        }
    }
    for _ in 0..10 {
        client.send("HEAD /head HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(client.head().unwrap().status(), 200);
        assert_eq!(site.get("/unframed").text(), "to the end");
    }
    site.all_back(1);
}

/// The answer is over though the client still sends: that is no open request any more.
#[test]
fn an_early_answer_ends_it() {
    let site = Site::shared(&["parallel: { key: ip, concurrent: 1 }"]);
    let mut client = site.gateway.connect();
    client.send("POST /early HTTP/1.1\r\nhost: t\r\ncontent-length: 99999\r\n\r\nx");
    assert_eq!((client.answer().status(), site.out()), (413, 0));
    site.all_back(1);
}

/// What a limit refuses, or what reaches no limit, holds nothing.
#[test]
fn refusals_hold_nothing() {
    let site = Site::shared(&[LIMIT]);
    let clients: Vec<Client> = (0..3).map(|_| site.open()).collect();
    let refused: Vec<Message> = (0..20).map(|_| site.get("/fine")).collect();
    assert!(refused.iter().all(|answer| answer.status() == 429));
    assert_eq!(site.out(), 3);
    drop(clients);
    site.all_back(3);
}

#[test]
fn the_gateway_drains() {
    let limits = &["parallel: { key: ip, concurrent: 3 }"];
    let site = Site::own("timeouts: { drain: 200ms, half_close: gone }\n", limits);
    let permits = site.gateway.app.running().admission.permits().clone();
    let clients: Vec<Client> = (0..2).map(|_| site.open()).collect();
    site.upstream.drain();
    let waiting = sent(&site, "GET /silent HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(permits.key_count(), 1);
    assert_eq!(site.out(), 3);
    site.gateway.app.shut_down();
    assert_eq!(permits.key_count(), 0);
    drop((clients, waiting));
}
