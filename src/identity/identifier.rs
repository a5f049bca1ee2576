//! One worker's view of identities: the compiled settings, and a cache of verified tokens.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::canonical::canonical_form;
use super::failures::SignatureFailures;
use super::field_value::FieldValue;
use super::fingerprint_cache::FingerprintCache;
use super::ip::TrustedPeers;
use super::key::{Domain, Keyer};
use super::strip::Stripper;
use super::{ClientIdentity, ConnectionPeer, Settings, Unverified, ip, plan, token, user};
use crate::base::clock::Nanos;
use crate::http::head::{Fields, Head};
use crate::limit::{Fingerprint, Identity};
use crate::net::{PeerAddress, PeerNetwork};
use crate::store::Parent;

mod address;
mod body;
mod proof;
mod verified_token;

use verified_token::VerifiedToken;

/// Verified tokens that each worker remembers.
const REMEMBERED: usize = 1_024;

/// Tokens that failed to verify, with the reason. They have a cache of their own, so that a flood of forged tokens evicts
/// no valid one.
const REMEMBERED_BAD: usize = 1_024;

/// Reads the identities of requests. Every worker has its own, so that no worker waits for another's cache locks; a
/// service with several threads may share one.
#[derive(Debug)]
pub struct Identifier {
    settings: Settings,
    keyer: Keyer,
    trusted: TrustedPeers,
    user_from: TrustedPeers,
    plan_from: TrustedPeers,
    stripper: Stripper,
    verified: Mutex<FingerprintCache<VerifiedToken>>,
    refused: Mutex<FingerprintCache<Unverified>>,
    failures: SignatureFailures,
}

/// The conditions for checking a credential that no cache has.
#[derive(Clone, Copy)]
pub struct CredentialCheck<'c> {
    /// The current time, for the bound on failed signatures of an address.
    pub now: Nanos,
    /// Whether the limits by ip admit a check for this client.
    pub may: &'c dyn Fn(&ClientIdentity) -> bool,
}

impl Identifier {
    /// An identifier with empty caches.
    pub fn new(settings: Settings, keyer: Keyer) -> Identifier {
        let from = |networks: &[PeerNetwork]| TrustedPeers::new(networks, &settings.ip.nat64);
        let user_from = match &settings.user {
            Some(user::Settings::Header { from: networks, .. }) => from(networks),
            _ => TrustedPeers::default(),
        };
        let plan_from = match &settings.plan.source {
            Some(plan::PlanOrigin::Header { from: networks, .. }) => from(networks),
            _ => TrustedPeers::default(),
        };
        Identifier {
            trusted: from(&settings.ip.trusted_proxies),
            stripper: Stripper::new(&settings),
            verified: Mutex::new(FingerprintCache::new(REMEMBERED)),
            refused: Mutex::new(FingerprintCache::new(REMEMBERED_BAD)),
            failures: SignatureFailures::default(),
            user_from,
            plan_from,
            settings,
            keyer,
        }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a route that counts what the credential would prove refuses a request with this reason.
    pub fn refuses(&self, unverified: Unverified) -> bool {
        self.settings.unverified == user::OnUnverified::Refuse && unverified.reaches_upstream()
    }

    /// Whether the fields of a request and its connection are all that [`Identifier::identify`] looks at.
    pub fn looks_at_fields_only(&self) -> bool {
        let in_target = matches!(self.settings.token, Some(token::TokenSource::Query(_)));
        let for_a_time = matches!(self.settings.user, Some(user::Settings::Jwt(_)));
        !in_target && !for_a_time
    }

    /// Who the request is from, as far as its head tells. `connection` is the one that it came over, or
    /// the address of its other end; `wall` is asked for the time since the epoch only if a token has one. Call it before
    /// [`Identifier::strip`].
    pub fn identify<'a>(
        &self,
        connection: impl Into<ConnectionPeer<'a>>,
        head: &Head,
        wall: impl FnOnce() -> Duration,
    ) -> ClientIdentity {
        self.identify_if(connection, (head, FieldValue::Absent), wall, None)
    }

    /// The same, with the credential that [`Identifier::credential_in_body`] found in the body. One that is not remembered is
    /// checked only if `check` lets it be, else it is [`Unverified::Unchecked`].
    pub fn identify_if<'a, 'r>(
        &self,
        connection: impl Into<ConnectionPeer<'a>>,
        (head, in_body): (&'r Head, FieldValue<'r>),
        wall: impl FnOnce() -> Duration,
        check: Option<&CredentialCheck<'_>>,
    ) -> ClientIdentity {
        let connection = connection.into();
        let mut who = self.client(connection, &head.fields);
        let (peer, subject) = (connection.peer, connection.subject);
        let given = match &self.settings.token {
            Some(source) => token::find(source, head).or(in_body),
            None => FieldValue::Absent,
        };
        let check = check.map(|check| (&who, check));
        let proof = self.prove((peer, subject), &given, (&head.fields, wall), check);
        who.unverified = proof.unverified;
        who.ambiguous_token = given == FieldValue::Ambiguous;
        // The same credential, read in the stricter way.
        if who.ambiguous_token && proof.token.is_some() {
            who.unverified = Some(Unverified::Ambiguous);
        }
        who.token = match (proof.token, given) {
            (Some(judged), _) => judged,
            (None, FieldValue::One(text)) => Some(self.token_fingerprint(&text)),
            (None, FieldValue::Absent | FieldValue::Ambiguous) => None,
        };
        let plan = match &self.settings.plan.source {
            Some(plan::PlanOrigin::Header { name, .. }) if self.plan_from.contains(peer) => {
                self.plan_by_header(token::header(&head.fields, name.as_str()))
            }
            Some(plan::PlanOrigin::Claim(_) | plan::PlanOrigin::ApiKeys) => proof.plan,
            _ => None,
        };
        who.user = proof.user;
        who.plan = plan.or(who.plan);
        who
    }

    fn token_fingerprint(&self, text: &[u8]) -> Fingerprint {
        self.keyer.fingerprint(Domain::Token, &canonical_form(text))
    }

    fn plan_by_header(&self, given: FieldValue<'_>) -> Option<usize> {
        let FieldValue::One(text) = given else {
            return None;
        };
        self.settings.plan.named(std::str::from_utf8(&text).ok()?)
    }

    /// The key of a limit that counts by `parts`: of those, the ones that are known. Nothing when
    /// none is. The order of `parts` does not matter.
    pub fn key(&self, who: &ClientIdentity, parts: &[Identity]) -> Option<Fingerprint> {
        self.key_under(&self.keyer, who, parts)
    }

    /// What chooses a server by `parts`: as [`Identifier::key`], but not secret, so that ip, user and plan
    /// choose the same in every gateway.
    pub fn placement(&self, who: &ClientIdentity, parts: &[Identity]) -> Option<u64> {
        let Fingerprint(key) = self.key_under(&Keyer::new([0; 16]), who, parts)?;
        // Each half is as good as the whole.
        Some(key as u64)
    }

    fn key_under(
        &self,
        keyer: &Keyer,
        who: &ClientIdentity,
        parts: &[Identity],
    ) -> Option<Fingerprint> {
        let mut mixer = keyer.mix();
        for identity in Identity::ALL
            .into_iter()
            .filter(|identity| parts.contains(identity))
        {
            let tag = tag(identity);
            match identity {
                Identity::Ip => mixer.part(tag, &network_bytes(self.settings.ip.group(who.ip))),
                Identity::User => {
                    if let Some(user) = &who.user {
                        mixer.part(tag, user.as_bytes());
                    }
                }
                Identity::Token => {
                    if let Some(Fingerprint(token)) = who.token {
                        mixer.part(tag, &token.to_le_bytes());
                    }
                }
                Identity::Email => {
                    if let Some(Fingerprint(email)) = who.email {
                        mixer.part(tag, &email.to_le_bytes());
                    }
                }
                Identity::Plan => {
                    let plan = who
                        .plan
                        .and_then(|index| self.settings.plan.plans.get(index));
                    if let Some(plan) = plan {
                        mixer.part(tag, plan.name.as_bytes());
                    }
                }
            }
        }
        mixer.finish()
    }

    /// The networks around an IPv6 client that are wider than what counts as one client, nearest
    /// first; see [`ip::PARENTS`]. For limits that count by ip.
    pub fn parents(&self, who: &ClientIdentity) -> SmallVec<[Parent; 3]> {
        let settings = &self.settings.ip;
        if !settings.parents || who.ip.is_ipv4() {
            return SmallVec::new();
        }
        let ip = settings.counted(who.ip);
        if ip.is_ipv4() {
            return SmallVec::new();
        }
        let wider = ip::PARENTS
            .into_iter()
            .filter(|(length, _)| *length < settings.ipv6);
        wider
            .map(|(length, factor)| {
                let bytes = network_bytes(ip::network(ip, length));
                Parent {
                    key: self.keyer.fingerprint(Domain::Network, &bytes),
                    factor,
                }
            })
            .collect()
    }

    /// Whether a field of this name is one that not everybody may set.
    pub fn guards(&self, name: &[u8]) -> bool {
        self.stripper.guards(name)
    }

    /// Removes what a client may not say of itself; see [`super::strip`]. Whether something stays that only trusted proxies
    /// may say.
    pub fn strip(&self, peer: impl Into<PeerAddress>, fields: &mut Fields) -> bool {
        let peer = peer.into();
        let by_proxy = Cell::new(false);
        self.stripper.strip(fields, |list| match list {
            super::strip::AllowedSetter::Nobody => false,
            super::strip::AllowedSetter::Proxies => {
                by_proxy.set(self.trusted.contains(peer));
                by_proxy.get()
            }
            super::strip::AllowedSetter::User => self.user_from.contains(peer),
            super::strip::AllowedSetter::Plan => self.plan_from.contains(peer),
        });
        by_proxy.get()
    }
}

/// What tells the parts of a key apart. Part of what gateways share, so it may not change.
fn tag(identity: Identity) -> u8 {
    match identity {
        Identity::Ip => 1,
        Identity::User => 2,
        Identity::Token => 3,
        Identity::Email => 4,
        Identity::Plan => 5,
    }
}

/// A network's length and address, the same for every way of writing it.
fn network_bytes(network: ipnet::IpNet) -> SmallVec<[u8; 24]> {
    let mut bytes = SmallVec::new();
    bytes.push(network.prefix_len());
    match network.addr() {
        IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
    }
    bytes
}

#[cfg(test)]
mod tests;
