//! Flow control: RFC 9113 sections 5.2 and 6.9.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use tollgate::base::clock::{Clock, Nanos};

use crate::bodies::send;
use crate::common::http2::{Client, request, run, whole};
use crate::common::{Gate, Gateway, Upstream, ok, read_body, read_head, wait_until, write};
use crate::raw::{
    ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, Raw, WINDOW_UPDATE, code, frame,
    get,
};
use crate::rules::{FLOW_CONTROL_ERROR, OPEN, gateway, post, setting};

/// Sections 6.9.1 and 6.9.2: an answer is sent as far as there is room, on the stream and on the connection,
/// also where a setting has taken away what was there.
#[test]
fn windows_are_kept_to() {
    let (gateway, gate, _upstream) = gateway();
    gate.open();
    let mut raw = Raw::connect(gateway.address, &[(4, 3)]);
    raw.send(&frame(HEADERS, END_HEADERS, 1, &post(&[])));
    raw.send(&frame(DATA, END_STREAM, 1, b"0123456789"));
    let piece = |raw: &mut Raw| String::from_utf8(raw.next(DATA).unwrap().payload).unwrap();
    assert_eq!(piece(&mut raw), "012");
    // Three are used up: with two in all there is one too few, and two more make one.
    raw.send(&setting(4, 2));
    raw.send(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 2]));
    assert_eq!(piece(&mut raw), "3");
    raw.send(&setting(4, 4));
    assert_eq!(piece(&mut raw), "45");
    raw.send(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 1, 0]));
    let last = raw.next(DATA).unwrap();
    assert_eq!((&last.payload[..], last.flags), (&b"6789"[..], END_STREAM));
}

/// Section 6.9.1: streams share what room the connection has. None waits for another to end.
#[test]
fn streams_take_turns() {
    const LONG: usize = 60_000;
    let answered = Arc::new(AtomicUsize::new(0));
    let counts = answered.clone();
    let upstream = Upstream::scripted(move |mut served, _| {
        while let Ok(head) = read_head(&mut served.reader) {
            let length = if head.start.contains("/first") {
                65_535
            } else {
                LONG
            };
            served.send(ok(&"x".repeat(length)));
            counts.fetch_add(1, Relaxed);
        }
    });
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[("all", OPEN)]);
    let mut raw = Raw::connect(gateway.address, &[(4, 1 << 20)]);
    // One answer takes all the room that there is at first.
    raw.send(&frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &get("/first", &[]),
    ));
    while raw.next(DATA).unwrap().flags & END_STREAM == 0 {}
    for stream in [3, 5, 7] {
        let head = get("/", &[]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
    }
    wait_until("all are answered", || answered.load(Relaxed) == 4);
    let (mut sent, mut waited) = ([0; 8], [0; 8]);
    while sent != [0, 0, 0, LONG, 0, LONG, 0, LONG] {
        // What the server sent is read before the gateway answers the second.
        for _ in 0..2 {
            raw.send(&frame(PING, 0, 0, b"anything"));
            assert_eq!(raw.next(PING).unwrap().flags, ACK);
        }
        raw.send(&frame(WINDOW_UPDATE, 0, 0, &10_000_u32.to_be_bytes()));
        waited.iter_mut().for_each(|turns| *turns += 1);
        let mut room = 10_000.min(3 * LONG - sent.iter().sum::<usize>());
        while room > 0 {
            let piece = raw.next(DATA).unwrap();
            let (stream, length) = (piece.stream as usize, piece.payload.len());
            assert!(length <= room, "{length} of {room}");
            room -= length;
            sent[stream] += length;
            waited[stream] = 0;
        }
        let late = |stream: &usize| sent[*stream] < LONG && waited[*stream] >= 4;
        assert_eq!(
            [3, 5, 7].iter().find(|stream| late(stream)),
            None,
            "{sent:?}"
        );
    }
}

/// Section 5.2: a body that nobody reads is taken as far as its window goes, and not further.
#[test]
fn a_client_that_ignores_its_window() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, _| {
        if read_head(&mut served.reader).is_ok() {
            held.pass();
        }
    });
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[("all", OPEN)]);
    let mut raw = Raw::connect(gateway.address, &[]);
    raw.send(&frame(HEADERS, END_HEADERS, 1, &post(&[])));
    let mut sender = raw.stream.try_clone().unwrap();
    let flood = std::thread::spawn(move || {
        use std::io::Write;
        // More than all buffers on the way to the server.
        let piece = frame(DATA, 0, 1, &[b'x'; 16_384]);
        while sender.write_all(&piece).is_ok() {}
    });
    let reset = raw.next(RST_STREAM).unwrap();
    assert_eq!(code(&reset), FLOW_CONTROL_ERROR);
    gate.open();
    raw.stream.shutdown(std::net::Shutdown::Both).unwrap();
    flood.join().unwrap();
}

/// Section 5.2.1: the connection's window comes back from bodies that nobody wanted.
#[test]
fn unread_bodies_cost_no_window() {
    let upstream = Upstream::scripted(|mut served, _| {
        while let Ok(head) = read_head(&mut served.reader) {
            if head.field("expect").is_some() {
                // And the body is never asked for.
                return served.send(crate::common::status(401));
            }
            let mut whole = head;
            read_body(&mut served.reader, &mut whole).unwrap();
            served.send(ok(&whole.body.len().to_string()));
        }
    });
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[("all", OPEN)]);
    let mut raw = Raw::connect(gateway.address, &[]);
    let content = vec![b'x'; 16_384];
    let expecting = [("expect", "100-continue"), ("content-length", "196608")];
    let mut id = 1;
    for _ in 0..20 {
        let mut all = frame(HEADERS, END_HEADERS, id, &post(&expecting));
        (0..11).for_each(|_| all.extend(frame(DATA, 0, id, &content)));
        all.extend(frame(DATA, END_STREAM, id, &content));
        raw.send(&all);
        let answer = raw.next(HEADERS).unwrap();
        assert_eq!(answer.stream, id);
        id += 2;
    }
    raw.send(&frame(HEADERS, END_HEADERS, id, &post(&[])));
    (0..11).for_each(|_| raw.send(&frame(DATA, 0, id, &content)));
    raw.send(&frame(DATA, END_STREAM, id, &content));
    let piece = raw.next(DATA).unwrap();
    let piece = if piece.stream == id {
        piece
    } else {
        raw.next(DATA).unwrap()
    };
    assert_eq!((piece.stream, &piece.payload[..]), (id, &b"196608"[..]));
}

/// Section 5.2.2: an upload that waits because others hold the connection's window is not late.
#[test]
fn uploads_that_are_held_back_are_not_late() {
    const MUCH: usize = 16 * 1024 * 1024;
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(mut request) = read_head(&mut served.reader) {
            report(request.clone());
            if request.start.contains("/stuck") {
                held.pass();
            }
            read_body(&mut served.reader, &mut request).unwrap();
            served.send(ok(&request.body.len().to_string()));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let timeouts = "workers: 1\ntimeouts: { body_idle: 500ms, idle: 500ms, first_byte: 1h }\n";
    write(&folder, upstream.address, timeouts, &[("all", OPEN)]);
    let clock = Clock::manual(Nanos::from_secs(100_000));
    let gateway = Gateway::start_in(folder, clock.clone());
    let mut unused = gateway.connect();
    run(async {
        let mut client = Client::connect(gateway.address).await;
        let sent = Arc::new(AtomicUsize::new(0));
        let mut stuck = Vec::new();
        for _ in 0..5 {
            let post = request("POST", "/stuck").header("content-length", MUCH);
            let (answer, mut body) = client.begin(post.body(()).unwrap(), false);
            let sent = sent.clone();
            stuck.push(tokio::spawn(async move {
                for _ in 0..MUCH / 65_536 {
                    send(&mut body, 65_536).await;
                    sent.fetch_add(65_536, Relaxed);
                }
                body.send_data(Bytes::new(), true).unwrap();
                whole(answer.await.unwrap()).await.unwrap()
            }));
        }
        let (mut before, mut same) = (0, 0);
        blocking(move || {
            wait_until("all windows are used up", || {
                let now = sent.load(Relaxed);
                same = if now == before { same + 1 } else { 0 };
                before = now;
                same > 40
            });
        })
        .await;
        let post = request("POST", "/free").body(()).unwrap();
        let (answer, mut body) = client.begin(post, false);
        let sending = tokio::spawn(async move {
            send(&mut body, 100_000).await;
            body.send_data(Bytes::new(), true).unwrap();
            whole(answer.await.unwrap()).await.unwrap()
        });
        blocking(move || {
            while !upstream.next().start.contains("/free") {}
            clock.advance(Nanos::from_secs(1));
            // It ends when the deadlines have been looked at.
            unused.rest();
            gate.open();
        })
        .await;
        assert_eq!(sending.await.unwrap().body, "100000");
        for answer in stuck {
            assert_eq!(answer.await.unwrap().body, MUCH.to_string());
        }
    });
}

/// What must not hold up the client meanwhile.
async fn blocking(work: impl FnOnce() + Send + 'static) {
    tokio::task::spawn_blocking(work).await.unwrap();
}
