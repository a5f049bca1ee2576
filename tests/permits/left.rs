//! Clients that leave while the server works on, one that does not look at its socket: permits count its work.

use http::Request;

use crate::common::http2::{self, reached, request};
use crate::common::{Gate, Gateway, Served, Upstream, ok, read_body, read_head, soon};

const MOST: usize = 3;

/// A server that begins its work with the head of a request, sends what its path says and hears of nothing until the
/// gate is open.
fn busy(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::scripted(move |mut served: Served, report| {
        while let Ok(mut request) = read_head(&mut served.reader) {
            let path = request
                .start
                .split(' ')
                .nth(1)
                .unwrap_or_default()
                .to_owned();
            report(request.clone());
            if path.ends_with("/half") {
                served.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf!");
            }
            gate.pass();
            if path.ends_with("/half") {
                served.send("half!");
            } else if read_body(&mut served.reader, &mut request).is_ok() {
                served.send(ok("fine"));
            } else {
                return;
            }
        }
    })
}

struct Site {
    gateway: Gateway,
    upstream: Upstream,
    gate: Gate,
}

impl Site {
    fn start() -> Site {
        let gate = Gate::default();
        let upstream = busy(&gate);
        let policy = format!(
            "match: /**\nupstream: up\nlimits: {{ parallel: {{ key: ip, concurrent: {MOST} }} }}\n"
        );
        let gateway = Gateway::start(upstream.address, "", &[("all", &policy)]);
        Site {
            gateway,
            upstream,
            gate,
        }
    }

    fn out(&self) -> usize {
        let text = self.gateway.app.metrics();
        let series = "tollgate_permits_open{limit=\"parallel\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// As many permits are out as there are, though nobody waits, and come back when the server has ended.
    #[track_caller]
    fn all_out_until_the_server_ends(&self, what: &str) {
        for _ in 0..20 {
            let answer = self.gateway.connect().get("/");
            assert_eq!(answer.status(), 429, "{what}");
        }
        assert_eq!(self.out(), MOST, "{what}");
        assert!(self.upstream.drain().is_empty(), "{what}");
        self.gate.open();
        soon(what, || self.out() == 0);
        assert_eq!(self.gateway.connect().get("/").status(), 200, "{what}");
    }
}

/// Clients of HTTP/1.1 that send this, as soon as the server has it or more of the response than a head, and leave.
#[track_caller]
fn check(request: &str, head: bool) {
    let site = Site::start();
    for _ in 0..MOST {
        let mut client = site.gateway.connect();
        client.send(request);
        site.upstream.next();
        if head {
            assert_eq!(client.head().unwrap().status(), 200);
        }
    }
    site.all_out_until_the_server_ends(request);
}

#[test]
fn clients_of_http1() {
    check("GET /a HTTP/1.1\r\nhost: t\r\n\r\n", false);
    check("GET /half HTTP/1.1\r\nhost: t\r\n\r\n", true);
    check(
        "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\n\r\nabc",
        false,
    );
    // The request never comes whole.
    check(
        "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\nabc",
        false,
    );
    check(
        "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        false,
    );
    check(
        "POST /half HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\nabc",
        true,
    );
}

/// Requests on one connection that are taken back as soon as the server has them, more than there are permits.
fn check_resets(request: fn() -> Request<()>, end: bool, head: bool) {
    let site = Site::start();
    http2::run(async {
        let mut client = http2::Client::connect(site.gateway.address).await;
        for number in 0..200 {
            let (answer, mut body) = client.begin(request(), end);
            if number < MOST {
                reached(&site.upstream).await;
                if head {
                    assert_eq!(answer.await.unwrap().status(), 200);
                }
                body.send_reset(h2::Reason::CANCEL);
            } else {
                assert_eq!(answer.await.unwrap().status(), 429, "{number}");
            }
        }
    });
    site.all_out_until_the_server_ends("resets");
}

#[test]
fn requests_of_http2() {
    check_resets(|| http2::get("/a"), true, false);
    check_resets(|| http2::get("/half"), true, true);
    check_resets(|| request("POST", "/a").body(()).unwrap(), false, false);
}

#[test]
fn a_drain_does_not_wait_for_servers_beyond_its_time() {
    let gate = Gate::default();
    let upstream = busy(&gate);
    let policy = "match: /**\nupstream: up\nlimits: { parallel: { key: ip, concurrent: 9 } }\n";
    let gateway = "timeouts: { drain: 200ms }\n";
    let gateway = Gateway::start(upstream.address, gateway, &[("all", policy)]);
    let mut client = gateway.connect();
    client.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
    upstream.next();
    drop(client);
    http2::run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let (_answer, mut body) = client.begin(http2::get("/half"), true);
        reached(&upstream).await;
        body.send_reset(h2::Reason::CANCEL);
    });
    let permits = gateway.app.running().admission.permits().clone();
    gateway.app.shut_down();
    assert_eq!(permits.entries(), 0);
    gate.open();
}
