//! Clients that do not keep to the rules, or only to the letter. Each rule bounds what one connection can
//! make the gateway do; the connection ends, others do not notice.

use crate::HEAP;
use crate::common::http2::{Client, run};
use crate::common::{Gateway, Upstream, assert_contains, read_head, wait_until};
use crate::raw::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, RST_STREAM,
    Raw, SETTINGS, WINDOW_UPDATE, code, frame, get,
};

const OPEN: &str = "match: /**\nupstream: up\n";
const ENHANCE_YOUR_CALM: u32 = 11;

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::start(upstream.address, "workers: 1\n", &[("all", OPEN)])
}

/// The connection is ended with this code, if it says one, and others go on.
#[track_caller]
fn ended(gateway: &Gateway, mut raw: Raw, codes: &[u32]) {
    let frames = raw.rest();
    if let Some(last) = frames.iter().rfind(|frame| frame.kind == GOAWAY) {
        assert!(codes.contains(&code(last)), "{last:?}");
    }
    run(async {
        let mut client = Client::connect(gateway.address).await;
        assert_eq!(client.get("/").await.status, 200);
    });
}

/// CVE-2023-44487: requests that are taken back at once do not pass the bound on requests under way.
#[test]
fn rapid_reset() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    let mut raw = Raw::connect(gateway.address, &[]);
    let head = get("/", &[]);
    let _ = (0..100_000_u32).all(|n| {
        let id = 2 * n + 1;
        let request = frame(HEADERS, END_HEADERS | END_STREAM, id, &head);
        let reset = frame(RST_STREAM, 0, id, &8_u32.to_be_bytes());
        raw.flood(&[request, reset].concat(), 1)
    });
    ended(&gateway, raw, &[ENHANCE_YOUR_CALM]);
    let reached = upstream.drain().len();
    assert!(reached < 3_000, "{reached} requests reached the server");
}

/// The same with a byte of a body in each.
#[test]
fn rapid_reset_with_bodies() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    let mut raw = Raw::connect(gateway.address, &[]);
    let head = get("/", &[]);
    let taken_back = |n: u32| {
        let id = 2 * n + 1;
        let request = frame(HEADERS, END_HEADERS, id, &head);
        let body = frame(DATA, END_STREAM, id, b"a");
        let reset = frame(RST_STREAM, 0, id, &8_u32.to_be_bytes());
        [request, body, reset].concat()
    };
    let _ = (0..1000).all(|batch| {
        let many = 100 * batch..100 * batch + 100;
        raw.flood(&many.flat_map(taken_back).collect::<Vec<_>>(), 1)
    });
    ended(&gateway, raw, &[ENHANCE_YOUR_CALM]);
    assert_contains(&gateway.app.metrics(), &["tollgate_http2_floods_total 1"]);
    let reached = upstream.drain().len();
    assert!(reached < 3_000, "{reached} requests reached the server");
}

/// CVE-2025-8671: a client that makes the gateway reset its own streams is bounded as one that resets them.
#[test]
fn made_you_reset() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    // A window that overflows, an increment of nothing, data after the end.
    let tricks: [&dyn Fn(u32) -> Vec<u8>; 3] = [
        &|id| frame(WINDOW_UPDATE, 0, id, &0x7fff_ffff_u32.to_be_bytes()),
        &|id| frame(WINDOW_UPDATE, 0, id, &0_u32.to_be_bytes()),
        &|id| frame(DATA, 0, id, b"late"),
    ];
    for trick in tricks {
        let mut raw = Raw::connect(gateway.address, &[]);
        let head = get("/", &[]);
        let _ = (0..100_000_u32).all(|n| {
            let id = 2 * n + 1;
            let request = frame(HEADERS, END_HEADERS | END_STREAM, id, &head);
            raw.flood(&[request, trick(id)].concat(), 1)
        });
        ended(&gateway, raw, &[1, 3, 5, ENHANCE_YOUR_CALM]);
    }
}

/// CVE-2024-27316: a head that never ends is bounded in bytes and in time.
#[test]
fn continuation_flood() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    for piece in [&[0_u8, 1, b'a', 1, b'b'].repeat(1000)[..], b""] {
        let mut raw = Raw::connect(gateway.address, &[]);
        raw.send(&frame(HEADERS, END_STREAM, 1, &get("/", &[])));
        raw.flood(&frame(CONTINUATION, 0, 1, piece), 100_000);
        ended(&gateway, raw, &[1, ENHANCE_YOUR_CALM]);
    }
    assert_eq!(
        upstream.drain().len(),
        2,
        "but for those that look whether all is well"
    );
}

/// A field of two bytes that says four thousand, again and again: the block is read to a bound, whether the field is
/// sound, malformed or merely known.
#[test]
fn long_names_by_reference() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    for value in ["v", "\x01"] {
        for again in [&[0x0f, 0x2f, 0][..], &[0x7e, 0], &[0xbe]] {
            let mut raw = Raw::connect(gateway.address, &[]);
            let name = "x".repeat(3900);
            let mut learn = get("/", &[(&name, value)]);
            // The last field is the one that is learnt.
            let at = learn.len() - 1 - value.len() - name.len() - 4;
            assert_eq!(learn[at], 0);
            learn[at] = 0x40;
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &learn));
            let block = [&get("/", &[])[..], &again.repeat(5_000)].concat();
            raw.flood(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &block), 1);
            let frames = raw.rest();
            let last = frames.iter().rfind(|frame| frame.kind == GOAWAY);
            assert_eq!(code(last.unwrap()), ENHANCE_YOUR_CALM, "{again:x?}");
        }
    }
}

/// Heads of answers that nobody reads stay at the server, whatever their number; all come once they are read.
#[test]
fn heads_of_answers_wait_for_room() {
    const STREAMS: u32 = 127;
    let long = "v".repeat(50_000);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: {long}\r\n\r\n");
    let (count, answers) = std::sync::mpsc::channel();
    let upstream = Upstream::scripted(move |mut served, _| {
        while read_head(&mut served.reader).is_ok() {
            served.send(&answer);
            let _ = count.send(());
        }
    });
    let gateway = gateway(&upstream);
    let mut grown = Vec::new();
    // The first time everything is made that stays.
    for reads in [true, false] {
        let mut raw = Raw::connect(gateway.address, &[]);
        let before = HEAP.current_usage();
        for n in 0..STREAMS {
            let head = frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &get("/", &[]));
            raw.send(&head);
        }
        if !reads {
            let answered = answers.iter().take(STREAMS as usize).count();
            assert_eq!(answered, STREAMS as usize);
            // The worker has looked at its sockets again before this is answered.
            assert_eq!(gateway.connect().get("/").status(), 200);
            answers.recv().unwrap();
            grown.push(HEAP.current_usage().saturating_sub(before));
        }
        let heads = (0..STREAMS).map(|_| raw.next(HEADERS).unwrap().stream);
        let mut heads: Vec<_> = heads.collect();
        heads.sort_unstable();
        assert!(heads.iter().copied().eq((0..STREAMS).map(|n| 2 * n + 1)));
        while answers.try_recv().is_ok() {}
    }
    assert!(grown[0] < 3 << 20, "{} KiB are held", grown[0] >> 10);
}

#[test]
fn a_head_that_stops_is_late() {
    let upstream = Upstream::plain();
    let timeouts = "timeouts: { header: 300ms }\n";
    let gateway = Gateway::start(upstream.address, timeouts, &[("all", OPEN)]);
    let mut raw = Raw::connect(gateway.address, &[]);
    raw.send(&frame(HEADERS, END_STREAM, 1, &get("/", &[])[..5]));
    ended(&gateway, raw, &[]);
}

/// CVE-2019-9512, -9515 and their kin: frames that ask for nothing.
#[test]
fn floods_of_empty_frames() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    let floods: [Vec<u8>; 5] = [
        frame(PING, 0, 0, &[0; 8]),
        frame(SETTINGS, 0, 0, &[]),
        frame(2, 0, 1, &[0, 0, 0, 0, 1]),
        frame(DATA, 0, 1, &[]),
        frame(0xfa, 0, 0, b"grease"),
    ];
    for flood in floods {
        let mut raw = Raw::connect(gateway.address, &[]);
        raw.send(&frame(HEADERS, END_HEADERS, 1, &get("/", &[])));
        raw.flood(&flood.repeat(100), 10_000);
        ended(&gateway, raw, &[ENHANCE_YOUR_CALM]);
    }
    let metrics = gateway.app.metrics();
    assert_contains(&metrics, &["tollgate_http2_floods_total 5"]);
}

/// Settings that change a window again and again within one frame cost no more than others, however many streams
/// are open.
#[test]
fn settings_that_flap() {
    let upstream = Upstream::answering(|_| crate::common::ok("fine"));
    let gateway = gateway(&upstream);
    let [usual, flapping] = [0xaa, 4].map(|about: u16| {
        // Answers wait for room.
        let mut raw = Raw::connect(gateway.address, &[(4, 0)]);
        for n in 0..100 {
            let head = get("/", &[]);
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head));
        }
        (0..100).for_each(|_| drop(raw.next(HEADERS).unwrap()));
        let pair = |value: u32| [&about.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let both = [pair(0x7fff_ffff), pair(0)].concat();
        let many = frame(SETTINGS, 0, 0, &both.repeat(1300)).repeat(200);
        let clock = tollgate::base::clock::Clock::system();
        let start = clock.now();
        raw.send(&many);
        raw.send(&frame(PING, 0, 0, b"12345678"));
        raw.next(PING).unwrap();
        clock.now().since(start)
    });
    assert!(flapping.0 < usual.0 * 10, "{flapping:?}, others {usual:?}");
}

/// A head is bounded in bytes, however small it is on the wire, and in fields.
#[test]
fn large_heads() {
    let upstream = Upstream::plain();
    let gateway = gateway(&upstream);
    // One entry in the table, named again and again: 4 KB each time for one byte (CVE-2016-6581).
    let mut bomb = get("/", &[]);
    let value = vec![b'a'; 3500];
    bomb.extend_from_slice(&[0x40, 1, b'x', 127, 0xad, 0x1a]);
    bomb.extend_from_slice(&value);
    bomb.extend_from_slice(&[0xbe; 1000]);
    let many: Vec<(String, String)> = (0..150).map(|n| (format!("x-{n}"), "1".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (&**n, &**v)).collect();
    for (what, head) in [("bomb", bomb), ("fields", get("/", &many))] {
        let mut raw = Raw::connect(gateway.address, &[]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
        // The connection may end at once; an answer is not 200.
        let answer: Option<Frame> = raw.next(HEADERS);
        let admitted = answer.is_some_and(|frame| frame.payload[0] == 0x88);
        assert!(!admitted, "{what}");
    }
    assert_eq!(upstream.drain().len(), 0);
}

/// CVE-2019-9517: a client with no room holds its own streams only, and not for ever.
#[test]
fn zero_windows() {
    let upstream = Upstream::plain();
    let timeouts = "workers: 1\ntimeouts: { send: 300ms }\n";
    let gateway = Gateway::start(upstream.address, timeouts, &[("all", OPEN)]);
    // SETTINGS_INITIAL_WINDOW_SIZE
    let mut raw = Raw::connect(gateway.address, &[(4, 0)]);
    for n in 0..100 {
        let head = get("/", &[]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head));
    }
    let mut reset = 0;
    while reset < 100 {
        let frame = raw.next(RST_STREAM).expect("every stream is reset");
        assert_eq!(code(&frame), 8);
        reset += 1;
    }
    // The connection is as good as before.
    raw.send(&frame(PING, 0, 0, b"12345678"));
    let pong = raw.next(PING).unwrap();
    assert_eq!((pong.flags, &pong.payload[..]), (ACK, &b"12345678"[..]));
}

/// A client that reads nothing at all is let go, however much it still asks.
#[test]
fn deaf_clients() {
    let upstream = Upstream::answering(|_| crate::common::ok(&"x".repeat(1 << 20)));
    let timeouts = "workers: 1\ntimeouts: { send: 300ms }\n";
    let gateway = Gateway::start(upstream.address, timeouts, &[("all", OPEN)]);
    let mut raw = Raw::connect(gateway.address, &[(4, 0x7fff_ffff)]);
    raw.send(&frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes()));
    for n in 0..100 {
        let head = get("/", &[]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head));
    }
    wait_until("the connection is closed", || {
        gateway
            .app
            .metrics()
            .contains("tollgate_connections_open 0")
    });
}

/// Heads for which no request is begun cost the gateway their decoding, so their number is bounded: those beyond the
/// requests that may be under way, and those on a stream that was refused.
#[test]
fn refused_heads() {
    let upstream = Upstream::scripted(|mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
        }
    });
    let gateway = gateway(&upstream);
    let head = get("/", &[]);
    let request = |n: u32| frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head);
    let forms: [&dyn Fn(u32) -> u32; 2] = [&|n| n, &|n| n.min(200)];
    for next in forms {
        let mut raw = Raw::connect(gateway.address, &[]);
        // Those that begin, then what the allowance is for, and twice what the socket may still have room for.
        let all: Vec<u8> = (0..700).flat_map(|n| request(next(n))).collect();
        raw.flood(&all, 1);
        raw.send(&frame(PING, 0, 0, b"anything"));
        let frames = raw.rest();
        let last = frames.iter().rfind(|frame| frame.kind == GOAWAY);
        assert_eq!(code(last.unwrap()), ENHANCE_YOUR_CALM);
    }
}

/// RFC 9113 section 5.1.2: no more requests under way than were allowed.
#[test]
fn streams_are_bounded() {
    let upstream = Upstream::scripted(|mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
        }
    });
    let gateway = gateway(&upstream);
    let mut raw = Raw::connect(gateway.address, &[]);
    for n in 0..1000 {
        let head = get("/", &[]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head));
    }
    // REFUSED_STREAM
    let refused = raw.next(RST_STREAM).unwrap();
    assert_eq!(code(&refused), 7);
    drop(raw);
    wait_until("all are over", || {
        gateway
            .app
            .metrics()
            .contains("tollgate_connections_open 0")
    });
    let reached = upstream.drain().len();
    assert!(reached <= 128, "{reached} requests at once");
}
