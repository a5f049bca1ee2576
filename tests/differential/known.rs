//! Answers whose verdict is known: each reason to differ with a case that needs it, and cases that need none.

use std::collections::BTreeSet;

use crate::compare::ours::Ours;
use crate::compare::{Asks, Case, End, check, reasons, theirs};

use Asks::{Get, Head, Upgrade};
use tollgate::http::http1::{MAX_FIELDS, MAX_HEAD_BYTES};

/// What is asked, the answer, and the reason why it is read differently.
type Known = (Asks, String, Option<&'static str>);

/// However they are cut.
fn check_all(cases: &[Known]) {
    let mut ours = Ours::start();
    for (asks, bytes, reason) in cases {
        for step in [bytes.len(), bytes.len() / 2 + 1, 7, 1] {
            if bytes.len() / step > 10_000 {
                continue;
            }
            let case = Case {
                asks: *asks,
                pieces: bytes.as_bytes().chunks(step).map(<[u8]>::to_vec).collect(),
            };
            let outcome = check(&mut ours, &case).unwrap_or_else(|mistake| panic!("{mistake}"));
            assert_eq!(outcome.reason, *reason, "{case:?}");
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const SWITCH: &str = "HTTP/1.1 101 X\r\nupgrade: other\r\n\r\nabc";
const CODING: &str = "its transfer coding is not `chunked`";

/// Heads that the gateway reads differently.
fn heads() -> Vec<Known> {
    let huge = "f".repeat(MAX_HEAD_BYTES);
    let hints = "HTTP/1.1 103 X\r\n\r\n".repeat(17);
    let length = |value: &str| format!("{OK}content-length: {value}");
    let none = length("0\r\n");
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    let old = "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n";
    [
        (
            Get,
            length("1\r\ncontent-length: 1\r\n\r\na"),
            "it says its length twice",
        ),
        (Get, length("1, 1\r\n\r\na"), "its length is not a number"),
        (Head, length("x\r\n\r\n"), "its length is not a number"),
        (
            Get,
            format!("{OK}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            CODING,
        ),
        (
            Get,
            format!("{OK}transfer-encoding: gzip\r\n\r\nabc"),
            CODING,
        ),
        (
            Get,
            length("1\r\n") + chunked + "0\r\n\r\n",
            "it says its length in two ways",
        ),
        (Get, SWITCH.into(), "it switches protocols unasked"),
        (Get, hints + &none + "\r\n", "too many interim responses"),
        (
            Get,
            format!("{OK}a: {huge}\r\ncontent-length: 0\r\n\r\n"),
            "its head is too long",
        ),
        (
            Get,
            "HTTP/1.1 204 X\r\ncontent-length: 3\r\n\r\n".into(),
            "a 204 that says its length",
        ),
        (
            Get,
            format!("HTTP/1.1 204 X\r\n{chunked}"),
            "a 204 that says its length",
        ),
        (
            Get,
            format!("{none}connection: close, \u{e9}\r\n\r\n"),
            "`close` beside what is no token",
        ),
        (
            Get,
            format!("{old}connection: keep-alive, \u{e9}\r\n\r\n"),
            "`keep-alive` beside what is no token",
        ),
        (
            Get,
            length(&format!("{}\r\n\r\na", u64::MAX)),
            "hyper's largest length",
        ),
    ]
    .map(|(asks, bytes, reason)| (asks, bytes, Some(reason)))
    .into()
}

/// Bodies that it reads differently.
fn bodies() -> Vec<Known> {
    let (long, many) = ("e".repeat(5000), "a: b\r\n".repeat(70));
    let last = "a\r\n0\r\n\r\n";
    [
        (
            format!("1;{long}\r\n{last}"),
            "a chunk's size cannot be read",
        ),
        (
            format!("00000000000000001\r\n{last}"),
            "a chunk's size cannot be read",
        ),
        (format!("1;\0\r\n{last}"), "a chunk's size cannot be read"),
        (format!("0\r\n{many}\r\n"), "the trailers cannot be read"),
        (
            "0\r\na: b\n\n\r\n\r\n".into(),
            "the trailers cannot be read",
        ),
    ]
    .map(|(body, reason)| (Get, format!("{CHUNKED}{body}"), Some(reason)))
    .into()
}

#[test]
fn every_reason_has_a_case() {
    let cases = [heads(), bodies()].concat();
    check_all(&cases);
    let had: BTreeSet<_> = cases.iter().filter_map(|case| case.2).collect();
    assert_eq!(had, reasons::all().collect());
}

#[test]
fn the_rest_is_read_the_same() {
    let chunked = format!("{CHUNKED}3;x\r\nabc\r\n0\r\n");
    let old = "HTTP/1.0 200 OK\r\ncontent-length: 1\r\n";
    let hints = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nl: a\r\n\r\n";
    let cases = [
        (
            Get,
            format!("{OK}Content-Length: 3\r\nb: 2\r\nA: 1\r\na: 0\r\n\r\nabc"),
        ),
        (Get, format!("{OK}content-length: 3\r\n\r\nabcd")),
        (Get, format!("{OK}content-length: 3\r\n\r\nab")),
        (
            Get,
            format!("{OK}content-length: 3\r\nconnection: close\r\n\r\nabc"),
        ),
        (Get, format!("{OK}\r\nabc")),
        (Get, format!("{chunked}\r\n")),
        (Get, format!("{chunked}x: 1\r\nX: 2\r\n\r\n")),
        (Get, format!("{chunked}x: 1")),
        (Get, format!("{chunked}x : 1\r\n\r\n")),
        (Get, chunked.clone()),
        (Get, format!("{old}\r\na")),
        (Get, format!("{old}connection: keep-alive\r\n\r\na")),
        (Get, CHUNKED.replace("1.1", "1.0") + "0\r\n\r\n"),
        (Get, format!("{hints}HTTP/1.1 204 N\r\n\r\n")),
        (
            Get,
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n".into(),
        ),
        (Head, format!("{OK}content-length: 9\r\n\r\n")),
        (Head, format!("{OK}\r\n")),
        (Head, format!("{OK}content-length: 1\r\n\r\na")),
        (Upgrade, SWITCH.into()),
        (
            Upgrade,
            SWITCH.replace("upgrade", "content-length: 5\r\nupgrade"),
        ),
        (Upgrade, format!("{OK}content-length: 1\r\n\r\na")),
        (Get, "HTTP/1.1 200 OK\ncontent-length: 1\n\na".into()),
        (Get, format!("{OK}content-length : 1\r\n\r\na")),
        (Get, format!("{OK}a: b\r\n c\r\ncontent-length: 1\r\n\r\na")),
        (
            Get,
            format!("{OK}{}\r\n", "a: b\r\n".repeat(MAX_FIELDS + 1)),
        ),
        (Get, "HTTP/2.0 200 OK\r\n\r\n".into()),
        (Get, String::from("H")),
    ];
    check_all(&cases.map(|(asks, bytes)| (asks, bytes, None)));
}

/// The other side is no echo of ours.
#[test]
fn hyper_itself_is_read_rightly() {
    let read = |bytes: &str| {
        theirs::read(&Case {
            asks: Get,
            pieces: vec![bytes.into()],
        })
    };
    let chunked = format!("{CHUNKED}3\r\nabc\r\n0\r\nX: y\r\n\r\n");
    let verdict = read(&chunked);
    assert_eq!((&verdict.body[..], &verdict.end), (&b"abc"[..], &End::Kept));
    assert_eq!(verdict.trailers, Some(vec![("x".into(), "y".into())]));
    assert_eq!(read(&format!("{chunked}x")).end, End::Spent);
    assert_eq!(read(&format!("{OK}\r\nabc")).end, End::Closed);
    let torn = read(&format!("{OK}content-length: 9\r\n\r\nabc"));
    assert_eq!(torn.body, b"abc");
    assert!(matches!(torn.end, End::Refused(_)), "{torn:?}");
}
