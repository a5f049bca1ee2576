//! The bounds of a message's head, and small parts of the syntax of HTTP/1.1. HTTP/2 shares the bounds.

use http::Version;

/// Maximum bytes of a message's head. It bounds what a peer can make the gateway hold before a decision.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Maximum bytes of a request target. RFC 9112 section 3 recommends at least 8,000.
pub const MAX_TARGET_BYTES: usize = 16 * 1024;

/// Maximum number of fields in a message's head. It is small, because a lookup may compare all of them.
pub const MAX_FIELDS: usize = 100;

/// The version of HTTP/1 with this minor number: 1.1 for 1, else 1.0.
#[inline]
pub fn version_from_minor(minor: Option<u8>) -> Version {
    match minor {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    }
}

/// Whether every LF stands behind a CR. A lone LF ends a line for some readers only.
pub fn ends_in_crlf(lines: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', lines).all(|index| index > 0 && lines[index - 1] == b'\r')
}
