//! Requests inside requests: what two readers could end at different places is refused, and where it is
//! not, nothing reaches the server that the strict reading does not have.

use crate::case::{ALL, MARKER, Site};

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n";

/// A POST with these fields, `after` and then a request that nobody may see.
fn post(fields: &str, after: &str) -> Vec<u8> {
    format!("POST /a HTTP/1.1\r\nhost: t\r\n{fields}\r\n\r\n{after}{SMUGGLED}").into()
}

/// All of these fields make a request that cannot be read in one way only.
#[track_caller]
fn refused(rule: &str, fields: &[&str]) {
    let site = Site::start("", &[ALL]);
    for fields in fields {
        site.check(rule, &post(fields, "0\r\n\r\n"), &[400]);
    }
    site.check("the site is well", b"", &[200]);
}

#[test]
fn a_length_and_a_coding() {
    // CL.TE and TE.CL.
    refused(
        "RFC 9112 6.1",
        &[
            "content-length: 5\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 5",
            "transfer-encoding: chunked\r\nx: y\r\nContent-Length: 0",
            "transfer-encoding: chunked\r\ncontent-length: 5\r\nconnection: content-length",
            "transfer-encoding: chunked\r\ncontent-length: 5\r\nconnection: transfer-encoding",
            "transfer-encoding: identity\r\ncontent-length: 5",
            "transfer-encoding:\r\ncontent-length: 5",
        ],
    );
}

/// TE.TE: a coding that one reader knows and another does not.
#[test]
fn codings() {
    refused(
        "RFC 9112 6.3, RFC 9110 5.5",
        &[
            "transfer-encoding: xchunked",
            "transfer-encoding: chunked\r\ntransfer-encoding: identity",
            "transfer-encoding: identity\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\nTransfer-encoding: x",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: chunked, gzip",
            "transfer-encoding: chunked, chunked",
            "transfer-encoding: chunked,",
            "transfer-encoding: ,chunked",
            "transfer-encoding: chunked;q=1",
            "transfer-encoding: \"chunked\"",
            "transfer-encoding: 'chunked'",
            "transfer-encoding: chunk",
            "transfer-encoding: chunked x",
            "transfer-encoding: identity",
            "transfer-encoding:",
            "transfer-encoding : chunked",
            "transfer-encoding\t: chunked",
            " transfer-encoding: chunked",
            "x: y\r\n transfer-encoding: chunked",
            "transfer-encoding:\r\n chunked",
            "transfer-encoding: chun\r\n ked",
            "transfer-encoding: \u{b}chunked",
            "transfer-encoding: chunked\u{c}",
            "transfer-encoding: chunked\0",
            "transfer-encoding: \rchunked",
            "transfer-encoding\r: chunked",
            "transfer-encoding\0: chunked",
            "transfer-encoding\u{b}: chunked",
            "transfer-encoding: chunked\rx: y",
            "transfer-encoding: \u{ff}chunked",
            "transfer-\u{eb}ncoding: chunked",
            "x: y\ntransfer-encoding: chunked",
            "x: y\rtransfer-encoding: chunked\r\ncontent-length: 5",
            "transfer-encoding:chunked\ncontent-length: 5",
            "\u{0}transfer-encoding: chunked",
            ": chunked",
            "transfer-encoding chunked",
        ],
    );
}

#[test]
fn lengths() {
    refused(
        "RFC 9112 6.3",
        &[
            "content-length: 5\r\ncontent-length: 6",
            "content-length: 5\r\ncontent-length: 5",
            "content-length: 5\r\nContent-Length: 0",
            "content-length: 5, 5",
            "content-length: 5, 6",
            "content-length: 5,",
            "content-length: +5",
            "content-length: -5",
            "content-length: -0",
            "content-length: 0x5",
            "content-length: 5e0",
            "content-length: 5.0",
            "content-length: 5 5",
            "content-length: 5\t5",
            "content-length: 5;x",
            "content-length: \"5\"",
            "content-length: 1_0",
            "content-length: five",
            "content-length:",
            "content-length: ,",
            "content-length: 18446744073709551616",
            "content-length: 99999999999999999999999999",
            "content-length : 5",
            "content-length:\r\n 5",
            "content-length: 5\r\n 0",
            "content-length: 5\0",
            "content-length: \u{b}5",
            "content-length: \u{665}",
            "content-length: 5\r6",
        ],
    );
}

/// What can be read in one way only passes, its body as it was meant, whatever is in it.
#[test]
fn bodies_that_look_like_requests() {
    let site = Site::start("", &[ALL]);
    let length = SMUGGLED.len();
    let passes = [
        // TE.0 and CL.0: a body belongs to its request whatever the method.
        format!("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}"),
        format!("GET /a HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}"),
        format!("HEAD /a HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}"),
        format!("OPTIONS /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("DELETE /a HTTP/1.1\r\nhost: t\r\nTRANSFER-ENCODING:CHUNKED\r\n\r\n{length:X}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: \t chunked \t\r\n\r\n000{length:x}\r\n{SMUGGLED}\r\n00\r\n\r\n"),
        format!("POST /a HTTP/1.1\r\nhost: t\r\nContent-Length:\t{length} \r\n\r\n{SMUGGLED}"),
        format!("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 0{length}\r\n\r\n{SMUGGLED}"),
        // Expect does not change where the body ends: CVE-2024-24791, Kettle 2025.
        format!("POST /a HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}"),
        format!("POST /a HTTP/1.1\r\nhost: t\r\nexpect: y 100-continue\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}"),
        format!("GET /a HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}"),
        "GET /a HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\n\r\n".into(),
        // Nothing but the fields of framing says where a body ends.
        "POST /a HTTP/1.1\r\nhost: t\r\n\r\n".into(),
        format!("POST /a HTTP/1.1\r\nhost: t\r\ncontent_length: {length}\r\ntransfer_encoding: chunked\r\n\r\n"),
        "POST /a HTTP/1.1\r\nhost: t\r\nx-transfer-encoding: chunked\r\nx: content-length: 9\r\n\r\n".into(),
        "POST /a HTTP/1.1\r\nhost: t\r\nconnection: content-length\r\ncontent-length: 0\r\n\r\n".into(),
    ];
    for request in passes {
        site.check("RFC 9112 6.3", request.as_bytes(), &[200, 200]);
    }
    // The marker is what the length says: the body, and no request.
    let swallowed = MARKER.len();
    let swallows = format!("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: {swallowed}\r\n\r\n");
    site.check("RFC 9112 6.3", swallows.as_bytes(), &[200]);
}

/// A chunked body that cannot be read ends the connection; what of it was passed on never looks whole.
#[test]
fn chunks() {
    let site = Site::start("", &[ALL]);
    let bodies = [
        "\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc\r\n0\n\r\n",
        "3\r\nabc\r\n0\r\n\n",
        "3\r\nabc\r\n0\r\nx: y\n\r\n",
        "3\rabc\r\n0\r\n\r\n",
        "3\r\nabc\r0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "3\r\nabc\r\n\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "-0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "0x0\r\n\r\n",
        "h\r\nabc\r\n0\r\n\r\n",
        "3h\r\nabc\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "\t3\r\nabc\r\n0\r\n\r\n",
        "3,\r\nabc\r\n0\r\n\r\n",
        "\"3\"\r\nabc\r\n0\r\n\r\n",
        "3_0\r\nabc\r\n0\r\n\r\n",
        ";x\r\nabc\r\n0\r\n\r\n",
        // Sizes that do not fit: RFC 9112 7.1.
        "10000000000000000\r\nabc\r\n0\r\n\r\n",
        "100000000000000003\r\nabc\r\n0\r\n\r\n",
        "00000000000000003\r\nabc\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabc",
        // Ends of lines inside of extensions: TERM.EXT and EXT.TERM, the funky chunks of 2025.
        "3;x\nabc\r\n0\r\n\r\n",
        "3;\nx\r\nabc\r\n0\r\n\r\n",
        "3;\rx\r\nabc\r\n0\r\n\r\n",
        "3;x\r\r\nabc\r\n0\r\n\r\n",
        "3\r;x\r\nabc\r\n0\r\n\r\n",
        "3\r\r;x\r\nabc\r\n0\r\n\r\n",
        "3;x=\"\n\"\r\nabc\r\n0\r\n\r\n",
        "3;x=\"\r\n\"\r\nabc\r\n0\r\n\r\n",
        "3;x\0\r\nabc\r\n0\r\n\r\n",
        "3\0\r\nabc\r\n0\r\n\r\n",
        "3\u{b}\r\nabc\r\n0\r\n\r\n",
        // Trailers are fields too: RFC 9112 7.1.2.
        "0\r\nx : y\r\n\r\n",
        "0\r\n x: y\r\n\r\n",
        "0\r\nx: y\r\n z\r\n\r\n",
        "0\r\nx\r\n\r\n",
        "0\r\nx: \0\r\n\r\n",
        "0\r\nx: y\rz: a\r\n\r\n",
        "0\r\nGET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n",
    ];
    for body in bodies {
        let request = post("transfer-encoding: chunked", body);
        site.check("RFC 9112 7.1", &request, &[400]);
    }
    let long = format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(5000));
    let many = format!("0\r\n{}\r\n", "x: y\r\n".repeat(65));
    let large = format!("0\r\nx: {}\r\n\r\n", "y".repeat(17 * 1024));
    for body in [long, many, large] {
        let request = post("transfer-encoding: chunked", &body);
        site.check("CVE-2023-39326, CVE-2024-22019", &request, &[400]);
    }
}

/// Extensions end with the hop that they were made for, and empty lines before a request are nothing.
#[test]
fn what_is_not_passed_on() {
    let site = Site::start("", &[ALL]);
    let chunked = "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n";
    for body in [
        "3;x=y;z\r\nabc\r\n0;last\r\n\r\n",
        "3 ; x\r\nabc\r\n0\r\n\r\n",
        "3;x=\"; 0\"\r\nabc\r\n0\r\n\r\n",
        "3;\r\nabc\r\n0\r\n\r\n",
        "1\r\n\n\r\n1\r\n\r\r\n0\r\n\r\n",
        "A\r\n0\r\n\r\nGET /\r\n0\r\n\r\n",
        "1\r\na\r\n0\r\nx-sum: 1\r\n\r\n",
    ] {
        let request = format!("{chunked}{body}");
        site.check("RFC 9112 7.1.1", request.as_bytes(), &[200, 200]);
    }
    for lines in ["\r\n", "\r\n\r\n\r\n"] {
        let request = format!("{lines}GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
        site.check("RFC 9112 2.2", request.as_bytes(), &[200, 200]);
    }
}

/// RFC 9112 6.1: in HTTP/1.0 a coding is no framing that can be trusted, and a connection goes on only
/// when both say so.
#[test]
fn http_1_0() {
    let site = Site::start("", &[ALL]);
    for fields in [
        "transfer-encoding: chunked",
        "transfer-encoding: chunked\r\nconnection: keep-alive",
        "transfer-encoding: chunked\r\ncontent-length: 5",
    ] {
        let request = format!("POST /a HTTP/1.0\r\nhost: t\r\n{fields}\r\n\r\n0\r\n\r\n{SMUGGLED}");
        site.check("CVE-2026-2835", request.as_bytes(), &[400]);
    }
    site.check("RFC 9112 9.3", b"GET /a HTTP/1.0\r\n\r\n", &[200]);
    let kept = b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
    site.check("RFC 9112 9.3", kept, &[200, 200]);
    let closed = b"GET /a HTTP/1.1\r\nhost: t\r\nconnection: x, Close\r\n\r\n";
    site.check("RFC 9112 9.6", closed, &[200]);
    let both = b"GET /a HTTP/1.1\r\nhost: t\r\nconnection: keep-alive\r\nconnection: close\r\n\r\n";
    site.check("RFC 9112 9.6", both, &[200]);
}

/// CVE-2025-4366: what the gateway answers itself has a body too, and it is no request.
#[test]
fn bodies_of_what_the_gateway_answers() {
    let policies = [
        ("a", "match: GET,POST /a/**\nupstream: up\n"),
        ("marker", "match: /marker\nupstream: up\n"),
    ];
    let site = Site::start("", &policies);
    let length = SMUGGLED.len();
    for (start, status) in [("POST /none", 404), ("PUT /a/b", 405), ("GET /none", 404)] {
        let sized =
            format!("{start} HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{SMUGGLED}");
        site.check("CVE-2025-4366", sized.as_bytes(), &[status, 200]);
        let chunked = format!(
            "{start} HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"
        );
        site.check("CVE-2025-4366", chunked.as_bytes(), &[status, 200]);
        // Its end cannot be told, so nothing can follow.
        let torn = format!(
            "{start} HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\nx\r\n{SMUGGLED}"
        );
        site.check("CVE-2025-4366", torn.as_bytes(), &[status]);
    }
}
