//! Methods that are blocked by an answer of the gateway, and that a request names beside its own.

use crate::common::{Gateway, Upstream};

#[test]
fn a_blocked_method_is_blocked_however_it_is_named() {
    let upstream = Upstream::plain();
    let policies = [
        ("all", "match: /items/**\nupstream: up\n"),
        (
            "no-delete",
            "match: DELETE /items/**\nrespond: { status: 403 }\n",
        ),
    ];
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &policies);
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    for (line, fields, body, status) in [
        ("DELETE /items/1", "", "", 403),
        (
            "POST /items/1",
            "x-http-method-override: DELETE\r\n",
            "",
            403,
        ),
        ("POST /items/1?_method=DELETE", "", "", 403),
        ("POST /items/1", form, "_method=DELETE", 403),
        ("POST /items/1", form, "a=b&_method=delete", 403),
        ("POST /items/1", form, "_method=PUT", 200),
        ("POST /items/1", form, "a=DELETE", 200),
        // It cannot be searched, and most of these are uploads.
        (
            "POST /items/1",
            "content-type: application/zip\r\n",
            "_method=DELETE",
            200,
        ),
    ] {
        let mut client = gateway.connect();
        let length = body.len();
        client.send(format!(
            "{line} HTTP/1.1\r\nhost: t\r\n{fields}content-length: {length}\r\n\r\n{body}"
        ));
        assert_eq!(client.answer().status(), status, "{line} {fields} {body}");
    }
    assert_eq!(upstream.drain().len(), 3);
}
