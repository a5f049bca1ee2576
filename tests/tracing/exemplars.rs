//! Exemplars of the latency histogram, read by the parser of Prometheus' client and by Prometheus itself.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;
use tollgate::base::clock::Clock;

use crate::collector::{ALL, Collector, python};
use crate::common::child::{Guard, Server};
use crate::common::redis::free_port;
use crate::common::{Client, Upstream, wait_until, write};

const OPEN_METRICS: &str =
    "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";

/// The exemplars in a text.
fn parse(text: &str) -> Vec<Value> {
    let mut command = python("open_metrics.py");
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the parser refuses:\n{text}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn prometheus_shows_the_trace_of_a_bucket() {
    let (collector, upstream) = (Collector::start(), Upstream::plain());
    let folder = tempfile::tempdir().unwrap();
    let gateway_file = format!("admin: 127.0.0.1:0\n{}", collector.traces("100%", ""));
    write(&folder, upstream.address, &gateway_file, &[ALL]);
    let gateway = Server::start(folder.path(), true);
    assert_eq!(gateway.connect().get("/").status(), 200);
    let span = collector.spans(2).remove(0);

    let answer = gateway.ask_with("GET", "/metrics", OPEN_METRICS, "");
    let kind = answer.field("content-type").unwrap();
    assert_eq!(
        kind,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let exemplars = parse(&answer.text());
    let [exemplar] = &exemplars[..] else {
        panic!("{exemplars:?}")
    };
    assert_eq!(exemplar["name"], "tollgate_request_duration_seconds_bucket");
    assert_eq!(exemplar["labels"]["trace_id"], span["trace"]);
    assert_eq!(exemplar["labels"]["span_id"], span["span"]);
    let nanos = span["end"].as_u64().unwrap() - span["start"].as_u64().unwrap();
    assert_eq!(exemplar["value"].as_f64().unwrap(), nanos as f64 / 1e9);
    assert!(exemplar["value"].as_f64() <= exemplar["bound"].as_f64());
    let now = Clock::system().wall().as_secs_f64();
    assert!((now - exemplar["at"].as_f64().unwrap()).abs() < 60.0);

    // Whoever does not ask for OpenMetrics gets what there was before.
    let answer = gateway.ask_with("GET", "/metrics", "accept: */*\r\n", "");
    assert!(
        answer
            .field("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    assert!(!answer.text().contains(span["trace"].as_str().unwrap()));

    let admin = gateway.admin.unwrap();
    let config = format!(
        "scrape_configs:\n- job_name: tollgate\n  scrape_interval: 1s\n  static_configs: [{{ targets: ['{admin}'] }}]\n"
    );
    std::fs::write(folder.path().join("prometheus.yml"), config).unwrap();
    let port = free_port();
    let mut command = Command::new("prometheus");
    command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb"]);
    command.args(["--enable-feature=exemplar-storage", "--log.level=error"]);
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    command.current_dir(folder.path()).stdin(Stdio::null());
    let _prometheus = Guard(command.spawn().unwrap());
    let now = Clock::system().wall().as_secs();
    let query = format!(
        "/api/v1/query_exemplars?query=tollgate_request_duration_seconds_bucket&start={}&end={}",
        now - 600,
        now + 600
    );
    let mut shown = Value::Null;
    wait_until("Prometheus has the exemplar", || {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else {
            return false;
        };
        let mut client = Client::over(stream);
        client.send(format!(
            "GET {query} HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n"
        ));
        let answer = client.rest();
        let text = String::from_utf8_lossy(&answer);
        let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
        shown = serde_json::from_str(body).unwrap_or_default();
        shown["data"][0]["exemplars"][0]["labels"]["trace_id"] == span["trace"]
    });
    assert_eq!(shown["data"][0]["seriesLabels"]["route"], "all");
}

#[test]
fn without_traces_there_is_no_open_metrics() {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    write(&folder, upstream.address, "admin: 127.0.0.1:0\n", &[ALL]);
    let gateway = Server::start(folder.path(), true);
    let answer = gateway.ask_with("GET", "/metrics", OPEN_METRICS, "");
    assert!(
        answer
            .field("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
}
