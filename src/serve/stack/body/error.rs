//! Why a body broke off.

use std::time::Duration;

use crate::http::http1::MessageError;
use crate::upstream::ExchangeError;

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client stopped sending.
    #[error("the client sent nothing for {0:?}")]
    Idle(Duration),
    /// The client broke the connection or the framing.
    #[error(transparent)]
    Broken(#[from] MessageError),
    /// The upstream broke off its response.
    #[error("the upstream broke off its response: {0}")]
    Upstream(MessageError),
    /// The upstream stopped in the middle of its response.
    #[error("the upstream sent nothing for {0:?}")]
    Silent(Duration),
    /// Nothing passed over a tunnel.
    #[error("nothing passed for {0:?}")]
    Unused(Duration),
    /// The whole request took too long.
    #[error("the response was not complete in time")]
    Overdue,
}

/// The client left before its response was there.
pub const CLIENT_LEFT: &str = "client left";

impl Error {
    /// `reason` in the access log, once the response has begun.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Idle(_) => "request body too slow",
            Error::Broken(MessageError::Malformed(_)) => "request body broke off",
            Error::Broken(_) => CLIENT_LEFT,
            Error::Upstream(_) => "server broke off",
            Error::Silent(_) => "idle timeout",
            Error::Unused(_) => "tunnel timeout",
            Error::Overdue => "total timeout",
        }
    }

    /// Whether the client closed its connection.
    pub fn is_client_gone(&self) -> bool {
        matches!(
            self,
            Error::Broken(MessageError::Closed | MessageError::Io(_))
        )
    }

    /// Whether `tollgate_upstream_errors_total` counts it.
    pub fn is_upstream_failure(&self) -> bool {
        matches!(self, Error::Upstream(_) | Error::Silent(_) | Error::Overdue)
    }
}

impl From<ExchangeError<Error>> for Error {
    fn from(failure: ExchangeError<Error>) -> Error {
        match failure {
            ExchangeError::Request(error) => error,
            ExchangeError::Server(cause) => Error::Upstream(cause),
        }
    }
}
