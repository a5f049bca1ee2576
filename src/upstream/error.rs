//! Why an upstream sent no response, or only a part of one. The texts are for the log; clients get other texts.

use std::io;
use std::time::Duration;

use crate::http::http1::{Malformed, MessageError};

/// Why an upstream sent no whole response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection was ready within the connect timeout, TLS included, or the name was not resolved within it.
    #[error("no connection to {server} within {after:?}")]
    ConnectTimeout {
        /// The server's location, and the IP address that its name resolved to.
        server: String,
        /// The connect timeout of the upstream.
        after: Duration,
    },
    /// The connection to the server failed, the server does not speak HTTP/2 as configured, or its name could not be
    /// resolved.
    #[error("no connection to {server}: {cause}")]
    Connect {
        /// The server's location, and the IP address that its name resolved to.
        server: String,
        /// The error of the connection or of the lookup.
        cause: io::Error,
    },
    /// The connection broke before the response's head, the head was not valid HTTP, or HTTP/2 cannot express the request.
    #[error("{server} sent no valid response: {cause}")]
    Exchange {
        /// The server's location, as it is configured.
        server: String,
        /// The error of the connection, of the head or of the request.
        cause: MessageError,
    },
    /// The final head did not come within the first-byte timeout, and the server accepted no more of the request.
    #[error("{server} sent no response within {after:?}")]
    FirstByteTimeout {
        /// The server's location, as it is configured.
        server: String,
        /// The first-byte timeout of the upstream.
        after: Duration,
    },
    /// The response did not begin within the timeout of the whole request.
    #[error("{upstream} sent no response within {after:?}")]
    TotalTimeout {
        /// The name of the upstream.
        upstream: String,
        /// The timeout for a whole request.
        after: Duration,
    },
    /// Every server is ejected or failing, or the gate is shut because no server accepts connections.
    #[error("no server of {upstream} is available")]
    Unavailable {
        /// The name of the upstream.
        upstream: String,
    },
    /// The upstream has reached a bound on its requests.
    #[error("{upstream} has {max} requests {state}")]
    Full {
        /// The name of the upstream.
        upstream: String,
        /// The state of the requests that are bounded: "open", or "waiting for a connection".
        state: &'static str,
        /// The bound that is reached.
        max: u32,
    },
}

/// The side on which an exchange failed; `E` is the error of the request's body.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError<E> {
    /// The client's body broke off.
    #[error("the request broke off")]
    Request(E),
    /// The server sent no response or an invalid one, or broke it off.
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
