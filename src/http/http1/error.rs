//! Why bytes cannot be read as a message.

use std::io;

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
    #[error("the peer sent something that is not HTTP: {0}")]
    Malformed(#[from] Malformed),
}
