//! Calls whose frames come late, are taken back, or come while the gateway ends. A client of plain frames sends them.

use std::net::SocketAddr;
use std::thread;

use rustix::process::Signal;
use serde_json::json;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::base::proto_message::ProtoMessage;
use tollgate::http::http2::hpack::Decoder;
use tollgate::serve::decide::grpc::frame_message;

use super::common::raw::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, Raw, block, frame,
};
use super::common::redis::Redis;
use super::common::{Gateway, assert_contains, wait_until};
use super::{Asker, DOOR, start, write};

const OK: u8 = 1;
const OVER_LIMIT: u8 = 2;
const SERVING: u8 = 1;
const NOT_SERVING: u8 = 2;

pub const RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// The code of HTTP/2 with which Envoy takes a call back.
const CANCEL: u32 = 8;

/// A connection of plain frames, and the identifier of its next stream.
pub struct Connection {
    pub raw: Raw,
    next_id: u32,
    decoder: Decoder,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Connection {
        Connection {
            raw: Raw::connect(address, &[]),
            next_id: 1,
            decoder: Decoder::default(),
        }
    }

    /// The bytes of the head of a call, and its stream.
    fn head(&mut self, path: &str) -> (Vec<u8>, u32) {
        let fields = [("content-type", "application/grpc"), ("te", "trailers")];
        self.head_with("POST", path, &fields)
    }

    /// The bytes of the head of any request, and its stream.
    pub fn head_with(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> (Vec<u8>, u32) {
        let id = self.next_id;
        self.next_id += 2;
        let usual = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "test"),
            (":path", path),
        ];
        let head = block(&[&usual, fields].concat());
        (frame(HEADERS, END_HEADERS, id, &head), id)
    }

    /// The fields of the next block of fields on a stream, each as `name: value`. All blocks before it must have been read so.
    pub fn fields(&mut self, id: u32) -> Vec<String> {
        loop {
            let frame = self.raw.next(HEADERS).expect("the connection stays open");
            let mut fields = Vec::new();
            let decoded = self.decoder.decode(&frame.payload, |field| {
                let [name, value] = [field.name, field.value].map(String::from_utf8_lossy);
                fields.push(format!("{name}: {value}"));
            });
            decoded.expect("a block of fields");
            if frame.stream == id {
                return fields;
            }
        }
    }

    /// Sends the head of a call. Returns its stream.
    pub fn send_head(&mut self, path: &str) -> u32 {
        let (head, id) = self.head(path);
        self.raw.send(&head);
        id
    }

    /// Sends the message of a call, and returns the first number of the response.
    pub fn finish(&mut self, id: u32, message: &[u8]) -> u8 {
        self.raw.send(&message_frame(id, message));
        loop {
            let frame = self.raw.frame().expect("the connection stays open");
            if frame.stream == id && frame.kind == DATA {
                // Behind the prefix and the key of the first field.
                return frame.payload[6];
            }
            assert!(frame.stream != id || frame.kind == HEADERS, "{frame:?}");
            assert_ne!(frame.kind, GOAWAY, "{frame:?}");
        }
    }

    /// The code of the decision about `a=value`.
    pub fn decide(&mut self, value: &str) -> u8 {
        let id = self.send_head(RATE_LIMIT);
        self.finish(id, &request(value))
    }

    /// What the service of health says.
    fn health(&mut self) -> u8 {
        let id = self.send_head(HEALTH);
        self.finish(id, b"")
    }
}

/// The frame with the whole message of a call.
fn message_frame(id: u32, message: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, id, &frame_message(message))
}

fn reset_frame(id: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes())
}

/// A request with the descriptor `a=value` in the domain `edge`.
pub fn request(value: &str) -> Vec<u8> {
    let entry = ProtoMessage::default()
        .with_string(1, "a")
        .with_string(2, value);
    let descriptor = ProtoMessage::default().with_message(1, &entry);
    let request = ProtoMessage::default().with_string(1, "edge");
    request.with_message(2, &descriptor).into_bytes()
}

/// A policy that admits so many of each value of `a`.
pub fn policy(rate: &str) -> String {
    format!("domain: edge\nentries: {{ a: any }}\nlimits: {{ a: {{ key: a, rate: {rate} }} }}\n")
}

#[test]
fn a_call_is_counted_when_its_message_has_come() {
    let folder = write(DOOR, &[("a", &policy("1/2s"))]);
    let clock = Clock::manual(Nanos::from_secs(1_800_000_000));
    let gateway = Gateway::start_in(folder, clock.clone());
    let mut caller = Connection::open(gateway.address);
    let late = caller.send_head(RATE_LIMIT);
    // The head was read before this call.
    assert_eq!(caller.decide("x"), OK);
    clock.advance(Nanos::from_secs(3));
    assert_eq!(caller.finish(late, &request("x")), OK);
    assert_eq!(caller.decide("x"), OVER_LIMIT);
    clock.advance(Nanos::from_secs(1));
    assert_eq!(caller.decide("x"), OVER_LIMIT);
}

/// All clients of a proxy share its connection. The proxy takes the calls of clients that leave back.
#[test]
fn resets_of_one_client_end_no_calls_of_others() {
    const ROUNDS: u32 = 12;
    const WITHOUT_MESSAGE: u32 = 2400;
    const WITH_MESSAGE: u32 = 100;
    const AT_ONCE: u32 = 1000;
    let gateway = start(
        "decide: { grpc: 127.0.0.1:0 }\nadmin: off\naccess_log: off\nworkers: 1\n",
        &[("a", &policy("100000/h"))],
    );
    let mut caller = Connection::open(gateway.address);
    for _ in 0..ROUNDS {
        let mut frames = Vec::new();
        for index in 0..WITHOUT_MESSAGE + WITH_MESSAGE {
            let (head, id) = caller.head(RATE_LIMIT);
            frames.extend(head);
            if index >= WITHOUT_MESSAGE {
                frames.extend(message_frame(id, &request("gone")));
            }
            frames.extend(reset_frame(id));
        }
        let mut resets = Vec::new();
        for _ in 0..AT_ONCE {
            let (head, id) = caller.head(RATE_LIMIT);
            frames.extend(head);
            resets.extend(reset_frame(id));
        }
        frames.extend(resets);
        caller.raw.send(&frames);
        assert_eq!(caller.decide("patient"), OK);
    }
    let mut asker = Asker::of(&gateway);
    let left = asker.decide(&[&[("a", "patient")]]);
    assert_eq!(left["statuses"][0]["remaining"], 100_000 - ROUNDS - 1);
    assert!(
        !gateway
            .app
            .metrics()
            .contains("tollgate_http2_floods_total 1")
    );
}

/// Calls that wait for a store end when they are reset, and the units that the store took for them are given back.
#[test]
fn resets_end_calls_that_wait_for_their_store() {
    const CALLS: u32 = 100;
    let redis = Redis::start();
    let door = format!(
        "{DOOR}access_log: off\nstore: {{ address: \"{}\", budget: 1s }}\n",
        redis.url()
    );
    let gateway = start(&door, &[("a", &policy("1000/h, sharing: strict"))]);
    let says = |text: &str| gateway.app.metrics().contains(text);
    wait_until("the store decides", || says("tollgate_shared_store_up 1\n"));
    let scripts = redis.scripts();
    redis.signal(Signal::STOP);
    let mut caller = Connection::open(gateway.address);
    let mut ids = Vec::new();
    for _ in 0..CALLS {
        let id = caller.send_head(RATE_LIMIT);
        caller.raw.send(&message_frame(id, &request("gone")));
        ids.push(id);
    }
    // The calls were begun before this is acknowledged.
    caller.raw.send(&frame(PING, 0, 0, b"12345678"));
    assert!(caller.raw.next(PING).is_some());
    ids.iter().for_each(|id| caller.raw.send(&reset_frame(*id)));
    let gone = format!(r#"outcome="gone"}} {CALLS}"#);
    wait_until("all calls are gone", || says(&gone));
    redis.signal(Signal::CONT);
    assert_eq!(caller.decide("patient"), OK);
    let mut asker = Asker::of(&gateway);
    let look =
        json!({ "domain": "edge", "descriptors": [{ "entries": [["a", "gone"]], "hits": 0 }] });
    wait_until("the store has seen all calls", || {
        redis.scripts() >= scripts + u64::from(CALLS)
    });
    wait_until("all units are given back", || {
        asker.ask(look.clone())["statuses"][0]["remaining"] == 1000
    });
}

/// Each call pays for one reset only.
#[test]
fn other_frames_without_use_end_the_connection() {
    let gateway = start(DOOR, &[("a", &policy("1000/h"))]);
    let mut caller = Connection::open(gateway.address);
    assert_eq!(caller.decide("x"), OK);
    caller.raw.flood(&reset_frame(1).repeat(100), 100);
    assert!(caller.raw.next(GOAWAY).is_some());
    let mut other = Connection::open(gateway.address);
    assert_eq!(other.decide("x"), OK);
}

#[test]
fn calls_that_were_taken_back_are_recorded_as_gone() {
    let door = format!("{DOOR}access_log: {{ file: access.log }}\n");
    let gateway = start(&door, &[("a", &policy("1000/h"))]);
    let mut caller = Connection::open(gateway.address);
    let id = caller.send_head(RATE_LIMIT);
    caller.raw.send(&reset_frame(id));
    caller.send_head(RATE_LIMIT);
    drop(caller);
    let log = gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("both calls are logged", || read().lines().count() == 2);
    for line in read().lines() {
        assert_contains(line, &[r#""outcome":"gone""#, "client"]);
    }
    let mut caller = Connection::open(gateway.address);
    assert_eq!(caller.decide("x"), OK);
    drop(caller);
    wait_until("the call is logged", || read().lines().count() == 3);
    assert_contains(&read(), &[r#""outcome":"admitted""#]);
}

#[test]
fn the_health_service_says_when_the_gateway_ends() {
    let gateway = start(DOOR, &[("a", &policy("1000/h"))]);
    let mut asker = Asker::of(&gateway);
    let mut health = || asker.ask(json!({ "method": HEALTH, "raw": "", "health": true }));
    assert_eq!(health()["status"], SERVING);
    gateway.app.announce_end();
    assert_eq!(health()["status"], NOT_SERVING);
    assert_eq!(asker.decide(&[&[("a", "x")]])["overall"], OK);
    drop(asker);
    let mut caller = Connection::open(gateway.address);
    assert_eq!(caller.health(), NOT_SERVING);
    thread::scope(|scope| {
        let draining = scope.spawn(|| gateway.app.drain());
        // As long as the ping beside it is not acknowledged, calls are served.
        assert!(caller.raw.next(GOAWAY).is_some());
        assert_eq!(caller.health(), NOT_SERVING);
        drop(caller);
        draining.join().unwrap();
    });
}
