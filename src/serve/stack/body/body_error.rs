//! Why a request's or a response's body broke off, and the words for each cause in the access log and the metrics.

use std::io;
use std::time::Duration;

use crate::http::http1::MessageError;
use crate::upstream::ExchangeError;

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client sent no byte of its body for this long.
    #[error("the client sent nothing for {0:?}")]
    Idle(Duration),
    /// The body is larger than this number of bytes, which the route allows.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(u64),
    /// The client closed its connection or stream, or broke the framing of its body.
    #[error(transparent)]
    Broken(#[from] MessageError),
    /// The upstream closed its connection, or broke the framing of its response.
    #[error("the upstream broke off its response: {0}")]
    Upstream(MessageError),
    /// The upstream sent no byte of its response for this long.
    #[error("the upstream sent nothing for {0:?}")]
    Silent(Duration),
    /// Nothing passed over a tunnel, in either direction, for this long.
    #[error("nothing passed for {0:?}")]
    Unused(Duration),
    /// The response did not end within the timeout of the whole request.
    #[error("the response was not complete in time")]
    Overdue,
    /// The library of a content coding has failed.
    #[error("the response could not be compressed: {0}")]
    Compression(io::Error),
}

/// The `reason` in the access log of a request whose client left before its response had ended.
pub const CLIENT_LEFT: &str = "client left";

/// The `reason` in the access log of a request that the gateway ended, because the lease of its permits was not renewed.
pub const PERMITS_LOST: &str = "permits lost";

impl Error {
    /// The `reason` in the access log, where the body breaks off after the response has begun.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Idle(_) => "request body too slow",
            Error::TooLarge(_) => "request body too large",
            Error::Broken(MessageError::Malformed(_)) => "request body broke off",
            Error::Broken(_) => CLIENT_LEFT,
            Error::Upstream(_) => "server broke off",
            Error::Silent(_) => "idle timeout",
            Error::Unused(_) => "tunnel timeout",
            Error::Overdue => "total timeout",
            Error::Compression(_) => "compression failed",
        }
    }

    /// Whether the client closed its connection or stream.
    pub fn is_client_gone(&self) -> bool {
        matches!(
            self,
            Error::Broken(MessageError::Closed | MessageError::Io(_))
        )
    }

    /// Whether `tollgate_upstream_errors_total` counts the error.
    pub fn is_upstream_failure(&self) -> bool {
        matches!(self, Error::Upstream(_) | Error::Silent(_) | Error::Overdue)
    }
}

impl From<ExchangeError<Error>> for Error {
    fn from(exchange_error: ExchangeError<Error>) -> Error {
        match exchange_error {
            ExchangeError::Request(error) => error,
            ExchangeError::Server(cause) => Error::Upstream(cause),
        }
    }
}
