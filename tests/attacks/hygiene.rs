//! Fields that belong to one connection, and fields by which a client says who it is: RFC 9110 7.6.1, and
//! what the gateway promises of its own.

use crate::case::{ALL, Asker, Cut, Site};
use crate::common::Gateway;
use crate::replay::{Replay, Script, Then};
use crate::strict::Message;

const IDENTITY: &str = "identity:\n  ip: { trusted_proxies: [10.0.0.0/8] }\n  \
    user: { header: x-user, from: [10.0.0.0/8] }\n  token: { header: x-api-key }\n  \
    plan: { header: x-plan, from: [10.0.0.0/8], default: free }\nplans: { free: { multiply: 1 }, gold: { multiply: 9 } }\n";

/// What the upstream gets of a request with these fields.
fn passed(site: &Site, fields: &str) -> Message {
    let mut asker = site.connect();
    asker.send(format!("GET /a HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
    let answer = asker.answer(false).unwrap();
    assert_eq!(answer.status(), 200, "{fields:?} {answer:?}");
    let log = site.recorder.take();
    assert_eq!(log.unclean, Vec::<String>::new(), "{fields:?}");
    log.requests.into_iter().next().unwrap()
}

/// OpenLiteSpeed before 1.7.18 read `010` as eight bytes, and took the rest for another request.
#[test]
fn lengths_are_written_anew() {
    let site = Site::start("", &[ALL]);
    for (written, length, body) in [
        ("010", "10", "0123456789"),
        ("00000000000000000003", "3", "abc"),
        ("00", "0", ""),
        ("3", "3", "abc"),
    ] {
        let mut asker = site.connect();
        for _ in 0..3 {
            asker.send(format!(
                "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: {written}\r\n\r\n{body}"
            ));
            assert_eq!(asker.answer(false).unwrap().status(), 200, "{written}");
            let seen = site.recorder.take().requests.remove(0);
            assert_eq!(seen.all("content-length"), [length], "{written}");
            assert_eq!(seen.body, body.as_bytes());
        }
    }
}

#[test]
fn fields_of_one_connection() {
    let site = Site::start("", &[ALL]);
    let cases = [
        ("connection: x-own\r\nx-own: 1\r\n", "x-own"),
        (
            "Connection: close , X-OWN,\r\nx-Own: 1\r\nx-own: 2\r\n",
            "x-own",
        ),
        (
            "connection: a\r\nconnection: x-own\r\nx-own: 1\r\n",
            "x-own",
        ),
        (
            "connection: ,,x-own;\r\nconnection: \tx-own\t\r\nx-own: 1\r\n",
            "x-own",
        ),
        (
            "connection: keep-alive\r\nkeep-alive: timeout=1\r\n",
            "keep-alive",
        ),
        ("keep-alive: timeout=1\r\n", "keep-alive"),
        ("proxy-connection: keep-alive\r\n", "proxy-connection"),
        ("te: gzip\r\n", "te"),
        ("te: gzip;q=1, deflate\r\nconnection: te\r\n", "te"),
        ("upgrade: h2c\r\n", "upgrade"),
        ("upgrade: websocket\r\n", "upgrade"),
        (
            "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
            "http2-settings",
        ),
    ];
    for (fields, gone) in cases {
        let seen = passed(&site, &format!("{fields}x-end: 1\r\n"));
        assert_eq!(seen.field(gone), None, "{fields:?} {seen:?}");
        assert_eq!(seen.all("x-end"), ["1"], "{fields:?}");
    }
    let seen = passed(&site, "te: gzip, trailers\r\nconnection: te\r\n");
    assert_eq!(seen.all("te"), ["trailers"]);
}

/// Hop-by-hop abuse: a client cannot name away what makes the message, or what the gateway adds.
#[test]
fn what_cannot_be_named_away() {
    let site = Site::start("", &[ALL]);
    let names = ["host", "authorization", "cookie", "content-type"];
    let all = "authorization: a\r\ncookie: b=c\r\ncontent-type: d\r\n";
    for name in names {
        let seen = passed(&site, &format!("connection: close, {name}\r\n{all}"));
        assert_eq!(seen.all(name).len(), 1, "{name} {seen:?}");
    }
    for name in [
        "x-forwarded-for",
        "via",
        "forwarded",
        "x-forwarded-host",
        "x-forwarded-proto",
    ] {
        let seen = passed(&site, &format!("connection: {name}\r\n{name}: 6.6.6.6\r\n"));
        assert_eq!(seen.all(name).len(), 1, "{name} {seen:?}");
        assert!(!seen.all(name)[0].contains("6.6.6.6"), "{name} {seen:?}");
    }
}

/// What a stranger says of itself is not passed on, however it is spelled.
#[test]
fn what_strangers_say_of_themselves() {
    let site = Site::start(IDENTITY, &[ALL]);
    for name in [
        "x-forwarded-for",
        "X-FORWARDED-FOR",
        "x_forwarded_for",
        "x-forwarded_for",
        "forwarded",
        "x-real-ip",
        "x_real_ip",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-port",
        "x-forwarded-user",
        "x-forwarded-anything",
        "x-user",
        "X-User",
        "x_user",
        "X_USER",
        "x-plan",
        "x_plan",
        "tollgate-user",
        "tollgate-plan",
        "tollgate-over",
        "tollgate-anything",
        "tollgate_user",
        "Tollgate_User",
        // Read by nobody as the credential, but by CGI and its heirs as the same name.
        "x_api_key",
        "X_Api-Key",
        // The same to PHP.
        "x.api.key",
        "x!api~key",
        "x.user",
        "x^plan",
        "x.forwarded.for",
        "x|real|ip",
        "tollgate.user",
    ] {
        let seen = passed(
            &site,
            &format!("{name}: forged\r\n{name}: forged\r\nx-end: 1\r\n"),
        );
        let forged = seen
            .fields
            .iter()
            .find(|(_, value)| value.contains("forged"));
        assert_eq!(forged, None, "{name}");
        assert_eq!(seen.all("x-end"), ["1"]);
        assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(
            seen.all("forwarded"),
            ["for=127.0.0.1;host=\"t\";proto=http"]
        );
        assert_eq!(seen.all("x-forwarded-proto"), ["http"]);
        assert_eq!(seen.all("x-forwarded-host"), ["t"]);
    }
}

/// Of several lines some servers read the first and some the last, so lists go on in one.
#[test]
fn lists_of_a_trusted_proxy() {
    let trusts = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n";
    let site = Site::start(trusts, &[ALL]);
    for (before, list) in [
        (
            "6.6.6.6\r\nx-forwarded-for: 6.6.6.7",
            "6.6.6.6, 6.6.6.7, 127.0.0.1",
        ),
        (
            "6.6.6.6\r\na: b\r\nX-Forwarded-For: \r\nx-forwarded-for: x",
            "6.6.6.6, x, 127.0.0.1",
        ),
        ("", "127.0.0.1"),
    ] {
        let seen = passed(&site, &format!("x-forwarded-for: {before}\r\n"));
        assert_eq!(seen.all("x-forwarded-for"), [list]);
    }
    let seen = passed(&site, "forwarded: for=a\r\nforwarded: for=b\r\n");
    let own = "for=a, for=b, for=127.0.0.1;host=\"t\";proto=http";
    assert_eq!(seen.all("forwarded"), [own]);
}

/// Proxies pass on what clients send, and frameworks that trust them believe it: what a limit was not asked for goes no
/// further.
#[test]
fn what_trusted_proxies_pass_on() {
    let trusts = "identity: { ip: { trusted_proxies: [127.0.0.0/8] } }\n";
    let login = "match: POST /login\nupstream: up\nlimits: { l: { key: ip, rate: 100000/h } }\n";
    let rest = ("rest", "match: /**\nupstream: up\n");
    let by_host = format!("host: a.test\n{login}");
    let hosts = Site::start(trusts, &[("login", &*by_host), rest]);
    let paths = Site::start(trusts, &[("login", login), rest]);
    let sent = |site: &Site, request: &str, field: &str| {
        let mut asker = site.connect();
        // The second time what was made of the same fields is remembered.
        let all = (0..3).map(|_| {
            let (line, host) = request.split_once(' ').unwrap();
            asker.send(format!(
                "POST {line} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n{field}\r\n\r\n"
            ));
            assert_eq!(
                asker.answer(false).unwrap().status(),
                200,
                "{request} {field}"
            );
            site.recorder.take().requests.remove(0)
        });
        let mut all: Vec<_> = all.collect();
        let last = all.pop().unwrap();
        let (name, _) = field.split_once(':').unwrap();
        for seen in all {
            assert_eq!(seen.all(name), last.all(name), "{request} {field}");
        }
        last.all(name).join("|")
    };
    for (field, seen) in [
        ("x-forwarded-host: a.test", "b.test"),
        ("x-forwarded-host: c.test, A.test:80", "b.test"),
        ("x-forwarded-host: c.test", "c.test"),
        ("x-host: a.test", ""),
        ("x-host: c.test", "c.test"),
        (
            "forwarded: for=x;host=a.test",
            "for=127.0.0.1;host=\"b.test\";proto=http",
        ),
        (
            "forwarded: for=x;host=c.test",
            "for=x;host=c.test, for=127.0.0.1;host=\"b.test\";proto=http",
        ),
    ] {
        assert_eq!(sent(&hosts, "/login b.test", field), seen, "{field}");
    }
    // Without policies by host all of it goes on.
    let field = "x-forwarded-host: a.test";
    assert_eq!(sent(&paths, "/x b.test", field), "a.test");
    for (path, field, seen) in [
        ("/x", "x-original-url: /login", ""),
        ("/x", "x-original-url: http://b.test/LOGIN?x", ""),
        ("/x", "x-rewrite-url: login", ""),
        ("/x", "x-original-url: /y?z", "/y?z"),
        ("/login", "x-original-url: /login", "/login"),
        ("/login", "x-original-url: /x", ""),
        ("/a/login", "x-script-name: /a", ""),
        ("/a/login", "x-script-name: /b", ""),
        ("/x/a/login", "script-name: /a", ""),
        ("/a/x", "script-name: /a\r\nscript-name: /a", ""),
        ("/a/x", "script-name: /a\r\nx-script-name: /a", ""),
        ("/a/login", "script_name: /a", ""),
        ("/a/x", "script_name: /a", "/a"),
        ("/ab/x", "script-name: /a", ""),
        ("/a/x", "x-script-name: /a", "/a"),
    ] {
        assert_eq!(
            sent(&paths, &format!("{path} b.test"), field),
            seen,
            "{path} {field}"
        );
    }
    // It stays beside one path only.
    let mut asker = paths.connect();
    for (path, stays) in [
        ("/x", true),
        ("/y", true),
        ("/login", false),
        ("/x", true),
        ("/x", true),
    ] {
        asker.send(format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\nx-original-url: /z\r\n\r\n"
        ));
        assert_eq!(asker.answer(false).unwrap().status(), 200);
        let seen = paths.recorder.take().requests.remove(0);
        assert_eq!(
            seen.all("x-original-url").len(),
            usize::from(stays),
            "{path}"
        );
    }
}

/// RFC 9110 6.5.1: trailers say nothing that the head may not, and nothing of framing, routing or who asks.
#[test]
fn trailers() {
    let site = Site::start(IDENTITY, &[ALL]);
    let mut asker = site.connect();
    let names = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "upgrade",
        "trailer",
        "authorization",
        "cookie",
        "set-cookie",
        "content-type",
        "content-encoding",
        "keep-alive",
        "proxy-connection",
        "x-user",
        "x_user",
        "x-plan",
        "tollgate-user",
        "tollgate_over",
        "x-forwarded-for",
        "x-forwarded-host",
        "forwarded",
        "x-real-ip",
        "x-api-key",
        "x_api_key",
    ];
    let forged: String = names.iter().map(|name| format!("{name}: 1\r\n")).collect();
    asker.send(format!(
        "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n0\r\n{forged}x-sum: 1\r\n\r\n"
    ));
    assert_eq!(asker.answer(false).unwrap().status(), 200);
    let seen = site.recorder.take().requests.remove(0);
    assert_eq!(seen.trailers, [("x-sum".to_owned(), "1".to_owned())]);
}

/// RFC 9110 7.6.1, the other way.
#[test]
fn fields_of_the_server_s_connection() {
    let replay = Replay::start();
    let gateway = Gateway::start(replay.address, "", &[ALL]);
    let fields = "connection: x-hop, close\r\nx-hop: 1\r\nkeep-alive: 1\r\nproxy-connection: a\r\n\
                  upgrade: h2c\r\nte: gzip\r\nx-end: 2\r\n";
    for head in [
        "HTTP/1.1 200 OK",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK",
    ] {
        let head = head.replace("\r\n\r\n", &format!("\r\n{fields}\r\n"));
        replay.say(Script::new(
            format!("{head}\r\n{fields}content-length: 0\r\n\r\n"),
            Then::Close,
            Cut::Whole,
        ));
        let mut asker = Asker::connect(gateway.address);
        asker.send("GET /case HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
        let all = String::from_utf8(asker.rest()).unwrap();
        let answers: Vec<&str> = all.split("HTTP/1.1 ").skip(1).collect();
        for answer in answers {
            assert!(answer.contains("x-end: 2\r\n"), "{all}");
            let own = |gone: &str| !answer.contains(gone);
            assert!(
                own("x-hop") && own("keep-alive") && own("proxy-connection"),
                "{all}"
            );
            assert!(own("upgrade") && own("te: gzip"), "{all}");
        }
    }
}
