//! Limits that ban whom they keep refusing, and the bound on bans.

use std::fs;

use serde_json::{Value, json};

use crate::common::redis::Redis;
use crate::common::{assert_contains, child, wait_until};
use crate::{POLICY, Site, from};

const LIMIT: &str = "limits: { few: { key: ip, rate: 1/h, ban: { after: 3 refusals in 10m, for: 1s, up_to: 4s } } }\n";

/// The ban of a key; `None` if there is none.
fn ban_of(site: &Site, key: &str) -> Option<Value> {
    site.bans().into_iter().find(|ban| ban["key"] == key)
}

fn seconds(ban: &Value) -> f64 {
    let seconds = ban["until"].as_f64().unwrap() - ban["since"].as_f64().unwrap();
    seconds.round()
}

#[test]
fn a_limit_bans_whom_it_keeps_refusing_and_longer_each_time() {
    let site = Site::start(LIMIT);
    let client = from("192.0.2.7");
    for status in [200, 429, 429] {
        assert_eq!(site.get(&client).status(), status);
    }
    assert!(site.bans().is_empty(), "two refusals");
    for expected in [1.0, 2.0, 4.0, 4.0] {
        wait_until("the client is banned", || {
            site.get(&client);
            ban_of(&site, "ip=192.0.2.7").is_some()
        });
        let Some(ban) = ban_of(&site, "ip=192.0.2.7") else {
            panic!("a ban of a second ended at once");
        };
        assert_eq!(seconds(&ban), expected);
        assert_eq!(
            (&ban["by"], &ban["reason"]),
            (&json!("limit few"), &json!("refused 3 times"))
        );
        wait_until("the ban ends", || ban_of(&site, "ip=192.0.2.7").is_none());
    }
    assert_eq!(site.get(&from("192.0.2.8")).status(), 200, "nobody else");
}

#[test]
fn a_ban_by_a_limit_is_not_shorter_than_one_that_holds() {
    let site = Site::start(
        "limits: { few: { key: ip, rate: 1/h, ban: { after: 1 refusal in 10m, for: 1h } } }\n",
    );
    let client = from("192.0.2.7");
    site.get(&client);
    assert_eq!(
        site.ban(&json!({ "key": "192.0.2.7", "for": "7d", "by": "ann" }))
            .status(),
        200
    );
    assert_eq!(site.unban("192.0.2.7").status(), 200);
    site.get(&client);
    wait_until("the limit bans again", || {
        ban_of(&site, "ip=192.0.2.7").is_some()
    });
    assert_eq!(
        site.ban(&json!({ "key": "192.0.2.7", "for": "7d", "by": "ann" }))
            .status(),
        200
    );
    let ban = ban_of(&site, "ip=192.0.2.7").unwrap();
    assert_eq!(ban["by"], "ann", "an operator's order counts");
}

/// An address that two fields contradict may be the proxy's.
#[test]
fn an_unclear_address_bans_no_proxy() {
    let site =
        Site::start("limits: { few: { key: ip, rate: 1/h, ban: { after: 1 refusal in 10m } } }\n");
    let unclear = "x-forwarded-for: 192.0.2.7\r\nforwarded: for=192.0.2.8\r\n";
    let statuses: Vec<_> = (0..3).map(|_| site.get(unclear).status()).collect();
    assert_eq!(statuses, [200, 429, 429]);
    // A clear one is banned, and the unclear one was refused before it.
    site.get(&from("192.0.2.9"));
    site.get(&from("192.0.2.9"));
    wait_until("the clear one is banned", || !site.bans().is_empty());
    assert_eq!(site.keys(), ["ip=192.0.2.9"]);
}

/// The address of whoever has no user is that of many users too.
#[test]
fn check_warns_of_bans_by_what_is_left_of_a_key() {
    let site = Site::start("");
    let policy = |key: &str| {
        format!(
            "{POLICY}limits:\n  few: {{ key: {key}, rate: 9/m, ban: {{ after: 3 refusals in 10m }} }}\n"
        )
    };
    fs::write(
        site.folder.path().join("policies/all.yaml"),
        policy("user or ip"),
    )
    .unwrap();
    let checked = child::run(site.folder.path(), &["check", "--offline"]);
    let text = format!("{}{}", checked.out, checked.err);
    assert_contains(
        &text,
        &["`few` bans the whole address of clients without `user`"],
    );
}

/// A closed limit refuses everybody while the store is away, which is nobody's offence.
#[test]
fn an_outage_of_the_store_bans_nobody() {
    let mut redis = Redis::start();
    let limits = "limits: { few: { key: ip, rate: 100/h, sharing: strict, on_store_error: closed, ban: { after: 1 refusal in 10m } } }\n";
    let store = format!("store: {{ address: \"{}\", budget: 1s }}\n", redis.url());
    let site = Site::start(&format!("{store}{limits}"));
    let client = from("192.0.2.7");
    wait_until("the store is shared", || site.get(&client).status() == 200);
    redis.kill();
    wait_until("the limit is closed", || site.get(&client).status() == 429);
    // A ban by the limit would come before this one.
    site.ban_key("user=alice");
    for _ in 0..5 {
        site.get(&client);
    }
    site.ban_key("user=bob");
    assert_eq!(site.keys(), ["user=alice", "user=bob"]);
}

#[test]
fn check_describes_and_warns() {
    let site = Site::start(LIMIT);
    let checked = child::run(site.folder.path(), &["check", "--offline"]);
    assert_contains(
        &checked.out,
        &["bans for 1 s after 3 refusals in 600 s, up to 4 s"],
    );
    let policy = format!(
        "{POLICY}limits:\n  guess: {{ key: tenant, rate: 9/m, ban: {{ after: 3 refusals in 10m }} }}\n"
    );
    fs::write(site.folder.path().join("policies/all.yaml"), policy).unwrap();
    let checked = child::run(site.folder.path(), &["check", "--offline"]);
    let text = format!("{}{}", checked.out, checked.err);
    assert_contains(&text, &["`guess` bans by `tenant`, which clients choose"]);
}

/// Whoever connects over a Unix socket has no address, unless a trusted proxy there names it.
#[test]
fn check_warns_of_bans_by_an_address_that_nobody_has() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("policies")).unwrap();
    let limit = "{ key: ip, rate: 9/m, ban: { after: 3 refusals in 10m } }";
    let policy = format!("{POLICY}limits:\n  guess: {limit}\n");
    let check = |listen: &str, identity: &str, policy: &str| {
        let upstream = "upstreams: { up: http://127.0.0.1:9001 }";
        let gateway =
            format!("version: 1\nlisten: {listen}\npolicies: policies\n{upstream}\n{identity}");
        fs::write(folder.path().join("tollgate.yaml"), gateway).unwrap();
        fs::write(folder.path().join("policies/all.yaml"), policy).unwrap();
        let checked = child::run(folder.path(), &["check", "--offline"]);
        assert_eq!(checked.code, Some(0), "{}", checked.err);
        checked.out
    };
    let both = "[{ name: inner, address: \"unix:/tmp/gate.sock\" }, { name: outer, address: 127.0.0.1:0 }]";
    let warning = "`guess` bans nobody who connects over unix:";
    assert_contains(
        &check(both, "", &policy),
        &[warning, "policies/all.yaml:4:17"],
    );
    let of_outer = format!("{policy}listen: outer\n");
    let of_inner = format!("{policy}listen: inner\n");
    assert_contains(&check(both, "", &of_inner), &[warning]);
    let trusting = "identity: { ip: { trusted_proxies: [unix] } }\n";
    let proxied = both.replace("gate.sock\"", "gate.sock\", proxy_protocol: [unix]");
    let by_user = policy.replace("key: ip", "key: user");
    let users = "identity: { user: { header: x-user, from: [unix] } }\n";
    for (listen, identity, policy) in [
        ("127.0.0.1:0", "", &policy),
        (both, "", &of_outer),
        (both, trusting, &policy),
        (&*proxied, "", &policy),
        (both, users, &by_user),
    ] {
        let out = check(listen, identity, policy);
        assert!(!out.contains("bans nobody"), "{identity}{policy}{out}");
    }
}

/// A policy has a route for each match and host, and is one policy all the same.
#[test]
fn check_writes_a_policy_once() {
    let site = Site::start("");
    let policy = "match: [GET /a/**, POST /b]\nhost: [x.example, y.example]\nupstream: up\n\
                  limits:\n  few: { key: ip, rate: 9/m }\n";
    fs::write(site.folder.path().join("policies/few.yaml"), policy).unwrap();
    let checked = child::run(site.folder.path(), &["check", "--offline"]);
    let matches =
        "\nfew: GET /a/** on x.example, y.example; POST /b on x.example, y.example to up\n";
    assert_contains(&checked.out, &["5 routes of 2 policies", matches]);
    for once in ["\nfew: ", "  few: ", "by ip, 9/m"] {
        assert_eq!(
            checked.out.matches(once).count(),
            1,
            "{once} in {}",
            checked.out
        );
    }
}
