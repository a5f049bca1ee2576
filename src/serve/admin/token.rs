//! Checks the admin token of a request, in constant time. `authorization.rs` decides which requests need the token.

use axum::http::{HeaderMap, header};

use super::control::Control;

/// Whether a request may see what the token protects: the request carries the token, or no token is set.
pub fn is_authorized(gateway: &dyn Control, headers: &HeaderMap) -> bool {
    gateway
        .token()
        .is_none_or(|token| has_token(headers, token))
}

/// Whether the request carries this token.
pub fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let credentials = headers
        .get(header::AUTHORIZATION)
        .map(|value| value.as_bytes());
    let Some(sent_token) = credentials.and_then(|value| value.strip_prefix(b"Bearer ")) else {
        return false;
    };
    is_equal_in_constant_time(sent_token.trim_ascii(), token.as_bytes())
}

/// Whether two texts are equal. The duration depends only on their lengths, so it does not reveal where they differ.
fn is_equal_in_constant_time(sent: &[u8], expected: &[u8]) -> bool {
    let byte_pairs = sent.iter().zip(expected);
    let differing_bits = byte_pairs.fold(0, |bits, (sent_byte, expected_byte)| {
        bits | (sent_byte ^ expected_byte)
    });
    // The compiler must not end the loop at the first difference.
    sent.len() == expected.len() && std::hint::black_box(differing_bits) == 0
}
