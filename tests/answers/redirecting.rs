//! Listeners that redirect every request.

use crate::common::tls::{ALL, Tls, trusting};
use crate::common::{Upstream, http2};
use crate::{TWO_LISTENERS, check_tricks, start};

#[test]
fn a_listener_redirects_every_request() {
    let upstream = Upstream::plain();
    let listen = TWO_LISTENERS.replace("127.0.0.1:0 }", "127.0.0.1:0, redirect: https }");
    let limits = "limits:\n  per-ip: { key: ip, rate: 12/h }\n";
    let policies = [("all", "match: /known\nupstream: up\n")];
    let (gateway, certificate) = start(upstream.address, &listen, limits, &policies);
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
