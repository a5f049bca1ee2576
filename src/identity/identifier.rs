//! Identifies the clients of one worker's requests, and makes keys of limits from their identities. Also removes the
//! header fields that a client must not set.
//!
//! It holds the settings, caches of verified and refused tokens, and the failures of addresses. It never reads a clock:
//! time is an argument. Files in `identifier/` extend the type: they read addresses, credentials, bodies and custom
//! identities, and match clients with limits and overrides.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::canonical::canonical_form;
use super::client_network::network_bytes;
use super::failures::SignatureFailures;
use super::field_value::FieldValue;
use super::fingerprint_cache::FingerprintCache;
use super::ip::TrustedPeers;
use super::key::{Domain, Keyer};
use super::override_table::OverrideTable;
use super::runtime_keys::{RuntimeKeyView, RuntimeKeys};
use super::strip::{AllowedSetter, Stripper};
use super::token::TokenSource;
use super::{ClientIdentity, ConnectionPeer, Settings, Unverified, ip, plan, token, user};
use crate::http::head::{Fields, Head};
use crate::limit::{Fingerprint, Identity, IdentitySet, KeySpec};
use crate::net::{PeerAddress, PeerNetwork};
use crate::route::Route;
use crate::store::ParentNetwork;

mod address;
mod body;
mod buffered_body;
mod custom;
mod denial;
mod entry;
mod filter;
mod overrides;
mod proof;
mod proof_input;
mod verified_token;

pub use buffered_body::{BufferedBody, WantedIdentities};
pub use denial::{Denial, IdentificationStage};
pub use entry::ADDRESS_KEYS;
pub use proof_input::CheckCondition;
use proof_input::ProofInput;
use verified_token::VerifiedToken;

/// Capacity of the cache of verified tokens, in tokens. A worker checks the signature of a token again once its entry
/// was evicted.
const MAX_VERIFIED_TOKENS: usize = 1_024;

/// Capacity of the cache of tokens that failed to verify, in tokens. It is a cache of its own, so that a flood of
/// forged tokens evicts no valid one.
const MAX_REFUSED_TOKENS: usize = 1_024;

// The tags of built-in identities in the hash of a key, each before its value. Gateways share these hashes, so the tags
// must not change. The tags of custom identities, from 6, are in `key.rs`.
const IP_TAG: u8 = 1;
const USER_TAG: u8 = 2;
const TOKEN_TAG: u8 = 3;
const EMAIL_TAG: u8 = 4;
const PLAN_TAG: u8 = 5;

/// Identifies clients. Each worker has an identifier of its own, so that no worker waits for another's cache locks. The
/// threads of a service that uses this crate as a library may share one.
#[derive(Debug)]
pub struct Identifier {
    settings: Settings,
    /// Hashes credentials, addresses and keys of limits with a secret.
    keyer: Keyer,
    /// The peers whose `X-Forwarded-For` and `Forwarded` count.
    trusted_proxies: TrustedPeers,
    /// The peers that may set the user field.
    user_peers: TrustedPeers,
    /// The peers that may set the plan field.
    plan_peers: TrustedPeers,
    /// Removes the fields that a peer must not set.
    stripper: Stripper,
    /// The claims of tokens that verified, by the tokens' fingerprints.
    verified_tokens: Mutex<FingerprintCache<VerifiedToken>>,
    /// Why other tokens did not verify, by the tokens' fingerprints.
    refused_tokens: Mutex<FingerprintCache<Unverified>>,
    /// How often signatures of each address have failed to verify lately.
    signature_failures: SignatureFailures,
    /// The limits that override those of rules for single keys.
    overrides: Arc<OverrideTable>,
    /// The keys that have grants.
    grants: Arc<OverrideTable>,
    /// The API keys that operators add at run time; `None` if the settings accept none.
    runtime_keys: Option<RuntimeKeyView>,
}

/// The parts of a request that identify its client.
pub struct RequestParts<'r> {
    /// The head, before [`Identifier::strip`].
    pub head: &'r Head,
    /// What [`Identifier::credential_in_body`] found in the body.
    pub credential_in_body: FieldValue<'r>,
    /// The route of the request, whose patterns name segments of the path; `None` without a route.
    pub route: Option<&'r Route>,
    /// The custom identities to look for; `None` for all. Those that are forwarded to the upstream or label a metric
    /// are looked for in any case.
    pub wanted_custom: Option<IdentitySet>,
}

/// A request without a body and without a route.
impl<'r> From<&'r Head> for RequestParts<'r> {
    fn from(head: &'r Head) -> RequestParts<'r> {
        RequestParts {
            head,
            credential_in_body: FieldValue::Absent,
            route: None,
            wanted_custom: None,
        }
    }
}

impl Identifier {
    /// Creates an identifier with empty caches and without overrides.
    pub fn new(settings: Settings, keyer: Keyer) -> Identifier {
        let trusted_peers =
            |networks: &[PeerNetwork]| TrustedPeers::new(networks, &settings.ip.nat64_prefixes);
        let user_peers = settings
            .user_field()
            .map(|(_, allowed_peers)| trusted_peers(allowed_peers));
        let plan_peers = match &settings.plan.source {
            Some(plan::PlanSource::Header { allowed_peers, .. }) => trusted_peers(allowed_peers),
            _ => TrustedPeers::default(),
        };
        Identifier {
            trusted_proxies: trusted_peers(&settings.ip.trusted_proxies),
            stripper: Stripper::new(&settings),
            verified_tokens: Mutex::new(FingerprintCache::new(MAX_VERIFIED_TOKENS)),
            refused_tokens: Mutex::new(FingerprintCache::new(MAX_REFUSED_TOKENS)),
            signature_failures: SignatureFailures::default(),
            overrides: Arc::default(),
            grants: Arc::default(),
            runtime_keys: None,
            user_peers: user_peers.unwrap_or_default(),
            plan_peers,
            settings,
            keyer,
        }
    }

    /// Looks for these API keys too, if the settings accept keys that operators add at run time.
    pub fn with_runtime_keys(self, keys: &Arc<RuntimeKeys>) -> Identifier {
        let is_accepted = self.settings.accepts_runtime_keys();
        Identifier {
            runtime_keys: is_accepted.then(|| RuntimeKeyView::new(keys)),
            ..self
        }
    }

    /// Another number means that API keys which operators add at run time have changed. Always 0 if the settings accept
    /// none.
    #[inline]
    pub fn runtime_key_version(&self) -> u64 {
        self.runtime_keys
            .as_ref()
            .map_or(0, RuntimeKeyView::version)
    }

    /// The settings that this identifier was created with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the settings refuse a request whose credential failed for this reason. Only a route that counts by an
    /// identity that the credential would prove refuses it.
    pub fn is_refused(&self, reason: Unverified) -> bool {
        self.settings.on_unverified == user::OnUnverified::Refuse && reason.may_reach_upstream()
    }

    /// Whether the user and the credential depend only on the connection and the header fields, and not on the query,
    /// the body or time. API keys that operators add at run time are left out: see [`Identifier::runtime_key_version`].
    pub fn identifies_by_fields_alone(&self) -> bool {
        let needs_time = |user: &user::Settings| match user {
            user::Settings::Jwt(_) => true,
            user::Settings::ApiKeys(keys) => keys.may_expire(),
            user::Settings::Header { .. } | user::Settings::ClientCert(_) => false,
        };
        !self.settings.has_token_in_query() && !self.settings.user_sources.iter().any(needs_time)
    }

    /// Identifies the client of a request from its head; call it before [`Identifier::strip`].
    ///
    /// All custom identities of the head are looked for, and every credential is checked. `connection` is the peer, or
    /// only its address. `wall_clock` returns the time since the Unix epoch, and is called only if a credential has a
    /// time.
    pub fn identify<'a>(
        &self,
        connection: impl Into<ConnectionPeer<'a>>,
        head: &Head,
        wall_clock: impl Fn() -> Duration,
    ) -> ClientIdentity {
        self.identify_with_check(connection, head.into(), wall_clock, None)
    }

    /// Identifies the client of a request as [`Identifier::identify`] does. A token that no cache has is checked only
    /// if `check_condition` and the earlier failures of the client's address allow it; otherwise it is
    /// [`Unverified::Unchecked`]. Without a condition every token is checked, and failures are not counted.
    pub fn identify_with_check<'a, 'r>(
        &self,
        connection: impl Into<ConnectionPeer<'a>>,
        request: RequestParts<'r>,
        wall_clock: impl Fn() -> Duration,
        check_condition: Option<&CheckCondition<'_>>,
    ) -> ClientIdentity {
        let connection = connection.into();
        let head = request.head;
        let mut client = self.identify_by_address(connection, &head.fields);
        let find_credential = |source: &TokenSource| {
            let credential = token::find_credential(source, head);
            match source {
                TokenSource::Query(_) => credential.combine(request.credential_in_body.clone()),
                _ => credential,
            }
        };
        let mut credentials = self.settings.token_sources.iter().map(find_credential);
        let credential = credentials.find(|credential| *credential != FieldValue::Absent);
        let credential = credential.unwrap_or(FieldValue::Absent);
        let proof_input = ProofInput {
            connection,
            fields: &head.fields,
            credential: &credential,
            check_condition: check_condition.map(|condition| (&client, condition)),
        };
        let proof = self.prove_user(&proof_input, &wall_clock);
        client.unverified = proof.unverified;
        client.is_token_ambiguous = credential == FieldValue::Ambiguous;
        // `proof.token` is set if the token is also the credential of the user. The rules for reading a token are
        // stricter than those for the user, so they decide.
        if client.is_token_ambiguous && proof.token.is_some() {
            client.unverified = Some(Unverified::Ambiguous);
        }
        client.token = match (proof.token, credential) {
            (Some(proven_token), _) => proven_token,
            (None, FieldValue::Single(text)) => Some(self.token_fingerprint(&text)),
            (None, FieldValue::Absent | FieldValue::Ambiguous) => None,
        };
        let plan = match &self.settings.plan.source {
            Some(plan::PlanSource::Header { name, .. })
                if self.plan_peers.contains(connection.peer) =>
            {
                self.plan_in_field(token::single_value(&head.fields, name.as_str()))
            }
            Some(plan::PlanSource::Claim(_) | plan::PlanSource::ApiKeys) => proof.plan,
            _ => None,
        };
        client.user = proof.user;
        client.user_source = proof.user_source;
        client.runtime_key = proof.runtime_key;
        client.plan = plan.or(client.plan);
        if !self.settings.custom.is_empty() {
            self.set_custom(&mut client, connection, &request, proof.custom);
        }
        client
    }

    /// The keyed hash of a credential. All spellings that [`canonical_form`] takes for one have the same hash.
    fn token_fingerprint(&self, text: &[u8]) -> Fingerprint {
        self.keyer.fingerprint(Domain::Token, &canonical_form(text))
    }

    /// The index of the plan that the value of a header field names; `None` if the field is absent or ambiguous, or
    /// names no configured plan.
    fn plan_in_field(&self, field: FieldValue<'_>) -> Option<usize> {
        let FieldValue::Single(name) = field else {
            return None;
        };
        self.settings
            .plan
            .index_of(std::str::from_utf8(&name).ok()?)
    }

    /// The key of a limit for this client, made of those parts that the client has; `None` if it has none of them. A
    /// limit for everyone has one key for all clients. The order of the parts does not matter.
    pub fn key(&self, client: &ClientIdentity, spec: &KeySpec) -> Option<Fingerprint> {
        self.key_with_identities(client, spec).map(|(key, _)| key)
    }

    /// The key that [`Identifier::key`] returns, and the identities of which it is made.
    pub fn key_with_identities(
        &self,
        client: &ClientIdentity,
        spec: &KeySpec,
    ) -> Option<(Fingerprint, IdentitySet)> {
        let key_identities = spec.select(|identity| client.has(identity));
        let key = match spec.is_everyone() {
            true => self.keyer.fingerprint(Domain::Everyone, &[]),
            false => self.hash_identities(&self.keyer, client, key_identities)?,
        };
        Some((key, key_identities))
    }

    /// The key of a limit that counts by this identity alone; `None` if the client does not have it.
    pub fn single_identity_key(
        &self,
        client: &ClientIdentity,
        identity: Identity,
    ) -> Option<Fingerprint> {
        let key_identities = IdentitySet::from_iter([identity]);
        self.hash_identities(&self.keyer, client, key_identities)
    }

    /// A hash of the client's `identities` that chooses a server; `None` if the client has none of them. It is made
    /// without the secret, so that every gateway chooses the same server by ip, user and plan. Tokens and emails are
    /// hashed with the secret already, so gateways choose the same server by them only if they share it.
    pub fn placement_hash(&self, client: &ClientIdentity, identities: &[Identity]) -> Option<u64> {
        let identities = identities.iter().copied().collect();
        let Fingerprint(hash) = self.hash_identities(&Keyer::new([0; 16]), client, identities)?;
        // Either half of a hash is as random as the whole.
        Some(hash as u64)
    }

    /// The hash of those of the identities that the client has; `None` if it has none of them.
    fn hash_identities(
        &self,
        keyer: &Keyer,
        client: &ClientIdentity,
        identities: IdentitySet,
    ) -> Option<Fingerprint> {
        let mut hasher = keyer.key_hasher();
        for identity in identities.built_in() {
            match identity {
                Identity::Ip => {
                    let network = self.settings.ip.client_network(client.ip);
                    hasher.add_part(IP_TAG, &network_bytes(network));
                }
                Identity::User => {
                    if let Some(user) = &client.user {
                        hasher.add_part(USER_TAG, user.as_bytes());
                    }
                }
                Identity::Token => {
                    if let Some(Fingerprint(token)) = client.token {
                        hasher.add_part(TOKEN_TAG, &token.to_le_bytes());
                    }
                }
                Identity::Email => {
                    if let Some(Fingerprint(email)) = client.email {
                        hasher.add_part(EMAIL_TAG, &email.to_le_bytes());
                    }
                }
                Identity::Plan => {
                    let plans = &self.settings.plan.plans;
                    if let Some(plan) = client.plan.and_then(|index| plans.get(index)) {
                        hasher.add_part(PLAN_TAG, plan.name.as_bytes());
                    }
                }
                Identity::Custom(_) => {}
            }
        }
        for identity in identities.custom() {
            if let Some(value) = client.custom_value(identity) {
                hasher.add_custom(identity, value);
            }
        }
        hasher.finish()
    }

    /// The networks around an IPv6 client that have budgets of their own for limits by ip, the nearest first; see
    /// [`ip::PARENT_PREFIXES`]. Only networks wider than the client's own are listed, and none for an IPv4 client.
    pub fn parent_networks(&self, client: &ClientIdentity) -> SmallVec<[ParentNetwork; 3]> {
        let settings = &self.settings.ip;
        if !settings.has_parent_budgets || client.ip.is_ipv4() {
            return SmallVec::new();
        }
        let ip = settings.counted_address(client.ip);
        if ip.is_ipv4() {
            return SmallVec::new();
        }
        ip::PARENT_PREFIXES
            .into_iter()
            .filter(|parent| parent.length < settings.ipv6_prefix_length)
            .map(|parent| {
                let bytes = network_bytes(ip::network(ip, parent.length));
                ParentNetwork {
                    key: self.keyer.fingerprint(Domain::Network, &bytes),
                    factor: parent.budget_factor,
                }
            })
            .collect()
    }

    /// Whether a field of this name must not come in a trailer. Such a field may be set by some peers only, overrides
    /// the method, or gives an identity: see [`super::strip`].
    pub fn is_protected(&self, name: &[u8]) -> bool {
        self.stripper.is_protected(name)
    }

    /// Whether the peer is a proxy whose statements about the client are believed.
    pub fn is_trusted_proxy(&self, peer: impl Into<PeerAddress>) -> bool {
        self.trusted_proxies.contains(peer.into())
    }

    /// Whether an identity comes from the header field of this name.
    pub fn is_identity_field(&self, name: &[u8]) -> bool {
        self.stripper.is_identity_field(name)
    }

    /// Whether applications may take this field for a protected one or for the source of an identity. Its name is spelled
    /// otherwise, such as `X_Api_Key`.
    pub fn is_other_spelling(&self, name: &[u8]) -> bool {
        self.stripper.is_other_spelling(name)
    }

    /// Removes the fields that this peer must not set; see [`super::strip`]. Returns true if a field was kept because
    /// the peer is a trusted proxy.
    pub fn strip(&self, peer: impl Into<PeerAddress>, fields: &mut Fields) -> bool {
        let peer = peer.into();
        let has_proxy_fields = Cell::new(false);
        self.stripper.strip(fields, |setter| match setter {
            AllowedSetter::Nobody => false,
            AllowedSetter::TrustedProxies => {
                has_proxy_fields.set(self.trusted_proxies.contains(peer));
                has_proxy_fields.get()
            }
            AllowedSetter::UserPeers => self.user_peers.contains(peer),
            AllowedSetter::PlanPeers => self.plan_peers.contains(peer),
        });
        has_proxy_fields.get()
    }
}

#[cfg(test)]
mod tests;
