//! Who a request proves to be.

use std::sync::Arc;

use http::HeaderName;

use super::{api_keys, jwt};
use crate::net::{PeerNetwork, Subject};

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
        from: Vec<PeerNetwork>,
    },
    /// The credential of [`super::Settings::token`], looked up in the file of API keys; where no
    /// credential is configured, `Authorization: Bearer`.
    ApiKeys(Arc<api_keys::Keys>),
    /// The certificate that the client has shown when the connection began.
    ClientCert(Named),
}

/// What becomes of a request whose credential does not verify, on a route that counts by what it would prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnverified {
    /// It is refused with 401: the upstream might take the credential all the same, and no limit would count it.
    #[default]
    Refuse,
    /// It is served as a request of nobody.
    Anonymous,
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
    /// The user, if the certificate names one.
    pub(super) fn of(self, subject: &Subject) -> Option<Arc<str>> {
        match self {
            Named::Subject => name(&subject.name),
            Named::San => name(subject.alternative.as_ref()?),
        }
    }
}

/// A user as upstream, log and metrics get it, without a change: 1 to [`MAX_USER`] bytes, no control characters,
/// no blank at either end. Who reads a name with one may drop it, and it would be another's.
pub(super) fn name(text: &str) -> Option<Arc<str>> {
    let fits = !text.is_empty()
        && text.len() <= MAX_USER
        && !text.starts_with(is_blank)
        && !text.ends_with(is_blank)
        && !text.chars().any(char::is_control);
    fits.then(|| text.into())
}

/// What the trim function of some language drops: white space, and three marks that once were or still are taken
/// for it (.NET, JavaScript).
fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{180e}' | '\u{200b}' | '\u{feff}')
}
