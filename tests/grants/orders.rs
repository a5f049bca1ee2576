//! The verbs, by the API and by the command line, and what they say of mistakes.

use serde_json::{Value, json};

use crate::common::{assert_contains, wait_until};
use crate::{Site, get};

const ALICE: &str = "x-user: alice\r\n";
const BOB: &str = "x-user: bob\r\n";

/// The refusals are remembered on the connection, and by the worker.
#[test]
fn a_grant_holds_at_once_and_its_end_forgives_nothing() {
    let site = Site::start("", "{ per-user: { key: user, rate: 2/h } }");
    let (mut alice, mut bob) = (site.server.connect(), site.server.connect());
    for fields in [ALICE, BOB] {
        assert_eq!(site.admitted(fields), 2);
    }
    for _ in 0..5 {
        assert_eq!(get(&mut alice, ALICE).status(), 429);
        assert_eq!(get(&mut bob, BOB).status(), 429);
    }
    let granted = site.grant("per-user", "user=alice", ("times", 10));
    assert_eq!(granted["number"], json!(["20/h"]));
    let first = get(&mut alice, ALICE);
    assert_eq!(first.status(), 200, "{}", first.text());
    let policy = first.field("ratelimit-policy").unwrap_or_default();
    assert_eq!(policy, "\"per-user\";q=20;w=3600");
    let left = first.field("ratelimit").unwrap_or_default();
    assert!(left.starts_with("\"per-user\";r=17;"), "{left}");
    assert_eq!(get(&mut bob, BOB).status(), 429, "another key has no more");
    let key = site.key("per-user", "user=alice");
    assert_eq!((&key["quota"], &key["remaining"]), (&json!(20), &json!(17)));
    assert_eq!(key["grant"]["times"], 10);
    assert_eq!(site.admitted(ALICE), 17);
    let last = get(&mut alice, ALICE);
    assert_eq!(last.status(), 429);
    assert_contains(&last.text(), &["per-user"]);
    assert_eq!(site.revoke("per-user", "user=alice").status(), 200);
    assert_eq!(get(&mut alice, ALICE).status(), 429);
    let key = site.key("per-user", "user=alice");
    assert_eq!((&key["quota"], &key["remaining"]), (&json!(2), &json!(0)));
    assert!(key["grant"].is_null(), "{key}");
    // What was counted still counts: with 21 units one of the 20 is left.
    site.grant("per-user", "user=alice", ("add", 19));
    assert_eq!(site.admitted(ALICE), 1);
}

#[test]
fn grants_are_listed_and_explained_with_who_and_why() {
    let site = Site::start("", "{ per-user: { key: user, rate: 2/h } }");
    let granted = site.command(&[
        "grant",
        "per-user",
        "user=alice",
        "--times",
        "10",
        "--for",
        "1d",
        "--reason",
        "launch",
        "--by",
        "ann",
    ]);
    assert_eq!(granted.code, Some(0), "{}", granted.err);
    assert_eq!(
        granted.out,
        "user=alice has 10 times (20/h) of all/per-user for 1d\n"
    );
    let listed = site.command(&["grants"]);
    assert_contains(
        &listed.out,
        &[
            "all/per-user",
            "user=alice",
            "10 times (20/h)",
            "ann",
            "launch",
        ],
    );
    let [grant] = &site.grants()[..] else {
        panic!("one grant");
    };
    for (name, expected) in [
        ("limit", json!("all/per-user")),
        ("key", json!("user=alice")),
        ("times", json!(10)),
        ("by", json!("ann")),
        ("reason", json!("launch")),
        ("holds", json!(true)),
        ("kept", json!(true)),
    ] {
        assert_eq!(grant[name], expected, "{grant}");
    }
    let explained = site.command(&["explain", "GET", "/a", "-H", "x-user: alice"]);
    let expected = [
        "with a grant of 10 times for 86",
        "by ann (launch)",
        "20 of 20 left",
    ];
    assert_contains(&explained.out, &expected);
    let other = site.command(&["explain", "GET", "/a", "-H", "x-user: bob"]);
    assert_contains(&other.out, &["2 of 2 left"]);
    assert!(!other.out.contains("grant"), "{}", other.out);
    // The newest order about a key counts, however the limit is named.
    let changed = site.command(&[
        "grant",
        "all/per-user",
        "user=alice",
        "--add",
        "3",
        "--for",
        "2h",
        "--json",
    ]);
    let changed: Value = serde_json::from_str(&changed.out).unwrap();
    assert_eq!(
        (&changed["add"], &changed["number"]),
        (&json!(3), &json!(["5/h"]))
    );
    assert_eq!(site.grants().len(), 1);
    let revoked = site.command(&["revoke", "per-user", "user=alice"]);
    assert_eq!(
        revoked.out,
        "the grant of user=alice for all/per-user is taken back\n"
    );
    assert!(site.grants().is_empty());
    let again = site.command(&["revoke", "per-user", "user=alice"]);
    assert_eq!(again.code, Some(1));
    assert_contains(&again.err, &["has no grant", "tollgate grants"]);
    wait_until("the record has the events", || {
        let events = site.server.ask("GET", "/v1/record/events?from=-1m", "");
        let granted = "user=alice of all/per-user: 10 times";
        let parts = ["\"granted\"", "\"grant_revoked\"", granted];
        parts.iter().all(|part| events.text().contains(part))
    });
}

#[test]
fn orders_with_mistakes_say_what_to_write() {
    let site = Site::start("", "{ per-user: { key: user, rate: 2/h } }");
    let order = |limit: &str, key: &str, more: Value, time: &str| {
        let mut order = json!({ "limit": limit, "key": key, "for": time });
        for (name, value) in more.as_object().unwrap() {
            order[name] = value.clone();
        }
        site.order(&order)
    };
    let times = |times: Value| json!({ "times": times });
    for (answer, status, says) in [
        (
            order("per-usr", "user=a", times(json!(2)), "1h"),
            404,
            "did you mean `per-user`?",
        ),
        (
            order("per-user", "alice", times(json!(2)), "1h"),
            400,
            "as `tollgate explain` shows it",
        ),
        (
            order("per-user", "ip=192.0.2.7", times(json!(2)), "1h"),
            400,
            "user",
        ),
        (
            order("per-user", "user=a", times(json!(0)), "1h"),
            400,
            "from 2 to 1000000",
        ),
        (
            order("per-user", "user=a", times(json!(-3)), "1h"),
            400,
            "from 2 to 1000000",
        ),
        (
            order("per-user", "user=a", times(json!("NaN")), "1h"),
            400,
            "from 2 to 1000000",
        ),
        (
            order("per-user", "user=a", times(json!(1.5)), "1h"),
            400,
            "from 2 to 1000000",
        ),
        (
            order("per-user", "user=a", times(json!(40_000)), "1h"),
            400,
            "sliding-log",
        ),
        (
            order("per-user", "user=a", json!({ "add": 1_000_000_000 }), "1h"),
            400,
            "grant less",
        ),
        (
            order("per-user", "user=a", json!({}), "1h"),
            400,
            "needs `times` or `add`",
        ),
        (
            order("per-user", "user=a", times(json!(2)), "0s"),
            400,
            "1s",
        ),
        (
            order("per-user", "user=a", times(json!(2)), "5000d"),
            400,
            "3650d",
        ),
        (
            site.order(&json!({ "limit": "per-user", "key": "user=a", "times": 2 })),
            400,
            "needs an end",
        ),
        (site.revoke("per-user", "user=a"), 404, "has no grant"),
        (
            site.revoke("gone", "user=a"),
            404,
            "no limit is named `gone`",
        ),
    ] {
        assert_eq!(answer.status(), status, "{says}: {}", answer.text());
        assert_contains(&answer.text(), &[says]);
    }
    assert!(site.grants().is_empty());
    for (arguments, says) in [
        (&["--times", "NaN", "--for", "1h"][..], "from 2 to 1000000"),
        (&["--times", "-1", "--for", "1h"], "from 2 to 1000000"),
        (&["--times", "2"], "--for"),
        (&["--for", "1h"], "--times"),
        (
            &["--times", "2", "--add", "2", "--for", "1h"],
            "cannot be used with",
        ),
    ] {
        let ended = site.command(&[&["grant", "per-user", "user=a"], arguments].concat());
        assert_ne!(ended.code, Some(0));
        assert_contains(&ended.err, &[says]);
    }
}

/// Two policies have a limit of one name, and the gateway file has one for each route.
#[test]
fn limits_are_named_with_their_policy_where_needed() {
    let site = Site::start(
        "limits: { each: { key: user, rate: 1/h, routes: each } }\n",
        "{ per-user: { key: user, rate: 2/h } }",
    );
    let other = "match: /other\nupstream: up\nlimits: { per-user: { key: user, rate: 3/h } }\n";
    std::fs::write(site.folder.path().join("policies/other.yaml"), other).unwrap();
    assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
    let ambiguous = json!({ "limit": "per-user", "key": "user=a", "times": 2, "for": "1h" });
    let ambiguous = site.order(&ambiguous);
    assert_eq!(ambiguous.status(), 400);
    assert_contains(&ambiguous.text(), &["all/per-user", "other/per-user"]);
    let granted = site.grant("other/per-user", "user=alice", ("times", 2));
    assert_eq!(granted["number"], json!(["6/h"]));
    let granted = site.grant("each", "user=alice", ("add", 1));
    assert_eq!(granted["limit"], "*/each");
    assert_eq!(site.admitted(ALICE), 2, "of /a");
    let mut client = site.server.connect();
    client.send(format!("GET /other HTTP/1.1\r\nhost: t\r\n{ALICE}\r\n"));
    let quota = client.answer();
    let policy = quota
        .field("ratelimit-policy")
        .unwrap_or_default()
        .to_owned();
    assert_contains(&policy, &["\"each\";q=2", "\"per-user\";q=6"]);
}

/// The grant of all routes stays with the limit that each route counts for itself.
#[test]
fn an_edit_moves_no_grant_to_another_limit_of_the_name() {
    let site = Site::start(
        "limits: { each: { key: user, rate: 1/h, routes: each } }\n",
        "{}",
    );
    site.grant("each", "user=alice", ("add", 4));
    let path = site.folder.path().join("tollgate.yaml");
    let gateway = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, gateway.replace(", routes: each", "")).unwrap();
    assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
    assert_eq!(site.grants()[0]["holds"], false);
    assert_eq!(site.key("each", "user=alice")["quota"], 1);
    assert_eq!(site.revoke("*/each", "user=alice").status(), 200);
}

/// Of two rates by plan one has no room for the grant.
#[test]
fn a_grant_that_fails_for_one_plan_holds_for_none() {
    let limit = |free: &str, gold: &str| {
        format!(
            "{{ few: {{ key: user, algorithm: sliding-log, rate: {{ free: {free}, else: {gold} }} }} }}"
        )
    };
    let site = Site::start("", &limit("1/h", "2/h"));
    site.grant("few", "user=alice", ("times", 3));
    for (free, gold, quotas) in [
        ("1/h", "40000/h", [1, 40_000]),
        ("40000/h", "2/h", [40_000, 2]),
    ] {
        let policy = format!("match: /**\nupstream: up\nlimits: {}\n", limit(free, gold));
        std::fs::write(site.folder.path().join("policies/all.yaml"), policy).unwrap();
        assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
        let grant = &site.grants()[0];
        assert_eq!(grant["holds"], false, "{grant}");
        assert_contains(grant["why"].as_str().unwrap(), &["sliding-log"]);
        for (plan, quota) in ["free", "gold"].into_iter().zip(quotas) {
            let fields = format!("x-user: alice\r\nx-plan: {plan}\r\n");
            let answer = get(&mut site.server.connect(), &fields);
            let policy = answer.field("ratelimit-policy").unwrap_or_default();
            assert_contains(policy, &[&format!("q={quota};")]);
        }
    }
}

/// Credentials are listed as hashes, and are named by them too.
#[test]
fn credentials_are_hidden() {
    let site = Site::start("", "{ per-key: { key: token, rate: 1/h } }");
    let fields = "x-key: secret-key\r\n";
    assert_eq!(site.admitted(fields), 1);
    let granted = site.grant("per-key", "token=secret-key", ("add", 2));
    let key = granted["key"].as_str().unwrap();
    assert!(key.starts_with("token=#"), "{key}");
    assert_eq!(granted["kept"], false, "no restart knows its secret");
    assert_eq!(site.admitted(fields), 2);
    assert_eq!(site.revoke("per-key", key).status(), 200);
    assert_eq!(site.status(fields), 429);
}
