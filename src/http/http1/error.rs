//! Why bytes cannot be read as a message of HTTP.

use std::io;

/// The rule of HTTP that a message breaks, as the end of a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Why a message cannot be received whole.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The connection ended before the message.
    #[error("the connection was closed")]
    Closed,
    /// The received bytes are not HTTP.
    #[error("the peer sent something that is not HTTP: {0}")]
    Malformed(#[from] Malformed),
}
