//! What is remembered of a token that verified.

use crate::identity::jwt;

/// What a token that verified says.
#[derive(Clone, Debug)]
pub(super) struct VerifiedToken {
    pub(super) claims: jwt::TokenClaims,
    pub(super) plan: Option<usize>,
}
