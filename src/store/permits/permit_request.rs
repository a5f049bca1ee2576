//! [`PermitRequest`]: a request for one permit of a limit on open requests, and the keys by which the permit is counted. It
//! takes nothing by itself.

use siphasher::sip128::SipHasher13;

use crate::limit::{Concurrency, Fingerprint, OnStoreError};
use crate::store::ParentNetwork;

/// The hash of a limit's scope, the name of its counts. Limits with different scopes count their permits apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PermitScope(u128);

impl PermitScope {
    /// Hashes a limit's scope.
    pub fn new(scope: &str) -> PermitScope {
        PermitScope(SipHasher13::new().hash(scope.as_bytes()).as_u128())
    }

    /// The hash. It is the same on all gateways.
    pub fn hash(self) -> u128 {
        self.0
    }

    /// Whether the scope is this limit's, or that of the networks around its keys.
    pub(super) fn belongs_to(self, limit: PermitScope) -> bool {
        self == limit || self == limit.of_networks()
    }

    /// The scope of networks. It differs from that of keys, so that sums by scope do not count a request twice.
    fn of_networks(self) -> PermitScope {
        PermitScope(!self.0)
    }
}

/// How gateways share the permits of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedTerms {
    /// Whether a gateway takes permits in advance.
    pub is_leased: bool,
    /// Whether the limit is a shadow, so that no request ends because of it.
    pub is_shadow: bool,
    /// What holds while the store is away.
    pub on_store_error: OnStoreError,
}

/// One limit on open requests, as it applies to one request.
#[derive(Clone, Copy, Debug)]
pub struct PermitRequest<'a> {
    /// The limit on open requests.
    pub limit: &'a Concurrency,
    /// The scope under which the limit counts its permits.
    pub scope: PermitScope,
    /// The key that the permit is counted for.
    pub key: Fingerprint,
    /// The plan's multiplier, at least 1.
    pub plan_factor: u32,
    /// Shadow mode: the limit refuses nothing. It takes a permit only if it would admit the request by itself, and the
    /// request passes.
    pub is_shadow: bool,
    /// The networks around an IPv6 key that must have room too, nearest first.
    pub parents: &'a [ParentNetwork],
    /// How gateways share the permits; `None` if this gateway counts for itself.
    pub shared: Option<SharedTerms>,
}

impl PermitRequest<'_> {
    /// The key of the request's own count.
    pub fn permit_key(&self) -> PermitKey {
        PermitKey {
            scope: self.scope,
            key: self.key,
        }
    }

    /// The key of the count of a network around the request's key.
    pub(super) fn network_key(&self, parent: &ParentNetwork) -> PermitKey {
        PermitKey {
            scope: self.scope.of_networks(),
            key: parent.key,
        }
    }

    /// The keys of the counts, each with the number of its permits.
    pub(super) fn ceilings(&self) -> impl Iterator<Item = (PermitKey, u32)> {
        let ceiling = self.limit.ceiling(self.plan_factor);
        let networks = self.parents.iter().map(move |parent| {
            let ceiling = ceiling.saturating_mul(parent.factor.max(1));
            (self.network_key(parent), ceiling)
        });
        std::iter::once((self.permit_key(), ceiling)).chain(networks)
    }

    /// The keys of the counts: the request's own key, and the keys of the networks around it.
    pub(super) fn permit_keys(&self) -> impl Iterator<Item = PermitKey> {
        let networks = self.parents.iter().map(|parent| self.network_key(parent));
        std::iter::once(self.permit_key()).chain(networks)
    }
}

/// The key of one count of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PermitKey {
    /// The scope of the limit, or that of the networks around its keys.
    pub scope: PermitScope,
    /// The key that the limit counts by.
    pub key: Fingerprint,
}
