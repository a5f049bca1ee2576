//! [`RegistryState`]: what the registry of bans holds behind its lock: the entries, the file, and what the shared store lacks.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::ban_index::{BanIndex, subject_of};
use super::entry::{EntryKind, OperatorEntry};
use super::entry_file::EntryFile;
use super::entry_map::EntryMap;
use crate::base::clock::Nanos;
use crate::identity::Identifier;
use crate::limit::{BanPolicy, Fingerprint};
use crate::store::shared::shared_entries::StoredEntry;

/// What the registry of bans holds behind its lock.
#[derive(Debug, Default)]
pub(super) struct RegistryState {
    pub(super) entries: EntryMap,
    /// Where entries are kept; `None` if they are not.
    pub(super) file: Option<EntryFile>,
    /// Whether the file lacks a change.
    pub(super) is_unsaved: bool,
    /// When changes of others than operators may be written next, in milliseconds since 1970.
    pub(super) next_save_at: u64,
    /// Whether the last use of the file has failed, which was logged.
    pub(super) has_failed: bool,
    /// The keys whose entries the shared store may lack; nothing takes them without such a store.
    pub(super) unpublished: BTreeSet<String>,
    /// Entries of the shared store that nobody needs any more.
    pub(super) over: Vec<StoredEntry>,
    /// What the published index depends on beside the entries: the seed of the keyer, and the milliseconds since 1970 at the
    /// origin of the monotonic clock. `None` before the first index.
    pub(super) index_basis: Option<(u64, u64)>,
}

/// A client that a limit bans.
#[derive(Debug)]
pub(super) struct Offender {
    /// The key, as the limit writes it.
    pub(super) key: String,
    /// The hash of the key, if the text does not lead to it.
    pub(super) fingerprint: Option<Fingerprint>,
    /// The name of the limit.
    pub(super) limit: String,
    pub(super) policy: BanPolicy,
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

/// How a ban has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanChangeKind {
    /// It began, or has another end or reason now.
    Banned,
    /// It was lifted.
    Lifted,
    /// It came to its end.
    Ended,
}

/// A change of a ban, whoever has made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanChange {
    /// How the ban has changed.
    pub kind: BanChangeKind,
    /// The entry after the change.
    pub entry: OperatorEntry,
}

impl RegistryState {
    /// Takes over a change of this gateway, and writes it to the disk.
    pub(super) fn change(&mut self, entry: OperatorEntry) {
        self.unpublished.insert(entry.key.clone());
        self.entries.merge(entry);
        self.save();
    }

    /// Bans the client that a limit has refused too often, unless it is banned already. It is not yet on the disk then.
    pub(super) fn ban_offender(&mut self, offender: Offender, origin: u32, wall_millis: u64) {
        let Offender {
            key,
            fingerprint,
            limit,
            policy,
        } = offender;
        let held = self
            .entries
            .get(EntryKind::Ban, &key)
            .map(|slot| &slot.entry);
        if key.len() > OperatorEntry::MAX_KEY_BYTES
            || held.is_some_and(|held| held.is_active(wall_millis))
        {
            return;
        }
        let earlier_bans = held
            .filter(|held| held.is_automatic && !held.is_revoked)
            .map_or(0, |held| held.earlier_bans.saturating_add(1));
        let duration_millis = policy.duration(earlier_bans).0 / 1_000_000;
        let until = wall_millis.saturating_add(duration_millis);
        let refusals = policy.refusals;
        let entry = OperatorEntry {
            kind: EntryKind::Ban,
            key,
            hash: fingerprint.map(OperatorEntry::format_fingerprint),
            reason: format!("refused {refusals} times"),
            by: format!("limit {limit}")
                .chars()
                .take(OperatorEntry::MAX_BY_BYTES)
                .collect(),
            since: wall_millis,
            until,
            // Until then a further ban is longer.
            keep_until: until.saturating_add(duration_millis),
            changed_at: self.entries.next_change(wall_millis),
            origin,
            is_automatic: true,
            earlier_bans,
            is_revoked: false,
        };
        self.unpublished.insert(entry.key.clone());
        self.entries.merge(entry);
        self.is_unsaved = true;
    }

    /// The entry of a key as it is listed.
    pub(super) fn listed(&self, key: &str) -> Option<ListedBan> {
        let slot = self.entries.get(EntryKind::Ban, key)?;
        Some(ListedBan {
            entry: slot.entry.clone(),
            hits: slot.hits.load(Ordering::Relaxed),
            is_kept: self.file.is_some() && !self.is_unsaved,
        })
    }

    /// Writes all entries to the disk, if there is a file. A failure is logged once, and the next refresh tries again.
    pub(super) fn save(&mut self) {
        let Some(file) = &mut self.file else {
            self.is_unsaved = false;
            return;
        };
        match file.save(&mut self.entries) {
            Ok(()) => {
                self.is_unsaved = false;
                self.has_failed = false;
            }
            Err(error) => {
                self.is_unsaved = true;
                if !std::mem::replace(&mut self.has_failed, true) {
                    let path = file.path().display();
                    tracing::error!(%error, %path, "writing the bans failed; they hold, but a restart would lose them");
                }
            }
        }
    }

    /// Takes over what another process has written to the file. Damage is logged.
    pub(super) fn read_file(&mut self) {
        let Some(file) = &mut self.file else {
            return;
        };
        match file.read_if_changed() {
            Ok(None) => {}
            Ok(Some(content)) => {
                let path = file.path().display();
                if content.damaged_lines > 0 {
                    let damaged_lines = content.damaged_lines;
                    tracing::error!(damaged_lines, %path, "lines of the file of bans are damaged; their bans are lost");
                }
                for entry in content.entries {
                    if self.entries.merge(entry.clone()) {
                        self.unpublished.insert(entry.key);
                    }
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    let path = file.path().display();
                    tracing::error!(%error, %path, "reading the bans failed");
                }
            }
        }
    }

    /// The changes that were not reported yet.
    pub(super) fn collect_changes(&mut self, wall_millis: u64) -> Vec<BanChange> {
        let mut changes = Vec::new();
        for slot in self.entries.slots_mut() {
            let is_active = slot.entry.is_active(wall_millis);
            let reported = slot.reported.replace((slot.entry.changed_at, is_active));
            let (reported_change, was_active) = reported.unwrap_or_default();
            let is_changed = reported_change != slot.entry.changed_at;
            let kind = match (was_active, is_active) {
                (_, true) if is_changed => BanChangeKind::Banned,
                (true, false) if slot.entry.is_revoked => BanChangeKind::Lifted,
                (true, false) => BanChangeKind::Ended,
                _ => continue,
            };
            changes.push(BanChange {
                kind,
                entry: slot.entry.clone(),
            });
        }
        changes
    }

    pub(super) fn build_index(
        &self,
        identifier: &Identifier,
        now: Nanos,
        wall_millis: u64,
    ) -> BanIndex {
        let mut index = BanIndex::default();
        for slot in self.entries.slots() {
            if !slot.entry.is_active(wall_millis) {
                continue;
            }
            if let Some(subject) = subject_of(&slot.entry, identifier) {
                let remaining = Nanos::from_millis(slot.entry.until - wall_millis);
                index.insert(subject, slot, now.after(remaining));
            }
        }
        index.finish()
    }
}
