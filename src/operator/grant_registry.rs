//! [`GrantRegistry`]: the grants and the accounts of credits among the entries of a gateway. It keeps what was ordered;
//! which limits have the keys, and what holds for them, follows from the policies elsewhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::entry::{EntryGroup, EntryKind, OperatorEntry, SlotKey};
use super::entry_registry::{EntryRegistry, RefreshedEntries};
use super::entry_terms::{EntryTerms, GrantTerms, granted_subject};
use super::error::GrantOrderError;
use super::registry_state::{RegistryState, bounded_name};
use crate::limit::Fingerprint;

/// The shortest grant.
const MIN_DURATION: Duration = Duration::from_secs(1);
/// The longest grant: ten years.
const MAX_DURATION: Duration = Duration::from_secs(3_650 * 86_400);

/// The kinds of entries that give keys more of a limit.
const KINDS: [EntryKind; 2] = [EntryKind::Grant, EntryKind::Credit];

/// The grants of a gateway, and its accounts of credits.
#[derive(Debug)]
pub struct GrantRegistry {
    pub(super) entries: Arc<EntryRegistry>,
    /// Why grants do not hold now.
    obstacles: Mutex<HashMap<SlotKey, String>>,
    /// The seed of the keyer by which the published grants were hashed; `None` if they must be published anew.
    published_seed: Mutex<Option<u64>>,
}

/// A grant that an operator orders.
#[derive(Clone, Debug)]
pub struct NewGrant {
    /// The limit, the factor and the units. The limit is in the form in which one limit always has the same text.
    pub terms: GrantTerms,
    /// The key as the limit writes it.
    pub key: String,
    /// The hash of the key, if the text does not lead to it.
    pub fingerprint: Option<Fingerprint>,
    /// How long it lasts.
    pub duration: Duration,
    /// Why; may be empty.
    pub reason: String,
    /// Who orders it.
    pub by: String,
}

/// A grant or an account as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGrant {
    /// The entry.
    pub entry: OperatorEntry,
    /// Its terms. An account adds all credits that it has had.
    pub terms: GrantTerms,
    /// Whether the grant is on the disk.
    pub is_kept: bool,
    /// Why it does not hold now, such as a limit that no policy has any more; `None` if it holds.
    pub obstacle: Option<String>,
}

impl ListedGrant {
    /// Whether it is an account of credits.
    pub fn is_account(&self) -> bool {
        self.entry.kind == EntryKind::Credit
    }
}

impl GrantRegistry {
    /// The most grants.
    pub const MAX_GRANTS: usize = EntryGroup::Grants.max_entries();

    /// The grants among these entries.
    pub fn new(entries: Arc<EntryRegistry>) -> GrantRegistry {
        GrantRegistry {
            entries,
            obstacles: Mutex::default(),
            published_seed: Mutex::default(),
        }
    }

    /// Orders a grant, or changes the one of the same key and limit. It is on the disk when this returns, if it can be kept.
    ///
    /// # Errors
    ///
    /// See [`GrantOrderError`].
    pub fn grant(&self, new_grant: NewGrant) -> Result<ListedGrant, GrantOrderError> {
        let NewGrant {
            terms,
            key,
            fingerprint,
            duration,
            reason,
            by,
        } = new_grant;
        check_lengths(&terms.limit, &key, &reason, &by)?;
        if !(MIN_DURATION..=MAX_DURATION).contains(&duration) {
            return Err(GrantOrderError::Duration);
        }
        let mut state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let subject = granted_subject(&terms.limit, &key);
        let held = state.entries.get(EntryKind::Grant, &subject);
        let held_since = held
            .filter(|slot| slot.entry.is_active(wall_millis))
            .map(|slot| slot.entry.since);
        let count = || state.entries.active_count(EntryKind::Grant, wall_millis);
        if held_since.is_none() && count() >= GrantRegistry::MAX_GRANTS {
            return Err(GrantOrderError::Full(GrantRegistry::MAX_GRANTS));
        }
        let until = wall_millis.saturating_add(duration.as_millis() as u64);
        let changed_at = state
            .entries
            .next_change(EntryKind::Grant, &subject, wall_millis);
        let is_changed = state.change(OperatorEntry {
            kind: EntryKind::Grant,
            key: key.clone(),
            hash: fingerprint.map(OperatorEntry::format_fingerprint),
            reason: reason.replace(char::is_control, " "),
            by: bounded_name(&by),
            since: held_since.unwrap_or(wall_millis),
            until,
            keep_until: until,
            changed_at,
            origin: self.entries.origin(),
            earlier_bans: 0,
            terms: Some(EntryTerms::Grant(terms)),
            is_revoked: false,
        });
        if !is_changed {
            return Err(GrantOrderError::Superseded(key));
        }
        state.save();
        let listed = self.listed(&state, (EntryKind::Grant, &subject), wall_millis);
        listed.ok_or(GrantOrderError::Superseded(key))
    }

    /// Takes a grant back, and returns it as it was. The change is on the disk when this returns, if it is kept.
    ///
    /// # Errors
    ///
    /// The key has no grant of this limit.
    pub fn revoke(&self, limit: &str, key: &str, by: &str) -> Result<ListedGrant, GrantOrderError> {
        let subject = granted_subject(limit, key);
        let mut state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let listed = self.listed(&state, (EntryKind::Grant, &subject), wall_millis);
        let not_granted = || GrantOrderError::NotGranted {
            limit: limit.to_owned(),
            key: key.to_owned(),
        };
        let listed = listed.ok_or_else(not_granted)?;
        let revocation = self.entries.revocation(by);
        state.revoke((EntryKind::Grant, &subject), &revocation);
        state.save();
        match self.listed(&state, (EntryKind::Grant, &subject), wall_millis) {
            None => Ok(ListedGrant {
                is_kept: state.is_kept(&listed.entry),
                ..listed
            }),
            Some(_) => Err(GrantOrderError::Superseded(key.to_owned())),
        }
    }

    /// The grants that have not ended and then the accounts, in the order of their limits and keys.
    pub fn list(&self) -> Vec<ListedGrant> {
        let state = self.entries.lock();
        let wall_millis = self.entries.wall_millis();
        let grants = state.entries.slots().filter_map(|slot| {
            let is_grant = KINDS.contains(&slot.entry.kind);
            let (kind, subject) =
                (is_grant && slot.entry.is_active(wall_millis)).then(|| slot.entry.slot_key())?;
            self.listed(&state, (kind, &subject), wall_millis)
        });
        grants.collect()
    }

    /// A grant or an account as it is listed now; `None` if there is none any more.
    pub fn relist(&self, listed: &ListedGrant) -> Option<ListedGrant> {
        let (kind, subject) = listed.entry.slot_key();
        let state = self.entries.lock();
        self.listed(&state, (kind, &subject), self.entries.wall_millis())
    }

    /// The number of grants that have not ended.
    pub fn count(&self) -> usize {
        let state = self.entries.lock();
        state
            .entries
            .active_count(EntryKind::Grant, self.entries.wall_millis())
    }

    /// The grant or the account of this key that names the limit so; `None` if there is none.
    pub fn find(&self, kind: EntryKind, limit: &str, key: &str) -> Option<OperatorEntry> {
        let state = self.entries.lock();
        let slot = state.entries.get(kind, &granted_subject(limit, key))?;
        let is_active = slot.entry.is_active(self.entries.wall_millis());
        is_active.then(|| slot.entry.clone())
    }

    /// Notes that grants must be published anew if one of them has changed.
    pub fn note_changes(&self, refreshed: &RefreshedEntries) {
        if refreshed.concerns(&KINDS) {
            self.invalidate_publication();
        }
    }

    /// Whether [`GrantRegistry::take_publication`] would say that the grants must be published.
    pub fn needs_publication(&self, seed: u64) -> bool {
        *self.published_seed.lock() != Some(seed)
    }

    /// Whether the grants must be published anew, because one has changed, or because keys are hashed with another secret.
    /// `seed` is that of the keyer. They are taken for published then.
    pub fn take_publication(&self, seed: u64) -> bool {
        self.published_seed.lock().replace(seed) != Some(seed)
    }

    /// Makes the next [`GrantRegistry::take_publication`] say that the grants must be published.
    pub fn invalidate_publication(&self) {
        *self.published_seed.lock() = None;
    }

    /// Sets why grants and accounts do not hold.
    pub fn set_obstacles(&self, obstacles: HashMap<SlotKey, String>) {
        *self.obstacles.lock() = obstacles;
    }

    pub(super) fn listed(
        &self,
        state: &RegistryState,
        (kind, subject): (EntryKind, &str),
        wall_millis: u64,
    ) -> Option<ListedGrant> {
        let slot = state.entries.get(kind, subject)?;
        let entry = slot.entry.clone();
        let terms = match &entry.terms {
            Some(EntryTerms::Grant(terms)) => terms.clone(),
            Some(EntryTerms::Credit(terms)) => GrantTerms {
                limit: terms.limit.clone(),
                times: 1,
                add: terms.added(),
            },
            _ => return None,
        };
        let obstacle = self.obstacles.lock();
        let obstacle = obstacle.get(&entry.slot_key());
        entry.is_active(wall_millis).then(|| ListedGrant {
            is_kept: state.is_kept(&entry),
            obstacle: obstacle.cloned(),
            entry,
            terms,
        })
    }
}

/// Fails if the text of an order has no room in an entry.
pub(super) fn check_lengths(
    limit: &str,
    key: &str,
    reason: &str,
    by: &str,
) -> Result<(), GrantOrderError> {
    let lengths = [
        ("limit", limit, GrantTerms::MAX_LIMIT_BYTES),
        ("key", key, OperatorEntry::MAX_KEY_BYTES),
        ("reason", reason, OperatorEntry::MAX_REASON_BYTES),
        ("by", by, OperatorEntry::MAX_BY_BYTES),
    ];
    let mut lengths = lengths.into_iter();
    match lengths.find(|(_, text, most)| text.len() > *most) {
        Some((name, _, most)) => Err(GrantOrderError::TooLong(name, most)),
        None => Ok(()),
    }
}
