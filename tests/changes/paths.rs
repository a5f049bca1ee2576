//! Paths of which a policy strips a prefix, or before which it puts one. Whatever the spelling, the upstream gets a path
//! below the prefix, or nothing.

use std::fs;

use crate::common::http2::{Client as Http2Client, run};
use crate::common::{Gateway, Upstream, wait_until};
use crate::gateway;

const LIMIT: &str = "limits: { few: { key: ip, rate: 1000000/h, algorithm: gcra } }\n";

pub fn start(upstream: &Upstream, more: &str) -> Gateway {
    let policy = |text: &str| format!("upstream: up\n{text}\n");
    let limited = |text: &str| format!("upstream: up\n{text}\n{LIMIT}");
    gateway(
        upstream.address,
        &format!("workers: 1\n{more}"),
        &[
            ("data", &limited("match: /data/**\nstrip: /data")),
            ("api", &limited("match: /api/**\nstrip: /api\nprefix: /v1")),
            (
                "deep",
                &limited("match: [/a/b/c, GET /a/b/**]\nstrip: /a/b"),
            ),
            ("pre", &limited("match: /pre/**\nprefix: /app")),
            ("all", &policy("match: /**")),
        ],
    )
}

/// The target that the upstream gets for a client's target; `None` if the client gets 400.
pub fn forwarded(gateway: &Gateway, upstream: &Upstream, target: &str) -> Option<String> {
    let mut client = gateway.connect();
    client.send(format!(
        "GET {target} HTTP/1.1\r\nhost: shop.example\r\n\r\n"
    ));
    match client.answer().status() {
        200 => {
            let start = upstream.next().start;
            let target = start.strip_prefix("GET ").unwrap();
            Some(target.strip_suffix(" HTTP/1.1").unwrap().to_owned())
        }
        400 => {
            assert!(upstream.drain().is_empty(), "{target}");
            None
        }
        other => panic!("{other} for {target}"),
    }
}

/// What is forwarded for a target. `attacks.rs` has those that are refused or have other policies.
const FORWARDED: [(&str, &str); 33] = [
    ("/data/x", "/x"),
    ("/data", "/"),
    ("/data/", "/"),
    ("/data?x=1", "/?x=1"),
    ("/data?", "/?"),
    ("/data/?a=/../b", "/?a=/../b"),
    ("/data/a/b?c=%2e%2e/", "/a/b?c=%2e%2e/"),
    ("/data/a%2fb", "/a%2fb"),
    ("/data/a;b=c", "/a;b=c"),
    ("/data/.well-known/x", "/.well-known/x"),
    ("/data/a..b/..c/d..", "/a..b/..c/d.."),
    ("/data/%41%20b", "/%41%20b"),
    ("/data/x%252fy", "/x%252fy"),
    ("/data/data/x", "/data/x"),
    ("/data/x//y", "/x//y"),
    ("/data/x/", "/x/"),
    ("/data/http://evil.example/", "/http://evil.example/"),
    ("http://shop.example/data/x?y", "/x?y"),
    ("http://shop.example/data", "/"),
    ("/api", "/v1"),
    ("/api/", "/v1/"),
    ("/api?a", "/v1?a"),
    ("/api/x", "/v1/x"),
    ("/api//x", "/v1//x"),
    ("/api/api", "/v1/api"),
    ("/a/b/c", "/c"),
    ("/a/b", "/"),
    ("/a/b/d/e", "/d/e"),
    ("/pre", "/app/pre"),
    ("/pre/x?y", "/app/pre/x?y"),
    ("/PRE/x", "/app/PRE/x"),
    ("//pre/x", "/app//pre/x"),
    ("/%70re/x", "/app/%70re/x"),
];

#[test]
fn each_target_is_forwarded_below_its_prefix() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "");
    let mut wrong = Vec::new();
    for (target, expected) in FORWARDED {
        let seen = forwarded(&gateway, &upstream, target);
        if seen.as_deref() != Some(expected) {
            wrong.push(format!("{target}: {seen:?}, not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The path as a server may read it: decoded so many times, with backslashes as slashes and without parameters.
fn resolve(path: &str, decodings: u32) -> Vec<String> {
    let mut path = path.to_owned();
    for _ in 0..decodings {
        for (escape, text) in [
            ("%2e", "."),
            ("%2f", "/"),
            ("%5c", "\\"),
            ("%3b", ";"),
            ("%25", "%"),
        ] {
            path = path.replace(escape, text);
        }
    }
    let mut segments = Vec::new();
    for segment in path.replace('\\', "/").split('/') {
        match segment.split(';').next().unwrap_or_default() {
            ".." => _ = segments.pop(),
            "." | "" => {}
            name => segments.push(name.to_owned()),
        }
    }
    segments
}

/// All paths of three such pieces stay below `/v1`, as often as a server decodes them.
#[test]
fn no_combination_leads_out_of_the_prefix() {
    const PIECES: [&str; 12] = [
        "/..",
        "/%2e%2e",
        "/.%2e;x",
        "%2f..",
        "/%252e%252e",
        "\\..",
        "%5c..",
        "/.",
        "/x",
        "//",
        "/..%3b",
        "%252f..",
    ];
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "");
    let mut forwarded_count = 0;
    for first in PIECES {
        for second in PIECES {
            for third in ["/..", "/x", "%2f%2e%2e", "//"] {
                let target = format!("/api{first}{second}{third}/y");
                let Some(seen) = forwarded(&gateway, &upstream, &target) else {
                    continue;
                };
                if seen == target {
                    // The policy of all paths has it.
                    continue;
                }
                forwarded_count += 1;
                for decodings in 0..3 {
                    let resolved = resolve(&seen, decodings);
                    assert_eq!(
                        resolved.first().map(String::as_str),
                        Some("v1"),
                        "{target}: {seen}"
                    );
                }
            }
        }
    }
    assert!(forwarded_count > 0);
}

/// A connection remembers heads. Each request has its own path even so.
#[test]
fn requests_in_turn_have_their_own_paths() {
    let upstream = Upstream::plain();
    let gateway = start(&upstream, "");
    let mut client = gateway.connect();
    for _ in 0..4 {
        for (target, expected) in [
            ("/data/a", "/a"),
            ("/data/a", "/a"),
            ("/data/b?c", "/b?c"),
            ("/data", "/"),
            ("/api/a", "/v1/a"),
            ("/other", "/other"),
        ] {
            assert_eq!(client.get(target).status(), 200);
            assert_eq!(upstream.next().start, format!("GET {expected} HTTP/1.1"));
        }
    }
    run(async {
        let mut client = Http2Client::connect(gateway.address).await;
        let answer = client.get("/data/a?b").await;
        assert_eq!(answer.status, 200);
    });
    assert_eq!(upstream.next().start, "GET /a?b HTTP/1.1");
}

/// The log knows the path of the client. A proxy cannot name another path to the upstream.
#[test]
fn logs_have_the_path_of_the_client_and_proxies_name_no_other() {
    let upstream = Upstream::plain();
    let more = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\naccess_log: { file: access.log, requests: all }\n";
    let gateway = start(&upstream, more);
    let mut client = gateway.connect();
    client.send(
        "GET /data/logged HTTP/1.1\r\nhost: t\r\nx-original-url: /data/logged\r\n\
         x-rewrite-url: /data/../x\r\nscript-name: /data\r\n\r\n",
    );
    assert_eq!(client.answer().status(), 200);
    let seen = upstream.next();
    assert_eq!(seen.start, "GET /logged HTTP/1.1");
    for name in ["x-original-url", "x-rewrite-url", "script-name"] {
        assert_eq!(seen.field(name), None, "{name}");
    }
    let log = gateway.folder.path().join("access.log");
    wait_until("the path is logged", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        log.contains("\"/data/logged\"")
    });
}
