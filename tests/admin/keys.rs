//! Keys by name: whatever bytes are in a name, what the gateway prints of its key finds that key and no other.

use serde_json::Value;

use crate::common::child::Server;
use crate::common::{Upstream, wait_until, write};
use crate::json;

const GATEWAY: &str = "\
admin: 127.0.0.1:0
identity:
  user: { header: x-user, from: [127.0.0.0/8] }
  token: { header: x-key }
";
const POLICY: &str = "\
match: /**
upstream: up
limits:
  one: { key: user, rate: 3/h }
  both: { key: [user, token], rate: 3/h }
";

/// Users and their tokens; some look like the keys of others.
const CLIENTS: [(&str, &str); 14] = [
    ("alice", "k"),
    ("CN=alice,O=Example", "k"),
    ("a", "z"),
    ("a,token=z", "k"),
    ("alice,user=bob", "k"),
    ("user=alice", "k"),
    ("100%", "k"),
    ("a%2Cb", "k"),
    ("a,b", "k"),
    ("a~2Cb", "k"),
    ("#0123456789abcdef", "k"),
    ("spiffe://a/b?c#d&e+f g", "k"),
    ("\"é\"\\", "k"),
    ("..", "k"),
];

/// As a client of HTTP writes any text in a URL.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn status(server: &Server, (user, token): (&str, &str)) -> u16 {
    let mut client = server.connect();
    client.send(format!(
        "GET / HTTP/1.1\r\nhost: t\r\nx-user: {user}\r\nx-key: {token}\r\n\r\n"
    ));
    client.answer().status()
}

fn get(server: &Server, path: &str) -> Value {
    let answer = server.ask("GET", path, "");
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    json(&answer)
}

/// The limits and keys that were refused, sorted.
fn listed(server: &Server) -> Vec<(String, String)> {
    let top = get(server, "/v1/record/top?from=-1m&of=refused&most=100");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let keys = top["keys"].as_array().unwrap().iter();
    let mut keys: Vec<_> = keys
        .map(|listed| (text(&listed["limit"]), text(&listed["key"])))
        .collect();
    keys.sort();
    keys
}

#[test]
fn every_key_that_is_printed_is_found_and_forgotten() {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    write(&folder, upstream.address, GATEWAY, &[("all", POLICY)]);
    let server = Server::start(folder.path(), true);
    for client in CLIENTS {
        let statuses = [(); 4].map(|()| status(&server, client));
        assert_eq!(statuses, [200, 200, 200, 429], "{client:?}");
    }
    wait_until("all are listed", || {
        listed(&server).len() == 2 * CLIENTS.len()
    });
    let all = listed(&server);
    let alice = ("one".to_owned(), "user=alice".to_owned());
    assert!(all.contains(&alice), "plain names are as they are: {all:?}");
    let named = ("one".to_owned(), "user=CN=alice~2CO=Example".to_owned());
    assert!(all.contains(&named), "{all:?}");
    let path = |limit: &str, key: &str| format!("/v1/limits/{limit}/keys/{}", escaped(key));
    let left = |limit: &str, key: &str| {
        let found = get(&server, &path(limit, key));
        found["limits"][0]["remaining"].clone()
    };
    for (limit, key) in &all {
        assert_eq!(left(limit, key), 0, "{limit} {key}");
        let query = format!("/v1/record/key?from=-1m&key={}", escaped(key));
        let found = get(&server, &query);
        assert_eq!(
            found["limits"][0]["remaining"], 0,
            "{limit} {key}: {found:#}"
        );
        // A refusal stands in the record once its second is over.
        wait_until(key, || {
            let found = get(&server, &query);
            let refused = found["refused"].as_array().unwrap().iter();
            refused.filter_map(Value::as_u64).sum::<u64>() == 1
        });
    }
    for (number, (limit, key)) in all.iter().enumerate() {
        let answer = server.ask("DELETE", &path(limit, key), "");
        assert_eq!(json(&answer)["forgotten"], 1, "{limit} {key}");
        for (other, (limit, key)) in all.iter().enumerate() {
            let expected = if other <= number { 3 } else { 0 };
            assert_eq!(left(limit, key), expected, "{limit} {key}");
        }
    }
    for client in CLIENTS {
        assert_eq!(status(&server, client), 200, "{client:?}");
    }
    // A name without escapes is found where it can be read in one way only.
    assert_eq!(left("one", "user=CN=alice,O=Example"), 2);
    let answer = server.ask("GET", &path("one", "user=alice,user=bob"), "");
    assert_eq!(answer.status(), 400);
    assert!(json(&answer)["detail"].is_string());
}

/// A key is printed by the identity that counted the client.
#[test]
fn keys_with_alternatives_and_keys_of_everyone_are_found() {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    let policy = "match: /**\nupstream: up\nlimits:\n  caller: { key: user or token, rate: 1/h }\n  \
                  all: { key: everyone, rate: 3/h }\n";
    write(&folder, upstream.address, GATEWAY, &[("all", policy)]);
    let server = Server::start(folder.path(), true);
    let with_token = |token: &str| {
        let mut client = server.connect();
        client.send(format!(
            "GET / HTTP/1.1\r\nhost: t\r\nx-key: {token}\r\n\r\n"
        ));
        client.answer().status()
    };
    assert_eq!(
        [("alice", "z"), ("alice", "k")].map(|client| status(&server, client)),
        [200, 429]
    );
    assert_eq!(
        [with_token("k"), with_token("k"), with_token("z")],
        [200, 429, 200]
    );
    assert_eq!(with_token("y"), 429, "all have used up what they share");
    wait_until("all are listed", || listed(&server).len() == 3);
    for (limit, key) in listed(&server) {
        let path = format!("/v1/limits/{limit}/keys/{}", escaped(&key));
        assert_eq!(
            get(&server, &path)["limits"][0]["remaining"],
            0,
            "{limit} {key}"
        );
        assert_eq!(
            json(&server.ask("DELETE", &path, ""))["forgotten"],
            1,
            "{limit} {key}"
        );
    }
    assert_eq!(with_token("y"), 200);
    let limits = get(&server, "/v1/limits");
    let limits = limits["limits"].as_array().unwrap().iter();
    let counts_by: Vec<&Value> = limits.map(|limit| &limit["counts_by"]).collect();
    assert_eq!(
        counts_by,
        [
            &serde_json::json!(["user or token"]),
            &serde_json::json!(["everyone"])
        ]
    );
}

/// A key is shown by the numbers that held for it, and its plan is not part of it.
#[test]
fn a_key_is_shown_by_its_plan() {
    let upstream = Upstream::plain();
    let folder = tempfile::tempdir().unwrap();
    let plans = "  plan: { header: x-plan, from: [127.0.0.0/8], default: free }\n\
                 plans: { free: { multiply: 1 }, gold: { multiply: 5 } }\n";
    let policy =
        "match: /**\nupstream: up\nlimits: { one: { key: user, rate: 3/h, plans: true } }\n";
    // Each worker tells for itself, and one that tells late would be taken for the last.
    let gateway = format!("workers: 1\n{GATEWAY}{plans}");
    write(&folder, upstream.address, &gateway, &[("all", policy)]);
    let server = Server::start(folder.path(), true);
    let ask = |plan: &str| {
        let mut client = server.connect();
        client.send(format!(
            "GET / HTTP/1.1\r\nhost: t\r\nx-user: alice\r\nx-plan: {plan}\r\n\r\n"
        ));
        client.answer().status()
    };
    let numbers = |path: &str| {
        let limit = &get(&server, path)["limits"][0];
        (limit["quota"].clone(), limit["remaining"].clone())
    };
    let shown = |key: &str| numbers(&format!("/v1/limits/one/keys/{key}"));
    assert_eq!([(); 4].map(|()| ask("gold")), [200; 4]);
    wait_until("its plan is known", || {
        shown("user=alice") == (15.into(), 11.into())
    });
    let recorded = numbers("/v1/record/key?from=-1m&key=user=alice");
    assert_eq!(recorded, (15.into(), 11.into()));
    assert_eq!(shown("user=alice,plan=free").0, 3);
    assert_eq!(shown("user=bob"), (3.into(), 3.into()));
    // Right after one another: what the first one was counted by is not told yet.
    assert_eq!((ask("gold"), ask("free")), (200, 429));
    wait_until("its plan is another", || shown("user=alice").0 == 3);
}
