//! Why an upstream sent no response, or only a part of one. The texts are for the log; clients get others.

use std::io;
use std::time::Duration;

use crate::http::http1::{Malformed, MessageError};

/// Why an upstream sent no whole response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not accept a connection within the connect timeout.
    #[error("no connection to {server} within {after:?}")]
    ConnectTimeout {
        /// The server's location.
        server: String,
        /// The connect timeout.
        after: Duration,
    },
    /// The connection to the server failed.
    #[error("no connection to {server}: {cause}")]
    Connect {
        /// The server's location.
        server: String,
        /// What failed.
        cause: io::Error,
    },
    /// The connection broke or the response was not HTTP.
    #[error("{server} sent no valid response: {cause}")]
    Exchange {
        /// The server's location.
        server: String,
        /// What failed.
        cause: MessageError,
    },
    /// The server sent no byte within the timeout for the first one.
    #[error("{server} sent no response within {after:?}")]
    FirstByteTimeout {
        /// The server's location.
        server: String,
        /// The timeout.
        after: Duration,
    },
    /// The response did not begin within the timeout of the whole request.
    #[error("{upstream} sent no response within {after:?}")]
    TotalTimeout {
        /// The upstream's name.
        upstream: String,
        /// The timeout.
        after: Duration,
    },
    /// Every server is ejected or failing.
    #[error("no server of {upstream} is available")]
    Unavailable {
        /// The upstream's name.
        upstream: String,
    },
    /// The upstream has reached a bound on its requests.
    #[error("{upstream} has {max} requests {state}")]
    Full {
        /// The upstream's name.
        upstream: String,
        /// The state of the requests that are bounded: "open", or "waiting for a connection".
        state: &'static str,
        /// The bound.
        max: u32,
    },
}

/// The side on which an exchange failed; `E` is the error of the request's body.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError<E> {
    /// The client's body broke off.
    #[error("the request broke off")]
    Request(E),
    /// The server sent no response, or broke it off.
    #[error(transparent)]
    Server(MessageError),
}

impl<E> From<MessageError> for ExchangeError<E> {
    fn from(cause: MessageError) -> ExchangeError<E> {
        ExchangeError::Server(cause)
    }
}

impl<E> From<io::Error> for ExchangeError<E> {
    fn from(error: io::Error) -> ExchangeError<E> {
        ExchangeError::Server(error.into())
    }
}

impl<E> From<Malformed> for ExchangeError<E> {
    fn from(malformed: Malformed) -> ExchangeError<E> {
        ExchangeError::Server(malformed.into())
    }
}
