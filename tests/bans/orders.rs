//! The verbs, by the API and by the command line.

use serde_json::json;

use crate::common::child::line_with;
use crate::common::{assert_contains, wait_until};
use crate::{Site, from, json_of};

#[test]
fn keys_and_networks_are_banned_listed_and_lifted() {
    let site = Site::start("");
    for (key, listed, banned, others) in [
        (
            "192.0.2.7",
            "ip=192.0.2.7",
            from("192.0.2.7"),
            from("192.0.2.8"),
        ),
        (
            "ip=192.0.2.7/32",
            "ip=192.0.2.7",
            from("192.0.2.7"),
            from("192.0.2.8"),
        ),
        (
            "ip=198.51.100.9/24",
            "ip=198.51.100.0/24",
            from("198.51.100.255"),
            from("198.51.101.0"),
        ),
        (
            "::ffff:203.0.113.0/120",
            "ip=203.0.113.0/24",
            from("203.0.113.1"),
            from("203.0.112.1"),
        ),
        (
            "2001:db8::7",
            "ip=2001:db8::/64",
            from("2001:db8::8"),
            from("2001:db8:0:1::8"),
        ),
        (
            "2001:db8:5::/48",
            "ip=2001:db8:5::/48",
            from("2001:db8:5:1::1"),
            from("2001:db8:6::1"),
        ),
        (
            "user=alice",
            "user=alice",
            "x-user: alice\r\n".into(),
            "x-user: bob\r\n".into(),
        ),
        (
            "tenant=a,b",
            "tenant=a~2Cb",
            "x-tenant: a,b\r\n".into(),
            "x-tenant: a\r\n".into(),
        ),
    ] {
        let order = json!({ "key": key, "for": "2h", "reason": "scans", "by": "ann" });
        let answer = json_of(&site.ban(&order));
        assert_eq!(answer["key"], listed);
        let ban = &site.bans()[0];
        assert_eq!(
            (&ban["reason"], &ban["by"]),
            (&json!("scans"), &json!("ann"))
        );
        let seconds = ban["until"].as_f64().unwrap() - ban["since"].as_f64().unwrap();
        assert!((seconds - 7_200.0).abs() < 0.001, "{ban}");
        assert_eq!(ban["kept"], true);
        assert_eq!(site.get(&banned).status(), 429, "{key}");
        assert_eq!(site.get(&banned).status(), 429, "{key}");
        assert_eq!(site.get(&others).status(), 200, "{key}");
        assert_eq!(site.bans()[0]["hits"], 2);
        let lifted = site.unban(key);
        assert_eq!(lifted.status(), 200, "{}", lifted.text());
        assert_eq!(site.get(&banned).status(), 200, "{key} is free again");
        assert!(site.bans().is_empty());
    }
}

/// The text of such keys shows only hashes.
#[test]
fn credentials_and_addresses_of_users_are_hidden() {
    let site = Site::start("");
    for (key, shown, fields) in [
        ("token=secret-key", "token=#", "x-key: secret-key\r\n"),
        (
            "user=ann@example.com",
            "user=#",
            "x-user: ann@example.com\r\n",
        ),
    ] {
        site.ban_key(key);
        let listed = site.keys().concat();
        assert!(listed.starts_with(shown), "{listed}");
        assert!(
            !listed.contains("ann") && !listed.contains("secret"),
            "{listed}"
        );
        assert_eq!(site.get(fields).status(), 429);
        assert_eq!(site.bans()[0]["kept"], false, "no restart knows its secret");
        // As it is written, and as it is listed.
        for written in [key, &listed] {
            assert_eq!(site.unban(written).status(), 200);
            assert_eq!(site.get(fields).status(), 200);
            site.ban_key(key);
        }
        assert_eq!(site.unban(key).status(), 200);
    }
}

#[test]
fn orders_with_mistakes_say_what_to_write() {
    let site = Site::start("");
    let long = "x".repeat(2_000);
    for (order, status, says) in [
        (json!({ "key": "alice" }), 400, "not written NAME=VALUE"),
        (
            json!({ "key": "usr=alice" }),
            400,
            "there is no identity `usr`",
        ),
        (json!({ "key": "ip=1.2.3" }), 400, "not an address"),
        (json!({ "key": "0.0.0.0/0" }), 400, "every address"),
        (
            json!({ "key": "2002:c000:200::/40" }),
            400,
            "no client is in",
        ),
        (json!({ "key": "user=a,user=b" }), 400, "twice"),
        (
            json!({ "key": "user=a", "for": "1" }),
            400,
            "not a duration",
        ),
        (
            json!({ "key": "user=a", "for": "1ms" }),
            400,
            "from 1s to 3650d",
        ),
        (
            json!({ "key": "user=a", "for": "4000d" }),
            400,
            "from 1s to 3650d",
        ),
        (
            json!({ "key": "user=a", "reason": long }),
            400,
            "longer than",
        ),
        (json!({ "kee": "user=a" }), 400, "kee"),
    ] {
        let answer = site.ban(&order);
        assert_eq!(answer.status(), status, "{order}");
        let detail = json_of(&answer)["detail"].to_string();
        assert!(detail.contains(says), "{says} in {detail}");
    }
    assert!(site.bans().is_empty());
    site.ban_key("192.0.2.0/24");
    let inner = site.unban("192.0.2.7");
    assert_eq!(inner.status(), 404);
    assert_contains(&inner.text(), &["ip=192.0.2.0/24"]);
    assert_eq!(site.unban("user=nobody").status(), 404);
}

#[test]
fn the_command_line_has_the_same_verbs() {
    let site = Site::start("");
    let banned = site.command(&[
        "ban",
        "user=alice",
        "--for",
        "90s",
        "--reason",
        "many \u{1b}[31mguesses",
        "--by",
        "ann",
    ]);
    assert_eq!(banned.code, Some(0), "{}", banned.err);
    assert_eq!(banned.out, "user=alice is banned for 1m 30s\n");
    assert_eq!(site.get("x-user: alice\r\n").status(), 429);
    let second = site.command(&["ban", "192.0.2.0/24", "--for", "7d"]);
    assert_eq!(second.out, "ip=192.0.2.0/24 is banned for 7d\n");
    let listed = site.command(&["bans"]);
    let lines: Vec<&str> = listed.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", listed.out);
    assert_contains(lines[0], &["key", "left", "hits", "by", "reason"]);
    assert_contains(lines[1], &["ip=192.0.2.0/24", "7d"]);
    assert_contains(lines[2], &["user=alice", "1", "ann", "guesses"]);
    assert!(!listed.out.contains('\u{1b}'), "no control characters");
    let as_json = site.command(&["bans", "--json"]);
    let as_json: serde_json::Value = serde_json::from_str(&as_json.out).unwrap();
    assert_eq!(as_json["bans"][1]["key"], "user=alice");
    let nft = site.command(&["bans", "--format", "nft"]);
    assert_contains(
        &nft.out,
        &["add element inet tollgate banned4 { 192.0.2.0/24 timeout"],
    );
    let ipset = site.command(&["bans", "--format", "ipset", "--set", "gate"]);
    assert_contains(
        &ipset.out,
        &["add gate4-new 192.0.2.0/24 timeout", "swap gate4-new gate4"],
    );
    let bad = site.command(&["bans", "--format", "nft", "--set", "a b"]);
    assert_eq!(bad.code, Some(2));
    let lifted = site.command(&["unban", "ip=192.0.2.0/24", "--by", "bob"]);
    assert_eq!(lifted.out, "ip=192.0.2.0/24 is not banned any more\n");
    let missing = site.command(&["unban", "ip=192.0.2.0/24"]);
    assert_eq!(missing.code, Some(1));
    assert_contains(&missing.err, &["is not banned"]);
    assert_eq!(site.keys(), ["user=alice"]);
}

/// In the log, in the record and in the metrics, and the hits in the access log.
#[test]
fn changes_and_refusals_are_visible() {
    let site = Site::start("access_log: access.log\n");
    let order = json!({ "key": "user=alice", "for": "1s", "reason": "why", "by": "ann" });
    assert_eq!(site.ban(&order).status(), 200);
    assert_eq!(site.get("x-user: alice\r\n").status(), 429);
    let metrics = site.server.ask("GET", "/metrics", "").text();
    assert_contains(
        &metrics,
        &[
            "tollgate_bans 1\n",
            "tollgate_requests_total{route=\"all\",outcome=\"banned\"} 1\n",
        ],
    );
    line_with(&site.server.err, "ban ended");
    assert_eq!(site.get("x-user: alice\r\n").status(), 200);
    site.ban_key("ip=192.0.2.1");
    assert_eq!(site.unban("ip=192.0.2.1").status(), 200);
    wait_until("the record has the events", || {
        let events = site
            .server
            .ask("GET", "/v1/record/events?from=-1m", "")
            .text();
        let banned = "user=alice for 1 s, by ann: why";
        [
            banned,
            "\"ban_ended\"",
            "\"ban_lifted\"",
            "ip=192.0.2.1, by operator",
        ]
        .iter()
        .all(|part| events.contains(part))
    });
    let mut log = String::new();
    wait_until("the log has the refusal", || {
        log = std::fs::read_to_string(site.folder.path().join("access.log")).unwrap();
        log.contains("\"banned\"")
    });
    let line = log.lines().find(|line| line.contains("banned")).unwrap();
    assert_contains(
        line,
        &[
            "\"outcome\":\"banned\"",
            "\"reason\":\"banned\"",
            "\"alice\"",
        ],
    );
}

#[test]
fn an_explanation_names_the_ban() {
    let site = Site::start("");
    site.ban_key("192.0.2.0/24");
    site.ban_key("user=alice");
    for fields in [
        vec!["--ip", "127.0.0.1", "-H", "x-user: alice"],
        vec!["--ip", "192.0.2.9"],
    ] {
        let explained = site.command(&[vec!["explain", "GET", "/a"], fields.clone()].concat());
        let key = match fields.len() {
            2 => "`ip=192.0.2.0/24` is banned for",
            _ => "`user=alice` is banned for",
        };
        assert_contains(&explained.out, &["429 banned: ", key, "admitted again in"]);
    }
    let free = site.command(&["explain", "GET", "/a", "--ip", "192.0.3.9"]);
    assert_contains(&free.out, &["200 admitted"]);
    assert_eq!(site.bans()[0]["hits"], 0, "an explanation is no hit");
}
