//! The id of a request: where it comes from, and that upstream, client, problem document and log have the same one.

use std::collections::HashSet;

use serde_json::Value;

use crate::common::http2::{self, run, whole};
use crate::common::{Gateway, Message, Upstream, ok, wait_until};

const ON: &str = "request_id: x-request-id\nworkers: 1\naccess_log: { file: access.log }\n";
const TRUSTED: &str = "identity: { ip: { trusted_proxies: 127.0.0.1 } }\n";
const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");
const ONCE: (&str, &str) = (
    "once",
    "match: /once\nupstream: up\nlimits:\n  once: { key: ip, rate: 1/h }\n",
);

/// The values of all fields that CGI takes for the field of the id.
fn ids(message: &Message) -> Vec<&str> {
    let fields = message.fields.iter();
    let alike = fields.filter(|(name, _)| name.replace(['_', '.'], "-") == "x-request-id");
    alike.map(|(_, value)| value.as_str()).collect()
}

#[track_caller]
fn only_id(message: &Message) -> String {
    let ids = ids(message);
    assert_eq!(ids.len(), 1, "{message:?}");
    ids[0].to_owned()
}

fn is_new(id: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    id.len() == 32 && id.bytes().all(is_digit)
}

/// The lines of the access log, once there are so many.
fn lines(gateway: &Gateway, number: usize) -> Vec<Value> {
    let file = gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("all is logged", || read().lines().count() >= number);
    let text = read();
    let parsed = text.lines().map(|line| serde_json::from_str(line).unwrap());
    parsed.collect()
}

/// Sends one request with these lines, and returns the id that everybody got.
#[track_caller]
fn id_of(gateway: &Gateway, upstream: &Upstream, fields: &str, earlier: usize) -> String {
    let mut client = gateway.connect();
    client.send(format!("GET / HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
    let answer = client.answer();
    assert_eq!(answer.status(), 200, "{fields}");
    let id = only_id(&answer);
    assert_eq!(only_id(&upstream.next()), id, "{fields}");
    assert_eq!(lines(gateway, earlier + 1)[earlier]["request_id"], *id);
    id
}

#[test]
fn only_a_trusted_proxy_may_set_a_valid_id() {
    let longest = "a".repeat(128);
    let valid = ["7", "Root=1-67891233-ab/c:d+e@f_g.h", &longest];
    let too_long = format!("x-request-id: {longest}a\r\n");
    let invalid = [
        "",
        "x-request-id: \r\n",
        "x-request-id: a b\r\n",
        "x-request-id: a\"b\r\n",
        "x-request-id: a,b\r\n",
        "x-request-id: \u{e9}\r\n",
        "x-request-id: a\r\nx-request-id: a\r\n",
        "X-Request-ID: a\r\nx-request-id: b\r\n",
        "x_request_id: a\r\n",
        "x.request-id: a\r\n",
        &too_long,
    ];
    for is_trusted in [false, true] {
        let upstream = Upstream::plain();
        let gateway_file = format!("{ON}{}", if is_trusted { TRUSTED } else { "" });
        let gateway = Gateway::start(upstream.address, &gateway_file, &[ALL]);
        let mut seen = HashSet::new();
        for fields in invalid {
            let id = id_of(&gateway, &upstream, fields, seen.len());
            assert!(is_new(&id), "{fields}: {id}");
            assert!(seen.insert(id), "{fields}");
        }
        for (number, value) in valid.into_iter().enumerate() {
            for spelled_too in ["", "x_request_id: other\r\nX.Request.Id: other\r\n"] {
                let fields = format!("X-Request-Id: {value}\r\n{spelled_too}");
                let earlier = seen.len();
                let id = id_of(&gateway, &upstream, &fields, earlier);
                assert_eq!(id == *value, is_trusted, "{number}: {id}");
                assert!(is_trusted || is_new(&id));
                seen.insert(format!("{number}{spelled_too}{id}"));
            }
        }
    }
}

#[test]
fn repeated_requests_have_ids_of_their_own() {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, ON, &[ALL]);
    let mut client = gateway.connect();
    let mut seen = HashSet::new();
    for number in 0..20 {
        // The same head again and again, then the same fields below another line.
        client.send(format!(
            "GET /{} HTTP/1.1\r\nhost: t\r\nx-request-id: mine\r\n\r\n",
            number / 10 * number
        ));
        let id = only_id(&client.answer());
        assert_eq!(only_id(&upstream.next()), id);
        assert!(is_new(&id) && seen.insert(id));
    }
}

#[test]
fn the_id_of_an_upstream_is_replaced() {
    let upstream = Upstream::answering(|_| {
        "HTTP/1.1 200 OK\r\nx-request-id: theirs\r\nX-Request-ID: theirs\r\ncontent-length: 0\r\n\r\n".into()
    });
    let gateway = Gateway::start(upstream.address, ON, &[ALL]);
    let id = only_id(&gateway.connect().get("/"));
    assert!(is_new(&id));
    assert_eq!(only_id(&upstream.next()), id);
}

#[test]
fn without_the_field_nothing_is_touched() {
    let upstream = Upstream::answering(|_| {
        "HTTP/1.1 200 OK\r\nx-request-id: theirs\r\ncontent-length: 0\r\n\r\n".into()
    });
    let off = "workers: 1\naccess_log: { file: access.log }\n";
    let gateway = Gateway::start(upstream.address, off, &[ALL, ONCE]);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: t\r\nx-request-id: mine\r\nx_request_id: too\r\n\r\n");
    assert_eq!(only_id(&client.answer()), "theirs");
    assert_eq!(ids(&upstream.next()), ["mine", "too"]);
    assert_eq!(client.get("/once").status(), 200);
    let refused = client.get("/once");
    assert_eq!((refused.status(), ids(&refused).len()), (429, 0));
    assert!(!refused.text().contains("request_id"), "{}", refused.text());
    assert!(lines(&gateway, 3)[0].get("request_id").is_none());
}

/// The document has the id, and the length is that of the document: the next answer would begin in its middle
/// otherwise.
#[track_caller]
fn problem_id(answer: &Message) -> String {
    let id = only_id(answer);
    let document: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(document["request_id"], *id, "{answer:?}");
    assert_eq!(document["status"], answer.status(), "{answer:?}");
    assert!(is_new(&id));
    id
}

#[test]
fn answers_of_the_gateway_have_the_id_of_their_request() {
    let upstream = Upstream::plain();
    let more = "upstreams: { up: [\"http://{upstream}\"], gone: [\"http://127.0.0.1:1\"] }\n";
    let policies = [
        ONCE,
        ("gone", "match: /gone\nupstream: gone\n"),
        ("get", "match: GET /get\nupstream: up\n"),
        ("small", "match: /small\nupstream: up\nmax_body: 1B\n"),
    ];
    let gateway = Gateway::start(upstream.address, &format!("{ON}{more}"), &policies);
    let mut seen = Vec::new();
    let mut client = gateway.connect();
    assert_eq!(client.get("/once").status(), 200);
    for (line, status) in [
        ("GET /none HTTP/1.1", 404),
        ("POST /get HTTP/1.1", 405),
        ("GET /gone HTTP/1.1", 503),
    ] {
        client.send(format!("{line}\r\nhost: t\r\nx-request-id: mine\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.status(), status, "{line}");
        seen.push((problem_id(&answer), status));
    }
    for (request, status) in [
        (
            "POST /small HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nab",
            413,
        ),
        ("GET /get HTTP/1.1\r\nx: y\r\n\r\n", 400),
        ("GET /get HTTP/1.1\r\nhost: t\r\nx: \x01\r\n\r\n", 400),
        ("GET /get HTTP/1.9\r\nhost: t\r\n\r\n", 505),
    ] {
        let mut client = gateway.connect();
        client.send(request);
        let answer = client.answer();
        assert_eq!(answer.status(), status, "{request}");
        seen.push((problem_id(&answer), status));
    }
    // Refusals that the connection and the worker remember.
    for _ in 0..30 {
        let answer = client.get("/once");
        assert_eq!(answer.status(), 429);
        assert!(answer.text().contains("\"violated-policies\":[\"once\"]"));
        seen.push((problem_id(&answer), 429));
    }
    client.send("POST /once HTTP/1.1\r\nhost: t\r\ncontent-type: application/grpc\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.field("grpc-status"), Some("8"));
    seen.push((only_id(&answer), 200));
    let logged = lines(&gateway, seen.len() + 1);
    let ids: HashSet<_> = seen.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), seen.len(), "each has its own");
    for (id, status) in &seen {
        let mut own = logged.iter().filter(|line| line["request_id"] == **id);
        assert_eq!(own.next().unwrap()["status"], *status);
        assert!(own.next().is_none());
    }
}

#[test]
fn ids_over_http2() {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, &format!("{ON}{TRUSTED}"), &[ALL, ONCE]);
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let mut seen = HashSet::new();
        for number in 0..10 {
            let request = http2::request("GET", "/once").header("x_request_id", "mine");
            let (answer, _) = client.begin(request.body(()).unwrap(), true);
            let answer = whole(answer.await.unwrap()).await.unwrap();
            assert_eq!(answer.status, if number == 0 { 200 } else { 429 });
            let values: Vec<_> = answer.fields.get_all("x-request-id").iter().collect();
            assert_eq!(values.len(), 1);
            let id = values[0].to_str().unwrap().to_owned();
            if number > 0 {
                let document: Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!(document["request_id"], *id);
            }
            assert!(is_new(&id) && seen.insert(id));
        }
        let request = http2::request("GET", "/").header("x-request-id", "theirs");
        let (answer, _) = client.begin(request.body(()).unwrap(), true);
        let answer = whole(answer.await.unwrap()).await.unwrap();
        assert_eq!(answer.field("x-request-id"), Some("theirs"));
    });
    assert!(is_new(&only_id(&upstream.next())));
    assert_eq!(only_id(&upstream.next()), "theirs");
    assert_eq!(lines(&gateway, 11)[10]["request_id"], "theirs");
}

#[test]
fn a_trailer_cannot_bring_an_id() {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, &format!("{ON}{TRUSTED}"), &[ALL]);
    let mut client = gateway.connect();
    client.send(
        "POST / HTTP/1.1\r\nhost: t\r\nte: trailers\r\ntransfer-encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nx-request-id: a\r\nx_request_id: b\r\nx-kept: c\r\n\r\n",
    );
    assert_eq!(client.answer().status(), 200);
    let request = upstream.next();
    assert!(is_new(&only_id(&request)));
    assert_eq!(request.trailers, [("x-kept".into(), "c".into())]);
}

/// A reload gives requests ids, without a new connection.
#[test]
fn a_reload_begins_with_ids() {
    let upstream = Upstream::answering(|_| ok("fine"));
    let gateway = Gateway::start(upstream.address, "workers: 1\n", &[ALL]);
    let mut client = gateway.connect();
    for _ in 0..3 {
        assert!(ids(&client.get("/")).is_empty());
        upstream.next();
    }
    let file = gateway.folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "request_id: x-trace\n").unwrap();
    run(async { gateway.app.reload().await.unwrap() });
    wait_until("answers have ids", || {
        let answer = client.get("/");
        let request = upstream.next();
        let id = answer.field("x-trace");
        assert_eq!(id, request.field("x-trace"));
        id.is_some_and(is_new)
    });
}
