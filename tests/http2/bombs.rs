//! Requests that are little on the wire and much decoded (RFC 7541): a connection holds no more of them than ten times
//! what it sent, and refuses none of a client that repeats itself as clients do.

use std::io::Read;
use std::thread;
use std::time::Duration;

use crate::common::{Gateway, SOON, Upstream};
use crate::raw::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, Raw, block, code, frame,
};

const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
const STREAMS: u32 = 100;

/// `POST /wait` waits for a body, any other for a server that does not answer.
fn gateway() -> Gateway {
    // It keeps nothing of what it reads, for it is in this process.
    let upstream = Upstream::scripted(
        |mut served, _| {
            while let Ok(1..) = served.stream.read(&mut [0; 512]) {}
        },
    );
    let more = "workers: 1\nidentity: { email: { body: email } }\n";
    let wait = "match: POST /wait\nupstream: up\nlimits: { few: { key: email, rate: 5/m } }\n";
    let policies = [("wait", wait), ("all", "match: /**\nupstream: up\n")];
    Gateway::start(upstream.address, more, &policies)
}

struct Sent {
    bytes: usize,
    /// How streams were reset.
    resets: Vec<u32>,
}

/// One stream after the other, as `stream` says each, then what was reset of them.
fn send(raw: &mut Raw, stream: impl Fn(u32) -> Vec<u8>) -> Sent {
    let all: Vec<u8> = (0..STREAMS).flat_map(|n| stream(2 * n + 1)).collect();
    raw.send(&all);
    // What was said to the last of them comes before the answer.
    raw.send(&frame(PING, 0, 0, b"anything"));
    let mut resets = Vec::new();
    loop {
        let frame = raw.frame().unwrap();
        match frame.kind {
            PING => break,
            RST_STREAM => resets.push(code(&frame)),
            _ => {}
        }
    }
    let bytes = all.len();
    Sent { bytes, resets }
}

/// A field to be learnt: section 6.2.1.
fn learnt(name: &str, value: &str) -> Vec<u8> {
    let mut field = block(&[(name, value)]);
    field[0] = 0x40;
    field
}

/// The block of a POST.
fn post(path: &str) -> Vec<u8> {
    block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "test"),
        (":path", path),
    ])
}

/// A request that goes on, and `more` of its block.
fn request(stream: u32, path: &str, more: &[u8]) -> Vec<u8> {
    let length = block(&[("content-length", "50")]);
    frame(
        HEADERS,
        END_HEADERS,
        stream,
        &[&post(path), more, &length].concat(),
    )
}

/// Bytes that are held for requests beyond what others hold that say nothing.
fn held(path: &'static str, stream: impl Fn(u32) -> Vec<u8>) -> (usize, Sent) {
    let gateway = gateway();
    let mut grown = Vec::new();
    let mut sent = None;
    let mut open = Vec::new();
    // The first makes everything that stays.
    for round in 0..3 {
        let mut raw = Raw::connect(gateway.address, &[]);
        raw.stream.set_read_timeout(Some(SOON)).unwrap();
        let before = resident();
        let done = match round {
            2 => send(&mut raw, &stream),
            _ => send(&mut raw, |id| request(id, path, &[])),
        };
        thread::sleep(Duration::from_millis(500));
        grown.push(resident().saturating_sub(before));
        sent = Some(done);
        open.push(raw);
    }
    (grown[2].saturating_sub(grown[1]), sent.unwrap())
}

/// Bytes of memory of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[track_caller]
fn check(path: &'static str, refused: u32, stream: impl Fn(u32) -> Vec<u8>) {
    let (held, sent) = held(path, stream);
    let most = 10 * sent.bytes + (256 << 10);
    assert!(held <= most, "{held} bytes of {} are held", sent.bytes);
    let right = sent.resets.iter().all(|code| *code == refused);
    assert!(right, "{:?}", sent.resets);
    let some = !sent.resets.is_empty();
    assert_eq!(some, refused != 0, "{:?}", sent.resets);
}

/// The same value again and again is there once.
#[test]
fn one_value_by_reference() {
    for path in ["/wait", "/any"] {
        check(path, 0, |id| {
            let learn = learnt("x", &"v".repeat(3900));
            let more = if id == 1 { learn } else { vec![0xbe; 15] };
            request(id, path, &more)
        });
    }
}

/// A long name with another value for each stream: there is nothing to share, and what is beyond the bound is refused.
#[test]
fn names_by_reference() {
    for path in ["/wait", "/any"] {
        check(path, REFUSED_STREAM, |id| {
            let more = if id == 1 {
                learnt(&"n".repeat(3900), "")
            } else {
                // The newest entry's name and a value of its own, then all of it again.
                let value = format!("{id:05}");
                let learn = [&[0x7e, 5], value.as_bytes()].concat();
                [learn, vec![0xbe; 14]].concat()
            };
            request(id, path, &more)
        });
    }
}

/// Trailers that the server does not take.
#[test]
fn trailers_by_reference() {
    check("/any", ENHANCE_YOUR_CALM, |id| {
        let head = frame(HEADERS, END_HEADERS, id, &post("/any"));
        let learn = learnt("x", &"v".repeat(3900));
        let more = if id == 1 { learn } else { vec![0xbe; 15] };
        let end = frame(HEADERS, END_HEADERS | END_STREAM, id, &more);
        let data = frame(DATA, 0, id, b"a");
        [head, data, end].concat()
    });
}

/// A browser's requests: cookies in crumbs that were said before, a path and an id that were not. A hundred of them
/// say 400 KB, and none is refused.
#[test]
fn what_a_browser_repeats() {
    for path in ["/wait", "/any"] {
        check(path, 0, |id| {
            let more = if id == 1 {
                let crumbs =
                    (0..3).map(|n| learnt("cookie", &format!("c{n}={}", "v".repeat(1200))));
                crumbs.collect::<Vec<_>>().concat()
            } else {
                let own = [("x-request-id", &*format!("{id:036}"))];
                [&[0xc0, 0xbf, 0xbe][..], &block(&own)].concat()
            };
            request(id, path, &more)
        });
    }
}
