//! Identities that the gateway file defines, from the query and from fields of the body.

use serde_json::json;

use crate::Site;
use crate::common::Upstream;
use crate::custom::{post, site};
use crate::protocols::over_both;

#[test]
fn no_reading_evades_a_limit_by_a_parameter() {
    let start = || site("per-kind: { key: kind, rate: 1/m }");
    over_both(start, |site| {
        assert_eq!(site.get_path("/a?kind=x", "").status(), 200);
        // Fastify begins the query here.
        assert_eq!(site.get_path("/a;kind=x", "").status(), 400);
    });
    let site = site("per-tool: { key: tool, rate: 1/m }");
    let body = "{\"params\":{\"name\":\"mail\"}}";
    assert_eq!(post(&site, "/", "application/json", body), 200);
    site.upstream.drain();
    for content_type in [
        "application/grpc",
        "application/grpc;/json",
        "application/connect+proto",
    ] {
        post(&site, "/", content_type, body);
        assert_eq!(site.upstream.drain().len(), 0, "{content_type}");
    }
}

#[test]
fn a_limit_counts_by_a_field_of_the_body() {
    let call = |tool: &str| {
        json!({ "jsonrpc": "2.0", "method": "tools/call", "params": { "name": tool } }).to_string()
    };
    let json = "application/json";
    let requests = [
        (json, call("search"), 200),
        (json, call("search"), 429),
        (json, call("mail"), 200),
        (json, "{\"params\":{\"n\\u0061me\":\"mail\"}}".into(), 429),
        (
            json,
            "{\"params\":{\"name\":\"a\",\"name\":\"b\"}}".into(),
            400,
        ),
        (json, format!("[{},{}]", call("a"), call("b")), 400),
        (json, "{\"params\":{}}".into(), 200),
        (
            "application/x-www-form-urlencoded",
            "params[name]=search".into(),
            429,
        ),
        ("text/plain", call("search"), 429),
        ("image/png", "\u{89}PNG\r\n".repeat(20_000), 200),
        (json, format!("{{\"pad\":\"{}\"}}", "x".repeat(70_000)), 400),
    ];
    let start = || site("per-tool: { key: tool, rate: 1/m }");
    over_both(start, |site| {
        for (content_type, body, expected) in &requests {
            let status = post(site, "/rpc", content_type, body);
            let start: String = body.chars().take(60).collect();
            assert_eq!(status, *expected, "{content_type}: {start}");
        }
        let with_query = post(site, "/rpc?params[name]=other", json, &call("third"));
        assert_eq!(with_query, 400);
    });
}

#[test]
fn a_limit_counts_by_a_parameter_of_the_query() {
    let start = || site("per-kind: { key: kind, rate: 1/m }");
    over_both(start, |site| {
        for (path, status) in [
            ("/a?kind=x", 200),
            ("/b?other=1&kind=%78", 429),
            ("/a?kind=y", 200),
            ("/a?kind=y&kind=z", 400),
            ("/a", 200),
            ("/a", 200),
        ] {
            assert_eq!(site.get_path(path, "").status(), status, "{path}");
        }
        let form = "application/x-www-form-urlencoded";
        assert_eq!(post(site, "/a", form, "kind=x"), 429);
        assert_eq!(post(site, "/a?kind=x", form, "kind=w"), 400);
    });
}

/// A client that sends no more than the bound gets its response without sending the remaining body.
#[test]
fn an_email_is_searched_for_up_to_its_own_bound() {
    let gateway = "identity: { email: { body: email, max: 256B }, tool: { body: tool } }\n";
    let site = Site::start(
        gateway,
        &["one: { key: email, rate: 9/m }"],
        Upstream::plain(),
    );
    let mut client = site.gateway.connect();
    let part = "x".repeat(300);
    client.send(format!(
        "POST /a HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n12c\r\n{part}\r\n"
    ));
    assert_eq!(client.answer().status(), 400);
}
