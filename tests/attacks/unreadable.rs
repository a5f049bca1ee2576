//! Requests whose head cannot be read: each has its line in the access log and is counted once.

use serde_json::Value;

use crate::common::raw::{CONTINUATION, END_HEADERS, END_STREAM, HEADERS, Raw, block, frame};
use crate::common::{Client, Gateway, Upstream, soon};

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
        soon("the request is logged", || {
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
        assert_eq!(raw.next(HEADERS).unwrap().stream, id);
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
