//! What an exchange receives from its server: heads, then pieces of a body.

use bytes::Bytes;
use http_body::Frame;

use super::error::ExchangeError;
use crate::http::head::ResponseHead;

/// The head of an answer.
#[derive(Debug)]
pub enum ReceivedHead {
    /// Of one before the final one.
    Interim(ResponseHead),
    /// Of the final one.
    Final(ResponseHead),
}

/// The next piece of an answer's body, if there is one.
pub(super) type NextFrame<E> = Option<Result<Frame<Bytes>, ExchangeError<E>>>;
