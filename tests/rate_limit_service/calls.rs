//! What a request for a decision says, and what the answer does.

use serde_json::json;

use super::common::{assert_contains, wait_until};
use super::{DOOR, RateLimitClient, codes, request, start};

const OK: u64 = 1;
const OVER_LIMIT: u64 = 2;
const MINUTE: u64 = 2;
const MONTH: u64 = 5;

#[test]
fn each_value_is_counted_and_the_answer_says_what_is_left() {
    let policy = "domain: edge\nentries: { generic_key: api, remote_address: any }\nlimits: { per-address: { key: remote_address, rate: 2/m } }\nheaders: both\n";
    let gateway = start(DOOR, &[("api", policy)]);
    let mut asker = RateLimitClient::of(&gateway);
    let from = |address| [("generic_key", "api"), ("remote_address", address)];
    let answer = asker.decide(&[&from("192.0.2.1")]);
    assert_eq!(answer["overall"], OK, "{answer}");
    let status = &answer["statuses"][0];
    assert_eq!(status["limit"], json!([2, MINUTE, "per-address"]));
    assert_eq!(status["remaining"], 1);
    assert!(
        (1..=60).contains(&status["reset"].as_u64().unwrap()),
        "{answer}"
    );
    let fields = answer["fields"].to_string();
    assert_contains(
        &fields,
        &[
            r#"["ratelimit-policy","\"per-address\";q=2;w=60"]"#,
            r#"["x-ratelimit-limit","2"]"#,
        ],
    );
    assert_eq!(answer["metadata"]["policy"], "api");
    assert_eq!(answer["metadata"]["limit"], "per-address");
    assert_eq!(asker.decide(&[&from("192.0.2.1")])["overall"], OK);
    let refused = asker.decide(&[&from("192.0.2.1")]);
    assert_eq!(refused["overall"], OVER_LIMIT);
    assert_eq!(codes(&refused), [OVER_LIMIT]);
    assert_contains(&refused["fields"].to_string(), &["retry-after"]);
    assert_eq!(refused["metadata"]["standing"], "refused");
    assert_eq!(asker.decide(&[&from("192.0.2.2")])["overall"], OK);
    // Other keys, other values and other domains have no policy.
    for entries in [
        &[("generic_key", "web"), ("remote_address", "192.0.2.1")][..],
        &[("remote_address", "192.0.2.1")],
        &[
            ("generic_key", "api"),
            ("remote_address", "192.0.2.1"),
            ("path", "/"),
        ],
    ] {
        let answer = asker.decide(&[entries]);
        assert_eq!(answer["overall"], OK);
        assert_eq!(answer["statuses"], json!([{ "code": OK, "remaining": 0 }]));
    }
    let mut other = request(&[&from("192.0.2.1")]);
    other["domain"] = "other".into();
    assert_eq!(asker.ask(other)["overall"], OK);
}

#[test]
fn descriptors_are_admitted_together_or_not_at_all() {
    let wide = "domain: edge\nentries: { wide: any }\nlimits: { wide: { key: wide, rate: 3/h } }\n";
    let narrow =
        "domain: edge\nentries: { narrow: any }\nlimits: { narrow: { key: narrow, rate: 1/h } }\n";
    let gateway = start(DOOR, &[("wide", wide), ("narrow", narrow)]);
    let mut asker = RateLimitClient::of(&gateway);
    let both: [&[(&str, &str)]; 2] = [&[("wide", "a")], &[("narrow", "a")]];
    assert_eq!(asker.decide(&both)["overall"], OK);
    for _ in 0..5 {
        let answer = asker.decide(&both);
        assert_eq!(
            (answer["overall"].as_u64(), codes(&answer)),
            (Some(OVER_LIMIT), vec![OK, OVER_LIMIT])
        );
    }
    // None of the refused requests has used up the wide limit.
    for expected in [OK, OK, OVER_LIMIT] {
        assert_eq!(asker.decide(&[&[("wide", "a")]])["overall"], expected);
    }
}

#[test]
fn a_counter_that_two_descriptors_have_counts_both() {
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 3/h } }\n";
    let gateway = start(DOOR, &[("a", policy)]);
    let mut asker = RateLimitClient::of(&gateway);
    let twice: [&[(&str, &str)]; 2] = [&[("a", "x")], &[("a", "x")]];
    let answer = asker.decide(&twice);
    assert_eq!(
        (
            answer["overall"].as_u64(),
            answer["statuses"][0]["remaining"].as_u64()
        ),
        (Some(OK), Some(1))
    );
    assert_eq!(asker.decide(&twice)["overall"], OVER_LIMIT);
    assert_eq!(asker.decide(&[&[("a", "x")]])["overall"], OK);
    assert_eq!(asker.decide(&[&[("a", "x")]])["overall"], OVER_LIMIT);
}

#[test]
fn units_are_of_the_request_or_of_the_descriptor_and_none_is_a_look() {
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 10/h } }\n";
    let gateway = start(DOOR, &[("a", policy)]);
    let mut asker = RateLimitClient::of(&gateway);
    let mut ask = |hits: serde_json::Value, of_descriptor: serde_json::Value| {
        let mut command = request(&[&[("a", "x")]]);
        if !hits.is_null() {
            command["hits"] = hits;
        }
        if !of_descriptor.is_null() {
            command["descriptors"][0]["hits"] = of_descriptor;
        }
        let answer = asker.ask(command);
        let remaining = answer["statuses"][0]["remaining"].as_u64().unwrap();
        (answer["overall"].as_u64().unwrap(), remaining)
    };
    let none = || serde_json::Value::Null;
    assert_eq!(ask(3.into(), none()), (OK, 7));
    assert_eq!(ask(3.into(), 5.into()), (OK, 2));
    assert_eq!(ask(none(), 0.into()), (OK, 2));
    assert_eq!(ask(3.into(), none()), (OVER_LIMIT, 2));
    assert_eq!(ask(0.into(), none()), (OK, 1), "0 is the same as no number");
    assert_eq!(ask(none(), u64::MAX.into()), (OVER_LIMIT, 1));
    assert_eq!(ask(none(), 1.into()), (OK, 0));
    assert_eq!(ask(none(), 0.into()), (OVER_LIMIT, 0), "nothing is left");
}

/// As Envoy's `apply_on_stream_done` reports costs after a response.
#[test]
fn a_soft_limit_counts_reports_above_its_rate_and_refuses_looks() {
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 100/h, throttle: soft 100% } }\n";
    let gateway = start(DOOR, &[("a", policy)]);
    let mut asker = RateLimitClient::of(&gateway);
    let mut ask = |hits: u64| {
        let mut command = request(&[&[("a", "x")]]);
        command["descriptors"][0]["hits"] = hits.into();
        asker.ask(command)["overall"].as_u64().unwrap()
    };
    for (hits, expected) in [
        (0, OK),
        (90, OK),
        (0, OK),
        (60, OK),
        (0, OVER_LIMIT),
        (0, OVER_LIMIT),
    ] {
        assert_eq!(ask(hits), expected, "{hits}");
    }
}

#[test]
fn quotas_shadows_and_unlimited_policies() {
    let monthly = "domain: edge\nentries: { user: any }\nlimits: { monthly: { key: user, quota: 1/month } }\n";
    let shadow = "domain: edge\nentries: { shadow: any }\nlimits: { shadow: { key: shadow, rate: 1/s, mode: shadow } }\n";
    let unlimited = "domain: edge\nentries: { user: root }\n";
    let soft = "domain: edge\nentries: { soft: any }\nlimits: { soft: { key: soft, rate: 1/h, throttle: soft 100% } }\n";
    let gateway = start(
        DOOR,
        &[
            ("monthly", monthly),
            ("shadow", shadow),
            ("unlimited", unlimited),
            ("soft", soft),
        ],
    );
    let mut asker = RateLimitClient::of(&gateway);
    let answer = asker.decide(&[&[("user", "alice")]]);
    assert_eq!(answer["statuses"][0]["limit"], json!([1, MONTH, "monthly"]));
    assert_eq!(asker.decide(&[&[("user", "alice")]])["overall"], OVER_LIMIT);
    for _ in 0..3 {
        assert_eq!(asker.decide(&[&[("user", "root")]])["overall"], OK);
        assert_eq!(asker.decide(&[&[("shadow", "a")]])["overall"], OK);
    }
    assert_eq!(asker.decide(&[&[("soft", "a")]])["overall"], OK);
    let over = asker.decide(&[&[("soft", "a")]]);
    assert_eq!(over["overall"], OK);
    assert_eq!(over["request_fields"], json!([["tollgate-over", "soft"]]));
}

#[test]
fn exactly_as_many_of_a_storm_are_admitted_as_the_limit_says() {
    let policy = "domain: edge\nentries: { a: any }\nlimits: { a: { key: a, rate: 100/h } }\n";
    let gateway = start(DOOR, &[("a", policy)]);
    let mut storm = request(&[&[("a", "x")], &[("free", "y")]]);
    storm["times"] = 320.into();
    storm["threads"] = 32.into();
    let answer = RateLimitClient::of(&gateway).ask(storm);
    assert_eq!(
        answer,
        json!({ "admitted": 100, "refused": 220, "other": 0 })
    );
}

#[test]
fn requests_are_logged_with_policy_limit_and_client() {
    let policy = "domain: edge\nentries: { remote_address: any }\nlimits: { per-ip: { key: ip, rate: 1/h } }\n";
    let door = format!("{DOOR}access_log: {{ file: access.log }}\n");
    let gateway = start(&door, &[("edge-ip", policy)]);
    let mut asker = RateLimitClient::of(&gateway);
    for expected in [OK, OVER_LIMIT] {
        assert_eq!(
            asker.decide(&[&[("remote_address", "192.0.2.9")]])["overall"],
            expected
        );
    }
    let log = gateway.folder.path().join("access.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("both requests are logged", || read().lines().count() == 2);
    let text = read();
    let refused = text.lines().nth(1).unwrap();
    assert_contains(
        refused,
        &[
            r#""ip":"192.0.2.9""#,
            r#""route":"edge-ip""#,
            r#""outcome":"refused""#,
            r#""limit":"per-ip""#,
            "ShouldRateLimit",
        ],
    );
}

#[test]
fn health_methods_and_compression() {
    let policy = "domain: edge\nentries: { a: any }\n";
    let gateway = start(DOOR, &[("a", policy)]);
    let mut asker = RateLimitClient::of(&gateway);
    let health = "/grpc.health.v1.Health/Check";
    let serving = asker.ask(json!({ "method": health, "raw": "", "health": true }));
    assert_eq!(serving, json!({ "code": "OK", "status": 1 }));
    // The name `other`.
    let unknown = asker.ask(json!({ "method": health, "raw": "0a056f74686572", "health": true }));
    assert_eq!(unknown["code"], "NOT_FOUND");
    let other = asker
        .ask(json!({ "method": "/envoy.service.ratelimit.v3.RateLimitService/Other", "raw": "" }));
    assert_eq!(other["code"], "UNIMPLEMENTED");
    let mut compressed = request(&[&[("a", &"x".repeat(1000))]]);
    compressed["gzip"] = true.into();
    assert_eq!(asker.ask(compressed)["code"], "UNIMPLEMENTED");
}
