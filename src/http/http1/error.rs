//! Why a message of HTTP cannot be read, or a connection ends before its message does.

use std::io;

/// The rule of HTTP that a message breaks, as a clause about the message: "it says its length twice".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Why an exchange of messages on a connection fails.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// Reading or writing the connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The connection ended before the message.
    #[error("the connection was closed")]
    Closed,
    /// The received bytes are not HTTP.
    #[error("the peer sent something that is not HTTP: {0}")]
    Malformed(#[from] Malformed),
}
