//! Clients that leave, and a gateway that waits no longer, while the server works on, one that does not look at its
//! socket: permits count its work.

use std::net::Shutdown;

use http::Request;
use tollgate::base::clock::Clock;

use crate::common::certificate::Certificate;
use crate::common::http2::{self, reached, request};
use crate::common::tls::{ALL, Tls, put, trusting};
use crate::common::{Gate, Gateway, Served, Upstream, ok, read_body, read_head, wait_until, write};

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

fn policy() -> String {
    format!("match: /**\nupstream: up\nlimits: {{ parallel: {{ key: ip, concurrent: {MOST} }} }}\n")
}

struct Site {
    gateway: Gateway,
    upstream: Upstream,
    gate: Gate,
}

impl Site {
    fn start() -> Site {
        Site::with("")
    }

    /// With more settings of the gateway.
    fn with(settings: &str) -> Site {
        let gate = Gate::default();
        let upstream = busy(&gate);
        let gateway = Gateway::start(upstream.address, settings, &[("all", &policy())]);
        Site {
            gateway,
            upstream,
            gate,
        }
    }

    /// To clients that speak TLS and trust this certificate.
    fn secure(certificate: &Certificate) -> Site {
        let gate = Gate::default();
        let upstream = busy(&gate);
        let folder = tempfile::tempdir().unwrap();
        write(&folder, upstream.address, "", &[("all", &policy())]);
        put(&folder, 0, certificate);
        let file = folder.path().join("tollgate.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let listen = "listen: { address: 127.0.0.1:0, tls: [{ cert: 0.pem, key: 0.key }] }\n";
        std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", listen)).unwrap();
        Site {
            gateway: Gateway::start_in(folder, Clock::system()),
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
        wait_until(what, || self.out() == 0);
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

/// Requests that the gateway gives up after so long: the client is answered 504, or its response breaks off.
#[track_caller]
fn check_late(timeouts: &str, path: &str, head: bool) {
    let what = format!("{timeouts} {path}");
    let site = Site::with(&format!(
        "upstreams: {{ up: {{ servers: [\"http://{{upstream}}\"], timeouts: {{ {timeouts} }} }} }}\n"
    ));
    let clients: Vec<_> = (0..MOST)
        .map(|_| {
            let mut client = site.gateway.connect();
            client.send(format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n"));
            site.upstream.next();
            client
        })
        .collect();
    for mut client in clients {
        if head {
            assert_eq!(client.head().unwrap().status(), 200, "{what}");
            assert_eq!(client.rest(), b"half!", "{what}");
        } else {
            assert_eq!(client.answer().status(), 504, "{what}");
        }
    }
    for _ in 0..20 {
        assert_eq!(site.gateway.connect().get("/").status(), 429, "{what}");
    }
    assert_eq!(site.out(), MOST, "{what}");
    site.gate.open();
    wait_until(&what, || site.out() == 0);
}

#[test]
fn timeouts_of_the_gateway() {
    check_late("first_byte: 300ms", "/a", false);
    check_late("total: 300ms", "/a", false);
    check_late("first_byte: 300ms", "/half", true);
    check_late("total: 300ms", "/half", true);
}

/// Clients under TLS whose connection ends in this way.
#[track_caller]
fn check_tls(what: &str, leave: fn(&mut Tls)) {
    let certificate = Certificate::of(&["a.example"]);
    let site = Site::secure(&certificate);
    let config = trusting(&[&certificate], ALL);
    let connect = || Tls::connect(&site.gateway, "a.example", &config);
    let clients: Vec<Tls> = (0..MOST)
        .map(|_| {
            let mut client = connect();
            client.send(b"GET /a HTTP/1.1\r\nhost: a.example\r\n\r\n");
            site.upstream.next();
            leave(&mut client);
            client
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(connect().get("/").status(), 429, "{what}");
    }
    assert_eq!(site.out(), MOST, "{what}");
    site.gate.open();
    wait_until(what, || site.out() == 0);
    drop(clients);
}

#[test]
fn clients_under_tls() {
    check_tls("without a goodbye", |client| {
        let socket = &client.0.get_ref().sock;
        socket.shutdown(Shutdown::Both).unwrap();
    });
    check_tls("its sending side only", |client| {
        let stream = client.0.get_mut();
        stream.conn.send_close_notify();
        stream.conn.write_tls(&mut stream.sock).unwrap();
        stream.sock.shutdown(Shutdown::Write).unwrap();
    });
    check_tls("with a goodbye, and the socket stays open", |client| {
        let stream = client.0.get_mut();
        stream.conn.send_close_notify();
        stream.conn.write_tls(&mut stream.sock).unwrap();
    });
}

/// A server sends without an end to a client that has left: it is read within a bound, and what was reserved is
/// charged, or what was found if that is more.
#[track_caller]
fn check_endless(cost: u32, charged: u32) {
    let upstream = Upstream::scripted(move |mut served: Served, report| {
        use std::io::Write;
        if let Ok(request) = read_head(&mut served.reader) {
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
            if request.start.contains("/free") {
                served.send(format!("{head}{{\"n\":0}}"));
                return;
            }
            report(request);
            served.send(format!("{head}{{\"n\":{cost}}}"));
            let spaces = vec![b' '; 1 << 20];
            let mut sent = 0;
            while sent < 512 && served.stream.write_all(&spaces).is_ok() {
                sent += 1;
            }
            report(crate::common::Message {
                start: sent.to_string(),
                ..Default::default()
            });
        }
    });
    let policy = "match: /**\nupstream: up\nlimits: { tokens: { key: ip, rate: 20/h, count: cost json n, reserve: 5 } }\n";
    let gateway = Gateway::start(upstream.address, "", &[("all", policy)]);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 200);
    upstream.next();
    drop(client);
    let sent: u32 = upstream.next().start.parse().unwrap();
    assert!((64..128).contains(&sent), "{sent} MiB");
    wait_until("it is charged", || {
        let answer = gateway.connect().get("/free");
        let field = answer.field("ratelimit").unwrap_or_default().to_owned();
        // Less what this one holds until its end.
        field.contains(&format!(";r={};", 20 - charged - 5))
    });
}

#[test]
fn endless_responses() {
    check_endless(3, 5);
    check_endless(7, 7);
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
    assert_eq!(permits.key_count(), 0);
    gate.open();
}
