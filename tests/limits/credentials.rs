//! Where credentials stand, and what proves a user: several places, several sources, and the file of API keys.

use serde_json::json;

use crate::Site;
use crate::common::Upstream;
use crate::custom::{SECRET, post, token};
use crate::protocols::over_both;

#[test]
fn a_credential_may_stand_in_several_places() {
    let gateway = "\
identity:
  token: [{ header: x-api-key }, { bearer: true }, { cookie: sid }, { query: key }]
  user: { api_keys: keys.yaml }
";
    let keys = [("keys.yaml", "first-key: ann\nsecond-key: bob\n")];
    let limit = "per-user: { key: user, rate: 4/m }";
    let start = || {
        let upstream = Upstream::plain();
        Site::with_files(gateway, "require: user\n", &[limit], upstream, &keys)
    };
    over_both(start, check_places);
}

#[track_caller]
fn check_places(site: &Site) {
    for (path, fields, user) in [
        ("/", "x-api-key: first-key\r\n", Some("ann")),
        ("/", "authorization: Bearer second-key\r\n", Some("bob")),
        ("/", "cookie: sid=second-key\r\n", Some("bob")),
        ("/?key=first-key", "", Some("ann")),
        ("/?key=second-key", "x-api-key: first-key\r\n", Some("ann")),
        ("/?key=first-key", "x-api-key: wrong\r\n", None),
        ("/", "authorization: Basic Zmlyc3Q6a2V5\r\n", None),
        ("/", "", None),
    ] {
        let status = site.get_path(path, fields).status();
        assert_eq!(
            status,
            if user.is_some() { 200 } else { 401 },
            "{path} {fields}"
        );
        let reached = site.upstream.drain();
        let reached = reached
            .first()
            .and_then(|reached| reached.field("tollgate-user"));
        assert_eq!(reached, user, "{path} {fields}");
    }
    let form = "application/x-www-form-urlencoded";
    assert_eq!(post(site, "/", form, "key=second-key"), 200);
    assert_eq!(post(site, "/?key=first-key", form, "key=second-key"), 400);
    let twice = "x-api-key: first-key\r\nx-api-key: second-key\r\ncookie: sid=second-key\r\n";
    assert_eq!(site.get_path("/", twice).status(), 400);
}

#[test]
fn a_user_may_be_proven_in_several_ways() {
    let gateway = "\
identity:
  user: [{ jwt: sub, secret: secret.txt }, { api_keys: keys.yaml }]
  token: { header: x-api-key }
  tenant: { jwt: org.id }
";
    let keys = [("keys.yaml", "first-key: bob\n"), ("secret.txt", SECRET)];
    let limits = [
        "per-user: { key: user, rate: 9/m }",
        "per-key: { key: token, rate: 2/m }",
    ];
    let start = || Site::with_files(gateway, "", &limits, Upstream::plain(), &keys);
    over_both(start, check_ways);
}

#[track_caller]
fn check_ways(site: &Site) {
    let ann = token(&json!({}));
    let expired = token(&json!({ "exp": 1_000 }));
    let key = "x-api-key: first-key\r\n";
    let wrong = "x-api-key: wrong\r\n";
    for (fields, status, user) in [
        (ann.clone(), 200, Some("ann")),
        (key.into(), 200, Some("bob")),
        (format!("{ann}{key}"), 200, Some("ann")),
        (format!("{expired}{key}"), 200, Some("bob")),
        (expired.clone(), 401, None),
        (wrong.into(), 401, None),
        (format!("{ann}{wrong}"), 200, Some("ann")),
        // Only the keys of those whom an API key proves are counted.
        (key.into(), 429, None),
        (String::new(), 200, None),
    ] {
        assert_eq!(site.get(&fields).status(), status, "{fields}");
        let reached = site.upstream.drain();
        let reached = reached
            .first()
            .and_then(|reached| reached.field("tollgate-user"));
        assert_eq!(reached, user, "{fields}");
    }
}

/// A reason that cannot reach the upstream hides none that can.
#[test]
fn a_credential_that_does_not_verify_is_refused_beside_a_field_that_is_removed() {
    let gateway = "\
identity:
  user: [{ header: x-user, from: [192.0.2.1] }, { jwt: sub, secret: secret.txt }]
";
    let files = [("secret.txt", SECRET)];
    let limits = ["per-user: { key: user, rate: 9/m }"];
    let start = || Site::with_files(gateway, "", &limits, Upstream::plain(), &files);
    let expired = token(&json!({ "exp": 1_000 }));
    over_both(start, |site| {
        assert_eq!(site.get(&format!("x-user: z\r\n{expired}")).status(), 401);
        assert_eq!(site.get("x-user: z\r\n").status(), 200);
    });
}

/// The file has no text of a key that it has by its SHA-256 hash.
#[test]
fn an_api_key_says_who_its_holder_is_and_until_when() {
    const KEYS: &str = "\
first-key: { user: ann, tenant: acme, expires: 2099-12-31 }
second-key: { user: ann, tenant: acme }
sha256:a4ae87b73fa5645e6aee415a6f72be4dcbd99d057a7b40cb1b867c181d179260: { user: bob, tenant: beta, expires: \"2099-12-31T12:00:00+01:00\" }
old-key: { user: eve, tenant: acme, expires: 2001-01-01 }
ended-key: { user: eve, expires: \"2001-01-01T12:00:00Z\" }
last-key: { user: eve, tenant: gamma, expires: 9999-12-31 }
without: { user: joe }
";
    let gateway = "\
identity:
  token: { header: x-api-key }
  user: { api_keys: keys.yaml }
  tenant: { api_keys: true, forward: true }
";
    let limit = "per-tenant: { key: tenant, rate: 2/m }";
    let files = [("keys.yaml", KEYS)];
    let start = || Site::with_files(gateway, "", &[limit], Upstream::plain(), &files);
    over_both(start, check_entries);
}

#[track_caller]
fn check_entries(site: &Site) {
    for (key, status, tenant) in [
        ("first-key", 200, Some("acme")),
        ("second-key", 200, Some("acme")),
        ("first-key", 429, None),
        ("hashed-key", 200, Some("beta")),
        ("old-key", 401, None),
        ("ended-key", 401, None),
        ("last-key", 200, Some("gamma")),
        (
            "sha256:a4ae87b73fa5645e6aee415a6f72be4dcbd99d057a7b40cb1b867c181d179260",
            401,
            None,
        ),
        ("without", 200, None),
    ] {
        let response = site.get(&format!("x-api-key: {key}\r\n"));
        assert_eq!(response.status(), status, "{key}");
        let reached = site.upstream.drain();
        let reached = reached
            .first()
            .and_then(|reached| reached.field("tollgate-tenant"));
        assert_eq!(reached, tenant, "{key}");
    }
}
