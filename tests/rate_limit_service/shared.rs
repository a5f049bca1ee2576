//! What gateways share, and what operators order: stores, bans, overrides and explanations hold for descriptors as elsewhere.

use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tollgate::operator::NewBan;
use tollgate::policy;
use tollgate::serve::admin::Control;
use tollgate::serve::stack::explain::explain;

use super::common::Gateway;
use super::common::redis::Redis;
use super::common::{assert_contains, wait_until};
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
