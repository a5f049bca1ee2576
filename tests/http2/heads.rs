//! Heads at their bounds.

use crate::raw::{CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, HEADERS, Raw, frame, get};
use crate::rules::{OK, gateway, post};
use crate::site::Site;

/// The block in as many frames as it needs.
fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    let mut pieces = block.chunks(16_384).peekable();
    let (mut kind, mut flags) = (HEADERS, END_STREAM);
    let mut all = Vec::new();
    while let Some(piece) = pieces.next() {
        flags |= if pieces.peek().is_none() {
            END_HEADERS
        } else {
            0
        };
        all.extend(frame(kind, flags, stream, piece));
        (kind, flags) = (CONTINUATION, 0);
    }
    all
}

/// The next frame of a stream.
fn next<S: std::io::Read + std::io::Write>(raw: &mut Raw<S>, stream: u32) -> Frame {
    let mut frames = std::iter::from_fn(|| raw.frame());
    frames.find(|frame| frame.stream == stream).unwrap()
}

/// Section 8.2.3: the crumbs of a cookie are one field, however many they are.
#[test]
fn crumbs_are_one_field() {
    let (gateway, _gate, upstream) = gateway();
    let crumbs: Vec<String> = (0..500).map(|number| format!("c{number}=v")).collect();
    let others: Vec<String> = (0..99).map(|number| format!("x-{number}")).collect();
    let with = |others: &[String]| {
        let crumbs = crumbs.iter().map(|crumb| ("cookie", &**crumb));
        let others = others.iter().map(|name| (&**name, "y"));
        get("/", &crumbs.chain(others).collect::<Vec<_>>())
    };
    let mut raw = Raw::connect(gateway.address, &[]);
    raw.send(&headers(1, &with(&others)));
    let answer = next(&mut raw, 1);
    assert_eq!(
        (answer.kind, answer.payload[0]),
        (HEADERS, OK),
        "{answer:?}"
    );
    let cookie = upstream.next();
    let cookie = cookie.field("cookie").unwrap();
    assert_eq!(cookie, crumbs.join("; "));
    // One field more.
    raw.send(&headers(3, &with(&[&others[..], &["x-a".into()]].concat())));
    assert_eq!(status(&next(&mut raw, 3)), Some("431"));
}

/// The status of a head, if it stands in it as a literal of three digits without Huffman coding or as an index.
fn status(head: &Frame) -> Option<&str> {
    assert_eq!(head.kind, HEADERS);
    let at = head.payload.iter().position(|byte| *byte == 3)?;
    std::str::from_utf8(&head.payload[at + 1..at + 4]).ok()
}

/// Section 4.3: a head that is too large ends its stream. Others go on, and what it has taught of fields holds.
#[test]
fn heads_that_are_too_large_end_their_stream() {
    let mut site = Site::start();
    site.gate.open();
    for size in [66_000, 100_000, 250_000] {
        for (over, mut raw) in site.connections() {
            raw.send(&frame(HEADERS, END_HEADERS, 1, &post(&[])));
            // The last field is one to be learnt, and then known as the first that was learnt.
            let learnt = [&[0x40, 3][..], b"x-a", &[5], b"known"].concat();
            let large = get("/large", &[("x-large", &"y".repeat(size))]);
            raw.send(&headers(3, &[large, learnt].concat()));
            assert_eq!(
                status(&next(&mut raw, 3)),
                Some("431"),
                "{size} over {over}"
            );
            let again = [get("/again", &[]), vec![0x80 | 62]].concat();
            raw.send(&headers(5, &again));
            assert_eq!(next(&mut raw, 5).payload[0], OK, "{size} over {over}");
            let seen = std::iter::from_fn(|| Some(site.upstream.next()));
            let mut again = seen.skip_while(|request| !request.start.contains("/again"));
            assert_eq!(again.next().unwrap().field("x-a"), Some("known"), "{over}");
            let lines = site.lines(2);
            let large = lines
                .iter()
                .find(|line| line["target"] == "/large")
                .unwrap();
            assert_eq!(large["status"], 431, "{large}");
            assert_eq!(large["outcome"], "rejected", "{large}");
            // The first stream is still there.
            raw.send(&frame(DATA, END_STREAM, 1, b"body"));
            let answer = next(&mut raw, 1);
            assert_eq!((answer.kind, answer.payload[0]), (HEADERS, OK), "{over}");
            site.lines(1);
        }
    }
}
