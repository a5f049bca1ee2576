//! [`Key`]: what a limit counts by. [`ClientNetwork`]: the key of a client's address, and the networks around it. Keys are
//! hashed under a secret of this process, so no client can choose one that collides with another's.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use smallvec::SmallVec;

use crate::identity::client_network::{
    IPV4_PREFIX_LENGTH, IPV6_PREFIX_LENGTH, PARENT_PREFIXES, network, network_bytes,
};
use crate::identity::embedded_ipv4::{Nat64Prefix, counted_address};
use crate::identity::key::{Domain, Keyer};
use crate::limit::Fingerprint;
use crate::store::ParentNetwork;

/// Tag of an address in the hash of a key.
const ADDRESS_TAG: u8 = 1;
/// Tag of the value of a header field.
const FIELD_TAG: u8 = 2;
/// Tag of what a function returns.
const FUNCTION_TAG: u8 = 3;

/// What a limit counts by. Each key has counts of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Key {
    /// The address of the client: an IPv4 address, or the /64 around an IPv6 address. The /56, /48 and /32 around it have
    /// budgets of 4, 16 and 256 times the quota, because a client may own such a network.
    ///
    /// [`ThrottleBuilder::peer_address`](super::ThrottleBuilder::peer_address) says where the address comes from. All
    /// requests without an address count as one client, and the first one is logged.
    Ip,
    /// Nothing: all requests count together.
    Everyone,
    /// The first value of the header field of this name. See [`Key::header`].
    Header(Arc<str>),
    /// What a function returns. See [`Key::from_fn`].
    Function(KeyFunction),
}

/// A function from a request's head to a key.
#[derive(Clone)]
pub struct KeyFunction(Arc<ReadKey>);

/// The type of a key's function, behind a pointer.
type ReadKey = dyn Fn(&Parts) -> Option<String> + Send + Sync;

impl fmt::Debug for KeyFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFunction(..)")
    }
}

impl Key {
    /// Counts by the first value of a header field. The limit does not count requests without the field.
    ///
    /// A client may send another value with each request, so a limit by [`Key::Ip`] should stand beside this one.
    pub fn header(name: &str) -> Key {
        Key::Header(name.into())
    }

    /// Counts by what a function returns. The limit does not count requests for which that is `None`.
    ///
    /// ```
    /// # use tollgate::Key;
    /// let tenant = Key::from_fn(|request| Some(request.uri.path().split('/').nth(1)?.to_owned()));
    /// ```
    pub fn from_fn(function: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Key {
        Key::Function(KeyFunction(Arc::new(function)))
    }

    /// The key with its name checked; `None` if no header field has the name.
    pub(super) fn check(self) -> Option<CheckedKey> {
        Some(match self {
            Key::Ip => CheckedKey::Ip,
            Key::Everyone => CheckedKey::Everyone,
            Key::Header(name) => CheckedKey::Field(name.parse().ok()?),
            Key::Function(function) => CheckedKey::Function(function),
        })
    }
}

/// A [`Key`] that every request can be counted by.
#[derive(Debug)]
pub(super) enum CheckedKey {
    Ip,
    Everyone,
    Field(HeaderName),
    Function(KeyFunction),
}

impl CheckedKey {
    /// The key of a request, and the networks around it; `None` if the limit does not count the request.
    pub(super) fn of_request<'c>(
        &self,
        request: &Parts,
        client: &'c ClientNetwork,
        keyer: &Keyer,
    ) -> Option<(Fingerprint, &'c [ParentNetwork])> {
        let hash = |tag: u8, bytes: &[u8]| {
            let mut hasher = keyer.key_hasher();
            hasher.add_part(tag, bytes);
            hasher.finish()
        };
        let key = match self {
            CheckedKey::Ip => return Some((client.key, &client.parents)),
            CheckedKey::Everyone => keyer.fingerprint(Domain::Everyone, &[]),
            CheckedKey::Field(name) => hash(FIELD_TAG, request.headers.get(name)?.as_bytes())?,
            CheckedKey::Function(KeyFunction(function)) => {
                hash(FUNCTION_TAG, function(request)?.as_bytes())?
            }
        };
        Some((key, &[]))
    }
}

/// The key of a client's address, and the networks around it, the nearest first.
#[derive(Debug)]
pub(super) struct ClientNetwork {
    key: Fingerprint,
    parents: SmallVec<[ParentNetwork; 3]>,
}

impl ClientNetwork {
    /// The network of an address. All clients without an address are one.
    pub(super) fn new(address: Option<IpAddr>, keyer: &Keyer) -> ClientNetwork {
        let address = address.map(|ip| counted_address(ip, &[Nat64Prefix::well_known()]));
        let bytes = match address {
            Some(ip @ IpAddr::V4(_)) => network_bytes(network(ip, IPV4_PREFIX_LENGTH)),
            Some(ip @ IpAddr::V6(_)) => network_bytes(network(ip, IPV6_PREFIX_LENGTH)),
            None => SmallVec::new(),
        };
        let mut hasher = keyer.key_hasher();
        hasher.add_part(ADDRESS_TAG, &bytes);
        let parents = address.filter(IpAddr::is_ipv6).into_iter().flat_map(|ip| {
            PARENT_PREFIXES.map(|parent| ParentNetwork {
                key: keyer.fingerprint(Domain::Network, &network_bytes(network(ip, parent.length))),
                factor: parent.budget_factor,
            })
        });
        ClientNetwork {
            // A hash of one part is never `None`.
            key: hasher.finish().unwrap_or(Fingerprint(0)),
            parents: parents.collect(),
        }
    }
}
