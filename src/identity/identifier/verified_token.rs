//! An entry in the cache of verified tokens. It holds nothing of the token's text, and its times are checked at each use.

use crate::identity::jwt;
use crate::limit::UserSources;

/// A token whose signature and claims verified.
#[derive(Clone, Debug)]
pub(super) struct VerifiedToken {
    pub(super) claims: jwt::TokenClaims,
    /// Index into [`Settings::plans`](crate::identity::plan::Settings::plans); `None` if the token names none of them.
    pub(super) plan: Option<usize>,
    /// The issuer whose keys verified the token.
    pub(super) source: UserSources,
}
