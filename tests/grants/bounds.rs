//! Grants at their bounds, and the 409 of each bound of all grants together.

use std::fs;
use std::hash::Hasher;

use rustix::process::Signal;
use serde_json::{Value, json};
use siphasher::sip::SipHasher13;

use crate::Site;
use crate::common::{Message, assert_contains, wait_until};
use crate::json_of;

const WIDE: &str = "{ few: { key: user, rate: 1/h, algorithm: sliding-window } }";

/// The last number that is granted, and the first that is not.
#[test]
fn the_bounds_themselves_are_granted() {
    let log = "{ few: { key: user, rate: 1/h, algorithm: sliding-log } }";
    for (limits, granted, quota, refused, says) in [
        (WIDE, ("times", 2), 2, ("times", 1), "from 2 to 1000000"),
        (
            WIDE,
            ("times", 1_000_000),
            1_000_000,
            ("times", 1_000_001),
            "from 2 to 1000000",
        ),
        (WIDE, ("add", 1), 2, ("add", 0), "from 1 to 1000000000"),
        (
            WIDE,
            ("add", 999_999_999),
            1_000_000_000,
            ("add", 1_000_000_000),
            "grant less",
        ),
        (
            WIDE,
            ("add", 999_999_999),
            1_000_000_000,
            ("add", 1_000_000_001),
            "from 1 to 1000000000",
        ),
        (log, ("add", 65_534), 65_535, ("add", 65_535), "sliding-log"),
        (
            log,
            ("times", 65_535),
            65_535,
            ("times", 65_536),
            "sliding-log",
        ),
    ] {
        let site = Site::start("", limits);
        let order = |(name, number): (&str, u64)| {
            site.order(&json!({ "limit": "few", "key": "user=alice", name: number, "for": "1h" }))
        };
        let answer = order(granted);
        assert_eq!(answer.status(), 200, "{granted:?}: {}", answer.text());
        assert_eq!(site.key("few", "user=alice")["quota"], quota, "{granted:?}");
        problem(&order(refused), 400, says);
        let quota_after = site.key("few", "user=alice")["quota"].clone();
        assert_eq!(quota_after, quota, "the former grant holds on");
    }
}

#[test]
fn the_shortest_and_the_longest_are_granted() {
    let site = Site::start("", WIDE);
    let order = |user: &str, time: &str, reason: &str, by: &str| {
        site.order(&json!({
            "limit": "few", "key": format!("user={user}"), "times": 2, "for": time, "reason": reason, "by": by,
        }))
    };
    let (reason, by, user) = ("r".repeat(256), "b".repeat(64), "u".repeat(256));
    for (user, time, reason, by) in [
        ("alice", "1s", "", ""),
        ("bob", "3650d", "", ""),
        ("carl", "1h", &*reason, &*by),
        (&*user, "1h", "", ""),
    ] {
        let granted = order(user, time, reason, by);
        assert_eq!(granted.status(), 200, "{}", granted.text());
        let granted = json_of(&granted);
        assert_eq!(granted["reason"], reason);
        let lasts = granted["until"].as_f64().unwrap() - granted["since"].as_f64().unwrap();
        let expected = [("1s", 1.0), ("1h", 3_600.0), ("3650d", 315_360_000.0)];
        let expected = expected.into_iter().find(|(text, _)| *text == time);
        assert!(
            (lasts - expected.unwrap().1).abs() < 0.01,
            "{time}: {lasts} s"
        );
    }
    problem(&order("dora", "999ms", "", ""), 400, "1s to 3650d");
    problem(&order("dora", "3651d", "", ""), 400, "1s to 3650d");
    problem(
        &order("dora", "1h", &format!("{reason}r"), ""),
        400,
        "`reason` is longer than 256 bytes",
    );
    problem(
        &order("dora", "1h", "", &format!("{by}b")),
        400,
        "`by` is longer than 64 bytes",
    );
    wait_until("the short one ends", || site.grants().len() == 3);
}

/// The order beyond the bound, and what makes room for it.
#[test]
fn more_grants_than_there_may_be_are_refused() {
    let mut site = Site::start("", WIDE);
    site.grant("few", "user=u0", ("times", 2));
    restart_with(&mut site, |entry| {
        let copy = |number: usize| {
            let mut copy = entry.clone();
            copy["key"] = format!("user=u{number}").into();
            copy
        };
        (0..5_000).map(copy).collect()
    });
    assert_eq!(site.grants().len(), 5_000);
    let order =
        |key: &str| site.order(&json!({ "limit": "few", "key": key, "times": 3, "for": "1h" }));
    let refused = order("user=late");
    problem(&refused, 409, "there are 5000 grants already");
    let ended = site.command(&["grant", "few", "user=late", "--times", "3", "--for", "1h"]);
    assert_eq!(ended.code, Some(1));
    assert_contains(&ended.err, &["409", "revoke some"]);
    let changed = order("user=u7");
    assert_eq!(
        changed.status(),
        200,
        "no further grant: {}",
        changed.text()
    );
    assert_eq!(site.revoke("few", "user=u8").status(), 200);
    assert_eq!(order("user=late").status(), 200);
    problem(&order("user=later"), 409, "there are 5000 grants already");
    wait_until("the audit has the refusal", || {
        let events = site
            .server
            .ask("GET", "/v1/record/events?audit=true&from=-1h", "");
        events.text().contains("409 Conflict")
    });
}

/// A grant for all of 199 routes raises the number of each, and that of requests without a route.
#[test]
fn more_keys_of_routes_than_grants_may_raise_are_refused() {
    let mut site = Site::start(
        "limits: { each: { key: user, rate: 1/h, routes: each } }\n",
        "{}",
    );
    for number in 1..199 {
        let path = format!("policies/p{number}.yaml");
        let policy = format!("match: /p{number}\nupstream: up\n");
        fs::write(site.folder.path().join(path), policy).unwrap();
    }
    site.grant("each", "user=u0", ("times", 2));
    restart_with(&mut site, |entry| {
        let copy = |number: usize| {
            let mut copy = entry.clone();
            copy["key"] = format!("user=u{number}").into();
            copy
        };
        (0..500).map(copy).collect()
    });
    assert!(site.grants().iter().all(|grant| grant["holds"] == true));
    let order = |limit: &str| {
        site.order(&json!({ "limit": limit, "key": "user=late", "times": 2, "for": "1h" }))
    };
    problem(&order("each"), 409, "more than 100000 keys of routes");
    problem(&order("p7"), 404, "p7");
    assert_eq!(site.grants().len(), 500);
    assert_eq!(site.revoke("each", "user=u0").status(), 200);
    let granted = order("each");
    assert_eq!(granted.status(), 200, "{}", granted.text());
}

/// An order that another gateway's clock outruns would not count, and the audit says so.
#[test]
fn a_grant_behind_a_clock_that_is_far_ahead_is_refused() {
    let mut site = Site::start("", WIDE);
    site.grant("few", "user=alice", ("times", 2));
    restart_with(&mut site, |entry| {
        let mut ahead = entry.clone();
        ahead["changed_at"] = (32_503_680_000_000_u64 - 1).into();
        vec![ahead]
    });
    let order = json!({ "limit": "few", "key": "user=alice", "times": 3, "for": "1h" });
    problem(&site.order(&order), 409, "set the clocks right");
    problem(
        &site.revoke("few", "user=alice"),
        409,
        "set the clocks right",
    );
    assert_eq!(site.key("few", "user=alice")["quota"], 2);
    wait_until("both are in the audit", || {
        let events = site
            .server
            .ask("GET", "/v1/record/events?audit=true&from=-1h", "");
        let parts = [
            "operator at 127.0.0.1: grant few user=…",
            "revoke few user=…",
        ];
        let result = "done in part: 409 Conflict";
        parts.iter().all(|part| events.text().contains(part))
            && events.text().matches(result).count() >= 2
    });
}

/// Ends the gateway, replaces the only grant of its file by others, and starts it again.
fn restart_with(site: &mut Site, others: impl Fn(&Value) -> Vec<Value>) {
    site.server.signal(Signal::TERM);
    site.server.ended();
    let path = site.folder.path().join("record/orders");
    let text = fs::read_to_string(&path).unwrap();
    let (head, line) = text.trim_end().split_once('\n').unwrap();
    let (_, entry) = line.split_once(' ').unwrap();
    let entry: Value = serde_json::from_str(entry).unwrap();
    let lines = others(&entry).into_iter().map(|entry| {
        let entry = entry.to_string();
        let mut hasher = SipHasher13::new();
        hasher.write(entry.as_bytes());
        format!("{:016x} {entry}\n", hasher.finish())
    });
    let lines: String = lines.collect();
    fs::write(&path, format!("{head}\n{lines}")).unwrap();
    site.restart();
}

#[track_caller]
fn problem(answer: &Message, status: u16, says: &str) {
    assert_eq!(answer.status(), status, "{says}: {}", answer.text());
    assert_contains(&answer.text(), &[says]);
}
