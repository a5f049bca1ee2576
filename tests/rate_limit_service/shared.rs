//! What gateways share, and what operators order: stores, bans, overrides and explanations hold for descriptors as elsewhere.

use std::time::Duration;

use futures_util::FutureExt;
use rustix::process::Signal;
use serde_json::{Value, json};
use tollgate::base::clock::{Clock, Nanos};
use tollgate::operator::NewBan;
use tollgate::policy;
use tollgate::serve::admin::Control;
use tollgate::serve::stack::explain::explain;

use super::common::Gateway;
use super::common::redis::{Redis, free_port};
use super::common::{assert_contains, wait_until};
use super::hostile::wait_for_reasons;
use super::{Asker, DOOR, codes, request, start};

const OK: u64 = 1;
const OVER_LIMIT: u64 = 2;

#[test]
fn gateways_with_one_store_admit_what_the_limit_says_together() {
    let redis = Redis::start();
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 100/h, sharing: strict } }\n";
    // A slow machine must not decide alone.
    let door = format!(
        "{DOOR}store: {{ address: \"{}\", budget: 1s }}\n",
        redis.url()
    );
    let gateways = [(); 2].map(|()| start(&door, &[("a", policy)]));
    let storms = gateways.map(|gateway| {
        std::thread::spawn(move || {
            let mut asker = Asker::of(&gateway);
            wait_for_store(&mut asker);
            let mut storm = request(&[&[("a", "x")], &[("a", "y")], &[("a", "x")]]);
            storm["times"] = 80.into();
            storm["threads"] = 16.into();
            (asker.ask(storm), gateway)
        })
    });
    let answers = storms.map(|storm| storm.join().unwrap());
    let admitted: u64 = answers
        .iter()
        .map(|(answer, _)| answer["admitted"].as_u64().unwrap())
        .sum();
    // Each request takes two units of `x`.
    assert_eq!(admitted, 50, "{} {}", answers[0].0, answers[1].0);
    // The refused ones have taken nothing of `y`.
    let mut asker = Asker::of(&answers[0].1);
    let left = asker.decide(&[&[("a", "y")]]);
    assert_eq!(left["statuses"][0]["remaining"], 49);
}

/// Waits until the gateway has a connection to its store.
fn wait_for_store(asker: &mut Asker) {
    wait_until("the store decides", || {
        let answer = asker.decide(&[&[("a", "probe")]]);
        !answer["fields"].to_string().contains("tollgate-store")
    });
}

#[test]
fn a_hundred_descriptors_are_counted_in_a_shared_store() {
    let redis = Redis::start();
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 1/h, sharing: strict } }\n";
    let door = format!(
        "{DOOR}store: {{ address: \"{}\", budget: 1s }}\n",
        redis.url()
    );
    let gateways = [(); 2].map(|()| start(&door, &[("a", policy)]));
    let mut askers = gateways.each_ref().map(Asker::of);
    askers.iter_mut().for_each(wait_for_store);
    let names: Vec<String> = (0..100).map(|index| format!("x{index}")).collect();
    let entries: Vec<[(&str, &str); 1]> = names.iter().map(|name| [("a", name.as_str())]).collect();
    let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(|entries| &entries[..]).collect();
    assert_eq!(codes(&askers[0].decide(&descriptors)), [OK; 100]);
    for index in [0, 50, 99] {
        assert_eq!(
            askers[1].decide(&descriptors[index..=index])["overall"],
            OVER_LIMIT
        );
    }
}

/// A gateway file of the door with this store. A slow machine must not decide alone.
fn door_with(redis: &Redis, more: &str) -> String {
    let url = redis.url();
    format!("{DOOR}store: {{ address: \"{url}\", budget: 1s }}\n{more}")
}

/// Waits until the store decides alone, and no share of a gateway matters any more.
fn wait_until_shared(gateway: &Gateway) {
    wait_until("the store decides", || {
        let metrics = gateway.app.metrics();
        metrics.contains("tollgate_shared_store_up 1\n")
    });
}

/// The units that remain of each descriptor in the answer.
fn remaining(answer: &Value) -> Vec<u64> {
    let statuses = answer["statuses"].as_array().unwrap();
    let remaining = statuses.iter().map(|status| status["remaining"].as_u64());
    remaining.map(|units| units.unwrap()).collect()
}

/// A store has one count of a key. So the units of all plans are added up, and the smallest plan holds for the call.
#[test]
fn a_key_with_several_plans_is_counted_once_for_each_descriptor() {
    let redis = Redis::start();
    let policy = "domain: edge\nentries: { user: any, plan: any }\nlimits: { per-user: { key: user, rate: 4/h, plans: true, sharing: strict } }\n";
    let plans = "plans: { free: { multiply: 1 }, gold: { multiply: 3 } }\nidentity: { plan: { header: x-plan, from: [10.0.0.0/8], default: free } }\n";
    let door = door_with(&redis, plans);
    let gateways = [(); 2].map(|()| start(&door, &[("users", policy)]));
    gateways.iter().for_each(wait_until_shared);
    let mut askers = gateways.each_ref().map(Asker::of);
    let of = |plan| [("user", "alice"), ("plan", plan)];
    let (free, gold) = (of("free"), of("gold"));
    for (asker, expected) in [(0, 2), (1, 0)] {
        let answer = askers[asker].decide(&[&gold, &free]);
        assert_eq!(answer["overall"], OK, "{answer}");
        assert_eq!(remaining(&answer), [expected; 2], "{answer}");
    }
    let refused = askers[0].decide(&[&gold, &free]);
    assert_eq!(codes(&refused), [OVER_LIMIT; 2], "{refused}");
    // Alone the larger plan has three times the units, of which four are used.
    let answer = askers[1].decide(&[&gold]);
    assert_eq!((codes(&answer), remaining(&answer)), (vec![OK], vec![7]));
}

/// Of keys in one network, a shared store would count the units of one only. So such a call is refused, and nothing is
/// counted.
#[test]
fn several_keys_of_one_network_are_counted_in_memory_and_refused_with_a_store() {
    let redis = Redis::start();
    let policy = "domain: edge\nentries: { remote_address: any }\nlimits: { per-ip: { key: ip, rate: 3/h, sharing: strict } }\n";
    let policies = [("addresses", policy)];
    let in_network = |subnet: u8| format!("2001:db8:0:{subnet}::1");
    let addresses = [1, 2].map(in_network);
    let entries = addresses
        .each_ref()
        .map(|text| [("remote_address", text.as_str())]);
    let both: [&[(&str, &str)]; 2] = [&entries[0], &entries[1]];
    let gateway = start(DOOR, &policies);
    let mut asker = Asker::of(&gateway);
    for expected in [2, 1, 0] {
        let answer = asker.decide(&both);
        assert_eq!(codes(&answer), [OK; 2], "{answer}");
        assert_eq!(remaining(&answer), [expected; 2], "{answer}");
    }
    assert_eq!(codes(&asker.decide(&both)), [OVER_LIMIT; 2]);
    let gateway = start(
        &door_with(&redis, "access_log: { file: access.log }\n"),
        &policies,
    );
    wait_until_shared(&gateway);
    let mut asker = Asker::of(&gateway);
    for _ in 0..3 {
        let answer = asker.decide(&both);
        let expected = (OVER_LIMIT, json!([]));
        assert_eq!(
            (
                answer["overall"].as_u64().unwrap(),
                answer["statuses"].clone()
            ),
            expected
        );
    }
    wait_for_reasons(&gateway, &["two addresses of one IPv6 network"]);
    for descriptor in both {
        let answer = asker.decide(&[descriptor]);
        assert_eq!((codes(&answer), remaining(&answer)), (vec![OK], vec![2]));
    }
    // Two addresses of one /64 are one key.
    let neighbour = [("remote_address", "2001:db8:0:1::2")];
    let answer = asker.decide(&[&entries[0], &neighbour]);
    assert_eq!(
        (codes(&answer), remaining(&answer)),
        (vec![OK; 2], vec![0; 2])
    );
}

#[test]
fn a_look_is_refused_where_a_gateway_alone_admits_nothing() {
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 100/h, on_store_error: closed } }\n";
    let away = format!("{DOOR}store: redis://127.0.0.1:{}\n", free_port());
    let gateway = start(&away, &[("a", policy)]);
    let mut asker = Asker::of(&gateway);
    for hits in [1, 0] {
        let mut command = request(&[&[("a", "x")]]);
        command["descriptors"][0]["hits"] = hits.into();
        let answer = asker.ask(command);
        assert_eq!(
            (answer["overall"].as_u64(), codes(&answer)),
            (Some(OVER_LIMIT), vec![OVER_LIMIT])
        );
    }
}

/// A call whose descriptors look and take asks the store twice, and waits for it no longer than others.
#[test]
fn a_call_waits_for_its_store_for_one_budget() {
    let redis = Redis::start();
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 1000/h, sharing: strict } }\n";
    let gateway = start(&door_with(&redis, ""), &[("a", policy)]);
    wait_until_shared(&gateway);
    let mut asker = Asker::of(&gateway);
    let mut command = request(&[&[("a", "x")], &[("a", "y")]]);
    command["descriptors"][0]["hits"] = 0.into();
    assert_eq!(remaining(&asker.ask(command.clone())), [1000, 999]);
    redis.signal(Signal::STOP);
    let clock = Clock::system();
    let begin = clock.now();
    let answer = asker.ask(command);
    let elapsed = clock.now().since(begin);
    redis.signal(Signal::CONT);
    assert!(answer["overall"].is_u64(), "{answer}");
    assert!(elapsed > Nanos::from_millis(900), "{elapsed:?}");
    assert!(elapsed < Nanos::from_millis(1_700), "{elapsed:?}");
}

#[test]
fn banned_clients_are_refused_and_nothing_is_charged() {
    let policy =
        "domain: edge\nentries: { user: any }\nlimits: { per-user: { key: user, rate: 2/h } }\n";
    let address = "domain: edge\nentries: { remote_address: any }\nlimits: { per-ip: { key: ip, rate: 2/h } }\n";
    let gateway = start(DOOR, &[("users", policy), ("addresses", address)]);
    for key in ["user=mallory", "ip=192.0.2.0/24"] {
        ban(&gateway, key);
    }
    let mut asker = Asker::of(&gateway);
    let both: [&[(&str, &str)]; 2] = [&[("user", "alice")], &[("user", "mallory")]];
    for _ in 0..5 {
        let answer = asker.decide(&both);
        assert_eq!(
            (answer["overall"].as_u64(), codes(&answer)),
            (Some(OVER_LIMIT), vec![OK, OVER_LIMIT])
        );
        assert_eq!(answer["metadata"]["standing"], "banned");
    }
    assert_eq!(
        asker.decide(&[&[("user", "alice")]])["statuses"][0]["remaining"],
        1
    );
    let of_network = asker.decide(&[&[("remote_address", "192.0.2.7")]]);
    assert_eq!(of_network["overall"], OVER_LIMIT);
    let explained = explained(&gateway, &[("user", "mallory")]);
    assert_eq!(
        (explained["status"].as_u64(), explained["banned"].as_str()),
        (Some(429), Some("user=mallory"))
    );
}

fn ban(gateway: &Gateway, key: &str) {
    let order = NewBan {
        key: key.to_owned(),
        duration: Duration::from_secs(60),
        reason: String::new(),
        by: "test".into(),
    };
    gateway.app.ban(order).unwrap();
}

#[test]
fn explanations_and_overrides_are_those_of_other_limits() {
    let policy = "domain: edge\nentries: { path: /v1/*, remote_address: any }\noverrides: overrides.yaml\nlimits:\n  per-address: { key: [remote_address, path], rate: 2/h }\n";
    let gateway = {
        let plain = policy.replace("overrides: overrides.yaml\n", "");
        let gateway = start(DOOR, &[("v1", &plain)]);
        let overrides = "per-address: { \"remote_address=192.0.2.1,path=/v1/a\": 5/h }\n";
        std::fs::write(gateway.folder.path().join("overrides.yaml"), overrides).unwrap();
        std::fs::write(gateway.folder.path().join("policies/v1.yaml"), policy).unwrap();
        gateway.reload().unwrap();
        gateway
    };
    let mut asker = Asker::of(&gateway);
    let of = |address| [("path", "/v1/a"), ("remote_address", address)];
    assert_eq!(
        asker.decide(&[&of("192.0.2.1")])["statuses"][0]["remaining"],
        4
    );
    assert_eq!(
        asker.decide(&[&of("192.0.2.2")])["statuses"][0]["remaining"],
        1
    );
    let first = explained(&gateway, &of("192.0.2.1"));
    assert_eq!(first["route"]["match"], "edge(path=/v1/*, remote_address)");
    let limit = &first["limits"][0];
    assert_eq!(limit["key"], "remote_address=192.0.2.1,path=/v1/a");
    assert_eq!(limit["remaining"], 4);
    assert_eq!(limit["override"], true);
    let loaded = policy::load(&gateway.folder.path().join("tollgate.yaml")).unwrap();
    assert_contains(
        &policy::describe(&loaded),
        &["v1: edge(path=/v1/*, remote_address) decided for proxies that ask by gRPC"],
    );
    let none = explained(&gateway, &[("path", "/v2")]);
    assert_eq!(
        (none["admitted"].as_bool(), none["route"].clone()),
        (Some(true), Value::Null)
    );
}

/// What the gateway would say of a descriptor.
fn explained(gateway: &Gateway, entries: &[(&str, &str)]) -> Value {
    let request = json!({ "descriptor": { "domain": "edge", "entries": entries } });
    let request = serde_json::from_value(request).unwrap();
    let running = gateway.app.running();
    let explanation = explain(&running, &request, gateway.app.clock()).now_or_never();
    explanation.unwrap().unwrap()
}
