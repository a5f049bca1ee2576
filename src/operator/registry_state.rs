//! [`RegistryState`]: what the registry of entries holds behind its lock: the entries, the file, and what the shared store
//! lacks.

use std::collections::BTreeSet;

use super::credit_terms::CreditOrder;
use super::entry::{EntryGroup, EntryKind, OperatorEntry, SlotKey};
use super::entry_file::EntryFile;
use super::entry_map::EntryMap;
use crate::base::clock::Nanos;
use crate::store::shared::shared_entries::StoredEntry;

/// How long it is remembered that an order without an end was taken back: two years, in milliseconds. A gateway that was
/// away for longer could bring it back; remembered for ever, such orders would fill the room.
const REVOCATION_KEPT_MILLIS: u64 = 2 * 365 * 86_400_000;

/// What the registry of entries holds behind its lock.
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
    pub(super) unpublished: BTreeSet<SlotKey>,
    /// Entries of the shared store that nobody needs any more. At most as many as the store had, or
    /// [`EntryMap::MAX_ENTRIES`].
    pub(super) over: Vec<StoredEntry>,
    /// Whether there is a shared store.
    pub(super) is_shared: bool,
    /// Whether the gateway's secret is kept over restarts, on which hashes of keys depend.
    pub(super) keeps_secret: bool,
    /// The groups of which entries have changed since the last refresh without a change that is reported: they were dropped
    /// for lack of room, or an account has orders that were counted together elsewhere.
    pub(super) changed_groups: BTreeSet<EntryGroup>,
    /// The orders that held and were dropped, which was not logged yet.
    pub(super) dropped_orders: usize,
    /// Whether an entry of a gateway whose clock is far ahead was seen, which was logged.
    pub(super) has_seen_future: bool,
}

/// Who takes an order back, and when.
#[derive(Debug)]
pub(super) struct Revocation {
    pub(super) by: String,
    /// The number of the gateway.
    pub(super) origin: u32,
    pub(super) wall_millis: u64,
}

/// How an order has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It began, or has another end, other terms or another reason now.
    Ordered,
    /// It was taken back.
    Revoked,
    /// It came to its end.
    Ended,
}

/// A change of an order, whoever has made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChange {
    /// How the order has changed.
    pub kind: ChangeKind,
    /// The entry after the change.
    pub entry: OperatorEntry,
    /// The order of an account that came; `None` for entries of other kinds.
    pub order: Option<CreditOrder>,
}

impl RegistryState {
    /// Takes over a change of this gateway, which is not on the disk yet. Returns whether it counts.
    pub(super) fn change(&mut self, entry: OperatorEntry) -> bool {
        let slot_key = entry.slot_key();
        // What no gateway could read must not be written.
        let is_readable = entry.is_possible() && entry.is_bounded();
        let is_merged = is_readable && self.entries.merge(entry);
        if is_merged {
            self.unpublished.insert(slot_key);
            self.is_unsaved = true;
        }
        is_merged
    }

    /// Takes an order back, if it holds. The change is not on the disk then.
    pub(super) fn revoke(&mut self, (kind, subject): (EntryKind, &str), change: &Revocation) {
        let wall_millis = change.wall_millis;
        let Some(slot) = self.entries.get(kind, subject) else {
            return;
        };
        if !slot.entry.is_active(wall_millis) {
            return;
        }
        let entry = OperatorEntry {
            keep_until: match slot.entry.end() {
                Some(_) => slot.entry.keep_until,
                None => wall_millis.saturating_add(REVOCATION_KEPT_MILLIS),
            },
            by: change.by.clone(),
            changed_at: self.entries.next_change(kind, subject, wall_millis),
            origin: change.origin,
            is_revoked: true,
            ..slot.entry.clone()
        };
        self.change(entry);
    }

    /// Takes over from the shared store a change whose time is too far ahead, if it is final. It then has a time that is
    /// credible. Any other one that would hide what is final shall leave the store, and an account that would hide the one
    /// that is known here. `lacking` is what the store lacks.
    pub(super) fn merge_future(
        &mut self,
        mut entry: OperatorEntry,
        value: &str,
        wall_millis: u64,
        lacking: &mut BTreeSet<SlotKey>,
    ) {
        let slot_key = entry.slot_key();
        let held = self.entries.get(slot_key.0, &slot_key.1);
        let hides_held =
            held.is_some_and(|slot| slot.entry.is_final() || slot.entry.kind == EntryKind::Credit);
        match (entry.is_final(), hides_held) {
            (true, is_known) => {
                lacking.remove(&slot_key);
                if !is_known {
                    entry.make_credible(wall_millis);
                    self.is_unsaved |= self.entries.merge(entry);
                }
            }
            (false, true) => self.over.push(StoredEntry {
                name: entry.name(),
                value: value.to_owned(),
                is_over: true,
            }),
            (false, false) => {}
        }
    }

    /// Whether an entry is on the disk, and can be read after a restart.
    pub(super) fn is_kept(&self, entry: &OperatorEntry) -> bool {
        let is_readable_later = self.keeps_secret || !entry.needs_secret();
        self.file.is_some() && !self.is_unsaved && is_readable_later
    }

    /// Drops what need not be kept, if `may_forget`, and what is beyond the bound. The shared store shall drop the latter
    /// too, or else it would come back.
    pub(super) fn prune(&mut self, wall_millis: u64, may_forget: bool) {
        let dropped = self.entries.prune(wall_millis, may_forget);
        self.dropped_orders += dropped.held_orders;
        for entry in &dropped.entries {
            self.changed_groups.insert(entry.kind.group());
            let was_unpublished = self.unpublished.remove(&entry.slot_key());
            if self.is_shared && !was_unpublished && self.over.len() < EntryMap::MAX_ENTRIES {
                self.over.push(stored(entry, true));
            }
        }
    }

    /// Writes all entries to the disk, if there is a file. A failure is logged once, and the next refresh tries again.
    pub(super) fn save(&mut self) {
        let Some(file) = &mut self.file else {
            self.is_unsaved = false;
            return;
        };
        match file.save(&mut self.entries, &mut self.unpublished) {
            Ok(()) => {
                self.is_unsaved = false;
                self.has_failed = false;
            }
            Err(error) => {
                self.is_unsaved = true;
                if !std::mem::replace(&mut self.has_failed, true) {
                    let path = file.path().display();
                    tracing::error!(%error, %path, "writing the orders failed; they hold, but a restart would lose them");
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
                    tracing::error!(damaged_lines, %path, "lines of the file of orders are damaged; these orders are lost");
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
                    tracing::error!(%error, %path, "reading the orders failed");
                }
            }
        }
    }

    /// The changes that were not reported yet.
    pub(super) fn collect_changes(&mut self, wall_millis: u64) -> Vec<EntryChange> {
        let mut changes = Vec::new();
        let changed_groups = &mut self.changed_groups;
        for slot in self.entries.slots_mut() {
            let change = |kind, order| EntryChange {
                kind,
                entry: slot.entry.clone(),
                order,
            };
            let is_active = slot.entry.is_active(wall_millis);
            let reported = slot.reported.replace((slot.entry.changed_at, is_active));
            let (reported_change, was_active) = reported.unwrap_or_default();
            let is_changed = reported_change != slot.entry.changed_at;
            if slot.entry.kind == EntryKind::Credit {
                if is_changed {
                    changed_groups.insert(slot.entry.kind.group());
                }
                let orders = std::mem::take(&mut slot.unreported).into_iter();
                changes.extend(orders.map(|order| match order.units < 0 {
                    true => change(ChangeKind::Revoked, Some(order)),
                    false => change(ChangeKind::Ordered, Some(order)),
                }));
                continue;
            }
            let kind = match (was_active, is_active) {
                (_, true) if is_changed => ChangeKind::Ordered,
                // The clock was ahead, and was set back.
                (false, true) => ChangeKind::Ordered,
                (true, false) if slot.entry.is_revoked => ChangeKind::Revoked,
                (true, false) => ChangeKind::Ended,
                _ => continue,
            };
            changes.push(change(kind, None));
        }
        changes
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{EntryTerms, GrantTerms};

    fn grant(key: &str, hash: Option<&str>) -> OperatorEntry {
        OperatorEntry {
            kind: EntryKind::Grant,
            key: key.into(),
            hash: hash.map(str::to_owned),
            reason: String::new(),
            by: String::new(),
            since: 1_000,
            until: 2_000,
            keep_until: 2_000,
            changed_at: 1_000,
            origin: 1,
            earlier_bans: 0,
            terms: Some(EntryTerms::Grant(GrantTerms {
                limit: "few".into(),
                times: 2,
                add: 0,
            })),
            is_revoked: false,
        }
    }

    /// It holds again, so whoever applies it must know.
    #[test]
    fn a_clock_that_jumps_ahead_and_back_orders_anew() {
        let mut state = RegistryState::default();
        assert!(state.change(grant("user=alice", None)));
        let mut kinds_at = |wall_millis| -> Vec<ChangeKind> {
            let changes = state.collect_changes(wall_millis).into_iter();
            changes.map(|change| change.kind).collect()
        };
        assert_eq!(kinds_at(1_000), [ChangeKind::Ordered]);
        assert_eq!(kinds_at(9_000), [ChangeKind::Ended]);
        assert_eq!(kinds_at(9_000), []);
        assert_eq!(kinds_at(1_500), [ChangeKind::Ordered]);
        assert_eq!(kinds_at(1_500), []);
    }

    #[test]
    fn a_hash_counts_only_beside_a_key_that_needs_it() {
        let hash = Some("000102030405060708090a0b0c0d0e0f");
        let has_hash = |key| grant(key, hash).fingerprint().is_some();
        assert!(has_hash("token=#0123456789ab"));
        assert!(has_hash("@teams=a+#0123456789ab"));
        assert!(!has_hash("user=alice"), "a hash of another user");
    }
}
