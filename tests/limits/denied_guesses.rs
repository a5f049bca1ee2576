//! Clients that `deny` and `allow` keep out, and that guess credentials, ask by preflights, or have a key in the body.

use crate::denials::{ALL, count, site_with};
use crate::folders::explained;
use crate::protocols::Request;

const KEYS: &str = "ann-key: { user: ann }\nbob-key: { user: bob }\n";
const USERS: &str = "  user: { api_keys: keys.yaml }\n  token: { header: x-key }\n";
const LIMITS: &str = "limits: { per-ip: { key: ip, rate: 3/h } }\n";

/// Whoever guesses keys is counted, and finds out no more than the limit lets through.
#[test]
fn guesses_of_keys_end_in_429() {
    let route = |lists: &str| format!("match: /a/**\nupstream: up\n{lists}");
    let anonymous = USERS.replace("keys.yaml }", "keys.yaml, unverified: anonymous }");
    for (identity, gateway, policy, path, first) in [
        (USERS, "allow: { user: [ann] }\n", ALL, "/a", 401),
        (
            USERS,
            "allow: { user: [ann] }\n",
            "match: /b\nupstream: up\n",
            "/none",
            403,
        ),
        (USERS, "", &*route("deny: { user: absent }\n"), "/a/x", 401),
        (USERS, "", &*route("deny: { token: absent }\n"), "/a/x", 401),
        (
            &*anonymous,
            "",
            &*route("allow: { user: [ann] }\n"),
            "/a/x",
            403,
        ),
        (
            &*anonymous,
            "",
            &*route("deny: { user: absent }\n"),
            "/a/x",
            403,
        ),
    ] {
        let gateway = format!("{identity}{gateway}{LIMITS}");
        let site = site_with(&gateway, &[("all", policy)], &[("keys.yaml", KEYS)]);
        let mut client = site.open();
        let what = format!("{gateway}{policy}");
        for (round, status) in [first, first, first, 429, 429].into_iter().enumerate() {
            let fields = format!("x-key: guess-{round}\r\n");
            let explanation = explained(&site, path, &[("x-key", "guess")]);
            assert_eq!(explanation["status"], status, "{what}: {explanation:#}");
            let answer = client.exchange(Request::get(path, &fields));
            assert_eq!(answer.status(), status, "{what}");
        }
        assert!(site.upstream.drain().is_empty(), "{what}");
    }
}

/// Without a credential there is nothing to guess, and a denied request is not counted.
#[test]
fn clients_without_credentials_are_denied_uncounted() {
    let policy = format!("{ALL}deny: {{ user: absent }}\n");
    let gateway = format!("{USERS}{LIMITS}");
    let site = site_with(&gateway, &[("all", &policy)], &[("keys.yaml", KEYS)]);
    let mut client = site.open();
    for _ in 0..9 {
        assert_eq!(client.exchange(Request::get("/a", "")).status(), 403);
    }
    assert_eq!(count(&site, "all", "denied"), 9);
    assert_eq!(
        client
            .exchange(Request::get("/a", "x-key: ann-key\r\n"))
            .status(),
        200
    );
}

/// A preflight that the gateway answers has no credential, but an address, and headers.
#[test]
fn preflights_are_denied_by_what_they_have() {
    let policy = "match: GET /a\nupstream: up\ncors: { origins: '*' }\n\
        deny: { tenant: [red] }\nallow: { user: [ann] }\n";
    let identity = format!("{USERS}  tenant: {{ header: x-tenant }}\n");
    let site = site_with(&identity, &[("a", policy)], &[("keys.yaml", KEYS)]);
    let mut client = site.open();
    let asks = "origin: https://a.test\r\naccess-control-request-method: GET\r\n";
    for (tenant, status) in [
        ("x-tenant: red\r\n", 403),
        ("x-tenant: blue\r\n", 204),
        ("", 204),
    ] {
        let fields = format!("{asks}{tenant}");
        let request = Request {
            method: "OPTIONS",
            ..Request::get("/a", &fields)
        };
        assert_eq!(client.exchange(request).status(), status, "{tenant}");
    }
}

/// A key in the body brings the plan; until then the plan is the default.
#[test]
fn a_plan_of_a_key_in_the_body_is_waited_for() {
    let gateway = "plans: { free: { multiply: 1 }, gold: { multiply: 2 } }\n";
    let identity = "  user: { api_keys: keys.yaml }\n  token: { query: key }\n  plan: { api_keys: true, default: free }\n";
    let policy = format!("{ALL}deny: {{ plan: [free] }}\n");
    let keys = "ann-key: { user: ann, plan: free }\nbob-key: { user: bob, plan: gold }\n";
    let site = site_with(
        &format!("{identity}{gateway}"),
        &[("all", &policy)],
        &[("keys.yaml", keys)],
    );
    let mut client = site.open();
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    for (body, status) in [("key=bob-key", 200), ("key=ann-key", 403), ("a=b", 403)] {
        let request = Request {
            method: "POST",
            body: Some(body),
            ..Request::get("/a", form)
        };
        assert_eq!(client.exchange(request).status(), status, "{body}");
    }
}
