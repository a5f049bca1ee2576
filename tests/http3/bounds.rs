//! What a client can make the gateway hold or do is bounded.

use serde_json::json;

use crate::common::{Gateway, Upstream};
use crate::site::{Client, start};

const OPEN: (&str, &str) = ("open", "match: /open/**\nupstream: up\n");
/// The code of a connection that ends because of its load.
const EXCESSIVE_LOAD: u32 = 0x107;

/// Checks that the gateway serves a new connection.
fn assert_serves(gateway: &Gateway) {
    let response = Client::connected(gateway).fetch_one(json!({ "path": "/open/" }));
    assert_eq!(response["status"], 200, "{response}");
}

#[test]
fn a_head_that_is_too_large_gets_431() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "", &[OPEN]);
    let mut client = Client::connected(&gateway);
    // Too long as it is sent, and once it is decoded.
    let long = "x".repeat(60_000);
    let fields = json!([["x-long", long], ["x-longer", long]]);
    let response = client.fetch_one(json!({ "path": "/open/", "fields": fields }));
    assert_eq!(response["status"], 431, "{response}");
    let many: Vec<_> = (0..101).map(|_| json!(["x", "y"])).collect();
    let response = client.fetch_one(json!({ "path": "/open/", "fields": many }));
    assert_eq!(response["status"], 431, "{response}");
    let long_path = format!("/open/{}", "p".repeat(17_000));
    assert_eq!(
        client.fetch_one(json!({ "path": long_path }))["status"],
        414
    );
    assert_eq!(client.fetch_one(json!({ "path": "/open/" }))["status"], 200);
}

#[test]
fn streams_that_are_reset_at_once_end_the_connection() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "", &[OPEN]);
    let mut client = Client::connected(&gateway);
    let opened = client.ask(json!({ "do": "flood", "count": 10_000, "path": "/open/" }));
    assert!(opened["opened"].as_u64().unwrap() < 2000, "{opened}");
    assert_eq!(
        client.ask(json!({ "do": "closed" }))["code"],
        EXCESSIVE_LOAD
    );
    assert_serves(&gateway);
}

#[test]
fn heads_that_stay_incomplete_are_dropped() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "timeouts: { header: 2s }\n", &[OPEN]);
    let mut client = Client::connected(&gateway);
    // HEADERS of 60,000 bytes, of which 59,000 come: more than fits on 128 streams, so some are rejected.
    let answer =
        client.ask(json!({ "do": "raw", "hex": "018000ea60", "zeros": 59_000, "count": 128 }));
    let streams = answer["streams"].as_array().unwrap().clone();
    let mut codes: Vec<u64> = streams
        .iter()
        .map(|stream| {
            let ended = client.ask(json!({ "do": "wait", "stream": stream }));
            ended["reset"].as_u64().unwrap_or_else(|| panic!("{ended}"))
        })
        .collect();
    codes.sort_unstable();
    codes.dedup();
    // Rejected for memory, and late.
    assert_eq!(codes, [0x10b, 0x10d]);
    assert_serves(&gateway);
}

#[test]
fn broken_rules_end_the_connection() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "", &[OPEN]);
    let cases = [
        ("DATA before a head", "000161", false, 0x105),
        ("a frame of HTTP/2", "0600", false, 0x105),
        ("SETTINGS on a request", "0400", false, 0x105),
        ("a reference to a dynamic table", "0103000080", false, 0x200),
        ("an incomplete frame", "0105", false, 0x106),
        ("a second control stream", "000400", true, 0x103),
        ("a push", "0100", true, 0x103),
    ];
    for (what, hex, one_way, code) in cases {
        let mut client = Client::connected(&gateway);
        client.ask(json!({ "do": "raw", "hex": hex, "one_way": one_way, "end": !one_way }));
        let end = client.ask(json!({ "do": "closed" }));
        assert_eq!(end["code"], code, "{what}: {end}");
    }
    assert_serves(&gateway);
}

/// 64 handshakes of a worker wait for clients that have not shown that packets reach them. Then clients must show it first.
#[test]
fn many_open_handshakes_make_clients_prove_their_addresses() {
    let upstream = Upstream::plain();
    let gateway = start(
        &upstream,
        "workers: 1\ntimeouts: { header: 60s }\n",
        &[OPEN],
    );
    let port = gateway.address.port();
    let mut client = Client::start(gateway.folder.path());
    let before = client.connect(port);
    assert_eq!(before["retries"], 0, "{before}");
    assert_eq!(
        client.ask(json!({ "do": "begin", "port": port, "count": 63 })),
        json!({})
    );
    assert_eq!(client.connect(port)["retries"], 0);
    // Some packets may be lost.
    let is_proven = (0..10).any(|_| {
        client.ask(json!({ "do": "begin", "port": port, "count": 1 }));
        client.connect(port)["retries"] == 1
    });
    assert!(is_proven);
    assert_eq!(client.fetch_one(json!({ "path": "/open/" }))["status"], 200);
}

#[test]
fn connections_of_an_address_have_a_bound() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "connections: { per_ip: 2 }\n", &[OPEN]);
    let port = gateway.address.port();
    let mut client = Client::connected(&gateway);
    for name in ["second", "third"] {
        client.ask(json!({ "do": "connect", "port": port, "name": "test", "as": name }));
    }
    let end = client.ask(json!({ "do": "closed", "as": "third" }));
    assert_eq!(end["code"], EXCESSIVE_LOAD, "{end}");
    assert_eq!(client.fetch_one(json!({ "path": "/open/" }))["status"], 200);
}
