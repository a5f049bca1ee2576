//! Which of several servers gets a request, and what clients see while some of them fail.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "upstreams/bounds.rs"]
mod bounds;
#[path = "upstreams/checks.rs"]
mod checks;
mod common;
#[path = "upstreams/failing.rs"]
mod failing;
#[path = "upstreams/names.rs"]
mod names;
#[path = "upstreams/sharing.rs"]
mod sharing;
#[path = "upstreams/silence.rs"]
mod silence;
#[path = "upstreams/unix.rs"]
mod unix;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use common::backend::Backend;
use common::certificate::Certificate;
use common::{Client, Gateway, wait_until};
use tollgate::base::clock::Clock;

const ALL: (&str, &str) = ("all", "match: /**\nupstream: up\n");

/// A gateway in front of these servers, with more fields of the upstream and of the gateway file.
fn gateway(backends: &[Backend], upstream: &str, more: &str) -> Gateway {
    let servers: Vec<_> = backends.iter().map(url).collect();
    let servers = servers.join(", ");
    let text = format!("upstreams: {{ up: {{ servers: [{servers}], {upstream} }} }}\n{more}");
    Gateway::start(backends[0].address(), &text, &[ALL])
}

/// A gateway in front of a server that takes connections and never shakes hands, so that each attempt to
/// get one lasts until its time-out.
fn never_shaking_hands(silent: &TcpListener, upstream: &str, more: &str) -> Gateway {
    let address = silent.local_addr().unwrap();
    let tls = "tls: { roots: ca.pem, name: a.test }";
    let text = format!(
        "workers: 1\nupstreams: {{ up: {{ servers: [\"https://{address}\"], {tls}, {upstream} }} }}\n{more}"
    );
    let folder = tempfile::tempdir().unwrap();
    let roots = Certificate::of(&["a.test"]).pem;
    std::fs::write(folder.path().join("ca.pem"), roots).unwrap();
    common::write(&folder, address, &text, &[ALL]);
    Gateway::start_in(folder, Clock::system())
}

fn url(backend: &Backend) -> String {
    format!("\"http://{}\"", backend.address())
}

/// What it comes to, and how long that takes.
fn timed<T>(make: impl FnOnce() -> T) -> (T, Duration) {
    let clock = Clock::system();
    let start = clock.now();
    let made = make();
    (made, clock.now().since(start).into())
}

/// How many requests each server answered.
fn answers(client: &mut Client, requests: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        let answer = client.get("/");
        assert_eq!(answer.status(), 200, "{}", answer.text());
        *counts.entry(answer.text()).or_default() += 1;
    }
    counts
}

/// The value of a metric of one server.
fn figure(gateway: &Gateway, metric: &str, backend: &Backend) -> u64 {
    let start = format!(
        "{metric}{{upstream=\"up\",server=\"{}\"}} ",
        backend.address()
    );
    let text = gateway.app.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start} in {text}"))
        .parse()
        .unwrap()
}

fn is_up(gateway: &Gateway, backend: &Backend) -> bool {
    figure(gateway, "tollgate_upstream_server_up", backend) == 1
}

#[track_caller]
fn goes_down(gateway: &Gateway, backend: &Backend) {
    wait_until("the server is left alone", || !is_up(gateway, backend));
}

#[track_caller]
fn comes_up(gateway: &Gateway, backend: &Backend) {
    wait_until("the server is asked again", || is_up(gateway, backend));
}
