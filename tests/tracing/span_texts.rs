//! What spans say of a request: its route, its limit, its outcome; and what they leave out.

use serde_json::{Value, json};

use crate::collector::{ALL, Collector, attribute};
use crate::common::{Client, Gateway, Upstream, status};

const ONCE: (&str, &str) = (
    "once",
    "match: GET /once/{name}\nupstream: up\nlimits:\n  few: { key: ip, rate: 2/h }\n",
);

/// The kinds and the outcomes of spans.
fn kinds(spans: &[Value]) -> Vec<(&str, &str)> {
    let each = spans.iter().map(|span| {
        let outcome = attribute(span, "tollgate.outcome");
        let [kind, outcome] = [&span["kind"], outcome].map(|value| value.as_str());
        (kind.unwrap_or_default(), outcome.unwrap_or_default())
    });
    each.collect()
}

#[test]
fn a_refused_request_has_one_span_with_its_limit() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let more = ", service: edge, token_file: token";
    let folder = tempfile::tempdir().unwrap();
    let gateway_file = format!(
        "request_id: x-request-id\ndeny: {{ ip: 192.0.2.1 }}\n{}{}",
        crate::collector::TRUSTED,
        collector.traces("100%", more)
    );
    crate::common::write(&folder, upstream.address, &gateway_file, &[ONCE]);
    std::fs::write(folder.path().join("token"), "s3cret").unwrap();
    let gateway = Gateway::start_in(folder, tollgate::base::clock::Clock::system());
    let mut client = gateway.connect();
    let get = |client: &mut Client, path: &str, more: &str| {
        client.send(format!(
            "GET {path} HTTP/1.1\r\nhost: shop.example:8443\r\nuser-agent: me/1\r\n{more}\r\n"
        ));
        client.answer()
    };
    assert_eq!(get(&mut client, "/once/a?token=x", "").status(), 200);
    assert_eq!(get(&mut client, "/once/a", "").status(), 200);
    let refused = get(&mut client, "/once/a", "");
    assert_eq!(refused.status(), 429);
    assert_eq!(get(&mut client, "/nowhere", "").status(), 404);
    let denied = get(&mut client, "/once/a", "x-forwarded-for: 192.0.2.1\r\n");
    assert_eq!(denied.status(), 403);
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().status(), 400);
    let spans = collector.spans(8);
    assert_eq!(
        kinds(&spans),
        [
            ("SERVER", "admitted"),
            ("CLIENT", ""),
            ("SERVER", "admitted"),
            ("CLIENT", ""),
            ("SERVER", "refused"),
            ("SERVER", "rejected"),
            ("SERVER", "denied"),
            ("SERVER", "rejected"),
        ]
    );
    let request_id = refused.field("x-request-id");
    let refused = &spans[4];
    assert!(refused["name"] == "GET /once/{name}" && refused["status"] == "UNSET");
    assert_eq!(
        refused["attributes"],
        json!({
            "url.scheme": "http", "url.path": "/once/a", "client.address": "127.0.0.1",
            "http.request.method": "GET", "http.route": "/once/{name}", "http.response.status_code": 429,
            "network.protocol.version": "1.1", "server.address": "shop.example", "server.port": 8443,
            "user_agent.original": "me/1", "tollgate.outcome": "refused", "tollgate.route": "once",
            "tollgate.limit": "few", "tollgate.standing": "refused", "tollgate.remaining": 0,
            "tollgate.request_id": request_id,
        })
    );
    assert_eq!(attribute(&spans[0], "tollgate.remaining"), 1);
    assert_eq!(attribute(&spans[2], "tollgate.remaining"), 0);
    assert_eq!(attribute(&spans[4], "error.type"), &Value::Null);
    assert_eq!(
        spans[1]["attributes"],
        json!({
            "http.request.method": "GET", "server.address": "127.0.0.1", "server.port": upstream.address.port(),
            "tollgate.upstream": "up", "http.response.status_code": 200,
        })
    );
    assert_eq!(attribute(&spans[6], "client.address"), "192.0.2.1");
    for span in &spans {
        assert_eq!(span["resource"]["service.name"], "edge");
        assert_eq!(span["token"], "Bearer s3cret");
        assert!(!span.to_string().contains("token=x"), "{span}");
    }
}

#[test]
fn errors_of_servers_are_errors_of_spans() {
    let collector = Collector::start();
    let upstream = Upstream::answering(|request| match request.start.contains("/404") {
        true => status(404),
        false => status(500),
    });
    // Nothing listens on port 1.
    let gateway_file = format!(
        "upstreams: {{ up: [\"http://{{upstream}}\"], gone: [\"http://127.0.0.1:1\"] }}\n{}",
        collector.traces("100%", "")
    );
    let gone = ("gone", "match: /gone\nupstream: gone\n");
    let gateway = Gateway::start(upstream.address, &gateway_file, &[ALL, gone]);
    let mut client = gateway.connect();
    for (path, code) in [("/404", 404), ("/500", 500), ("/gone", 503)] {
        assert_eq!(client.get(path).status(), code);
    }
    let spans = collector.spans(6);
    let errors = spans.iter().map(|span| {
        let error_type = attribute(span, "error.type").as_str();
        (span["status"].as_str().unwrap(), error_type)
    });
    assert_eq!(
        errors.collect::<Vec<_>>(),
        [
            ("UNSET", None),
            ("ERROR", Some("404")),
            ("ERROR", Some("500")),
            ("ERROR", Some("500")),
            ("ERROR", Some("connect failed")),
            ("ERROR", Some("connect failed")),
        ]
    );
    assert_eq!(attribute(&spans[4], "tollgate.outcome"), "failed");
}

#[test]
fn a_host_that_is_called_unix_is_no_socket() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway = Gateway::start(upstream.address, &collector.traces("100%", ""), &[ALL]);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: unix:8080\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    let spans = collector.spans(2);
    assert_eq!(attribute(&spans[0], "server.address"), "unix");
    assert_eq!(attribute(&spans[0], "server.port"), 8080);
}

#[test]
fn texts_of_clients_are_cut() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway = Gateway::start(upstream.address, &collector.traces("100%", ""), &[ALL]);
    let mut client = gateway.connect();
    let long = "a".repeat(3_000);
    client.send(format!(
        "{} /{long}?{long} HTTP/1.1\r\nhost: {}\r\nuser-agent: \u{e9}{long}\r\ntracestate: {long}\r\n\
         traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n",
        "BREW".repeat(7),
        "h".repeat(250)
    ));
    assert_eq!(client.answer().status(), 200);
    let spans = collector.spans(2);
    let server = &spans[0];
    assert_eq!(server["name"], "HTTP /**");
    assert_eq!(attribute(server, "http.request.method"), "_OTHER");
    assert_eq!(
        attribute(server, "http.request.method_original"),
        &"BREW".repeat(7)
    );
    assert_eq!(attribute(server, "url.path").as_str().unwrap().len(), 256);
    let user_agent = attribute(server, "user_agent.original").as_str().unwrap();
    assert!(user_agent.len() == 256 && user_agent.starts_with("\u{e9}aaa"));
    assert_eq!(server["state"], "");
    assert!(server.to_string().len() < 3_000);
    // The field itself passes.
    assert_eq!(upstream.next().field("tracestate"), Some(long.as_str()));
}
