//! The admin listener: what it tells, what it changes, and whom it lets in.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "admin/api_keys.rs"]
mod api_keys;
#[path = "admin/attacks.rs"]
mod attacks;
#[path = "admin/authorization.rs"]
mod authorization;
mod common;
#[path = "admin/everywhere.rs"]
mod everywhere;
#[path = "admin/forms.rs"]
mod forms;
#[path = "admin/grant_forms.rs"]
mod grant_forms;
#[path = "admin/keys.rs"]
mod keys;
#[path = "admin/outcomes.rs"]
mod outcomes;
#[path = "admin/rights.rs"]
mod rights;
#[path = "admin/verbs.rs"]
mod verbs;

use std::collections::BTreeMap;

use common::child::{self, Server};
use common::{Client, Gate, Message, Upstream, ok, wait_until, write};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

const API: &str = "\
match: GET /api/**
upstream: up
limits:
  per-ip: { key: ip, rate: 3/h }
  per-key: { key: token, rate: 100/h }
";
const FREE: &str = "match: GET /free\nupstream: up\n";
const ADMIN: &str = "admin: 127.0.0.1:0\nidentity: { token: { header: x-api-key } }\n";

/// A gateway in a process of its own, its files, and the server behind it.
struct Setup {
    server: Server,
    folder: TempDir,
    upstream: Upstream,
}

fn start(gateway: &str) -> Setup {
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    start_with(upstream, folder, gateway)
}

fn start_with(upstream: Upstream, folder: TempDir, gateway: &str) -> Setup {
    write(
        &folder,
        upstream.address,
        gateway,
        &[("api", API), ("free", FREE)],
    );
    Setup {
        server: Server::start(folder.path(), true),
        folder,
        upstream,
    }
}

impl Setup {
    fn get(&self, path: &str) -> Message {
        self.server.ask("GET", path, "")
    }

    /// Statuses of so many requests of clients.
    fn requests(&self, count: usize) -> Vec<u16> {
        let mut client = self.server.connect();
        (0..count).map(|_| client.get("/api/x").status()).collect()
    }

    fn policy(&self, name: &str, text: &str) {
        let path = self.folder.path().join(format!("policies/{name}.yaml"));
        std::fs::write(path, text).unwrap();
    }
}

#[track_caller]
fn json(answer: &Message) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{e}: {}", answer.text()))
}

/// Checks an answer with problem details and what they say.
#[track_caller]
fn problem(answer: &Message, status: u16, says: &str) {
    assert_eq!(answer.status(), status, "{}", answer.text());
    let kind = answer.field("content-type");
    assert_eq!(kind, Some("application/problem+json"));
    let body = json(answer);
    assert_eq!(body["status"], status);
    assert!(
        body["detail"].as_str().unwrap().contains(says),
        "`{says}` in {body}"
    );
}

/// The samples of a Prometheus text; panics where it is none.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut kinds = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert_eq!(kinds.insert(name.to_owned(), kind), None, "{line}");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            let family = family.filter(|family| kinds.get(*family) == Some(&"histogram"));
            let typed = kinds.contains_key(name) || family.is_some();
            assert!(typed, "{line} has a type before it");
            let value = value.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(samples.insert(series.to_owned(), value), None, "{line}");
        }
    }
    samples
}

fn sample(samples: &BTreeMap<String, f64>, series: &str) -> f64 {
    *samples
        .get(series)
        .unwrap_or_else(|| panic!("{series} in {samples:#?}"))
}

#[test]
fn health_and_readiness() {
    let setup = start(ADMIN);
    assert_eq!(setup.get("/healthz").status(), 200);
    let ready = setup.get("/readyz");
    assert_eq!((ready.status(), ready.text().as_str()), (200, "ready\n"));
}

#[test]
fn it_is_not_ready_while_it_drains() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::scripted(move |mut served, report| {
        while let Ok(request) = served.request() {
            report(request);
            held.pass();
            served.send(ok("late"));
        }
    });
    let mut setup = start_with(upstream, tempfile::tempdir().unwrap(), ADMIN);
    let mut client = setup.server.connect();
    client.send("GET /free HTTP/1.1\r\nhost: t\r\n\r\n");
    setup.upstream.next();
    setup.server.signal(Signal::TERM);
    child::line_with(&setup.server.err, "draining");
    wait_until("it is not ready", || setup.get("/readyz").status() != 200);
    problem(&setup.get("/readyz"), 503, "draining");
    assert_eq!(setup.get("/healthz").status(), 200, "it lives");
    gate.open();
    assert_eq!(client.answer().text(), "late");
    assert_eq!(setup.server.ended(), Some(0));
}

#[test]
fn metrics_add_up_with_what_was_sent() {
    let setup = start(ADMIN);
    assert_eq!(setup.requests(5), [200, 200, 200, 429, 429]);
    let mut client = setup.server.connect();
    for _ in 0..2 {
        client.send("GET /api/x HTTP/1.1\r\nhost: t\r\nx-api-key: k\r\n\r\n");
        assert_eq!(client.answer().status(), 429);
    }
    for _ in 0..4 {
        assert_eq!(client.get("/free").status(), 200);
    }
    assert_eq!(client.get("/nowhere").status(), 404);
    let answer = setup.get("/metrics");
    let kind = answer.field("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let samples = samples(&answer.text());
    let requests = |route: &str, outcome: &str| {
        let labels = format!("{{route=\"{route}\",outcome=\"{outcome}\"}}");
        sample(&samples, &format!("tollgate_requests_total{labels}"))
    };
    assert_eq!(requests("api", "admitted"), 3.0);
    assert_eq!(requests("api", "refused"), 4.0);
    assert_eq!(requests("free", "admitted"), 4.0);
    assert_eq!(requests("none", "rejected"), 1.0);
    let decisions = |limit: &str, outcome: &str| {
        let labels = format!("{{limit=\"{limit}\",outcome=\"{outcome}\"}}");
        sample(&samples, &format!("tollgate_limit_decisions_total{labels}"))
    };
    assert_eq!(decisions("per-ip", "within"), 3.0);
    assert_eq!(decisions("per-ip", "refused"), 4.0);
    assert_eq!(decisions("per-ip", "over"), 0.0);
    // Two requests had a key, and their addresses were refused: nothing is known against the key.
    assert_eq!(decisions("per-key", "refused"), 0.0);
    assert_eq!(sample(&samples, "tollgate_connections_total"), 2.0);
    let connects = sample(
        &samples,
        "tollgate_upstream_connects_total{upstream=\"up\"}",
    );
    assert!((1.0..=2.0).contains(&connects), "{connects}");
    let seconds = sample(
        &samples,
        "tollgate_request_duration_seconds_sum{route=\"free\"}",
    );
    assert!(seconds > 0.0 && seconds < 60.0, "{seconds}");
    let of = |route: &str, status: u16, origin: &str| {
        let labels = format!("{{route=\"{route}\",status=\"{status}\",origin=\"{origin}\"}}");
        sample(&samples, &format!("tollgate_responses_total{labels}"))
    };
    assert_eq!(of("api", 200, "upstream"), 3.0);
    assert_eq!(of("api", 429, "gateway"), 4.0);
    assert_eq!(of("none", 404, "gateway"), 1.0);
    let name = "tollgate_request_duration_seconds_count{route=\"api\"}";
    assert_eq!(sample(&samples, name), 7.0);
    let name = "tollgate_upstream_duration_seconds_count{route=\"api\"}";
    assert_eq!(sample(&samples, name), 3.0, "only what was forwarded");
    let keys = sample(&samples, "tollgate_store_keys");
    assert_eq!(keys, 1.0, "the address; the refused key takes no room");
    let [bytes, budget] =
        ["tollgate_store_bytes", "tollgate_store_budget_bytes"].map(|name| sample(&samples, name));
    assert!(0.0 < bytes && bytes <= budget, "{bytes} of {budget}");
    assert_eq!(setup.upstream.drain().len(), 7, "what was admitted");
}

#[test]
fn policies_and_limits_are_shown() {
    let setup = start(ADMIN);
    let shown = json(&setup.get("/v1/policies"));
    let files = shown["files"].as_array().unwrap();
    let text = |name: &str| {
        let named = |file: &&Value| file["path"].as_str().unwrap().ends_with(name);
        files.iter().find(named).unwrap()["text"].clone()
    };
    assert_eq!(text("policies/api.yaml"), API);
    assert_eq!(text("policies/free.yaml"), FREE);
    assert!(text("tollgate.yaml").as_str().unwrap().contains(ADMIN));
    let routes = shown["routes"].as_array().unwrap();
    assert_eq!(routes.len(), 2);
    let api = routes.iter().find(|route| route["name"] == "api").unwrap();
    assert_eq!(api["match"], "GET /api/**");
    assert_eq!(api["limits"], json!(["per-ip", "per-key"]));

    assert_eq!(setup.requests(4).last(), Some(&429));
    let limits = json(&setup.get("/v1/limits"));
    let limits = limits["limits"].as_array().unwrap();
    let [per_ip, per_key] = &limits[..] else {
        panic!("{limits:#?}");
    };
    assert_eq!(per_ip["limit"], "per-ip");
    assert_eq!(per_ip["counts_by"], json!(["ip"]));
    let guarantee = per_ip["guarantee"].as_str().unwrap();
    assert!(guarantee.contains('3'), "{guarantee}");
    let decisions = json!({ "within": 3, "over": 0, "refused": 1, "shadow_refused": 0 });
    assert_eq!(per_ip["decisions"], decisions);
    assert_eq!(per_key["limit"], "per-key");
    assert_eq!(per_key["decisions"]["within"], 0);

    let page = setup.get("/");
    let kind = page.field("content-type");
    assert_eq!(kind, Some("text/html; charset=utf-8"));
    assert!(page.text().contains("<th scope=row>per-ip<td>ip<td>"));
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
}

#[test]
fn a_key_is_read_and_forgotten() {
    let setup = start(ADMIN);
    let key = "/v1/limits/per-ip/keys/ip=127.0.0.1";
    let reading = |setup: &Setup| json(&setup.get(key))["limits"][0].clone();
    assert_eq!(reading(&setup)["remaining"], 3);
    assert_eq!(setup.requests(1), [200]);
    let before = reading(&setup);
    assert_eq!(
        (&before["remaining"], &before["quota"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(reading(&setup)["remaining"], 2, "reading uses up nothing");
    assert_eq!(setup.requests(3), [200, 200, 429]);
    assert_eq!(reading(&setup)["standing"], "refused");

    let other = setup
        .server
        .ask("DELETE", "/v1/limits/per-ip/keys/ip=127.0.0.2", "");
    assert_eq!(json(&other)["forgotten"], 0);
    assert_eq!(setup.requests(1), [429], "another address was forgotten");
    let forgotten = setup.server.ask("DELETE", key, "");
    assert_eq!(forgotten.status(), 200);
    assert_eq!(json(&forgotten)["forgotten"], 1);
    assert_eq!(reading(&setup)["remaining"], 3);
    assert_eq!(setup.requests(4), [200, 200, 200, 429], "all of it again");

    problem(
        &setup.get("/v1/limits/pre-ip/keys/ip=1.2.3.4"),
        404,
        "pre-ip",
    );
    problem(
        &setup.get("/v1/limits/per-ip/keys/user=a"),
        400,
        "counts by ip",
    );
    problem(
        &setup.get("/v1/limits/per-ip/keys/ip=1.2.3"),
        400,
        "not an address",
    );
    problem(
        &setup.get("/v1/limits/per-ip/keys/1.2.3.4"),
        400,
        "NAME=VALUE",
    );
}

#[test]
fn a_token_is_read_by_what_clients_send() {
    let setup = start(ADMIN);
    let mut client = setup.server.connect();
    client.send("GET /api/x HTTP/1.1\r\nhost: t\r\nx-api-key: secret-1\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    let remaining = |key: &str| {
        let answer = setup.get(&format!("/v1/limits/per-key/keys/token={key}"));
        json(&answer)["limits"][0]["remaining"].clone()
    };
    assert_eq!(remaining("secret-1"), 99);
    assert_eq!(remaining("secret-2"), 100);
}

#[test]
fn explanations() {
    let setup = start(ADMIN);
    let question = json!({
        "method": "GET", "path": "/api/x", "ip": "127.0.0.1", "headers": [["x-api-key", "a"]],
    });
    let ask = |question: &Value| {
        setup
            .server
            .ask("POST", "/v1/explain", &question.to_string())
    };
    let answer = json(&ask(&question));
    assert_eq!(answer["status"], 200);
    assert_eq!(answer["route"]["name"], "api");
    assert_eq!(answer["limits"][0]["remaining"], 3, "none was taken");
    assert_eq!(answer["limits"][0]["decides"], true);
    assert_eq!(answer["limits"][1]["remaining"], 100);
    assert_eq!(answer["limits"][1]["decides"], false);
    assert_eq!(setup.requests(3), [200; 3]);
    let answer = json(&ask(&question));
    assert_eq!(
        (&answer["status"], &answer["admitted"]),
        (&json!(429), &json!(false))
    );
    let wait = answer["retry_after"].as_u64().unwrap();
    assert!((3500..=3600).contains(&wait), "{wait}");
    let elsewhere = json!({ "method": "GET", "path": "/nowhere" });
    assert_eq!(json(&ask(&elsewhere))["status"], 404);
    let other = json!({ "method": "PUT", "path": "/free" });
    assert_eq!(json(&ask(&other))["status"], 405);
    problem(&setup.server.ask("POST", "/v1/explain", "{"), 400, "EOF");
    let unknown = json!({ "method": "GET", "path": "/", "adress": "1.2.3.4" });
    problem(&ask(&unknown), 400, "adress");
    assert_eq!(setup.upstream.drain().len(), 3, "no question went upstream");
}

#[test]
fn reloads_by_request() {
    let setup = start(ADMIN);
    let mut client = setup.server.connect();
    assert_eq!(client.get("/added").status(), 404);
    setup.policy("added", "match: GET /added\nupstream: up\n");
    let reloaded = setup.server.ask("POST", "/v1/reload", "");
    assert_eq!(reloaded.status(), 200);
    assert_eq!(json(&reloaded)["needs_restart"], json!([]));
    assert_eq!(client.get("/added").status(), 200);

    setup.policy("added", "match: GET /other\nupstream: upp\n");
    let refused = setup.server.ask("POST", "/v1/reload", "");
    problem(&refused, 422, "the policies before still run");
    let mistake = json(&refused)["report"]["diagnostics"][0].clone();
    let file = mistake["file"].as_str().unwrap();
    assert!(file.ends_with("policies/added.yaml"), "{file}");
    assert_eq!(
        (&mistake["line"], &mistake["column"]),
        (&json!(2), &json!(11))
    );
    assert_eq!(mistake["message"], "there is no upstream `upp`");
    assert_eq!(mistake["help"], "did you mean `up`?");
    assert_eq!(client.get("/added").status(), 200, "what ran runs");
    assert_eq!(client.get("/other").status(), 404);

    setup.policy("added", "match: GET /other\nupstream: up\n");
    let gateway = format!("{ADMIN}workers: 1\n");
    write(&setup.folder, setup.upstream.address, &gateway, &[]);
    let reloaded = setup.server.ask("POST", "/v1/reload", "");
    assert_eq!(json(&reloaded)["needs_restart"], json!(["workers"]));
    assert_eq!(client.get("/other").status(), 200);
    assert_eq!(client.get("/added").status(), 404);
    // The files are watched as well, so more than these may have happened.
    let samples = samples(&setup.get("/metrics").text());
    let reloads = |outcome| {
        let series = format!("tollgate_reloads_total{{outcome=\"{outcome}\"}}");
        sample(&samples, &series)
    };
    assert!((2.0..=4.0).contains(&reloads("ok")), "{}", reloads("ok"));
    assert!(
        (1.0..=2.0).contains(&reloads("refused")),
        "{}",
        reloads("refused")
    );
}

#[test]
fn unknown_paths_and_methods() {
    let setup = start(ADMIN);
    problem(&setup.get("/nowhere"), 404, "no such path");
    problem(&setup.get("/v1/limits/per-ip"), 404, "no such path");
    assert_eq!(setup.server.ask("DELETE", "/v1/limits", "").status(), 405);
    assert_eq!(
        setup.get("/v1/reload").status(),
        405,
        "a link reloads nothing"
    );
    let mut without_host = Client::connect(setup.server.admin.unwrap());
    without_host.send("GET /v1/limits HTTP/1.0\r\n\r\n");
    assert_eq!(without_host.answer().status(), 403);
    let mut client = Client::connect(setup.server.admin.unwrap());
    let (half, size) = (1024 * 1024, 2 * 1024 * 1024);
    client.send(format!(
        "POST /v1/explain HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n"
    ));
    // One byte more than it takes.
    client.send(vec![b'x'; half + 1]);
    assert_eq!(client.answer().status(), 413);
}
