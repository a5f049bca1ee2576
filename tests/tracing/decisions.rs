//! Which requests are traced, and that only trusted proxies decide it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::app::ReloadReport;

use crate::collector::{ALL, Collector, TRUSTED, attribute, counted};
use crate::common::{Gate, Gateway, Upstream, ok, wait_until};

const SAMPLED: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
const UNSAMPLED: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00\r\n";

/// Sends a GET with these fields, and returns all fields that the server got that begin with `trace`.
#[track_caller]
fn traces_at_server(gateway: &Gateway, upstream: &Upstream, fields: &str) -> Vec<String> {
    let mut client = gateway.connect();
    client.send(format!("GET / HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
    assert_eq!(client.answer().status(), 200);
    let message = upstream.next();
    let fields = message.fields.into_iter();
    let traces = fields.filter(|(name, _)| name.starts_with("trace"));
    traces
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect()
}

/// Sends `number` requests over few connections, and returns how many spans there are afterwards.
fn spans_of(number: usize, fields: &str) -> u64 {
    let collector = Collector::start();
    let upstream = Upstream::plain();
    let own = ("own", "match: /**\nrespond: { status: 204 }\n");
    let gateway = Gateway::start(upstream.address, &collector.traces("1%", ""), &[own]);
    let mut client = gateway.connect();
    let request = format!("GET / HTTP/1.1\r\nhost: t\r\n{fields}\r\n");
    for _ in 0..number / 50 {
        client
            .stream
            .write_all(request.repeat(50).as_bytes())
            .unwrap();
        for _ in 0..50 {
            assert_eq!(client.head().unwrap().status(), 204);
        }
    }
    // The end of the gateway sends what is left.
    drop(client);
    gateway.app.shut_down();
    assert_eq!(counted(&gateway, "lost") + counted(&gateway, "refused"), 0);
    let spans = collector.spans_so_far();
    assert!(
        spans
            .iter()
            .all(|span| attribute(span, "http.response.status_code") == 204)
    );
    assert_eq!(counted(&gateway, "sent"), spans.len() as u64);
    spans.len() as u64
}

/// Of 20,000 requests 200 are expected, with a standard deviation of 14.
#[test]
fn one_percent_is_one_percent_whatever_clients_send() {
    for fields in ["", SAMPLED, UNSAMPLED] {
        let spans = spans_of(20_000, fields);
        assert!((115..=285).contains(&spans), "{spans} {fields}");
    }
}

#[test]
fn a_client_cannot_make_servers_record() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway = Gateway::start(upstream.address, &collector.traces("0%", ""), &[ALL]);
    let state = "tracestate: a=b\r\n";
    let traces = traces_at_server(&gateway, &upstream, &format!("{SAMPLED}{state}"));
    let [parent, kept_state] = &traces[..] else {
        panic!("{traces:?}")
    };
    let parent = if parent == state { kept_state } else { parent };
    let (trace, flag) = (&SAMPLED[..48], "-00\r\n");
    assert!(
        parent.starts_with(trace) && parent.ends_with(flag),
        "{parent}"
    );
    assert_ne!(parent, UNSAMPLED, "a new flag needs a new id");
    // What asks for nothing is not touched.
    let untouched = traces_at_server(&gateway, &upstream, &format!("{UNSAMPLED}{state}"));
    assert_eq!(untouched, [UNSAMPLED, state]);
    assert!(traces_at_server(&gateway, &upstream, "").is_empty());
    // Servers differ in which of several they read.
    for fields in [format!("{SAMPLED}{SAMPLED}"), "traceparent: x\r\n".into()] {
        let traces = traces_at_server(&gateway, &upstream, &format!("{fields}{state}"));
        assert!(traces.is_empty(), "{traces:?}");
    }
    gateway.app.shut_down();
    assert!(collector.spans_so_far().is_empty());
}

#[test]
fn a_trusted_proxy_decides() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    for (sample, fields, expected) in [
        ("0%", SAMPLED, 2),
        ("100%", UNSAMPLED, 0),
        ("100%", "", 2),
        ("0%", "", 0),
        ("0%", &format!("{SAMPLED}{SAMPLED}"), 0),
        ("100%", &format!("{UNSAMPLED}{UNSAMPLED}"), 2),
    ] {
        let before = collector.spans_so_far().len();
        let gateway_file = format!("{TRUSTED}{}", collector.traces(sample, ""));
        let gateway = Gateway::start(upstream.address, &gateway_file, &[ALL]);
        let traces = traces_at_server(&gateway, &upstream, fields);
        if fields == UNSAMPLED {
            assert_eq!(traces, [UNSAMPLED]);
        }
        gateway.app.shut_down();
        let spans = collector.spans_so_far().len() - before;
        assert_eq!(spans, expected, "{sample} {fields}");
    }
}

#[test]
fn without_traces_the_fields_pass_untouched() {
    let upstream = Upstream::plain();
    let gateway = Gateway::start(upstream.address, "", &[ALL]);
    for fields in [
        vec![SAMPLED],
        vec![SAMPLED, SAMPLED],
        vec!["traceparent: x\r\n", "tracestate: a=b\r\n"],
        vec![],
    ] {
        let traces = traces_at_server(&gateway, &upstream, &fields.concat());
        assert_eq!(traces, fields);
    }
    assert!(!gateway.app.metrics().contains("tollgate_spans"));
}

#[test]
fn a_reload_begins_no_traces() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway = Gateway::start(upstream.address, "headers: ietf\n", &[ALL]);
    let report = reload(&gateway, "headers: ietf\n", &collector.traces("100%", ""));
    assert_eq!(report.needs_restart, ["traces"]);
    assert_eq!(traces_at_server(&gateway, &upstream, SAMPLED), [SAMPLED]);
}

#[test]
fn spans_that_come_while_others_are_sent_are_sent_together() {
    let (gate, posts) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (collector_gate, count) = (gate.clone(), posts.clone());
    let collector = Upstream::answering(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        collector_gate.pass();
        ok("")
    });
    let own = ("own", "match: /**\nrespond: { status: 204 }\n");
    let line = crate::collector::traces(collector.address.port(), "100%", "");
    let gateway = Gateway::start(collector.address, &line, &[own]);
    let mut client = gateway.connect();
    let mut ask = || {
        client.send("GET / HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(client.head().unwrap().status(), 204);
    };
    ask();
    let posts = || posts.load(Ordering::Relaxed);
    wait_until("the first span is being sent", || posts() == 1);
    (0..100).for_each(|_| ask());
    gate.open();
    wait_until("all are sent", || counted(&gateway, "sent") == 101);
    // The last span may come after the others have left.
    assert!((2..=3).contains(&posts()), "{}", posts());
}

fn reload(gateway: &Gateway, from: &str, to: &str) -> ReloadReport {
    let file = gateway.folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
    gateway.reload().unwrap()
}

#[test]
fn a_reload_changes_what_is_sampled() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway = Gateway::start(upstream.address, &collector.traces("0%", ""), &[ALL]);
    gateway.connect().get("/none");
    let report = reload(&gateway, "sample: 0%", "sample: 100%");
    assert!(report.needs_restart.is_empty());
    gateway.connect().get("/all");
    let spans = collector.spans(2);
    assert_eq!(attribute(&spans[0], "url.path"), "/all");
    let report = reload(&gateway, "/v1/traces", "/elsewhere/v1/traces");
    assert_eq!(report.needs_restart, ["traces"]);
    gateway.connect().get("/still");
    collector.spans(4);
    // Without the line no request is traced any more.
    let file = gateway.folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("traces:"))
        .unwrap();
    assert!(reload(&gateway, line, "").needs_restart.is_empty());
    gateway.connect().get("/gone");
    gateway.app.shut_down();
    collector.spans(4);
}

#[test]
fn lines_of_the_access_log_have_the_trace() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let gateway_file = format!(
        "access_log: {{ file: access.log }}\n{}",
        collector.traces("0%", "")
    );
    let gateway = Gateway::start(upstream.address, &gateway_file, &[ALL]);
    gateway.connect().get("/none");
    reload(&gateway, "sample: 0%", "sample: 100%");
    gateway.connect().get("/traced");
    let file = gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("both are logged", || read().lines().count() == 2);
    let text = read();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Two workers may write them in either order.
    let trace_of =
        |path: &str| &lines.iter().find(|line| line["target"] == path).unwrap()["trace_id"];
    assert!(trace_of("/none").is_null());
    assert_eq!(*trace_of("/traced"), collector.spans(2)[0]["trace"]);
}
