//! [`BanIndex`]: finds the ban of an address or of an identified client. It is made of the bans that hold, never changes,
//! and is replaced as a whole.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::IpNet;

use super::entry::OperatorEntry;
use super::entry_map::EntrySlot;
use super::error::BanError;
use crate::base::clock::Nanos;
use crate::identity::embedded_ipv4::{counts_as_ipv4, untranslated_network};
use crate::identity::{ClientIdentity, IdentificationStage, Identifier};
use crate::limit::{Fingerprint, Identity, IdentitySet, KeySpec};

/// A ban that holds.
#[derive(Debug)]
pub struct ActiveBan {
    /// The key or the network as operators write it.
    pub key: Box<str>,
    /// When it ends, by the gateway's monotonic clock.
    pub until: Nanos,
    hits: Arc<AtomicU64>,
}

impl ActiveBan {
    /// Counts a request that was refused because of the ban.
    pub fn count_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }
}

/// The bans that hold. Bound: [`BanRegistry::MAX_BANS`](super::BanRegistry::MAX_BANS).
#[derive(Debug, Default)]
pub struct BanIndex {
    /// The banned networks by the length of their prefixes.
    networks: Vec<BannedNetworks>,
    /// The banned keys by the identities that they are made of.
    keys: Vec<BannedKeys>,
}

/// The banned networks of one version of IP and one length of prefix.
#[derive(Debug)]
struct BannedNetworks {
    is_v4: bool,
    prefix_length: u8,
    bans: HashMap<u128, Arc<ActiveBan>>,
}

/// The banned keys that are made of the same identities.
#[derive(Debug)]
struct BannedKeys {
    identities: IdentitySet,
    spec: KeySpec,
    bans: HashMap<Fingerprint, Arc<ActiveBan>>,
}

/// What a key bans.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BannedSubject {
    /// The addresses of a network.
    Network(IpNet),
    /// The clients with all of these identities and this hash.
    Key(KeySpec, Fingerprint),
}

impl BanIndex {
    /// Adds a ban that ends at `until`. Of two bans of one subject the one that ends last counts.
    pub(super) fn insert(&mut self, subject: BannedSubject, slot: &EntrySlot, until: Nanos) {
        let ban = Arc::new(ActiveBan {
            key: slot.entry.key.as_str().into(),
            until,
            hits: slot.hits.clone(),
        });
        match subject {
            BannedSubject::Network(network) => {
                let (is_v4, prefix_length) = (network.addr().is_ipv4(), network.prefix_len());
                let is_alike = |networks: &BannedNetworks| {
                    (networks.is_v4, networks.prefix_length) == (is_v4, prefix_length)
                };
                let index = self.networks.iter().position(is_alike);
                let index = index.unwrap_or_else(|| {
                    self.networks.push(BannedNetworks {
                        is_v4,
                        prefix_length,
                        bans: HashMap::new(),
                    });
                    self.networks.len() - 1
                });
                let bans = &mut self.networks[index].bans;
                insert_longer(bans, leading_bits(network.addr(), prefix_length), ban);
            }
            BannedSubject::Key(spec, fingerprint) => {
                let identities: IdentitySet = spec.identities().collect();
                let is_alike = |keys: &BannedKeys| keys.identities == identities;
                let index = self.keys.iter().position(is_alike);
                let index = index.unwrap_or_else(|| {
                    self.keys.push(BannedKeys {
                        identities,
                        spec,
                        bans: HashMap::new(),
                    });
                    self.keys.len() - 1
                });
                insert_longer(&mut self.keys[index].bans, fingerprint, ban);
            }
        }
    }

    /// Whether no ban holds.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.keys.is_empty()
    }

    /// Whether some ban depends on the address, alone or with other identities.
    pub fn needs_address(&self) -> bool {
        let needs_address = |keys: &BannedKeys| keys.identities.contains(Identity::Ip);
        !self.networks.is_empty() || self.keys.iter().any(needs_address)
    }

    /// The identities by which clients are banned, without networks.
    pub fn identities(&self) -> IdentitySet {
        let sets = self.keys.iter().map(|keys| keys.identities);
        sets.fold(IdentitySet::default(), IdentitySet::union)
    }

    /// The ban of an address that holds at `now`, in the widest network if there are several. The caller replaces an IPv6
    /// address that stands for an IPv4 address.
    pub fn find_address(&self, ip: IpAddr, now: Nanos) -> Option<&Arc<ActiveBan>> {
        self.networks.iter().find_map(|networks| {
            if networks.is_v4 != ip.is_ipv4() {
                return None;
            }
            let bits = leading_bits(ip, networks.prefix_length);
            networks.bans.get(&bits).filter(|ban| now < ban.until)
        })
    }

    /// The ban of an identified client that holds at `now`, by another identity than its address alone. The plan is not
    /// known by the head alone, because a credential in the body may decide it.
    pub fn find_client(
        &self,
        client: &ClientIdentity,
        identifier: &Identifier,
        stage: IdentificationStage,
        now: Nanos,
    ) -> Option<&Arc<ActiveBan>> {
        self.keys.iter().find_map(|keys| {
            if stage == IdentificationStage::Head && keys.identities.contains(Identity::Plan) {
                return None;
            }
            let has = |identity| match identity {
                Identity::Ip => !client.is_ip_unclear,
                _ => client.has(identity),
            };
            let has_all = keys.spec.identities().all(has);
            let key = has_all.then(|| identifier.key(client, &keys.spec))??;
            keys.bans.get(&key).filter(|ban| now < ban.until)
        })
    }

    /// Brings the widest networks first, so that a nested ban does not hide a longer one.
    pub(super) fn finish(mut self) -> BanIndex {
        self.networks.sort_by_key(|networks| networks.prefix_length);
        self
    }
}

/// Reads what an entry bans; `None` if the configuration does not know one of its identities any more.
pub(super) fn subject_of(entry: &OperatorEntry, identifier: &Identifier) -> Option<BannedSubject> {
    let network = entry.key.strip_prefix("ip=");
    if let Some(network) = network.and_then(parse_network) {
        // No order is for everybody, whatever a file or a store says.
        let is_everyone = network.prefix_len() == 0;
        return (!is_everyone).then_some(BannedSubject::Network(network));
    }
    let identities = identifier.named_identities(&entry.key).ok()?;
    let spec = KeySpec::from(identities.as_slice());
    let fingerprint = match entry.fingerprint() {
        Some(fingerprint) => fingerprint,
        None => {
            let client = identifier.parse_key(&entry.key, &spec).ok()?;
            identifier.key(&client, &spec)?
        }
    };
    Some(BannedSubject::Key(spec, fingerprint))
}

/// A key as an operator writes it, in its canonical form.
pub(super) struct CanonicalKey {
    pub(super) text: String,
    /// The hash of the key, if the text alone does not lead to it.
    pub(super) fingerprint: Option<Fingerprint>,
}

/// Reads a key that an operator writes: identities with their values, a network, or an address. An address without the
/// length of a prefix stands for its client's network, as in limits.
///
/// # Errors
///
/// The text is no key, or its network is that of all addresses.
pub(super) fn canonical_key(text: &str, identifier: &Identifier) -> Result<CanonicalKey, BanError> {
    let text = text.trim();
    let network_text = text.strip_prefix("ip=").unwrap_or(text).trim();
    if let Some(network) = parse_network(network_text) {
        let settings = &identifier.settings().ip;
        let network = match network_text.contains('/') {
            true => untranslated_network(network, &settings.nat64_prefixes),
            false => settings.client_network(network.addr()),
        };
        if network.prefix_len() == 0 {
            return Err(BanError::Everyone);
        }
        if counts_as_ipv4(network) {
            return Err(BanError::Tunnels(network.to_string()));
        }
        let is_single = network.prefix_len() == network.max_prefix_len();
        return Ok(CanonicalKey {
            text: match is_single {
                true => format!("ip={}", network.addr()),
                false => format!("ip={network}"),
            },
            fingerprint: None,
        });
    }
    let identities = identifier.named_identities(text)?;
    let spec = KeySpec::from(identities.as_slice());
    let client = identifier.parse_key(text, &spec)?;
    let spec = ordered_spec(identities.into_iter().collect());
    let key_text = identifier.format_key(&client, &spec);
    let fingerprint = identifier.key(&client, &spec);
    let parsed = identifier.parse_key(&key_text, &spec).ok();
    let is_readable = parsed.is_some_and(|parsed| identifier.key(&parsed, &spec) == fingerprint);
    Ok(CanonicalKey {
        text: key_text,
        fingerprint: fingerprint.filter(|_| !is_readable),
    })
}

/// A key of these identities in an order that does not depend on who writes it.
pub(super) fn ordered_spec(identities: IdentitySet) -> KeySpec {
    let identities: Vec<Identity> = identities.iter().collect();
    KeySpec::from(identities.as_slice())
}

/// A key that is too long, with its hash in place of its values.
pub(super) fn hashed_key_text(identities: IdentitySet, key: Fingerprint) -> String {
    let hash = OperatorEntry::format_fingerprint(key);
    let parts = identities.iter();
    let parts: Vec<String> = parts
        .map(|identity| format!("{}=#{hash}", identity.as_str()))
        .collect();
    parts.join(",")
}

/// Adds a ban, unless there is one that ends later.
fn insert_longer<K: Eq + std::hash::Hash>(
    bans: &mut HashMap<K, Arc<ActiveBan>>,
    key: K,
    ban: Arc<ActiveBan>,
) {
    let held = bans.entry(key).or_insert_with(|| ban.clone());
    if held.until < ban.until {
        *held = ban;
    }
}

/// Parses a network, or an address as the network of itself.
pub(super) fn parse_network(text: &str) -> Option<IpNet> {
    let single_address = || text.parse::<IpAddr>().map(IpNet::from);
    let network: IpNet = text.parse().or_else(|_| single_address()).ok()?;
    Some(network.trunc())
}

/// The first `length` bits of an address as a number.
fn leading_bits(ip: IpAddr, length: u8) -> u128 {
    let (bits, width) = match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits()), u32::BITS),
        IpAddr::V6(ip) => (ip.to_bits(), u128::BITS),
    };
    let dropped_bits = width.saturating_sub(u32::from(length));
    bits.checked_shr(dropped_bits).unwrap_or(0)
}
