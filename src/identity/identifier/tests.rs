//! Identities of whole requests.

mod keys;
mod stripped;

use std::net::IpAddr;
use std::sync::Arc;

use http::Request;
use http::header::AUTHORIZATION;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

use super::*;
use crate::identity::{api_keys, email, jwt};
use crate::limit::KeyPart;

const CLIENT: &str = "203.0.113.9";
const PROXY: &str = "10.0.0.1";

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn email_only() -> WantedIdentities {
    WantedIdentities {
        email: true,
        ..WantedIdentities::default()
    }
}

fn networks() -> Vec<PeerNetwork> {
    vec![PeerNetwork::Ip("10.0.0.0/8".parse().unwrap())]
}

fn settings(user: Option<user::Settings>, token: Option<token::TokenSource>) -> Settings {
    let plan_named = |name: &str, plan_factor| plan::Plan {
        name: name.into(),
        plan_factor,
        priority: None,
    };
    Settings {
        ip: ip::Settings {
            trusted_proxies: networks(),
            ..ip::Settings::default()
        },
        user_sources: user.into_iter().collect(),
        on_unverified: user::OnUnverified::default(),
        token_sources: token.into_iter().collect(),
        email: Some(email::Settings {
            field: "email".into(),
            max_body_bytes: 1_024,
            fold: crate::identity::mailbox::Fold::default(),
        }),
        plan: plan::Settings {
            plans: vec![plan_named("free", 1), plan_named("gold", 10)],
            source: None,
            default_index: Some(0),
        },
        custom: Vec::new(),
        request_id_field: None,
        measured: Vec::new(),
    }
}

fn identifier(settings: Settings) -> Identifier {
    Identifier::new(settings, Keyer::new([7; 16]))
}

fn jwt_settings() -> Option<user::Settings> {
    let keys = jwt::VerificationKeys::from_secret(SECRET).unwrap();
    Some(user::Settings::Jwt(vec![jwt::Settings {
        claim: "sub".into(),
        keys,
        name_prefix: String::new(),
        issuer: None,
        audiences: Vec::new(),
        remote: None,
        leeway: jwt::DEFAULT_LEEWAY,
    }]))
}

fn jwt(sub: &str, expires: u64) -> String {
    let payload = json!({"sub": sub, "plan": "gold", "exp": expires});
    encode(
        &Header::new(Algorithm::HS256),
        &payload,
        &EncodingKey::from_secret(SECRET),
    )
    .unwrap()
}

fn head(lines: &[&str]) -> Head {
    let mut request = Request::builder().uri("/x?key=q");
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    Head::from(&request.body(()).unwrap().into_parts().0)
}

fn identify(identifier: &Identifier, peer: &str, lines: &[&str]) -> ClientIdentity {
    identifier.identify(peer.parse::<IpAddr>().unwrap(), &head(lines), || {
        Duration::from_secs(1_000)
    })
}

/// `expected`: the user, why the credential did not verify, whether there is a token, the index of the plan. The second
/// round finds the results in the caches.
#[track_caller]
fn check(
    identifier: &Identifier,
    peer: &str,
    lines: &[&str],
    expected: (Option<&str>, Option<Unverified>, bool, usize),
) {
    for round in ["verified", "cached"] {
        let client = identify(identifier, peer, lines);
        let actual = (
            client.user.as_deref(),
            client.unverified,
            client.token.is_some(),
            client.plan.unwrap(),
        );
        assert_eq!(actual, expected, "{round}: {peer} {lines:?}");
    }
}

#[test]
fn by_ip_only() {
    let by_ip = Identifier::new(Settings::default(), Keyer::random());
    let wall = || -> Duration { panic!("no time is needed") };
    let client = by_ip.identify(
        "::ffff:1.2.3.4".parse::<IpAddr>().unwrap(),
        &head(&["Authorization: Bearer x"]),
        wall,
    );
    assert_eq!(client.ip.to_string(), "1.2.3.4");
    assert_eq!(
        (client.user, client.unverified, client.token, client.plan),
        (None, None, None, None)
    );
}

#[test]
fn by_jwt_and_bearer() {
    let mut settings = settings(jwt_settings(), Some(token::TokenSource::Bearer));
    settings.plan.source = Some(plan::PlanSource::Claim("plan".into()));
    let by_jwt = identifier(settings);
    let (right, expired) = (jwt("ann", 2_000), jwt("ann", 940));
    let bearer = |text: &str| format!("Authorization: Bearer {text}");
    check(&by_jwt, CLIENT, &[], (None, None, false, 0));
    check(
        &by_jwt,
        CLIENT,
        &[&bearer(&right)],
        (Some("ann"), None, true, 1),
    );
    check(
        &by_jwt,
        CLIENT,
        &[&bearer(&expired)],
        (None, Some(Unverified::Expired), false, 0),
    );
    check(
        &by_jwt,
        CLIENT,
        &[&bearer("forged")],
        (None, Some(Unverified::Malformed), false, 0),
    );
    check(
        &by_jwt,
        CLIENT,
        &[&bearer(&right), &bearer(&right)],
        (None, Some(Unverified::Ambiguous), false, 0),
    );
    check(
        &by_jwt,
        CLIENT,
        &["Authorization: Basic YTpi"],
        (None, Some(Unverified::Scheme), false, 0),
    );
    // With the whole field as the token, clients cannot choose their keys either.
    let by_header = identifier(super::tests::settings(
        jwt_settings(),
        Some(token::TokenSource::Header(AUTHORIZATION)),
    ));
    check(
        &by_header,
        CLIENT,
        &["Authorization: Basic YTpi"],
        (None, Some(Unverified::Scheme), false, 0),
    );
    check(
        &by_header,
        CLIENT,
        &[&bearer("forged")],
        (None, Some(Unverified::Malformed), false, 0),
    );
    let token = identify(&by_header, CLIENT, &[&bearer(&right)]).token;
    let respelled_token = identify(
        &by_header,
        CLIENT,
        &[&format!("Authorization: BEARER   {right}")],
    )
    .token;
    assert!(token.is_some() && token == respelled_token);
}

#[test]
fn cached_tokens_still_expire() {
    let by_jwt = identifier(settings(jwt_settings(), None));
    let parts = head(&[&format!("Authorization: Bearer {}", jwt("ann", 2_000))]);
    let is_verified_at = |seconds| {
        let wall = || Duration::from_secs(seconds);
        by_jwt
            .identify(CLIENT.parse::<IpAddr>().unwrap(), &parts, wall)
            .user
            .is_some()
    };
    assert_eq!(
        [1, 2_059, 2_060, 1].map(is_verified_at),
        [true, true, false, true]
    );
}

#[test]
fn by_api_key() {
    let gold = api_keys::KeyOwner {
        plan: Some(1),
        ..api_keys::KeyOwner::new("ann".into())
    };
    let bob = api_keys::KeyOwner::new("bob".into());
    let entries = [("k1", gold), ("k2", bob)];
    let entries = entries.map(|(key, owner)| (api_keys::WrittenKey::Text(key.into()), owner));
    let keys = api_keys::ApiKeys::new(entries).unwrap();
    let user = Some(user::Settings::ApiKeys(Arc::new(keys)));
    let source = token::TokenSource::Header("x-api-key".parse().unwrap());
    let mut with_header = settings(user.clone(), Some(source));
    with_header.plan.source = Some(plan::PlanSource::ApiKeys);
    let by_key = identifier(with_header);
    check(&by_key, CLIENT, &[], (None, None, false, 0));
    check(
        &by_key,
        CLIENT,
        &["X-Api-Key: k1"],
        (Some("ann"), None, true, 1),
    );
    check(
        &by_key,
        CLIENT,
        &["X-Api-Key: k2"],
        (Some("bob"), None, true, 0),
    );
    check(
        &by_key,
        CLIENT,
        &["X-Api-Key: k3"],
        (None, Some(Unverified::UnknownKey), false, 0),
    );
    check(
        &by_key,
        CLIENT,
        &["X-Api-Key: k1", "X-Api-Key: k2"],
        (None, Some(Unverified::Ambiguous), false, 0),
    );
    let by_bearer = identifier(settings(user, None));
    check(
        &by_bearer,
        CLIENT,
        &["Authorization: Bearer k1"],
        (Some("ann"), None, false, 0),
    );
    check(
        &by_bearer,
        CLIENT,
        &["Authorization: Bearer k"],
        (None, Some(Unverified::UnknownKey), false, 0),
    );
}

#[test]
fn by_trusted_header() {
    let name = "x-user".parse().unwrap();
    let user = Some(user::Settings::Header {
        name,
        allowed_peers: networks(),
    });
    let mut with_plan = settings(user, Some(token::TokenSource::Query("key".into())));
    let name = "x-plan".parse().unwrap();
    with_plan.plan.source = Some(plan::PlanSource::Header {
        name,
        allowed_peers: networks(),
    });
    let by_header = identifier(with_plan);
    check(
        &by_header,
        PROXY,
        &["X-User: ann"],
        (Some("ann"), None, true, 0),
    );
    check(
        &by_header,
        "::ffff:10.0.0.1",
        &["X-User: ann"],
        (Some("ann"), None, true, 0),
    );
    check(
        &by_header,
        PROXY,
        &["X-User: ann", "X-Plan: gold"],
        (Some("ann"), None, true, 1),
    );
    check(&by_header, PROXY, &["X-Plan: none"], (None, None, true, 0));
    check(
        &by_header,
        PROXY,
        &["X-User: ann", "X-User: bob"],
        (None, Some(Unverified::Field), true, 0),
    );
    check(&by_header, PROXY, &["X-User: "], (None, None, true, 0));
    for bad in ["a\tb", "\u{a0}ann", "ann\u{3000}", &"a".repeat(257)] {
        let line = format!("X-User: {bad}");
        let expected = (None, Some(Unverified::Field), true, 0);
        check(&by_header, PROXY, &[&line], expected);
    }
    let mut latin = head(&[]);
    latin.fields.add("x-user", b"al\xffice");
    let peer: IpAddr = PROXY.parse().unwrap();
    let wall = || Duration::ZERO;
    let client = by_header.identify(peer, &latin, wall);
    assert_eq!(client.unverified, Some(Unverified::Field));
    check(
        &by_header,
        PROXY,
        &["X-User: \t ann \t"],
        (Some("ann"), None, true, 0),
    );
    check(
        &by_header,
        CLIENT,
        &["X-User: ann", "X-Plan: gold"],
        (None, Some(Unverified::Peer), true, 0),
    );
}

/// Some frameworks let a cookie win over the query and the body, or read the query in the body's charset.
#[test]
fn addresses_beside_the_body() {
    let all = identifier(settings(None, None));
    let email_in = |target: &str, lines: &[&str], body: &str| {
        let mut parts = head(lines);
        parts.uri = target.parse().unwrap();
        let mut client = identify(&all, CLIENT, &[]);
        all.set_identities_in_fields(
            &mut client,
            &parts,
            email_only(),
            BufferedBody::whole(body.as_bytes()),
        );
        (client.email, client.unclear_email_reason.is_some())
    };
    let ann = email_in("/", &[], "email=ann@example.com");
    let (cookie, unclear) = ("Cookie: a=b; email=ann@example.com", (None, true));
    assert!(ann.0.is_some());
    assert_eq!(email_in("/", &[cookie], ""), ann);
    assert_eq!(email_in("/", &[cookie], "email=ann@example.com"), ann);
    assert_eq!(email_in("/", &[cookie], "email=Ann@EXAMPLE.com"), ann);
    assert_eq!(
        email_in(
            "/?email=ann%40example.com.",
            &[cookie],
            "email=ANN@example.com"
        ),
        ann
    );
    assert_eq!(
        email_in("/", &["Cookie: email="], "email=ann@example.com"),
        ann
    );
    assert_eq!(email_in("/", &[cookie], "email=r1@example.com"), unclear);
    assert_eq!(email_in("/?email=r1@example.com", &[cookie], ""), unclear);
    let typed = "Content-Type: text/plain; charset=utf-7";
    assert_eq!(email_in("/?email=ann@example.com", &[typed], ""), unclear);
}

/// A body that may hold an address is searched, or the request is refused: upstreams decompress bodies, and read bodies of
/// any method.
#[test]
fn bodies_that_cannot_be_searched() {
    let all = identifier(settings(None, None));
    // `expected`: whether the head says that the body cannot be searched, and whether the address is unclear.
    let check = |method: &str, lines: &[&str], body: &str, expected: (bool, bool)| {
        let mut parts = head(lines);
        parts.method = method.parse().unwrap();
        let mut client = identify(&all, CLIENT, &[]);
        let is_unsearchable = all.mark_email_if_unsearchable(&mut client, &parts);
        if !is_unsearchable {
            all.set_identities_in_fields(
                &mut client,
                &parts,
                email_only(),
                BufferedBody::whole(body.as_bytes()),
            );
        }
        let actual = (is_unsearchable, client.unclear_email_reason.is_some());
        assert_eq!(actual, expected, "{method} {lines:?}");
    };
    let body = r#"{"email":"ann@example.com"}"#;
    for method in ["POST", "PATCH", "GET", "DELETE"] {
        check(
            method,
            &["Content-Type: application/json"],
            body,
            (false, false),
        );
    }
    check("POST", &["Content-Length: 1024"], body, (false, false));
    check(
        "POST",
        &["Content-Encoding: identity"],
        body,
        (false, false),
    );
    check("POST", &["Content-Length: 1025"], "", (true, true));
    check("POST", &["Content-Encoding: gzip"], "", (true, true));
    let identity = "Content-Encoding: identity";
    check(
        "POST",
        &[identity, "Content-Encoding: gzip"],
        "",
        (true, true),
    );
    check("POST", &[], &" ".repeat(1_025), (false, true));
}
