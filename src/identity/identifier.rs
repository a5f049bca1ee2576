//! One worker's view of who asks: the settings, made ready, and what is remembered of tokens.

use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::form::Found;
use super::ip::Trusted;
use super::key::{Domain, Keyer};
use super::strip::Stripper;
use super::verdict::Cache;
use super::{Connection, Settings, Who, email, ip, jwt, plan, token, user};
use crate::head::{Fields, Head};
use crate::limit::{Fingerprint, Identity};
use crate::store::Parent;

/// Tokens that verified, remembered by each worker.
const REMEMBERED: usize = 1_024;

/// Tokens that did not verify, remembered by each worker apart from those that did: a flood of forged
/// ones makes no honest one be verified again.
const REMEMBERED_BAD: usize = 1_024;

/// Finds out who asks. Every worker has its own, so that nobody waits for the locks around what it
/// remembers; a service that runs on several threads may share one.
#[derive(Debug)]
pub struct Identifier {
    settings: Settings,
    keyer: Keyer,
    trusted: Trusted,
    user_from: Trusted,
    plan_from: Trusted,
    stripper: Stripper,
    verified: Mutex<Cache<Verified>>,
    refused: Mutex<Cache<()>>,
}

#[derive(Clone, Debug)]
struct Verified {
    claims: jwt::Claims,
    plan: Option<usize>,
}

/// What the configured proof of a user came to.
#[derive(Default)]
struct Proof {
    user: Option<std::sync::Arc<str>>,
    plan: Option<usize>,
    /// Something was given and did not verify.
    failed: bool,
    /// More than one thing was given.
    ambiguous: bool,
    /// The proof was looked for where [`Settings::token`] is, so that a token counts only if it
    /// verified, as this fingerprint.
    token: Option<Option<Fingerprint>>,
}

impl Identifier {
    /// Made ready for one worker.
    pub fn new(settings: Settings, keyer: Keyer) -> Identifier {
        let from = |networks: &[ipnet::IpNet]| Trusted::new(networks);
        let user_from = match &settings.user {
            Some(user::Settings::Header { from: networks, .. }) => from(networks),
            _ => Trusted::default(),
        };
        let plan_from = match &settings.plan.source {
            Some(plan::Source::Header { from: networks, .. }) => from(networks),
            _ => Trusted::default(),
        };
        Identifier {
            trusted: from(&settings.ip.trusted_proxies),
            stripper: Stripper::new(&settings),
            verified: Mutex::new(Cache::new(REMEMBERED)),
            refused: Mutex::new(Cache::new(REMEMBERED_BAD)),
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

    /// Whether the fields of a request and its connection are all that [`Identifier::identify`] looks at.
    pub fn looks_at_fields_only(&self) -> bool {
        let in_target = matches!(self.settings.token, Some(token::Source::Query(_)));
        let for_a_time = matches!(self.settings.user, Some(user::Settings::Jwt(_)));
        !in_target && !for_a_time
    }

    /// Who the request is from, as far as its head tells. `connection` is the one that it came over, or
    /// the address of its other end; `wall` is asked for the time since the epoch only if a token has one. Call it before
    /// [`Identifier::strip`].
    pub fn identify<'a>(
        &self,
        connection: impl Into<Connection<'a>>,
        head: &Head,
        wall: impl FnOnce() -> Duration,
    ) -> Who {
        let Connection { peer, subject } = connection.into();
        let peer = peer.to_canonical();
        let client = ip::client(&self.trusted, peer, &head.fields);
        let mut who = Who::new(client.ip);
        who.ip_unclear = client.unclear;
        who.plan = self.settings.plan.default;
        let given = match &self.settings.token {
            Some(source) => token::find(source, head),
            None => Found::Absent,
        };
        let proof = match &self.settings.user {
            None => Proof::default(),
            Some(user::Settings::Jwt(jwt)) => self.by_jwt(jwt, &head.fields, wall),
            Some(user::Settings::ApiKeys(keys)) => {
                let bearer;
                let credential = if self.settings.token.is_some() {
                    &given
                } else {
                    bearer = token::bearer(&head.fields);
                    &bearer
                };
                self.by_key(keys, credential)
            }
            Some(user::Settings::Header { name, .. }) => {
                let given = token::header(&head.fields, name.as_str());
                by_header(given, self.user_from.contains(peer))
            }
            Some(user::Settings::ClientCert(named)) => {
                let user = subject.and_then(|subject| named.of(subject));
                Proof {
                    failed: subject.is_some() && user.is_none(),
                    user,
                    ..Proof::default()
                }
            }
        };
        who.ambiguous = proof.ambiguous || given == Found::Ambiguous;
        who.token = match (proof.token, given) {
            (Some(judged), _) => judged,
            (None, Found::One(text)) => Some(self.keyer.fingerprint(Domain::Token, &text)),
            (None, Found::Absent) => None,
            (None, Found::Ambiguous) => {
                who.unverified = true;
                None
            }
        };
        who.unverified |= proof.failed;
        let plan = match &self.settings.plan.source {
            Some(plan::Source::Header { name, .. }) if self.plan_from.contains(peer) => {
                self.plan_by_header(token::header(&head.fields, name.as_str()))
            }
            Some(plan::Source::Claim(_) | plan::Source::ApiKeys) => proof.plan,
            _ => None,
        };
        who.user = proof.user;
        who.plan = plan.or(who.plan);
        who
    }

    fn by_jwt(
        &self,
        settings: &jwt::Settings,
        fields: &Fields,
        wall: impl FnOnce() -> Duration,
    ) -> Proof {
        // The signed part stands for the token: the signature of an ECDSA token can be rewritten
        // into another valid one by anybody.
        let judges = match &self.settings.token {
            Some(token::Source::Bearer) => true,
            Some(token::Source::Header(name)) => name == AUTHORIZATION,
            _ => false,
        };
        let judged = |token| judges.then_some(token);
        let text = match token::bearer(fields) {
            Found::Absent => {
                return Proof {
                    token: judged(None),
                    ..Proof::default()
                };
            }
            Found::Ambiguous => {
                return Proof {
                    failed: true,
                    ambiguous: true,
                    token: judged(None),
                    ..Proof::default()
                };
            }
            Found::One(text) => text,
        };
        match self
            .verified(settings, &text)
            .filter(|known| known.claims.hold_at(wall()))
        {
            None => Proof {
                failed: true,
                token: judged(None),
                ..Proof::default()
            },
            Some(known) => {
                let end = text
                    .iter()
                    .rposition(|byte| *byte == b'.')
                    .unwrap_or(text.len());
                let token =
                    judges.then(|| Some(self.keyer.fingerprint(Domain::Token, &text[..end])));
                Proof {
                    user: Some(known.claims.user),
                    plan: known.plan,
                    token,
                    ..Proof::default()
                }
            }
        }
    }

    /// What a token says, verified now or before, whether its time is right or not.
    fn verified(&self, settings: &jwt::Settings, text: &[u8]) -> Option<Verified> {
        let key = self.keyer.fingerprint(Domain::Verdict, text);
        if let Some(known) = self.verified.lock().get(key) {
            return Some(known.clone());
        }
        if self.refused.lock().get(key).is_some() {
            return None;
        }
        let claim = match &self.settings.plan.source {
            Some(plan::Source::Claim(claim)) => Some(claim.as_str()),
            _ => None,
        };
        match jwt::verify(settings, claim, text) {
            None => {
                self.refused.lock().put(key, ());
                None
            }
            Some(mut claims) => {
                let named = claims.plan.take();
                let plan = named.and_then(|plan| self.settings.plan.named(&plan));
                let known = Verified { claims, plan };
                self.verified.lock().put(key, known.clone());
                Some(known)
            }
        }
    }

    fn by_key(&self, keys: &super::api_keys::Keys, given: &Found<'_>) -> Proof {
        let failed = Proof {
            token: Some(None),
            failed: true,
            ..Proof::default()
        };
        match given {
            Found::Absent => Proof {
                failed: false,
                ..failed
            },
            Found::Ambiguous => Proof {
                ambiguous: true,
                ..failed
            },
            Found::One(text) => match keys.lookup(text) {
                None => failed,
                Some(owner) => Proof {
                    user: Some(owner.user.clone()),
                    plan: owner.plan,
                    token: Some(
                        self.settings
                            .token
                            .is_some()
                            .then(|| self.keyer.fingerprint(Domain::Token, text)),
                    ),
                    ..Proof::default()
                },
            },
        }
    }

    fn plan_by_header(&self, given: Found<'_>) -> Option<usize> {
        let Found::One(text) = given else { return None };
        self.settings.plan.named(std::str::from_utf8(&text).ok()?)
    }

    /// Whether the request's body is worth holding back to look for an address: at most
    /// [`email::Settings::max_body`] bytes, as far as its head tells, of a kind that is read.
    pub fn wants_body(&self, head: &Head) -> bool {
        let Some(settings) = &self.settings.email else {
            return false;
        };
        if matches!(
            head.method,
            Method::GET | Method::HEAD | Method::CONNECT | Method::TRACE
        ) {
            return false;
        }
        let fields = &head.fields;
        let length = fields.text("content-length");
        let fits = length.and_then(|text| text.parse::<usize>().ok());
        fits.is_none_or(|length| length > 0 && length <= settings.max_body)
            && !fields.contains("content-encoding")
            && email::Media::of(fields.first("content-type")) != email::Media::Multipart
    }

    /// Looks for an address in the complete body.
    pub fn set_email(&self, who: &mut Who, content_type: Option<&[u8]>, body: &[u8]) {
        let Some(settings) = &self.settings.email else {
            return;
        };
        let found = email::find(settings, content_type, body);
        who.email = found.map(|text| self.keyer.fingerprint(Domain::Email, text.as_bytes()));
    }

    /// The keyed hash of a credential that an operator wrote.
    pub fn token_key(&self, text: &str) -> Fingerprint {
        self.keyer.fingerprint(Domain::Token, text.as_bytes())
    }

    /// The keyed hash of an email address that an operator wrote; none if it is not one.
    pub fn email_key(&self, text: &str) -> Option<Fingerprint> {
        let normal = email::normalise(text)?;
        Some(self.keyer.fingerprint(Domain::Email, normal.as_bytes()))
    }

    /// The key of a limit that counts by `parts`: of those, the ones that are known. Nothing when
    /// none is. The order of `parts` does not matter.
    pub fn key(&self, who: &Who, parts: &[Identity]) -> Option<Fingerprint> {
        self.key_under(&self.keyer, who, parts)
    }

    /// Who [`Identifier::key`] is of, as operators write it: `ip=203.0.113.9,user=alice`. Of what is only known as a hash
    /// its beginning, behind a `#`.
    pub fn key_name(&self, who: &Who, parts: &[Identity]) -> String {
        let mut name = String::new();
        for identity in parts {
            let part = match identity {
                Identity::Ip => {
                    let network = self.settings.ip.group(who.ip);
                    let single = network.prefix_len() == network.max_prefix_len();
                    Some(if single {
                        who.ip.to_string()
                    } else {
                        network.to_string()
                    })
                }
                Identity::User => who.user.as_deref().map(|user| self.user_name(user)),
                Identity::Token => who.token.map(hash),
                Identity::Email => who.email.map(hash),
                Identity::Plan => {
                    let plan = who.plan.and_then(|plan| self.settings.plan.plans.get(plan));
                    plan.map(|plan| plan.name.to_string())
                }
            };
            if let Some(part) = part {
                let comma = if name.is_empty() { "" } else { "," };
                name = name + comma + identity.as_str() + "=" + &part;
            }
        }
        name
    }

    /// How a user is called where it is kept: one that is an address of email as such are.
    pub fn user_name(&self, user: &str) -> String {
        self.email_key(user).map_or_else(|| user.to_owned(), hash)
    }

    /// What chooses a server by `parts`: as [`Identifier::key`], but not secret, so that ip, user and plan
    /// choose the same in every gateway.
    pub fn placement(&self, who: &Who, parts: &[Identity]) -> Option<u64> {
        let Fingerprint(key) = self.key_under(&Keyer::new([0; 16]), who, parts)?;
        // Each half is as good as the whole.
        Some(key as u64)
    }

    fn key_under(&self, keyer: &Keyer, who: &Who, parts: &[Identity]) -> Option<Fingerprint> {
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
    pub fn parents(&self, who: &Who) -> SmallVec<[Parent; 3]> {
        let settings = &self.settings.ip;
        let IpAddr::V6(six) = who.ip else {
            return SmallVec::new();
        };
        if !settings.parents || six.to_ipv4_mapped().is_some() {
            return SmallVec::new();
        }
        let wider = ip::PARENTS
            .into_iter()
            .filter(|(length, _)| *length < settings.ipv6);
        wider
            .map(|(length, factor)| {
                let bytes = network_bytes(ip::network(who.ip, length));
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

    /// Removes what a client may not say of itself; see [`super::strip`].
    pub fn strip(&self, peer: IpAddr, fields: &mut Fields) {
        let peer = peer.to_canonical();
        self.stripper.strip(fields, |list| match list {
            super::strip::List::Nobody => false,
            super::strip::List::Proxies => self.trusted.contains(peer),
            super::strip::List::User => self.user_from.contains(peer),
            super::strip::List::Plan => self.plan_from.contains(peer),
        });
    }
}

fn by_header(given: Found<'_>, believed: bool) -> Proof {
    let ambiguous = believed && given == Found::Ambiguous;
    let user = match &given {
        Found::Absent => return Proof::default(),
        Found::One(text) if believed => std::str::from_utf8(text).ok().and_then(user::name),
        Found::One(_) | Found::Ambiguous => None,
    };
    Proof {
        failed: user.is_none(),
        ambiguous,
        user,
        ..Proof::default()
    }
}

/// The beginning of a hash, for people.
fn hash(key: Fingerprint) -> String {
    format!("#{:012x}", key.0 >> 80)
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
