//! The vectors beside this file were made once by another implementation; the private keys are gone.

use jsonwebtoken::{EncodingKey, encode};
use serde_json::json;

use super::*;

macro_rules! vector {
    ($name:literal) => {
        include_bytes!(concat!("vectors/", $name))
    };
}

fn settings(keys: Keys) -> Settings {
    Settings {
        claim: "sub".into(),
        keys,
        issuer: None,
        audience: None,
    }
}

fn token(name: &str) -> &'static str {
    let lines = include_str!("vectors/tokens.txt").lines();
    let mut named = lines.filter_map(|line| line.split_once(": "));
    named.find(|(given, _)| *given == name).unwrap().1
}

/// Which of the vectors verify with these keys.
#[track_caller]
fn check(keys: Result<Keys, KeysError>, expected: &[&str]) {
    let settings = settings(keys.unwrap());
    let lines = include_str!("vectors/tokens.txt").lines();
    let named = lines.filter_map(|line| line.split_once(": "));
    let passed = named.filter(|(_, token)| verify(&settings, None, token.as_bytes()).is_some());
    assert_eq!(passed.map(|(name, _)| name).collect::<Vec<_>>(), expected);
}

#[test]
fn keys_decide_what_verifies() {
    let by_rsa = ["rs256", "ps256", "rs256 without kid", "rs256 other kid"];
    check(Keys::from_pem(vector!("rsa.pem")), &by_rsa);
    check(
        Keys::from_pem(vector!("p256.pem")),
        &["es256", "es256 rewritten"],
    );
    check(Keys::from_pem(vector!("p384.pem")), &["es384"]);
    check(Keys::from_pem(vector!("ed25519.pem")), &["eddsa"]);
    let by_set = [
        "rs256",
        "ps256",
        "rs256 without kid",
        "es256",
        "es256 rewritten",
        "es384",
        "eddsa",
    ];
    check(Keys::from_jwks(vector!("jwks.json")), &by_set);
    // The text of a public key as the secret: what a gateway must never be led into.
    let confused = Keys::one(
        DecodingKey::from_secret(vector!("rsa.pem")),
        &[Algorithm::HS256],
    );
    check(Ok(confused), &["hs256 with rsa pem"]);
    check(Keys::from_secret(b"shared secret"), &[]);
}

#[test]
fn key_files() {
    let check = |keys: Result<Keys, KeysError>, expected: Result<usize, KeysError>| {
        assert_eq!(keys.map(|keys| keys.0.len()), expected);
    };
    check(Keys::from_jwks(vector!("jwks.json")), Ok(4));
    check(Keys::from_jwks(b"{}"), Err(KeysError::Jwks));
    check(Keys::from_jwks(b"\xff"), Err(KeysError::Jwks));
    check(
        Keys::from_jwks(br#"{"keys": []}"#),
        Err(KeysError::NoUsableKey),
    );
    check(
        Keys::from_jwks(br#"{"keys": [1, {"kty": "oct", "k": "YQ"}]}"#),
        Err(KeysError::NoUsableKey),
    );
    check(Keys::from_pem(b""), Err(KeysError::Pem));
    check(Keys::from_pem(b"secret"), Err(KeysError::Pem));
    check(
        Keys::from_pem(b"-----BEGIN PUBLIC KEY-----\n?\n"),
        Err(KeysError::Pem),
    );
    check(
        Keys::from_pem(b"-----BEGIN PRIVATE KEY-----\n"),
        Err(KeysError::PrivateKey),
    );
    check(
        Keys::from_pem(vector!("p521.pem")),
        Err(KeysError::Unsupported),
    );
    check(
        Keys::from_pem(vector!("rsa1024.pem")),
        Err(KeysError::Unsupported),
    );
    check(Keys::from_secret(b"s\n"), Ok(1));
    check(Keys::from_secret(b"\r\n"), Err(KeysError::EmptySecret));
    check(
        Keys::from_secret(vector!("rsa.pem")),
        Err(KeysError::PemAsSecret),
    );
    assert_eq!(
        format!("{:?}", Keys::from_secret(b"s").unwrap()),
        "Keys(1 keys)"
    );
}

#[test]
fn garbage_is_nobody() {
    let settings = settings(Keys::from_secret(b"s").unwrap());
    for text in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "e30.e30.",
        "\u{e9}.x.y",
        token("rs256"),
    ] {
        assert_eq!(verify(&settings, None, text.as_bytes()), None, "{text}");
    }
}

fn claims(settings: &Settings, payload: &Value) -> Option<Claims> {
    let key = EncodingKey::from_secret(b"s");
    let text = encode(&Header::new(Algorithm::HS256), payload, &key).unwrap();
    verify(settings, Some("plan"), text.as_bytes())
}

#[test]
fn what_a_token_must_say() {
    let open = settings(Keys::from_secret(b"s\n").unwrap());
    let closed = Settings {
        issuer: Some("idp".into()),
        audience: Some("api".into()),
        ..open.clone()
    };
    let check = |settings: &Settings, payload: Value, expected: Option<&str>| {
        let got = claims(settings, &payload);
        assert_eq!(
            got.as_ref().map(|claims| &*claims.user),
            expected,
            "{payload}"
        );
    };
    check(&open, json!({"sub": " ann ", "exp": 5}), Some("ann"));
    check(&open, json!({"sub": 17, "exp": 5.5}), Some("17"));
    check(
        &open,
        json!({"sub": "ann", "exp": 5, "aud": "else", "iss": "else"}),
        Some("ann"),
    );
    check(&open, json!({"sub": "ann"}), None);
    check(&open, json!({"exp": 5}), None);
    for sub in [
        json!(""),
        json!(1.5),
        json!(null),
        json!(["ann"]),
        json!("a\nb"),
        json!("é".repeat(129)),
    ] {
        check(&open, json!({"sub": sub, "exp": 5}), None);
    }
    for exp in [json!("5"), json!(null), json!([5])] {
        check(&open, json!({"sub": "ann", "exp": exp}), None);
    }
    check(&open, json!({"sub": "ann", "exp": 5, "nbf": "1"}), None);
    let said = |iss: Value, aud: Value| json!({"sub": "ann", "exp": 5, "iss": iss, "aud": aud});
    check(&closed, said(json!("idp"), json!("api")), Some("ann"));
    check(
        &closed,
        said(json!("idp"), json!(["x", "api"])),
        Some("ann"),
    );
    check(&closed, said(json!("idp/"), json!("api")), None);
    check(&closed, said(json!(["idp"]), json!("api")), None);
    check(&closed, said(json!("idp"), json!(["x"])), None);
    check(&closed, said(json!("idp"), json!([["api"]])), None);
    check(&closed, json!({"sub": "ann", "exp": 5, "iss": "idp"}), None);
}

#[test]
fn times() {
    let open = settings(Keys::from_secret(b"s").unwrap());
    let check = |payload: Value, wall: u64, expected: bool| {
        let claims = claims(&open, &payload).unwrap();
        assert_eq!(
            claims.hold_at(Duration::from_secs(wall)),
            expected,
            "{payload} at {wall}"
        );
    };
    check(json!({"sub": "a", "exp": 100}), 99, true);
    check(json!({"sub": "a", "exp": 100}), 100, false);
    check(json!({"sub": "a", "exp": -5}), 0, false);
    check(json!({"sub": "a", "exp": 1e300}), u64::MAX - 1, true);
    check(json!({"sub": "a", "exp": 1000, "nbf": 500}), 439, false);
    check(json!({"sub": "a", "exp": 1000, "nbf": 500}), 440, true);
    check(json!({"sub": "a", "exp": 1000, "nbf": 499.5}), 439, false);
    check(json!({"sub": "a", "exp": 1000, "nbf": -1}), 0, true);
}

#[test]
fn plans() {
    let open = settings(Keys::from_secret(b"s").unwrap());
    let plan = |plan| {
        claims(&open, &json!({"sub": "a", "exp": 1, "plan": plan}))
            .unwrap()
            .plan
    };
    assert_eq!(plan(json!("gold")).as_deref(), Some("gold"));
    assert_eq!(plan(json!(2)).as_deref(), Some("2"));
    assert_eq!(plan(json!(["gold"])), None);
}
