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

use super::ban_index::{BanIndex, canonical_key, parse_network};
use super::entry::{EntryKind, OperatorEntry};
use super::entry_file::EntryFile;
use super::entry_map::{EntryMap, EntrySlot};
use super::error::BanError;
use super::offences::OffenceTable;
use super::registry_state::{BanChange, ListedBan, Offender, RegistryState};
use crate::base::clock::{Clock, Nanos};
use crate::identity::{ClientIdentity, Identifier, Keyer};
use crate::limit::{BanPolicy, Fingerprint, Identity, Rule};
use crate::store::shared::shared_entries::{SharedEntries, StoredEntry};

/// The shortest ban.
const MIN_DURATION: Duration = Duration::from_secs(1);
/// The longest ban: ten years.
const MAX_DURATION: Duration = Duration::from_secs(3_650 * 86_400);
/// The shortest pause between two writes of changes that no operator waits for.
const SAVE_PAUSE_MILLIS: u64 = 500;
/// For this long after its end an entry stays in the shared store, because the clocks of other gateways may be behind.
const MAX_CLOCK_SKEW_MILLIS: u64 = 60_000;
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
    /// The bans in the file at this path, or none.
    ///
    /// # Errors
    ///
    /// The folder of the file cannot be created.
    pub fn open(file: Option<&Path>, clock: Clock) -> io::Result<BanRegistry> {
        let file = file.map(EntryFile::new).transpose()?;
        let registry = BanRegistry {
            state: Mutex::new(RegistryState {
                file,
                ..RegistryState::default()
            }),
            version: AtomicU64::new(0),
            index: Mutex::default(),
            offences: OffenceTable::default(),
            offenders: Mutex::default(),
            clock,
            origin: Keyer::random().seed() as u32,
        };
        {
            let mut state = registry.state.lock();
            state.read_file();
            let wall_millis = registry.wall_millis();
            state.entries.prune(wall_millis);
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
        let wall_millis = self.wall_millis();
        let mut state = self.state.lock();
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
            by: by.replace(char::is_control, " "),
            since: held_since.unwrap_or(wall_millis),
            until,
            keep_until: until,
            changed_at: state.entries.next_change(wall_millis),
            origin: self.origin,
            is_automatic: false,
            earlier_bans: 0,
            is_revoked: false,
        };
        state.change(entry);
        state
            .listed(&key.text)
            .ok_or(BanError::Full(EntryMap::MAX_ENTRIES))
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
        let mut hasher = SipHasher13::new_with_keys(key.0 as u64, (key.0 >> u64::BITS) as u64);
        hasher.write(rule.scope.as_bytes());
        if !self.offences.record(hasher.finish(), policy, now) {
            return;
        }
        let text = identifier.format_key(client, &rule.key);
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

    /// Lifts the ban of a key, and returns it as it was. The change is on the disk when this returns.
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
        let key = canonical_key(key, identifier)?.text;
        let wall_millis = self.wall_millis();
        let mut state = self.state.lock();
        let listed = state.listed(&key);
        let Some(listed) = listed.filter(|listed| listed.entry.is_active(wall_millis)) else {
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
        let entry = OperatorEntry {
            by: by
                .chars()
                .take(OperatorEntry::MAX_BY_BYTES / char::MAX.len_utf8())
                .collect(),
            changed_at: state.entries.next_change(wall_millis),
            origin: self.origin,
            is_revoked: true,
            ..listed.entry.clone()
        };
        state.change(entry);
        Ok(listed)
    }

    /// The bans that hold, in the order of their keys.
    pub fn list(&self) -> Vec<ListedBan> {
        let wall_millis = self.wall_millis();
        let state = self.state.lock();
        let keys = state.entries.slots().filter_map(|slot| {
            let is_active = slot.entry.is_active(wall_millis);
            is_active.then_some(&*slot.entry.key)
        });
        keys.filter_map(|key| state.listed(key)).collect()
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
        let wall_millis = self.wall_millis();
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.read_file();
        let offenders = std::mem::take(&mut *self.offenders.lock());
        for offender in offenders {
            state.ban_offender(offender, self.origin, wall_millis);
        }
        let changes = state.collect_changes(wall_millis);
        let dropped_count = state.entries.prune(wall_millis);
        if dropped_count > 0 {
            tracing::error!(
                dropped_count,
                "there are too many bans; those that end first were dropped"
            );
        }
        if state.is_unsaved && state.next_save_at <= wall_millis {
            state.next_save_at = wall_millis.saturating_add(SAVE_PAUSE_MILLIS);
            state.save();
        }
        if state.unpublished.len() > EntryMap::MAX_ENTRIES {
            // There is no store, or it is away: when it comes back, everything is compared.
            state.unpublished.clear();
        }
        let origin_millis = wall_millis.saturating_sub(now.0 / 1_000_000);
        let is_basis_old = state.index_basis.is_none_or(|(index_seed, index_origin)| {
            index_seed != seed || index_origin.abs_diff(origin_millis) > MAX_CLOCK_DRIFT_MILLIS
        });
        if !changes.is_empty() || dropped_count > 0 || is_basis_old {
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

    fn wall_millis(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }
}

impl SharedEntries for BanRegistry {
    fn take_unpublished(&self, most: usize) -> Vec<StoredEntry> {
        let mut state = self.state.lock();
        let RegistryState {
            entries,
            unpublished,
            over,
            ..
        } = &mut *state;
        let mut taken: Vec<StoredEntry> = over.drain(..over.len().min(most)).collect();
        while taken.len() < most
            && let Some(key) = unpublished.pop_first()
        {
            let slot = entries.get(EntryKind::Ban, &key);
            taken.extend(slot.map(|slot| stored(&slot.entry, false)));
        }
        taken
    }

    fn merge(&self, values: &[String]) {
        let wall_millis = self.wall_millis();
        let mut state = self.state.lock();
        let state = &mut *state;
        let kept = |slot: &&EntrySlot| wall_millis < slot.entry.keep_until;
        let slots = state.entries.slots().filter(kept);
        let mut lacking: BTreeSet<String> = slots.map(|slot| slot.entry.key.clone()).collect();
        state.over.clear();
        for value in values {
            // Another version of the gateway may have stored what this one does not know.
            let Some(entry) = OperatorEntry::parse_stored_value(value) else {
                continue;
            };
            if entry.keep_until.saturating_add(MAX_CLOCK_SKEW_MILLIS) <= wall_millis {
                state.over.push(stored(&entry, true));
                continue;
            }
            let (key, change) = (entry.key.clone(), (entry.changed_at, entry.origin));
            if wall_millis < entry.keep_until {
                state.is_unsaved |= state.entries.merge(entry);
            }
            let slot = state.entries.get(EntryKind::Ban, &key);
            if slot.is_none_or(|slot| (slot.entry.changed_at, slot.entry.origin) == change) {
                lacking.remove(&key);
            }
        }
        state.unpublished.extend(lacking);
    }
}

/// An entry as the shared store keeps it.
fn stored(entry: &OperatorEntry, is_over: bool) -> StoredEntry {
    StoredEntry {
        name: entry.name(),
        value: entry.to_stored_value(),
        is_over,
    }
}
