//! Why an upstream gave no response, or only a part of one.

use std::io;
use std::time::Duration;

use crate::http::http1::{Malformed, MessageError};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection within the connect timeout.
    #[error("no connection to {server} within {after:?}")]
    ConnectTimeout {
        /// Which server.
        server: String,
        /// How long was allowed.
        after: Duration,
    },
    /// No connection.
    #[error("no connection to {server}: {cause}")]
    Connect {
        /// Which server.
        server: String,
        /// Why.
        cause: io::Error,
    },
    /// The connection broke or the response was not HTTP.
    #[error("{server} gave no answer: {cause}")]
    Exchange {
        /// Which server.
        server: String,
        /// Why.
        cause: MessageError,
    },
    /// No first byte within its timeout.
    #[error("{server} sent no answer within {after:?}")]
    FirstByteTimeout {
        /// Which server.
        server: String,
        /// How long was allowed.
        after: Duration,
    },
    /// No response within the timeout of the whole request.
    #[error("{upstream} gave no answer within {after:?}")]
    TotalTimeout {
        /// Which upstream.
        upstream: String,
        /// How long was allowed.
        after: Duration,
    },
    /// Every server is ejected or failing.
    #[error("no server of {upstream} is available")]
    Unavailable {
        /// Which upstream.
        upstream: String,
    },
    /// The upstream has reached a bound on its requests.
    #[error("{upstream} has {most} requests {what}")]
    Full {
        /// Which upstream.
        upstream: String,
        /// "open", or "waiting for a connection".
        what: &'static str,
        /// How many it may have.
        most: u32,
    },
}

/// The side on which an exchange failed; `E` is the error of the request's body.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError<E> {
    /// The request's body broke off.
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
