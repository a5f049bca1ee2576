//! [`Slots`]: the registered limits. A scope names the counts of one limit. Each state shape of a scope has a slot of its
//! own, and keeps it when the policy is edited. So an edited limit finds its former counts. A slot is given to another
//! limit only when no clone of its [`RegisteredLimit`] is held and no entry has it. There are at most 65,536 slots.

use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, OnceLock};

use siphasher::sip::SipHasher13;

use super::settings::{Error, MAX_LIMITS};
use crate::base::locks::{Mutex, RwLock};
use crate::limit::{RateLimit, StateShape};
use crate::store::{LimitSlot, RegisteredLimit};

/// Slots of a chunk. Chunks are allocated one by one, when their first slot is used.
const CHUNK_SLOTS: usize = 256;

/// The limit of one slot. Its atomics need no ordering: they change only while nobody holds the slot and no entry has it,
/// which is checked under the entries' locks.
#[derive(Debug)]
pub(super) struct SlotInfo {
    scope_hash: AtomicU64,
    scope_number: AtomicU32,
    is_inline: AtomicBool,
    limit: RwLock<Arc<RateLimit>>,
}

impl SlotInfo {
    /// The hash of the scope. All slots of a scope share it, so that the cells of a key are in the same buckets.
    #[inline]
    pub(super) fn scope_hash(&self) -> u64 {
        self.scope_hash.load(Relaxed)
    }

    /// The number of the scope, from 1.
    #[inline]
    pub(super) fn scope_number(&self) -> u32 {
        self.scope_number.load(Relaxed)
    }

    /// Whether states are in the table's entries, not in blocks of the arena.
    #[inline]
    pub(super) fn is_inline(&self) -> bool {
        self.is_inline.load(Relaxed)
    }

    /// The limit as last registered.
    pub(super) fn limit(&self) -> Arc<RateLimit> {
        Arc::clone(&self.limit.read())
    }
}

/// The shapes of all scopes, and the free slots.
#[derive(Debug, Default)]
struct ScopeTable {
    scopes: HashMap<Box<str>, ScopeShapes>,
    /// The number of scopes so far.
    scope_count: u32,
    /// The number of slots that were ever in use.
    slot_count: usize,
    /// Slots that were in use and are free again.
    free_slots: Vec<LimitSlot>,
}

/// The shapes of one scope that have a slot.
#[derive(Debug)]
struct ScopeShapes {
    number: u32,
    shapes: Vec<RegisteredShape>,
}

/// One shape of a scope, and its slot.
#[derive(Debug)]
struct RegisteredShape {
    shape: StateShape,
    is_inline: bool,
    registered: RegisteredLimit,
}

type Chunk = Box<[OnceLock<SlotInfo>]>;

/// All slots. They grow by chunks, and reads take no lock.
#[derive(Debug)]
pub(super) struct Slots {
    scopes: Mutex<ScopeTable>,
    chunks: Box<[OnceLock<Chunk>]>,
}

impl Slots {
    /// The largest number of slots in use at a time.
    pub(super) const MAX_COUNT: usize = MAX_LIMITS;

    pub(super) fn new() -> Slots {
        let chunks = (0..Slots::MAX_COUNT / CHUNK_SLOTS)
            .map(|_| OnceLock::new())
            .collect();
        Slots {
            scopes: Mutex::default(),
            chunks,
        }
    }

    /// The slot of `limit` under `scope`; a new slot when the scope has none of this shape. `limit` replaces a registered
    /// limit of this shape. When no slot is free, slots that have neither a holder nor an entry are reclaimed. `used_slots`
    /// returns for each slot whether some entry has it. It locks buckets, so the caller may hold none.
    ///
    /// # Errors
    ///
    /// When all slots are in use.
    pub(super) fn register(
        &self,
        scope: &str,
        limit: &RateLimit,
        used_slots: impl FnOnce() -> Vec<bool>,
    ) -> Result<RegisteredLimit, Error> {
        // Whether states are inline must not change while cells exist, so a limit of the same shape needs it equal.
        let (shape, is_inline) = (limit.shape(), limit.is_inline());
        let table = &mut *self.scopes.lock();
        let scope_shapes = table
            .scopes
            .get(scope)
            .into_iter()
            .flat_map(|scope| &scope.shapes);
        let mut same_shapes =
            scope_shapes.filter(|old| old.shape == shape && old.is_inline == is_inline);
        if let Some(RegisteredShape { registered, .. }) = same_shapes.next() {
            if let Some(info) = self.get(registered.slot) {
                *info.limit.write() = Arc::new(limit.clone());
            }
            return Ok(registered.clone());
        }
        if table.slot_count == Slots::MAX_COUNT && table.free_slots.is_empty() {
            table.reclaim_slots(used_slots);
        }
        let slot = table.take_free_slot().ok_or(Error::Slots)?;
        let scope_shapes = table.scopes.entry(scope.into()).or_insert_with(|| {
            table.scope_count += 1;
            ScopeShapes {
                number: table.scope_count,
                shapes: Vec::new(),
            }
        });
        self.set_info(slot, scope, scope_shapes.number, limit);
        let registered = RegisteredLimit {
            slot,
            _held: Arc::new(()),
        };
        scope_shapes.shapes.push(RegisteredShape {
            shape,
            is_inline,
            registered: registered.clone(),
        });
        Ok(registered)
    }

    /// The slot of a limit from a snapshot. A registered limit of this shape stays as it is. Another shape gets a slot of
    /// its own under the scope. `None` if the scope is not registered, or all slots are in use. Credits get a slot without
    /// their scope too: their accounts stay, and a policy may have the limit again.
    pub(super) fn register_saved(
        &self,
        scope: &str,
        limit: &RateLimit,
        used_slots: impl FnOnce() -> Vec<bool>,
    ) -> Option<RegisteredLimit> {
        let (shape, is_inline) = (limit.shape(), limit.is_inline());
        {
            let table = self.scopes.lock();
            let registered_scope = table.scopes.get(scope);
            if registered_scope.is_none() && !limit.is_credits() {
                return None;
            }
            let mut shapes = registered_scope.into_iter().flat_map(|scope| &scope.shapes);
            let same_shape = shapes.find(|old| old.shape == shape && old.is_inline == is_inline);
            if let Some(RegisteredShape { registered, .. }) = same_shape {
                return Some(registered.clone());
            }
        }
        self.register(scope, limit, used_slots).ok()
    }

    /// The name of the scope with this number; `None` if its slots were reclaimed. No bucket may be locked, because freeing
    /// slots locks buckets, too.
    pub(super) fn scope_name(&self, scope_number: u32) -> Option<Box<str>> {
        let table = self.scopes.lock();
        let mut scopes = table.scopes.iter();
        let scope = scopes.find(|(_, scope)| scope.number == scope_number);
        scope.map(|(name, _)| name.clone())
    }

    fn set_info(&self, slot: LimitSlot, scope: &str, scope_number: u32, limit: &RateLimit) {
        let mut hasher = SipHasher13::new();
        hasher.write(scope.as_bytes());
        let index = usize::from(slot.0);
        let chunk = self.chunks[index / CHUNK_SLOTS]
            .get_or_init(|| (0..CHUNK_SLOTS).map(|_| OnceLock::new()).collect());
        let limit = Arc::new(limit.clone());
        let info = chunk[index % CHUNK_SLOTS].get_or_init(|| SlotInfo {
            scope_hash: AtomicU64::new(0),
            scope_number: AtomicU32::new(0),
            is_inline: AtomicBool::new(false),
            limit: RwLock::new(limit.clone()),
        });
        info.scope_hash.store(hasher.finish(), Relaxed);
        info.scope_number.store(scope_number, Relaxed);
        info.is_inline.store(limit.is_inline(), Relaxed);
        *info.limit.write() = limit;
    }

    /// The information about `slot`; `None` where the slot was never registered. It stays after the slot is freed.
    #[inline]
    pub(super) fn get(&self, slot: LimitSlot) -> Option<&SlotInfo> {
        let index = usize::from(slot.0);
        self.chunks[index / CHUNK_SLOTS].get()?[index % CHUNK_SLOTS].get()
    }
}

impl ScopeTable {
    /// A slot that is free, or was never in use; `None` if there is none.
    fn take_free_slot(&mut self) -> Option<LimitSlot> {
        if let Some(slot) = self.free_slots.pop() {
            return Some(slot);
        }
        let slot = u16::try_from(self.slot_count).ok().map(LimitSlot)?;
        self.slot_count += 1;
        Some(slot)
    }

    /// Frees the slots that have neither holders nor entries. The last entry of a slot is made before its last holder is
    /// dropped, so the entries are read after the holders.
    fn reclaim_slots(&mut self, used_slots: impl FnOnce() -> Vec<bool>) {
        let is_unheld = |shape: &&RegisteredShape| Arc::strong_count(&shape.registered._held) == 1;
        let shapes = self.scopes.values().flat_map(|scope| &scope.shapes);
        let unheld_slots = shapes.filter(is_unheld).map(|shape| shape.registered.slot);
        let mut unused_slots: HashSet<LimitSlot> = unheld_slots.collect();
        fence(Acquire);
        let used_slots = used_slots();
        unused_slots.retain(|slot| !used_slots[usize::from(slot.0)]);
        self.scopes.retain(|_, scope| {
            let shapes = &mut scope.shapes;
            shapes.retain(|shape| !unused_slots.contains(&shape.registered.slot));
            !shapes.is_empty()
        });
        self.free_slots.extend(unused_slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_again_when_nobody_has_them() {
        let slots = Slots::new();
        let limit = RateLimit::hard("5/m".parse().unwrap());
        let no_slots = || vec![false; Slots::MAX_COUNT];
        let held: Vec<RegisteredLimit> = (0..10)
            .map(|number| {
                slots
                    .register(&format!("held{number}"), &limit, no_slots)
                    .unwrap()
            })
            .collect();
        let mut has_entry = no_slots();
        for number in 0..Slots::MAX_COUNT - 10 {
            let slot = slots
                .register(&format!("gone{number}"), &limit, no_slots)
                .unwrap()
                .slot();
            has_entry[usize::from(slot.0)] = number % 2 == 0;
        }
        let all_slots = || vec![true; Slots::MAX_COUNT];
        assert!(
            slots.register("new", &limit, all_slots).is_err(),
            "all slots have entries"
        );
        for number in 0..(Slots::MAX_COUNT - 10) / 2 {
            let used_slots = || has_entry.clone();
            let new = slots
                .register(&format!("new{number}"), &limit, used_slots)
                .unwrap();
            assert!(held.iter().all(|old| old.slot() != new.slot()));
            assert!(!has_entry[usize::from(new.slot().0)]);
            let info = slots.get(new.slot()).unwrap();
            assert_ne!(
                info.scope_number(),
                slots.get(held[0].slot()).unwrap().scope_number()
            );
        }
        assert!(slots.register("new", &limit, all_slots).is_err());
        let again = slots.register("held3", &limit, all_slots).unwrap();
        assert_eq!(again.slot(), held[3].slot());
    }
}
