//! [`EntryMap`]: all entries of a gateway. Of two changes of one key the newer one wins, so maps that have seen the same
//! changes are equal, whatever the order. Only the revocation of an API key wins against newer changes too, and changes of
//! an account of credits are joined.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::credit_terms::{CreditOrder, CreditTerms};
use super::entry::{EntryGroup, EntryKind, OperatorEntry, SlotKey};

/// All entries, those that have ended or were taken back included. Bound: [`EntryGroup::max_entries`] of each group.
#[derive(Debug, Default)]
pub struct EntryMap {
    slots: BTreeMap<SlotKey, EntrySlot>,
}

/// What [`EntryMap::prune`] has dropped for lack of room.
#[derive(Debug, Default)]
pub struct DroppedEntries {
    /// The entries.
    pub entries: Vec<OperatorEntry>,
    /// How many of them were orders of operators that held, or revoked API keys.
    pub held_orders: usize,
}

/// One entry, and what this gateway counts of it.
#[derive(Debug)]
pub struct EntrySlot {
    /// The entry.
    pub entry: OperatorEntry,
    /// Requests that this gateway has refused because of it.
    pub hits: Arc<AtomicU64>,
    /// The time of the change that was last reported, and whether the entry held then; `None` before the first report.
    pub reported: Option<(u64, bool)>,
    /// The orders of an account that came since its last report. At most [`CreditTerms::MAX_JOINED_ORDERS`].
    pub unreported: Vec<CreditOrder>,
}

impl EntrySlot {
    /// Merges two changes of one key of which one is final. Its time is the later one then, or else stores would keep the
    /// other change.
    fn merge_final(&mut self, mut entry: OperatorEntry) -> bool {
        let former_change = self.entry.change();
        if entry.is_final() {
            std::mem::swap(&mut self.entry, &mut entry);
        }
        self.entry.supersede(&entry);
        self.entry.change() != former_change
    }

    /// Takes over all orders of an account that it lacks. What would have too many orders to be read again is not taken.
    fn join_account(&mut self, entry: &OperatorEntry) -> bool {
        if self.entry == *entry {
            return false;
        }
        let joined = self.entry.join_account(entry);
        if !joined.is_bounded() {
            return false;
        }
        let held = self.entry.credit_terms();
        let conflict = held.zip(entry.credit_terms());
        if let Some((order, terms)) =
            conflict.and_then(|(held, terms)| held.conflict(terms).map(|order| (order, terms)))
        {
            let (key, limit, id) = (&self.entry.key, &terms.limit, &*order.id);
            tracing::error!(
                %key,
                limit,
                order = id,
                "two gateways have taken different orders of credits with one id; only the later one counts"
            );
        }
        let new_orders = joined.credit_terms().into_iter();
        let new_orders = new_orders.flat_map(|terms| &terms.orders);
        let is_new = |order: &&CreditOrder| held.is_none_or(|held| held.order(&order.id).is_none());
        self.unreported.extend(new_orders.filter(is_new).cloned());
        self.unreported.truncate(CreditTerms::MAX_JOINED_ORDERS);
        let is_changed = joined.change() != self.entry.change();
        self.entry = joined;
        is_changed
    }

    /// How much it matters that an entry is known, where there is no room for all: 0 if it has ended, 1 if it holds, and 2 if
    /// it keeps a revoked API key from coming back.
    fn importance(&self, wall_millis: u64) -> u8 {
        match self.entry.is_final() && wall_millis < self.entry.keep_until {
            true => 2,
            false => u8::from(self.entry.is_active(wall_millis)),
        }
    }
}

impl EntryMap {
    /// Most entries of all groups.
    pub const MAX_ENTRIES: usize = EntryGroup::Bans.max_entries()
        + EntryGroup::Grants.max_entries()
        + EntryGroup::Credits.max_entries()
        + EntryGroup::ApiKeys.max_entries();

    /// Takes over an entry if it is newer than the one of its key, or final, or the orders of an account. Returns whether
    /// the map has another change of the key now.
    pub fn merge(&mut self, entry: OperatorEntry) -> bool {
        match self.slots.entry(entry.slot_key()) {
            MapEntry::Vacant(vacant) => {
                let orders = entry.credit_terms().map(|terms| terms.orders.clone());
                vacant.insert(EntrySlot {
                    entry,
                    unreported: orders.unwrap_or_default(),
                    hits: Arc::default(),
                    reported: None,
                });
                true
            }
            MapEntry::Occupied(mut occupied) => {
                let slot = occupied.get_mut();
                if entry.kind == EntryKind::Credit {
                    return slot.join_account(&entry);
                }
                if entry.is_final() != slot.entry.is_final() {
                    return slot.merge_final(entry);
                }
                let keep_until = entry.keep_until.max(slot.entry.keep_until);
                let is_newer = entry.is_newer_than(&slot.entry);
                if is_newer {
                    if entry.since != slot.entry.since {
                        slot.hits = Arc::default();
                    }
                    slot.entry = entry;
                }
                slot.entry.keep_until = keep_until;
                is_newer
            }
        }
    }

    /// The time of a change of this key that is made now: later than every one that was seen, even if this gateway's
    /// clock is behind.
    pub fn next_change(&self, kind: EntryKind, subject: &str, wall_millis: u64) -> u64 {
        let held = self.get(kind, subject);
        let last_change = held.map_or(0, |slot| slot.entry.changed_at);
        wall_millis.max(last_change.saturating_add(1))
    }

    /// The entry with this subject, which is the key of a ban; `None` if there is none.
    pub fn get(&self, kind: EntryKind, subject: &str) -> Option<&EntrySlot> {
        self.slots.get(&(kind, subject.to_owned()))
    }

    /// All entries, in the order of their keys.
    pub fn slots(&self) -> impl Iterator<Item = &EntrySlot> {
        self.slots.values()
    }

    /// All entries, which the caller may mark as seen.
    pub fn slots_mut(&mut self) -> impl Iterator<Item = &mut EntrySlot> {
        self.slots.values_mut()
    }

    /// The number of entries of a kind that hold at this time.
    pub fn active_count(&self, kind: EntryKind, wall_millis: u64) -> usize {
        let slots = self.slots.values();
        let is_counted = |entry: &OperatorEntry| entry.kind == kind && entry.is_active(wall_millis);
        slots.filter(|slot| is_counted(&slot.entry)).count()
    }

    /// Drops entries that need not be kept any more, if `may_forget`. Of those of a group beyond its bound those go first
    /// that have ended, then those of limits, then those that end first. Of accounts the smallest go first, and revoked API
    /// keys go last. All gateways choose the same ones.
    pub fn prune(&mut self, wall_millis: u64, may_forget: bool) -> DroppedEntries {
        if may_forget {
            self.slots
                .retain(|_, slot| wall_millis < slot.entry.keep_until);
        }
        let mut dropped = DroppedEntries::default();
        for group in EntryGroup::ALL {
            let of_group = |slot: &&EntrySlot| slot.entry.kind.group() == group;
            let count = self.slots.values().filter(of_group).count();
            let surplus = count.saturating_sub(group.max_entries());
            if surplus > 0 {
                self.drop_surplus(group, surplus, wall_millis, &mut dropped);
            }
        }
        dropped
    }

    /// Drops so many entries of a group.
    fn drop_surplus(
        &mut self,
        group: EntryGroup,
        surplus: usize,
        wall_millis: u64,
        dropped: &mut DroppedEntries,
    ) {
        let slots = self.slots.iter();
        let of_group = slots.filter(|(_, slot)| slot.entry.kind.group() == group);
        let ranked = of_group.map(|(key, slot)| {
            let importance = slot.importance(wall_millis);
            let end = match (importance, slot.entry.credit_terms()) {
                (_, Some(terms)) => u64::from(terms.added()),
                (2, _) => slot.entry.keep_until,
                _ => slot.entry.until,
            };
            ((importance, !slot.entry.is_automatic(), end), key)
        });
        let mut by_end: Vec<_> = ranked.collect();
        by_end.sort_unstable();
        by_end.truncate(surplus);
        dropped.held_orders += by_end
            .iter()
            .filter(|((importance, is_ordered, _), _)| *importance > 0 && *is_ordered)
            .count();
        let dropped_keys: Vec<SlotKey> = by_end.into_iter().map(|(_, key)| key.clone()).collect();
        let removed = dropped_keys.iter().filter_map(|key| self.slots.remove(key));
        dropped.entries.extend(removed.map(|slot| slot.entry));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::operator::entry_terms::{EntryTerms, GrantTerms};

    const MAX_BANS: usize = EntryGroup::Bans.max_entries();

    fn entry(key: u8, changed_at: u64, origin: u32) -> OperatorEntry {
        OperatorEntry {
            kind: EntryKind::Ban,
            key: format!("user={key}"),
            hash: None,
            reason: String::new(),
            by: "test".into(),
            earlier_bans: 0,
            terms: None,
            since: changed_at,
            until: changed_at + 1_000 / (u64::from(origin) + 1),
            keep_until: changed_at + 1_000 / (u64::from(origin) + 1),
            changed_at,
            origin,
            is_revoked: origin == 1,
        }
    }

    fn merged(entries: &[OperatorEntry]) -> Vec<OperatorEntry> {
        let mut map = EntryMap::default();
        for entry in entries {
            map.merge(entry.clone());
        }
        map.slots()
            .map(|slot| OperatorEntry {
                // The end that a key had longest depends on what was seen.
                keep_until: 0,
                ..slot.entry.clone()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_order_of_changes_does_not_matter(
            changes in proptest::collection::vec((0u8..3, 0u64..5, 0u32..3), 0..12),
            rotation in 0usize..12,
        ) {
            let mut entries: Vec<_> = changes
                .iter()
                .map(|(key, changed_at, origin)| entry(*key, *changed_at, *origin))
                .collect();
            let expected = merged(&entries);
            let length = entries.len().max(1);
            let count = (rotation % length).min(entries.len());
            entries.rotate_left(count);
            prop_assert_eq!(merged(&entries), expected.clone());
            entries.reverse();
            prop_assert_eq!(merged(&entries), expected);
        }
    }

    #[test]
    fn an_older_and_longer_order_does_not_come_back() {
        let (long, short) = (entry(1, 10, 0), entry(1, 20, 2));
        let mut map = EntryMap::default();
        map.merge(long.clone());
        map.merge(short.clone());
        assert!(short.until < long.until);
        map.prune(short.until + 1, true);
        assert!(!map.merge(long.clone()));
        assert_eq!(map.active_count(EntryKind::Ban, short.until + 1), 0);
        map.prune(long.until + 1, true);
        assert_eq!(map.slots().count(), 0);
    }

    #[test]
    fn orders_that_end_last_are_kept() {
        let mut map = EntryMap::default();
        for number in 0..MAX_BANS as u64 + 50 {
            let mut entry = entry(0, number, 0);
            entry.key = format!("user={number}");
            entry.until = 1_000_000 + number;
            entry.keep_until = entry.until;
            map.merge(entry);
        }
        assert_eq!(map.prune(500, false).held_orders, 50);
        assert_eq!(map.slots().count(), MAX_BANS);
        assert!(map.get(EntryKind::Ban, "user=49").is_none());
        assert!(map.get(EntryKind::Ban, "user=50").is_some());
    }

    #[test]
    fn bans_displace_no_grants() {
        let mut map = EntryMap::default();
        for number in 0..MAX_BANS as u64 + 50 {
            let mut ban = entry(0, number, 0);
            ban.key = format!("user={number}");
            (ban.until, ban.keep_until) = (u64::MAX, u64::MAX);
            map.merge(ban);
        }
        for (limit, key) in [("a", 1), ("a", 2), ("b", 1)] {
            let mut grant = entry(key, 1, 0);
            grant.kind = EntryKind::Grant;
            grant.terms = Some(EntryTerms::Grant(GrantTerms {
                limit: limit.into(),
                times: 2,
                add: 0,
            }));
            map.merge(grant);
        }
        let dropped = map.prune(500, false);
        let is_ban = |entry: &OperatorEntry| entry.kind == EntryKind::Ban;
        assert!(dropped.entries.len() == 50 && dropped.entries.iter().all(is_ban));
        assert_eq!(map.active_count(EntryKind::Grant, 500), 3);
        assert!(map.get(EntryKind::Grant, "b user=1").is_some());
    }

    /// Or else a gateway that was away could bring it back.
    #[test]
    fn revoked_keys_go_last() {
        const MAX_KEYS: usize = EntryGroup::ApiKeys.max_entries();
        let mut map = EntryMap::default();
        for number in 0..MAX_KEYS as u64 + 50 {
            let mut key = entry(0, 1, 0);
            key.kind = EntryKind::ApiKey;
            key.key = format!("{number:016x}");
            // Ten have ended, 100 were revoked and end before the others.
            (key.until, key.is_revoked) = match number {
                0..10 => (400, false),
                10..110 => (1_000, true),
                _ => (2_000 + number, false),
            };
            key.keep_until = key.until;
            map.merge(key);
        }
        let dropped = map.prune(500, false);
        assert_eq!((dropped.entries.len(), dropped.held_orders), (50, 40));
        assert!(dropped.entries.iter().all(|entry| !entry.is_revoked));
        let revoked = map.slots().filter(|slot| slot.entry.is_revoked).count();
        assert_eq!(revoked, 100);
    }

    /// A limit must not shorten what an operator has ordered, whichever gateway it is at.
    #[test]
    fn a_later_ban_by_a_limit_replaces_no_order() {
        let order = entry(1, 10, 0);
        let mut by_limit = entry(1, 20, 2);
        by_limit.kind = EntryKind::LimitBan;
        let mut map = EntryMap::default();
        map.merge(order.clone());
        assert!(map.merge(by_limit));
        let held = map.get(EntryKind::Ban, &order.key);
        assert_eq!(held.map(|slot| &slot.entry), Some(&order));
    }

    #[test]
    fn entries_that_have_ended_stay_while_the_clock_may_be_wrong() {
        let mut map = EntryMap::default();
        map.merge(entry(1, 10, 0));
        map.prune(u64::MAX, false);
        assert_eq!(map.slots().count(), 1);
        map.prune(u64::MAX, true);
        assert_eq!(map.slots().count(), 0);
    }

    #[test]
    fn times_that_no_clock_says_are_not_believed() {
        let sound = entry(1, 1_000, 0);
        assert!(sound.is_possible() && sound.is_credible(1_000));
        let late = entry(1, 1_000 + 2 * 86_400_000, 0);
        assert!(late.is_possible() && !late.is_credible(1_000));
        let never = entry(1, u64::MAX - 2_000, 0);
        assert!(!never.is_possible());
        let endless = OperatorEntry {
            until: u64::MAX,
            ..sound.clone()
        };
        assert!(!endless.is_possible() && !endless.is_credible(1_000));
        let value = sound.to_stored_value();
        assert!(sound.has_order_of(&value));
        assert!(!sound.has_order_of(&value.replacen('0', "9", 1)));
    }
}
