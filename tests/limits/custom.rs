//! Identities that the gateway file defines: from a claim, a header, a cookie, a part of the path and networks.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::Site;
use crate::common::Upstream;
use crate::protocols::{Protocol, Request, over_both};

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
pub const FILES: &[(&str, &str)] = &[("secret.txt", SECRET), ("partner.txt", PARTNERS)];
const PARTNERS: &str = "# the partner's offices\n198.51.100.0/25 # north\n\n  2001:db8:7::/48\n";

pub const IDENTITY: &str = "\
identity:
  ip: { trusted_proxies: [127.0.0.0/8] }
  user: { jwt: sub, secret: secret.txt }
  tenant: { jwt: org.id, forward: true }
  groups: { jwt: groups, forward: true }
  device: { header: x-device-id }
  session: { cookie: sid }
  account: { path: account }
  tool: { body: params.name }
  kind: { query: kind }
  place: { networks: { office: [192.0.2.0/24], lab: 192.0.2.64/26, partner: partner.txt }, forward: true }
";

/// A field with a token that has these claims.
pub fn token(claims: &Value) -> String {
    let mut all = json!({ "sub": "ann", "exp": 4_000_000_000_u64 });
    for (name, value) in claims.as_object().unwrap() {
        all[name] = value.clone();
    }
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let token = encode(&Header::default(), &all, &key).unwrap();
    format!("authorization: Bearer {token}\r\n")
}

fn from(ip: &str) -> String {
    format!("x-forwarded-for: {ip}\r\n")
}

pub fn site(limit: &str) -> Site {
    Site::with_files(IDENTITY, "", &[limit], Upstream::plain(), FILES)
}

/// Sends requests with these fields to a site with one limit, and compares their statuses.
#[track_caller]
fn check(limit: &str, requests: &[(&str, u16)]) {
    over_both(
        || site(limit),
        |site| {
            for (number, (fields, status)) in requests.iter().enumerate() {
                let response = site.get(fields);
                assert_eq!(response.status(), *status, "request {number}: {fields}");
            }
        },
    );
}

#[test]
fn a_limit_counts_by_a_header() {
    check(
        "per-device: { key: device, rate: 1/m }",
        &[
            ("x-device-id: a\r\n", 200),
            ("x-device-id: b\r\n", 200),
            ("x-device-id:  a \r\n", 429),
            ("", 200),
            ("", 200),
            ("x-device-id: a\r\nx-device-id: c\r\n", 400),
            ("x-device-id: a, c\r\n", 400),
            ("x-device-id: 6F9619FF-8B86-D011-B42D-00C04FC964FF\r\n", 200),
            ("x-device-id: {6f9619ff8b86d011b42d00c04fc964ff}\r\n", 429),
        ],
    );
}

/// CGI hands `X_Device_Id` to the application as `X-Device-Id`.
#[test]
fn the_upstream_gets_no_other_spelling_of_the_header() {
    let site = site("per-device: { key: device, rate: 5/m }");
    let response = site.get("x_device_id: other\r\nx-device-id: a\r\nx.device.id: third\r\n");
    assert_eq!(response.status(), 200);
    let reached = site.upstream.next();
    let names = ["x-device-id", "x_device_id", "x.device.id"];
    assert_eq!(
        names.map(|name| reached.field(name)),
        [Some("a"), None, None]
    );
}

#[test]
fn a_limit_counts_by_a_cookie() {
    check(
        "per-session: { key: session, rate: 1/m }",
        &[
            ("cookie: sid=a; other=1\r\n", 200),
            ("cookie: sid=b\r\n", 200),
            ("cookie: sid=\"a\"\r\n", 429),
            ("cookie: sid=%61\r\n", 429),
            ("cookie: sid=a; sid=c\r\n", 400),
        ],
    );
}

#[test]
fn a_limit_counts_by_a_claim_inside_others() {
    let acme = token(&json!({ "org": { "id": "acme" } }));
    let same_for_bob = token(&json!({ "sub": "bob", "org": { "id": "acme" } }));
    let number = token(&json!({ "org": { "id": 7 } }));
    let without = token(&json!({}));
    let forged = acme.replace("\r\n", "x\r\n");
    check(
        "per-tenant: { key: tenant, rate: 1/m }",
        &[
            (&acme, 200),
            (&same_for_bob, 429),
            (&number, 200),
            (&number, 429),
            (&without, 200),
            (&without, 200),
            (&forged, 401),
        ],
    );
}

#[test]
fn a_claim_that_is_a_list_is_one_value() {
    let claims = |groups: Value| token(&json!({ "groups": groups }));
    let (both, swapped) = (claims(json!(["b", "a"])), claims(json!(["a", "b", "a"])));
    let one = claims(json!(["a"]));
    check(
        "per-group: { key: groups, rate: 1/m }",
        &[
            (&both, 200),
            (&swapped, 429),
            (&one, 200),
            (&claims(json!("a")), 429),
            (&claims(json!([])), 200),
        ],
    );
    check(
        "staff: { key: everyone, for: { groups: [staff, a] }, rate: 1/m }",
        &[(&both, 200), (&one, 429), (&claims(json!(["b"])), 200)],
    );
}

#[test]
fn the_most_specific_network_names_the_client() {
    check(
        "per-place: { key: place, rate: 1/m }",
        &[
            (&from("192.0.2.1"), 200),
            (&from("192.0.2.255"), 429),
            (&from("192.0.2.64"), 200),
            (&from("192.0.2.127"), 429),
            (&from("198.51.100.1"), 200),
            (&from("2001:db8:7:8::9"), 429),
            (&from("198.51.100.128"), 200),
            (&from("198.51.100.128"), 200),
            (&from("::ffff:192.0.2.2"), 429),
        ],
    );
    check(
        "others: { key: ip, for: { place: absent }, rate: 1/m }",
        &[
            (&from("192.0.2.1"), 200),
            (&from("192.0.2.1"), 200),
            (&from("203.0.113.1"), 200),
            (&from("203.0.113.1"), 429),
        ],
    );
}

#[test]
fn parts_of_a_key_may_be_of_any_kind() {
    let device = |ip: &str| format!("x-device-id: a\r\n{}", from(ip));
    check(
        "pair: { key: [device or ip, place], rate: 1/m }",
        &[
            (&device("192.0.2.1"), 200),
            (&device("192.0.2.2"), 429),
            (&device("192.0.2.64"), 200),
            (&from("192.0.2.2"), 200),
            (&from("192.0.2.3"), 200),
            (&from("192.0.2.3"), 429),
        ],
    );
}

#[test]
fn a_limit_counts_by_a_part_of_the_path() {
    let policy = "match: /accounts/{account}/**\nupstream: up\nlimits:\n  per-account: { key: account, rate: 1/m }\n";
    let start = || Site::with_policies(IDENTITY, &[("accounts", policy)], Upstream::plain(), FILES);
    let requests = [
        ("/accounts/acme/a", 200),
        ("/accounts/acme/b?x=1", 429),
        ("/accounts/%61cme", 429),
        ("/accounts/beta.json", 200),
        ("/accounts/beta", 429),
        ("/accounts/beta.anything", 429),
        ("/accounts/other;x=1/a", 400),
        ("/accounts/other%2Fx", 400),
        ("/accounts//acme", 400),
        // Servers trim blanks of all kinds, and parse UUIDs with hyphens anywhere.
        ("/accounts/7/x", 200),
        ("/accounts/007/x", 429),
        ("/accounts/7%E2%80%83/x", 429),
        ("/accounts/%C2%A07%E2%80%83%E2%80%83/x", 429),
        ("/accounts/00112233-4455-6677-8899-aabbccddeeff/x", 200),
        ("/accounts/00112233445566778899AABBCCDDEEFF/x", 429),
        ("/accounts/001122334-455-6677-8899-aabbccddeeff/x", 400),
        ("/accounts/00000000000000000000000000000007/x", 400),
    ];
    over_both(start, |site| {
        for (path, status) in requests {
            assert_eq!(site.get_path(path, "").status(), status, "{path}");
        }
    });
}

/// A server may read the method from a field, the query or the body, and so take another route.
#[test]
fn a_part_of_the_path_counts_on_each_route_that_servers_may_take() {
    let policies = [
        ("rest", "match: /**\nupstream: up\n"),
        (
            "accounts",
            "match: DELETE /accounts/{account}\nupstream: up\nlimits: { own: { key: account, rate: 1/h } }\n",
        ),
    ];
    let start = || Site::with_policies(IDENTITY, &policies, Upstream::plain(), FILES);
    let override_field = "x-http-method-override: DELETE\r\n";
    let requests = [
        ("DELETE", "/accounts/acme", "", 200),
        ("DELETE", "/accounts/acme", "", 429),
        ("POST", "/accounts/acme", override_field, 429),
        ("POST", "/accounts/acme?_method=DELETE", "", 429),
        ("POST", "/accounts/acme", "", 200),
    ];
    over_both(start, |site| {
        for (method, path, fields, status) in requests {
            let response = site.exchange(Request {
                method,
                path,
                fields,
                body: Some(""),
            });
            assert_eq!(response.status(), status, "{method} {path} {fields}");
        }
    });
}

/// The connection keeps what it knows of a client with the same fields.
#[test]
fn parts_of_the_target_count_on_one_connection() {
    for keys in ["[account, kind]", "account"] {
        check_one_connection(keys);
    }
}

#[track_caller]
fn check_one_connection(keys: &str) {
    let policy = format!(
        "match: /accounts/{{account}}/**\nupstream: up\nlimits: {{ own: {{ key: {keys}, rate: 1/h }} }}\n"
    );
    let start = || Site::with_policies(IDENTITY, &[("all", &policy)], Upstream::plain(), FILES);
    let has_kind = keys.contains("kind");
    let requests = [
        ("/accounts/a/x", 200),
        ("/accounts/a/x", 429),
        ("/accounts/b/x", 200),
        ("/accounts/b/x?kind=k", if has_kind { 200 } else { 429 }),
        ("/accounts/b/x?kind=k", 429),
        ("/accounts/a/x?kind=l", if has_kind { 200 } else { 429 }),
        ("/accounts/c/x", 200),
        ("/accounts/c/x", 429),
        ("/accounts/c/x", 429),
        ("/accounts/d/x", 200),
        ("/accounts/c/x", 429),
        ("/accounts/d/x", 429),
    ];
    over_both(start, |site| {
        let mut client = site.open();
        for (path, status) in requests {
            let response = client.exchange(Request::get(path, ""));
            assert_eq!(response.status(), status, "{path}");
        }
    });
}

#[test]
fn a_client_cannot_have_removed_what_it_is_counted_by() {
    let site = site("anonymous: { key: device, rate: 9/m }");
    let fields = "x-device-id: a\r\nconnection: x-device-id, x-other\r\nx-other: 1\r\n";
    assert_eq!(site.get(fields).status(), 200);
    let reached = site.upstream.next();
    assert_eq!(reached.field("x-device-id"), Some("a"));
    assert_eq!(reached.field("x-other"), None);
}

#[test]
fn an_unclear_address_is_in_no_network_and_evades_no_limit() {
    let unclear = format!("{}forwarded: for=203.0.113.1\r\n", from("192.0.2.1"));
    check(
        "one: { key: everyone, for: { place: [office] }, rate: 1/m }",
        &[(&unclear, 400)],
    );
    check("one: { key: place, rate: 1/m }", &[(&unclear, 400)]);
    check("one: { key: ip, rate: 1/m }", &[(&unclear, 200)]);
}

/// A POST with a body of this type.
pub fn post(site: &Site, path: &str, content_type: &str, body: &str) -> u16 {
    let response = site.exchange(Request {
        method: "POST",
        path,
        fields: &format!("content-type: {content_type}\r\n"),
        body: Some(body),
    });
    response.status()
}

/// A client of HTTP/2 may cut the cookies into fields (RFC 9113, section 8.2.3).
#[test]
fn cookies_count_however_a_client_of_http2_cuts_them() {
    let site = Site {
        protocol: Protocol::Http2,
        ..site("per-session: { key: session, rate: 1/m }")
    };
    for (fields, status) in [
        (
            "cookie: other=1\r\ncookie: sid=a\r\ncookie: last=2\r\n",
            200,
        ),
        ("cookie: sid=a; other=1\r\n", 429),
        ("cookie: sid=a\r\n", 429),
        ("cookie: other=1\r\ncookie: sid=%61\r\n", 429),
        ("cookie: sid=b\r\ncookie: sid=a\r\n", 400),
        ("cookie: sid=b\r\ncookie: other=1; sid=a\r\n", 400),
        ("cookie: sid\r\ncookie: =a\r\n", 200),
    ] {
        assert_eq!(site.get(fields).status(), status, "{fields}");
    }
    let reached = site.upstream.drain();
    let cookies = "other=1; sid=a; last=2";
    assert_eq!(reached[0].field("cookie"), Some(cookies), "one field");
}

#[test]
fn the_upstream_is_told_what_the_gateway_file_says() {
    let start = || site("per-tenant: { key: tenant, rate: 9/m }");
    over_both(start, check_told);
}

#[track_caller]
fn check_told(site: &Site) {
    let forged_list = token(&json!({ "groups": ["a, admin"] }));
    assert_eq!(site.get(&forged_list).status(), 200);
    assert_eq!(site.upstream.next().field("tollgate-groups"), None);
    let fields = token(&json!({ "org": { "id": "acme" }, "groups": ["b", "a"] }));
    let forged = "tollgate-tenant: root\r\ntollgate-place: office\r\ntollgate-device: x\r\n";
    let fields = fields + forged + &from("198.51.100.1") + "x-device-id: d\r\n";
    assert_eq!(site.get(&fields).status(), 200);
    let reached = site.upstream.next();
    let names = ["tenant", "groups", "place", "device"];
    let seen = names.map(|name| {
        reached
            .field(&format!("tollgate-{name}"))
            .map(str::to_owned)
    });
    let expected = [Some("acme"), Some("a, b"), Some("partner"), None];
    assert_eq!(seen, expected.map(|text| text.map(str::to_owned)));
}

/// On one connection too, where identities are remembered from request to request.
#[test]
fn preflights_are_requests_of_their_own_kind() {
    let preflight = "origin: http://a.example\r\naccess-control-request-method: POST\r\n";
    let limits = [
        "requests: { key: ip, rate: 2/m, for: { preflight: absent } }",
        "preflights: { key: ip, rate: 3/m, for: { preflight: present } }",
    ];
    let requests = [
        ("OPTIONS", preflight, 200),
        ("GET", preflight, 200),
        ("OPTIONS", preflight, 200),
        ("OPTIONS", "origin: http://a.example\r\n", 200),
        ("GET", preflight, 429),
        ("OPTIONS", "origin: http://a.example\r\n", 429),
        ("OPTIONS", preflight, 200),
        ("OPTIONS", preflight, 429),
        ("GET", "", 429),
    ];
    let start = || Site::start("", &limits, Upstream::plain());
    over_both(start, |site| {
        let mut client = site.open();
        for (method, fields, status) in requests {
            let request = Request {
                method,
                ..Request::get("/a", fields)
            };
            let response = client.exchange(request);
            assert_eq!(response.status(), status, "{method} {fields}");
        }
        // An upstream may take these as requests of the other method.
        let override_field = format!("{preflight}x-http-method-override: POST\r\n");
        for (path, fields) in [
            ("/a?_method=POST", preflight),
            ("/a?x=1&%5fmethod=POST", preflight),
            ("/a", &*override_field),
        ] {
            let request = Request {
                method: "OPTIONS",
                ..Request::get(path, fields)
            };
            assert_eq!(client.exchange(request).status(), 429, "{path} {fields}");
        }
    });
}

#[test]
fn each_route_counts_for_itself() {
    let gateway = "limits:\n  whole: { key: route, rate: 2/m }\n  each: { key: [ip, route], rate: 1/m, for: { user: absent } }\n\
                   identity: { ip: { trusted_proxies: [127.0.0.0/8] }, user: { header: x-user, from: [127.0.0.0/8] } }\n";
    let policies = [
        ("a", "match: /a\nupstream: up\n"),
        ("b", "match: /b\nupstream: up\n"),
    ];
    let site = Site::with_policies(gateway, &policies, Upstream::plain(), &[]);
    for (path, fields, status) in [
        ("/a", "x-user: ann\r\n", 200),
        ("/a", &*from("192.0.2.1"), 200),
        ("/a", "x-user: ann\r\n", 429),
        ("/b", &*from("192.0.2.1"), 200),
        ("/b", &*from("192.0.2.1"), 429),
        ("/b", &*from("192.0.2.2"), 200),
        ("/b", "x-user: ann\r\n", 429),
    ] {
        assert_eq!(
            site.get_path(path, fields).status(),
            status,
            "{path} {fields}"
        );
    }
}
