//! Who a request proves to be.

use std::sync::Arc;

use http::HeaderName;
use ipnet::IpNet;

use super::{api_keys, jwt};
use crate::net::Subject;

/// Longest user name, in bytes.
pub const MAX_USER: usize = 256;

/// How a request proves who it is from.
#[derive(Clone, Debug)]
pub enum Settings {
    /// A claim of the signed token in `Authorization: Bearer`.
    Jwt(jwt::Settings),
    /// A request header that a trusted proxy sets.
    Header {
        /// Its name.
        name: HeaderName,
        /// Peers that may set it; from everyone else it is removed.
        from: Vec<IpNet>,
    },
    /// The credential of [`super::Settings::token`], looked up in the file of API keys; where no
    /// credential is configured, `Authorization: Bearer`.
    ApiKeys(Arc<api_keys::Keys>),
    /// The certificate that the client has shown when the connection began.
    ClientCert(Named),
}

/// Which name of a certificate is the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// [`Subject::name`].
    Subject,
    /// [`Subject::alternative`].
    San,
}

impl Named {
    /// The user, if the certificate names one. Text that begins or ends in a space is no name: it would be
    /// that of another when it is passed on.
    pub(super) fn of(self, subject: &Subject) -> Option<Arc<str>> {
        let text = match self {
            Named::Subject => &subject.name,
            Named::San => subject.alternative.as_ref()?,
        };
        name(text).filter(|name| name == text)
    }
}

/// A user as upstream, log and metrics can be told: 1 to [`MAX_USER`] bytes, no control characters.
pub(super) fn name(text: &str) -> Option<Arc<str>> {
    let text = text.trim();
    let fits = !text.is_empty() && text.len() <= MAX_USER && !text.chars().any(char::is_control);
    fits.then(|| text.into())
}
