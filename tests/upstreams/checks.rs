//! Active checks, slow start, and what operators see of them.

use std::time::Duration;

use crate::common::backend::{Backend, Mode};
use crate::common::{Client, assert_contains, wait_until, write};
use crate::{ALL, answers, comes_up, figure, gateway, goes_down, is_up, timed, url};

const HTTP: &str = "health: { path: /healthz, every: 100ms }, eject: off";

#[test]
fn a_server_whose_checks_fail_is_left_alone_until_they_succeed() {
    let backends = Backend::several(3);
    let gateway = gateway(&backends, HTTP, "");
    let mut client = gateway.connect();
    assert_eq!(answers(&mut client, 30).len(), 3);
    backends[0].set(Mode::Ailing);
    goes_down(&gateway, &backends[0]);
    let counts = answers(&mut client, 30);
    assert!(!counts.contains_key("a"), "{counts:?}");
    let failures = "tollgate_upstream_server_check_failures_total";
    assert!(figure(&gateway, failures, &backends[0]) >= 3);
    backends[0].set(Mode::Well);
    comes_up(&gateway, &backends[0]);
    assert_eq!(answers(&mut client, 30).len(), 3);
}

#[test]
fn a_server_that_hangs_is_found_by_its_checks() {
    let backends = Backend::several(2);
    let gateway = gateway(&backends, HTTP, "");
    wait_until("it was checked", || backends[0].checked() > 2);
    backends[0].set(Mode::Hang);
    let ((), time) = timed(|| goes_down(&gateway, &backends[0]));
    assert!(time < Duration::from_secs(2), "after {time:?}");
    assert_eq!(answers(&mut gateway.connect(), 10)["b"], 10);
}

#[test]
fn a_connection_is_enough_for_a_check_of_tcp() {
    let mut backends = Backend::several(2);
    let health = "health: { tcp: true, every: 100ms }, eject: off";
    let gateway = gateway(&backends, health, "");
    backends[0].set(Mode::Ailing);
    backends[1].kill();
    goes_down(&gateway, &backends[1]);
    assert_eq!(answers(&mut gateway.connect(), 10)["a"], 10);
    backends[1].revive();
    comes_up(&gateway, &backends[1]);
    assert_eq!(backends[0].checked(), 0);
}

#[test]
fn checks_may_take_all_out() {
    let backends = Backend::several(3);
    let gateway = gateway(&backends, HTTP, "");
    for backend in &backends {
        backend.set(Mode::Ailing);
    }
    for backend in &backends {
        goes_down(&gateway, backend);
    }
    let (answer, time) = timed(|| gateway.connect().get("/"));
    assert!(time < Duration::from_millis(100), "after {time:?}");
    assert_eq!(answer.status(), 503);
    assert_contains(&answer.text(), &["No server of the upstream is available."]);
    backends[2].set(Mode::Well);
    comes_up(&gateway, &backends[2]);
    assert_eq!(answers(&mut gateway.connect(), 10)["c"], 10);
}

#[test]
fn the_very_first_check_is_enough() {
    let backends = Backend::several(2);
    backends[0].set(Mode::Ailing);
    let health = "health: { path: /healthz, every: 1h }";
    let gateway = gateway(&backends, health, "");
    goes_down(&gateway, &backends[0]);
    assert_eq!(backends[0].checked(), 1, "for all workers");
}

#[test]
fn a_server_that_comes_back_starts_slowly() {
    let backends = Backend::several(2);
    let upstream = format!("{HTTP}, slow_start: 1h");
    let gateway = gateway(&backends, &upstream, "workers: 1\n");
    let mut client = gateway.connect();
    assert_eq!(answers(&mut client, 20)["a"], 10, "not at the start");
    backends[0].set(Mode::Ailing);
    goes_down(&gateway, &backends[0]);
    backends[0].set(Mode::Well);
    comes_up(&gateway, &backends[0]);
    let counts = answers(&mut client, 400);
    assert!((5..50).contains(&counts["a"]), "a tenth of 200: {counts:?}");
}

#[test]
fn a_reload_keeps_what_is_known_and_its_connections() {
    let backends = Backend::several(2);
    let gateway = gateway(&backends, HTTP, "");
    backends[0].set(Mode::Ailing);
    goes_down(&gateway, &backends[0]);
    let text = format!(
        "upstreams: {{ up: {{ servers: [{}, {}], balance: least_requests, {HTTP} }} }}\n",
        url(&backends[0]),
        url(&backends[1])
    );
    write(&gateway.folder, backends[0].address(), &text, &[ALL]);
    gateway.reload().unwrap();
    assert!(!is_up(&gateway, &backends[0]));
    assert_eq!(answers(&mut gateway.connect(), 10)["b"], 10);
    backends[0].set(Mode::Well);
    comes_up(&gateway, &backends[0]);
}

#[test]
fn operators_see_how_servers_stand() {
    let backends = Backend::several(2);
    backends[0].set(Mode::Ailing);
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "admin: 127.0.0.1:0\nupstreams: {{ up: {{ servers: [{}, {}], {HTTP} }} }}\n",
        url(&backends[0]),
        url(&backends[1])
    );
    write(&folder, backends[0].address(), &text, &[ALL]);
    let server = crate::common::child::Server::start(folder.path(), true);
    let mut body = serde_json::Value::Null;
    wait_until("it is left alone", || {
        body = serde_json::from_slice(&server.ask("GET", "/v1/upstreams", "").body).unwrap();
        body["upstreams"][0]["servers"][0]["state"] == "failing"
    });
    let upstream = &body["upstreams"][0];
    assert_eq!(upstream["upstream"], "up");
    assert_eq!(upstream["servers"][1]["state"], "up");
    let address = backends[1].address().to_string();
    assert_eq!(upstream["servers"][1]["server"], address);
    let page = server.ask("GET", "/", "").text();
    assert_contains(&page, &["<h2>Upstreams</h2>", &address, "failing"]);
    let mut client = Client::connect(server.address);
    assert_eq!(client.get("/").text(), "b");
}
