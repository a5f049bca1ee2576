//! Listeners that redirect every request, and listeners that ask browsers for TLS.

use crate::common::tls::{ALL, Tls, trusting};
use crate::common::{Upstream, http2};
use crate::{TWO_LISTENERS, Trick, check_tricks, start};

/// Requests to any redirect to HTTPS.
pub const TO_HTTPS: &[Trick<'_>] = &[
    (
        "GET",
        "//evil.example",
        "a.example",
        Some("https://a.example/evil.example"),
    ),
    (
        "GET",
        "/\\evil.example",
        "a.example",
        Some("https://a.example/evil.example"),
    ),
    (
        "GET",
        "http://a.example/x",
        "evil.example",
        Some("https://a.example/x"),
    ),
];

#[test]
fn a_listener_redirects_every_request() {
    let upstream = Upstream::plain();
    let listen = TWO_LISTENERS.replace("127.0.0.1:0 }", "127.0.0.1:0, redirect: https }");
    let limits = "limits:\n  per-ip: { key: ip, rate: 12/h }\n";
    let policies = [("all", "match: /known\nupstream: up\n")];
    let (gateway, certificate) = start(upstream.address, &listen, limits, &policies);
    check_tricks(gateway.address, TO_HTTPS);
    check_tricks(
        gateway.address,
        &[
            (
                "GET",
                "/known",
                "a.example",
                Some("https://a.example/known"),
            ),
            (
                "POST",
                "/unknown?x",
                "a.example:80",
                Some("https://a.example/unknown?x"),
            ),
            ("OPTIONS", "*", "a.example", None),
            ("GET", "/%0d%0aset-cookie:a=b", "a.example", None),
            ("GET", "/", "a.example@evil.example", None),
            ("CONNECT", "a.example:443", "a.example", None),
        ],
    );
    http2::run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let answer = client.get("/x").await;
        assert_eq!(answer.status, 308);
        assert_eq!(answer.field("location"), Some("https://test/x"));
    });
    let tls_address = gateway.app.addresses()[1].tcp().unwrap();
    let mut tls = Tls::to(tls_address, "a.example", &trusting(&[&certificate], ALL));
    assert_eq!(tls.get("/known").status(), 200);
    // The limit of the gateway file has counted each of these requests.
    let mut client = gateway.connect();
    assert_eq!(client.get("/x").status(), 308, "the connection goes on");
    assert_eq!(client.get("/x").status(), 429);
    assert_eq!(upstream.drain().len(), 1);
}

#[test]
fn every_response_over_tls_says_how_long_only_tls_is_used() {
    let upstream = Upstream::answering(|_| {
        "HTTP/1.1 200 OK\r\nstrict-transport-security: max-age=1\r\nstrict-transport-security: max-age=2\r\ncontent-length: 0\r\n\r\n".into()
    });
    let listen = TWO_LISTENERS.replace("tls: {", "hsts: 365d, tls: {");
    let policies = [
        ("up", "match: /up\nupstream: up\n"),
        ("own", "match: /own\nrespond: { status: 200 }\n"),
        (
            "one",
            "match: /one\nrespond: { status: 200 }\nlimits:\n  once: { key: ip, rate: 1/h }\n",
        ),
    ];
    let (gateway, certificate) = start(upstream.address, &listen, "", &policies);
    let tls_address = gateway.app.addresses()[1].tcp().unwrap();
    let config = trusting(&[&certificate], ALL);
    let mut tls = Tls::to(tls_address, "a.example", &config);
    let expected = [
        ("/up", 200),
        ("/own", 200),
        ("/one", 200),
        ("/one", 429),
        ("/one", 429),
        ("/none", 404),
        ("/%zz", 400),
    ];
    for (path, status) in expected {
        let answer = tls.get(path);
        assert_eq!(answer.status(), status, "{path}");
        let values = answer.fields.iter();
        let values: Vec<_> = values
            .filter(|(name, _)| name == "strict-transport-security")
            .map(|(_, value)| &**value)
            .collect();
        assert_eq!(values, ["max-age=31536000"], "{path}");
    }
    let mut tls = Tls::to(tls_address, "a.example", &config);
    tls.send(b"not HTTP\r\n\r\n");
    assert_eq!(
        tls.answer().field("strict-transport-security"),
        Some("max-age=31536000")
    );
    let plain = gateway.connect().get("/own");
    assert_eq!(plain.field("strict-transport-security"), None);
    let plain = gateway.connect().get("/up");
    assert_eq!(
        plain.field("strict-transport-security"),
        Some("max-age=1"),
        "that of the server"
    );
}
