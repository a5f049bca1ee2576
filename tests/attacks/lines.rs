//! The lines of a head: request line, target, Host, fields. What is not exactly one of them is refused,
//! and the connection ends.

use crate::case::{ALL, Site};

const REST: &str = " HTTP/1.1\r\nhost: t\r\n\r\n";

#[track_caller]
fn check(rule: &str, status: u16, heads: &[&str]) {
    let site = Site::start("", &[ALL]);
    for head in heads {
        site.check(rule, head.as_bytes(), &[status]);
    }
    site.check("the site is well", b"", &[200]);
}

#[test]
fn request_lines() {
    check(
        "RFC 9112 3",
        400,
        &[
            "GET  / HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET /  HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET / HTTP/1.1 \r\nhost: t\r\n\r\n",
            " GET / HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET\t/ HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET /\tHTTP/1.1\r\nhost: t\r\n\r\n",
            "GET\u{b}/ HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET /\r HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET / HTTP/1.1\rhost: t\r\n\r\n",
            "GET / HTTP/1.1\nhost: t\r\n\r\n",
            "GET / HTTP/1.1\r\r\nhost: t\r\n\r\n",
            "\nGET / HTTP/1.1\r\nhost: t\r\n\r\n",
            "\rGET / HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET /\r\n\r\n",
            "GET\r\n\r\n",
            "GET / HTTP/1.10\r\nhost: t\r\n\r\n",
            "GET / http/1.1\r\nhost: t\r\n\r\n",
            "GET / XTTP/1.1\r\nhost: t\r\n\r\n",
            "GET / x HTTP/1.1\r\nhost: t\r\n\r\n",
            "GET /a HTTP/1.1 GET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n",
            "G\u{7f}T / HTTP/1.1\r\nhost: t\r\n\r\n",
            "G\0T / HTTP/1.1\r\nhost: t\r\n\r\n",
            "G(T / HTTP/1.1\r\nhost: t\r\n\r\n",
            "\"GET\" / HTTP/1.1\r\nhost: t\r\n\r\n",
            "GÉT / HTTP/1.1\r\nhost: t\r\n\r\n",
            "\u{16}\u{3}\u{1} hello\r\n\r\n",
            "\0\r\n\r\n",
            // A case of the method that only some servers take for GET: RFC 9110 9.1.
            "get / HTTP/1.1\r\nhost: t\r\n\r\n",
            "Post /a HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n",
            "hEAD /a HTTP/1.1\r\nhost: t\r\n\r\n",
        ],
    );
    check(
        "RFC 9110 15.6.6",
        505,
        &[
            "GET / HTTP/2.0\r\nhost: t\r\n\r\n",
            "GET / HTTP/1.2\r\nhost: t\r\n\r\n",
            "GET / HTTP/0.9\r\nhost: t\r\n\r\n",
            "GET / HTTP/1,1\r\nhost: t\r\n\r\n",
            "GET / HTTP/11\r\nhost: t\r\n\r\n",
            "GET / HTTP/3\r\nhost: t\r\n\r\n",
        ],
    );
}

/// The preface of HTTP/2 is one only at the very beginning, and whole.
#[test]
fn prefaces() {
    let site = Site::start("", &[ALL]);
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let late = format!("GET /a HTTP/1.1\r\nhost: t\r\n\r\n{preface}");
    site.check("RFC 9113 3.4", late.as_bytes(), &[200, 505]);
    let begun = "PRI /a HTTP/1.1\r\nhost: t\r\n\r\n";
    site.check("RFC 9110 9.1", begun.as_bytes(), &[200, 200]);
}

#[test]
fn targets() {
    let targets = [
        "a",
        "*",
        "?a",
        "%2fa",
        "\\a",
        "t",
        "t:80",
        "http:/a",
        "http:a",
        "http:///a",
        "http://",
        "http://?a",
        "http://t:80:80/",
        "http://t:x/",
        "http://t:99999999/",
        "http://[t/",
        "http://[t]/",
        "http://t]/",
        "http://me@t/",
        "http://me:you@t/",
        "http://t\\@u/",
        "http://t%40u/",
        "ftp://t/",
        "file:///etc/passwd",
        "https+x://t/",
        // What the path is called without it decides which policy applies: CVE-2023-45539.
        "/a#b",
        "/#/../a",
        "http://t/a#b",
        "/a\u{7f}",
        "/a\u{1}",
        // Control characters that a server may decode.
        "/a%00b",
        "/a%0d%0aset-cookie:x",
        "/a%0a",
        "/%7f",
        // Escapes that are none.
        "/a%",
        "/a%4",
        "/a%zz",
        "/a%u0061",
        // Dots with parameters are a step up to some servers.
        "/a/..;/b",
        "/..;x",
        "/a/.;/b",
        "/a/%2e%2e;/b",
        "/a/..%3b/b",
    ];
    let heads: Vec<String> = targets
        .iter()
        .map(|target| format!("GET {target}{REST}"))
        .collect();
    check(
        "RFC 9112 3.2",
        400,
        &heads.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

/// CONNECT opens no tunnel: RFC 9110 9.3.6.
#[test]
fn connect() {
    check(
        "RFC 9110 9.3.6",
        400,
        &[
            "CONNECT t:80 HTTP/1.1\r\nhost: t:80\r\n\r\n",
            "CONNECT / HTTP/1.1\r\nhost: t\r\n\r\n",
            "CONNECT http://t/ HTTP/1.1\r\nhost: t\r\n\r\n",
            "CONNECT t:80 HTTP/1.1\r\nhost: t:80\r\ncontent-length: 3\r\n\r\nabc",
            "connect t:80 HTTP/1.1\r\nhost: t\r\n\r\n",
        ],
    );
}

#[test]
fn hosts() {
    let hosts = [
        "",
        "host:\r\n",
        "host: a\r\nhost: b\r\n",
        "host: a\r\nhost: a\r\n",
        "host: a\r\nHOST:\r\n",
        "host:\r\nhost: a\r\n",
        "host: a\r\n host: b\r\n",
        "host : a\r\n",
        " host: a\r\n",
        "host: a b\r\n",
        "host: a, b\r\n",
        "host: a/b\r\n",
        "host: a?b\r\n",
        "host: a#b\r\n",
        "host: a@b\r\n",
        "host: http://a\r\n",
        "host: a\\b\r\n",
        "host: a\0\r\n",
        "host: a\tb\r\n",
        "host: \u{e9}\r\n",
        "host: <a>\r\n",
        "host: a\"b\r\n",
        // No name, address and port: RFC 3986 3.2.
        "host: :80\r\n",
        "host: a:b\r\n",
        "host: a:80:80\r\n",
        "host: a:80x\r\n",
        "host: a:-1\r\n",
        "host: a:999999\r\n",
        "host: [::1\r\n",
        "host: ::1\r\n",
        "host: [a]\r\n",
        "host: [::1]a\r\n",
        "host: [::1]a:80\r\n",
        "host: a[::1]\r\n",
        "host: a]\r\n",
        "host: []\r\n",
        "host: a%00\r\n",
        "host: %61\r\n",
        // RFC 3986 allows these in a name; frameworks take what stands before a comma, or refuse them.
        "host: a,b\r\n",
        "host: ,a\r\n",
        "host: a;x\r\n",
        "host: a'\r\n",
        "host: a(x)\r\n",
        "host: a=b\r\n",
        "host: a&b\r\n",
        "host: a~\r\n",
        "host: *\r\n",
        "host: a..\r\n",
        "host: .a\r\n",
        "host: a..b\r\n",
        "host: .\r\n",
        "host: a:65536\r\n",
        "host: a:99999\r\n",
        // An address has one spelling: the URL Standard, RFC 6874.
        "host: 127.1\r\n",
        "host: 0x7f.1\r\n",
        "host: 127.000.000.001\r\n",
        "host: 2130706433\r\n",
        "host: a.1\r\n",
        "host: [::1%25eth0]\r\n",
        "host: [::1%eth0]\r\n",
        "host: [v1.a]\r\n",
    ];
    let heads = hosts.map(|host| format!("GET /a HTTP/1.1\r\n{host}\r\n"));
    check("RFC 9112 3.2", 400, &heads.each_ref().map(String::as_str));
    // The authority of an absolute target replaces Host, but excuses no wrong one.
    let heads = hosts.map(|host| format!("GET http://t/a HTTP/1.1\r\n{host}\r\n"));
    check("RFC 9112 3.2.2", 400, &heads.each_ref().map(String::as_str));
    let long = format!("GET /a HTTP/1.1\r\nhost: {}\r\n\r\n", "a".repeat(256));
    check("RFC 1035 3.1", 400, &[&long]);
}

#[test]
fn hosts_that_pass() {
    let site = Site::start("", &[ALL]);
    for (host, canonical) in [
        ("a", "a"),
        ("A.b", "a.b"),
        ("a.b.", "a.b"),
        ("a:80", "a:80"),
        ("a:", "a"),
        ("a_b", "a_b"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("[::1]", "[::1]"),
        ("[0::0:1]:80", "[::1]:80"),
        ("[2001:DB8::A]", "[2001:db8::a]"),
        ("a:00080", "a:80"),
        ("XN--e1a.x.:", "xn--e1a.x"),
    ] {
        let origin = format!("GET /a HTTP/1.1\r\nhost: {host}\r\n\r\n");
        site.check("RFC 9112 3.2", origin.as_bytes(), &[200, 200]);
        let mut asker = site.connect();
        // The third time what was made of the fields is remembered.
        for _ in 0..3 {
            asker.send(&origin);
            asker.answer(false).unwrap();
        }
        asker.send(format!(
            "GET HTTP://{host}/a HTTP/1.1\r\nhost: lies\r\n\r\n"
        ));
        asker.answer(false).unwrap();
        // The upstream reads the host that the route was found by, wherever it looks.
        let forwarded = format!("for=127.0.0.1;host=\"{canonical}\";proto=http");
        for seen in site.recorder.take().requests {
            assert_eq!(seen.all("host"), [canonical]);
            assert_eq!(seen.all("x-forwarded-host"), [canonical]);
            assert_eq!(seen.all("forwarded"), [&forwarded]);
        }
    }
}

#[test]
fn field_lines() {
    let lines = [
        "a: b\nc: d\r\n",
        "a: b\rc: d\r\n",
        "a: b\r\n c\r\n",
        "a: b\r\n\tc\r\n",
        "a: b\r\n \r\n",
        "a : b\r\n",
        "a\t: b\r\n",
        " a: b\r\n",
        "\ta: b\r\n",
        "a\r\n",
        ": b\r\n",
        "a b: c\r\n",
        "a(b): c\r\n",
        "a\"b: c\r\n",
        "a/b: c\r\n",
        "a\0b: c\r\n",
        "a\u{7f}b: c\r\n",
        "é: c\r\n",
        "a: b\0c\r\n",
        "a: \0\r\n",
        "a: b\u{1}c\r\n",
        "a: b\u{b}c\r\n",
        "a: b\u{7f}c\r\n",
        "a: b\u{1b}[2J\r\n",
        "a: \r\r\n",
        "\r: b\r\n",
    ];
    let heads = lines.map(|line| format!("GET /a HTTP/1.1\r\nhost: t\r\n{line}\r\n"));
    check(
        "RFC 9112 5, RFC 9110 5.5",
        400,
        &heads.each_ref().map(String::as_str),
    );
    check(
        "RFC 9112 2.2",
        400,
        &[
            "GET /a HTTP/1.1\r\nhost: t\r\n\n",
            "GET /a HTTP/1.1\nhost: t\n\n",
        ],
    );
}

#[test]
fn targets_that_are_too_long() {
    let target = |length: usize| format!("GET /{}{REST}", "a".repeat(length - 1));
    let long = [target(16 * 1024 + 1), target(30_000)];
    check(
        "RFC 9110 15.5.15",
        414,
        &long.each_ref().map(String::as_str),
    );
}

#[test]
fn heads_that_are_too_large() {
    let head = |fields: String| format!("GET /a HTTP/1.1\r\nhost: t\r\n{fields}\r\n");
    let heads = [
        head(format!("x: {}\r\n", "y".repeat(70_000))),
        head(format!("{}: y\r\n", "x".repeat(70_000))),
        head("x: y\r\n".repeat(100)),
        head("x: y\r\n".repeat(10_000)),
        head("x:\r\n".repeat(10_000)),
        format!("GET /{}{REST}", "a".repeat(70_000)),
        format!("{}GET /a{REST}", "\r\n".repeat(40_000)),
    ];
    check("RFC 6585 5", 431, &heads.each_ref().map(String::as_str));
    let site = Site::start("", &[ALL]);
    site.check(
        "as many as there may be",
        head("x: y\r\n".repeat(99)).as_bytes(),
        &[200, 200],
    );
    site.check(
        "obs-text is text",
        head("x: é\r\n".into()).as_bytes(),
        &[200, 200],
    );
}

/// The line by which proxies of another kind begin is nothing from a stranger, and names nobody.
#[test]
fn proxy_protocol_of_strangers() {
    let get = "GET /a HTTP/1.1\r\nhost: t\r\n\r\n";
    let heads = [
        format!("PROXY TCP4 203.0.113.1 203.0.113.2 1 2\r\n{get}"),
        format!("PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n{get}"),
        format!("PROXY UNKNOWN\r\n{get}"),
        format!(
            "\r\n\r\n\0\r\nQUIT\n\u{21}\u{11}\0\u{c}\u{1}\u{1}\u{1}\u{1}\u{2}\u{2}\u{2}\u{2}\0\u{1}\0\u{2}{get}"
        ),
    ];
    check(
        "PROXY protocol 2.1",
        400,
        &heads.each_ref().map(String::as_str),
    );
    let site = Site::start("", &[ALL]);
    let late = format!("{get}PROXY TCP4 203.0.113.1 203.0.113.2 1 2\r\n{get}");
    site.check("PROXY protocol 2.1", late.as_bytes(), &[200, 400]);
}
