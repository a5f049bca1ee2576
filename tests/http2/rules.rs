//! What RFC 9113 calls an error, and what it does not. An error of the connection is told by its code; an
//! error of a stream leaves the others as they are.

use crate::common::{Gate, Gateway, Upstream, ok};
use crate::raw::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, Raw,
    SETTINGS, WINDOW_UPDATE, block, code, frame, get,
};
use crate::site::Site;

pub const OPEN: &str = "match: /**\nupstream: up\n";
const PRIORITY: u8 = 2;
const PADDED: u8 = 8;
const PRIORITIZED: u8 = 0x20;

pub const PROTOCOL_ERROR: u32 = 1;
pub const FLOW_CONTROL_ERROR: u32 = 3;
pub const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;
pub const OK: u8 = 0x88;

pub fn gateway() -> (Gateway, Gate, Upstream) {
    let (gate, upstream) = server();
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[("all", OPEN)]);
    (gateway, gate, upstream)
}

/// Answers POST when the gate is open, and anything else at once.
pub fn server() -> (Gate, Upstream) {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            if request.start.starts_with("POST") {
                held.pass();
            }
            let text = request.text();
            report(request);
            served.send(ok(&text));
        }
    });
    (gate, upstream)
}

pub fn post(more: &[(&str, &str)]) -> Vec<u8> {
    let usual = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", "/"),
    ];
    block(&[&usual, more].concat())
}

pub fn setting(about: u16, value: u32) -> Vec<u8> {
    let pair = [&about.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &pair)
}

#[test]
fn errors_of_the_connection() {
    let site = Site::start();
    let long = vec![0; 16_385];
    let open = frame(HEADERS, END_HEADERS, 1, &post(&[]));
    let block = get("/", &[]);
    let cases: Vec<(&str, Vec<u8>, u32)> = vec![
        (
            "4.2 a frame that is too large",
            frame(DATA, 0, 1, &long),
            FRAME_SIZE_ERROR,
        ),
        (
            "4.3 a block that cannot be read",
            frame(HEADERS, 5, 1, &[0x80]),
            COMPRESSION_ERROR,
        ),
        (
            "5.1 DATA on an idle stream",
            frame(DATA, 0, 1, b"a"),
            PROTOCOL_ERROR,
        ),
        (
            "5.1 RST_STREAM on an idle stream",
            frame(RST_STREAM, 0, 1, &[0; 4]),
            PROTOCOL_ERROR,
        ),
        (
            "5.1 WINDOW_UPDATE on an idle stream",
            frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
            PROTOCOL_ERROR,
        ),
        (
            "5.1.1 an even number",
            frame(HEADERS, 5, 2, &block),
            PROTOCOL_ERROR,
        ),
        (
            "5.1.1 a number that was left out",
            [frame(HEADERS, 5, 5, &block), frame(HEADERS, 5, 3, &block)].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "5.1.1 a number that was left out, and a body",
            [frame(HEADERS, 5, 5, &block), frame(HEADERS, 4, 1, &block)].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "RFC 7540 5.3.1 PRIORITY of an idle stream that depends on itself",
            frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 7]),
            PROTOCOL_ERROR,
        ),
        (
            "6.1 DATA on stream 0",
            frame(DATA, 0, 0, b"a"),
            PROTOCOL_ERROR,
        ),
        (
            "6.1 more padding than frame",
            [open.clone(), frame(DATA, PADDED, 1, &[5, 0])].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "6.1 no room for padding",
            [open.clone(), frame(DATA, PADDED, 1, &[])].concat(),
            FRAME_SIZE_ERROR,
        ),
        (
            "6.2 HEADERS on stream 0",
            frame(HEADERS, 5, 0, &block),
            PROTOCOL_ERROR,
        ),
        (
            "6.2 another frame in a block",
            [frame(HEADERS, 0, 1, &block), frame(PING, 0, 0, &[0; 8])].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "6.2 another stream's block in a block",
            [frame(HEADERS, 0, 1, &block), frame(CONTINUATION, 4, 3, &[])].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "6.2 an unknown frame in a block",
            [frame(HEADERS, 0, 1, &block), frame(0xee, 0, 1, &[])].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "6.3 PRIORITY on stream 0",
            frame(PRIORITY, 0, 0, &[0; 5]),
            PROTOCOL_ERROR,
        ),
        (
            "6.3 half a PRIORITY",
            frame(PRIORITY, 0, 1, &[0; 4]),
            FRAME_SIZE_ERROR,
        ),
        (
            "6.4 RST_STREAM on stream 0",
            frame(RST_STREAM, 0, 0, &[0; 4]),
            PROTOCOL_ERROR,
        ),
        (
            "6.4 half a RST_STREAM",
            [open.clone(), frame(RST_STREAM, 0, 1, &[0; 3])].concat(),
            FRAME_SIZE_ERROR,
        ),
        (
            "6.5 SETTINGS taken with more",
            frame(SETTINGS, ACK, 0, &[0; 6]),
            FRAME_SIZE_ERROR,
        ),
        (
            "6.5 SETTINGS of a stream",
            frame(SETTINGS, 0, 1, &[]),
            PROTOCOL_ERROR,
        ),
        (
            "6.5 half a setting",
            frame(SETTINGS, 0, 0, &[0; 7]),
            FRAME_SIZE_ERROR,
        ),
        (
            "6.5.2 pushes, but neither yes nor no",
            setting(2, 2),
            PROTOCOL_ERROR,
        ),
        (
            "6.5.2 a window that is too large",
            setting(4, 1 << 31),
            FLOW_CONTROL_ERROR,
        ),
        (
            "6.5.2 frames that are too small",
            setting(5, 16_383),
            PROTOCOL_ERROR,
        ),
        (
            "6.5.2 frames that are too large",
            setting(5, 1 << 24),
            PROTOCOL_ERROR,
        ),
        (
            "6.6 a client that pushes",
            [open.clone(), frame(5, 4, 1, &[0; 8])].concat(),
            PROTOCOL_ERROR,
        ),
        (
            "6.7 a PING of a stream",
            frame(PING, 0, 1, &[0; 8]),
            PROTOCOL_ERROR,
        ),
        (
            "6.7 half a PING",
            frame(PING, 0, 0, &[0; 4]),
            FRAME_SIZE_ERROR,
        ),
        (
            "6.8 GOAWAY of a stream",
            frame(GOAWAY, 0, 1, &[0; 8]),
            PROTOCOL_ERROR,
        ),
        (
            "6.9 no room more",
            frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
            PROTOCOL_ERROR,
        ),
        (
            "6.9 half a WINDOW_UPDATE",
            frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
            FRAME_SIZE_ERROR,
        ),
        (
            "6.9.1 more room than there can be",
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            FLOW_CONTROL_ERROR,
        ),
        (
            "6.9.2 more room by a setting",
            [
                open,
                frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0, 0]),
                setting(4, 0x7fff_ffff),
            ]
            .concat(),
            FLOW_CONTROL_ERROR,
        ),
        (
            "6.10 CONTINUATION of nothing",
            frame(CONTINUATION, 4, 1, &block),
            PROTOCOL_ERROR,
        ),
    ];
    for (what, bytes, expected) in cases {
        for (over, mut raw) in site.connections() {
            raw.send(&bytes);
            let away = raw.next(GOAWAY);
            let away = away.unwrap_or_else(|| panic!("{what} over {over}"));
            assert_eq!(code(&away), expected, "{what} over {over}");
            assert!(raw.frame().is_none(), "{what} over {over}: it goes on");
        }
    }
}

/// Section 3.4: the first frame is one of settings.
#[test]
fn the_first_frame() {
    use std::io::Write;
    let (gateway, _gate, _upstream) = gateway();
    for first in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, ACK, 0, &[])] {
        let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
        stream
            .set_read_timeout(Some(crate::common::MAX_WAIT))
            .unwrap();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        stream.write_all(&[preface, &first[..]].concat()).unwrap();
        let away = Raw { stream }.next(GOAWAY).unwrap();
        assert_eq!(code(&away), PROTOCOL_ERROR);
    }
}

#[test]
fn errors_of_a_stream() {
    let mut site = Site::start();
    let length = post(&[("content-length", "3")]);
    let open = |flags: u8, head: &[u8]| frame(HEADERS, END_HEADERS | flags, 1, head);
    let trailers = block(&[("x-a", "b")]);
    let cases: Vec<(&str, Vec<Vec<u8>>, u32)> = vec![
        (
            "5.1 DATA after the end",
            vec![open(1, &post(&[])), frame(DATA, 0, 1, b"a")],
            STREAM_CLOSED,
        ),
        (
            "5.1 HEADERS after the end",
            vec![open(1, &post(&[])), frame(HEADERS, 5, 1, &trailers)],
            STREAM_CLOSED,
        ),
        (
            "5.1 HEADERS after RST_STREAM",
            vec![
                open(1, &post(&[])),
                frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
                frame(HEADERS, 5, 1, &post(&[])),
            ],
            STREAM_CLOSED,
        ),
        (
            "5.1 DATA after RST_STREAM",
            vec![
                open(1, &post(&[])),
                frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
                frame(DATA, 1, 1, b"a"),
            ],
            STREAM_CLOSED,
        ),
        (
            "RFC 7540 5.3.1 HEADERS that depend on themselves",
            vec![frame(
                HEADERS,
                5 | PRIORITIZED,
                1,
                &[&[0x80, 0, 0, 1, 7], &post(&[])[..]].concat(),
            )],
            PROTOCOL_ERROR,
        ),
        (
            "RFC 7540 5.3.1 trailers that depend on themselves",
            vec![
                open(0, &post(&[])),
                frame(
                    HEADERS,
                    5 | PRIORITIZED,
                    1,
                    &[&[0, 0, 0, 1, 7], &trailers[..]].concat(),
                ),
            ],
            PROTOCOL_ERROR,
        ),
        (
            "RFC 7540 5.3.1 PRIORITY that depends on itself",
            vec![open(0, &post(&[])), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 7])],
            PROTOCOL_ERROR,
        ),
        (
            "6.9 no room more",
            vec![open(1, &post(&[])), frame(WINDOW_UPDATE, 0, 1, &[0; 4])],
            PROTOCOL_ERROR,
        ),
        (
            "6.9.1 more room than there can be",
            vec![
                open(1, &post(&[])),
                frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]),
            ],
            FLOW_CONTROL_ERROR,
        ),
        (
            "8.1 trailers that do not end",
            vec![
                open(0, &post(&[])),
                frame(HEADERS, END_HEADERS, 1, &trailers),
            ],
            PROTOCOL_ERROR,
        ),
        (
            "8.1 pseudo-header fields in trailers",
            vec![open(0, &post(&[])), frame(HEADERS, 5, 1, &get("/", &[]))],
            PROTOCOL_ERROR,
        ),
        (
            "8.1.1 more than was said",
            vec![open(0, &length), frame(DATA, 0, 1, b"abcd")],
            PROTOCOL_ERROR,
        ),
        (
            "8.1.1 less than was said",
            vec![open(0, &length), frame(DATA, 1, 1, b"ab")],
            PROTOCOL_ERROR,
        ),
        (
            "8.1.1 less than was said, and trailers",
            vec![
                open(0, &length),
                frame(DATA, 0, 1, b"ab"),
                frame(HEADERS, 5, 1, &trailers),
            ],
            PROTOCOL_ERROR,
        ),
    ];
    let count = cases.len();
    for (what, frames, expected) in cases {
        for (over, mut raw) in site.connections() {
            raw.send(&frames.concat());
            let reset = raw.next(RST_STREAM);
            let reset = reset.unwrap_or_else(|| panic!("{what} over {over}"));
            let said = (code(&reset), reset.stream);
            assert_eq!(said, (expected, 1), "{what} over {over}");
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &get("/", &[])));
            let answer = raw.next(HEADERS);
            let answer = answer.unwrap_or_else(|| panic!("{what} over {over}"));
            let said = (answer.stream, answer.payload[0]);
            assert_eq!(said, (3, OK), "{what} over {over}");
        }
    }
    for line in site
        .lines(4 * count)
        .iter()
        .filter(|line| line["method"] == "POST")
    {
        let malformed = line["status"] == 400 && line["outcome"] == "rejected";
        let reset = line["reason"] == "client left";
        assert!(
            malformed || reset || line["reason"] == "stream error",
            "{line}"
        );
    }
    site.gate.open();
    // Those that broke off in the middle have reached no server as whole ones.
    let whole = |start: &str| start.starts_with("GET") || start.starts_with("POST");
    for seen in site.upstream.drain() {
        assert!(whole(&seen.start) && seen.body.is_empty(), "{seen:?}");
    }
}

/// Sections 4.1, 5.5, 6.1 and 6.2: what is unknown or of no use does no harm.
#[test]
fn what_is_no_error() {
    let (gateway, gate, _upstream) = gateway();
    gate.open();
    let mut raw = Raw::connect(gateway.address, &[(0xaaaa, 7), (1, 0), (1, 100), (3, 0)]);
    raw.send(&frame(0xfa, 0xff, 0, b"grease"));
    raw.send(&frame(PRIORITY, 0, 9, &[0, 0, 0, 0, 7]));
    // Bits that mean nothing are not looked at.
    raw.send(&frame(PING, 0xfe, 1 << 31, b"12345678"));
    let pong = raw.next(PING).unwrap();
    assert_eq!((pong.flags, &pong.payload[..]), (ACK, &b"12345678"[..]));
    // Padded, with a priority, in three pieces, one of them empty.
    let head = post(&[]);
    let (first, second) = head.split_at(7);
    let first = [&[3, 0, 0, 0, 0, 9], first, &[0; 3]].concat();
    raw.send(&frame(HEADERS, PADDED | PRIORITIZED, 5, &first));
    raw.send(&frame(CONTINUATION, 0, 5, &[]));
    raw.send(&frame(CONTINUATION, END_HEADERS, 5, second));
    raw.send(&frame(DATA, 0, 5, &[]));
    raw.send(&frame(DATA, PADDED, 5, &[4, b'a', b'b', 0, 0, 0, 0]));
    raw.send(&frame(DATA, PADDED, 5, &[0, b'c']));
    raw.send(&frame(DATA, PADDED | END_STREAM, 5, &[1, 0]));
    // RFC 7541 section 4.2: both sizes of the table, then the status.
    let answer = raw.next(HEADERS).unwrap();
    assert!(
        answer.payload.starts_with(&[0x20, 0x3f, 69, OK]),
        "{answer:?}"
    );
    assert_eq!(raw.next(DATA).unwrap().payload, b"abc");
    // What comes late for a stream that is over.
    raw.send(&frame(WINDOW_UPDATE, 0, 5, &[0, 0, 0, 1]));
    raw.send(&frame(RST_STREAM, 0, 5, &[0; 4]));
    raw.send(&frame(PRIORITY, 0, 5, &[0; 5]));
    raw.send(&frame(SETTINGS, ACK, 0, &[]));
    // The client wants no more streams than it has.
    raw.send(&frame(GOAWAY, 0, 0, &[0; 8]));
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 7, &get("/", &[])));
    let answer = raw.next(HEADERS).unwrap();
    assert_eq!((answer.stream, answer.payload[0]), (7, OK));
    // Section 5.1: what comes for a stream that both sides have ended is told so, once for each.
    raw.send(&frame(DATA, 0, 7, b"late"));
    let reset = raw.next(RST_STREAM).unwrap();
    assert_eq!((code(&reset), reset.stream), (STREAM_CLOSED, 7));
    raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 9, &get("/", &[])));
    assert_eq!(raw.next(HEADERS).unwrap().stream, 9);
}

/// Sections 5.4.2 and 8.1: what came of a request that is taken back is not taken for all of it.
#[test]
fn a_request_that_is_taken_back_is_not_whole() {
    let (gateway, _gate, upstream) = gateway();
    let content = vec![b'x'; 16_384];
    let trailers = block(&[("x-a", "b")]);
    let length = (8 * content.len()).to_string();
    for more in [&[][..], &[("content-length", &*length)]] {
        for last in [
            frame(HEADERS, 5, 1, &trailers),
            frame(DATA, END_STREAM, 1, &[]),
        ] {
            let mut raw = Raw::connect(gateway.address, &[]);
            let mut all = frame(HEADERS, END_HEADERS, 1, &post(more));
            (0..8).for_each(|_| all.extend(frame(DATA, 0, 1, &content)));
            all.extend(last);
            all.extend(frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
            all.extend(frame(HEADERS, END_HEADERS | END_STREAM, 3, &get("/", &[])));
            raw.send(&all);
            assert_eq!(raw.next(HEADERS).unwrap().stream, 3);
        }
    }
    for seen in upstream.drain() {
        let whole = seen.start.starts_with("GET") || seen.body.len() == 8 * content.len();
        assert!(whole, "{} with {} bytes", seen.start, seen.body.len());
    }
}
