//! The credential a request carries.

/// Where the credential is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The whole value of a request header.
    Header(http::HeaderName),
    /// `Authorization: Bearer …`.
    Bearer,
    /// A query parameter.
    Query(String),
    /// A cookie.
    Cookie(String),
}
