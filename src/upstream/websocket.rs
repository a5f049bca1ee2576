//! The handshake fields that a WebSocket has over HTTP/1.1 and not over HTTP/2: RFC 6455 section 4, RFC 8441 section 5.
//! The gateway adds or removes them where client and server use different versions of HTTP.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The client's field with a random key, which the server must hash.
pub const KEY_FIELD: &str = "sec-websocket-key";

/// The server's field with the hashed key.
pub const ACCEPT_FIELD: &str = "sec-websocket-accept";

/// The text that a server appends to the key before it hashes both: RFC 6455 section 1.3.
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether a protocol in `Upgrade` is `websocket`, in any case.
pub fn is_websocket(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"websocket")
}

/// A random key of 16 bytes, in Base64. It is no secret.
pub fn random_key() -> Vec<u8> {
    let mut key_bytes = [0; 16];
    // If this fails, the key is all zeros and still valid. The key only keeps caches between client and server from
    // responding, and there are none between the gateway and the server.
    let _ = getrandom::fill(&mut key_bytes);
    STANDARD.encode(key_bytes).into_bytes()
}

/// The value of [`ACCEPT_FIELD`] for a key.
pub fn accept_value(key: &[u8]) -> String {
    let hashed_text = [key, ACCEPT_GUID].concat();
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &hashed_text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(
            accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(random_key().len(), 24);
    }
}
