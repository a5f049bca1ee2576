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
    /// When changes of others than operators may be written next, by the monotonic clock.
    pub(super) next_save_at: Nanos,
    /// Whether the last use of the file has failed, which was logged.
    pub(super) has_failed: bool,
    /// The entries that the shared store may lack, those of operators first; nothing takes them without such a store. At
    /// most [`EntryMap::MAX_ENTRIES`].
    pub(super) unpublished: BTreeSet<(EntryKind, String)>,
    /// Entries of the shared store that nobody needs any more. At most as many as the store had, or
    /// [`EntryMap::MAX_ENTRIES`].
    pub(super) over: Vec<StoredEntry>,
    /// Whether there is a shared store.
    pub(super) is_shared: bool,
    /// Whether the gateway's secret is kept over restarts, on which hashes of keys depend.
    pub(super) keeps_secret: bool,
    /// Whether entries were dropped for lack of room since the last index.
    pub(super) has_dropped: bool,
    /// The orders that held and were dropped, which was not logged yet.
    pub(super) dropped_orders: usize,
    /// Whether an entry of a gateway whose clock is far ahead was seen, which was logged.
    pub(super) has_seen_future: bool,
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

/// Who takes a ban back, and when.
#[derive(Debug)]
pub(super) struct Revocation<'a> {
    pub(super) by: &'a str,
    /// The number of the gateway.
    pub(super) origin: u32,
    pub(super) wall_millis: u64,
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
    /// Takes over a change of this gateway, which is not on the disk yet. Returns whether it counts.
    pub(super) fn change(&mut self, entry: OperatorEntry) -> bool {
        let slot_key = entry.slot_key();
        let is_merged = entry.is_possible() && self.entries.merge(entry);
        if is_merged {
            self.unpublished.insert(slot_key);
            self.is_unsaved = true;
        }
        is_merged
    }

    /// Takes a ban back, if it holds. It is not on the disk then.
    pub(super) fn revoke(&mut self, (kind, key): (EntryKind, &str), change: &Revocation<'_>) {
        let wall_millis = change.wall_millis;
        let Some(slot) = self.entries.get(kind, key) else {
            return;
        };
        if !slot.entry.is_active(wall_millis) {
            return;
        }
        let entry = OperatorEntry {
            by: change.by.to_owned(),
            changed_at: self.entries.next_change(kind, key, wall_millis),
            origin: change.origin,
            is_revoked: true,
            ..slot.entry.clone()
        };
        self.change(entry);
    }

    /// Drops what need not be kept, if `may_forget`, and what is beyond the bound. The shared store shall drop the latter
    /// too, or else it would come back.
    pub(super) fn prune(&mut self, wall_millis: u64, may_forget: bool) {
        let dropped = self.entries.prune(wall_millis, may_forget);
        self.has_dropped |= !dropped.entries.is_empty();
        self.dropped_orders += dropped.held_orders;
        for entry in &dropped.entries {
            let was_unpublished = self.unpublished.remove(&entry.slot_key());
            if self.is_shared && !was_unpublished && self.over.len() < EntryMap::MAX_ENTRIES {
                self.over.push(stored(entry, true));
            }
        }
    }

    /// Bans the client that a limit has refused too often, unless it is banned already. It is not yet on the disk then.
    pub(super) fn ban_offender(&mut self, offender: Offender, origin: u32, wall_millis: u64) {
        let Offender {
            key,
            fingerprint,
            limit,
            policy,
        } = offender;
        if self.listed(&key, wall_millis).is_some() {
            return;
        }
        let kind = EntryKind::LimitBan;
        let held = self.entries.get(kind, &key).map(|slot| &slot.entry);
        let earlier_bans = held
            .filter(|held| !held.is_revoked && wall_millis < held.keep_until)
            .map_or(0, |held| held.earlier_bans.saturating_add(1));
        let duration_millis = policy.duration(earlier_bans).0 / 1_000_000;
        let until = wall_millis.saturating_add(duration_millis);
        let refusals = policy.refusals;
        let changed_at = self.entries.next_change(kind, &key, wall_millis);
        self.change(OperatorEntry {
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
            is_revoked: false,
        });
    }

    /// The ban of a key as it is listed: of an operator's and a limit's the one that ends last. `None` if neither holds.
    pub(super) fn listed(&self, key: &str, wall_millis: u64) -> Option<ListedBan> {
        let slots = EntryKind::ALL
            .iter()
            .filter_map(|kind| self.entries.get(*kind, key));
        let active_slots = slots.filter(|slot| slot.entry.is_active(wall_millis));
        let last_slot = active_slots.clone().max_by_key(|slot| slot.entry.until)?;
        let entry = last_slot.entry.clone();
        let is_readable_later = self.keeps_secret || !entry.needs_secret();
        Some(ListedBan {
            entry,
            hits: active_slots
                .map(|slot| slot.hits.load(Ordering::Relaxed))
                .sum(),
            is_kept: self.file.is_some() && !self.is_unsaved && is_readable_later,
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
                    let slot_key = entry.slot_key();
                    if self.entries.merge(entry) {
                        self.unpublished.insert(slot_key);
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

/// An entry as the shared store keeps it.
pub(super) fn stored(entry: &OperatorEntry, is_over: bool) -> StoredEntry {
    StoredEntry {
        name: entry.name(),
        value: entry.to_stored_value(),
        is_over,
    }
}

/// The beginning of a name that an entry has room for, without control characters.
pub(super) fn bounded_name(name: &str) -> String {
    let name = name.replace(char::is_control, " ");
    name[..name.floor_char_boundary(OperatorEntry::MAX_BY_BYTES)].to_owned()
}
