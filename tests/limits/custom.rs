//! Identities that the gateway file defines: from a claim, a header, a cookie, a part of the path and networks.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::Site;
use crate::common::Upstream;

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
const FILES: &[(&str, &str)] = &[("secret.txt", SECRET), ("partner.txt", PARTNERS)];
const PARTNERS: &str = "# the partner's offices\n198.51.100.0/25 # north\n\n  2001:db8:7::/48\n";

const IDENTITY: &str = "\
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

fn site(limit: &str) -> Site {
    Site::with_files(IDENTITY, "", &[limit], Upstream::plain(), FILES)
}

/// Sends requests with these fields to a site with one limit, and compares their statuses.
#[track_caller]
fn check(limit: &str, requests: &[(&str, u16)]) {
    let site = site(limit);
    for (number, (fields, status)) in requests.iter().enumerate() {
        let response = site.get(fields);
        assert_eq!(response.status(), *status, "request {number}: {fields}");
    }
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
    let site = Site::with_policies(IDENTITY, &[("accounts", policy)], Upstream::plain(), FILES);
    for (path, status) in [
        ("/accounts/acme/a", 200),
        ("/accounts/acme/b?x=1", 429),
        ("/accounts/%61cme", 429),
        ("/accounts/beta.json", 200),
        ("/accounts/beta", 429),
        ("/accounts/beta.anything", 429),
        ("/accounts/other;x=1/a", 400),
        ("/accounts/other%2Fx", 400),
        ("/accounts//acme", 400),
    ] {
        assert_eq!(site.get_path(path, "").status(), status, "{path}");
    }
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
    let site = Site::with_policies(IDENTITY, &policies, Upstream::plain(), FILES);
    let send = |method: &str, path: &str, fields: &str| {
        let mut client = site.gateway.connect();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nhost: t\r\n{fields}content-length: 0\r\n\r\n"
        ));
        client.answer().status()
    };
    assert_eq!(send("DELETE", "/accounts/acme", ""), 200);
    assert_eq!(send("DELETE", "/accounts/acme", ""), 429);
    assert_eq!(
        send(
            "POST",
            "/accounts/acme",
            "x-http-method-override: DELETE\r\n"
        ),
        429
    );
    assert_eq!(send("POST", "/accounts/acme?_method=DELETE", ""), 429);
    assert_eq!(send("POST", "/accounts/acme", ""), 200);
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
    let site = Site::with_policies(IDENTITY, &[("all", &policy)], Upstream::plain(), FILES);
    let mut client = site.gateway.connect();
    let has_kind = keys.contains("kind");
    for (path, status) in [
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
    ] {
        client.send(format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n"));
        assert_eq!(client.answer().status(), status, "{path}");
    }
}

#[test]
fn no_reading_evades_a_limit_by_a_parameter() {
    let site = site("per-kind: { key: kind, rate: 1/m }");
    assert_eq!(site.get_path("/a?kind=x", "").status(), 200);
    // Fastify begins the query here.
    assert_eq!(site.get_path("/a;kind=x", "").status(), 400);
    drop(site);
    let site = self::site("per-tool: { key: tool, rate: 1/m }");
    let body = "{\"params\":{\"name\":\"mail\"}}";
    assert_eq!(post(&site, "/", "application/json", body), 200);
    site.upstream.drain();
    for content_type in [
        "application/grpc",
        "application/grpc;/json",
        "application/connect+proto",
    ] {
        post(&site, "/", content_type, body);
        assert_eq!(site.upstream.drain().len(), 0, "{content_type}");
    }
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
    let mut client = site.gateway.connect();
    client.send(format!(
        "POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.answer().status()
}

/// A client of HTTP/2 may cut the cookies into fields (RFC 9113, section 8.2.3).
#[test]
fn cookies_count_however_a_client_of_http2_cuts_them() {
    let call = |tool: &str| {
        json!({ "jsonrpc": "2.0", "method": "tools/call", "params": { "name": tool } }).to_string()
    };
    let site = site("per-tool: { key: tool, rate: 1/m }");
    let json = "application/json";
    for (content_type, body, status) in [
        (json, call("search"), 200),
        (json, call("search"), 429),
        (json, call("mail"), 200),
        (json, "{\"params\":{\"n\\u0061me\":\"mail\"}}".into(), 429),
        (
            json,
            "{\"params\":{\"name\":\"a\",\"name\":\"b\"}}".into(),
            400,
        ),
        (json, format!("[{},{}]", call("a"), call("b")), 400),
        (json, "{\"params\":{}}".into(), 200),
        (
            "application/x-www-form-urlencoded",
            "params[name]=search".into(),
            429,
        ),
        ("text/plain", call("search"), 429),
        ("image/png", "\u{89}PNG\r\n".repeat(20_000), 200),
        (json, format!("{{\"pad\":\"{}\"}}", "x".repeat(70_000)), 400),
    ] {
        let start: String = body.chars().take(60).collect();
        assert_eq!(
            post(&site, "/rpc", content_type, &body),
            status,
            "{content_type}: {start}"
        );
    }
    let with_query = post(&site, "/rpc?params[name]=other", json, &call("third"));
    assert_eq!(with_query, 400);
}

#[test]
fn a_limit_counts_by_a_parameter_of_the_query() {
    let site = site("per-kind: { key: kind, rate: 1/m }");
    for (path, status) in [
        ("/a?kind=x", 200),
        ("/b?other=1&kind=%78", 429),
        ("/a?kind=y", 200),
        ("/a?kind=y&kind=z", 400),
        ("/a", 200),
        ("/a", 200),
    ] {
        assert_eq!(site.get_path(path, "").status(), status, "{path}");
    }
    let form = "application/x-www-form-urlencoded";
    assert_eq!(post(&site, "/a", form, "kind=x"), 429);
    assert_eq!(post(&site, "/a?kind=x", form, "kind=w"), 400);
}

#[test]
fn the_upstream_is_told_what_the_gateway_file_says() {
    let site = site("per-tenant: { key: tenant, rate: 9/m }");
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
fn an_email_is_searched_for_up_to_its_own_bound() {
    let gateway = "identity: { email: { body: email, max: 256B }, tool: { body: tool } }\n";
    let site = Site::start(
        gateway,
        &["one: { key: email, rate: 9/m }"],
        Upstream::plain(),
    );
    let mut client = site.gateway.connect();
    let part = "x".repeat(300);
    client.send(format!(
        "POST /a HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n12c\r\n{part}\r\n"
    ));
    assert_eq!(client.answer().status(), 400);
}
