//! Limits on the bytes of bodies: what passes is charged when the bodies have ended, however they end.

use std::io::Read;

use super::common::http2;
use super::common::{Gate, Upstream, ok, wait_until};
use super::*;

const TUNNEL: &str = "GET /a HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";

fn site(direction: &str, upstream: Upstream) -> Site {
    let limit = format!("units: {{ key: ip, rate: 1000/h, count: cost bytes {direction} }}");
    Site::start("", &[&limit], upstream)
}

/// How much of 1,000 an hour is used up, by a request that uses nothing itself.
fn used(site: &Site) -> u32 {
    let answer = site.get_path("/nothing", "");
    let remaining = told(&answer);
    let remaining = remaining.strip_prefix("units ").unwrap_or("no units");
    // One is reserved.
    999 - remaining.parse::<u32>().unwrap()
}

/// A server whose responses are `body`, and empty for `/nothing`.
fn answering(body: &'static str) -> Upstream {
    Upstream::answering(move |request| match request.start.contains("/nothing") {
        true => status(204),
        false => body.to_owned(),
    })
}

#[track_caller]
fn check(direction: &str, request: &str, response: &'static str, expected: u32) {
    let site = site(direction, answering(response));
    let mut client = site.gateway.connect();
    client.send(request);
    let method = request.split(' ').next();
    match method {
        Some("HEAD") => assert_eq!(client.head().unwrap().status(), 200),
        _ => assert_eq!(client.answer().status(), 200),
    }
    let what = format!("{direction}: {request:?} {response:?}");
    assert_eq!(used(&site), expected, "{what}");
}

#[test]
fn the_bytes_of_bodies() {
    let get = "GET /a HTTP/1.1\r\nhost: t\r\n\r\n";
    let post =
        "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 30\r\n\r\n123456789012345678901234567890";
    let chunked = "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n\
                   5\r\nabcde\r\n2\r\nfg\r\n0\r\n\r\n";
    let whole = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";
    let pieces = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                  3\r\nabc\r\n8\r\ndefghijk\r\n0\r\nx-end: 1\r\n\r\n";
    let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    for (request, response, incoming, outgoing) in [
        (get, whole, 0, 4),
        (get, pieces, 0, 11),
        (get, empty, 0, 0),
        (post, whole, 30, 4),
        (post, empty, 30, 0),
        (chunked, pieces, 7, 11),
    ] {
        check("in", request, response, incoming);
        check("out", request, response, outgoing);
        check("both", request, response, incoming + outgoing);
    }
    let head = "HEAD /a HTTP/1.1\r\nhost: t\r\n\r\n";
    check(
        "both",
        head,
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n",
        0,
    );
}

#[test]
fn what_is_overdrawn_must_come_back_first() {
    for algorithm in [
        "sliding-log",
        "sliding-window",
        "multi-level",
        "fixed-window",
        "gcra",
    ] {
        let limit = format!(
            "units: {{ key: ip, rate: 1000/h, count: cost bytes out, algorithm: {algorithm} }}"
        );
        let body = "a".repeat(1500);
        let site = Site::start("", &[&limit], Upstream::answering(move |_| ok(&body)));
        assert_eq!(site.get("").status(), 200, "{algorithm}");
        assert_eq!(violated(&site.get("")), ["units"], "{algorithm}");
        site.pass(Nanos::from_secs(3 * 3600));
        assert_eq!(site.get("").status(), 200, "{algorithm}");
    }
}

#[test]
fn large_quotas_of_bytes() {
    let limit = "units: { key: ip, rate: 1000000000/d, count: cost bytes both }";
    let site = Site::start(
        "",
        &[limit],
        answering("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"),
    );
    assert_eq!(told(&site.get("")), "units 999999999");
    assert_eq!(told(&site.get("")), "units 999999995");
}

#[test]
fn reserved_bytes_come_back() {
    let limit = "units: { key: ip, rate: 1000/h, count: cost bytes in, reserve: header content-length else 600 }";
    let site = Site::start("", &[limit], Upstream::plain());
    let post = |framing: &str, body: &str| {
        let mut client = site.gateway.connect();
        client.send(format!(
            "POST /a HTTP/1.1\r\nhost: t\r\n{framing}\r\n\r\n{body}"
        ));
        client.answer()
    };
    assert_eq!(told(&post("content-length: 3", "abc")), "units 997");
    let chunked = "transfer-encoding: chunked";
    assert_eq!(told(&post(chunked, "1\r\na\r\n0\r\n\r\n")), "units 397");
    assert_eq!(told(&post(chunked, "0\r\n\r\n")), "units 396");
    let large = "a".repeat(997);
    assert_eq!(violated(&post("content-length: 997", &large)), ["units"]);
    assert_eq!(told(&post("content-length: 996", &large[1..])), "units 0");
}

/// A server that sends 300 bytes of a longer body, and reports when its client has left.
fn long_download(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            if request.start.contains("/nothing") {
                served.send(status(204));
                continue;
            }
            served.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n");
            served.send("a".repeat(300));
            report(request.clone());
            let mut rest = Vec::new();
            let _ = served.reader.read_to_end(&mut rest);
            report(request);
            gate.open();
        }
    })
}

#[test]
fn a_client_that_leaves_is_charged_what_has_passed() {
    let gate = Gate::default();
    let site = site("out", long_download(&gate));
    let mut client = site.gateway.connect();
    client.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
    client.head().unwrap();
    let mut piece = [0; 300];
    client.reader.read_exact(&mut piece).unwrap();
    let socket = socket2::SockRef::from(&client.stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    // The server need not send the rest to nobody.
    gate.pass();
    wait_until("the bytes are charged", || used(&site) == 300);
}

#[test]
fn an_upload_that_breaks_off_is_charged_what_has_passed() {
    let gate = Gate::default();
    let (opened, waiting) = (gate.clone(), gate);
    let upstream = Upstream::scripted(move |mut served, _| {
        let mut request = common::read_head(&mut served.reader);
        while let Ok(head) = &request {
            if head.start.contains("/nothing") {
                served.send(status(204));
            } else {
                let mut piece = [0; 200];
                let _ = served.reader.read_exact(&mut piece);
                opened.open();
            }
            request = common::read_head(&mut served.reader);
        }
    });
    let site = site("in", upstream);
    let mut client = site.gateway.connect();
    client.send("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 1000\r\n\r\n");
    client.send("a".repeat(200));
    waiting.pass();
    drop(client);
    wait_until("the bytes are charged", || used(&site) == 200);
}

#[test]
fn the_bytes_of_tunnels() {
    let upstream = || {
        Upstream::scripted(|mut served, _| {
            while let Ok(request) = served.request() {
                if request.field("upgrade").is_none() {
                    served.send(status(204));
                    continue;
                }
                served.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
                let mut all = Vec::new();
                let _ = served.reader.read_to_end(&mut all);
                served.send("1234567");
                break;
            }
        })
    };
    for (direction, expected) in [("in", 20), ("out", 7), ("both", 27)] {
        let site = site(direction, upstream());
        let mut client = site.gateway.connect();
        client.send(TUNNEL);
        assert_eq!(client.head().unwrap().status(), 101);
        client.send("a".repeat(20));
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.rest(), b"1234567");
        wait_until("the bytes are charged", || used(&site) == expected);
    }
}

#[test]
fn the_bytes_of_bodies_over_http2() {
    let site = site(
        "both",
        answering("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"),
    );
    http2::run(async {
        let mut client = http2::Client::connect(site.gateway.address).await;
        let request = http2::request("POST", "/a").body(()).unwrap();
        let (answer, mut stream) = client.begin(request, false);
        stream.send_data("abc".into(), false).unwrap();
        stream.send_data("de".into(), true).unwrap();
        let answer = http2::whole(answer.await.unwrap()).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"fine"[..]));
    });
    assert_eq!(used(&site), 9);
}

/// The body of a GET in place of HEAD is read for its cost, and nothing of it passes.
#[test]
fn bytes_that_are_read_for_a_cost_alone_do_not_count() {
    let limits = [
        "units: { key: ip, rate: 1000/h, count: cost bytes out }",
        "tokens: { key: ip, rate: 100000/h, count: cost json cost }",
    ];
    let upstream = Upstream::answering(|request| match request.start.contains("/nothing") {
        true => status(204),
        false => ok("{\"cost\":9}"),
    });
    let site = Site::start("", &limits, upstream);
    let mut client = site.gateway.connect();
    client.send("HEAD /a HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 200);
    // One unit is held until the body has ended.
    wait_until("the cost is charged", || used(&site) == 0);
}
