//! Requests that are little on the wire and much decoded (RFC 7541): a connection holds no more of them than ten times
//! what it sent, and refuses none of a client that repeats itself as clients do.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::HEAP;
use crate::common::{Gateway, MAX_WAIT, Upstream, wait_until};
use crate::raw::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, Raw, block, code, frame,
};

const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
const STREAMS: u32 = 100;

/// `POST /wait` waits for a body, any other for a server that does not answer. Requests that the server has are counted.
fn gateway() -> (Gateway, Arc<AtomicUsize>) {
    let at_server = Arc::new(AtomicUsize::new(0));
    let counted = at_server.clone();
    // It keeps nothing of what it reads, for it is in this process.
    let upstream = Upstream::scripted(move |mut served, _| {
        let mut read = || matches!(served.stream.read(&mut [0; 512]), Ok(1..));
        if read() {
            counted.fetch_add(1, Ordering::Relaxed);
            while read() {}
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    });
    let more = "workers: 1\nidentity: { email: { body: email } }\n";
    let wait = "match: POST /wait\nupstream: up\nlimits: { few: { key: email, rate: 5/m } }\n";
    let policies = [("wait", wait), ("all", "match: /**\nupstream: up\n")];
    (Gateway::start(upstream.address, more, &policies), at_server)
}

struct Sent {
    bytes: usize,
    /// How the gateway reset streams.
    resets: Vec<u32>,
    /// Streams that stay open.
    open: usize,
}

/// One stream after the other, as `stream` says each and which the client resets, then what the gateway reset of them.
fn send(raw: &mut Raw, stream: impl Fn(u32) -> (Vec<u8>, Option<u32>)) -> Sent {
    let mut open: BTreeSet<u32> = (0..STREAMS).map(|n| 2 * n + 1).collect();
    let mut all = Vec::new();
    for id in open.clone() {
        let (said, leaves) = stream(id);
        all.extend(said);
        if let Some(leaves) = leaves {
            // CANCEL
            all.extend(frame(RST_STREAM, 0, leaves, &8_u32.to_be_bytes()));
            open.remove(&leaves);
        }
    }
    raw.send(&all);
    // What was said to the last of them comes before the answer.
    raw.send(&frame(PING, 0, 0, b"anything"));
    let mut resets = Vec::new();
    loop {
        let frame = raw.frame().unwrap();
        match frame.kind {
            PING => break,
            RST_STREAM => {
                resets.push(code(&frame));
                open.remove(&frame.stream);
            }
            _ => {}
        }
    }
    Sent {
        bytes: all.len(),
        resets,
        open: open.len(),
    }
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

/// Rounds whose requests are measured. Of them the one counts that holds least: in a moment that others hold longer, a
/// head is in the buffers of two connections.
const MEASURED_ROUNDS: usize = 3;

/// Bytes that are held for requests beyond what others hold that say nothing.
fn held(path: &'static str, stream: impl Fn(u32) -> (Vec<u8>, Option<u32>)) -> (usize, Sent) {
    let (gateway, at_server) = gateway();
    let mut grown = Vec::new();
    let mut sent = None;
    let (mut connections, mut open) = (Vec::new(), 0);
    // The first makes everything that stays, and the second is what the others are compared with.
    for round in 0..2 + MEASURED_ROUNDS {
        let mut raw = Raw::connect(gateway.address, &[]);
        raw.stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let before = HEAP.current_usage();
        let done = match round {
            0 | 1 => send(&mut raw, |id| (request(id, path, &[]), None)),
            _ => send(&mut raw, &stream),
        };
        open += done.open;
        let wanted = if path == "/wait" { 0 } else { open };
        wait_until("the requests are under way", || {
            open_requests(&gateway) == open && at_server.load(Ordering::Relaxed) == wanted
        });
        grown.push(HEAP.current_usage().saturating_sub(before));
        sent = Some(done);
        connections.push(raw);
    }
    let least = grown[2..].iter().min().unwrap();
    (least.saturating_sub(grown[1]), sent.unwrap())
}

fn open_requests(gateway: &Gateway) -> usize {
    let metrics = gateway.app.metrics();
    let routes = metrics
        .lines()
        .filter(|line| line.starts_with("tollgate_requests_open{"));
    let values = routes.map(|line| line.rsplit(' ').next().unwrap());
    values.map(|value| value.parse::<usize>().unwrap()).sum()
}

#[track_caller]
fn check(path: &'static str, refused: u32, stream: impl Fn(u32) -> Vec<u8>) {
    check_resetting(path, refused, |id| (stream(id), None));
}

/// The same where the client resets some streams.
#[track_caller]
fn check_resetting(
    path: &'static str,
    refused: u32,
    stream: impl Fn(u32) -> (Vec<u8>, Option<u32>),
) {
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

/// The bytes of a shared head count until the last request that holds them ends, not the first.
#[test]
fn two_values_in_turn() {
    for path in ["/wait", "/any"] {
        check_resetting(path, 0, |id| {
            let n = id / 2;
            if n == 0 {
                let values = ["v", "w"].map(|letter| learnt("x", &letter.repeat(1900)));
                return (request(id, path, &values.concat()), None);
            }
            // Four requests say one value, the next four the other. The first of four leaves after the second.
            let said = request(id, path, &[if n % 8 < 4 { 0xbe } else { 0xbf }; 14]);
            (said, (n % 4 == 1 && n > 4).then(|| id - 2))
        });
    }
}

/// The same with a value that is new each time.
#[test]
fn heads_whose_first_request_is_reset() {
    for path in ["/wait", "/any"] {
        check_resetting(path, REFUSED_STREAM, |id| {
            let n = id / 2;
            if n == 0 {
                return (request(id, path, &learnt(&"n".repeat(3900), "")), None);
            }
            if n % 2 == 1 {
                let value = format!("{id:05}");
                let learn = [&[0x7e, 5], value.as_bytes()].concat();
                return (request(id, path, &[learn, vec![0xbe; 14]].concat()), None);
            }
            (request(id, path, &[0xbe; 15]), Some(id - 2))
        });
    }
}

/// A long path that is said by reference is there once.
#[test]
fn paths_by_reference() {
    let path = format!("/any?{}", "p".repeat(3900));
    check("/any", 0, |id| {
        let pseudo = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "test"),
        ];
        let more = if id == 1 {
            learnt(":path", &path)
        } else {
            vec![0xbe]
        };
        let length = block(&[("content-length", "50")]);
        let said = [block(&pseudo), more, length].concat();
        frame(HEADERS, END_HEADERS, id, &said)
    });
}

/// A load balancer's connection carries the requests of some clients in turn, each of them with a large cookie. A hundred
/// at a time are served, whether the decoder's table has room for all cookies or for none.
#[test]
fn what_a_load_balancer_repeats() {
    for (clients, size) in [(2, 1800), (8, 440), (8, 8 << 10)] {
        for path in ["/wait", "/any"] {
            check(path, 0, |id| {
                let n = id / 2;
                let value = format!("{}={}", n % clients, "c".repeat(size));
                let cookie = match (size, n / clients) {
                    (8192, _) => block(&[("cookie", &value)]),
                    (_, 0) => learnt("cookie", &value),
                    // The oldest entry is the first client's.
                    _ => vec![0xbe + (clients - 1 - n % clients) as u8],
                };
                let added = [
                    ("x-forwarded-for", "192.0.2.1, 198.51.100.7"),
                    ("x-forwarded-proto", "https"),
                ];
                request(id, path, &[cookie, block(&added)].concat())
            });
        }
    }
}

/// Heads that are just too small to be shared, all of them known: a hundred at a time are ordinary.
#[test]
fn small_heads_by_reference() {
    for path in ["/wait", "/any"] {
        check(path, 0, |id| {
            let more = if id == 1 {
                let fields = (0..25).map(|n| learnt(&format!("x-field-{n:02}"), "some value"));
                fields.collect::<Vec<_>>().concat()
            } else {
                (0xbe..0xbe + 25).collect()
            };
            request(id, path, &more)
        });
    }
}
