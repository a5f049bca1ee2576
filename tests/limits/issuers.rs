//! Several issuers of tokens: the `iss` of a token chooses whose keys verify it, and names of one issuer are not those of
//! another.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::Site;
use crate::common::Upstream;
use crate::protocols::over_both;

pub const A: &str = "https://a.example";
pub const B: &str = "https://b.example";
pub const SECRET_OF_A: &str = "0123456789abcdef0123456789abcdef";
pub const SECRET_OF_B: &str = "fedcba9876543210fedcba9876543210";

fn site(more: &str, limit: &str) -> Site {
    let gateway = format!(
        "\
identity:
  user:
    - {{ jwt: sub, secret: a.txt, issuer: {A}{more} }}
    - {{ api_keys: keys.yaml }}
    - {{ jwt: uid, secret: b.txt, issuer: {B} }}
  token: {{ header: x-api-key }}
  tenant: {{ jwt: org.id, forward: true }}
"
    );
    let files = [
        ("a.txt", SECRET_OF_A),
        ("b.txt", SECRET_OF_B),
        ("keys.yaml", "first-key: ann\n"),
    ];
    Site::with_files(&gateway, "", &[limit], Upstream::plain(), &files)
}

/// A field with a token of this user and issuer, signed by this secret.
pub fn token(user: &str, issuer: Value, secret: &str) -> String {
    let claims = json!({ "iss": issuer, "sub": user, "uid": user, "org": { "id": "acme" },
        "exp": 4_000_000_000_u64 });
    let key = EncodingKey::from_secret(secret.as_bytes());
    let token = encode(&Header::default(), &claims, &key).unwrap();
    format!("authorization: Bearer {token}\r\n")
}

#[test]
fn a_token_is_verified_by_the_keys_of_its_issuer() {
    let of_a = token("ann", json!(A), SECRET_OF_A);
    let of_b = token("ann", json!(B), SECRET_OF_B);
    let requests = [
        (&*of_a, 200, Some("https://a.example#ann")),
        (&*of_b, 200, Some("https://b.example#ann")),
        ("x-api-key: first-key\r\n", 200, Some("ann")),
        (&*of_a, 429, None),
        (&*of_b, 429, None),
        (&token("bob", json!(A), SECRET_OF_B), 401, None),
        (&token("bob", json!(B), SECRET_OF_A), 401, None),
        (
            &token("bob", json!("https://c.example"), SECRET_OF_A),
            401,
            None,
        ),
        (&token("bob", json!(null), SECRET_OF_A), 401, None),
        (&token("bob", json!([A]), SECRET_OF_A), 401, None),
        ("authorization: Bearer x.y.z\r\n", 401, None),
        ("authorization: Bearer x\r\n", 401, None),
        // Both secrets sign for their issuer only, also where a name looks like one of the other.
        (
            &token("https://a.example#ann", json!(B), SECRET_OF_B),
            200,
            Some("https://b.example#https://a.example#ann"),
        ),
    ];
    let start = || site("", "per-user: { key: user, rate: 1/m }");
    over_both(start, |site| {
        for (number, (fields, status, user)) in requests.iter().enumerate() {
            assert_eq!(site.get(fields).status(), *status, "request {number}");
            let reached = site.upstream.drain();
            let reached = reached.first().and_then(|it| it.field("tollgate-user"));
            assert_eq!(reached, *user, "request {number}");
        }
    });
}

#[test]
fn claims_of_two_issuers_are_two_values() {
    let of_a = token("ann", json!(A), SECRET_OF_A);
    let of_b = token("ann", json!(B), SECRET_OF_B);
    let start = || site("", "per-tenant: { key: tenant, rate: 1/m }");
    over_both(start, |site| {
        let statuses = [&of_a, &of_b, &of_a, &of_b].map(|fields| site.get(fields).status());
        assert_eq!(statuses, [200, 200, 429, 429]);
        let tenants = site.upstream.drain();
        let tenants = [0, 1].map(|index| tenants[index].field("tollgate-tenant"));
        let expected = ["https://a.example#acme", "https://b.example#acme"];
        assert_eq!(tenants, expected.map(Some));
    });
    let limit = "of-a: { key: everyone, rate: 1/m, for: { tenant: [\"https://a.example#acme\"] } }";
    let start = || site("", limit);
    over_both(start, |site| {
        let statuses = [&of_a, &of_b, &of_a, &of_b].map(|fields| site.get(fields).status());
        assert_eq!(statuses, [200, 200, 429, 200]);
    });
}

#[test]
fn issuers_may_share_their_names() {
    let of_a = token("ann", json!(A), SECRET_OF_A);
    let of_b = token("ann", json!(B), SECRET_OF_B);
    let start = || site(", shared_names: true", "per-user: { key: user, rate: 1/m }");
    over_both(start, |site| {
        let statuses = [&of_a, &of_b].map(|fields| site.get(fields).status());
        assert_eq!(statuses, [200, 429]);
        assert_eq!(site.upstream.next().field("tollgate-user"), Some("ann"));
    });
}
