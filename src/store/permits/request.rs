//! What one limit asks of the permits for one request.

use siphasher::sip128::SipHasher13;

use crate::limit::{Concurrency, Fingerprint};
use crate::store::Parent;

/// What tells a limit's permits apart from those of others: its scope, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PermitScope(u128);

impl PermitScope {
    /// Of a limit's scope.
    pub fn new(scope: &str) -> PermitScope {
        PermitScope(SipHasher13::new().hash(scope.as_bytes()).as_u128())
    }

    /// The hash that tells it from other scopes.
    pub(super) fn hash(self) -> u128 {
        self.0
    }

    /// Networks are counted apart, so that nobody sums them up with what is in them.
    fn of_networks(self) -> PermitScope {
        PermitScope(!self.0)
    }
}

/// One limit's part of one request.
#[derive(Clone, Copy, Debug)]
pub struct PermitRequest<'a> {
    /// The arithmetic.
    pub limit: &'a Concurrency,
    /// Whose permits.
    pub scope: PermitScope,
    /// Who gets one.
    pub key: Fingerprint,
    /// The plan's multiplier, at least 1.
    pub multiply: u32,
    /// Refuses nothing, and has a permit out only while it alone would admit.
    pub shadow: bool,
    /// Wider networks that must have room too (IPv6 keys).
    pub parents: &'a [Parent],
}

impl PermitRequest<'_> {
    pub(super) fn place(&self) -> PermitKey {
        PermitKey {
            scope: self.scope,
            key: self.key,
        }
    }

    pub(super) fn network(&self, parent: &Parent) -> PermitKey {
        PermitKey {
            scope: self.scope.of_networks(),
            key: parent.key,
        }
    }

    /// Its key's place and those of the networks around.
    pub(super) fn places(&self) -> impl Iterator<Item = PermitKey> {
        let networks = self.parents.iter().map(|parent| self.network(parent));
        std::iter::once(self.place()).chain(networks)
    }
}

/// Where permits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PermitKey {
    pub(super) scope: PermitScope,
    pub(super) key: Fingerprint,
}
