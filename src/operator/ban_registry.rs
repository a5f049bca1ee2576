//! [`BanRegistry`]: the bans of a gateway. Operators change it, the file and the shared store of the gateways change it, and
//! workers read what follows from it.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;

use super::ban_index::{BanIndex, canonical_key, hashed_key_text, ordered_spec, parse_network};
use super::entry::{EntryKind, OperatorEntry};
use super::entry_file::EntryFile;
use super::entry_map::{EntryMap, EntrySlot};
use super::error::BanError;
use super::offences::OffenceTable;
use super::registry_state::{
    BanChange, ListedBan, Offender, RegistryState, Revocation, bounded_name, stored,
};
use crate::base::clock::{Clock, Nanos};
use crate::identity::{ClientIdentity, Identifier, Keyer};
use crate::limit::{BanPolicy, Fingerprint, Identity, Rule};
use crate::store::shared::shared_entries::{SharedEntries, StoredEntry};

/// The shortest ban.
const MIN_DURATION: Duration = Duration::from_secs(1);
/// The longest ban: ten years.
const MAX_DURATION: Duration = Duration::from_secs(3_650 * 86_400);
/// The shortest pause between two writes of changes that no operator waits for.
const SAVE_PAUSE: Nanos = Nanos::from_millis(500);
/// For this long after its end an entry stays in the shared store, because the clocks of other gateways may be behind.
const MAX_CLOCK_SKEW_MILLIS: u64 = 15 * 60_000;
/// For this long after the start nothing is forgotten because it has ended: the clock may be wrong until it is set.
const SETTLING_TIME: Nanos = Nanos::from_secs(3_600);
/// The most entries of limits that the shared store gets at a time, so that a flood of offenders does not keep all gateways
/// busy.
const MAX_SHARED_OFFENDERS: usize = 20;
/// The most entries that leave the shared store at a time.
const MAX_REMOVALS: usize = 100;
/// How far the wall clock may move against the monotonic clock before the ends of bans are computed anew.
const MAX_CLOCK_DRIFT_MILLIS: u64 = 200;

/// The bans of a gateway.
#[derive(Debug)]
pub struct BanRegistry {
    state: Mutex<RegistryState>,
    /// Counts the indexes that were published. Workers compare it with that of the index that they have.
    version: AtomicU64,
    index: Mutex<Arc<BanIndex>>,
    /// The refusals of limits that ban.
    offences: OffenceTable,
    /// The clients that limits ban at the next [`BanRegistry::refresh`]; at most [`EntryMap::MAX_ENTRIES`].
    offenders: Mutex<Vec<Offender>>,
    clock: Clock,
    /// When this registry was opened.
    opened_at: Nanos,
    /// The number of this gateway in entries.
    origin: u32,
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
    /// The bans in the file at this path, or none. `keeps_secret` says whether the gateway's secret outlives the process.
    ///
    /// # Errors
    ///
    /// The folder of the file cannot be created.
    pub fn open(file: Option<&Path>, keeps_secret: bool, clock: Clock) -> io::Result<BanRegistry> {
        let file = file.map(EntryFile::new).transpose()?;
        let registry = BanRegistry {
            state: Mutex::new(RegistryState {
                file,
                keeps_secret,
                ..RegistryState::default()
            }),
            version: AtomicU64::new(0),
            index: Mutex::default(),
            offences: OffenceTable::default(),
            offenders: Mutex::default(),
            opened_at: clock.now(),
            clock,
            origin: Keyer::random().seed() as u32,
        };
        {
            let mut state = registry.state.lock();
            state.read_file();
            let wall_millis = registry.wall_millis();
            state.prune(wall_millis, false);
            // What was on the disk is no change.
            state.collect_changes(wall_millis);
        }
        Ok(registry)
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
        let mut state = self.state.lock();
        let wall_millis = self.wall_millis();
        let held = state.entries.get(EntryKind::Ban, &key.text);
        let held_since = held
            .filter(|slot| slot.entry.is_active(wall_millis))
            .map(|slot| slot.entry.since);
        if held_since.is_none() && state.entries.ordered_count(wall_millis) >= EntryMap::MAX_ENTRIES
        {
            return Err(BanError::Full(EntryMap::MAX_ENTRIES));
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
            origin: self.origin,
            earlier_bans: 0,
            is_revoked: false,
        };
        if !state.change(entry) {
            return Err(BanError::Superseded(key.text));
        }
        // The order counts from now on, also if it is shorter.
        let revocation = Revocation {
            by: &bounded_name(&by),
            origin: self.origin,
            wall_millis,
        };
        state.revoke((EntryKind::LimitBan, &key.text), &revocation);
        state.save();
        state
            .listed(&key.text, wall_millis)
            .ok_or(BanError::Superseded(key.text))
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
        if offenders.len() < EntryMap::MAX_ENTRIES {
            offenders.push(offender);
        }
    }

    /// Lifts the ban of a key, and returns it as it was. The change is on the disk when this returns. The key may be
    /// written as it is listed, also where that shows only a hash.
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
        let mut state = self.state.lock();
        let wall_millis = self.wall_millis();
        let (key, listed) = match state.listed(key.trim(), wall_millis) {
            Some(listed) => (key.trim().to_owned(), Some(listed)),
            None => {
                let key = canonical_key(key, identifier)?.text;
                let listed = state.listed(&key, wall_millis);
                (key, listed)
            }
        };
        let Some(listed) = listed else {
            let address = key.strip_prefix("ip=").and_then(parse_network);
            let address = address.map(|network| network.addr());
            let around = address.and_then(|ip| {
                let index = self.index();
                index.find_address(ip, self.clock.now()).cloned()
            });
            return Err(match around {
                Some(ban) => BanError::BannedByNetwork {
                    key,
                    network: ban.key.to_string(),
                },
                None => BanError::NotBanned(key),
            });
        };
        let revocation = Revocation {
            by: &bounded_name(by),
            origin: self.origin,
            wall_millis,
        };
        for kind in EntryKind::ALL {
            state.revoke((kind, &key), &revocation);
        }
        state.save();
        match state.listed(&key, wall_millis) {
            None => Ok(listed),
            Some(_) => Err(BanError::Superseded(key)),
        }
    }

    /// The bans that hold, in the order of their keys.
    pub fn list(&self) -> Vec<ListedBan> {
        let state = self.state.lock();
        let wall_millis = self.wall_millis();
        let keys = state.entries.slots().filter_map(|slot| {
            let is_active = slot.entry.is_active(wall_millis);
            is_active.then_some(&*slot.entry.key)
        });
        let keys: BTreeSet<&str> = keys.collect();
        let bans = keys.into_iter();
        bans.filter_map(|key| state.listed(key, wall_millis))
            .collect()
    }

    /// The number of bans that hold.
    pub fn count(&self) -> usize {
        self.state.lock().entries.active_count(self.wall_millis())
    }

    /// Takes over what another process has written to the file, and writes what it lacks. Publishes a new index if anything
    /// has changed or ended. `seed` is that of the keyer of the identifier that `build_identifier` builds.
    /// Returns the changes since the last call.
    pub fn refresh(
        &self,
        seed: u64,
        build_identifier: impl FnOnce() -> Identifier,
    ) -> Vec<BanChange> {
        let mut state = self.state.lock();
        let (wall_millis, now) = (self.wall_millis(), self.clock.now());
        state.read_file();
        let offenders = std::mem::take(&mut *self.offenders.lock());
        for offender in offenders {
            state.ban_offender(offender, self.origin, wall_millis);
        }
        let changes = state.collect_changes(wall_millis);
        state.prune(wall_millis, self.is_settled());
        let dropped_count = std::mem::take(&mut state.dropped_orders);
        if dropped_count > 0 {
            tracing::error!(
                dropped_count,
                "there are too many bans; those that end first were dropped"
            );
        }
        if state.is_unsaved && state.next_save_at <= now {
            state.next_save_at = now.after(SAVE_PAUSE);
            state.save();
        }
        // Without a store nothing takes them. When a store comes back, everything is compared.
        while state.unpublished.len() > EntryMap::MAX_ENTRIES {
            state.unpublished.pop_last();
        }
        let origin_millis = wall_millis.saturating_sub(now.0 / 1_000_000);
        let is_basis_old = state.index_basis.is_none_or(|(index_seed, index_origin)| {
            index_seed != seed || index_origin.abs_diff(origin_millis) > MAX_CLOCK_DRIFT_MILLIS
        });
        let has_dropped = std::mem::take(&mut state.has_dropped);
        if !changes.is_empty() || has_dropped || is_basis_old {
            state.index_basis = Some((seed, origin_millis));
            let index = state.build_index(&build_identifier(), now, wall_millis);
            let mut published = self.index.lock();
            if !(index.is_empty() && published.is_empty()) {
                *published = Arc::new(index);
                self.version.fetch_add(1, Ordering::Release);
            }
        }
        changes
    }

    /// Makes the next [`BanRegistry::refresh`] publish a new index, because the configuration has changed.
    pub fn invalidate_index(&self) {
        self.state.lock().index_basis = None;
    }

    /// Writes what is not on the disk yet, at the end of the gateway.
    pub fn save(&self) {
        let mut state = self.state.lock();
        if state.is_unsaved {
            state.save();
        }
    }

    /// Whether the clock has had the time to be set, so that what it says to have ended may be forgotten.
    fn is_settled(&self) -> bool {
        self.clock.now().since(self.opened_at) >= SETTLING_TIME
    }

    fn wall_millis(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The disk may be slow while the lock is held, and the store's keeper must not wait for it.
impl SharedEntries for BanRegistry {
    fn take_unpublished(&self, most: usize) -> Vec<StoredEntry> {
        let Some(mut state) = self.state.try_lock() else {
            return Vec::new();
        };
        state.is_shared = true;
        let RegistryState {
            entries,
            unpublished,
            over,
            ..
        } = &mut *state;
        let removals = over.drain(..over.len().min(most).min(MAX_REMOVALS));
        let mut taken: Vec<StoredEntry> = removals.collect();
        let mut offender_count = 0;
        while taken.len() < most
            && let Some(slot_key) = unpublished.pop_first()
        {
            let is_automatic = slot_key.0 == EntryKind::LimitBan;
            if is_automatic && offender_count == MAX_SHARED_OFFENDERS {
                unpublished.insert(slot_key);
                break;
            }
            if let Some(slot) = entries.get(slot_key.0, &slot_key.1) {
                offender_count += usize::from(is_automatic);
                taken.push(stored(&slot.entry, false));
            }
        }
        taken
    }

    fn merge(&self, values: &[Vec<u8>]) -> bool {
        let Some(mut state) = self.state.try_lock() else {
            return false;
        };
        let wall_millis = self.wall_millis();
        let may_forget = self.is_settled();
        let state = &mut *state;
        state.is_shared = true;
        let kept = |slot: &&EntrySlot| wall_millis < slot.entry.keep_until;
        let slots = state.entries.slots().filter(kept);
        let mut lacking: BTreeSet<_> = slots.map(|slot| slot.entry.slot_key()).collect();
        state.over.clear();
        let mut has_future = false;
        for value in values {
            // Another version of the gateway may have stored what this one does not know.
            let Ok(value) = std::str::from_utf8(value) else {
                continue;
            };
            let Some(entry) = OperatorEntry::parse_stored_value(value) else {
                continue;
            };
            if !entry.is_possible() || !entry.has_order_of(value) {
                state.over.push(StoredEntry {
                    name: entry.name(),
                    value: value.to_owned(),
                    is_over: true,
                });
                continue;
            }
            if entry.keep_until.saturating_add(MAX_CLOCK_SKEW_MILLIS) <= wall_millis {
                if may_forget {
                    state.over.push(stored(&entry, true));
                }
                continue;
            }
            if !entry.is_credible(wall_millis) {
                has_future = true;
                continue;
            }
            let (slot_key, change) = (entry.slot_key(), entry.change());
            if wall_millis < entry.keep_until {
                state.is_unsaved |= state.entries.merge(entry);
            }
            let slot = state.entries.get(slot_key.0, &slot_key.1);
            if slot.is_none_or(|slot| slot.entry.change() == change) {
                lacking.remove(&slot_key);
            }
        }
        state.unpublished.extend(lacking);
        state.prune(wall_millis, may_forget);
        if has_future && !std::mem::replace(&mut state.has_seen_future, true) {
            tracing::error!(
                "a gateway whose clock is more than a day ahead has changed bans in the store; they are ignored"
            );
        }
        true
    }
}
