//! What a WebSocket over HTTP/1.1 begins with, and over HTTP/2 does not: RFC 6455 section 4, RFC 8441 section 5.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The field by which a client sees that the server has understood it.
pub const KEY: &str = "sec-websocket-key";

/// The field by which the server shows it.
pub const ACCEPT: &str = "sec-websocket-accept";

/// Whether `protocol` is the one that has these fields.
pub fn is_asked_for(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"websocket")
}

/// A key. It is no secret.
pub fn key() -> Vec<u8> {
    let mut random = [0; 16];
    // Bytes that can be guessed would do: they keep caches from answering, and there is none.
    let _ = getrandom::fill(&mut random);
    STANDARD.encode(random).into_bytes()
}

/// What a server answers to a key.
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
