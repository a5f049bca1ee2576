//! The sample policies before real clients: no shape of a body dodges those by email.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::Read;

use common::{Gateway, Message, Upstream, status};
use serde_json::Value;

const GATEWAY: &str = "\
admin: off
upstreams: { shop: \"http://{upstream}\" }
identity: { ip: { trusted_proxies: [127.0.0.0/8] }, email: { body: email } }
";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const ANN: &str = r#"{"email": "ann@example.com"}"#;

/// A sample before a server that answers 401 to all.
fn start(sample: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::answering(|_| status(401));
    let policy = std::fs::read_to_string(format!("policies/{sample}.yaml")).unwrap();
    let gateway = Gateway::start(upstream.address, GATEWAY, &[(sample, &policy)]);
    (gateway, upstream)
}

/// A POST from an address of its own.
fn post(gateway: &Gateway, path: &str, from: u32, kind: &str, body: &str) -> Message {
    let mut client = gateway.connect();
    let length = body.len();
    client.send(format!(
        "POST {path} HTTP/1.1\r\nhost: t\r\nx-forwarded-for: 203.0.113.{from}\r\n\
         content-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    ));
    client.answer()
}

/// The limits that refused, as the client is told.
#[track_caller]
fn violated(answer: &Message) -> Vec<Value> {
    assert_eq!(answer.status(), 429, "{}", answer.text());
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let names = body["violated-policies"].as_array();
    names.cloned().unwrap_or_default()
}

/// Whoever asks, so many requests about one account reach the server, and none without an account.
#[track_caller]
fn check(sample: &str, most: u32, refused_by: &[&str]) {
    let (gateway, upstream) = start(sample);
    let path = format!("/{sample}");
    for number in 1..=most + 3 {
        let answer = post(&gateway, &path, number, JSON, ANN);
        if number > most {
            assert_eq!(violated(&answer), refused_by, "{sample}, {number}");
        } else {
            assert_eq!(answer.status(), 401, "{sample}, {number}");
        }
    }
    assert_eq!(upstream.drain().len(), most as usize, "{sample}");

    let large = format!("{{\"pad\": \"{}\", {}", "x".repeat(64 * 1024), &ANN[1..]);
    let gzip = format!("{JSON}\r\ncontent-encoding: gzip");
    let twice = r#"{"email": "x@example.com", "email": "ann@example.com"}"#;
    for (kind, body, status) in [
        (JSON, "{}", 401),
        (JSON, "", 401),
        (JSON, twice, 400),
        (JSON, &ANN.replace('"', "'"), 400),
        (FORM, "email=ann%40example.com&email=x%40example.com", 400),
        (FORM, "email=x%40example.com&+email=ann%40example.com", 400),
        (&gzip, ANN, 400),
        (JSON, &large, 400),
    ] {
        let answer = post(&gateway, &path, 100, kind, body);
        let what = format!("{sample}, {kind}: {body:.80}");
        assert_eq!(answer.status(), status, "{what}");
        assert!(upstream.drain().is_empty(), "it reached the server: {what}");
    }
    // Other spellings are the same account.
    let multipart = "--x\r\ncontent-disposition: form-data; name=\"email\"\r\n\r\n\
                     ann@example.com\r\n--x--\r\n";
    for (kind, body) in [
        (JSON, r#"{"email": " ANN@Example.com "}"#),
        (JSON, r#"{"email": ["ann@example.com"]}"#),
        ("text/plain", ANN),
        (FORM, "email=Ann%40example.com"),
        ("multipart/form-data; boundary=x", multipart),
    ] {
        let answer = post(&gateway, &path, 101, kind, body);
        assert_eq!(violated(&answer), refused_by, "{sample}, {body}");
    }
    let other = post(&gateway, &path, 102, FORM, "email=bob%40example.com");
    assert_eq!((other.status(), upstream.drain().len()), (401, 1));
}

#[test]
fn a_search_for_anonymous_clients_and_for_users() {
    let upstream = Upstream::plain();
    let policy = std::fs::read_to_string("policies/search.yaml").unwrap();
    let gateway = "\
upstreams: { shop: \"http://{upstream}\" }
identity:
  user: { header: x-user, from: [127.0.0.0/8] }
  plan: { header: x-plan, from: [127.0.0.0/8], default: free }
plans: { free: { multiply: 1 }, silver: { multiply: 3 }, gold: { multiply: 10 } }
";
    let gateway = Gateway::start(upstream.address, gateway, &[("search", &policy)]);
    let check = |fields: &str, quota: usize, refused_by: &str| {
        let mut client = gateway.connect();
        for number in 0..=quota {
            client.send(format!("GET /search HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
            let response = client.answer();
            match number < quota {
                true => assert_eq!(response.status(), 200, "{fields} {number}"),
                false => assert_eq!(violated(&response), [refused_by], "{fields}"),
            }
        }
    };
    check("", 10, "anonymous");
    check("x-user: ann\r\n", 60, "signed-in");
    check("x-user: bob\r\nx-plan: silver\r\n", 120, "signed-in");
}

/// A gateway with a sample before it, whose users a trusted field names.
fn start_with_users(sample: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::plain();
    (gateway_with_users(sample, &upstream), upstream)
}

/// A gateway with a sample before this server.
fn gateway_with_users(sample: &str, upstream: &Upstream) -> Gateway {
    let policy = std::fs::read_to_string(format!("policies/{sample}.yaml")).unwrap();
    let gateway = "\
upstreams: { shop: \"http://{upstream}\" }
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  user: { header: x-user, from: [127.0.0.0/8] }
  tool: { body: params.name }
  place: { networks: { office: [192.0.2.0/24], partner: [198.51.100.0/25] } }
";
    Gateway::start(upstream.address, gateway, &[(sample, &policy)])
}

#[test]
fn tools_for_language_models() {
    let (gateway, _upstream) = start_with_users("mcp");
    let call = |user: &str, tool: &str| {
        let body = format!("{{\"method\": \"tools/call\", \"params\": {{\"name\": \"{tool}\"}}}}");
        let mut client = gateway.connect();
        client.send(format!(
            "POST /mcp HTTP/1.1\r\nhost: t\r\n{user}content-type: {JSON}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        client.answer()
    };
    let ann = "x-user: ann\r\n";
    for tool in [
        "web_search",
        "run_code",
        "web_search",
        "run_code",
        "web_search",
    ] {
        assert_eq!(call(ann, tool).status(), 200);
    }
    assert_eq!(violated(&call(ann, "run_code")), ["costly"]);
    for _ in 0..60 {
        assert_eq!(call(ann, "read_file").status(), 200);
    }
    assert_eq!(violated(&call(ann, "read_file")), ["per-tool"]);
    assert_eq!(call("x-user: bob\r\n", "read_file").status(), 200);
    assert_eq!(call("", "read_file").status(), 401);
}

#[test]
fn batches_of_calls() {
    let (gateway, _upstream) = start_with_users("batches");
    let call = |user: &str, calls: usize| {
        let body = format!("[{}]", vec!["{\"query\": \"{ a }\"}"; calls].join(","));
        let mut client = gateway.connect();
        client.send(format!(
            "POST /graphql HTTP/1.1\r\nhost: t\r\n{user}content-type: {JSON}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
        client.answer()
    };
    let ann = "x-user: ann\r\n";
    assert_eq!(call(ann, 299).status(), 200);
    assert_eq!(violated(&call(ann, 2)), ["calls"]);
    assert_eq!(call(ann, 1).status(), 200);
    assert_eq!(violated(&call(ann, 1)), ["calls"]);
    assert_eq!(call("x-user: bob\r\n", 300).status(), 200);
    assert_eq!(call("", 1).status(), 401);
}

#[test]
fn messages_of_a_chat() {
    let upstream = Upstream::scripted(|mut served, report| {
        while let Ok(mut request) = served.request() {
            served.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
            let _ = served.reader.read_to_end(&mut request.body);
            report(request);
        }
    });
    let gateway = gateway_with_users("chat", &upstream);
    let mut client = gateway.connect();
    client.send(
        "GET /chat HTTP/1.1\r\nhost: t\r\nx-user: ann\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    );
    assert_eq!(client.head().unwrap().status(), 101);
    // A text without characters, of a client.
    let message = b"\x81\x80\x01\x02\x03\x04";
    for _ in 0..9 {
        client.send(message);
    }
    assert_eq!(client.rest(), b"\x88\x11\x03\xf5Try again later");
    let passed = upstream.next().body.len() / message.len();
    assert!((4..=8).contains(&passed), "{passed}");
}

#[test]
fn downloads_of_files() {
    let file = common::ok(&"a".repeat(6_000_000));
    let upstream = Upstream::answering(move |_| file.clone());
    let gateway = gateway_with_users("downloads", &upstream);
    let download = |user: &str| {
        let mut client = gateway.connect();
        client.send(format!("GET /files/a HTTP/1.1\r\nhost: t\r\n{user}\r\n"));
        client.answer()
    };
    let ann = "x-user: ann\r\n";
    // The second one has 4 MB left when it begins.
    assert_eq!(download(ann).body.len(), 6_000_000);
    assert_eq!(download(ann).body.len(), 6_000_000);
    assert_eq!(violated(&download(ann)), ["bytes"]);
    assert_eq!(download("x-user: bob\r\n").status(), 200);
    assert_eq!(download("").status(), 401);
}

#[test]
fn networks_of_partners() {
    let (gateway, _upstream) = start_with_users("partner");
    let get = |from: &str| {
        let mut client = gateway.connect();
        client.send(format!(
            "GET /partner/a HTTP/1.1\r\nhost: t\r\nx-forwarded-for: {from}\r\n\r\n"
        ));
        client.answer()
    };
    assert_eq!(get("203.0.113.1").status(), 401);
    for number in 0..600 {
        assert_eq!(
            get(&format!("198.51.100.{}", number % 100)).status(),
            200,
            "{number}"
        );
    }
    assert_eq!(violated(&get("198.51.100.101")), ["per-partner"]);
    assert_eq!(get("192.0.2.1").status(), 200);
}

#[test]
fn reset_mails() {
    check("password-reset", 5, &[]);
}

#[test]
fn failed_logins_of_one_account() {
    check("login", 20, &["failed-logins-account"]);
}
