//! Requests that RFC 9113 calls malformed, and heads where none may come.

use crate::raw::{
    DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, RST_STREAM, block, code, frame, get,
};
use crate::rules::{OK, PROTOCOL_ERROR, STREAM_CLOSED, post};
use crate::site::{Connection, Site};

/// A head that ends its stream.
fn whole(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

/// The next frame of any stream; nothing when the connection ends first.
fn of_stream(raw: &mut Connection) -> Option<Frame> {
    std::iter::from_fn(|| raw.frame()).find(|frame| frame.stream != 0)
}

/// Sections 8.1.1 to 8.3.1 and 8.5, RFC 8441 section 4: what is malformed ends its stream and nothing else, reaches no
/// server, and is logged.
#[test]
fn malformed_requests() {
    let mut site = Site::start();
    site.gate.open();
    let with = |more: &[(&str, &str)]| get("/", more);
    let only = |pseudo: &[(&str, &str)]| block(pseudo);
    let (method, scheme, authority, path) = (
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", "/"),
    );
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "8.1.1 a length without a body",
            with(&[("content-length", "5")]),
        ),
        ("8.1.1 no length", with(&[("content-length", "+0")])),
        ("8.1.1 an empty length", with(&[("content-length", "")])),
        (
            "8.1.1 two lengths",
            with(&[("content-length", "0"), ("content-length", "1")]),
        ),
        ("8.2.1 capitals", with(&[("X-Upper", "a")])),
        ("8.2.1 a blank in a name", with(&[("x a", "b")])),
        ("8.2.1 a colon in a name", with(&[("x:a", "b")])),
        ("8.2.1 a name that is empty", with(&[("", "b")])),
        ("8.2.1 a name outside of ASCII", with(&[("x-\u{e9}", "b")])),
        (
            "8.2.1 a line end in a value",
            with(&[("x-a", "b\r\nx-c: d")]),
        ),
        ("8.2.1 NUL in a value", with(&[("x-a", "b\0")])),
        ("8.2.1 a blank before a value", with(&[("x-a", " b")])),
        ("8.2.1 a tab behind a value", with(&[("x-a", "b\t")])),
        ("8.2.2 connection", with(&[("connection", "close")])),
        (
            "8.2.2 transfer-encoding",
            with(&[("transfer-encoding", "chunked")]),
        ),
        ("8.2.2 upgrade", with(&[("upgrade", "h2c")])),
        ("8.2.2 keep-alive", with(&[("keep-alive", "1")])),
        (
            "8.2.2 proxy-connection",
            with(&[("proxy-connection", "close")]),
        ),
        ("8.2.2 te", with(&[("te", "gzip")])),
        ("8.2.2 te and more", with(&[("te", "trailers, deflate")])),
        ("8.3 a field that is unknown", with(&[(":unknown", "a")])),
        ("8.3 a field of responses", with(&[(":status", "200")])),
        (
            "8.3 after other fields",
            only(&[method, scheme, authority, ("x-a", "b"), path]),
        ),
        (
            "8.3 a second path",
            only(&[method, scheme, authority, path, path]),
        ),
        (
            "8.3 a second method",
            only(&[method, method, scheme, authority, path]),
        ),
        (
            "8.3 a second scheme",
            only(&[method, scheme, scheme, authority, path]),
        ),
        (
            "8.3 a second authority",
            only(&[method, scheme, authority, authority, path]),
        ),
        ("8.3.1 no method", only(&[scheme, authority, path])),
        ("8.3.1 no scheme", only(&[method, authority, path])),
        ("8.3.1 no path", only(&[method, scheme, authority])),
        (
            "8.3.1 an empty path",
            only(&[method, scheme, authority, (":path", "")]),
        ),
        (
            "8.3.1 an empty method",
            only(&[(":method", ""), scheme, authority, path]),
        ),
        (
            "8.3.1 an empty scheme",
            only(&[method, (":scheme", ""), authority, path]),
        ),
        (
            "8.3.1 an empty authority",
            only(&[method, scheme, (":authority", ""), path]),
        ),
        (
            "8.3.1 no method's name",
            only(&[(":method", "GE T"), scheme, authority, path]),
        ),
        (
            "8.3.1 no scheme's name",
            only(&[method, (":scheme", "ht tp"), authority, path]),
        ),
        (
            "8.3.1 a path that begins with no slash",
            only(&[method, scheme, authority, (":path", "a")]),
        ),
        (
            "8.3.1 an asterisk without OPTIONS",
            only(&[method, scheme, authority, (":path", "*")]),
        ),
        (
            "8.3.1 a fragment",
            only(&[method, scheme, authority, (":path", "/a#b")]),
        ),
        ("8.3.1 another host", with(&[("host", "other")])),
        (
            "8.5 CONNECT with a path",
            only(&[(":method", "CONNECT"), scheme, authority, path]),
        ),
        ("8.5 CONNECT to nobody", only(&[(":method", "CONNECT")])),
        (
            "RFC 8441 4 a protocol and no CONNECT",
            only(&[method, scheme, authority, path, (":protocol", "websocket")]),
        ),
        (
            "RFC 8441 4 a protocol and no path",
            only(&[
                (":method", "CONNECT"),
                scheme,
                authority,
                (":protocol", "websocket"),
            ]),
        ),
    ];
    for (what, block) in &cases {
        for (over, mut raw) in site.connections() {
            raw.send(&whole(1, block));
            raw.send(&whole(3, &get("/next", &[])));
            let reset = of_stream(&mut raw).unwrap_or_else(|| panic!("{what} over {over}"));
            assert_eq!(
                (reset.kind, reset.stream),
                (RST_STREAM, 1),
                "{what} over {over}"
            );
            assert_eq!(code(&reset), PROTOCOL_ERROR, "{what} over {over}");
            let answer = of_stream(&mut raw).unwrap_or_else(|| panic!("{what} over {over}"));
            let said = (answer.kind, answer.stream, answer.payload[0]);
            assert_eq!(said, (HEADERS, 3, OK), "{what} over {over}");
            assert_eq!(site.upstream.next().start, "GET /next HTTP/1.1", "{what}");
        }
        let mut refused = site.lines(4);
        refused.retain(|line| line["status"] != 200);
        assert_eq!(refused.len(), 2, "{what}");
        for line in refused {
            assert_eq!(line["status"], 400, "{what}: {line}");
            assert_eq!(line["outcome"], "rejected", "{what}: {line}");
            assert!(line["reason"].is_string(), "{what}: {line}");
        }
    }
}

/// Section 5.1: a head on a stream that both sides have ended ends the connection, unless the gateway has reset the
/// stream and the head may have been under way.
#[test]
fn heads_on_closed_streams() {
    let site = Site::start();
    let request = whole(1, &get("/", &[]));
    for (over, mut raw) in site.connections() {
        raw.send(&request);
        while of_stream(&mut raw).unwrap().flags & END_STREAM == 0 {}
        raw.send(&request);
        let away = raw.next(GOAWAY).unwrap();
        assert_eq!(code(&away), STREAM_CLOSED, "{over}");
        assert!(raw.frame().is_none(), "{over}: it goes on");
    }
    for (over, mut raw) in site.connections() {
        // Reset for a field that no request has, before its trailers are there.
        let begun = frame(HEADERS, END_HEADERS, 1, &post(&[("connection", "close")]));
        raw.send(&begun);
        assert_eq!(code(&raw.next(RST_STREAM).unwrap()), PROTOCOL_ERROR);
        raw.send(&frame(DATA, 0, 1, b"late"));
        raw.send(&whole(1, &block(&[("x-a", "b")])));
        raw.send(&whole(3, &get("/", &[])));
        let next = of_stream(&mut raw).unwrap();
        assert_eq!((next.kind, next.stream), (HEADERS, 3), "{over}");
    }
}
