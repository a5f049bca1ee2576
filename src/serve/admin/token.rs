//! Checks the admin token of a request, in constant time.

use axum::http::{HeaderMap, header};

use super::control::Control;

/// Whether a request may see what the token protects: it carries the token, or none is set.
pub fn is_authorized(control: &dyn Control, headers: &HeaderMap) -> bool {
    control
        .token()
        .is_none_or(|token| has_token(headers, token))
}

/// Whether the request carries this token.
pub fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let credentials = headers
        .get(header::AUTHORIZATION)
        .map(|value| value.as_bytes());
    let Some(sent) = credentials.and_then(|value| value.strip_prefix(b"Bearer ")) else {
        return false;
    };
    is_equal_in_constant_time(sent.trim_ascii(), token.as_bytes())
}

/// Compares in constant time, so that the duration does not reveal where the difference is.
fn is_equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    a.len() == b.len() && std::hint::black_box(difference) == 0
}
