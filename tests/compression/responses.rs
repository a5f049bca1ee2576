//! Which responses are compressed, and what becomes of their header fields.

use crate::common::http2::{self, run};
use crate::common::{Gateway, Upstream, wait_until};
use crate::{ALL, decompress, exchange, get, ok, text};

const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

const JSON: &str = "content-type: application/json\r\n";

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::start(upstream.address, "compress: true\n", &[("all", ALL)])
}

/// An upstream whose every response has these lines of fields and this body.
fn upstream(lines: &'static str, body: String) -> Upstream {
    Upstream::answering(move |_| ok(lines, &body))
}

#[test]
fn each_coding_is_read_as_it_was() {
    let body = text(20_000);
    let fields = "content-type: application/json\r\netag: \"v1\"\r\naccept-ranges: bytes\r\nvary: cookie\r\n";
    let upstream = upstream(fields, body.clone());
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    for coding in CODINGS {
        let answer = get(&mut client, "/", coding);
        assert_eq!(answer.field("content-encoding"), Some(coding));
        assert_eq!(answer.field("etag"), Some("W/\"v1\""));
        assert_eq!(answer.field("content-length"), None);
        assert_eq!(answer.field("accept-ranges"), None);
        let vary: Vec<_> = answer
            .fields
            .iter()
            .filter(|field| field.0 == "vary")
            .collect();
        assert_eq!((&*vary[0].1, &*vary[1].1), ("cookie", "accept-encoding"));
        assert!(
            answer.body.len() * 2 < body.len(),
            "{coding}: {}",
            answer.body.len()
        );
        assert!(
            decompress(coding, &answer.body) == body.as_bytes(),
            "{coding}"
        );
    }
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        for coding in CODINGS {
            let request = http2::request("GET", "/").header("accept-encoding", coding);
            let (answer, _) = client.begin(request.body(()).unwrap(), true);
            let answer = http2::whole(answer.await.unwrap()).await.unwrap();
            assert_eq!(answer.field("content-encoding"), Some(coding));
            assert_eq!(answer.field("content-length"), None);
            assert!(
                decompress(coding, &answer.body) == body.as_bytes(),
                "{coding}"
            );
        }
    });
}

#[test]
fn a_client_gets_what_it_accepts() {
    let upstream = upstream(JSON, text(100));
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    let hostile = format!("{}gzip;q=0.1", "gzop;q=abc,".repeat(1000));
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip;q=1.0, br;q=0.9", Some("gzip")),
        ("*", Some("zstd")),
        ("identity", None),
        ("gzip;q=abc", None),
        (";;;=,,q", None),
        ("", None),
        (&*hostile, Some("gzip")),
    ] {
        let answer = get(&mut client, "/", accepted);
        assert_eq!(answer.field("content-encoding"), expected, "{accepted}");
        assert_eq!(answer.field("vary"), Some("accept-encoding"), "{accepted}");
    }
    let answer = client.get("/");
    assert_eq!(answer.field("content-encoding"), None);
    assert_eq!(answer.field("vary"), Some("accept-encoding"));
    assert_eq!(answer.text(), text(100));
}

/// Each with whether `Vary` names `Accept-Encoding`, because another request might be compressed.
#[test]
fn other_responses_stay_as_they_are() {
    const RESPONSES: &[(&str, &str, bool)] = &[
        ("200 OK", "content-type: text/event-stream\r\n", false),
        ("200 OK", "content-type: application/grpc+json\r\n", false),
        ("200 OK", "content-type: image/png\r\n", false),
        ("200 OK", "", false),
        (
            "200 OK",
            "content-type: text/html\r\ncache-control: public, No-Transform\r\n",
            false,
        ),
        (
            "200 OK",
            "content-type: text/html\r\ncontent-encoding: gzip\r\n",
            true,
        ),
        (
            "200 OK",
            "content-type: text/html\r\ncontent-digest: sha-256=:a:\r\n",
            true,
        ),
        (
            "200 OK",
            "content-type: text/html\r\nrepr-digest: sha-256=:a:\r\n",
            true,
        ),
        (
            "206 Part",
            "content-type: text/html\r\ncontent-range: bytes 0-9/10\r\n",
            true,
        ),
        (
            "416 Range",
            "content-type: text/html\r\ncontent-range: bytes */10\r\n",
            true,
        ),
    ];
    let body = text(100);
    let sent = body.clone();
    let upstream = Upstream::answering(move |request| {
        let number = request.start.split(['/', ' ']).nth(2).unwrap();
        let (status, lines, _) = RESPONSES[number.parse::<usize>().unwrap()];
        ok(&format!("etag: \"v1\"\r\n{lines}"), &sent).replace("200 OK", status)
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    for (number, (_, lines, varies)) in RESPONSES.iter().enumerate() {
        let answer = get(&mut client, &format!("/{number}"), "gzip");
        let has_encoding = lines.contains("content-encoding");
        assert_eq!(
            answer.field("content-encoding").is_some(),
            has_encoding,
            "{lines}"
        );
        assert_eq!(answer.field("vary").is_some(), *varies, "{lines}");
        assert_eq!(answer.field("etag"), Some("\"v1\""), "{lines}");
        assert!(answer.body == body.as_bytes(), "{lines}");
    }
}

#[test]
fn content_that_is_short_stays_as_it_is() {
    let upstream = Upstream::answering(|request| {
        let bytes = request.start.split(['/', ' ']).nth(2).unwrap();
        ok(JSON, &"x".repeat(bytes.parse().unwrap()))
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    for (bytes, expected) in [(0, None), (1023, None), (1024, Some("gzip"))] {
        let answer = get(&mut client, &format!("/{bytes}"), "gzip");
        assert_eq!(answer.field("content-encoding"), expected, "{bytes}");
        assert_eq!(
            answer.field("vary").is_some(),
            expected.is_some(),
            "{bytes}"
        );
    }
}

#[test]
fn the_request_may_forbid_it() {
    let upstream = upstream(JSON, text(100));
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    let lines = "accept-encoding: gzip\r\ncache-control: no-transform\r\n";
    let answer = exchange(&mut client, "GET / HTTP/1.1", lines);
    assert_eq!(answer.field("content-encoding"), None);
    let answer = exchange(&mut client, "GET / HTTP/1.0", "accept-encoding: gzip\r\n");
    assert_eq!(answer.field("content-encoding"), None);
    assert_eq!(answer.text(), text(100));
}

#[test]
fn a_response_to_head_has_the_fields_of_get() {
    let upstream = Upstream::answering(|request| {
        let answer = ok("content-type: text/html\r\netag: \"v1\"\r\n", &text(100));
        match request.start.starts_with("HEAD") {
            true => answer.split_inclusive("\r\n\r\n").next().unwrap().into(),
            false => answer,
        }
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    for method in ["GET", "HEAD", "HEAD", "GET"] {
        let line = format!("{method} / HTTP/1.1");
        let answer = exchange(&mut client, &line, "accept-encoding: gzip\r\n");
        assert_eq!(answer.field("content-encoding"), Some("gzip"), "{method}");
        assert_eq!(answer.field("content-length"), None, "{method}");
        assert_eq!(answer.field("etag"), Some("W/\"v1\""), "{method}");
    }
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let request = http2::request("HEAD", "/").header("accept-encoding", "br");
        let (answer, _) = client.begin(request.body(()).unwrap(), true);
        let answer = http2::whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.field("content-encoding"), Some("br"));
        assert_eq!(
            (answer.field("content-length"), answer.body.len()),
            (None, 0)
        );
    });
}

#[test]
fn what_a_client_keeps_is_validated_by_its_weak_tag() {
    let upstream = Upstream::answering(|request| match request.field("if-none-match") {
        Some(tags) if tags.contains("\"v1\"") => {
            "HTTP/1.1 304 Not Modified\r\netag: \"v1\"\r\n\r\n".into()
        }
        _ => ok("content-type: text/html\r\netag: \"v1\"\r\n", &text(100)),
    });
    let gateway = gateway(&upstream);
    let mut client = gateway.connect();
    let tag = get(&mut client, "/", "gzip")
        .field("etag")
        .unwrap()
        .to_owned();
    let validate = |client: &mut _, tags: &str| {
        let lines = format!("accept-encoding: gzip\r\nif-none-match: {tags}\r\n");
        let answer = exchange(client, "GET / HTTP/1.1", &lines);
        let field = |name| answer.field(name).map(str::to_owned);
        (answer.status(), field("etag"), field("vary"))
    };
    let (status, kept_tag, vary) = validate(&mut client, &format!("\"v0\", {tag}"));
    assert_eq!((status, kept_tag), (304, Some(tag)));
    assert_eq!(vary.as_deref(), Some("accept-encoding"));
    let (status, kept_tag, vary) = validate(&mut client, "\"v1\"");
    assert_eq!(
        (status, kept_tag.as_deref(), vary),
        (304, Some("\"v1\""), None)
    );
}

#[test]
fn the_nearest_file_decides() {
    let upstream = upstream(JSON, text(100));
    let policies = [
        ("all", ALL),
        ("gzip", "match: /gzip\nupstream: up\ncompress: gzip\n"),
        ("own", "match: /own\nupstream: up\ncompress: off\n"),
        ("folder/_defaults", "compress: off\n"),
        ("folder/plain", "match: /plain\nupstream: up\n"),
        (
            "folder/listed",
            "match: /listed\nupstream: up\ncompress: [gzip, br]\n",
        ),
        (
            "here",
            "match: /here\nrespond: { status: 200, body: fine }\n",
        ),
    ];
    let gateway = Gateway::start(upstream.address, "compress: true\n", &policies);
    let mut client = gateway.connect();
    for (path, expected) in [
        ("/", Some("zstd")),
        ("/gzip", Some("gzip")),
        ("/own", None),
        ("/plain", None),
        ("/listed", Some("gzip")),
        ("/here", None),
    ] {
        let answer = get(&mut client, path, "zstd, br, gzip");
        assert_eq!(answer.field("content-encoding"), expected, "{path}");
        assert_eq!(answer.field("vary").is_some(), expected.is_some(), "{path}");
    }
    let gateway = Gateway::start(upstream.address, "", &[("all", ALL)]);
    let answer = get(&mut gateway.connect(), "/", "gzip");
    assert_eq!(answer.field("content-encoding"), None, "off by default");
}

/// What policies change of the response decides, not what the upstream said.
#[test]
fn changes_of_fields_come_first() {
    let upstream = upstream("", text(100));
    let typed = "match: /typed\nupstream: up\nresponse: { set: { content-type: text/html } }\n";
    let fixed = "match: /fixed\nupstream: up\nresponse: { set: { content-type: text/html, cache-control: no-transform } }\n";
    let policies = [("typed", typed), ("fixed", fixed)];
    let gateway = Gateway::start(upstream.address, "compress: true\n", &policies);
    let mut client = gateway.connect();
    let coding = |answer: crate::Message| answer.field("content-encoding").map(str::to_owned);
    assert_eq!(
        coding(get(&mut client, "/typed", "br")).as_deref(),
        Some("br")
    );
    assert_eq!(coding(get(&mut client, "/fixed", "br")), None);
}

/// Limits count what the upstream sent, compressed or not.
#[test]
fn costs_are_those_of_the_upstream() {
    let mut body = text(1000);
    body.insert_str(0, "{\"usage\":{\"total_tokens\":42}}\n");
    let content_bytes = body.len();
    let upstream = upstream("content-type: application/x-ndjson\r\n", body);
    let tokens = "rate: 1000/h, count: cost json usage.total_tokens, reserve: 50";
    let bytes = "rate: 1000000/h, count: cost bytes out";
    let policy = |path: &str, compress: &str, limit: &str| {
        let limits = format!("limits: {{ {path}: {{ key: ip, {limit} }} }}");
        format!("match: /{path}\nupstream: up\ncompress: {compress}\n{limits}\n")
    };
    let policies = [
        ("a", policy("packed-tokens", "true", tokens)),
        ("b", policy("plain-tokens", "off", tokens)),
        ("c", policy("packed-bytes", "true", bytes)),
        ("d", policy("plain-bytes", "off", bytes)),
    ];
    let policies = policies.each_ref().map(|(name, text)| (*name, &**text));
    let gateway = Gateway::start(upstream.address, "", &policies);
    for (path, remaining) in [
        // Two responses, and what the third one reserves.
        ("tokens", 1000 - 2 * 42 - 50),
        ("bytes", 1_000_000 - 2 * content_bytes - 1),
    ] {
        for form in ["packed", "plain"] {
            let path = format!("/{form}-{path}");
            let mut client = gateway.connect();
            for _ in 0..2 {
                get(&mut client, &path, "gzip");
            }
            let answer = get(&mut client, &path, "gzip");
            let is_packed = answer.field("content-encoding").is_some();
            assert_eq!(is_packed, form == "packed");
            let standing = answer.field("ratelimit").unwrap();
            let expected = format!(";r={remaining};");
            assert!(standing.contains(&expected), "{path}: {standing}");
        }
    }
}

#[test]
fn the_log_has_the_bytes_that_the_client_gets() {
    let upstream = upstream(JSON, text(1000));
    let more = "compress: true\naccess_log: access.log\n";
    let gateway = Gateway::start(upstream.address, more, &[("all", ALL)]);
    let sent_bytes = get(&mut gateway.connect(), "/", "br").body.len();
    assert!(sent_bytes * 2 < text(1000).len());
    let log = gateway.folder.path().join("access.log");
    let expected = format!("\"bytes\":{sent_bytes}");
    wait_until("the line is written", || {
        std::fs::read_to_string(&log).is_ok_and(|line| line.contains(&expected))
    });
}
