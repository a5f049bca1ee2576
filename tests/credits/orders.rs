//! The verbs, by the API and by the command line, and what they say of mistakes.

use serde_json::{Value, json};

use crate::common::{assert_contains, wait_until};
use crate::{ALICE, ALONE, PREPAID, Site, get, json_of};

/// The refusals are remembered on the connection, and by the worker.
#[test]
fn credits_are_used_up_and_added_again() {
    let site = Site::start(ALONE, PREPAID);
    let mut alice = site.server.connect();
    assert_eq!(get(&mut alice, ALICE).status(), 429, "there is no account");
    let added = site.add("user=alice", 3);
    let credits = json!({ "added": 3, "used": 0, "left": 3 });
    assert_eq!(added["credits"], credits, "{added}");
    assert!(
        added["until"].is_null() && added["left"].is_null(),
        "{added}"
    );
    let first = get(&mut alice, ALICE);
    assert_eq!(first.field("ratelimit-policy"), Some("\"prepaid\";q=3"));
    assert_eq!(first.field("ratelimit"), Some("\"prepaid\";r=2"));
    assert_eq!(site.admitted(ALICE), 2);
    for _ in 0..3 {
        assert_eq!(get(&mut alice, ALICE).status(), 429);
    }
    let added = site.add("user=alice", 2);
    let credits = json!({ "added": 5, "used": 3, "left": 2 });
    assert_eq!(added["credits"], credits, "{added}");
    assert_eq!(get(&mut alice, ALICE).status(), 200);
    assert_eq!(site.admitted(ALICE), 1);
    assert_eq!(site.status("x-user: bob\r\n"), 429, "another key has none");
}

#[test]
fn what_is_left_is_taken_back() {
    let site = Site::start(ALONE, PREPAID);
    site.add("user=alice", 10);
    let mut alice = site.server.connect();
    for _ in 0..4 {
        assert_eq!(get(&mut alice, ALICE).status(), 200);
    }
    let revoked = json_of(&site.revoke("user=alice"));
    assert_eq!(revoked["revoked"], 6, "{revoked}");
    let credits = json!({ "added": 4, "used": 4, "left": 0 });
    assert_eq!(revoked["credits"], credits, "{revoked}");
    assert_eq!(get(&mut alice, ALICE).status(), 429);
    assert_eq!(json_of(&site.revoke("user=alice"))["revoked"], 0);
    // What was used stays used.
    site.add("user=alice", 5);
    assert_eq!(site.admitted(ALICE), 5);
    let account = &site.key("user=alice")["account"];
    let units = account["orders"].as_array().unwrap().iter();
    let units: Vec<i64> = units.map(|order| order["add"].as_i64().unwrap()).collect();
    assert_eq!(units, [10, -6, 5]);
    let unknown = site.revoke("user=bob");
    assert_eq!(unknown.status(), 404);
    assert_contains(&unknown.text(), &["no grant of `all/prepaid`"]);
}

/// A billing system repeats an order that got no response.
#[test]
fn an_order_with_an_id_is_added_once() {
    let site = Site::start(ALONE, PREPAID);
    let order = |id: &str, add: u64| {
        site.order(&json!({ "limit": "prepaid", "key": "user=alice", "add": add, "order": id }))
    };
    let first = json_of(&order("inv-2026-11", 20));
    assert_eq!(
        first["order"],
        json!({ "id": "inv-2026-11", "add": 20, "repeated": false })
    );
    let again = order("inv-2026-11", 20);
    assert_eq!(again.status(), 200);
    let again = json_of(&again);
    assert_eq!(
        again["order"],
        json!({ "id": "inv-2026-11", "add": 20, "repeated": true })
    );
    assert_eq!(again["credits"], first["credits"]);
    let other = order("inv-2026-11", 21);
    assert_eq!(other.status(), 409);
    assert_contains(
        &other.text(),
        &["inv-2026-11", "20 credits", "an id of its own"],
    );
    assert_eq!(order("inv-2026-12", 5).status(), 200);
    for id in ["", "a b", "ü", &"x".repeat(65)] {
        let refused = order(id, 1);
        assert_eq!(refused.status(), 400, "{id}");
        assert_contains(&refused.text(), &["the id of an order"]);
    }
    assert_eq!(order(&"x".repeat(64), 1).status(), 200);
    assert_eq!(site.admitted(ALICE), 26);
}

#[test]
fn accounts_are_listed_and_explained_with_who_and_why() {
    let site = Site::start(ALONE, PREPAID);
    let order = ["grant", "prepaid", "user=alice", "--add", "500"];
    let with_id = [&order[..], &["--order", "inv-1", "--reason", "invoice 1"]].concat();
    let granted = site.command(&with_id);
    assert_eq!(granted.code, Some(0), "{}", granted.err);
    let expected = "user=alice has 500 credits more of all/prepaid: 500 of 500 credits left\n";
    assert_eq!(granted.out, expected);
    let again = site.command(&with_id);
    let expected =
        "user=alice has the order inv-1 already of all/prepaid: 500 of 500 credits left\n";
    assert_eq!(again.out, expected);
    assert_eq!(site.status(ALICE), 200);
    let listed = site.command(&["grants"]);
    let expected = [
        "all/prepaid",
        "user=alice",
        "500 credits in all",
        "no end",
        "simon",
        "invoice 1",
    ];
    assert_contains(&listed.out, &expected);
    let [account] = &site.grants()[..] else {
        panic!("one account");
    };
    for (name, expected) in [
        ("limit", json!("all/prepaid")),
        ("key", json!("user=alice")),
        ("credits", json!({ "added": 500 })),
        ("number", Value::Null),
        ("by", json!("simon")),
        ("holds", json!(true)),
        ("kept", json!(true)),
        ("until", Value::Null),
        ("add", Value::Null),
    ] {
        assert_eq!(account[name], expected, "{account}");
    }
    let request = ["explain", "GET", "/a", "-H", "x-user: alice"];
    let explained = site.command(&request);
    let expected = [
        "last order inv-1 of 500 credits by simon (invoice 1)",
        "499 of 500 left",
    ];
    assert_contains(&explained.out, &expected);
    let key = site.key("user=alice");
    assert_eq!(
        key["credits"],
        json!({ "added": 500, "used": 1, "left": 499 })
    );
    assert_eq!(key["account"]["orders"][0]["id"], "inv-1");
    let revoked = site.command(&["revoke", "prepaid", "user=alice"]);
    let expected = "499 credits of user=alice for all/prepaid are taken back\n";
    assert_eq!(revoked.out, expected);
    wait_until("the record has the events", || {
        let events = site.ask("rita", "GET", "/v1/record/events?from=-1m", "");
        let granted = "user=alice of all/prepaid: 500 credits, order inv-1, by simon: invoice 1";
        let revoked = "user=alice of all/prepaid: 499 credits, order revoke-";
        let audited = [
            "+500 inv-1 all/prepaid user=alice",
            "-499 all/prepaid user=alice",
        ];
        let parts = [
            "\"granted\"",
            "\"grant_revoked\"",
            granted,
            revoked,
            audited[0],
            audited[1],
        ];
        parts.iter().all(|part| events.text().contains(part))
    });
}

#[test]
fn orders_with_mistakes_say_what_to_write() {
    let limits = "{ prepaid: { key: user, credits: true }, few: { key: user, rate: 9/h } }";
    let site = Site::start(ALONE, limits);
    let order = |limit: &str, more: Value| {
        let mut order = json!({ "limit": limit, "key": "user=alice" });
        for (name, value) in more.as_object().unwrap() {
            order[name] = value.clone();
        }
        site.order(&order)
    };
    for (limit, more, says) in [
        (
            "prepaid",
            json!({ "add": 5, "for": "1d" }),
            "credits, which have no end",
        ),
        (
            "prepaid",
            json!({ "times": 5 }),
            "without `--for` and `--times`",
        ),
        (
            "prepaid",
            json!({ "add": 0 }),
            "`add` is a whole number from 1",
        ),
        (
            "prepaid",
            json!({ "add": -5 }),
            "`add` is a whole number from 1",
        ),
        ("prepaid", json!({ "add": 1_000_000_001 }), "to 1000000000"),
        (
            "prepaid",
            json!({ "add": "5" }),
            "`add` is a whole number from 1",
        ),
        ("prepaid", json!({}), "needs `times` or `add`"),
        ("few", json!({ "add": 5 }), "--for 1d"),
        (
            "few",
            json!({ "add": 5, "for": "1d", "order": "a" }),
            "`all/few` has none",
        ),
    ] {
        let refused = order(limit, more.clone());
        assert_eq!(refused.status(), 400, "{more}: {}", refused.text());
        assert_contains(&refused.text(), &[says]);
    }
    assert!(site.grants().is_empty());
    assert_eq!(
        order("prepaid", json!({ "add": 1_000_000_000 })).status(),
        200
    );
    let too_many = order("prepaid", json!({ "add": 1 }));
    assert_eq!(too_many.status(), 409);
    assert_contains(
        &too_many.text(),
        &["more than 1000000000 in all", "coarser units"],
    );
    for (arguments, says) in [
        (&["--add", "5", "--for", "1d"][..], "--for"),
        (&["--times", "5"], "--times"),
        (&["--add", "5", "--order", "no id"], "inv-2026-11"),
        (&["--order", "a"], "--add"),
    ] {
        let ended = site.command(&[&["grant", "prepaid", "user=bob"], arguments].concat());
        assert_ne!(ended.code, Some(0), "{}", ended.out);
        assert_contains(&ended.err, &[says]);
    }
}

#[test]
fn an_account_takes_64_orders_in_a_week() {
    let site = Site::start(ALONE, PREPAID);
    for _ in 0..64 {
        site.add("user=alice", 1);
    }
    let full = site.order(&json!({ "limit": "prepaid", "key": "user=alice", "add": 1 }));
    assert_eq!(full.status(), 409);
    assert_contains(
        &full.text(),
        &["64 orders within 7 days", "more credits with each"],
    );
    assert_eq!(site.added("user=alice"), 64);
    assert_eq!(json_of(&site.revoke("user=alice"))["revoked"], 64);
    assert_eq!(site.status(ALICE), 429);
}

/// Whoever may only read sees the accounts.
#[test]
fn a_token_that_reads_changes_nothing() {
    let site = Site::start(ALONE, PREPAID);
    site.add("user=alice", 2);
    let order = json!({ "limit": "prepaid", "key": "user=alice", "add": 5 }).to_string();
    assert_eq!(site.ask("rita", "POST", "/v1/grants", &order).status(), 403);
    let path = "/v1/grants/prepaid/user=alice";
    assert_eq!(site.ask("rita", "DELETE", path, "").status(), 403);
    let ended = site.command_as("rita", &["grant", "prepaid", "user=alice", "--add", "5"]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let ended = site.command_as("rita", &["revoke", "prepaid", "user=alice"]);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert_eq!(site.added("user=alice"), 2);
    assert_eq!(site.admitted(ALICE), 2);
}

/// A reset would give back all credits that were ever used.
#[test]
fn what_was_used_is_not_reset() {
    let site = Site::start(ALONE, PREPAID);
    site.add("user=alice", 2);
    assert_eq!(site.admitted(ALICE), 2);
    let path = "/v1/limits/prepaid/keys/user=alice";
    let reset = site.ask("simon", "DELETE", path, "");
    assert_eq!(reset.status(), 409, "{}", reset.text());
    assert_contains(&reset.text(), &["tollgate grant"]);
    assert_eq!(site.status(ALICE), 429);
}

/// An edit moves no credits to a limit of another kind, and takes none away.
#[test]
fn an_account_waits_for_its_limit() {
    let site = Site::start(ALONE, PREPAID);
    site.add("user=alice", 3);
    assert_eq!(site.status(ALICE), 200);
    site.reload("{ prepaid: { key: user, rate: 1/h } }");
    let account = &site.grants()[0];
    assert_eq!(account["holds"], false, "{account}");
    assert_contains(
        account["why"].as_str().unwrap(),
        &["has no `credits` any more"],
    );
    assert_eq!(site.admitted(ALICE), 1, "of the rate");
    let refused = site.revoke("user=alice");
    assert_eq!(refused.status(), 409, "{}", refused.text());
    assert_contains(&refused.text(), &["has no `credits` any more"]);
    site.reload("{}");
    assert_contains(
        site.grants()[0]["why"].as_str().unwrap(),
        &["no limit is named"],
    );
    site.reload(PREPAID);
    assert_eq!(site.grants()[0]["holds"], true);
    assert_eq!(site.key("user=alice")["credits"]["added"], 3);
}

#[test]
fn a_grant_with_an_end_counts_no_credits() {
    let site = Site::start(ALONE, "{ prepaid: { key: user, rate: 1/h } }");
    let grant = json!({ "limit": "prepaid", "key": "user=alice", "add": 50, "for": "1h" });
    assert_eq!(site.order(&grant).status(), 200);
    site.reload(PREPAID);
    let grant = &site.grants()[0];
    assert_eq!(grant["holds"], false, "{grant}");
    assert_eq!(site.status(ALICE), 429);
    site.add("user=alice", 2);
    assert_eq!(site.grants().len(), 2);
    assert_eq!(site.admitted(ALICE), 2);
    assert_eq!(json_of(&site.revoke("user=alice"))["revoked"], 0);
}

/// Credentials are listed as hashes, and are named by them too.
#[test]
fn accounts_of_credentials_are_hidden() {
    let site = Site::start(ALONE, "{ prepaid: { key: token, credits: true } }");
    let added = site.add("token=secret-key", 3);
    let key = added["key"].as_str().unwrap();
    assert!(key.starts_with("token=#"), "{key}");
    let fields = "x-key: secret-key\r\n";
    assert_eq!(site.status(fields), 200);
    let listed = site.ask("rita", "GET", "/v1/grants", "");
    assert!(!listed.text().contains("secret"), "{}", listed.text());
    let revoked = json_of(&site.revoke(&key.replace('#', "%23")));
    assert_eq!(revoked["revoked"], 2, "{revoked}");
    assert_eq!(site.status(fields), 429);
}
