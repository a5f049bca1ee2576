//! TLS to clients: versions, names, reloads, and clients that do not shake hands.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{Read, Write};

use common::certificate::Certificate;
use common::tls::{ALL, Tls, put, trusting};
use common::{Gateway, MAX_WAIT, Upstream, assert_contains, child, ok, wait_until, write};
use rustls::{HandshakeKind, version};
use tempfile::TempDir;
use tollgate::base::clock::Clock;
use tollgate::base::telemetry::{Label, Metric};
use tollgate::serve::admin::Control;

const POLICY: &str = "match: /**\nupstream: up\nlimits:\n  few: { key: ip, rate: 1000/h }\n";

/// Writes what a listener with these certificates needs, named `0.pem` and `0.key` and so on.
fn folder(upstream: &Upstream, certificates: &[&Certificate], more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream.address, more, &[("all", POLICY)]);
    let mut list = Vec::new();
    for (number, certificate) in certificates.iter().enumerate() {
        put(&folder, number, certificate);
        list.push(format!("{{ cert: {number}.pem, key: {number}.key }}"));
    }
    let file = folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let listen = format!(
        "listen: {{ address: 127.0.0.1:0, tls: [{}] }}\n",
        list.join(", ")
    );
    std::fs::write(&file, text.replace("listen: 127.0.0.1:0\n", &listen)).unwrap();
    folder
}

fn start(upstream: &Upstream, certificates: &[&Certificate], more: &str) -> Gateway {
    Gateway::start_in(folder(upstream, certificates, more), Clock::system())
}

#[test]
fn requests_come_in_under_both_versions() {
    let upstream = Upstream::plain();
    let own = Certificate::of(&["a.example"]);
    let gateway = start(&upstream, &[&own], "");
    for (versions, version) in [
        (&[&version::TLS13], rustls::ProtocolVersion::TLSv1_3),
        (&[&version::TLS12], rustls::ProtocolVersion::TLSv1_2),
    ] {
        let mut client = Tls::connect(&gateway, "a.example", &trusting(&[&own], versions));
        for _ in 0..3 {
            assert_eq!(client.get("/").status(), 200);
        }
        let answer = client.get("/");
        assert!(answer.field("ratelimit").is_some(), "{answer:?}");
        let seen = upstream.drain().pop().unwrap();
        assert_eq!(seen.field("x-forwarded-proto"), Some("https"));
        let forwarded = seen.field("forwarded").unwrap();
        assert!(forwarded.ends_with("proto=https"), "{forwarded}");
        let connection = &client.0.get_ref().conn;
        assert_eq!(connection.protocol_version(), Some(version));
        assert_eq!(connection.alpn_protocol(), Some(&b"http/1.1"[..]));

        // The end is told, so that nobody can cut an answer short.
        client.send(b"GET / HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n");
        assert_eq!(client.answer().status(), 200);
        assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn the_name_chooses_the_certificate() {
    let upstream = Upstream::plain();
    let first = Certificate::of(&["first.example", "both.example"]);
    let wild = Certificate::of(&["*.wild.example"]);
    let exact = Certificate::of(&["exact.wild.example", "other.example"]);
    let gateway = start(&upstream, &[&first, &wild, &exact], "");
    let config = trusting(&[&first, &wild, &exact], ALL);
    for (name, expected) in [
        ("first.example", &first),
        ("both.example", &first),
        ("a.wild.example", &wild),
        ("exact.wild.example", &exact),
        ("other.example", &exact),
    ] {
        let mut client = Tls::connect(&gateway, name, &config);
        assert_eq!(client.get("/").status(), 200, "{name}");
        assert_eq!(client.shown(), expected.der, "{name}");
    }
    // A wildcard stands for one label, and who asks for none of them gets the first.
    for name in [
        "a.b.wild.example",
        "wild.example",
        "unknown.example",
        "127.0.0.1",
    ] {
        let mut client = Tls::connect(&gateway, name, &config);
        let refused = client.0.get_mut().write_all(b"x").unwrap_err();
        let first = "only valid for DnsName(\"first.example\")";
        assert_contains(&refused.to_string(), &["not valid for name", first]);
    }
}

/// RFC 9110 section 15.5.20: a host that the connection's certificate is not for is asked for elsewhere. It is counted
/// and logged, and the connection goes on.
#[test]
fn hosts_of_other_certificates_are_misdirected() {
    use common::http2::{Client as Http2, run};
    let upstream = Upstream::plain();
    let wild = Certificate::of(&["*.example.com", "example.com"]);
    let other = Certificate::of(&["other.test"]);
    let certificates = [&wild, &other];
    let hosts = [
        ("www.example.com", 200),
        ("www.example.com:443", 200),
        ("WWW.example.com.", 200),
        ("admin.example.com", 200),
        ("example.com:443", 200),
        ("other.test", 421),
        ("a.b.example.com", 421),
        ("xwww.example.com.other.test", 421),
        ("127.0.0.1", 421),
    ];
    let log = "access_log: { file: access.log }\n";
    let gateway = start(&upstream, &certificates, log);
    let config = trusting(&certificates, ALL);
    let mut client = Tls::connect(&gateway, "www.example.com", &config);
    for (host, status) in hosts {
        client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes());
        assert_eq!(client.answer().status(), status, "{host}");
    }
    let mut h2 = (*config).clone();
    h2.alpn_protocols = vec![b"h2".to_vec()];
    run(async {
        let socket = tokio::net::TcpStream::connect(gateway.address)
            .await
            .unwrap();
        let name = rustls::pki_types::ServerName::try_from("www.example.com").unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(h2));
        let stream = connector.connect(name, socket).await.unwrap();
        let mut client = Http2::over(stream).await;
        for (host, status) in hosts {
            let request = http::Request::builder().uri(format!("https://{host}/"));
            let (answer, _) = client.begin(request.body(()).unwrap(), true);
            assert_eq!(answer.await.unwrap().status(), status, "{host}");
        }
    });
    let passed = hosts.iter().filter(|(_, status)| *status == 200).count();
    assert_eq!(upstream.drain().len(), 2 * passed);
    let file = gateway.folder.path().join("access.log");
    let misdirected = || {
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines()
            .filter(|line| line.contains("\"status\":421"))
            .count()
    };
    wait_until("all are logged", || {
        misdirected() == 2 * (hosts.len() - passed)
    });
    // Who asks for no name is held to none, nor is a proxy that is trusted.
    let quiet = {
        let mut config = (*config).clone();
        config.enable_sni = false;
        std::sync::Arc::new(config)
    };
    let mut client = Tls::connect(&gateway, "www.example.com", &quiet);
    client.send(b"GET / HTTP/1.1\r\nhost: other.test\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    let trusted = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n";
    let gateway = start(&upstream, &certificates, trusted);
    let mut client = Tls::connect(&gateway, "www.example.com", &config);
    client.send(b"GET / HTTP/1.1\r\nhost: other.test\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
}

#[test]
fn a_reload_changes_the_certificate_and_nothing_else() {
    let upstream = Upstream::plain();
    let (old, new) = (
        Certificate::of(&["a.example"]),
        Certificate::of(&["a.example"]),
    );
    let gateway = start(&upstream, &[&old], "");
    let config = trusting(&[&old, &new], ALL);
    let mut open = Tls::connect(&gateway, "a.example", &config);
    assert_eq!(open.get("/").status(), 200);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for round in 0..50 {
        let next = if round % 2 == 0 { &new } else { &old };
        put(&gateway.folder, 0, next);
        let reloaded = runtime.block_on(gateway.app.reload()).unwrap();
        assert!(reloaded.needs_restart.is_empty(), "{reloaded:?}");
        assert_eq!(open.get("/").status(), 200);
        // Without a session that was begun before.
        let fresh = trusting(&[&old, &new], ALL);
        let mut client = Tls::connect(&gateway, "a.example", &fresh);
        assert_eq!(client.get("/").status(), 200);
        assert_eq!(client.shown(), next.der);
    }
    let mut again = Tls::connect(&gateway, "a.example", &config);
    assert_eq!(again.get("/").status(), 200);
    let kind = again.0.get_ref().conn.handshake_kind();
    assert_eq!(kind, Some(HandshakeKind::Resumed));

    // Files that do not belong together change nothing.
    std::fs::write(gateway.folder.path().join("0.key"), &new.key).unwrap();
    let refused = runtime.block_on(gateway.app.reload()).unwrap_err();
    assert_contains(
        &refused.to_string(),
        &["its private key is not that of the certificate"],
    );
    let mut client = Tls::connect(&gateway, "a.example", &config);
    assert_eq!(client.get("/").status(), 200);
}

#[test]
fn bodies_pass_both_ways() {
    const SIZE: usize = 8 << 20;
    let upstream = Upstream::answering(|request| {
        let body = String::from_utf8(request.body.clone()).unwrap();
        ok(&body)
    });
    let own = Certificate::of(&["a.example"]);
    let gateway = start(&upstream, &[&own], "");
    let mut client = Tls::connect(&gateway, "a.example", &trusting(&[&own], ALL));
    let body: String = (0..SIZE)
        .map(|n| char::from(b'a' + (n % 23) as u8))
        .collect();
    client.send(
        format!("POST / HTTP/1.1\r\nhost: a.example\r\ncontent-length: {SIZE}\r\n\r\n").as_bytes(),
    );
    client.send(body.as_bytes());
    assert!(
        client.answer().text() == body,
        "what came back is another body"
    );
    assert_eq!(client.get("/").status(), 200);
}

#[test]
fn who_does_not_shake_hands_is_let_go() {
    let upstream = Upstream::plain();
    let own = Certificate::of(&["a.example"]);
    let gateway = start(&upstream, &[&own], "timeouts: { header: 300ms }\n");
    let failed = || {
        Control::counter_total(
            &gateway.app,
            Metric::Handshakes,
            &[(Label::Outcome, "failed")],
        )
    };
    let mut plain = gateway.connect();
    plain.send("GET / HTTP/1.1\r\nhost: a.example\r\n\r\n");
    let said = plain.rest();
    assert!(!said.starts_with(b"HTTP/"), "{said:?}");
    wait_until("the handshake counts as failed", || failed() == 1);

    let mut silent = gateway.connect();
    assert_eq!(silent.rest(), b"");
    let mut half = gateway.connect();
    half.send([22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    assert_eq!(half.rest(), b"");
    wait_until("handshakes that are late count too", || failed() == 3);
    let mut client = Tls::connect(&gateway, "a.example", &trusting(&[&own], ALL));
    assert_eq!(client.get("/").status(), 200);
    assert!(upstream.drain().len() == 1);
}

#[test]
fn a_drain_does_not_wait_for_handshakes() {
    let upstream = Upstream::plain();
    let own = Certificate::of(&["a.example"]);
    let gateway = start(
        &upstream,
        &[&own],
        "timeouts: { header: 60s, drain: 60s }\n",
    );
    let open = || Control::counter_total(&gateway.app, Metric::Connections, &[]);
    let mut silent = gateway.connect();
    wait_until("it is there", || open() == 1);
    gateway.app.shut_down();
    assert_eq!(silent.rest(), b"");
}

/// Answers of many sizes, around what the kernels hold, to clients that do not read.
#[test]
fn who_does_not_read_is_let_go() {
    let upstream = Upstream::answering(|request| {
        let size = request.start.split(['/', ' ']).nth(2).unwrap();
        ok(&"x".repeat(size.parse().unwrap()))
    });
    let own = Certificate::of(&["a.example"]);
    let gateway = start(
        &upstream,
        &[&own],
        "timeouts: { send: 300ms, drain: 20s }\n",
    );
    let config = trusting(&[&own], ALL);
    let mut clients = Vec::new();
    for step in 0..24 {
        let mut client = Tls::connect(&gateway, "a.example", &config);
        let size = 2_000_000 + 150_000 * step;
        let ask = format!("GET /{size} HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n");
        client.send(ask.as_bytes());
        clients.push(client);
    }
    let mut seen = 0;
    wait_until("all have been asked for", || {
        seen += upstream.seen.try_iter().count();
        seen == clients.len()
    });
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gateway.app.shut_down();
            done.send(()).unwrap();
        });
        ended
            .recv_timeout(MAX_WAIT)
            .expect("every connection ends within its deadline");
    });
    drop(clients);
}

#[test]
fn curl_comes_through() {
    let upstream = Upstream::plain();
    let own = Certificate::of(&["localhost"]);
    let folder = folder(&upstream, &[&own], "");
    let gateway = Gateway::start_in(folder, Clock::system());
    let url = format!("https://localhost:{}/", gateway.address.port());
    for version in ["--tlsv1.3", "--tls-max=1.2"] {
        let arguments = [
            "-sS",
            "--max-time",
            "20",
            "--cacert",
            "0.pem",
            "-o",
            "-",
            "-w",
            "%{http_code} %{ssl_verify_result}",
        ];
        let version: Vec<&str> = version.split('=').collect();
        let arguments = [&arguments[..], &version, &[&url]].concat();
        let out = child::program("curl", gateway.folder.path(), &arguments)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.ends_with("200 0"), "{text} {out:?}");
    }
}

#[test]
fn broken_certificates_are_told_where_they_are_named() {
    let upstream = Upstream::plain();
    let (one, two) = (
        Certificate::of(&["a.example"]),
        Certificate::of(&["a.example"]),
    );
    let wrong = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (pem, key, expected) in [
        (
            &*one.pem,
            &*two.key,
            ":2:59: `0.key`: its private key is not that of the certificate",
        ),
        (
            "",
            &one.key,
            ":2:47: `0.pem`: it holds no certificate in PEM",
        ),
        (
            wrong,
            &one.key,
            ":2:47: `0.pem`: its certificate cannot be read",
        ),
        (
            &one.pem,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            ":2:59: `0.key`: its private key is encrypted",
        ),
        (
            &one.pem,
            "",
            ":2:59: `0.key`: it holds no private key in PEM",
        ),
        (
            &one.pem,
            &one.pem,
            ":2:59: `0.key`: it holds no private key in PEM",
        ),
    ] {
        let folder = folder(&upstream, &[&one], "");
        std::fs::write(folder.path().join("0.pem"), pem).unwrap();
        std::fs::write(folder.path().join("0.key"), key).unwrap();
        let ended = child::run(folder.path(), &["check"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert_contains(&(ended.out + &ended.err), &[expected]);
    }
}

/// A client gets the suite that it names first where that is ChaCha20, which those without AES in hardware do, and
/// else the one that is cheapest for both.
#[test]
fn suites_by_what_the_client_has() {
    use rustls::CipherSuite::{
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 as OLD_AES,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 as OLD_CHACHA,
        TLS13_AES_128_GCM_SHA256 as AES, TLS13_AES_256_GCM_SHA384 as AES_256,
        TLS13_CHACHA20_POLY1305_SHA256 as CHACHA,
    };
    let upstream = Upstream::plain();
    let own = Certificate::of(&["a.example"]);
    let gateway = start(&upstream, &[&own], "");
    let cases = [
        (&[AES_256, CHACHA, AES][..], AES),
        (&[CHACHA, AES, AES_256], CHACHA),
        (&[AES_256, CHACHA], AES_256),
        (&[AES_256], AES_256),
        (&[OLD_AES, OLD_CHACHA], OLD_AES),
        (&[OLD_CHACHA, OLD_AES], OLD_CHACHA),
    ];
    for (offered, chosen) in cases {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        let known = std::mem::take(&mut provider.cipher_suites);
        let of = |suite| *known.iter().find(|known| known.suite() == suite).unwrap();
        provider.cipher_suites = offered.iter().map(|suite| of(*suite)).collect();
        let versions: &[_] = match chosen {
            OLD_AES | OLD_CHACHA => &[&version::TLS12],
            _ => &[&version::TLS13],
        };
        let config = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(common::certificate::roots(&[&own]))
            .with_no_client_auth();
        let mut client = Tls::connect(&gateway, "a.example", &config.into());
        assert_eq!(client.get("/").status(), 200);
        let suite = client.0.get_ref().conn.negotiated_cipher_suite().unwrap();
        assert_eq!(suite.suite(), chosen, "{offered:?}");
    }
}
