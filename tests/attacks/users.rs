//! A credential that the gateway does not take for anybody's, and a server might: it is counted, or refused, and
//! never served as nobody's where requests are counted by user.

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tollgate::base::clock::Clock;

use crate::case::Site;
use crate::common::{assert_contains, child, wait_until};
use crate::limits::{FEW, admitted};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

const BY_USER: &str = "match: /**\nupstream: up\nlimits: { few: { key: user, rate: 5/h } }\n";

/// The gateway file: `user` is what stands in `identity: { user: ... }`.
fn site(user: &str, policy: &str) -> Site {
    let identity = format!("workers: 1\nidentity: {{ user: {user} }}\n");
    let files = [
        ("secret.txt", SECRET),
        ("keys.yaml", "ann-key: ann\nbob-key: bob\n"),
    ];
    Site::with_files(&identity, &[("all", policy)], &files)
}

const BY_JWT: &str = "{ jwt: sub, secret: secret.txt }";

fn signed(payload: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    encode(&Header::new(Algorithm::HS256), payload, &key).unwrap()
}

/// A token of `sub` that ends so many seconds from now.
fn token(sub: &str, ends_in: i64) -> String {
    let now = i64::try_from(Clock::system().wall().as_secs()).unwrap();
    signed(&json!({"sub": sub, "exp": now + ends_in}))
}

/// The status of each of `times` requests with these lines, and the last one's body.
fn ask(site: &Site, lines: &str, times: usize) -> (Vec<u16>, String) {
    let mut body = String::new();
    let statuses = (0..times).map(|_| {
        let mut asker = site.connect();
        let lines = if lines.is_empty() {
            String::new()
        } else {
            format!("{lines}\r\n")
        };
        asker.send(format!("GET /a HTTP/1.1\r\nhost: t\r\n{lines}\r\n"));
        let response = asker.answer(false).unwrap();
        body = String::from_utf8_lossy(&response.body).into_owned();
        if response.status() == 401 {
            assert_eq!(response.field("www-authenticate"), Some("Bearer"));
        }
        response.status()
    });
    (statuses.collect(), body)
}

/// All requests with this field get `status`, none reaches the server, and `reason` is counted.
#[track_caller]
fn refused(site: &Site, lines: &str, status: u16, reason: &str) -> String {
    let count = || {
        let text = site.gateway.app.metrics();
        let name = format!("tollgate_unverified_credentials_total{{reason=\"{reason}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&*name));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let before = count();
    let (statuses, body) = ask(site, lines, 3);
    assert_eq!(statuses, [status; 3], "{lines:?}\n{body}");
    assert_eq!(count() - before, 3, "{reason} of {lines:?}");
    body
}

#[test]
fn tokens_that_others_may_take() {
    let site = site(BY_JWT, BY_USER);
    let right = token("ann", 600);
    let now = Clock::system().wall().as_secs();
    let other = {
        let key = EncodingKey::from_secret(&[b'x'; 32]);
        let payload = json!({"sub": "ann", "exp": now + 600});
        encode(&Header::new(Algorithm::HS256), &payload, &key).unwrap()
    };
    let cases = [
        (
            format!("authorization: Bearer {}", token("ann", -61)),
            "expired",
        ),
        (
            format!("authorization: Bearer {}", signed(&json!({"sub": "ann"}))),
            "no_expiry",
        ),
        (
            format!(
                "authorization: Bearer {}",
                signed(&json!({"sub": "ann", "exp": now + 600, "nbf": now + 120}))
            ),
            "not_yet",
        ),
        (
            format!("authorization: Bearer {}", token(" ann", 600)),
            "claim",
        ),
        (
            format!("authorization: Bearer {}", token("ann\u{a0}", 600)),
            "claim",
        ),
        (format!("authorization: Bearer {other}"), "signature"),
        (format!("authorization: Bearer {right}="), "malformed"),
        (format!("authorization: JWT {right}"), "scheme"),
        (format!("authorization: Token {right}"), "scheme"),
        (format!("authorization: bearer:{right}"), "scheme"),
        (format!("authorization: Bearer\u{a0}{right}"), "scheme"),
        (format!("authorization: {right}"), "scheme"),
        (format!("authorization: Basic {right}"), "scheme"),
        ("authorization: Bearer".to_owned(), "scheme"),
    ];
    for (lines, reason) in &cases {
        refused(&site, lines, 401, reason);
    }
    let expired = refused(&site, &cases[0].0, 401, "expired");
    assert!(expired.contains("The token has expired."), "{expired}");
    admitted(&site, 0);
    // What is behind the token, or a second field: one or the other reason, and never served.
    for lines in [
        format!("authorization: Bearer {right} x"),
        format!("authorization: Bearer {right}, Bearer {right}"),
        format!("authorization: Bearer x {right}"),
        format!("authorization: Bearer JWT {right}"),
        format!("authorization: Bearer {right}\r\nauthorization: Bearer {right}"),
        format!("authorization: Basic eA==\r\nauthorization: Bearer {right}"),
    ] {
        let (statuses, _) = ask(&site, &lines, 12);
        let served = statuses.iter().any(|status| !matches!(status, 400 | 401));
        assert!(!served, "{statuses:?} {lines}");
    }
    admitted(&site, 0);
    let (statuses, _) = ask(&site, &format!("authorization: bearer {right}"), 12);
    assert_eq!(statuses[..6], [200, 200, 200, 200, 200, 429]);
    // Upstreams allow as much when their clocks differ.
    let late = token("bob", -30);
    let (statuses, _) = ask(&site, &format!("authorization: Bearer {late}"), 12);
    assert_eq!(statuses[..6], [200, 200, 200, 200, 200, 429]);
    admitted(&site, 2 * FEW);
    // Without a credential the limit does not apply; `check` says so.
    assert_eq!(ask(&site, "", 12).0, [200; 12]);
}

#[test]
fn the_leeway_is_what_the_file_says() {
    let by = "{ jwt: sub, secret: secret.txt, leeway: 0s }";
    let site = site(by, BY_USER);
    let lines = format!("authorization: Bearer {}", token("ann", -1));
    refused(&site, &lines, 401, "expired");
}

#[test]
fn anonymous_by_choice() {
    let by = "{ jwt: sub, secret: secret.txt, unverified: anonymous }";
    let anyone = site(by, BY_USER);
    let expired = format!("authorization: Bearer {}", token("ann", -61));
    for lines in [&*expired, "authorization: Basic eA=="] {
        assert_eq!(ask(&anyone, lines, 7).0, [200; 7], "{lines}");
    }
    // Nobody can say which of two the server takes.
    let twice = "authorization: Basic eA==\r\nauthorization: Basic eA==";
    assert_eq!(ask(&anyone, twice, 3).0, [400; 3]);
    let members = site(by, &format!("{BY_USER}require: user\n"));
    let body = refused(&members, &expired, 401, "expired");
    assert!(body.contains("The token has expired."), "{body}");
}

#[test]
fn where_nothing_counts_by_user_nothing_is_refused() {
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: ip, rate: 5/h } }\n";
    let site = site(BY_JWT, policy);
    let (statuses, _) = ask(&site, "authorization: Basic eA==", 6);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

/// A token that only the upstream takes would have the counter of its plan and that of the default.
#[test]
fn where_a_plan_of_the_token_is_counted() {
    let identity = format!(
        "workers: 1\nplans: {{ free: {{ multiply: 1 }}, gold: {{ multiply: 9 }} }}\n\
         identity: {{ user: {BY_JWT}, plan: {{ jwt: plan, default: free }} }}\n"
    );
    let policy = "match: /**\nupstream: up\nlimits: { few: { key: [ip, plan], rate: 11/h } }\n";
    let files = [("secret.txt", SECRET)];
    let site = Site::with_files(&identity, &[("all", policy)], &files);
    let expired = format!("authorization: Bearer {}", token("ann", -61));
    refused(&site, &expired, 401, "expired");
    refused(&site, "authorization: Basic eA==", 401, "scheme");
    admitted(&site, 0);
    // The six that were refused count by the address and the default plan.
    assert_eq!(ask(&site, "", 6).0, [200, 200, 200, 200, 200, 429]);
}

#[test]
fn keys_that_are_not_in_the_file() {
    let site = site("{ api_keys: keys.yaml }", BY_USER);
    refused(&site, "authorization: Bearer other", 401, "unknown_key");
    refused(&site, "authorization: Basic ann-key", 401, "scheme");
    refused(&site, "authorization: ann-key", 401, "scheme");
    admitted(&site, 0);
    let (statuses, _) = ask(&site, "authorization: Bearer ann-key", 6);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

/// A cookie that is there twice says nothing of a user whom a token proves.
#[test]
fn another_credential_that_is_unclear() {
    let identity =
        format!("workers: 1\nidentity: {{ user: {BY_JWT}, token: {{ cookie: sid }} }}\n");
    let by_token = "match: /token\nupstream: up\nlimits: { few: { key: token, rate: 5/h } }\n";
    let policies = [("all", BY_USER), ("token", by_token)];
    let files = [("secret.txt", SECRET)];
    let site = Site::with_files(&identity, &policies, &files);
    let twice = "cookie: sid=a; sid=b";
    let right = format!("authorization: Bearer {}\r\n{twice}", token("ann", 600));
    let expired = format!("authorization: Bearer {}\r\n{twice}", token("ann", -61));
    refused(&site, &expired, 401, "expired");
    let (statuses, _) = ask(&site, &right, 6);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let text = site.gateway.app.metrics();
    let unclear = "tollgate_unverified_credentials_total{reason=\"ambiguous\"} ";
    let counted = text
        .lines()
        .any(|line| line.starts_with(unclear) && !line.ends_with(" 0"));
    assert!(!counted, "{text}");
    for lines in [&*right, twice] {
        let mut asker = site.connect();
        asker.send(format!("GET /token HTTP/1.1\r\nhost: t\r\n{lines}\r\n\r\n"));
        assert_eq!(asker.answer(false).unwrap().status(), 400, "{lines}");
    }
    assert_eq!(ask(&site, twice, 3).0, [200; 3]);
}

/// It comes from a peer that is believed, so it is a mistake of that peer.
#[test]
fn user_fields_of_a_trusted_proxy() {
    let site = site("{ header: x-user, from: [127.0.0.0/8] }", BY_USER);
    let long = "a".repeat(257);
    for bad in ["a\tb", "\u{a0}ann", "ann\u{2003}", &long] {
        let body = refused(&site, &format!("x-user: {bad}"), 400, "field");
        assert!(body.contains("user field of the trusted proxy"), "{body}");
    }
    refused(&site, "x-user: ann\r\nx-user: ann", 400, "field");
    for bytes in [&b"al\xffice"[..], b"\xed\xa0\x80", b"ann\xa0"] {
        let mut asker = site.connect();
        asker.send(
            [
                b"GET /a HTTP/1.1\r\nhost: t\r\nx-user: ",
                bytes,
                b"\r\n\r\n",
            ]
            .concat(),
        );
        assert_eq!(asker.answer(false).unwrap().status(), 400, "{bytes:?}");
    }
    admitted(&site, 0);
    let (statuses, _) = ask(&site, "x-user: \t jos\u{e9} \t", 6);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

#[test]
fn operators_see_why() {
    let identity = format!("workers: 1\naccess_log: access.log\nidentity: {{ user: {BY_JWT} }}\n");
    let files = [("secret.txt", SECRET)];
    let site = Site::with_files(&identity, &[("all", BY_USER)], &files);
    let cases = [
        (
            token("ann", -61),
            "expired",
            "a credential that has expired",
        ),
        (
            signed(&json!({"sub": "ann"})),
            "no_expiry",
            "a token without an expiry (`exp`)",
        ),
        (
            "x".to_owned(),
            "malformed",
            "a credential that is no signed token",
        ),
    ];
    for (token, reason, words) in &cases {
        let field = format!("authorization: Bearer {token}");
        refused(&site, &field, 401, reason);
        let question = ["explain", "GET", "/a", "-H", &*field];
        let ended = child::run(site.gateway.folder.path(), &question);
        let head = format!("401 not served: the request comes with {words}\n");
        assert_contains(&ended.out, &[&head, &format!(", with {words}\n")]);
    }
    let log = site.gateway.folder.path().join("access.log");
    wait_until("the access log says why", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        cases.iter().all(|(_, reason, _)| {
            let words = format!(
                "\"credential\":\"{reason}\",\"method\":\"GET\",\"target\":\"/a\",\"route\":\"all\",\"status\":401"
            );
            text.contains(&words)
        })
    });
}
