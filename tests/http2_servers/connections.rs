//! How many connections there are to a server of HTTP/2, and what happens when they end.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use h2::Reason;
use tokio::sync::Barrier;

use crate::common::certificate::Certificate;
use crate::common::http2::{Client, get, request, run, whole};
use crate::common::raw::{ACK, HEADERS, PING, Raw, SETTINGS, frame};
use crate::common::{Gateway, Upstream, wait_until};
use crate::server::Server;

/// A gateway in front of a server that may be none of HTTP/2.
fn gateway(server: &Upstream, more: &str) -> Gateway {
    let upstreams = "upstreams: { up: { servers: [\"http://{upstream}\"], protocol: h2 } }\n";
    let policy = [("all", "match: /**\nupstream: up\n")];
    Gateway::start(server.address, &format!("{upstreams}{more}"), &policy)
}

/// Requests share a connection, and no more than the server allows.
#[test]
fn many_requests_few_connections() {
    let few = |builder: &mut h2::server::Builder| {
        builder.max_concurrent_streams(10);
    };
    static OPEN: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
    static MOST: AtomicUsize = AtomicUsize::new(0);
    static ALL: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(50));
    let server = Server::with(few, |asked| async move {
        let open = &OPEN[asked.connection];
        MOST.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        if asked.path() == "/together" {
            ALL.wait().await;
        }
        open.fetch_sub(1, Ordering::SeqCst);
        let connection = asked.connection.to_string();
        asked.ok(&connection);
    });
    let gateway = server.gateway();
    run(async {
        let mut client = Client::connect(gateway.address).await;
        assert_eq!(client.get("/").await.body, "0");
        for _ in 0..3 {
            let together = |_| client.begin(get("/together"), true).0;
            let answers: Vec<_> = (0..50).map(together).collect();
            let mut last = 0;
            for answer in answers {
                let answer = whole(answer.await.unwrap()).await.unwrap();
                assert_eq!(answer.status, 200);
                let connection = std::str::from_utf8(&answer.body).unwrap();
                last = last.max(connection.parse().unwrap());
            }
            assert!((4..8).contains(&last), "connection {last}");
        }
    });
    assert_eq!(MOST.load(Ordering::SeqCst), 10);
}

/// RFC 9113 sections 6.8 and 8.7: what the server has not looked at goes to another connection, whatever its
/// method; a body that has begun does not.
#[test]
fn what_a_server_has_not_looked_at_is_sent_again() {
    static REFUSALS: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start(|mut asked| async move {
        asked.tell(format!("{} {}", asked.request.method(), asked.connection));
        if asked.path() == "/refuse" && REFUSALS.fetch_add(1, Ordering::SeqCst) < 2 {
            return asked.respond.send_reset(Reason::REFUSED_STREAM);
        }
        asked.ok("fine");
    });
    let gateway = server.gateway();
    let mut client = gateway.connect();
    client.send("DELETE /refuse HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(client.answer().text(), "fine");
    for _ in 0..3 {
        assert_eq!(server.next(), "DELETE 0");
    }
    // After a goodbye the next requests go elsewhere.
    for _ in 0..5 {
        assert_eq!(client.get("/goaway").text(), "fine");
        client.send("DELETE / HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(client.answer().text(), "fine");
    }
}

/// A connection that dies takes with it the requests on it, and none that come later.
#[test]
fn a_connection_dies() {
    // It takes a request, and is gone.
    let server = Upstream::scripted(|served, report| {
        let mut raw = Raw {
            stream: served.stream,
        };
        std::io::Read::read_exact(&mut raw.stream, &mut [0; 24]).unwrap();
        raw.send(&frame(SETTINGS, 0, 0, &[]));
        let ping = raw.next(PING).unwrap();
        raw.send(&frame(PING, ACK, 0, &ping.payload));
        raw.next(HEADERS).unwrap();
        report(Default::default());
    });
    let gateway = gateway(&server, "");
    let mut client = gateway.connect();
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(client.answer().status(), 502);
        server.next();
    }
}

/// A server that hangs is left: the next request goes over a new connection.
#[test]
fn a_connection_hangs() {
    let server = Server::start(|asked| async move {
        match asked.connection {
            0 => std::future::pending().await,
            _ => asked.ok("fine"),
        }
    });
    let gateway = server.gateway_with("timeouts: { first_byte: 300ms }\n");
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 504);
    assert_eq!(client.get("/").text(), "fine");
}

/// What is no HTTP/2 is no server.
#[test]
fn a_server_that_speaks_something_else() {
    let server = Upstream::scripted(|mut served, _| {
        served.send("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
    });
    let gateway = gateway(&server, "");
    assert_eq!(gateway.connect().get("/").status(), 503);
    let silent = Upstream::scripted(|mut served, _| {
        let _ = std::io::copy(&mut served.reader, &mut std::io::sink());
    });
    let gateway = self::gateway(&silent, "timeouts: { connect: 300ms }\n");
    assert_eq!(gateway.connect().get("/").status(), 503);
}

/// Under TLS both must agree on HTTP/2 in the handshake: RFC 9113 section 3.2.
#[test]
fn under_tls() {
    let own = Certificate::of(&["localhost", "test"]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("own.pem"), &own.pem).unwrap();
    std::fs::write(file("own.key"), &own.key).unwrap();
    let shop = Server::start(|asked| async move {
        let uri = asked.request.uri().to_string();
        asked.ok(&uri);
    });
    // A gateway that speaks TLS, and HTTP/2, in front of it.
    let inner = tempfile::tempdir().unwrap();
    std::fs::create_dir(inner.path().join("policies")).unwrap();
    let text = format!(
        "version: 1\nworkers: 1\naccess_log: off\nadmin: off\nlisten: {{ address: 127.0.0.1:0, tls: {{ cert: {0}/own.pem, key: {0}/own.key }} }}\n\
         upstreams: {{ up: {{ servers: [\"http://{1}\"], protocol: h2 }} }}\n",
        folder.path().display(),
        shop.address
    );
    std::fs::write(inner.path().join("tollgate.yaml"), text).unwrap();
    let policy = "match: /**\nupstream: up\n";
    std::fs::write(inner.path().join("policies/all.yaml"), policy).unwrap();
    let inner = Gateway::start_in(inner, tollgate::base::clock::Clock::system());
    let upstreams = format!(
        "upstreams: {{ up: {{ servers: [\"https://localhost:{}\"], protocol: h2, tls: {{ roots: {}/own.pem }} }} }}\n",
        inner.address.port(),
        folder.path().display()
    );
    let outer = Gateway::start(inner.address, &upstreams, &[("all", policy)]);
    let mut client = outer.connect();
    assert_eq!(client.get("/a").text(), "http://test/a");
    run(async {
        let mut client = Client::connect(outer.address).await;
        let post = request("POST", "/b").body(()).unwrap();
        let (answer, mut body) = client.begin(post, false);
        body.send_data("x".into(), true).unwrap();
        assert_eq!(
            whole(answer.await.unwrap()).await.unwrap().body,
            "http://test/b"
        );
    });
}

/// Checks of a server of HTTP/2 are of HTTP/2.
#[test]
fn checks() {
    static WELL: AtomicUsize = AtomicUsize::new(503);
    let server = Server::start(|mut asked| async move {
        let status = match asked.path() {
            "/health" => WELL.load(Ordering::SeqCst) as u16,
            _ => 200,
        };
        let mut answer = http::Response::new(());
        *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
        asked.respond.send_response(answer, true).unwrap();
    });
    let upstreams = "upstreams: { up: { servers: [\"http://{upstream}\"], protocol: h2, \
                     health: { path: /health, every: 100ms, fall: 1, rise: 1 } } }\n";
    let policy = [("all", "match: /**\nupstream: up\n")];
    let gateway = Gateway::start(server.address, upstreams, &policy);
    let mut client = gateway.connect();
    wait_until("it is not well", || client.get("/").status() == 503);
    WELL.store(200, Ordering::SeqCst);
    wait_until("it is well", || client.get("/").status() == 200);
}
