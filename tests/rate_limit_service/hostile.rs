//! What hostile clients of a proxy that asks can bring about, and callers that break the protocol. Nothing of it is admitted
//! without a decision.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::common::{Gateway, wait_until};
use super::streams::{Connection, RATE_LIMIT};
use super::{Asker, DOOR, codes, request, start};

const OK: u64 = 1;
const OVER_LIMIT: u64 = 2;

const POLICY: &str = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 1/h } }\n";

/// The gateway file of the door, with an access log.
fn logged() -> String {
    format!("{DOOR}access_log: {{ file: access.log }}\n")
}

/// Waits until the access log says why calls were refused.
pub fn wait_for_reasons(gateway: &Gateway, reasons: &[&str]) {
    let log = gateway.folder.path().join("access.log");
    wait_until("the reasons are logged", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        reasons.iter().all(|reason| text.contains(reason))
    });
}

#[test]
fn values_that_clients_choose_are_counted_whatever_they_are() {
    let gateway = start(DOOR, &[("a", POLICY)]);
    let mut asker = Asker::of(&gateway);
    let long = "x".repeat(60_000);
    let values = [
        json!(""),
        json!(" "),
        json!("\u{0}"),
        json!({ "hex": "ff" }),
        json!(long),
        json!("a,b=c"),
    ];
    for value in values {
        let mut command = request(&[]);
        command["descriptors"] = json!([{ "entries": [["a", value]] }]);
        let first = asker.ask(command.clone());
        assert_eq!(first["overall"], OK, "{value:.20}");
        assert_eq!(asker.ask(command)["overall"], OVER_LIMIT, "{value:.20}");
    }
}

#[test]
fn what_is_too_large_for_a_decision_is_refused() {
    let gateway = start(&logged(), &[("a", POLICY)]);
    let mut asker = Asker::of(&gateway);
    let large = "x".repeat(70_000);
    let answer = asker.decide(&[&[("a", &large)]]);
    assert_eq!(
        (answer["overall"].as_u64(), answer["statuses"].clone()),
        (Some(OVER_LIMIT), json!([]))
    );
    let many: Vec<&[(&str, &str)]> = vec![&[("a", "x")]; 101];
    assert_eq!(asker.decide(&many)["overall"], OVER_LIMIT);
    wait_for_reasons(&gateway, &["larger than 65536 bytes", "100 descriptors"]);
    // None of these was counted.
    assert_eq!(asker.decide(&[&[("a", "x")]])["overall"], OK);
}

#[test]
fn a_hundred_descriptors_are_all_counted_and_too_many_counters_are_refused() {
    let limits = |count: usize| -> String {
        let limits = (0..count).map(|index| format!("  l{index}: {{ key: b, rate: 1/h }}\n"));
        format!(
            "domain: edge\nentries: {{ b: any }}\nlimits:\n{}",
            limits.collect::<String>()
        )
    };
    let gateway = start(&logged(), &[("a", POLICY), ("b", &limits(3))]);
    let mut asker = Asker::of(&gateway);
    let names: Vec<String> = (0..100).map(|index| format!("x{index}")).collect();
    let entries = |key: &'static str| -> Vec<[(&str, &str); 1]> {
        names.iter().map(|name| [(key, name.as_str())]).collect()
    };
    let of_a = entries("a");
    let descriptors: Vec<&[(&str, &str)]> = of_a.iter().map(|entries| &entries[..]).collect();
    assert_eq!(codes(&asker.decide(&descriptors)), [OK; 100]);
    for name in [&names[0], &names[63], &names[99]] {
        assert_eq!(asker.decide(&[&[("a", name)]])["overall"], OVER_LIMIT);
    }
    // 100 descriptors with three limits each have 300 counters.
    let of_b = entries("b");
    let descriptors: Vec<&[(&str, &str)]> = of_b.iter().map(|entries| &entries[..]).collect();
    assert_eq!(asker.decide(&descriptors)["overall"], OVER_LIMIT);
    wait_for_reasons(&gateway, &["more than 250 counters: send fewer"]);
    assert_eq!(asker.decide(&descriptors[..80])["overall"], OK);
}

#[test]
fn keys_that_occur_twice_match_a_list_only() {
    let pair = "domain: edge\nentries: { generic_key: [one, two] }\nlimits: { pair: { key: everyone, rate: 1/h } }\n";
    let gateway = start(DOOR, &[("a", POLICY), ("pair", pair)]);
    let mut asker = Asker::of(&gateway);
    let both = [("generic_key", "two"), ("generic_key", "one")];
    assert_eq!(asker.decide(&[&both])["overall"], OK);
    assert_eq!(asker.decide(&[&both])["overall"], OVER_LIMIT);
    for other in [
        &[("generic_key", "one")][..],
        &[("generic_key", "one"), ("generic_key", "one")],
    ] {
        assert_eq!(
            asker.decide(&[other])["statuses"][0].get("limit"),
            None::<&Value>
        );
    }
}

#[test]
fn malformed_messages_are_errors() {
    let gateway = start(DOOR, &[("a", POLICY)]);
    let mut asker = Asker::of(&gateway);
    for raw in [
        "ff",
        "0a",
        "0aff",
        "",
        "0a0465646765",
        "0b",
        "12",
        "0a046564676512ffffffff0f",
    ] {
        let answer = asker.ask(json!({ "raw": raw }));
        assert_eq!(answer["code"], "INVALID_ARGUMENT", "{raw}");
    }
}

#[test]
fn nothing_but_calls_of_grpc_is_served_here() {
    let http = "match: /**\nrespond: { status: 200, body: secret }\n";
    let door = format!("{DOOR}listen: 127.0.0.1:0\nupstreams: {{ up: [http://127.0.0.1:9] }}\n");
    let gateway = start(&door, &[("a", POLICY), ("http", http)]);
    let addresses = gateway.app.addresses();
    let door = addresses[1].tcp().unwrap();
    let mut caller = Connection::open(door);
    for (method, path, content_type, status) in [
        ("GET", "/", "application/grpc", 405),
        ("GET", RATE_LIMIT, "application/grpc", 405),
        ("POST", RATE_LIMIT, "text/plain", 415),
        ("POST", "/", "text/plain", 415),
    ] {
        let (head, id) = caller.head_with(method, path, &[("content-type", content_type)]);
        caller.raw.send(&head);
        let expected = [format!(":status: {status}"), "content-length: 0".into()];
        assert_eq!(caller.fields(id), expected, "{method} {path}");
    }
    assert_eq!(u64::from(caller.decide("x")), OK);
    // HTTP/1.1 is not spoken at all.
    let mut stream = TcpStream::connect(door).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    let text = String::from_utf8_lossy(&received).into_owned();
    assert!(!text.contains("secret") && !text.contains("200"), "{text}");
}
