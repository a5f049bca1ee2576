//! The bounds of a message's head, and the syntax of the lines of HTTP/1.1. HTTP/2 shares the bounds.

use http::Version;

/// Maximum bytes of a message's head.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Maximum bytes of a request target. RFC 9112 section 3 recommends at least 8,000.
pub const MAX_TARGET_BYTES: usize = 16 * 1024;

/// Maximum number of fields in a message's head.
pub const MAX_FIELDS: usize = 100;

/// The version of HTTP/1 with this minor number, 1.0 if there is none.
#[inline]
pub fn version_from_minor(minor: Option<u8>) -> Version {
    match minor {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    }
}

/// Whether every line ends in CRLF. A lone LF ends a line for some readers only.
pub fn ends_in_crlf(lines: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', lines).all(|index| index > 0 && lines[index - 1] == b'\r')
}
