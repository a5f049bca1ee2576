//! The bounds of a head in HTTP/1.1, and the syntax of its lines.

use http::Version;

/// Maximum bytes of a message's head.
pub const MAX_HEAD: usize = 64 * 1024;

/// Maximum bytes of a request target. RFC 9112 section 3 recommends at least 8,000.
pub const MAX_TARGET: usize = 16 * 1024;

/// Maximum number of fields in a message's head.
pub const MAX_FIELDS: usize = 100;

/// The version of HTTP with this minor number.
#[inline]
pub fn version_of(minor: Option<u8>) -> Version {
    match minor {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    }
}

/// Whether every line ends in CRLF. A lone LF ends a line for some readers only.
pub fn ends_in_crlf(lines: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', lines).all(|at| at > 0 && lines[at - 1] == b'\r')
}
