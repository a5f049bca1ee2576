//! Without the secret nobody is known: neither by any text nor by a right token that was changed.
#![no_main]

use std::net::IpAddr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tollgate::http::head::Head;
use tollgate::identity::{Identifier, Keyer, Settings, jwt, token, user};

/// HS256 over `{"sub":"ann","exp":99999999999}` with the secret below.
const RIGHT: &str = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjk5OTk5OTk5OTk5fQ.tO2bdBKFtTX7C7kDXNwzD0TqdtmPq4K11NPe8iWlqc4";

fn known(identifier: &Identifier, text: &[u8]) -> bool {
    let mut head = Head::default();
    let value = [b"Bearer ", text].concat();
    head.fields.add("authorization", &value);
    let peer: IpAddr = "203.0.113.9".parse().expect("an address");
    let who = identifier.identify(peer, &head, || Duration::from_secs(1));
    assert_eq!(who.user.is_some(), who.token.is_some());
    assert!(who.user.is_none() || who.unverified.is_none());
    who.user.is_some()
}

fuzz_target!(|data: &[u8]| {
    let settings = Settings {
        user_sources: vec![user::Settings::Jwt(vec![jwt::Settings {
            claim: "sub".into(),
            keys: jwt::VerificationKeys::from_secret(b"a secret that no fuzzer guesses!")
                .expect("a secret"),
            name_prefix: String::new(),
            issuer: None,
            audiences: Vec::new(),
            remote: None,
            leeway: jwt::DEFAULT_LEEWAY,
        }])],
        token_sources: vec![token::TokenSource::Bearer],
        ..Settings::default()
    };
    let identifier = Identifier::new(settings, Keyer::new([7; 16]));
    assert!(known(&identifier, RIGHT.as_bytes()));
    assert!(!known(&identifier, data) || data.trim_ascii() == RIGHT.as_bytes());

    let mut changed = RIGHT.as_bytes().to_vec();
    for edit in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % changed.len();
        changed[at] ^= edit[2];
    }
    let same = changed.trim_ascii() == RIGHT.as_bytes();
    assert_eq!(known(&identifier, &changed), same);
    // The second time from what is remembered.
    assert_eq!(known(&identifier, &changed), same);
    assert!(known(&identifier, RIGHT.as_bytes()));
});
