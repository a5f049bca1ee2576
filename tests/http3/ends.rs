//! How requests and connections end: clients that take requests back, and a gateway that drains.

use serde_json::json;

use crate::common::{Gate, Upstream, ok};
use crate::site::{Client, start};

const OPEN: (&str, &str) = ("open", "match: /**\nupstream: up\n");

#[test]
fn a_reset_cancels_the_request_to_the_server() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request.clone());
            if request.start.contains("/held") {
                // Nothing more can be read once the gateway has closed the connection.
                let end = served.request();
                assert!(end.is_err());
                held.open();
                return;
            }
            served.send(ok("here"));
        }
    });
    let gateway = start(&upstream, "", &[OPEN]);
    let mut client = Client::connected(&gateway);
    let opened = client.ask(json!({ "do": "open", "path": "/held", "ends": true }));
    assert!(upstream.next().start.contains("/held"));
    client.ask(json!({ "do": "reset", "stream": opened["stream"], "is_whole": true }));
    gate.pass();
    assert_eq!(client.fetch_one(json!({ "path": "/" }))["status"], 200);
}

#[test]
fn a_response_that_breaks_off_is_no_whole_one() {
    let upstream = Upstream::scripted(|mut served, report| {
        if let Ok(request) = served.request() {
            report(request);
            served.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
        }
    });
    let gateway = start(&upstream, "", &[OPEN]);
    let response = Client::connected(&gateway).fetch_one(json!({ "path": "/" }));
    assert_eq!(response["status"], 200, "{response}");
    // The gateway has failed, and not the client.
    assert_eq!(response["reset"], 0x102, "{response}");
}

#[test]
fn a_drain_finishes_open_requests_and_announces_the_end() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            held.pass();
            served.send(ok("late"));
        }
    });
    let gateway = start(&upstream, "", &[OPEN]);
    let mut client = Client::connected(&gateway);
    let opened = client.ask(json!({ "do": "open", "path": "/slow", "method": "POST" }));
    client.ask(json!({ "do": "send", "stream": opened["stream"], "bytes": 5, "end": true }));
    upstream.next();
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| gateway.app.shut_down());
        // Request 4 is the first that is not served.
        assert_eq!(client.ask(json!({ "do": "goaway" })), json!({ "id": 4 }));
        let rejected = client.fetch_one(json!({ "path": "/new" }));
        assert_eq!(rejected["reset"], 0x10b, "{rejected}");
        assert!(!drain.is_finished());
        gate.open();
        let response = client.ask(json!({ "do": "wait", "stream": opened["stream"] }));
        assert_eq!(response["status"], 200, "{response}");
        assert_eq!(response["text"], "late");
        assert_eq!(client.ask(json!({ "do": "closed" }))["code"], 0x100);
    });
}
