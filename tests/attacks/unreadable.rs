//! Requests whose head cannot be read: each has its line in the access log and is counted once.

use serde_json::Value;

use crate::common::raw::{
    CONTINUATION, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, RST_STREAM, Raw, block, code,
    frame, get,
};
use crate::common::{Client, Gateway, Upstream, wait_until};

const GATEWAY: &str = "admin: off\naccess_log: { file: access.log }\n";

struct Site {
    gateway: Gateway,
    lines: usize,
}

impl Site {
    fn start(gateway: &str) -> Site {
        let upstream = Upstream::plain();
        let policy = ("all", "match: /**\nupstream: up\n");
        Site {
            gateway: Gateway::start(upstream.address, gateway, &[policy]),
            lines: 0,
        }
    }

    /// The one line that the last request has added.
    #[track_caller]
    fn line(&mut self) -> Value {
        let file = self.gateway.folder.path().join("access.log");
        let read = || std::fs::read_to_string(&file).unwrap();
        wait_until("the request is logged", || {
            read().lines().count() > self.lines
        });
        let text = read();
        let mut new = text.lines().skip(self.lines);
        let line = serde_json::from_str(new.next().unwrap()).unwrap();
        assert_eq!(new.next(), None);
        self.lines += 1;
        line
    }

    #[track_caller]
    fn check(&mut self, what: &str, status: u64, method: Option<&str>, target: Option<&str>) {
        let line = self.line();
        assert_eq!(line["status"], status, "{what:.99?}: {line:.999}");
        assert_eq!(line["outcome"], "rejected", "{what:.99?}: {line:.999}");
        assert_eq!(line["ip"], "127.0.0.1", "{what:.99?}: {line:.999}");
        assert!(line["reason"].is_string(), "{what:.99?}: {line:.999}");
        assert_eq!(line["method"].as_str(), method, "{what:.99?}: {line:.999}");
        assert_eq!(line["target"].as_str(), target, "{what:.99?}: {line:.999}");
    }
}

#[test]
fn of_http1_are_logged_and_counted() {
    let mut site = Site::start(GATEWAY);
    let long = "x".repeat(20_000);
    let most = format!("/{}", &long[..255]);
    let (get, post) = (Some("GET"), Some("POST"));
    let cases: Vec<(String, u16, Option<&str>, Option<&str>)> = vec![
        (
            // Each option is compared with each name.
            format!(
                "GET /a HTTP/1.1\r\nhost: t\r\nconnection: close{}\r\nconnection: a\r\n\r\n",
                ",".repeat(31)
            ),
            400,
            get,
            Some("/a"),
        ),
        (
            "GET /a HTTP/1.1\r\nhost: t\r\nx: \x01\r\n\r\n".into(),
            400,
            get,
            Some("/a"),
        ),
        (
            "POST /b?key=s HTTP/1.1\r\nhost: t\r\ncontent-length: 1\r\n\
             transfer-encoding: chunked\r\n\r\n"
                .into(),
            400,
            post,
            Some("/b"),
        ),
        (
            "POST /b HTTP/1.1\r\nhost: t\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx".into(),
            400,
            post,
            Some("/b"),
        ),
        (
            "GET /c#d HTTP/1.1\r\nhost: t\r\n\r\n".into(),
            400,
            get,
            Some("/c"),
        ),
        ("GET /e HTTP/1.1\nhost: t\n\n".into(), 400, get, Some("/e")),
        (
            "GET /f HTTP/3.0\r\nhost: t\r\n\r\n".into(),
            505,
            get,
            Some("/f"),
        ),
        (
            format!("GET /{long} HTTP/1.1\r\nhost: t\r\n\r\n"),
            414,
            get,
            Some(&most),
        ),
        (
            format!(
                "GET /g HTTP/1.1\r\nhost: t\r\n{}\r\n",
                "x: y\r\n".repeat(101)
            ),
            431,
            get,
            Some("/g"),
        ),
        (
            "GET \"\\\x7f HTTP/1.1\r\nhost: t\r\n\r\n".into(),
            400,
            get,
            None,
        ),
        ("\x16\x03\x01\x02\r\n\r\n".into(), 400, None, None),
    ];
    for (input, status, method, target) in &cases {
        let mut client = Client::connect(site.gateway.address);
        client.send(input);
        let answer = client.answer();
        assert_eq!(answer.status(), *status, "{input:.99?}");
        assert_eq!(answer.field("connection"), Some("close"), "{input:.99?}");
        site.check(input, u64::from(*status), *method, *target);
    }
    let counted = format!(
        "tollgate_requests_total{{route=\"none\",outcome=\"rejected\"}} {}\n",
        cases.len()
    );
    let metrics = site.gateway.app.metrics();
    assert!(metrics.contains(&counted), "{counted} in:\n{metrics}");
}

/// RFC 9113 section 3.4: who speaks neither HTTP/1 nor HTTP/2 is told so by the end of the connection. It is logged.
#[test]
fn prefaces_that_are_none_end_the_connection() {
    let mut site = Site::start(GATEWAY);
    for (input, method) in [
        ("INVALID CONNECTION PREFACE\r\n\r\n", Some("INVALID")),
        ("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", Some("PRI")),
        ("PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n", Some("PRI")),
    ] {
        let mut client = Client::connect(site.gateway.address);
        client.send(input);
        assert_eq!(client.rest(), b"", "{input:?}");
        site.check(input, 400, method, None);
    }
    // After a request it is a request of HTTP/1.1 that cannot be read.
    let mut client = Client::connect(site.gateway.address);
    assert_eq!(client.get("/").status(), 200);
    site.line();
    client.send("INVALID CONNECTION PREFACE\r\n\r\n");
    assert_eq!(client.answer().status(), 400);
}

/// What is malformed is counted by the limits that hold on every route, and spends what one connection may send that
/// asks for nothing.
#[test]
fn of_http2_are_limited() {
    let limits = "admin: off\naccess_log: { file: access.log }\n\
                  limits: { few: { key: ip, rate: 3/h } }\n";
    let mut site = Site::start(limits);
    let malformed = get("/", &[("connection", "close")]);
    let mut raw = Raw::connect(site.gateway.address, &[]);
    for (number, status) in [400, 400, 400, 429, 429].into_iter().enumerate() {
        let id = 2 * number as u32 + 1;
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, &malformed));
        let reset = raw.next(RST_STREAM).unwrap();
        assert_eq!((reset.stream, code(&reset)), (id, 1));
        assert_eq!(site.line()["status"], status);
    }
    raw.send(&frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        99,
        &get("/", &[]),
    ));
    let answer = raw.next(HEADERS).unwrap();
    assert!(!answer.payload.starts_with(&[0x88]), "{answer:?}");
    for more in [
        ("connection", "close".to_owned()),
        ("x", "y".repeat(65_536)),
    ] {
        let mut raw = Raw::connect(site.gateway.address, &[]);
        let block = get("/", &[(more.0, &more.1)]);
        let away = (0..2_000).find_map(|number| {
            let id = 2 * number + 1;
            let mut pieces = block.chunks(16_384).peekable();
            let (mut kind, mut flags) = (HEADERS, END_STREAM);
            while let Some(piece) = pieces.next() {
                flags |= if pieces.peek().is_none() {
                    END_HEADERS
                } else {
                    0
                };
                if !raw.flood(&frame(kind, flags, id, piece), 1) {
                    return raw.next(GOAWAY);
                }
                (kind, flags) = (CONTINUATION, 0);
            }
            let about = |frame: &Frame| frame.kind == GOAWAY || frame.stream == id;
            let first = std::iter::from_fn(|| raw.frame()).find(about)?;
            (first.kind == GOAWAY).then_some(first)
        });
        // ENHANCE_YOUR_CALM
        assert_eq!(away.map(|away| code(&away)), Some(0xb), "{}", more.0);
    }
}

#[test]
fn of_http2_are_logged_and_counted() {
    let mut site = Site::start(GATEWAY);
    let long = format!("/{}", "x".repeat(20_000));
    let head = |method, path, more: &[(&str, &str)]| {
        let usual = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "t"),
            (":path", path),
        ];
        block(&[&usual, more].concat())
    };
    let get = Some("GET");
    let many: Vec<(String, &str)> = (0..101).map(|n| (format!("x{n}"), "y")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, *value)).collect();
    let cases = [
        (
            head("GET", "/a", &[("connection", "x")]),
            400,
            get,
            Some("/a"),
        ),
        (
            head("GET", "/b?key=s", &[("x", "\x01")]),
            400,
            get,
            Some("/b"),
        ),
        (head("GET", "/c#d", &[]), 400, get, Some("/c")),
        (head("GET", "*", &[]), 400, get, None),
        (head("GET", &long, &[]), 414, get, Some(&long[..256])),
        (head("GET", "/d", &many), 431, get, Some("/d")),
        (
            block(&[(":scheme", "http"), (":path", "/e")]),
            400,
            None,
            Some("/e"),
        ),
    ];
    let mut raw = Raw::connect(site.gateway.address, &[]);
    for (number, (block, status, method, target)) in cases.iter().enumerate() {
        let id = 2 * number as u32 + 1;
        let (first, rest) = block.split_at(block.len() / 2);
        raw.send(&frame(HEADERS, END_STREAM, id, first));
        raw.send(&frame(CONTINUATION, END_HEADERS, id, rest));
        // What is malformed is not answered.
        let kind = if *status == 400 { RST_STREAM } else { HEADERS };
        assert_eq!(raw.next(kind).unwrap().stream, id);
        site.check(&format!("{number}"), *status, *method, *target);
    }
    let counted = "tollgate_requests_total{route=\"none\",outcome=\"rejected\"} 7\n";
    assert!(site.gateway.app.metrics().contains(counted));
}

#[test]
fn are_no_lines_where_nothing_is_logged() {
    let site = Site::start("admin: off\naccess_log: off\n");
    let mut client = Client::connect(site.gateway.address);
    client.send("GET\r\n\r\n");
    assert_eq!(client.answer().status(), 400);
    let answered = "tollgate_responses_total{route=\"none\",status=\"400\",origin=\"gateway\"} 1\n";
    let metrics = site.gateway.app.metrics();
    assert!(metrics.contains(answered), "{metrics}");
}
