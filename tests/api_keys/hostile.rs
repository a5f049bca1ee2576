//! Orders with mistakes, requests with what is no key, and the most keys that there can be.

use std::collections::BTreeSet;

use serde_json::json;
use tollgate::identity::api_keys::sha256;
use tollgate::operator::{
    ApiKeyRegistry, ApiKeyTerms, EntryFile, EntryKind, EntryMap, EntryTerms, OperatorEntry,
    find_named_id,
};

use crate::common::child::Server;
use crate::common::{Client, assert_contains, wait_until};
use crate::{GATEWAY, POLICY, Site, json_of, key_field};

#[test]
fn orders_with_mistakes_say_what_to_write() {
    let site = Site::start("");
    let long = "x".repeat(257);
    for (order, says) in [
        (json!({ "user": "" }), "a user is 1 to 256 bytes"),
        (json!({ "user": long }), "a user is 1 to 256 bytes"),
        (json!({ "user": "al\nice" }), "without control characters"),
        (
            json!({ "user": "al\u{7f}ice" }),
            "without control characters",
        ),
        (json!({ "user": " alice" }), "blanks at its ends"),
        (json!({ "user": "alice\u{200b}" }), "blanks at its ends"),
        (
            json!({ "user": "a", "name": long }),
            "`name` has at most 128 bytes",
        ),
        (
            json!({ "user": "a", "name": "a\u{1b}[31m" }),
            "no control characters",
        ),
        (
            json!({ "user": "a", "plan": "glod" }),
            "there is no plan `glod`; write `free` or `gold`",
        ),
        (
            json!({ "user": "a", "plan": "Gold" }),
            "there is no plan `Gold`",
        ),
        (
            json!({ "user": "a", "plan": "\n".repeat(500) }),
            "there is no plan",
        ),
        (
            json!({ "user": "a", "set": { "tennant": "x" } }),
            "no identity `tennant` comes with API keys; write `tenant`",
        ),
        // Another source of an identity of the file, and words that stand for others.
        (
            json!({ "user": "a", "set": { "device": "x" } }),
            "no identity `device`",
        ),
        (
            json!({ "user": "a", "set": { "ip": "192.0.2.1" } }),
            "no identity `ip`",
        ),
        (
            json!({ "user": "a", "set": { "user": "bob" } }),
            "no identity `user`",
        ),
        (
            json!({ "user": "a", "set": { "plan": "gold" } }),
            "no identity `plan`",
        ),
        (
            json!({ "user": "a", "set": { "everyone": "x" } }),
            "no identity `everyone`",
        ),
        (
            json!({ "user": "a", "set": { "tenant": "" } }),
            "a value of `tenant`",
        ),
        (
            json!({ "user": "a", "set": { "tenant": "a\rb" } }),
            "a value of `tenant`",
        ),
        (
            json!({ "user": "a", "set": { "tenant": long } }),
            "a value of `tenant`",
        ),
        (json!({ "user": "a", "for": "1" }), "not a duration"),
        (json!({ "user": "a", "for": "1ms" }), "from 1s to 3650d"),
        (json!({ "user": "a", "for": "4000d" }), "from 1s to 3650d"),
        (json!({ "user": "a", "for": "-1d" }), "not a duration"),
        (json!({ "user": ["a"] }), "expected a string"),
        (json!({ "usr": "a" }), "usr"),
        (json!({ "user": "a", "key": "tg_mine" }), "key"),
        (json!({}), "user"),
    ] {
        let answer = site.order(&order);
        assert_eq!(answer.status(), 400, "{order}: {}", answer.text());
        let detail = json_of(&answer)["detail"].to_string();
        assert!(detail.contains(says), "{says} in {detail}");
        assert!(detail.len() < 400, "{detail}");
    }
    assert!(site.keys().is_empty());
    for id in ["x", "%0a", "..%2f..", "%e2%80%ae", &long] {
        assert_eq!(site.revoke(id).status(), 404, "{id}");
    }
}

#[test]
fn plans_and_identities_that_keys_cannot_have_are_mistakes() {
    for (identity, plans, order, says) in [
        (
            "  user: { api_keys: runtime }\n",
            "",
            json!({ "user": "a", "plan": "gold" }),
            "the gateway file has no `plans`",
        ),
        (
            "  user: { api_keys: runtime }\n  plan: { header: x-plan, from: [127.0.0.0/8] }\n",
            "plans: { gold: { multiply: 2 } }\n",
            json!({ "user": "a", "plan": "gold" }),
            "`plan` of the gateway file names another source",
        ),
        (
            "  user: { api_keys: runtime }\n",
            "",
            json!({ "user": "a", "set": { "tenant": "acme" } }),
            "define one in the gateway file",
        ),
    ] {
        let gateway = format!("admin: 127.0.0.1:0\n{plans}identity:\n{identity}");
        let policy = "match: /**\nupstream: up\n";
        let site = Site::with(&gateway, policy);
        let answer = site.order(&order);
        assert_eq!(answer.status(), 400);
        assert_contains(&answer.text(), &[says]);
    }
}

#[test]
fn nothing_else_is_a_key() {
    let site = Site::start("");
    let added = site.add_for("alice");
    let key = &added.key;
    let (first, rest) = key.split_at(20);
    let swapped: String = key
        .chars()
        .map(|c| match c.is_lowercase() {
            true => c.to_ascii_uppercase(),
            false => c.to_ascii_lowercase(),
        })
        .collect();
    let hash: String = sha256(key.as_bytes())
        .unwrap()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    for fields in [
        key_field(&swapped),
        key_field(&key.to_uppercase()),
        key_field(&format!("{key}x")),
        key_field(&key[..key.len() - 1]),
        key_field(&key[3..]),
        key_field(&format!("{first} {rest}")),
        key_field(&format!("{key}, {key}")),
        key_field(&added.id),
        key_field(&hash),
        key_field(&format!("sha256:{hash}")),
        key_field("tg_"),
        key_field(&format!("tg_{}", "0".repeat(43))),
        // Twice, even with the same key: servers may take either.
        key_field(key) + &key_field(key),
        key_field(key) + &key_field("other"),
        format!("authorization: Bearer {key}\r\n"),
        format!("cookie: x-api-key={key}\r\n"),
    ] {
        let answer = site.get(&fields);
        assert!(
            matches!(answer.status(), 400 | 401),
            "{fields}: {}",
            answer.text()
        );
    }
    let mut client = site.server.connect();
    client.send(format!(
        "GET /a?x-api-key={key} HTTP/1.1\r\nhost: t\r\n\r\n"
    ));
    assert_eq!(client.answer().status(), 401);
    assert!(site.accepts(key));
    assert!(site.upstream.drain().len() == 1, "only the last is served");
}

#[test]
fn a_key_of_a_megabyte_is_refused_before_it_is_read() {
    let site = Site::start("");
    let added = site.add_for("alice");
    for (key, status) in [
        (added.key.repeat(1 << 14), 431),
        (added.key.clone() + &"x".repeat(9_000), 400),
    ] {
        let mut client: Client = site.server.connect();
        let mut stream = client.stream.try_clone().unwrap();
        let bytes = crate::request(&key_field(&key));
        // The gateway may close the connection while the rest is sent.
        std::thread::spawn(move || std::io::Write::write_all(&mut stream, bytes.as_bytes()));
        assert_eq!(client.answer().status(), status);
    }
    assert!(site.accepts(&added.key));
}

/// Those count too that were revoked, because they could come back.
#[test]
fn there_are_ten_thousand_keys_at_most() {
    let mut site = Site::with(&format!("{GATEWAY}{}", crate::IDENTITY), POLICY);
    site.server.signal(rustix::process::Signal::TERM);
    site.server.ended();
    let mut entries = EntryMap::default();
    let key_of = |number: usize| format!("tg_{number:043}");
    for number in 0..ApiKeyRegistry::MAX_KEYS {
        let hash = sha256(key_of(number).as_bytes()).unwrap();
        entries.merge(OperatorEntry {
            kind: EntryKind::ApiKey,
            key: find_named_id(&key_of(number)).unwrap(),
            hash: None,
            reason: String::new(),
            by: "test".into(),
            since: 1_000,
            until: OperatorEntry::NO_END,
            keep_until: OperatorEntry::NO_END,
            changed_at: 1_000,
            origin: 1,
            earlier_bans: 0,
            terms: Some(EntryTerms::ApiKey(ApiKeyTerms {
                sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
                user: format!("user-{number}"),
                plan: None,
                identities: [("tenant".to_owned(), "t".repeat(200))].into(),
            })),
            is_revoked: number % 2 == 0,
        });
    }
    let path = site.folder.path().join("record/orders");
    let (mut file, mut changed) = (EntryFile::new(&path).unwrap(), BTreeSet::new());
    file.save(&mut entries, &mut changed).unwrap();
    site.server = Server::start(site.folder.path(), true);
    assert!(site.accepts(&key_of(9_999)) && !site.accepts(&key_of(9_998)));
    assert_eq!(site.keys().len(), ApiKeyRegistry::MAX_KEYS / 2);
    let refused = site.order(&json!({ "user": "alice" }));
    assert_eq!(refused.status(), 409);
    assert_contains(&refused.text(), &["10000 API keys already"]);
    let revoked = site.revoke(&find_named_id(&key_of(9_999)).unwrap());
    assert_eq!(revoked.status(), 200, "{}", revoked.text());
    wait_until("it is refused", || !site.accepts(&key_of(9_999)));
    assert_eq!(site.order(&json!({ "user": "alice" })).status(), 409);
    let log = std::fs::metadata(&path).unwrap();
    println!("{} bytes on the disk", log.len());
}
