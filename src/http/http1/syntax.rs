//! Bounds of a head, and the rules of its lines.

use http::Version;

/// Most bytes of a message's head.
pub const MAX_HEAD: usize = 64 * 1024;

/// Most bytes of a request's target, of which RFC 9112 section 3 wants 8,000 at least.
pub const MAX_TARGET: usize = 16 * 1024;

/// Most fields of a message's head.
pub const MAX_FIELDS: usize = 100;

/// The version of a head by its minor number.
#[inline]
pub fn version_of(minor: Option<u8>) -> Version {
    match minor {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    }
}

/// Whether every line does; a lone LF is the end of a line for some readers only.
pub fn ends_in_crlf(lines: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', lines).all(|at| at > 0 && lines[at - 1] == b'\r')
}
