//! What an exchange receives from its server: heads, then pieces of a body.

use bytes::Bytes;
use http_body::Frame;

use super::error::Failure;
use crate::http::head::ResponseHead;

/// The head of an answer.
#[derive(Debug)]
pub enum Lead {
    /// Of one before the final one.
    Interim(ResponseHead),
    /// Of the final one.
    Final(ResponseHead),
}

/// The next piece of an answer's body, if there is one.
pub(super) type Next<E> = Option<Result<Frame<Bytes>, Failure<E>>>;
