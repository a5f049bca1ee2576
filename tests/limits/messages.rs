//! Limits on the messages of WebSockets: which frames count, and how a connection ends when a message is refused.

use std::io::Read;

use super::common::http2;
use super::common::{Client, Upstream, ok, wait_until};
use super::*;

const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nhost: t\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
                         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                        sec-websocket-accept: x\r\n\r\n";
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const PING: u8 = 0x89;
const TRY_AGAIN_LATER: &[u8] = b"\x88\x11\x03\xf5Try again later";
const INVALID_FRAME: &[u8] = b"\x88\x0f\x03\xeaInvalid frame";

/// A frame of a client.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | short as u8),
        long if long < 65_536 => {
            frame.push(0x80 | 126);
            frame.extend((long as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend([1, 2, 3, 4]);
    frame.extend(payload);
    frame
}

/// A server that sends `greeting` over each WebSocket, and reports what it has received when that ends.
fn server(greeting: &'static [u8]) -> Upstream {
    Upstream::scripted(move |mut served, report| {
        while let Ok(mut request) = served.request() {
            if request.field("upgrade").is_none() {
                served.send(ok("fine"));
                continue;
            }
            served.send(SWITCHED);
            served.send(greeting);
            let mut received = Vec::new();
            let _ = served.reader.read_to_end(&mut received);
            request.body = received;
            report(request);
            break;
        }
    })
}

fn site(greeting: &'static [u8]) -> Site {
    let limit = "units: { key: ip, rate: 5/h, count: cost messages }";
    Site::start("", &[limit], server(greeting))
}

fn open(site: &Site) -> Client {
    let mut client = site.gateway.connect();
    client.send(HANDSHAKE);
    let head = client.head().unwrap();
    assert_eq!(head.status(), 101, "{head:?}");
    client
}

/// Sends frames after a handshake, which is one of five units; `used` of them are gone then. If `end` is not empty, the
/// gateway ends the connection with these bytes.
#[track_caller]
fn check(frames: &[Vec<u8>], passed: usize, used: u32, end: &[u8]) {
    let (sent, expected) = (frames.concat(), frames[..passed].concat());
    // However the bytes are cut, the same frames count.
    for cut in [sent.len(), 1, 7] {
        let site = site(b"");
        let mut client = open(&site);
        for piece in sent.chunks(cut) {
            client.send(piece);
        }
        if end.is_empty() {
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        assert_eq!(client.rest(), end, "{sent:x?} by {cut}");
        let start = &sent[..sent.len().min(50)];
        assert_eq!(site.upstream.next().body, expected, "{start:x?} by {cut}");
        wait_until("all is counted", || {
            let [within, _, refused, _] = site.decisions("units");
            within == used && refused == u32::from(end == TRY_AGAIN_LATER)
        });
    }
}

#[test]
fn each_message_of_a_client_counts() {
    let text = frame(TEXT, b"hello");
    check(&[text.clone(), text.clone()], 2, 3, b"");
    check(&vec![text.clone(); 4], 4, 5, b"");
    // The message that is too much does not reach the server, and ends the connection.
    check(&vec![text.clone(); 5], 4, 5, TRY_AGAIN_LATER);
    check(&vec![frame(BINARY, b""); 7], 4, 5, TRY_AGAIN_LATER);
    // Compressed messages differ in one bit of their first byte.
    check(&vec![frame(0xc1, b"zzz"); 6], 4, 5, TRY_AGAIN_LATER);
}

#[test]
fn control_frames_and_fragments_do_not_count() {
    let mut frames = vec![
        frame(0x01, b"a"),
        frame(PING, b"are you there?"),
        frame(0x00, b"b"),
        frame(0x80, b"c"),
        frame(0x8a, b""),
    ];
    frames.extend(vec![frame(PING, b""); 20]);
    frames.push(frame(0x88, b"\x03\xe8"));
    check(&frames, frames.len(), 2, b"");
    // A fragment of no message, and opcodes without a meaning, count as messages.
    check(&vec![frame(0x80, b"a"); 5], 4, 5, TRY_AGAIN_LATER);
    check(&vec![frame(0x83, b"a"); 5], 4, 5, TRY_AGAIN_LATER);
    check(&vec![frame(0x01, b"a"); 5], 4, 5, TRY_AGAIN_LATER);
}

#[test]
fn frames_of_any_length_pass() {
    let long = frame(BINARY, &vec![7; 70_000]);
    let site = site(b"");
    let mut client = open(&site);
    client.send(&long);
    client.send(frame(TEXT, &[b'a'; 300]));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"");
    let expected = [long, frame(TEXT, &[b'a'; 300])].concat();
    assert_eq!(site.upstream.next().body, expected);
}

/// A server could take such bytes for other frames than the gateway.
#[test]
fn frames_that_cannot_be_counted_end_the_connection() {
    let text = frame(TEXT, b"hello");
    let unmasked = b"\x81\x05hello".to_vec();
    check(&[text.clone(), unmasked], 1, 2, INVALID_FRAME);
    let mut endless = vec![TEXT, 0xff, 0xff];
    endless.extend([0; 11]);
    check(&[text, endless], 1, 2, INVALID_FRAME);
}

/// The close frame follows the server's frame that is under way, and no other.
#[test]
fn the_server_s_frame_ends_first() {
    let (begun, waiting) = (common::Gate::default(), common::Gate::default());
    let (go_on, is_begun) = (waiting.clone(), begun.clone());
    let upstream = Upstream::scripted(move |mut served, _| {
        let _ = served.request();
        served.send(SWITCHED);
        served.send(b"\x82\x06abc");
        is_begun.open();
        waiting.pass();
        served.send(b"def\x81\x01x");
        let _ = served.reader.read_to_end(&mut Vec::new());
    });
    let limit = "units: { key: ip, rate: 2/h, count: cost messages }";
    let site = Site::start("", &[limit], upstream);
    let mut client = open(&site);
    begun.pass();
    let mut piece = [0; 5];
    client.reader.read_exact(&mut piece).unwrap();
    client.send([frame(TEXT, b"1"), frame(TEXT, b"2")].concat());
    wait_until("a message is refused", || site.decisions("units")[2] == 1);
    go_on.open();
    assert_eq!(client.rest(), [b"def", TRY_AGAIN_LATER].concat());
}

#[test]
fn requests_and_handshakes_count_too() {
    let site = site(b"\x81\x02hi");
    for left in [4, 3, 2] {
        assert_eq!(told(&site.get("")), format!("units {left}"));
    }
    let mut client = open(&site);
    // A refusal ends the connection at once, and with it what the server was about to say.
    let mut greeting = [0; 4];
    client.reader.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, *b"\x81\x02hi");
    client.send(frame(TEXT, b"a"));
    client.send(frame(TEXT, b"b"));
    assert_eq!(client.rest(), TRY_AGAIN_LATER);
    assert_eq!(site.upstream.next().body, frame(TEXT, b"a"));
    client = site.gateway.connect();
    client.send(HANDSHAKE);
    assert_eq!(violated(&client.answer()), ["units"]);
    // A new window has room again.
    site.pass(Nanos::from_secs(3600));
    open(&site);
}

/// The clock stands still, so each message has to wait 100 ms longer than the one before.
#[test]
fn a_leaky_bucket_holds_messages_back() {
    let limit = "units: { key: ip, rate: 10/s, algorithm: leaky-bucket, delay: 300ms, count: cost messages }";
    let site = Site::start("", &[limit], server(b""));
    let mut client = open(&site);
    let real_clock = tollgate::base::clock::Clock::system();
    let begun_at = real_clock.now();
    let texts: Vec<Vec<u8>> = [b"a", b"b", b"c", b"d"]
        .map(|text| frame(TEXT, text))
        .into();
    client.send(texts.concat());
    assert_eq!(client.rest(), TRY_AGAIN_LATER);
    assert!(real_clock.now().since(begun_at) >= Nanos::from_millis(600));
    assert_eq!(site.upstream.next().body, texts[..3].concat());
}

#[test]
fn other_protocols_have_no_messages() {
    let upstream = Upstream::scripted(|mut served, report| {
        let mut request = served.request().unwrap();
        served.send(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        );
        let _ = served.reader.read_to_end(&mut request.body);
        report(request);
    });
    let limit = "units: { key: ip, rate: 2/h, count: cost messages }";
    let site = Site::start("", &[limit], upstream);
    let mut client = site.gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n");
    assert_eq!(client.head().unwrap().status(), 101);
    let text = vec![frame(TEXT, b"a"); 9].concat();
    client.send(&text);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"");
    assert_eq!(site.upstream.next().body, text);
}

#[test]
fn messages_over_http2() {
    let site = site(b"");
    http2::run(async {
        let mut client = http2::Client::connect(site.gateway.address).await;
        let request = http2::request("CONNECT", "/chat")
            .extension(h2::ext::Protocol::from_static("websocket"))
            .body(())
            .unwrap();
        while !client.send.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let (answer, mut stream) = client.begin(request, false);
        let response = answer.await.unwrap();
        assert_eq!(response.status(), 200);
        stream
            .send_data(vec![frame(TEXT, b"a"); 5].concat().into(), false)
            .unwrap();
        let answer = http2::whole(response).await.unwrap();
        assert_eq!(&answer.body[..], TRY_AGAIN_LATER);
    });
    assert_eq!(
        site.upstream.next().body,
        vec![frame(TEXT, b"a"); 4].concat()
    );
}

#[test]
fn a_shadow_limit_ends_no_connection() {
    let limit = "units: { key: ip, rate: 2/h, count: cost messages, mode: shadow }";
    let text = frame(TEXT, b"a");
    let unmasked = b"\x81\x05hello".to_vec();
    for (frames, refused) in [
        (vec![text.clone(); 5], 4),
        ([vec![text.clone(); 2], vec![unmasked, text]].concat(), 1),
    ] {
        let site = Site::start("", &[limit], server(b""));
        let mut client = open(&site);
        client.send(frames.concat());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.rest(), b"");
        assert_eq!(site.upstream.next().body, frames.concat());
        assert_eq!(site.decisions("units"), [2, 0, 0, refused]);
    }
}

/// The line in the log is of the handshake, unless a message is refused.
#[test]
fn admitted_messages_leave_the_log_alone() {
    let limit = "units: { key: ip, rate: 1/h, count: cost messages, throttle: soft 300% }";
    let site = Site::start("access_log: access.log\n", &[limit], server(b""));
    let mut client = open(&site);
    client.send(vec![frame(TEXT, b"a"); 2].concat());
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"");
    assert_eq!(site.decisions("units"), [1, 2, 0, 0]);
    let log = site.gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the log has the tunnel", || read().contains("/chat"));
    assert!(!read().contains("\"standing\":\"over\""), "{}", read());
}
