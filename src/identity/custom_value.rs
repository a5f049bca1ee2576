//! What a request has as an identity that the gateway file defines.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::{CustomIdentity, Fingerprint};

/// What a request has as a custom identity. One without a value is not listed in
/// [`ClientIdentity::custom`](super::ClientIdentity::custom).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomValue {
    /// The identity.
    pub identity: CustomIdentity,
    /// Its value.
    pub reading: Reading,
}

/// The value of a custom identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// One name, or the names of a claim that is a list: sorted, and each of them once.
    Names(Names),
    /// The keyed hash of a value that is secret or longer than a name.
    Hash(Fingerprint),
    /// The value can be read in more than one way. A route that counts by it must refuse the request.
    Ambiguous,
}

/// The names of one identity; at least one.
pub type Names = SmallVec<[Arc<str>; 1]>;
