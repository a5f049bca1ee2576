//! [`BanRegistry`]: the bans among the entries of a gateway. Operators and limits change it, and workers read what follows
//! from it.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use super::ban_index::{
    BanIndex, canonical_key, hashed_key_text, ordered_spec, parse_network, subject_of,
};
use super::entry::{EntryGroup, EntryKind, OperatorEntry};
use super::entry_registry::{EntryRegistry, RefreshedEntries};
use super::error::BanError;
use super::offences::OffenceTable;
use super::registry_state::{RegistryState, bounded_name};
use crate::base::clock::Nanos;
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::{BanPolicy, Fingerprint, Identity, Rule};

/// The shortest ban.
const MIN_DURATION: Duration = Duration::from_secs(1);
/// The longest ban: ten years.
const MAX_DURATION: Duration = Duration::from_secs(3_650 * 86_400);
/// How far the wall clock may move against the monotonic clock before the ends of bans are computed anew.
const MAX_CLOCK_DRIFT_MILLIS: u64 = 200;

/// The bans of a gateway.
#[derive(Debug)]
pub struct BanRegistry {
    entries: Arc<EntryRegistry>,
    /// Counts the indexes that were published. Workers compare it with that of the index that they have.
    version: AtomicU64,
    index: Mutex<Arc<BanIndex>>,
    /// What the published index depends on beside the entries: the seed of the keyer, and the milliseconds since 1970 at the
    /// origin of the monotonic clock. `None` before the first index.
    index_basis: Mutex<Option<(u64, u64)>>,
    /// The refusals of limits that ban.
    offences: OffenceTable,
    /// The clients that limits ban at the next [`BanRegistry::ban_offenders`]; at most as many as there may be bans.
    offenders: Mutex<Vec<Offender>>,
}

/// A client that a limit bans.
#[derive(Debug)]
struct Offender {
    /// The key, as the limit writes it.
    key: String,
    /// The hash of the key, if the text does not lead to it.
    fingerprint: Option<Fingerprint>,
    /// The name of the limit.
    limit: String,
    policy: BanPolicy,
}

/// A ban as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBan {
    /// The entry.
    pub entry: OperatorEntry,
    /// Requests that this gateway has refused because of it, since its start.
    pub hits: u64,
    /// Whether the ban is on the disk.
    pub is_kept: bool,
}

/// A ban that an operator orders.
#[derive(Clone, Debug)]
pub struct NewBan {
    /// The key, network or address.
    pub key: String,
    /// How long it lasts.
    pub duration: Duration,
    /// Why; may be empty.
    pub reason: String,
    /// Who orders it.
    pub by: String,
}

impl BanRegistry {
    /// The most bans.
    pub const MAX_BANS: usize = EntryGroup::Bans.max_entries();

    /// The bans among these entries.
    pub fn new(entries: Arc<EntryRegistry>) -> BanRegistry {
        BanRegistry {
            entries,
            version: AtomicU64::new(0),
            index: Mutex::default(),
            index_basis: Mutex::default(),
            offences: OffenceTable::default(),
            offenders: Mutex::default(),
        }
    }

    /// The entries of which the bans are some.
    #[cfg(test)]
    pub(super) fn entries(&self) -> &EntryRegistry {
        &self.entries
    }

    /// The number of the current index: another number means another index.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The index of the bans that hold.
    pub fn index(&self) -> Arc<BanIndex> {
        self.index.lock().clone()
    }

    /// Orders a ban, or changes the one of the same key. It is on the disk when this returns, if it can be kept.
    ///
    /// # Errors
    ///
    /// See [`BanError`].
    pub fn ban(&self, new_ban: NewBan, identifier: &Identifier) -> Result<ListedBan, BanError> {
        let NewBan {
            key,
            duration,
            reason,
            by,
        } = new_ban;
        for (name, text, most) in [
            ("key", &key, OperatorEntry::MAX_KEY_BYTES),
            ("reason", &reason, OperatorEntry::MAX_REASON_BYTES),
            ("by", &by, OperatorEntry::MAX_BY_BYTES),
        ] {
            if text.len() > most {
                return Err(BanError::TooLong(name, most));
            }
        }
        if !(MIN_DURATION..=MAX_DURATION).contains(&duration) {
            return Err(BanError::Duration);
        }
        let key = canonical_key(&key, identifier)?;
        if key.text.len() > OperatorEntry::MAX_KEY_BYTES {
            return Err(BanError::TooLong("key", OperatorEntry::MAX_KEY_BYTES));
        }
        let mut state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let held = state.entries.get(EntryKind::Ban, &key.text);
        let held_since = held
            .filter(|slot| slot.entry.is_active(wall_millis))
            .map(|slot| slot.entry.since);
        let ordered_count = || state.entries.active_count(EntryKind::Ban, wall_millis);
        if held_since.is_none() && ordered_count() >= BanRegistry::MAX_BANS {
            return Err(BanError::Full(BanRegistry::MAX_BANS));
        }
        let until = wall_millis.saturating_add(duration.as_millis() as u64);
        let entry = OperatorEntry {
            kind: EntryKind::Ban,
            key: key.text.clone(),
            hash: key.fingerprint.map(OperatorEntry::format_fingerprint),
            reason: reason.replace(char::is_control, " "),
            by: bounded_name(&by),
            since: held_since.unwrap_or(wall_millis),
            until,
            keep_until: until,
            changed_at: state
                .entries
                .next_change(EntryKind::Ban, &key.text, wall_millis),
            origin: self.entries.origin(),
            earlier_bans: 0,
            terms: None,
            is_revoked: false,
        };
        if !state.change(entry) {
            return Err(BanError::Superseded(key.text));
        }
        // The order counts from now on, also if it is shorter.
        let revocation = self.entries.revocation(&by);
        state.revoke((EntryKind::LimitBan, &key.text), &revocation);
        state.save();
        listed_ban(&state, &key.text, wall_millis).ok_or(BanError::Superseded(key.text))
    }

    /// Counts a refusal of a limit that bans, and bans its client within a fraction of a second if it was one too many.
    /// `key` is the key that the limit has refused.
    pub fn report_refusal(
        &self,
        (rule, policy): (&Rule, &BanPolicy),
        key: Fingerprint,
        client: &ClientIdentity,
        identifier: &Identifier,
        now: Nanos,
    ) {
        // An address that may be that of a proxy stands for many clients.
        if client.is_ip_unclear && rule.key.has(Identity::Ip) {
            return;
        }
        let key_identities = rule.key.select(|identity| client.has(identity));
        let settings = identifier.settings();
        // Without the other parts, such as the user, this key is that of a whole plan or country.
        if key_identities
            .iter()
            .all(|part| settings.is_of_many_clients(part))
        {
            return;
        }
        let mut hasher = SipHasher13::new_with_keys(key.0 as u64, (key.0 >> u64::BITS) as u64);
        hasher.write(rule.scope.as_bytes());
        if !self.offences.record(hasher.finish(), policy, now) {
            return;
        }
        let mut text = identifier.format_key(client, &ordered_spec(key_identities));
        if text.len() > OperatorEntry::MAX_KEY_BYTES {
            text = hashed_key_text(key_identities, key);
        }
        let has_hash = text.contains("=#") || text.contains("+#");
        let offender = Offender {
            fingerprint: has_hash.then_some(key),
            key: text,
            limit: rule.name.to_string(),
            policy: *policy,
        };
        let mut offenders = self.offenders.lock();
        if offenders.len() < BanRegistry::MAX_BANS {
            offenders.push(offender);
        }
    }

    /// Lifts the ban of a key, and returns it as it was. The change is on the disk when this returns, if it is kept. The
    /// key may be written as it is listed, also where that shows only a hash.
    ///
    /// # Errors
    ///
    /// The text is no key, or the key is not banned.
    pub fn lift(
        &self,
        key: &str,
        by: &str,
        identifier: &Identifier,
    ) -> Result<ListedBan, BanError> {
        let mut state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let (key, listed) = match listed_ban(&state, key.trim(), wall_millis) {
            Some(listed) => (key.trim().to_owned(), Some(listed)),
            None => {
                let key = canonical_key(key, identifier)?.text;
                let listed = listed_ban(&state, &key, wall_millis);
                (key, listed)
            }
        };
        let Some(listed) = listed else {
            let address = key.strip_prefix("ip=").and_then(parse_network);
            let address = address.map(|network| network.addr());
            let around = address.and_then(|ip| {
                let index = self.index();
                index.find_address(ip, self.entries.clock().now()).cloned()
            });
            return Err(match around {
                Some(ban) => BanError::BannedByNetwork {
                    key,
                    network: ban.key.to_string(),
                },
                None => BanError::NotBanned(key),
            });
        };
        let revocation = self.entries.revocation(by);
        for kind in EntryKind::BANS {
            state.revoke((kind, &key), &revocation);
        }
        state.save();
        match listed_ban(&state, &key, wall_millis) {
            None => Ok(ListedBan {
                is_kept: state.is_kept(&listed.entry),
                ..listed
            }),
            Some(_) => Err(BanError::Superseded(key)),
        }
    }

    /// The bans that hold, in the order of their keys.
    pub fn list(&self) -> Vec<ListedBan> {
        let state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let keys = state.entries.slots().filter_map(|slot| {
            let is_ban = EntryKind::BANS.contains(&slot.entry.kind);
            (is_ban && slot.entry.is_active(wall_millis)).then_some(&*slot.entry.key)
        });
        let keys: BTreeSet<&str> = keys.collect();
        let bans = keys.into_iter();
        bans.filter_map(|key| listed_ban(&state, key, wall_millis))
            .collect()
    }

    /// The number of bans that hold.
    pub fn count(&self) -> usize {
        let state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let counts = EntryKind::BANS.map(|kind| state.entries.active_count(kind, wall_millis));
        counts.iter().sum()
    }

    /// Bans the clients that limits have refused too often since the last call.
    pub fn ban_offenders(&self) {
        let offenders = std::mem::take(&mut *self.offenders.lock());
        if offenders.is_empty() {
            return;
        }
        let mut state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        for offender in offenders {
            ban_offender(&mut state, offender, self.entries.origin(), wall_millis);
        }
    }

    /// Publishes a new index if a ban has changed or ended. `seed` is that of the keyer of the identifier that
    /// `build_identifier` builds.
    pub fn publish(
        &self,
        refreshed: &RefreshedEntries,
        seed: u64,
        build_identifier: impl FnOnce() -> Identifier,
    ) {
        let (wall_millis, now) = (self.entries.wall_millis(), self.entries.clock().now());
        let origin_millis = wall_millis.saturating_sub(now.0 / 1_000_000);
        let mut basis = self.index_basis.lock();
        let is_basis_old = basis.is_none_or(|(index_seed, index_origin)| {
            index_seed != seed || index_origin.abs_diff(origin_millis) > MAX_CLOCK_DRIFT_MILLIS
        });
        if !refreshed.concerns(&EntryKind::BANS) && !is_basis_old {
            return;
        }
        *basis = Some((seed, origin_millis));
        let index = {
            let state = self.entries.lock();
            build_index(&state, &build_identifier(), now, wall_millis)
        };
        let mut published = self.index.lock();
        if !(index.is_empty() && published.is_empty()) {
            *published = Arc::new(index);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Makes the next [`BanRegistry::publish`] publish a new index, because the configuration has changed.
    pub fn invalidate_index(&self) {
        *self.index_basis.lock() = None;
    }
}

/// Bans the client that a limit has refused too often, unless it is banned already. It is not yet on the disk then.
fn ban_offender(state: &mut RegistryState, offender: Offender, origin: u32, wall_millis: u64) {
    let Offender {
        key,
        fingerprint,
        limit,
        policy,
    } = offender;
    if listed_ban(state, &key, wall_millis).is_some() {
        return;
    }
    let kind = EntryKind::LimitBan;
    let held = state.entries.get(kind, &key).map(|slot| &slot.entry);
    let earlier_bans = held
        .filter(|held| !held.is_revoked && wall_millis < held.keep_until)
        .map_or(0, |held| held.earlier_bans.saturating_add(1));
    let duration_millis = policy.duration(earlier_bans).0 / 1_000_000;
    let until = wall_millis.saturating_add(duration_millis);
    let refusals = policy.refusals;
    let changed_at = state.entries.next_change(kind, &key, wall_millis);
    state.change(OperatorEntry {
        kind,
        key,
        hash: fingerprint.map(OperatorEntry::format_fingerprint),
        reason: format!("refused {refusals} times"),
        by: bounded_name(&format!("limit {limit}")),
        since: wall_millis,
        until,
        // Until then a further ban is longer.
        keep_until: until.saturating_add(duration_millis),
        changed_at,
        origin,
        earlier_bans,
        terms: None,
        is_revoked: false,
    });
}

/// The ban of a key as it is listed: of an operator's and a limit's the one that ends last. `None` if neither holds.
fn listed_ban(state: &RegistryState, key: &str, wall_millis: u64) -> Option<ListedBan> {
    let slots = EntryKind::BANS
        .iter()
        .filter_map(|kind| state.entries.get(*kind, key));
    let active_slots = slots.filter(|slot| slot.entry.is_active(wall_millis));
    let last_slot = active_slots.clone().max_by_key(|slot| slot.entry.until)?;
    Some(ListedBan {
        entry: last_slot.entry.clone(),
        hits: active_slots
            .map(|slot| slot.hits.load(Ordering::Relaxed))
            .sum(),
        is_kept: state.is_kept(&last_slot.entry),
    })
}

/// The index of the bans that hold.
fn build_index(
    state: &RegistryState,
    identifier: &Identifier,
    now: Nanos,
    wall_millis: u64,
) -> BanIndex {
    let mut index = BanIndex::default();
    for slot in state.entries.slots() {
        let is_ban = EntryKind::BANS.contains(&slot.entry.kind);
        if !is_ban || !slot.entry.is_active(wall_millis) {
            continue;
        }
        if let Some(subject) = subject_of(&slot.entry, identifier) {
            let remaining = Nanos::from_millis(slot.entry.until - wall_millis);
            index.insert(subject, slot, now.after(remaining));
        }
    }
    index.finish()
}
