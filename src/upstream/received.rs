//! The parts of a response as an exchange receives them: heads, then pieces of a body.

use bytes::Bytes;
use http_body::Frame;

use super::error::ExchangeError;
use crate::http::head::ResponseHead;

/// The head of a response.
#[derive(Debug)]
pub enum ReceivedHead {
    /// The head of an interim response, such as 103.
    Interim(ResponseHead),
    /// The head of the final response.
    Final(ResponseHead),
}

/// The next piece of a response's body; none at its end.
pub(super) type NextFrame<E> = Option<Result<Frame<Bytes>, ExchangeError<E>>>;
