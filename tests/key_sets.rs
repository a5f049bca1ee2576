//! Key sets that are fetched from a URL: real TLS, keys that rotate, and servers that are away or lie.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use common::certificate::Certificate;
use common::child::{self, Server};
use common::manager::Manager;
use common::{Client, Gateway, Upstream, assert_contains, read_head, wait_until, write};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustix::process::{Signal, kill_process};
use rustls::crypto::aws_lc_rs;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Builder;
use tollgate::base::clock::{Clock, Nanos};

const POLICY: &str = "match: /**\nupstream: up\nlimits: { each: { key: user, rate: 1000/m } }\n";

type Stream = BufReader<StreamOwned<ServerConnection, TcpStream>>;

/// What the issuer's server does with a request for a path.
type Serve = dyn Fn(&mut Stream, &str) -> io::Result<()> + Send + Sync;

type StartIssuer = dyn FnOnce() -> Issuer + Send;

/// An issuer of tokens whose server speaks TLS.
struct Issuer {
    server: Upstream,
    certificate: Certificate,
    requests: Arc<AtomicUsize>,
    serve: Arc<Mutex<Arc<Serve>>>,
}

impl Issuer {
    fn start(
        serve: impl Fn(&mut Stream, &str) -> io::Result<()> + Send + Sync + 'static,
    ) -> Issuer {
        let certificate = Certificate::of(&["localhost"]);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der.clone()], certificate.private());
        let config = Arc::new(config.unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let serve: Arc<Mutex<Arc<Serve>>> = Arc::new(Mutex::new(Arc::new(serve)));
        let (counted, current) = (requests.clone(), serve.clone());
        let server = Upstream::scripted(move |served, _| {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(connection, served.stream));
            let Ok(request) = read_head(&mut stream) else {
                return;
            };
            counted.fetch_add(1, Ordering::SeqCst);
            let path = request.start.split(' ').nth(1).unwrap().to_owned();
            let serve = current.lock().clone();
            let _ = serve(&mut stream, &path);
            stream.get_mut().conn.send_close_notify();
            let _ = stream.get_mut().flush();
        });
        Issuer {
            server,
            certificate,
            requests,
            serve,
        }
    }

    fn serve(&self, serve: impl Fn(&mut Stream, &str) -> io::Result<()> + Send + Sync + 'static) {
        *self.serve.lock() = Arc::new(serve);
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.server.address.port())
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Answers each path with this document.
fn document(text: impl Into<String>) -> impl Fn(&mut Stream, &str) -> io::Result<()> + Send + Sync {
    let text = text.into();
    move |stream, _| answer(stream, "200 OK", &text)
}

fn answer(stream: &mut Stream, status: &str, text: &str) -> io::Result<()> {
    let length = text.len();
    write!(
        stream.get_mut(),
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{text}"
    )
}

/// A key of the issuer.
struct Key {
    id: &'static str,
    pair: KeyPair,
}

impl Key {
    fn new(id: &'static str) -> Key {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        Key { id, pair }
    }

    fn jwk(&self) -> serde_json::Value {
        // An uncompressed point: 4, then both coordinates of 32 bytes.
        let point = self.pair.public_key_raw();
        let coordinate = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig",
            "x": coordinate(&point[1..33]), "y": coordinate(&point[33..])})
    }

    /// A token of this user, of an issuer of several.
    fn token_of(&self, user: &str, issuer: &str) -> String {
        self.sign(&json!({"sub": user, "iss": issuer, "exp": 4_000_000_000_u64}))
    }

    fn token(&self, user: &str, audience: &str) -> String {
        self.sign(&json!({"sub": user, "aud": audience, "exp": 4_000_000_000_u64}))
    }

    fn sign(&self, claims: &serde_json::Value) -> String {
        let header = Header {
            kid: Some(self.id.into()),
            ..Header::new(Algorithm::ES256)
        };
        let key = EncodingKey::from_ec_der(&self.pair.serialize_der());
        encode(&header, claims, &key).unwrap()
    }
}

fn set(keys: &[&Key]) -> String {
    let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

/// A folder with a gateway that verifies users by `url`.
fn folder(upstream: &Upstream, issuer: &Issuer, url: &str, more: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("ca.pem"), &issuer.certificate.pem).unwrap();
    let gateway = format!(
        "admin: off\nidentity: {{ user: {{ jwt: sub, jwks: '{url}', roots: ca.pem{more} }} }}\n"
    );
    write(&folder, upstream.address, &gateway, &[("all", POLICY)]);
    folder
}

fn status(mut client: Client, token: &str) -> u16 {
    client.send(format!(
        "GET / HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n"
    ));
    client.answer().status()
}

#[test]
fn keys_rotate_and_outlive_their_server() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let issuer = Issuer::start(document(set(&[&old])));
    let upstream = Upstream::plain();
    let folder = folder(&upstream, &issuer, &issuer.url("/keys"), "");
    let clock = Clock::manual(Nanos::from_secs(1_800_000_000));
    let gateway = Gateway::start_in(folder, clock.clone());
    let status = |token: &str| status(gateway.connect(), token);
    let runtime = Builder::new_current_thread().build().unwrap();
    let renew = || {
        runtime.block_on(gateway.app.wait_for_new_keys());
        runtime.block_on(gateway.app.renew_keys()).unwrap();
    };
    assert_eq!(status(&old.token("ann", "shop")), 200);
    assert_eq!(issuer.requests(), 1);

    // A token by a new key makes the gateway ask again, but not within a minute.
    issuer.serve(document(set(&[&new])));
    let (ann, eve) = (new.token("ann", "shop"), old.token("eve", "shop"));
    for _ in 0..20 {
        assert_eq!(status(&ann), 401);
    }
    clock.advance(Nanos::from_secs(59));
    assert_eq!((status(&ann), issuer.requests()), (401, 1));
    clock.advance(Nanos::from_secs(1));
    renew();
    assert_eq!((status(&ann), issuer.requests()), (200, 2));
    assert_eq!(status(&eve), 401, "the old key has gone");

    // Without an unknown key the set is fetched again when its lifetime is over.
    issuer.serve(document(set(&[&old, &new])));
    clock.advance(Nanos::from_secs(600));
    renew();
    assert_eq!((status(&eve), issuer.requests()), (200, 3));

    // A reload keeps the keys, and so does a server that is away.
    issuer.serve(|stream, _| answer(stream, "503 Service Unavailable", ""));
    runtime.block_on(gateway.app.reload()).unwrap();
    assert_eq!(status(&new.token("bob", "shop")), 200);
    clock.advance(Nanos::from_secs(600));
    wait_until("the gateway asks again", || issuer.requests() == 4);
    assert_eq!(status(&new.token("eva", "shop")), 200);
}

#[test]
fn an_openid_configuration_names_the_set() {
    let key = Key::new("one");
    let issuer = Issuer::start(document(""));
    let (own, elsewhere) = (issuer.url(""), issuer.url("/keys"));
    let keys = set(&[&key]);
    issuer.serve(move |stream, path| match path {
        "/.well-known/openid-configuration" => {
            let text = json!({"issuer": own, "jwks_uri": elsewhere}).to_string();
            answer(stream, "200 OK", &text)
        }
        _ => answer(stream, "200 OK", &keys),
    });
    let upstream = Upstream::plain();
    let url = issuer.url("/.well-known/openid-configuration");
    let folder = folder(&upstream, &issuer, &url, ", audience: [shop, admin]");
    let server = Server::start(folder.path(), false);
    let each = ["shop", "admin", "other"]
        .map(|audience| status(server.connect(), &key.token("ann", audience)));
    assert_eq!(each, [200, 200, 401]);
}

/// What a server may do instead of sending a set, and what the log says of it.
#[test]
fn servers_that_lie_or_are_away() {
    let huge = format!("{{\"keys\": [], \"x\": \"{}\"}}", "x".repeat(2 << 20));
    let endless = |stream: &mut Stream, _: &str| loop {
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"keys\": [")?;
        for _ in 0.. {
            stream.get_mut().write_all(&[b' '; 1024])?;
        }
    };
    let silent = |stream: &mut Stream, _: &str| {
        // Until the gateway gives up.
        stream.read_to_end(&mut Vec::new()).map(drop)
    };
    let elsewhere = |stream: &mut Stream, _: &str| {
        let head =
            "HTTP/1.1 302 Found\r\nlocation: https://localhost/\r\ncontent-length: 0\r\n\r\n";
        stream.get_mut().write_all(head.as_bytes())
    };
    let cut = |stream: &mut Stream, _: &str| {
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"keys\"")
    };
    let cases: Vec<(Box<StartIssuer>, &str)> = vec![
        (
            Box::new(|| Issuer::start(document("<html></html>"))),
            "not a JSON Web Key Set",
        ),
        (
            Box::new(|| Issuer::start(document("{\"keys\": []}"))),
            "no key of the set can be used",
        ),
        (
            Box::new(move || Issuer::start(document(huge))),
            "length limit exceeded",
        ),
        (
            Box::new(move || Issuer::start(endless)),
            "length limit exceeded",
        ),
        (
            Box::new(move || Issuer::start(silent)),
            "no response within 10 seconds",
        ),
        (Box::new(move || Issuer::start(elsewhere)), "302 Found"),
        (Box::new(move || Issuer::start(cut)), ""),
    ];
    thread::scope(|scope| {
        for (start, reason) in cases {
            scope.spawn(move || {
                let issuer = start();
                let upstream = Upstream::plain();
                let folder = folder(&upstream, &issuer, &issuer.url("/keys"), "");
                let server = Server::start(folder.path(), false);
                let token = Key::new("one").token("ann", "shop");
                assert_eq!(status(server.connect(), &token), 401, "{reason}");
                let early = server
                    .early
                    .iter()
                    .find(|line| line.contains("key set failed"))
                    .cloned();
                let line = early.unwrap_or_else(|| child::line_with(&server.err, "key set failed"));
                assert_contains(&line, &["no token verifies until it is there", reason]);

                let key = Key::new("one");
                issuer.serve(document(set(&[&key])));
                let token = key.token("ann", "shop");
                wait_until("the gateway tries again", || {
                    status(server.connect(), &token) == 200
                });
            });
        }
    });
}

#[test]
fn a_server_that_is_not_verified_is_not_believed() {
    let key = Key::new("one");
    let issuer = Issuer::start(document(set(&[&key])));
    let upstream = Upstream::plain();
    let folder = folder(&upstream, &issuer, &issuer.url("/keys"), "");
    let other = Certificate::of(&["localhost"]);
    std::fs::write(folder.path().join("ca.pem"), &other.pem).unwrap();
    let server = Server::start(folder.path(), false);
    assert_eq!(status(server.connect(), &key.token("ann", "shop")), 401);
    assert_eq!(issuer.requests(), 0);
}

/// The keys of an issuer that is away pass to the process that takes over, and from that to the next one.
#[test]
fn keys_outlive_the_process() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    // Another key that claims to be the issuer's.
    let forged = Key::new("old");
    let issuer = Issuer::start(document(set(&[&old])));
    let upstream = Upstream::plain();
    let folder = folder(&upstream, &issuer, &issuer.url("/keys"), "");
    let manager = Manager::new(folder.path());
    let mut server = Server::of(&mut Manager::command(folder.path()), false);
    assert_eq!(manager.hears(), "READY=1");
    let status = |key: &Key| status(server.connect(), &key.token("ann", "shop"));
    assert_eq!([&old, &new, &forged].map(status), [200, 401, 401]);

    issuer.serve(|stream, _| answer(stream, "503 Service Unavailable", ""));
    server.signal(Signal::USR2);
    let first = manager.hears_of_successor();
    wait_until("the new process asks the issuer too", || {
        issuer.requests() > 1
    });
    assert_eq!([&old, &new, &forged].map(status), [200, 401, 401]);
    kill_process(first.0, Signal::USR2).unwrap();
    let second = manager.hears_of_successor();
    assert_eq!([&old, &new, &forged].map(status), [200, 401, 401]);

    // What the issuer says counts as soon as it is there again.
    issuer.serve(document(set(&[&new])));
    wait_until("the keys are fetched", || status(&new) == 200);
    assert_eq!([&old, &new, &forged].map(status), [401, 200, 401]);

    // The keys of one URL verify nothing for another one.
    issuer.serve(|stream, _| answer(stream, "503 Service Unavailable", ""));
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("/keys", "/other")).unwrap();
    kill_process(second.0, Signal::USR2).unwrap();
    let third = manager.hears_of_successor();
    wait_until("the process before has ended", || status(&new) == 401);
    drop((first, second, third));
    assert_eq!(server.ended(), Some(0));
}

/// Each of two issuers has a server and keys of its own, and both outlive the process.
#[test]
fn two_issuers_have_their_own_sets() {
    const A: &str = "https://a.example";
    const B: &str = "https://b.example";
    // Both call their key the same.
    let (of_a, of_b) = (Key::new("one"), Key::new("one"));
    let away = |stream: &mut Stream, _: &str| answer(stream, "503 Service Unavailable", "");
    let (first, second) = (Issuer::start(document(set(&[&of_a]))), Issuer::start(away));
    let upstream = Upstream::plain();
    let folder = TempDir::new().unwrap();
    let mut sources = String::new();
    for (name, issuer, server) in [("a", A, &first), ("b", B, &second)] {
        std::fs::write(folder.path().join(name), &server.certificate.pem).unwrap();
        let url = server.url("/keys");
        sources +=
            &format!("    - {{ jwt: sub, jwks: '{url}', roots: {name}, issuer: {issuer} }}\n");
    }
    let gateway = format!("admin: off\nidentity:\n  user:\n{sources}");
    write(&folder, upstream.address, &gateway, &[("all", POLICY)]);
    let manager = Manager::new(folder.path());
    let mut server = Server::of(&mut Manager::command(folder.path()), false);
    assert_eq!(manager.hears(), "READY=1");
    let tokens = [(&of_a, A), (&of_b, B), (&of_a, B), (&of_b, A)];
    let statuses =
        || tokens.map(|(key, issuer)| status(server.connect(), &key.token_of("ann", issuer)));
    assert_eq!(
        statuses(),
        [200, 401, 401, 401],
        "the second server is away"
    );
    second.serve(document(set(&[&of_b])));
    wait_until("the second set is fetched", || statuses()[1] == 200);
    assert_eq!(statuses(), [200, 200, 401, 401]);

    first.serve(away);
    second.serve(away);
    server.signal(Signal::USR2);
    let successor = manager.hears_of_successor();
    let requests = first.requests();
    wait_until("the new process asks", || first.requests() > requests);
    assert_eq!(statuses(), [200, 200, 401, 401], "both are away");
    drop(successor);
    assert_eq!(server.ended(), Some(0));
}
