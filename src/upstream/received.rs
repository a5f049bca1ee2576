//! The parts of a response as an exchange receives them, in either version of HTTP: heads, then the pieces of a body.

use bytes::Bytes;
use http_body::Frame;

use super::error::ExchangeError;
use crate::http::head::ResponseHead;

/// The head of a response.
#[derive(Debug)]
pub enum ReceivedHead {
    /// The head of an interim response, such as 103; another head follows.
    Interim(ResponseHead),
    /// The head of the final response, which the body follows.
    Final(ResponseHead),
}

/// The next piece of a response's body, or why there is none; `None` at the body's end.
pub(super) type NextFrame<E> = Option<Result<Frame<Bytes>, ExchangeError<E>>>;
