//! The host that servers get, and where they find the client's.

use crate::common::{Message, Upstream};
use crate::gateway;
use crate::server::Server;

/// Starts a gateway whose upstream has this `host`, sends these lines, and returns the request that the upstream got.
fn seen(host: &str, request: &str) -> (Message, u16) {
    let upstream = Upstream::plain();
    let more =
        format!("upstreams: {{ up: {{ servers: [\"http://{{upstream}}\"], host: {host} }} }}\n");
    let gateway = gateway(
        upstream.address,
        &more,
        &[("all", "match: /**\nupstream: up\n")],
    );
    let mut client = gateway.connect();
    client.send(request);
    assert_eq!(client.answer().status(), 200);
    (upstream.next(), upstream.address.port())
}

#[track_caller]
fn check(host: &str, request: &str, expected: &str, client_host: &str) {
    let (seen, port) = seen(host, request);
    let expected = expected.replace("PORT", &port.to_string());
    let hosts: Vec<_> = seen
        .fields
        .iter()
        .filter(|(name, _)| name == "host")
        .collect();
    assert_eq!(hosts, [&("host".to_owned(), expected)], "{request}");
    let forwarded_hosts = seen
        .fields
        .iter()
        .filter(|(name, _)| name == "x-forwarded-host");
    let forwarded_hosts: Vec<_> = forwarded_hosts.map(|(_, value)| value.as_str()).collect();
    assert_eq!(forwarded_hosts, [client_host], "{request}");
    let forwarded = seen.field("forwarded").unwrap();
    assert!(forwarded.contains(client_host), "{forwarded}");
    assert!(!forwarded.contains("evil"), "{forwarded}");
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: Shop.Example.:8080\r\nx-forwarded-host: evil.example\r\n\
    x_forwarded_host: evil.example\r\nforwarded: host=evil.example\r\n\r\n";

#[test]
fn servers_get_the_host_that_the_file_says() {
    check("client", REQUEST, "shop.example:8080", "shop.example:8080");
    check("upstream", REQUEST, "127.0.0.1:PORT", "shop.example:8080");
    check("API.example", REQUEST, "api.example", "shop.example:8080");
    check(
        "'api.example:81'",
        REQUEST,
        "api.example:81",
        "shop.example:8080",
    );
    let absolute = "GET http://shop.example/ HTTP/1.1\r\nhost: other.example\r\n\r\n";
    check("upstream", absolute, "127.0.0.1:PORT", "shop.example");
}

/// A request of HTTP/1.0 may have no host, and then there is none to tell of.
#[test]
fn a_request_without_a_host() {
    let (seen, _) = seen("api.example", "GET / HTTP/1.0\r\n\r\n");
    assert_eq!(seen.field("host"), Some("api.example"));
}

#[test]
fn servers_of_http2_get_it_as_their_authority() {
    let server = Server::start(|asked| async move {
        let forwarded_host = asked.field("x-forwarded-host").unwrap_or("none").to_owned();
        asked.tell(format!("{} {forwarded_host}", asked.request.uri()));
        asked.ok("fine");
    });
    let more = "upstreams: { up: { servers: [\"http://{upstream}\"], protocol: h2, host: api.example } }\n";
    let policy = "match: /data/**\nupstream: up\nstrip: /data\nprefix: /v1\n";
    let gateway = gateway(server.address, more, &[("all", policy)]);
    let mut client = gateway.connect();
    for (path, expected) in [
        ("/data/a?b=..", "/v1/a?b=.."),
        ("/data", "/v1"),
        ("/data?c", "/v1?c"),
    ] {
        assert_eq!(client.get(path).status(), 200);
        assert_eq!(server.next(), format!("http://api.example{expected} test"));
    }
    assert_eq!(client.get("/data/x/%2e%2e/a").status(), 400);
}
