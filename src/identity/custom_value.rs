//! The value that a request has of a custom identity, which the gateway file defines.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::{CustomIdentity, Fingerprint};

/// A custom identity that a request has, and its value. Those that a request lacks are not listed in
/// [`ClientIdentity::custom`](super::ClientIdentity::custom).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomValue {
    /// The identity that the request has.
    pub identity: CustomIdentity,
    /// The value of the identity.
    pub value: IdentityValue,
}

/// The value of a custom identity, or that it has no certain value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityValue {
    /// One name, or the names of a claim that is a list: sorted, and each of them once.
    Names(Names),
    /// The keyed hash of a value that is secret, or that cannot be a name because `user_name::parse` does not accept
    /// it.
    Hash(Fingerprint),
    /// The value can be read in more than one way. A route that counts by it must refuse the request.
    Ambiguous,
}

/// The names of one custom identity; at least one. Only a claim that is a list gives more than one.
pub type Names = SmallVec<[Arc<str>; 1]>;
