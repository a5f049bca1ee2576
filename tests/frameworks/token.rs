//! Signed tokens, and what is left of one that is spelled otherwise.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use tollgate::base::clock::Clock;

use crate::apps::SECRET;

/// A token with this head and these claims, both JSON.
pub fn signed(head: &str, claims: &str) -> String {
    let algorithm = match head {
        _ if head.contains("HS384") => hmac::HMAC_SHA384,
        _ if head.contains("HS512") => hmac::HMAC_SHA512,
        _ => hmac::HMAC_SHA256,
    };
    let text = format!("{}.{}", BASE64.encode(head), BASE64.encode(claims));
    let key = hmac::Key::new(algorithm, SECRET.as_bytes());
    let signature = hmac::sign(&key, text.as_bytes());
    format!("{text}.{}", BASE64.encode(signature))
}

/// The usual token of a user.
pub fn of(user: &str) -> String {
    let end = now() + 3_600;
    let claims = format!("{{\"sub\":\"{user}\",\"org\":{{\"id\":\"{user}\"}},\"exp\":{end}}}");
    signed(HEAD, &claims)
}

pub const HEAD: &str = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";

/// Seconds since 1970.
pub fn now() -> u64 {
    Clock::system().wall().as_secs()
}
