//! [`EntryRegistry`]: all orders of operators of a gateway, of whatever kind. The file and the shared store of the gateways
//! change it too. Views of it, such as the registry of bans, order and find the entries of one kind.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};

use super::entry::{EntryGroup, EntryKind, OperatorEntry, SlotKey};
use super::entry_file::EntryFile;
use super::entry_map::{EntryMap, EntrySlot};
use super::registry_state::{EntryChange, RegistryState, Revocation, bounded_name, stored};
use crate::base::clock::{Clock, Nanos};
use crate::identity::Keyer;
use crate::store::shared::shared_entries::{SharedEntries, StoredEntry};

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

/// All orders of operators of a gateway.
#[derive(Debug)]
pub struct EntryRegistry {
    state: Mutex<RegistryState>,
    clock: Clock,
    /// When this registry was opened.
    opened_at: Nanos,
    /// The number of this gateway in entries.
    origin: u32,
}

/// What has changed since the last refresh.
#[derive(Debug, Default)]
pub struct RefreshedEntries {
    /// The changes of single orders.
    pub changes: Vec<EntryChange>,
    /// The groups of which other entries have changed, without a change that is reported.
    pub changed_groups: BTreeSet<EntryGroup>,
}

impl RefreshedEntries {
    /// Whether an order of one of these kinds may have changed.
    pub(super) fn concerns(&self, kinds: &[EntryKind]) -> bool {
        let has_changed = |kind: &EntryKind| self.changed_groups.contains(&kind.group());
        let mut changes = self.changes.iter();
        kinds.iter().any(has_changed) || changes.any(|change| kinds.contains(&change.entry.kind))
    }
}

impl EntryRegistry {
    /// The entries in the file at this path, or none. `keeps_secret` says whether the gateway's secret outlives the process.
    ///
    /// # Errors
    ///
    /// The folder of the file cannot be created.
    pub fn open(
        file: Option<&Path>,
        keeps_secret: bool,
        clock: Clock,
    ) -> io::Result<EntryRegistry> {
        let file = file.map(EntryFile::new).transpose()?;
        let registry = EntryRegistry {
            state: Mutex::new(RegistryState {
                file,
                keeps_secret,
                ..RegistryState::default()
            }),
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

    /// Takes over what another process has written to the file, writes what it lacks, and forgets what need not be kept.
    /// Returns what has changed since the last call.
    pub fn refresh(&self) -> RefreshedEntries {
        let mut state = self.state.lock();
        let (wall_millis, now) = (self.wall_millis(), self.clock.now());
        state.read_file();
        let changes = state.collect_changes(wall_millis);
        state.prune(wall_millis, self.is_settled());
        let dropped_count = std::mem::take(&mut state.dropped_orders);
        if dropped_count > 0 {
            tracing::error!(
                dropped_count,
                "there are too many orders of one kind; those that end first were dropped"
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
        RefreshedEntries {
            changes,
            changed_groups: std::mem::take(&mut state.changed_groups),
        }
    }

    /// Writes what is not on the disk yet, at the end of the gateway.
    pub fn save(&self) {
        let mut state = self.state.lock();
        if state.is_unsaved {
            state.save();
        }
    }

    /// Locks the entries. The file may be written while others wait.
    pub(super) fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock()
    }

    /// The clock of the gateway.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The number of this gateway in entries.
    pub(super) fn origin(&self) -> u32 {
        self.origin
    }

    /// The wall time in milliseconds since 1970.
    pub(super) fn wall_millis(&self) -> u64 {
        u64::try_from(self.clock.wall().as_millis()).unwrap_or(u64::MAX)
    }

    /// Who takes an order back now.
    pub(super) fn revocation(&self, by: &str) -> Revocation {
        Revocation {
            by: bounded_name(by),
            origin: self.origin,
            wall_millis: self.wall_millis(),
        }
    }

    /// Whether the clock has had the time to be set, so that what it says to have ended may be forgotten.
    fn is_settled(&self) -> bool {
        self.clock.now().since(self.opened_at) >= SETTLING_TIME
    }
}

/// The disk may be slow while the lock is held, and the store's keeper must not wait for it.
impl SharedEntries for EntryRegistry {
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
        let mut lacking: BTreeSet<SlotKey> = slots.map(|slot| slot.entry.slot_key()).collect();
        state.over.clear();
        let mut has_future = false;
        for value in values {
            // Another version of the gateway may have stored what this one does not know.
            let Ok(value) = std::str::from_utf8(value) else {
                continue;
            };
            let Some(mut entry) = OperatorEntry::parse_stored_value(value) else {
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
                state.merge_future(entry, value, wall_millis, &mut lacking);
                continue;
            }
            let (slot_key, change) = (entry.slot_key(), entry.change());
            if entry.kind == EntryKind::Credit
                && let Some(held) = state.entries.get(slot_key.0, &slot_key.1)
            {
                // Whoever can write to the store must not give credits to another key.
                entry.hash.clone_from(&held.entry.hash);
            }
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
                "a gateway whose clock is more than a day ahead has changed orders in the store; of these only revocations of API keys count"
            );
        }
        true
    }
}
