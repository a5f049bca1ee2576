//! What servers say of their load (ORCA): it is not for clients, and it ends lending.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Gateway, Upstream, read_head, wait_until};

const POLICY: &str = "
match: /**
upstream: up
limits: { share: { key: ip, rate: 10/m, throttle: elastic, while: upstream.load < 0.7, at_most: 100/m } }
";

/// A gateway that hears these fields with each answer, and trailers where there are any.
fn gateway(trust: &str, fields: &'static str) -> (Gateway, Upstream) {
    let upstream = Upstream::scripted(move |mut served, _| {
        while read_head(&mut served.reader).is_ok() {
            let chunks = "2\r\nok\r\n0\r\nendpoint-load-metrics-bin: AA==\r\nx-sum: 1\r\n\r\n";
            served.send(format!(
                "HTTP/1.1 200 OK\r\n{fields}transfer-encoding: chunked\r\n\r\n{chunks}"
            ));
        }
    });
    let text = format!(
        "admin: 127.0.0.1:0\nupstreams: {{ up: {{ servers: [\"http://{{upstream}}\"]{trust} }} }}\n"
    );
    (
        Gateway::start(upstream.address, &text, &[("all", POLICY)]),
        upstream,
    )
}

fn gauge(gateway: &Gateway, name: &str) -> f64 {
    let metrics = gateway.app.metrics();
    let line = metrics.lines().find(|line| line.starts_with(name));
    line.map_or(f64::NAN, |line| {
        line.rsplit(' ').next().unwrap().parse().unwrap()
    })
}

const BUSY: &str = "endpoint-load-metrics: TEXT application_utilization=0.9\r\n";

#[test]
fn a_trusted_report_ends_lending_and_stays_here() {
    let (gateway, _upstream) = gateway(", load_report: { trust: lower }", BUSY);
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nhost: test\r\nte: trailers\r\n\r\n");
    let answer = client.answer();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.field("endpoint-load-metrics"), None);
    wait_until("the load is heard", || {
        gauge(&gateway, "tollgate_upstream_load") >= 0.89
    });
    // Nine more are guaranteed, and nothing is lent.
    let served = (0..30).filter(|_| client.get("/").status() == 200).count();
    assert_eq!(served, 9);
}

#[test]
fn what_is_no_load_changes_nothing() {
    for report in [
        "endpoint-load-metrics: application_utilization:nan\r\n",
        "endpoint-load-metrics: application_utilization:-1\r\n",
        "endpoint-load-metrics: application_utilization:1e9\r\n",
        "endpoint-load-metrics: cpu_utilization:0.9\r\nendpoint-load-metrics: cpu_utilization:0.9\r\n",
        "endpoint-load-metrics: cpu_utilization:0.9\r\nendpoint-load-metrics-bin: AA==\r\n",
        "endpoint-load-metrics: JSON {\"cpu_utilization\":0.9,\"cpu_utilization\":0.9}\r\n",
    ] {
        let (gateway, _upstream) = gateway(", load_report: { trust: full }", report);
        let mut client = gateway.connect();
        for _ in 0..5 {
            let answer = client.get("/");
            assert!(!answer.text().contains("load-metrics"), "{report}");
        }
        wait_until("a step is taken", || {
            gauge(&gateway, "tollgate_elastic_factor") >= 2.0
        });
        // The gateway's own beginning is over.
        wait_until(report, || gauge(&gateway, "tollgate_upstream_load") < 0.5);
    }
}

/// Nobody was told to believe it.
#[test]
fn without_trust_it_passes() {
    let (gateway, _upstream) = gateway("", BUSY);
    let answer = gateway.connect().get("/");
    assert!(answer.field("endpoint-load-metrics").is_some());
    wait_until("it is not heard", || {
        gauge(&gateway, "tollgate_upstream_load") < 0.5
    });
}
