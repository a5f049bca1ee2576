//! Grants of every kind of limit.

use serde_json::json;

use crate::common::{assert_contains, wait_until};
use crate::{Site, get, json_of};

const ALICE: &str = "x-user: alice\r\n";

/// Two of two are used; the grant makes eight more of five times two. Then nothing is left without the grant.
fn check(limit: &str) {
    let site = Site::start("", &format!("{{ few: {limit} }}"));
    assert_eq!(site.admitted(ALICE), 2, "{limit}");
    assert_eq!(site.status(ALICE), 429, "{limit}");
    site.grant("few", "user=alice", ("times", 5));
    assert_eq!(site.admitted(ALICE), 8, "{limit}");
    assert_eq!(site.revoke("few", "user=alice").status(), 200);
    assert_eq!(site.status(ALICE), 429, "{limit}");
    assert_eq!(site.status("x-user: bob\r\n"), 200, "{limit}");
    site.grant("few", "user=alice", ("add", 9));
    assert_eq!(site.key("few", "user=alice")["quota"], 11, "{limit}");
    assert_eq!(site.admitted(ALICE), 1, "{limit}");
}

#[test]
fn algorithms_count_on() {
    for algorithm in [
        "sliding-log",
        "sliding-window",
        "multi-level",
        "fixed-window",
    ] {
        check(&format!(
            "{{ key: user, rate: 2/h, algorithm: {algorithm} }}"
        ));
    }
    check("{ key: user, quota: 2/year }");
}

/// They keep arrival times in place of counts. What was granted before an edit does not hold.
#[test]
fn limits_by_arrival_times_have_no_grants() {
    let order = json!({ "limit": "few", "key": "user=alice", "add": 4, "for": "1h" });
    let site = Site::start("", "{ few: { key: user, rate: 1/h } }");
    assert_eq!(site.order(&order).status(), 200);
    for algorithm in ["gcra", "leaky-bucket, delay: 1s"] {
        let limit = format!("{{ key: user, rate: 1/h, algorithm: {algorithm} }}");
        let policy = format!("match: /**\nupstream: up\nlimits: {{ few: {limit} }}\n");
        std::fs::write(site.folder.path().join("policies/all.yaml"), policy).unwrap();
        assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
        let grant = &site.grants()[0];
        assert_eq!(grant["holds"], false, "{grant}");
        let refused = site.order(&order);
        assert_eq!(refused.status(), 400, "{}", refused.text());
        for text in [grant["why"].as_str().unwrap(), &refused.text()] {
            assert_contains(text, &["cannot have grants", "`algorithm: sliding-window`"]);
        }
        assert_eq!(site.key("few", "user=alice")["quota"], 1);
    }
}

#[test]
fn each_window_has_more() {
    let site = Site::start("", "{ few: { key: user, rate: [2/h, 3/d] } }");
    assert_eq!(site.admitted(ALICE), 2);
    let granted = site.grant("few", "user=alice", ("times", 2));
    assert_eq!(granted["number"], json!(["4/h", "6/d"]));
    assert_eq!(site.admitted(ALICE), 2);
    let granted = site.grant("few", "user=alice", ("add", 3));
    assert_eq!(granted["number"], json!(["5/h", "6/d"]));
    assert_eq!(site.admitted(ALICE), 1);
}

#[test]
fn plans_multiply_the_factor_and_not_what_is_added() {
    let limits = "{ scaled: { key: user, rate: 2/h, plans: true } }";
    let site = Site::start("", limits);
    let gold = "x-user: alice\r\nx-plan: gold\r\n";
    assert_eq!(site.admitted(gold), 20);
    site.grant("scaled", "user=alice", ("add", 3));
    assert_eq!(site.admitted(gold), 3);
    site.grant("scaled", "user=alice", ("times", 2));
    assert_eq!(site.admitted(gold), 17);
    // A limit for each plan: the grant holds for all of them.
    let by_plan = "{ few: { key: user, rate: { gold: 4/h, else: 1/h } } }";
    let site = Site::start("", by_plan);
    site.grant("few", "user=alice", ("times", 2));
    assert_eq!((site.admitted(gold), site.admitted(ALICE)), (8, 2));
}

#[test]
fn open_requests_and_elastic_limits_have_more() {
    // On a slow machine the latency is above its bound, and on a fast one nothing is lent before all requests have come.
    let limits = "{ open: { key: user, concurrent: 3 }, stretch: { key: user, rate: 10/m, throttle: elastic, while: upstream.latency.p90 < 1ms, at_most: 20/m } }";
    let site = Site::start("", limits);
    let granted = site.grant("open", "user=alice", ("times", 4));
    assert_eq!(granted["number"], json!(["12 at once"]));
    let granted = site.grant("open", "user=alice", ("add", 1));
    assert_eq!(granted["number"], json!(["4 at once"]));
    let granted = site.grant("stretch", "user=alice", ("times", 3));
    assert_eq!(granted["number"], json!(["30/m"]));
    assert_eq!(site.admitted(ALICE), 30);
    let mut client = site.server.connect();
    let policy = get(&mut client, "x-user: carl\r\n");
    let policy = policy
        .field("ratelimit-policy")
        .unwrap_or_default()
        .to_owned();
    assert!(policy.contains("\"open\";q=3;"), "{policy}");
    let policy = get(&mut client, "x-user: alice\r\n");
    assert_eq!(policy.status(), 429);
}

/// What is tried beside the limit is raised with it, and so is what only counts.
#[test]
fn shadow_limits_and_candidates_have_more() {
    let limits = "{ watched: { key: user, rate: 1/h, mode: shadow }, few: { key: user, rate: 4/h, try: 2/h } }";
    let site = Site::start("", limits);
    site.grant("watched", "user=alice", ("times", 10));
    site.grant("few", "user=alice", ("times", 2));
    assert_eq!(site.admitted(ALICE), 8);
    let keys = json_of(&site.server.ask("GET", "/v1/limits/few/keys/user=alice", ""));
    let quotas: Vec<_> = keys["limits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|limit| limit["quota"].clone())
        .collect();
    assert_eq!(quotas, [json!(8), json!(4)]);
    // It counts the ninth request too, which the other limit refused.
    assert_eq!(site.key("watched", "user=alice")["remaining"], 1);
}

#[test]
fn a_grant_raises_what_an_override_gives() {
    let site = Site::start_with(
        "overrides: overrides.yaml\nlimits: { few: { key: user, rate: 1/h } }\n",
        "{}",
        &[(
            "overrides.yaml",
            "few: { user=alice: 3/h, user=monitor: unlimited }\n",
        )],
    );
    let write = |text: &str| std::fs::write(site.folder.path().join("overrides.yaml"), text);
    site.grant("few", "user=alice", ("times", 2));
    assert_eq!(site.admitted(ALICE), 6);
    let nothing =
        site.order(&json!({ "limit": "few", "key": "user=monitor", "add": 1, "for": "1h" }));
    assert_eq!(nothing.status(), 400);
    assert!(nothing.text().contains("unlimited"), "{}", nothing.text());
    // A reload with another number: the grant is of that one.
    write("few: { user=alice: 4/h }\n").unwrap();
    assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
    assert_eq!(site.admitted(ALICE), 2);
}

/// It does no harm, and holds again when the limit is there again.
#[test]
fn a_grant_outlives_its_limit() {
    let site = Site::start("", "{ few: { key: user, rate: 1/h } }");
    site.grant("few", "user=alice", ("add", 4));
    let path = site.folder.path().join("policies/all.yaml");
    let policy = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, "match: /**\nupstream: up\n").unwrap();
    assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
    assert_eq!(site.admitted(ALICE), 200);
    let grant = &site.grants()[0];
    assert_eq!(grant["holds"], false);
    assert!(
        grant["why"].as_str().unwrap().contains("no limit is named"),
        "{grant}"
    );
    std::fs::write(&path, policy).unwrap();
    assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
    wait_until("it holds again", || site.grants()[0]["holds"] == true);
    assert_eq!(site.admitted(ALICE), 5);
}

#[test]
fn callers_see_the_number_that_holds() {
    let site = Site::start("usage: /left\n", "{ few: { key: user, rate: 2/h } }");
    site.grant("few", "user=alice", ("times", 3));
    let mut client = site.server.connect();
    client.send(format!("GET /left HTTP/1.1\r\nhost: t\r\n{ALICE}\r\n"));
    let left = json_of(&client.answer());
    assert_eq!(left["limits"][0]["quota"], 6, "{left}");
    assert_eq!(site.admitted(ALICE), 6);
    wait_until("the key is near", || {
        let near = json_of(&site.server.ask("GET", "/v1/near?limit=few&above=80%25", ""));
        near["keys"][0]["quota"] == 6
    });
}
