//! Where a request has its key, and what the gateway file says of keys.

use serde_json::json;

use crate::common::{assert_contains, wait_until};
use crate::{GATEWAY, IDENTITY, PLAIN_POLICY, Site, key_field};

fn site_with_token(token: &str) -> Site {
    let identity = format!("identity:\n  user: {{ api_keys: runtime }}\n{token}");
    Site::with(&format!("{GATEWAY}{identity}"), PLAIN_POLICY)
}

/// The status of a request with this target and these fields.
fn status(site: &Site, target: &str, fields: &str) -> u16 {
    let mut client = site.server.connect();
    client.send(format!("GET {target} HTTP/1.1\r\nhost: t\r\n{fields}\r\n"));
    client.answer().status()
}

#[test]
fn a_key_is_found_where_the_gateway_file_says() {
    for (token, target, fields) in [
        ("", "/a", "authorization: Bearer KEY\r\n"),
        (
            "  token: { bearer: true }\n",
            "/a",
            "authorization: Bearer KEY\r\n",
        ),
        (
            "  token: { cookie: sid }\n",
            "/a",
            "cookie: a=b; sid=KEY\r\n",
        ),
        ("  token: { query: key }\n", "/a?key=KEY&x=1", ""),
        (
            "  token: [{ header: x-api-key }, { cookie: sid }]\n",
            "/a",
            "cookie: sid=KEY\r\n",
        ),
        (
            "  token: { header: authorization, scheme: Key }\n",
            "/a",
            "authorization: key KEY\r\n",
        ),
    ] {
        let site = site_with_token(token);
        let added = site.add_for("alice");
        let with = |text: &str, key: &str| text.replace("KEY", key);
        let status_of = |key: &str| status(&site, &with(target, key), &with(fields, key));
        assert_eq!(status_of(&added.key), 200, "{token}");
        assert_eq!(status_of(&added.key.to_lowercase()), 401, "{token}");
        assert_eq!(
            status(&site, "/a", &format!("x-other: {}\r\n", added.key)),
            401
        );
        assert_eq!(site.revoke(&added.id).status(), 200);
        assert_eq!(status_of(&added.key), 401, "{token}");
        let mut log = String::new();
        wait_until("the log has all requests", || {
            log = std::fs::read_to_string(site.folder.path().join("access.log")).unwrap();
            log.lines().count() == 4
        });
        assert!(!log.contains(&added.key[3..]), "{log}");
        assert_eq!(log.contains("key=***"), target.contains("key="), "{log}");
    }
}

#[test]
fn a_file_says_whose_its_keys_are_also_of_those_added_at_run_time() {
    let site = Site::start("");
    let added = site.add_for("alice");
    let path = site.folder.path().join("keys.yaml");
    std::fs::write(&path, format!("{}: fay\n", added.key)).unwrap();
    assert_eq!(site.server.ask("POST", "/v1/reload", "").status(), 200);
    let field = format!("x-api-key: {}", added.key);
    let explain = || site.command(&["explain", "GET", "/a", "-H", &field]).out;
    assert_contains(&explain(), &["user fay"]);
    assert_eq!(site.revoke(&added.id).status(), 200);
    assert!(site.accepts(&added.key), "the file has it still");
}

/// A route without a requirement serves such requests as those of nobody.
#[test]
fn a_key_that_does_not_verify_may_be_nobody_s() {
    let identity = "\
identity:
  user: { api_keys: runtime, unverified: anonymous }
  token: { header: x-api-key }
";
    let policy = "match: /**\nupstream: up\nlimits: { per-user: { key: user, rate: 2/h } }\n";
    let site = Site::with(&format!("{GATEWAY}{identity}"), policy);
    let added = site.add_for("alice");
    assert_eq!(
        [(); 3].map(|()| site.get_with(&added.key).status()),
        [200, 200, 429]
    );
    assert_eq!(site.revoke(&added.id).status(), 200);
    assert_eq!(
        [(); 3].map(|()| site.get_with(&added.key).status()),
        [200; 3]
    );
}

#[test]
fn a_gateway_file_may_stop_to_accept_keys_and_begin_again() {
    let site = Site::start("");
    let added = site.add(&json!({ "user": "alice", "plan": "gold", "set": { "tenant": "acme" } }));
    assert!(site.accepts(&added.key));
    let without = IDENTITY.replace("[keys.yaml, runtime]", "keys.yaml");
    site.reload_with(&format!("{GATEWAY}{without}"));
    assert_eq!(site.get_with(&added.key).status(), 401);
    let refused = site.order(&json!({ "user": "bob" }));
    assert_eq!(refused.status(), 409);
    assert_contains(&refused.text(), &["api_keys: runtime"]);
    assert_eq!(site.keys().len(), 1, "it is listed, and may be revoked");
    // Another plan and another identity: the default plan counts, and no header of the old name is sent.
    let other = IDENTITY.replace("tenant:", "customer:");
    let plans = GATEWAY.replace("gold:", "silver:");
    site.reload_with(&format!("{plans}{other}"));
    site.upstream.drain();
    let served = site.get(&key_field(&added.key));
    assert_eq!(served.status(), 200);
    assert_contains(served.field("ratelimit-policy").unwrap(), &["q=1000;"]);
    assert_eq!(site.upstream.next().field("tollgate-tenant"), None);
}
