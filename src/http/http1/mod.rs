//! What both sides of the gateway share of HTTP/1.1, RFC 9112: fields, framing, pieces on their way
//! out. Read strictly: what two readers could take for different messages is no message.

pub mod chunked;
pub mod fields;
pub mod framing;
pub mod inbox;
pub mod outbox;

use std::io;

use http::Version;

pub use framing::{Framing, Said, without_zeros};
pub use outbox::Outbox;

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

/// Why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Why a message broke off.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended too early.
    #[error("the connection was closed")]
    Closed,
    /// What came in is not HTTP.
    #[error("what it sent is not HTTP: {0}")]
    Malformed(#[from] Malformed),
}
