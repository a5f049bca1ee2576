//! Connections before their first request: how many there may be, and where they come from. The PROXY
//! protocol is believed from the peers that the file names, and is no request from others.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, Read};
use std::thread;

use common::{Client, Gateway, Upstream, assert_contains, child, ok, wait_until, write};
use tempfile::TempDir;
use tollgate::base::clock::Clock;
use tollgate::net::proxy_protocol;

const FEW: &str = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 3/h } }\n";
const OPEN: &str = "match: /**\nupstream: up\n";
const GET: &str = "GET / HTTP/1.1\r\nhost: t\r\n\r\n";

/// A folder whose listener has this more.
fn folder(upstream: &Upstream, listener: &str, gateway: &str, policy: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream.address, gateway, &[("all", policy)]);
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = format!("listen: {{ address: 127.0.0.1:0{listener} }}\n");
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", &listen)).unwrap();
    folder
}

fn start(upstream: &Upstream, listener: &str, gateway: &str, policy: &str) -> Gateway {
    let folder = folder(upstream, listener, gateway, policy);
    Gateway::start_in(folder, Clock::system())
}

const TRUSTED: &str = ", proxy_protocol: [127.0.0.0/8]";

/// A header of version 2 for an IPv4 client.
fn v2(ip: [u8; 4]) -> Vec<u8> {
    let begin = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f";
    // A type-length-value that nobody knows stands behind the addresses.
    [
        &begin[..],
        &ip,
        &[10, 0, 0, 1, 0x1f, 0x90, 0, 80],
        &[0xee, 0, 0],
    ]
    .concat()
}

#[test]
fn a_trusted_peer_says_where_a_connection_comes_from() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, TRUSTED, "", FEW);
    let v1 = b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n".to_vec();
    for (header, ip) in [
        (v1, "192.0.2.1"),
        (v2([192, 0, 2, 2]), "192.0.2.2"),
        (
            b"PROXY TCP6 ::ffff:192.0.2.3 ::1 1 80\r\n".to_vec(),
            "192.0.2.3",
        ),
        (
            b"PROXY TCP6 2001:db8::1 ::1 1 80\r\n".to_vec(),
            "2001:db8::1",
        ),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
    ] {
        for cut in [1, 5, header.len()] {
            let mut client = gateway.connect();
            let all = [&header[..], GET.as_bytes()].concat();
            for piece in all.chunks(cut) {
                client.send(piece);
                if cut < 10 {
                    // Pieces come one by one.
                    thread::yield_now();
                }
            }
            let answer = client.answer();
            assert_eq!(answer.status(), 200, "{ip}");
            assert_eq!(upstream.next().field("x-forwarded-for"), Some(ip));
        }
        // Each of them is counted for itself.
        let mut client = gateway.connect();
        client.send([&header[..], GET.as_bytes()].concat());
        assert_eq!(client.answer().status(), 429, "{ip}");
    }
    // The proxy's own connections, as for health checks, come from itself.
    let gateway = start(&upstream, TRUSTED, "", OPEN);
    let mut client = gateway.connect();
    client.send([b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", GET.as_bytes()].concat());
    assert_eq!(client.answer().status(), 200);
    while let Some(seen) = upstream.drain().pop() {
        assert_eq!(seen.field("x-forwarded-for"), Some("127.0.0.1"));
    }
}

/// A trusted peer that says nothing, or what cannot be read, is not served: whoever it speaks for would be
/// counted as the proxy.
#[test]
fn a_trusted_peer_must_say_it() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, TRUSTED, "timeouts: { header: 300ms }\n", OPEN);
    let long = [
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x20\0".to_vec(),
        vec![0; 0x2000],
    ]
    .concat();
    for header in [
        b"".to_vec(),
        GET.into(),
        b"PROXY TCP4 192.0.2.1 10.0.0.1".to_vec(),
        b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\n".to_vec(),
        b"PROXY TCP4 192.0.2.999 10.0.0.1 4711 80\r\n".to_vec(),
        b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec(),
        long,
    ] {
        let mut client = gateway.connect();
        client.send(&header);
        assert_eq!(client.rest(), b"", "{header:?}");
    }
    assert!(upstream.drain().is_empty());
    let metrics = gateway.app.metrics();
    let counted = "tollgate_connections_refused_total{reason=\"proxy_header\"}";
    assert_contains(&metrics, &[counted]);
    assert!(!metrics.contains(&format!("{counted} 0")), "{metrics}");
}

/// The address in the header is that of the client, whoever the peer is.
#[test]
fn a_denied_client_behind_a_proxy_is_denied() {
    let upstream = Upstream::plain();
    let gateway = "deny: { ip: 192.0.2.0/24 }\n";
    let gateway = start(&upstream, TRUSTED, gateway, OPEN);
    for (ip, status) in [([192, 0, 2, 1], 403), ([192, 0, 3, 1], 200)] {
        let mut client = gateway.connect();
        client.send([&v2(ip), GET.as_bytes()].concat());
        assert_eq!(client.answer().status(), status, "{ip:?}");
        assert_eq!(client.get("/nowhere").status(), status, "{ip:?}");
    }
    assert_eq!(upstream.drain().len(), 2);
}

/// A header from a stranger is no request, and its address nobody's.
#[test]
fn strangers_are_not_believed() {
    let upstream = Upstream::plain();
    for listener in ["", ", proxy_protocol: [10.0.0.0/8]"] {
        let gateway = start(&upstream, listener, "", OPEN);
        for header in [
            &b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n"[..],
            &v2([192, 0, 2, 1]),
        ] {
            let mut client = gateway.connect();
            client.send([header, GET.as_bytes()].concat());
            assert_eq!(client.answer().status(), 400);
            assert_eq!(client.rest(), b"");
        }
        let mut client = gateway.connect();
        assert_eq!(client.get("/").status(), 200);
        assert_eq!(upstream.next().field("x-forwarded-for"), Some("127.0.0.1"));
        assert!(upstream.drain().is_empty());
    }
}

/// A server that asks for it is told where the client is, and takes nobody else's requests over that connection.
#[test]
fn servers_are_told_where_a_client_is() {
    for version in ["v1", "v2"] {
        let upstream = Upstream::scripted(|mut served, report| {
            let (source, length) = loop {
                let seen = served.reader.fill_buf().unwrap();
                if let Some(header) = proxy_protocol::parse_header(seen).unwrap() {
                    break (header.addresses.unwrap().client, header.length);
                }
            };
            served.reader.consume(length);
            while let Ok(mut request) = served.request() {
                request.body = source.to_string().into();
                report(request);
                served.send(ok("fine"));
            }
        });
        let upstreams = format!(
            "upstreams: {{ up: {{ servers: [\"http://{{upstream}}\"], proxy_protocol: {version} }} }}\n"
        );
        let gateway = start(&upstream, TRUSTED, &upstreams, OPEN);
        let mut direct = gateway.connect();
        let v1 = "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n";
        direct.send(format!("{v1}{GET}"));
        assert_eq!(direct.answer().status(), 200);
        assert_eq!(upstream.next().text(), "192.0.2.1:4711");
        let mut other = gateway.connect();
        other.send([&v2([192, 0, 2, 2])[..], GET.as_bytes()].concat());
        assert_eq!(other.answer().status(), 200);
        assert_eq!(upstream.next().text(), "192.0.2.2:8080");
        assert_eq!(direct.get("/").status(), 200);
        assert_eq!(upstream.next().text(), "192.0.2.1:4711");
    }
}

#[test]
fn an_address_may_have_so_many_connections() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, TRUSTED, "connections: { per_ip: 3 }\n", OPEN);
    let from = |ip: u8| {
        let mut client = gateway.connect();
        client.send([&v2([192, 0, 2, ip])[..], GET.as_bytes()].concat());
        client
    };
    let mut seated: Vec<Client> = (0..3).map(|_| from(1)).collect();
    for client in &mut seated {
        assert_eq!(client.answer().status(), 200);
    }
    assert_eq!(from(1).rest(), b"", "the fourth");
    assert_eq!(from(2).answer().status(), 200, "another address");
    drop(seated.pop());
    wait_until("the place is free again", || {
        let mut answer = [0; 12];
        from(1).reader.read_exact(&mut answer).is_ok() && answer == *b"HTTP/1.1 200"
    });
}

#[test]
fn connections_beyond_the_total_wait() {
    let upstream = Upstream::plain();
    let settings = "workers: 1\nconnections: { total: 2 }\n";
    let gateway = start(&upstream, "", settings, OPEN);
    let mut first = gateway.connect();
    let mut second = gateway.connect();
    assert_eq!(
        (first.get("/").status(), second.get("/").status()),
        (200, 200)
    );
    let mut third = gateway.connect();
    third.send(GET);
    // Those that are there are served meanwhile.
    for _ in 0..20 {
        assert_eq!(first.get("/").status(), 200);
    }
    let open = gateway.app.metrics();
    assert_contains(&open, &["tollgate_connections_open 2"]);
    drop(second);
    assert_eq!(third.answer().status(), 200);
}

/// A gateway with few descriptors takes as many connections as it can serve, and dies of no more.
#[test]
fn descriptors_run_out_for_nobody() {
    let upstream = Upstream::plain();
    let folder = folder(&upstream, "", "workers: 1\nadmin: off\n", OPEN);
    let program = child::command(folder.path(), &["run", "--config", "tollgate.yaml"]);
    let limited = format!(
        "ulimit -n 200; exec {} run --config tollgate.yaml",
        program.get_program().to_str().unwrap()
    );
    let mut command = child::program("sh", folder.path(), &["-c", &limited]);
    let server = child::Server::of(&mut command, false);
    let mut clients: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(GET);
    }
    // 36 of them fit: 200 less what is kept for the rest, by two.
    let mut served = 0;
    while served < 100 {
        let mut client = clients.remove(0);
        assert_eq!(client.answer().status(), 200, "after {served}");
        served += 1;
        drop(client);
    }
}
