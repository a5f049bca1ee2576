//! The vectors beside this file were made once by another implementation; the private keys are gone.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, encode};
use serde_json::json;

use super::verification_keys::{MAX_KEYS_TRIED, VerificationKey, validate_signature_only};
use super::*;

macro_rules! vector {
    ($name:literal) => {
        include_bytes!(concat!("vectors/", $name))
    };
}

/// The shortest secret that HS256 accepts here.
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn settings(keys: VerificationKeys) -> Settings {
    Settings {
        claim: "sub".into(),
        keys,
        issuer: None,
        name_prefix: String::new(),
        audiences: Vec::new(),
        remote: None,
        leeway: DEFAULT_LEEWAY,
    }
}

fn token(name: &str) -> &'static str {
    let lines = include_str!("vectors/tokens.txt").lines();
    let mut named = lines.filter_map(|line| line.split_once(": "));
    named.find(|(given, _)| *given == name).unwrap().1
}

/// Which of the vectors verify with these keys.
#[track_caller]
fn check(keys: Result<VerificationKeys, VerificationKeysError>, expected: &[&str]) {
    let settings = settings(keys.unwrap());
    let lines = include_str!("vectors/tokens.txt").lines();
    let named = lines.filter_map(|line| line.split_once(": "));
    let passed = named
        .filter(|(_, token)| verify(&settings, &OtherClaims::default(), token.as_bytes()).is_ok());
    assert_eq!(passed.map(|(name, _)| name).collect::<Vec<_>>(), expected);
}

#[test]
fn keys_decide_what_verifies() {
    let by_rsa = ["rs256", "ps256", "rs256 without kid", "rs256 other kid"];
    check(VerificationKeys::from_pem(vector!("rsa.pem")), &by_rsa);
    check(
        VerificationKeys::from_pem(vector!("p256.pem")),
        &["es256", "es256 rewritten"],
    );
    check(VerificationKeys::from_pem(vector!("p384.pem")), &["es384"]);
    check(
        VerificationKeys::from_pem(vector!("ed25519.pem")),
        &["eddsa"],
    );
    let by_set = [
        "rs256",
        "ps256",
        "rs256 without kid",
        "es256",
        "es256 rewritten",
        "es384",
        "eddsa",
    ];
    check(VerificationKeys::from_jwks(vector!("jwks.json")), &by_set);
    // The text of a public key as the secret: what a gateway must never be led into.
    let confused = VerificationKeys::single(
        DecodingKey::from_secret(vector!("rsa.pem")),
        &[Algorithm::HS256],
    );
    check(Ok(confused), &["hs256 with rsa pem"]);
    check(VerificationKeys::from_secret(SECRET), &[]);
}

#[test]
fn key_files() {
    let check = |keys: Result<VerificationKeys, VerificationKeysError>,
                 expected: Result<usize, VerificationKeysError>| {
        assert_eq!(keys.map(|keys| keys.0.len()), expected);
    };
    check(VerificationKeys::from_jwks(vector!("jwks.json")), Ok(4));
    check(
        VerificationKeys::from_jwks(b"{}"),
        Err(VerificationKeysError::Jwks),
    );
    check(
        VerificationKeys::from_jwks(b"\xff"),
        Err(VerificationKeysError::Jwks),
    );
    check(
        VerificationKeys::from_jwks(br#"{"keys": []}"#),
        Err(VerificationKeysError::NoUsableKey),
    );
    check(
        VerificationKeys::from_jwks(br#"{"keys": [1, {"kty": "oct", "k": "YQ"}]}"#),
        Err(VerificationKeysError::NoUsableKey),
    );
    check(
        VerificationKeys::from_pem(b""),
        Err(VerificationKeysError::Pem),
    );
    check(
        VerificationKeys::from_pem(b"secret"),
        Err(VerificationKeysError::Pem),
    );
    check(
        VerificationKeys::from_pem(b"-----BEGIN PUBLIC KEY-----\n?\n"),
        Err(VerificationKeysError::Pem),
    );
    check(
        VerificationKeys::from_pem(b"-----BEGIN PRIVATE KEY-----\n"),
        Err(VerificationKeysError::PrivateKey),
    );
    check(
        VerificationKeys::from_pem(vector!("p521.pem")),
        Err(VerificationKeysError::Unsupported),
    );
    check(
        VerificationKeys::from_pem(vector!("rsa1024.pem")),
        Err(VerificationKeysError::Unsupported),
    );
    check(VerificationKeys::from_secret(SECRET), Ok(1));
    check(
        VerificationKeys::from_secret(&SECRET[1..]),
        Err(VerificationKeysError::ShortSecret),
    );
    check(
        VerificationKeys::from_secret(b""),
        Err(VerificationKeysError::ShortSecret),
    );
    check(
        VerificationKeys::from_secret(vector!("rsa.pem")),
        Err(VerificationKeysError::PemAsSecret),
    );
    assert_eq!(
        format!("{:?}", VerificationKeys::from_secret(SECRET).unwrap()),
        "VerificationKeys(1 keys)"
    );
}

#[test]
fn why_a_token_does_not_verify() {
    let check = |settings: &Settings, token: &str, expected: Unverified| {
        assert_eq!(
            verify(settings, &OtherClaims::default(), token.as_bytes()),
            Err(expected),
            "{token}"
        );
    };
    let by_secret = settings(VerificationKeys::from_secret(SECRET).unwrap());
    for text in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "e30.e30.",
        "\u{e9}.x.y",
        "JWT eyJhbGciOiJIUzI1NiJ9.e30.e30",
    ] {
        check(&by_secret, text, Unverified::Malformed);
    }
    check(&by_secret, token("rs256"), Unverified::KeyId);
    let by_set = settings(VerificationKeys::from_jwks(vector!("jwks.json")).unwrap());
    check(&by_set, token("rs256 other kid"), Unverified::KeyId);
    let right = signed(
        &json!({"sub": "ann", "exp": 5}),
        &Header::new(Algorithm::HS256),
    );
    let other = settings(VerificationKeys::from_secret(&[b'x'; 32]).unwrap());
    check(&other, &right, Unverified::Signature);
    check(&by_secret, &format!("{right} x"), Unverified::Malformed);
    check(&by_secret, &format!("{right}="), Unverified::Malformed);
    let crit = Header {
        crit: Some(vec!["exp".into()]),
        ..Header::new(Algorithm::HS256)
    };
    let right = signed(&json!({"sub": "ann", "exp": 5}), &crit);
    check(&by_secret, &right, Unverified::Malformed);
}

fn signed(payload: &Value, header: &Header) -> String {
    encode(header, payload, &EncodingKey::from_secret(SECRET)).unwrap()
}

fn claims(settings: &Settings, payload: &Value) -> Result<TokenClaims, Unverified> {
    let text = signed(payload, &Header::new(Algorithm::HS256));
    let others = OtherClaims {
        plan: Some("plan"),
        ..OtherClaims::default()
    };
    verify(settings, &others, text.as_bytes())
}

#[test]
fn what_a_token_must_say() {
    let open = settings(VerificationKeys::from_secret(SECRET).unwrap());
    let closed = Settings {
        issuer: Some("idp".into()),
        audiences: vec!["shop".into(), "api".into()],
        ..open.clone()
    };
    let check = |settings: &Settings, payload: Value, expected: Result<&str, Unverified>| {
        let claims = claims(settings, &payload);
        let user = claims.as_ref().map(|claims| &*claims.user);
        assert_eq!(user.map_err(|reason| *reason), expected, "{payload}");
    };
    let ann = || json!({"sub": "ann", "exp": 5});
    check(&open, ann(), Ok("ann"));
    check(&open, json!({"sub": "a b", "exp": 5}), Ok("a b"));
    // A number is the user of its digits.
    check(&open, json!({"sub": 17, "exp": 5.5}), Ok("17"));
    check(&open, json!({"sub": "17", "exp": 5}), Ok("17"));
    check(
        &open,
        json!({"sub": "ann", "exp": 5, "aud": "else", "iss": "else"}),
        Ok("ann"),
    );
    check(&open, json!({"sub": "ann"}), Err(Unverified::NoExpiry));
    check(&open, json!({"exp": 5}), Err(Unverified::Claim));
    for sub in [
        json!(""),
        json!(1.5),
        json!(null),
        json!("a\nb"),
        json!("é".repeat(129)),
        json!(" ann"),
        json!("ann "),
        json!("ann\t"),
        json!("\u{a0}ann"),
        json!("ann\u{2003}"),
        json!("ann\u{3000}"),
        json!("\u{feff}ann"),
        json!("ann\u{200b}"),
    ] {
        check(&open, json!({"sub": sub, "exp": 5}), Err(Unverified::Claim));
    }
    check(
        &open,
        json!({"sub": ["ann"], "exp": 5}),
        Err(Unverified::Malformed),
    );
    for (exp, reason) in [
        (json!("5"), Unverified::NoExpiry),
        (json!(null), Unverified::NoExpiry),
        (json!([5]), Unverified::Malformed),
    ] {
        check(&open, json!({"sub": "ann", "exp": exp}), Err(reason));
    }
    check(
        &open,
        json!({"sub": "ann", "exp": 5, "nbf": "1"}),
        Err(Unverified::Malformed),
    );
    let of = |iss: Value, aud: Value| json!({"sub": "ann", "exp": 5, "iss": iss, "aud": aud});
    check(&closed, of(json!("idp"), json!("api")), Ok("ann"));
    check(&closed, of(json!("idp"), json!(["x", "api"])), Ok("ann"));
    check(&closed, of(json!("idp"), json!("shop")), Ok("ann"));
    let issuer = Err(Unverified::Issuer);
    check(&closed, of(json!("idp/"), json!("api")), issuer);
    check(&closed, of(json!(["idp"]), json!("api")), issuer);
    let audience = Err(Unverified::Audience);
    check(&closed, of(json!("idp"), json!(["x"])), audience);
    check(&closed, of(json!("idp"), json!([["api"]])), audience);
    check(
        &closed,
        json!({"sub": "ann", "exp": 5, "iss": "idp"}),
        audience,
    );
}

#[test]
fn times() {
    let open = settings(VerificationKeys::from_secret(SECRET).unwrap());
    let check = |leeway, payload: Value, wall: u64, expected: Result<(), Unverified>| {
        let settings = Settings {
            leeway: Duration::from_secs(leeway),
            ..open.clone()
        };
        let claims = claims(&settings, &payload).unwrap();
        let wall = Duration::from_secs(wall);
        assert_eq!(claims.check_times(wall), expected, "{payload} at {wall:?}");
    };
    let (early, late) = (Err(Unverified::NotYet), Err(Unverified::Expired));
    check(60, json!({"sub": "a", "exp": 100}), 159, Ok(()));
    check(60, json!({"sub": "a", "exp": 100}), 160, late);
    check(0, json!({"sub": "a", "exp": 100}), 99, Ok(()));
    check(0, json!({"sub": "a", "exp": 100}), 100, late);
    check(0, json!({"sub": "a", "exp": -5}), 0, late);
    check(60, json!({"sub": "a", "exp": 1e300}), u64::MAX - 1, Ok(()));
    check(60, json!({"sub": "a", "exp": 1000, "nbf": 500}), 439, early);
    check(
        60,
        json!({"sub": "a", "exp": 1000, "nbf": 500}),
        440,
        Ok(()),
    );
    check(0, json!({"sub": "a", "exp": 1000, "nbf": 500}), 499, early);
    check(
        60,
        json!({"sub": "a", "exp": 1000, "nbf": 499.5}),
        439,
        early,
    );
    check(60, json!({"sub": "a", "exp": 1000, "nbf": -1}), 0, Ok(()));
}

#[test]
fn plans() {
    let open = settings(VerificationKeys::from_secret(SECRET).unwrap());
    let plan = |plan| {
        claims(&open, &json!({"sub": "a", "exp": 1, "plan": plan}))
            .unwrap()
            .plan
    };
    assert_eq!(plan(json!("gold")).as_deref(), Some("gold"));
    assert_eq!(plan(json!(2)).as_deref(), Some("2"));
    assert_eq!(plan(json!(["gold"])), None);
}

#[test]
fn nested_claims() {
    let check = |name: &str, payload: Value, expected: Option<&str>| {
        let text = find_claim(payload.as_object().unwrap(), name).and_then(claim_text);
        assert_eq!(text.as_deref(), expected, "{name} in {payload}");
    };
    check("plan", json!({"plan": "gold"}), Some("gold"));
    check("app.plan", json!({"app": {"plan": "gold"}}), Some("gold"));
    check("a.b.c", json!({"a": {"b": {"c": 7}}}), Some("7"));
    let url = "https://shop.example/plan";
    check(url, json!({url: "gold"}), Some("gold"));
    check(
        "app.plan",
        json!({"app.plan": "gold", "app": {"plan": "free"}}),
        Some("gold"),
    );
    let nested_url = json!({url: {"meta": {"name": "gold"}}});
    check(
        "https://shop.example/plan.meta.name",
        nested_url,
        Some("gold"),
    );
    check("app.plan", json!({"app": "gold"}), None);
    check("app.plan", json!({"app": ["gold"]}), None);
    check("app.0", json!({"app": ["gold"]}), None);
    check("app.", json!({"app": {"": "gold"}}), Some("gold"));
    check("app", json!({"app": {"plan": "gold"}}), None);
    check(".", json!({}), None);
}

/// A wrong signature is the reason whatever the other key says, because it cost a check.
#[test]
fn a_wrong_signature_is_the_reason() {
    let key = |key| VerificationKey {
        id: None,
        key,
        validation: validate_signature_only(&[Algorithm::HS256]),
    };
    let secret = || key(DecodingKey::from_secret(SECRET));
    let unfit = || key(DecodingKey::from_rsa_pem(vector!("rsa.pem")).unwrap());
    let other = EncodingKey::from_secret(b"another secret, which nobody has");
    let forged = encode(&Header::new(Algorithm::HS256), &json!({"sub": "a"}), &other).unwrap();
    let check = |keys: [VerificationKey; 2]| {
        let verified = verify(
            &settings(VerificationKeys(keys.into())),
            &OtherClaims::default(),
            forged.as_bytes(),
        );
        assert_eq!(verified, Err(Unverified::Signature));
    };
    check([unfit(), secret()]);
    check([secret(), unfit()]);
}

/// To try all keys with a forged token that names none would cost as many signatures.
#[test]
fn a_token_without_an_id_is_tried_with_few_keys() {
    let key = |id: Option<&str>| VerificationKey {
        id: id.map(Into::into),
        key: DecodingKey::from_secret(SECRET),
        validation: validate_signature_only(&[Algorithm::HS256]),
    };
    let check = |ids: &[Option<&str>], expected: usize| {
        let keys = VerificationKeys(ids.iter().map(|id| key(*id)).collect());
        let header = Header::new(Algorithm::HS256);
        assert_eq!(keys.candidates(&header).count(), expected, "{ids:?}");
    };
    check(&[Some("a")], 1);
    check(&[None], 1);
    check(&[Some("a"), Some("b"), Some("c")], 0);
    check(&[Some("a"), None, Some("c")], 1);
    check(&[None; 9], MAX_KEYS_TRIED);
}

/// The claim that chooses the keys is read as the claims of a verified token are: of two members the last one counts.
#[test]
fn a_token_names_its_issuer() {
    let settings_of = |issuer: &str| Settings {
        issuer: Some(issuer.into()),
        ..settings(VerificationKeys::none())
    };
    let check = |issuers: &[Settings], payload: &str, expected: Result<&str, Unverified>| {
        let token = format!("e30.{}.", URL_SAFE_NO_PAD.encode(payload));
        let settings = find_issuer(issuers, token.as_bytes());
        let issuer = settings.map(|(_, settings)| settings.issuer.as_deref().unwrap());
        assert_eq!(issuer, expected, "{payload}");
    };
    let several = [settings_of("a"), settings_of("b")];
    check(&several, r#"{"iss": "a"}"#, Ok("a"));
    check(&several, r#"{"iss": "\u0062"}"#, Ok("b"));
    check(&several, r#"{"iss": "a", "iss": "b"}"#, Ok("b"));
    for unknown in [
        r#"{"iss": "A"}"#,
        r#"{"iss": ["a"]}"#,
        r#"{"sub": "a"}"#,
        "{}",
    ] {
        check(&several, unknown, Err(Unverified::Issuer));
    }
    for malformed in ["", "[]", "\u{feff}{\"iss\": \"a\"}", r#"{"iss": "a"}{}"#] {
        check(&several, malformed, Err(Unverified::Malformed));
    }
    check(&several[..1], "", Ok("a"));
}
