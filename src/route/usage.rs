//! The limits that callers may see at the path of `usage`, each with the routes that have it. It is built once, and what a
//! caller has left is computed for each request elsewhere.

use std::sync::Arc;

use crate::limit::{IdentitySet, Rule};

/// The limits that the route of `usage` lists, for one pattern of hosts.
#[derive(Clone, Debug, Default)]
pub struct UsageList {
    /// The limits, those that several policies may have first, at most [`UsageList::MAX_LIMITS`].
    pub limits: Vec<ListedLimit>,
    /// The identities that some route of these hosts depends on and that a head alone can prove. A credential for one of
    /// them must verify here too. Otherwise guesses could be tried here that no limit counts.
    pub identities: IdentitySet,
    /// Whether all limits are in the list.
    pub is_complete: bool,
}

/// A limit, and where it holds.
#[derive(Clone, Debug)]
pub struct ListedLimit {
    /// The limit.
    pub rule: Arc<Rule>,
    /// The indexes of the routes that have the limit, in ascending order, at most [`ListedLimit::MAX_ROUTES`].
    pub route_indexes: Vec<usize>,
    /// The name of the policy that the limit belongs to; `None` if several policies may have it.
    pub route_name: Option<Arc<str>>,
    /// Whether requests without a route are counted too, so that every caller has the limit.
    pub holds_everywhere: bool,
}

impl UsageList {
    /// Maximum number of limits in a list, so that a response costs little.
    pub const MAX_LIMITS: usize = 128;
}

impl ListedLimit {
    /// Maximum number of routes that are searched for one that a caller may use.
    pub const MAX_ROUTES: usize = 16;
}
