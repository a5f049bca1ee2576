//! [`GrantMistake`]: why a grant cannot hold by the policies, or is not ordered.

use crate::identity::key_text::KeyError;
use crate::limit::GrantError;
use crate::operator::GrantOrderError;

/// The most keys of rules that have grants. A limit that counts each route for itself has a rule for each.
pub(super) const MAX_GRANTED_KEYS: usize = 100_000;

/// Why a grant cannot hold, or is not ordered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantMistake {
    /// No policy has the limit.
    #[error("no limit is named `{0}`; {1}")]
    UnknownLimit(String, String),
    /// Several limits have the name.
    #[error("several limits are named `{0}`; write one of {1}")]
    AmbiguousLimit(String, String),
    /// The text is no key of the limit.
    #[error("{0}; write the key as `tollgate explain` shows it, for instance `user=alice`")]
    Key(#[from] KeyError),
    /// The key has a plan, by which the limit does not count.
    #[error("`plan` is no part of the key of `{0}`; remove it, the grant holds whatever the plan")]
    Plan(String),
    /// An override makes the key unlimited.
    #[error("`{0}` is unlimited by the file of `overrides`; there is nothing to grant")]
    Unlimited(String),
    /// The limit counts credits, which have no end.
    #[error(
        "`{0}` counts credits, which have no end and no factor; write `--add 500` without `--for` and `--times`, or \"add\": 500 \
         without \"for\" and \"times\""
    )]
    OfCredits(String),
    /// The account is of a limit that counts no credits any more.
    #[error("`{0}` has no `credits` any more; its accounts count again when it has")]
    NoCredits(String),
    /// A grant of a limit without credits needs an end.
    #[error(
        "a grant needs an end; write how long it lasts, for instance `--for 1d`, or \"for\": \"1d\""
    )]
    NoEnd,
    /// Only orders of accounts have ids.
    #[error("`order` is for limits with `credits`, and `{0}` has none; remove it")]
    OrderOfGrant(String),
    /// The account does not hold, so nobody knows what is left of it.
    #[error(
        "the account does not hold now, so what is left of it cannot be read; nothing was taken back: {0}"
    )]
    InactiveAccount(String),
    /// What is left of an account is unknown now.
    #[error(
        "what is left cannot be read now, because the shared store is away; nothing was taken back; try again when it is back"
    )]
    BalanceUnknown,
    /// The workers do not count by the last order of an account yet.
    #[error(
        "what is left cannot be read now, because the workers have not taken over the last order yet; nothing was taken back; \
         try again in some seconds"
    )]
    OrderUnpublished,
    /// The shared store is away, so that an order of credits could be lost.
    #[error(
        "credits cannot be added now, because the shared store is away; repeat the order with the same id when it is back"
    )]
    StoreAway,
    /// The number would be too large.
    #[error(transparent)]
    Limit(#[from] GrantError),
    /// There are too many grants for the limits that they are of.
    #[error(
        "all grants together would raise more than {MAX_GRANTED_KEYS} keys of routes, or have too many different numbers; \
         revoke some, or grant a limit of single routes"
    )]
    Full,
    /// The order is wrong by itself.
    #[error(transparent)]
    Order(#[from] GrantOrderError),
}
