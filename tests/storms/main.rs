//! Storms of 429s, and whether what the gateway says of them is right.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
mod dashboard;
mod demo;
mod fleet;
mod states;
mod storm;

use std::thread;

use common::{assert_contains, wait_until};
use storm::{HOSTILE, Kind, Site, next_minute};
use tollgate::base::clock::Clock;

#[test]
fn every_storm_is_explained() {
    let sites = Kind::ALL.map(|kind| (kind, Site::start()));
    next_minute();
    thread::scope(|scope| {
        for (kind, site) in sites {
            scope.spawn(move || explained(kind, &site));
        }
    });
}

/// Lets it rain, and asks why.
fn explained(kind: Kind, site: &Site) {
    let from = Clock::system().wall().as_secs();
    site.rain(kind);
    let question = format!("/v1/record/explain?from={from}");
    let over = Clock::system().wall().as_secs();
    // Whom it met is listed a tenth of a second later.
    wait_until("the storm is recorded", || {
        site.json("/v1/status")["record"]["end"].as_u64() > Some(over + 1)
    });
    let last = site.json(&question);
    let sum = &last["origin"]["gateway_429"];
    assert_eq!(*sum, last["refused"], "each was answered 429");
    let (answer, text) = (&last, last["text"].as_str().unwrap());
    println!("{kind:?}: {text}");
    assert_eq!(answer["cause"], kind.cause(), "{answer:#}");
    let limit = &answer["limits"][0];
    match kind {
        Kind::Upstream => {
            assert_eq!(answer["origin"]["upstream_429"], 10, "{answer:#}");
            assert_eq!(answer["refused"], 0);
        }
        _ => {
            assert_eq!(limit["limit"], "per-ip", "{answer:#}");
            let at = limit["at"].as_str().unwrap();
            assert!(at.contains("shop.yaml:4"), "{at}");
            assert_contains(text, &["per-ip", "shop.yaml:4"]);
        }
    }
    match kind {
        Kind::OneKey => {
            assert_eq!(answer["keys"][0]["key"], "ip=203.0.113.9");
            assert_eq!(answer["refused"], 580);
            assert_eq!(answer["keys"][0]["count"], 580);
            one_key_everywhere(site, from);
        }
        Kind::FewKeys => assert_contains(text, &["4 keys made 100 %"]),
        Kind::Spray => {
            let distinct = answer["distinct"].as_u64().unwrap();
            assert!((285..=315).contains(&distinct), "{answer:#}");
        }
        Kind::Config => {
            let mut events = answer["events"].as_array().unwrap().iter();
            let change = events.find_map(|event| event["changes"].get(0)).unwrap();
            assert_eq!(change["before"], "20/m per ip, hard");
            assert_eq!(change["after"], "2/m per ip, hard");
            assert_contains(text, &["from 20/m per ip, hard to 2/m per ip, hard"]);
        }
        Kind::Everyone => assert_contains(text, &["40 different keys", "no key stands out"]),
        Kind::Upstream => {
            assert_contains(text, &["the upstream itself answered 429 to 10 requests"])
        }
    }
}

/// What else is known of the one.
fn one_key_everywhere(site: &Site, from: u64) {
    let top = site.json(&format!("/v1/record/top?from={from}&of=asked&most=3"));
    assert_eq!(top["keys"][0]["key"], "ip=203.0.113.9", "{top:#}");
    let top = site.json(&format!("/v1/record/top?from={from}&limit=per-ip"));
    assert_eq!((&top["total"], &top["rest"]), (&580.into(), &0.into()));
    let key = site.json(&format!("/v1/record/key?from={from}&key=ip%3D203.0.113.9"));
    let refused = key["refused"].as_array().unwrap().iter();
    let refused: u64 = refused.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(refused, 580, "{key:#}");
    assert_eq!(key["limits"][0]["remaining"], 0, "{key:#}");
    let samples = key["samples"].as_array().unwrap();
    assert!(!samples.is_empty() && samples.len() <= 20);
    for sample in samples {
        assert_eq!(sample["limit"], "per-ip", "{sample}");
        assert_eq!(sample["key"], "ip=203.0.113.9");
        assert_eq!(
            (&sample["status"], &sample["path"]),
            (&429.into(), &"/login".into())
        );
        assert_eq!(sample["user"], HOSTILE);
        assert_eq!(sample["window"], "1m");
        assert!(sample["retry_after"].as_u64().unwrap() <= 60);
    }
    let found = site.json(&format!(
        "/v1/record/samples?from={from}&outcome=refused&most=2"
    ));
    assert_eq!(found["samples"].as_array().unwrap().len(), 2);
    let events = site.json("/v1/record/events?from=-1h");
    assert_eq!(events["events"][0]["event"], "started");
    // What is done about it is not what it came from.
    site.set_rate("500/m");
    wait_until("the change is recorded", || {
        site.json("/v1/record/events?from=-1h")["events"][0]["event"] == "reloaded"
    });
    let later = site.json(&format!("/v1/record/explain?from={from}"));
    assert_eq!(later["cause"], "one_key", "{later:#}");
}
