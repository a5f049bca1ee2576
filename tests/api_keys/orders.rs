//! Keys are added, listed and revoked, by the API and by the command line.

use serde_json::json;

use crate::common::child::line_with;
use crate::common::{assert_contains, http2, wait_until};
use crate::{GATEWAY, PLAIN_POLICY, Site, credential_faults, json_of, key_field, request, text};

#[test]
fn a_key_proves_its_user_until_it_is_revoked() {
    let site = Site::start("");
    let order = json!({
        "user": "alice", "plan": "gold", "set": { "tenant": "acme" }, "for": "90d",
        "name": "nightly job", "by": "ann",
    });
    let answer = site.order(&order);
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    let answer = json_of(&answer);
    let (key, id) = (text(&answer["key"]), text(&answer["id"]));
    let random_part = key.strip_prefix("tg_").unwrap();
    assert!(random_part.len() == 43 && random_part.bytes().all(|b| b.is_ascii_alphanumeric()));
    let served = site.get_with(&key);
    assert_eq!(served.status(), 200, "{}", served.text());
    assert_eq!(site.upstream.next().field("tollgate-tenant"), Some("acme"));
    // Ten times the limit of the default plan.
    assert_contains(served.field("ratelimit-policy").unwrap(), &["q=10000"]);

    let listed = site.server.ask("GET", "/v1/keys", "").text();
    let listed_keys = site.keys();
    let entry = &listed_keys[0];
    for (member, value) in [
        ("id", json!(id)),
        ("user", json!("alice")),
        ("plan", json!("gold")),
        ("set", json!({ "tenant": "acme" })),
        ("name", json!("nightly job")),
        ("by", json!("ann")),
        ("kept", json!(true)),
    ] {
        assert_eq!(entry[member], value, "{member}");
    }
    let days = (entry["until"].as_f64().unwrap() - entry["since"].as_f64().unwrap()) / 86_400.0;
    assert!((days - 90.0).abs() < 0.001, "{entry}");
    assert!(!listed.contains(&key[3..10]), "the key is shown once only");

    assert_eq!(site.revoke("0123456789abcdef").status(), 404);
    assert_eq!(site.revoke(&id).status(), 200);
    let refused = site.get_with(&key);
    assert_eq!(refused.status(), 401);
    assert_contains(&refused.text(), &["The API key was revoked."]);
    assert!(site.keys().is_empty());
    assert_eq!(site.revoke(&id).status(), 404, "it is revoked already");
    wait_until("the access log says why", || {
        credential_faults(&site) == ["revoked"]
    });
}

#[test]
fn a_key_ends_at_its_time() {
    let site = Site::start("");
    let order = json!({ "user": "alice", "for": "2s" });
    let answer = json_of(&site.order(&order));
    let key = text(&answer["key"]);
    let until = answer["until"].as_f64().unwrap();
    let mut busy = site.server.connect();
    let mut status = || {
        busy.send(request(&key_field(&key)));
        busy.answer().status()
    };
    let wall = || tollgate::base::clock::Clock::system().wall().as_secs_f64();
    assert_eq!(status(), 200);
    wait_until("the key ends", || {
        let asked_at = wall();
        let status = status();
        assert!(status == 200 || wall() >= until, "it ends too early");
        assert!(status == 401 || asked_at < until + 1.0, "it ends too late");
        status == 401
    });
    assert_contains(&site.get_with(&key).text(), &["expired"]);
    assert!(site.keys().is_empty());
    wait_until("the access log says why", || {
        credential_faults(&site)
            .iter()
            .all(|fault| fault == "expired")
    });
    line_with(&site.server.err, "key ended");
}

/// A connection remembers who sends the same fields, and must forget it.
#[test]
fn a_revoked_key_is_refused_on_busy_connections() {
    let site = Site::start("");
    for _ in 0..3 {
        let (first, second) = (site.add_for("alice"), site.add_for("bob"));
        let mut client = site.server.connect();
        let mut statuses = |key: &str| {
            let mut status = || {
                client.send(request(&key_field(key)));
                client.answer().status()
            };
            (0..4).map(|_| status()).collect::<Vec<_>>()
        };
        assert_eq!(statuses(&first.key), [200; 4]);
        assert_eq!(site.revoke(&first.id).status(), 200);
        assert_eq!(statuses(&first.key), [401; 4]);
        assert_eq!(statuses(&second.key), [200; 4]);
        assert_eq!(site.revoke(&second.id).status(), 200);
        assert_eq!(statuses(&second.key), [401; 4]);
    }
}

#[test]
fn a_revoked_key_is_refused_over_http_2_too() {
    let site = Site::start("");
    let added = site.add_for("alice");
    http2::run(async {
        let mut client = http2::Client::connect(site.server.address).await;
        for (status, is_last) in [(200, false), (200, true), (401, false), (401, false)] {
            let head = http2::request("GET", "/a").header("x-api-key", &*added.key);
            let (answer, _) = client.begin(head.body(()).unwrap(), true);
            let answer = http2::whole(answer.await.unwrap()).await.unwrap();
            assert_eq!(answer.status, status);
            if is_last {
                assert_eq!(site.revoke(&added.id).status(), 200);
            }
        }
    });
}

#[test]
fn the_command_line_has_the_same_verbs() {
    let site = Site::start("");
    let added = site.command(&[
        "key",
        "add",
        "alice",
        "--plan",
        "gold",
        "--set",
        "tenant=acme",
        "--for",
        "90d",
        "--name",
        "nightly job",
        "--by",
        "ann",
    ]);
    assert_eq!(added.code, Some(0), "{}", added.err);
    // A script takes it as it is.
    let key = added.out.trim_end().to_owned();
    assert_eq!(added.out, format!("{key}\n"));
    assert!(site.accepts(&key));
    assert_contains(&added.err, &["of alice, for 90d; it is not shown again"]);
    assert!(!added.err.contains(&key[3..]));
    let id = text(&site.keys()[0]["id"]);
    assert_contains(&added.err, &[&id]);
    let metrics = site.server.ask("GET", "/metrics", "").text();
    assert_contains(&metrics, &["tollgate_api_keys 1\n"]);
    let without_end = site.command(&["key", "add", "bob"]);
    assert_contains(&without_end.err, &["of bob, without an end"]);
    assert!(site.accepts(without_end.out.trim_end()));

    let listed = site.command(&["key", "list"]);
    let lines: Vec<&str> = listed.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", listed.out);
    assert_contains(
        lines[0],
        &["id", "user", "plan", "left", "set", "by", "name"],
    );
    assert_contains(
        lines[1],
        &[
            &id,
            "alice",
            "gold",
            "d",
            "tenant=acme",
            "ann",
            "nightly job",
        ],
    );
    assert_contains(lines[2], &["bob", "no end"]);
    assert!(!listed.out.contains(&key[3..10]));
    let of_bob = site.command(&["key", "list", "bob"]);
    assert_eq!(of_bob.out.lines().count(), 2, "{}", of_bob.out);
    let as_json = site.command(&["key", "list", "alice", "--json"]);
    let as_json: serde_json::Value = serde_json::from_str(&as_json.out).unwrap();
    assert_eq!(as_json["keys"][0]["id"], id.as_str());

    let revoked = site.command(&["key", "revoke", &id, "--by", "bob"]);
    assert_eq!(revoked.out, format!("key {id} of alice is revoked\n"));
    assert!(!site.accepts(&key));
    let again = site.command(&["key", "revoke", &id]);
    assert_eq!(again.code, Some(1));
    assert_contains(&again.err, &["no API key that holds has the id"]);
    for arguments in [
        vec!["key", "add", "carl", "--set", "tenant"],
        vec![
            "key", "add", "carl", "--set", "tenant=a", "--set", "tenant=b",
        ],
    ] {
        assert_eq!(site.command(&arguments).code, Some(2), "{arguments:?}");
    }
    let unknown = site.command(&["key", "add", "carl", "--plan", "glod"]);
    assert_eq!((unknown.code, &*unknown.out), (Some(1), ""));
    assert_contains(&unknown.err, &["there is no plan `glod`"]);
}

/// An operator has the key at hand, not its id.
#[test]
fn a_key_that_is_pasted_as_its_id_goes_nowhere() {
    let site = Site::start("");
    let added = site.add_for("alice");
    let path = format!("%20{}", added.key);
    for text in [&added.key, &added.key[..30], &path, "of-the-file"] {
        let refused = site.revoke(text);
        assert_eq!(refused.status(), 404, "{text}");
        let (shown, hidden) = (refused.text(), &text[text.len() - 8..]);
        assert_contains(&shown, &["this is no id of an API key"]);
        assert!(!shown.contains(hidden), "{shown}");
    }
    let other = site.command(&["key", "revoke", "of-the-file"]);
    assert_eq!(other.code, Some(2), "{}", other.err);
    assert_contains(&other.err, &["this is no id of a key"]);
    assert!(!other.err.contains("of-the-file"), "{}", other.err);
    // The command sends the id that it computes.
    let cut = site.command(&["key", "revoke", &added.key[..30]]);
    assert_eq!(cut.code, Some(1));
    assert_contains(&cut.err, &["no API key that holds has the id"]);
    assert!(!cut.err.contains("tg_"), "{}", cut.err);
    let revoked = site.command(&["key", "revoke", &added.key]);
    let says = format!("key {} of alice is revoked\n", added.id);
    assert_eq!((&*revoked.out, revoked.code), (&*says, Some(0)));
    assert!(!site.accepts(&added.key));
    let mistaken = site.order(&json!({ "user": "bob", "plan": added.key }));
    assert_eq!(mistaken.status(), 400);
    assert!(!mistaken.text().contains("tg_"), "{}", mistaken.text());
}

#[test]
fn an_explanation_names_the_key_by_its_id() {
    let site = Site::start("");
    let added = site.add(&json!({ "user": "alice", "plan": "gold", "set": { "tenant": "acme" } }));
    let field = format!("x-api-key: {}", added.key);
    let explain = || site.command(&["explain", "GET", "/a", "-H", &field]).out;
    let explained = explain();
    let named = format!("user alice, plan gold, API key {}", added.id);
    assert_contains(&explained, &["200 admitted", &named, "tenant=acme"]);
    assert_eq!(site.revoke(&added.id).status(), 200);
    let explained = explain();
    let named = format!("with an API key that was revoked, API key {}", added.id);
    assert_contains(&explained, &["401", &named]);
    assert!(!explained.contains(&added.key[3..]), "{explained}");
    let unknown = site.command(&["explain", "GET", "/a", "-H", "x-api-key: tg_none"]);
    assert_contains(&unknown.out, &["with an unknown API key"]);
}

/// In the log and the record, without the key.
#[test]
fn changes_are_visible_and_the_key_is_not() {
    let site = Site::start("");
    let added = site.add(&json!({ "user": "alice", "name": "why", "by": "ann" }));
    let of_address = site.add_for("bob@example.com");
    assert!(site.accepts(&added.key));
    assert_eq!(site.revoke(&added.id).status(), 200);
    assert_eq!(site.revoke(&of_address.id).status(), 200);
    let mut log = line_with(&site.server.err, "key added");
    log += &line_with(&site.server.err, "key revoked");
    let mut events = String::new();
    let details = ["ann: why", "operator"].map(|by| format!("{} of alice, by {by}", added.id));
    wait_until("the record has the events", || {
        events = site
            .server
            .ask("GET", "/v1/record/events?from=-1m", "")
            .text();
        ["\"key_added\"", "\"key_revoked\"", &details[0], &details[1]]
            .iter()
            .all(|part| events.contains(part))
    });
    assert!(!events.contains("example.com"), "{events}");
    wait_until("the request is in the access log", || {
        log += &std::fs::read_to_string(site.folder.path().join("access.log")).unwrap();
        log.contains("\"alice\"")
    });
    for text in [&log, &events] {
        assert!(!text.contains(&added.key[3..10]), "{text}");
    }
}

/// Bans and limits know the user, whatever proved it.
#[test]
fn a_ban_of_the_user_holds_for_all_of_its_keys() {
    let site = Site::start("");
    let keys = [site.add_for("alice"), site.add_for("alice")];
    let ban = json!({ "key": "user=alice" }).to_string();
    assert_eq!(site.server.ask("POST", "/v1/bans", &ban).status(), 200);
    for added in &keys {
        assert_eq!(site.get_with(&added.key).status(), 429);
    }
    assert!(site.accepts("of-the-file"));
}

#[test]
fn users_of_other_sources_are_told_apart() {
    let identity = "\
identity:
  user: [{ header: x-user, from: [127.0.0.0/8] }, { api_keys: runtime }]
  token: { header: x-api-key }
";
    let site = Site::with(&format!("{GATEWAY}{identity}"), PLAIN_POLICY);
    let added = site.add_for("alice");
    assert!(site.accepts(&added.key));
    assert_eq!(site.get("x-user: bob\r\n").status(), 403);
    assert_eq!(site.get("").status(), 401);
    assert!(!site.accepts("of-the-file"), "there is no file");
}
