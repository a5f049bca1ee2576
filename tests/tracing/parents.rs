//! Who is whose parent: from the client's span over those of the gateway to the span that a server gets.

use serde_json::Value;

use crate::collector::{ALL, Collector, attribute};
use crate::common::http2::{self, run, whole};
use crate::common::{Gateway, Message, Upstream, ok};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

/// The values of all fields of this name.
fn all<'m>(message: &'m Message, name: &str) -> Vec<&'m str> {
    let fields = message.fields.iter();
    let named = fields.filter(|(own, _)| own == name);
    named.map(|(_, value)| value.as_str()).collect()
}

/// The trace, the span and the flags that a server got.
#[track_caller]
fn received(message: &Message) -> (&str, &str, &str) {
    let values = all(message, "traceparent");
    assert_eq!(values.len(), 1, "{message:?}");
    let parts: Vec<&str> = values[0].split('-').collect();
    assert!(parts.len() == 4 && parts[0] == "00", "{message:?}");
    (parts[1], parts[2], parts[3])
}

/// Checks that two spans are those of one request that its server got in this message. Returns that of the request.
#[track_caller]
fn check_chain<'s>(spans: &'s [Value], message: &Message) -> &'s Value {
    let [server, client] = spans else {
        panic!("{spans:#?}")
    };
    assert!(server["kind"] == "SERVER" && client["kind"] == "CLIENT");
    assert!(server["trace"] == client["trace"] && client["parent"] == server["span"]);
    assert!(server["start"].as_u64() <= client["start"].as_u64());
    assert!(client["end"].as_u64() <= server["end"].as_u64());
    let (trace, parent, _) = received(message);
    assert!(server["trace"] == *trace && client["span"] == *parent);
    assert_eq!(client["flags"].as_u64().unwrap() & 0x300, 0x100);
    server
}

#[test]
fn a_trace_is_continued_from_the_client_to_the_server() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway = Gateway::start(upstream.address, &collector.traces("100%", ""), &[ALL]);
    let mut client = gateway.connect();
    client.send(format!(
        "GET /a HTTP/1.1\r\nhost: t\r\nTraceParent: 00-{TRACE}-{CLIENT}-00\r\n\
         tracestate: one=1\r\nTraceState: two=2,three=3\r\n\r\n"
    ));
    assert_eq!(client.answer().status(), 200);
    let message = upstream.next();
    assert_eq!(received(&message).2, "01");
    assert_eq!(all(&message, "tracestate"), ["one=1", "two=2,three=3"]);
    let spans = collector.spans(2);
    let server = check_chain(&spans, &message);
    assert!(server["trace"] == TRACE && server["parent"] == CLIENT);
    assert_eq!(server["flags"], 0x301);
    for span in &spans {
        assert_eq!(span["state"], "one=1,two=2,three=3");
        assert_eq!(span["resource"]["service.name"], "tollgate");
        assert!(span["token"].is_null());
    }
    // The next request of the connection has spans of its own.
    client.send(format!(
        "GET /a HTTP/1.1\r\nhost: t\r\nTraceParent: 00-{TRACE}-{CLIENT}-00\r\n\
         tracestate: one=1\r\nTraceState: two=2,three=3\r\n\r\n"
    ));
    client.answer();
    let spans = collector.spans(4);
    check_chain(&spans[2..], &upstream.next());
    assert_ne!(spans[0]["span"], spans[2]["span"]);
}

#[test]
fn http2_requests_are_traced_alike() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway = Gateway::start(upstream.address, &collector.traces("100%", ""), &[ALL]);
    run(async {
        let mut client = http2::Client::connect(gateway.address).await;
        let request = http2::request("GET", "/b?q=1")
            .header("traceparent", format!("00-{TRACE}-{CLIENT}-03"))
            .body(());
        let (response, _) = client.begin(request.unwrap(), true);
        whole(response.await.unwrap()).await.unwrap();
    });
    let message = upstream.next();
    assert_eq!(received(&message).2, "03");
    let spans = collector.spans(2);
    let server = check_chain(&spans, &message);
    assert!(server["trace"] == TRACE && server["parent"] == CLIENT);
    assert_eq!(attribute(server, "network.protocol.version"), "2");
    assert_eq!(attribute(server, "url.path"), "/b");
}

#[test]
fn without_a_valid_parent_a_new_trace_begins() {
    let valid = format!("traceparent: 00-{TRACE}-{CLIENT}-01\r\n");
    let malformed = [
        String::new(),
        valid.replace("00-0", "ff-0"),
        valid.replace("-01", "-0"),
        valid.replace("0af7", "0AF7"),
        valid.replace(TRACE, &"0".repeat(32)),
        valid.replace(CLIENT, &"0".repeat(16)),
        valid.replace("-01\r\n", "-01-x\r\n"),
        format!("{valid}{valid}"),
        format!("{valid}traceparent: x\r\n"),
        valid.replace("-01\r\n", &format!("-01,00-{TRACE}-{CLIENT}-01\r\n")),
        "traceparent: \r\n".to_owned(),
    ];
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway = Gateway::start(upstream.address, &collector.traces("100%", ""), &[ALL]);
    let mut messages = Vec::new();
    for fields in &malformed {
        let mut client = gateway.connect();
        client.send(format!(
            "GET / HTTP/1.1\r\nhost: t\r\n{fields}tracestate: a=b\r\n\r\n"
        ));
        assert_eq!(client.answer().status(), 200);
        let message = upstream.next();
        assert!(all(&message, "tracestate").is_empty(), "{fields}");
        messages.push(message);
    }
    let spans = collector.spans(2 * messages.len());
    for message in &messages {
        let (trace, _, flags) = received(message);
        assert!(flags == "03" && trace != TRACE);
        let own = spans.iter().filter(|span| span["trace"] == *trace);
        let own: Vec<Value> = own.cloned().collect();
        let server = check_chain(&own, message);
        assert!(server["parent"] == "" && server["state"] == "");
        assert_eq!(server["flags"], 0x103);
    }
}

#[test]
fn each_server_that_a_request_is_sent_to_has_a_span() {
    let collector = Collector::start();
    // Each connection serves one request and closes when the next one has come.
    let upstream = Upstream::scripted(|mut served, report| {
        for is_first in [true, false] {
            let Ok(request) = served.request() else {
                return;
            };
            report(request);
            if is_first {
                served.send(ok("fine"));
            }
        }
    });
    let gateway_file = format!("workers: 1\n{}", collector.traces("100%", ""));
    let gateway = Gateway::start(upstream.address, &gateway_file, &[ALL]);
    let mut client = gateway.connect();
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(client.get("/").status(), 200);
    let messages = [upstream.next(), upstream.next(), upstream.next()];
    let spans = collector.spans(5);
    check_chain(&spans[..2], &messages[0]);
    let [server, failed, repeated] = &spans[2..] else {
        panic!("{spans:#?}")
    };
    for (client, message) in [(failed, &messages[1]), (repeated, &messages[2])] {
        assert!(client["parent"] == server["span"] && client["trace"] == server["trace"]);
        assert!(client["span"] == *received(message).1);
        assert_eq!(client["kind"], "CLIENT");
    }
    assert!(failed["status"] == "ERROR" && attribute(failed, "error.type") == "no answer");
    assert!(attribute(failed, "http.response.status_code").is_null());
    assert!(failed["end"].as_u64() <= repeated["start"].as_u64());
    assert!(repeated["status"] == "UNSET" && server["status"] == "UNSET");
    assert_eq!(attribute(repeated, "http.request.resend_count"), 1);
    assert_eq!(attribute(repeated, "http.response.status_code"), 200);
}
