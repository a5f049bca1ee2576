//! What WebSocket over HTTP/1.1 says and over HTTP/2 does not: RFC 6455 section 4 and RFC 8441 section 5.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What a client begins with, to see that a server understands it. It is no secret.
pub fn key() -> Vec<u8> {
    let mut random = [0; 16];
    // Bytes that can be guessed would do: no cache stands behind the gateway.
    let _ = getrandom::fill(&mut random);
    STANDARD.encode(random).into_bytes()
}
