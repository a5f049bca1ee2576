//! TLS to servers: who is believed, what the gateway shows of itself, and answers that are cut off.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::certificate::{Certificate, roots};
use common::child::{self, Server};
use common::{Gateway, Upstream, assert_contains, ok, read_body, read_head, wait_until, write};
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;
use tollgate::base::clock::Clock;

const POLICY: &str = "match: /**\nupstream: up\n";

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// What a server shows, and whom it asks to show themselves.
fn config(own: &Certificate, callers: Option<&Certificate>) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = match callers {
        Some(callers) => {
            let roots = Arc::new(roots(&[callers]));
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            config.with_client_cert_verifier(verifier.unwrap())
        }
        None => config.with_no_client_auth(),
    };
    let chain = vec![own.der.clone()];
    Arc::new(config.with_single_cert(chain, own.private()).unwrap())
}

/// A server under TLS that counts its connections and serves each by `serve`.
struct Secure {
    upstream: Upstream,
    connections: Arc<AtomicUsize>,
}

impl Secure {
    fn start(
        config: Arc<ServerConfig>,
        serve: impl Fn(&mut BufReader<Stream>) -> std::io::Result<()> + Send + Sync + Clone + 'static,
    ) -> Secure {
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let upstream = Upstream::scripted(move |served, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            let connection = ServerConnection::new(config.clone()).unwrap();
            let stream = StreamOwned::new(connection, served.stream);
            let mut stream = BufReader::new(stream);
            while serve(&mut stream).is_ok() {}
        });
        Secure {
            upstream,
            connections,
        }
    }

    /// Answers each request with its Host.
    fn echoing(config: Arc<ServerConfig>) -> Secure {
        Secure::start(config, |stream| {
            let mut request = read_head(stream)?;
            read_body(stream, &mut request)?;
            let host = request.field("host").unwrap_or_default();
            stream.get_mut().write_all(ok(host).as_bytes())
        })
    }

    fn port(&self) -> u16 {
        self.upstream.address.port()
    }
}

/// A gateway file with one server, and files beside it.
fn folder(server: &str, tls: &str, files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let more = format!("admin: off\nupstreams: {{ up: {{ servers: \"{server}\"{tls} }} }}\n");
    let nobody = "127.0.0.1:9".parse().unwrap();
    write(&folder, nobody, &more, &[("all", POLICY)]);
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn start(server: &str, tls: &str, files: &[(&str, &str)]) -> Gateway {
    Gateway::start_in(folder(server, tls, files), Clock::system())
}

#[test]
fn a_server_that_is_believed_is_asked_over_one_connection() {
    let own = Certificate::of(&["localhost"]);
    let secure = Secure::echoing(config(&own, None));
    let server = format!("https://localhost:{}", secure.port());
    let tls = ", tls: { roots: ca.pem }";
    let gateway = start(&server, tls, &[("ca.pem", &own.pem)]);
    let mut client = gateway.connect();
    for _ in 0..5 {
        let answer = client.get("/");
        assert_eq!((answer.status(), &*answer.text()), (200, "test"));
    }
    assert_eq!(secure.connections.load(Ordering::SeqCst), 1);

    let large = "x".repeat(3 << 20);
    let head = format!(
        "POST / HTTP/1.1\r\nhost: large\r\ncontent-length: {}\r\n\r\n",
        large.len()
    );
    client.send(head + &large);
    assert_eq!(client.answer().text(), "large");
}

#[test]
fn what_nobody_asked_for_answers_no_other_request() {
    let own = Certificate::of(&["localhost"]);
    let secure = Secure::start(config(&own, None), |stream| {
        let mut request = read_head(stream)?;
        read_body(stream, &mut request)?;
        let answer = ok(request.start.split(' ').nth(1).unwrap_or_default());
        let stream = stream.get_mut();
        // Two records that leave together.
        stream.conn.writer().write_all(answer.as_bytes())?;
        stream.conn.writer().write_all(ok("stale").as_bytes())?;
        stream.flush()
    });
    let server = format!("https://localhost:{}", secure.port());
    let tls = ", tls: { roots: ca.pem }";
    let gateway = start(&server, tls, &[("ca.pem", &own.pem)]);
    let mut client = gateway.connect();
    for number in 0..50 {
        let path = format!("/{number}");
        assert_eq!(client.get(&path).text(), path);
    }
}

#[test]
fn a_server_that_is_not_believed_gets_nothing() {
    let (own, other) = (
        Certificate::of(&["localhost"]),
        Certificate::of(&["localhost"]),
    );
    let secure = Secure::start(config(&own, None), |stream| {
        read_head(stream).map(|head| panic!("it was asked: {head:?}"))
    });
    let server = format!("https://localhost:{}", secure.port());
    let address = format!("https://127.0.0.1:{}", secure.port());
    for (server, tls) in [
        (&server, ", tls: { roots: other.pem }"),
        (&address, ", tls: { roots: ca.pem }"),
        (&server, ", tls: { roots: ca.pem, name: other.example }"),
    ] {
        let files = [("ca.pem", &*own.pem), ("other.pem", &*other.pem)];
        let gateway = start(server, tls, &files);
        assert_eq!(gateway.connect().get("/").status(), 503, "{tls}");
    }
    // A server that speaks no TLS is not asked in plain text either.
    let plain = Upstream::plain();
    let server = format!("https://{}", plain.address);
    let gateway = start(&server, ", tls: { roots: ca.pem }", &[("ca.pem", &own.pem)]);
    assert_eq!(gateway.connect().get("/").status(), 503);
    assert!(plain.drain().is_empty());
}

#[test]
fn checks_verify_servers_too() {
    let (own, other) = (
        Certificate::of(&["localhost"]),
        Certificate::of(&["localhost"]),
    );
    let secure = Secure::echoing(config(&own, None));
    let name = format!("localhost:{}", secure.port());
    let up = format!("tollgate_upstream_server_up{{upstream=\"up\",server=\"{name}\"}}");
    let files = [("ca.pem", &*own.pem), ("other.pem", &*other.pem)];
    for (roots, expected) in [("ca.pem", 1), ("other.pem", 0)] {
        let tls = format!(", tls: {{ roots: {roots} }}, health: {{ path: /, every: 100ms }}");
        let gateway = start(&format!("https://{name}"), &tls, &files);
        let before = secure.connections.load(Ordering::SeqCst);
        wait_until("it is checked", || {
            secure.connections.load(Ordering::SeqCst) > before + 2
        });
        let line = format!("{up} {expected}\n");
        assert!(gateway.app.metrics().contains(&line), "{roots}");
    }
}

#[test]
fn servers_are_known_by_another_name_and_know_the_gateway() {
    let (own, caller) = (
        Certificate::of(&["shop.internal"]),
        Certificate::of(&["gateway"]),
    );
    let secure = Secure::echoing(config(&own, Some(&caller)));
    let server = format!("https://127.0.0.1:{}", secure.port());
    let files = [
        ("ca.pem", &*own.pem),
        ("gw.pem", &*caller.pem),
        ("gw.key", &*caller.key),
    ];
    let tls = ", tls: { roots: ca.pem, name: shop.internal, cert: gw.pem, key: gw.key }";
    let gateway = start(&server, tls, &files);
    assert_eq!(gateway.connect().get("/").status(), 200);
    let tls = ", tls: { roots: ca.pem, name: shop.internal }";
    let gateway = start(&server, tls, &files);
    assert_eq!(gateway.connect().get("/").status(), 502);
}

#[test]
fn an_answer_that_is_cut_off_does_not_look_whole() {
    let own = Certificate::of(&["localhost"]);
    for polite in [true, false] {
        let secure = Secure::start(config(&own, None), move |stream| {
            read_head(stream)?;
            let stream = stream.get_mut();
            // The end of the connection is the end of the answer.
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of it")?;
            if polite {
                stream.conn.send_close_notify();
                stream.flush()?;
            }
            Err(std::io::ErrorKind::BrokenPipe.into())
        });
        let server = format!("https://localhost:{}", secure.port());
        let gateway = start(&server, ", tls: { roots: ca.pem }", &[("ca.pem", &own.pem)]);
        let mut client = gateway.connect();
        client.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n");
        let mut answer = client.head().unwrap();
        let whole = read_body(&mut client.reader, &mut answer);
        assert_eq!(whole.is_ok(), polite, "{whole:?} {answer:?}");
    }
}

#[test]
fn who_is_not_named_is_believed_as_the_system_does() {
    let own = Certificate::of(&["localhost"]);
    let secure = Secure::echoing(config(&own, None));
    let server = format!("https://localhost:{}", secure.port());
    let folder = folder(&server, "", &[("ca.pem", &own.pem), ("none.pem", "")]);
    let mut command = child::command(folder.path(), &["run", "--config", "tollgate.yaml"]);
    let running = Server::of(command.env("SSL_CERT_FILE", "ca.pem"), false);
    assert_eq!(running.connect().get("/").status(), 200);
    drop(running);

    let mut command = child::command(folder.path(), &["check"]);
    command
        .env("SSL_CERT_FILE", "none.pem")
        .env_remove("SSL_CERT_DIR");
    let out = command.output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{told}");
    assert_contains(
        &told,
        &[
            "7:29: the system has no certificates to verify servers by",
            "ca-certificates",
        ],
    );
}

#[test]
fn mistakes_are_told() {
    let own = Certificate::of(&["localhost"]);
    let files = [
        ("ca.pem", &*own.pem),
        ("a.key", &*own.key),
        ("none.pem", ""),
    ];
    for (server, tls, expected) in [
        (
            "http://a",
            ", tls: { roots: ca.pem }",
            "`tls` is for servers that are written https://",
        ),
        (
            "https://a",
            ", tls: { roots: none.pem }",
            "`none.pem`: it holds no certificate in PEM",
        ),
        (
            "https://a",
            ", tls: { roots: gone.pem }",
            "cannot read the certificates `gone.pem`",
        ),
        (
            "https://a",
            ", tls: { roots: ca.pem, cert: ca.pem }",
            "`cert` needs `key`",
        ),
        (
            "https://a",
            ", tls: { roots: ca.pem, cert: ca.pem, key: ca.pem }",
            "`ca.pem`: it holds no private key",
        ),
        (
            "https://a",
            ", tls: { roots: ca.pem, name: \"a b\" }",
            "`a b` cannot be the name in a certificate",
        ),
        ("https://a", ", tls: { verify: off }", "`verify`"),
    ] {
        let folder = folder(server, tls, &files);
        let ended = child::run(folder.path(), &["check"]);
        assert_eq!(ended.code, Some(2), "{tls}: {ended:?}");
        assert_contains(&(ended.out + &ended.err), &[expected]);
    }
}
