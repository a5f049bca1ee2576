//! The admin token of a request.

use axum::http::{HeaderMap, header};

use super::control::Control;

/// Whether a request may see what the token protects. Assets are served without it.
pub fn is_authorized(control: &dyn Control, headers: &HeaderMap) -> bool {
    control
        .token()
        .is_none_or(|token| has_token(headers, token))
}

/// Whether the request carries this token.
pub fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let given = headers
        .get(header::AUTHORIZATION)
        .map(|value| value.as_bytes());
    let Some(given) = given.and_then(|value| value.strip_prefix(b"Bearer ")) else {
        return false;
    };
    equal_in_constant_time(given.trim_ascii(), token.as_bytes())
}

/// Compares in constant time, so that the duration does not reveal where the difference is.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |found, (a, b)| found | (a ^ b));
    a.len() == b.len() && std::hint::black_box(difference) == 0
}
