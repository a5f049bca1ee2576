//! What the audit has of orders that were neither simply done nor refused: those that failed halfway, and those of a takeover.

use std::fs;
use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::oneshot;
use tollgate::app;
use tollgate::base::clock::Clock;
use tollgate::base::telemetry::{Label, Metric, MetricsFormat};
use tollgate::operator::{
    AddedApiKey, ApiKeyError, BanError, ListedApiKey, ListedBan, ListedGrant, NewApiKey, NewBan,
};
use tollgate::policy::GrantMistake;
use tollgate::record::Record;
use tollgate::record::insight::AuditEntry;
use tollgate::record::push::DestinationStatus;
use tollgate::serve::admin::{self, Control, GrantOrder, Granted, ReloadOutcome};
use tollgate::serve::worker::generation::RunningConfig;

use crate::common::child::Server;
use crate::common::manager::Manager;
use crate::common::redis::Redis;
use crate::common::{Client, Gateway, Upstream, wait_until, write};
use crate::rights::{GATEWAY, operators, start_with_operators};
use crate::{API, FREE, Setup, json as json_of, problem, start_with};

/// A gateway with a fault in every order.
struct Faulty {
    gateway: app::Gateway,
    audited: Arc<Mutex<Vec<AuditEntry>>>,
}

impl Control for Faulty {
    fn running(&self) -> RunningConfig {
        self.gateway.running()
    }
    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>> {
        Box::pin(async { panic!("a fault of the test") })
    }
    fn ban(&self, _: NewBan) -> Result<ListedBan, BanError> {
        panic!("a fault of the test")
    }
    fn lift_ban(&self, _: &str, _: &str) -> Result<ListedBan, BanError> {
        panic!("a fault of the test")
    }
    fn grant(&self, _: GrantOrder) -> Result<Granted, GrantMistake> {
        panic!("a fault of the test")
    }
    fn take_credits_back(
        &self,
        _: &ListedGrant,
        _: u32,
        _: &str,
    ) -> Result<ListedGrant, GrantMistake> {
        panic!("a fault of the test")
    }
    fn revoke_grant(&self, _: &str, _: &str, _: &str) -> Result<ListedGrant, GrantMistake> {
        panic!("a fault of the test")
    }
    fn add_api_key(&self, _: NewApiKey) -> Result<AddedApiKey, ApiKeyError> {
        panic!("a fault of the test")
    }
    fn revoke_api_key(&self, _: &str, _: &str) -> Result<ListedApiKey, ApiKeyError> {
        panic!("a fault of the test")
    }
    fn audit(&self, entry: AuditEntry) {
        self.audited.lock().push(entry);
    }
    fn write_audit(&self) {
        self.gateway.write_audit();
    }
    fn metrics(&self, format: MetricsFormat) -> String {
        Control::metrics(&self.gateway, format)
    }
    fn has_traces(&self) -> bool {
        self.gateway.has_traces()
    }
    fn record(&self) -> Option<Arc<OnceLock<Record>>> {
        self.gateway.record()
    }
    fn counter_total(&self, metric: Metric, labels: &[(Label, &str)]) -> u64 {
        self.gateway.counter_total(metric, labels)
    }
    fn push_status(&self) -> Vec<DestinationStatus> {
        Control::push_status(&self.gateway)
    }
    fn started_at(&self) -> u64 {
        self.gateway.started_at()
    }
    fn is_ready(&self) -> bool {
        self.gateway.is_ready()
    }
    fn clock(&self) -> &Clock {
        self.gateway.clock()
    }
}

/// A fault of the gateway hides no order: whether it was done is not known.
#[test]
fn orders_that_fail_by_a_fault_are_recorded() {
    let upstream = Upstream::plain();
    let policy = "match: /**\nupstream: up\nlimits: { per-ip: { key: ip, rate: 3/h } }\n";
    let gateway = Gateway::start(upstream.address, "", &[("all", policy)]);
    let audited = Arc::new(Mutex::new(Vec::new()));
    let faulty = Faulty {
        gateway: gateway.app,
        audited: audited.clone(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let (_stop, stopped) = oneshot::channel();
    thread::spawn(move || {
        runtime.block_on(admin::serve(
            listener,
            admin::router(Arc::new(faulty)),
            stopped,
        ))
    });
    let key = json!({ "key": "user=alice", "user": "alice" });
    let grant = json!({ "limit": "per-ip", "key": "ip=192.0.2.7", "times": 2, "for": "1h" });
    let with = |body: &serde_json::Value, name: &str| json!({ name: body[name] }).to_string();
    for (method, path, body, action, target) in [
        ("POST", "/v1/bans", with(&key, "key"), "ban", "user=…"),
        (
            "DELETE",
            "/v1/bans/ip=192.0.2.7",
            String::new(),
            "unban",
            "ip=192.0.2.7",
        ),
        (
            "POST",
            "/v1/grants",
            grant.to_string(),
            "grant",
            "per-ip ip=192.0.2.7",
        ),
        (
            "DELETE",
            "/v1/grants/per-ip/ip=192.0.2.7",
            String::new(),
            "revoke",
            "per-ip ip=192.0.2.7",
        ),
        ("POST", "/v1/keys", with(&key, "user"), "key add", "alice"),
        (
            "DELETE",
            "/v1/keys/0123456789abcdef",
            String::new(),
            "key revoke",
            "0123456789abcdef",
        ),
        ("POST", "/v1/reload", String::new(), "POST /v1/reload", ""),
    ] {
        let mut client = Client::connect(address);
        let length = body.len();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        ));
        problem(&client.answer(), 500, "may be done in part");
        let entry = audited.lock().pop().expect(path);
        assert_eq!((&*entry.action, &*entry.target), (action, target));
        assert_eq!(entry.result, "failed; may be done in part");
        assert!(entry.may_have_effect() && audited.lock().is_empty());
    }
}

/// The gateway has forgotten the count, and its store has not.
#[test]
fn orders_done_in_part_are_recorded() {
    let mut redis = Redis::start();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("operators.yaml"), operators()).unwrap();
    let store = format!("store: {{ address: \"{}\", budget: 1s }}\n", redis.url());
    let gateway = format!("{}{store}", GATEWAY);
    let setup = start_with(Upstream::plain(), folder, &gateway);
    assert_eq!(setup.requests(3), [200; 3]);
    redis.kill();
    let path = "/v1/limits/per-ip/keys/ip=127.0.0.1";
    let reset = setup.ask_as("ada", "DELETE", path, "");
    problem(&reset, 503, "reset in the shared store failed");
    let [entry] = &setup.orders(1)[..] else {
        panic!("one order");
    };
    assert_eq!(entry["target"], "ip=127.0.0.1 of per-ip");
    assert_eq!(entry["result"], "done in part: 503 Service Unavailable");
    assert_eq!(
        setup.audit()[0]["event"],
        "ordered",
        "it may have an effect"
    );
}

/// An order whose response came is in the audit, whatever becomes of the process then.
#[test]
fn a_crash_loses_no_order_of_operators() {
    let mut setup = start_with_operators();
    for number in 0..10 {
        let order = json!({ "key": format!("ip=192.0.2.{number}") }).to_string();
        let banned = setup.ask_as("simon", "POST", "/v1/bans", &order);
        assert_eq!(banned.status(), 200, "{}", banned.text());
        setup.server.signal(Signal::KILL);
        setup.server.ended();
        setup.server = Server::start(setup.folder.path(), true);
        let audited = setup.audit();
        assert_eq!(audited.len(), number + 1, "{audited:#?}");
        assert_eq!(
            audited[0]["audit"]["target"],
            format!("ip=192.0.2.{number}")
        );
    }
}

/// Orders go on at the process that takes over, and the audit has all of them.
#[test]
fn a_takeover_loses_no_order_of_operators() {
    // Sockets are passed on by their address, so the port is not to be any.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (upstream, folder) = (Upstream::plain(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("operators.yaml"), operators()).unwrap();
    let gateway = GATEWAY.replace("127.0.0.1:0", &address.to_string());
    write(
        &folder,
        upstream.address,
        &gateway,
        &[("api", API), ("free", FREE)],
    );
    let manager = Manager::new(folder.path());
    let server = Server::of(&mut Manager::command(folder.path()), true);
    assert_eq!(manager.hears(), "READY=1");
    let mut setup = Setup {
        server,
        folder,
        upstream,
    };
    let mut ordered = Vec::new();
    let mut order = |setup: &Setup| {
        let key = format!("ip=192.0.2.{}", ordered.len());
        let order = json!({ "key": key }).to_string();
        let banned = setup.ask_as("simon", "POST", "/v1/bans", &order);
        assert_eq!(banned.status(), 200, "{}", banned.text());
        assert_eq!(json_of(&banned)["by"], "simon");
        ordered.push(key);
    };
    for _ in 0..10 {
        order(&setup);
    }
    setup.server.signal(Signal::USR2);
    // Whichever process responds.
    for _ in 0..50 {
        order(&setup);
    }
    let successor = manager.hears_of_successor();
    assert_eq!(setup.server.ended(), Some(0));
    for _ in 0..10 {
        order(&setup);
    }
    let wrong = "authorization: Bearer wrong-token-0123456789\r\n";
    let refused = setup.server.ask_with("GET", "/v1/bans", wrong, "");
    assert_eq!(refused.status(), 401);
    let reset = setup.ask_as("rita", "DELETE", "/v1/bans/ip=192.0.2.1", "");
    problem(&reset, 403, "the token of `rita`");
    let audited = || {
        let path = "/v1/record/events?audit=true&from=-1h&most=1000";
        let events = setup.ask_as("rita", "GET", path, "");
        if events.status() != 200 {
            // The record is still the former process's.
            return Vec::new();
        }
        let events = json_of(&events)["events"].clone();
        let events = events.as_array().unwrap().iter().rev();
        let done = events.filter(|event| event["audit"]["result"] == "done");
        let targets = done.map(|event| event["audit"]["target"].as_str().unwrap().to_owned());
        targets.collect()
    };
    let mut missing = ordered.clone();
    wait_until("all orders are in the audit", || {
        let audited: Vec<String> = audited();
        let before = missing.len();
        missing.retain(|key| !audited.contains(key));
        if missing.len() < before {
            println!("not in the audit yet: {missing:?}");
        }
        missing.is_empty()
    });
    assert_eq!(audited().len(), ordered.len(), "each of them once");
    drop(successor);
}
