//! The handshake fields of a WebSocket over HTTP/1.1, which HTTP/2 does not have: RFC 6455 section 4, RFC 8441 section 5.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The client's field, whose value the server must transform.
pub const KEY: &str = "sec-websocket-key";

/// The server's field with the transformed key.
pub const ACCEPT: &str = "sec-websocket-accept";

/// Whether `protocol` is `websocket`, in any case.
pub fn is_asked_for(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"websocket")
}

/// A random key. It is no secret.
pub fn key() -> Vec<u8> {
    let mut random = [0; 16];
    // Guessable bytes would do: the key only keeps caches from responding, and there is none.
    let _ = getrandom::fill(&mut random);
    STANDARD.encode(random).into_bytes()
}

/// The value of [`ACCEPT`] for a key.
pub fn accept(key: &[u8]) -> String {
    let text = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(
            accept(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(key().len(), 24);
    }
}
