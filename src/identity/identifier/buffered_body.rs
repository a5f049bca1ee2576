//! What is given to the search for identities in a body, a query and cookies: the buffered bytes of the body, and the
//! identities that are looked for.

use crate::limit::IdentitySet;

/// The identities that are looked for in the body, the query and cookies.
#[derive(Clone, Copy, Debug, Default)]
pub struct WantedIdentities {
    /// Whether the email address is looked for.
    pub email: bool,
    /// The custom identities that are looked for.
    pub custom: IdentitySet,
}

/// The bytes of a body that were buffered.
#[derive(Clone, Copy, Debug)]
pub struct BufferedBody<'b> {
    /// The bytes from the beginning of the body.
    pub bytes: &'b [u8],
    /// Whether `bytes` are the whole body. If not, the body is too long to be searched.
    pub is_whole: bool,
}

impl WantedIdentities {
    /// The custom identities `custom`, and the email address if `needs_email`.
    pub fn new(needs_email: bool, custom: IdentitySet) -> WantedIdentities {
        WantedIdentities {
            email: needs_email,
            custom,
        }
    }
}

impl<'b> BufferedBody<'b> {
    /// The beginning of a body, or all of it if `is_whole`.
    pub fn new(bytes: &'b [u8], is_whole: bool) -> BufferedBody<'b> {
        BufferedBody { bytes, is_whole }
    }

    /// A body that is buffered as a whole.
    pub fn whole(bytes: &'b [u8]) -> BufferedBody<'b> {
        BufferedBody {
            bytes,
            is_whole: true,
        }
    }
}
