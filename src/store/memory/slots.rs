//! The registered limits: a slot for each shape that a scope has had, so that an edited policy finds the counts of the one
//! before.

use std::collections::{HashMap, HashSet};
use std::hash::Hasher;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use siphasher::sip::SipHasher13;

use super::settings::{Error, MOST_LIMITS};
use crate::limit::{Limit, StateShape};
use crate::store::{Registered, Slot};

const CHUNK: usize = 256;

/// What is known of one slot. It changes only while no entry has the slot, which is checked under the entries' locks.
#[derive(Debug)]
pub(super) struct SlotInfo {
    seed: AtomicU64,
    scope: AtomicU32,
    inline: AtomicBool,
    limit: RwLock<Arc<Limit>>,
}

impl SlotInfo {
    /// Hash of the scope: the same for all its slots, so that their cells meet in the same buckets.
    #[inline]
    pub(super) fn seed(&self) -> u64 {
        self.seed.load(Relaxed)
    }

    /// Number of the scope.
    #[inline]
    pub(super) fn scope(&self) -> u32 {
        self.scope.load(Relaxed)
    }

    /// Whether states live in the table's entries.
    #[inline]
    pub(super) fn inline(&self) -> bool {
        self.inline.load(Relaxed)
    }

    /// The limit as last registered.
    pub(super) fn limit(&self) -> Arc<Limit> {
        Arc::clone(&self.limit.read())
    }
}

#[derive(Debug, Default)]
struct ScopeTable {
    scopes: HashMap<Box<str>, ScopeShapes>,
    /// The number of scopes so far.
    counted: u32,
    /// The number of slots given out so far.
    taken: usize,
    /// Slots that were given out and are free again.
    free: Vec<Slot>,
}

#[derive(Debug)]
struct ScopeShapes {
    number: u32,
    shapes: Vec<RegisteredShape>,
}

#[derive(Debug)]
struct RegisteredShape {
    shape: StateShape,
    inline: bool,
    registered: Registered,
}

type Chunk = Box<[OnceLock<SlotInfo>]>;

/// All slots; grows by chunks, reads take no lock.
#[derive(Debug)]
pub(super) struct Slots {
    names: Mutex<ScopeTable>,
    chunks: Box<[OnceLock<Chunk>]>,
}

impl Slots {
    /// Most slots at a time.
    pub(super) const MOST: usize = MOST_LIMITS;

    pub(super) fn new() -> Slots {
        let chunks = (0..Slots::MOST / CHUNK).map(|_| OnceLock::new()).collect();
        Slots {
            names: Mutex::default(),
            chunks,
        }
    }

    /// The slot of `limit` under `scope`; a new one when the scope has none of this shape. When all slots are given out,
    /// those without a holder and not in `counting` are given out again.
    pub(super) fn register(
        &self,
        scope: &str,
        limit: &Limit,
        counting: impl FnOnce() -> Vec<bool>,
    ) -> Result<Registered, Error> {
        // Where states live must not change while cells exist, so it is part of the shape.
        let (shape, inline) = (limit.shape(), limit.is_inline());
        let names = &mut *self.names.lock();
        let shapes = names.scopes.get(scope).into_iter().flat_map(|s| &s.shapes);
        let mut shapes = shapes.filter(|known| known.shape == shape && known.inline == inline);
        if let Some(RegisteredShape { registered, .. }) = shapes.next() {
            if let Some(info) = self.get(registered.slot) {
                *info.limit.write() = Arc::new(limit.clone());
            }
            return Ok(registered.clone());
        }
        if names.taken == Slots::MOST && names.free.is_empty() {
            names.reclaim(counting);
        }
        let slot = names.vacant().ok_or(Error::Slots)?;
        let entry = names.scopes.entry(scope.into()).or_insert_with(|| {
            names.counted += 1;
            ScopeShapes {
                number: names.counted,
                shapes: Vec::new(),
            }
        });
        self.set(slot, scope, entry.number, limit);
        let registered = Registered {
            slot,
            _held: Arc::new(()),
        };
        entry.shapes.push(RegisteredShape {
            shape,
            inline,
            registered: registered.clone(),
        });
        Ok(registered)
    }

    /// The slot of a limit from a snapshot. A registered limit of this shape stays as it is; another shape gets a slot as
    /// an older one of its scope. `None` when the scope is not registered.
    pub(super) fn adopt(
        &self,
        scope: &str,
        limit: &Limit,
        counting: impl FnOnce() -> Vec<bool>,
    ) -> Option<Registered> {
        let (shape, inline) = (limit.shape(), limit.is_inline());
        {
            let names = self.names.lock();
            let mut shapes = names.scopes.get(scope)?.shapes.iter();
            if let Some(same) = shapes.find(|known| known.shape == shape && known.inline == inline)
            {
                return Some(same.registered.clone());
            }
        }
        self.register(scope, limit, counting).ok()
    }

    /// The name of the scope with this number. No bucket may be locked, because freeing slots locks buckets, too.
    pub(super) fn name(&self, number: u32) -> Option<Box<str>> {
        let names = self.names.lock();
        let mut scopes = names.scopes.iter();
        let found = scopes.find(|(_, scope)| scope.number == number);
        found.map(|(name, _)| name.clone())
    }

    fn set(&self, slot: Slot, scope: &str, number: u32, limit: &Limit) {
        let mut hasher = SipHasher13::new();
        hasher.write(scope.as_bytes());
        let place = usize::from(slot.0);
        let chunk = self.chunks[place / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let limit = Arc::new(limit.clone());
        let info = chunk[place % CHUNK].get_or_init(|| SlotInfo {
            seed: AtomicU64::new(0),
            scope: AtomicU32::new(0),
            inline: AtomicBool::new(false),
            limit: RwLock::new(limit.clone()),
        });
        info.seed.store(hasher.finish(), Relaxed);
        info.scope.store(number, Relaxed);
        info.inline.store(limit.is_inline(), Relaxed);
        *info.limit.write() = limit;
    }

    /// What is known of `slot`.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&SlotInfo> {
        let slot = usize::from(slot.0);
        self.chunks[slot / CHUNK].get()?[slot % CHUNK].get()
    }
}

impl ScopeTable {
    fn vacant(&mut self) -> Option<Slot> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = u16::try_from(self.taken).ok().map(Slot)?;
        self.taken += 1;
        Some(slot)
    }

    /// Frees the slots without holders and entries. The last entry of a slot is made before its last holder lets go, so
    /// the entries are read last.
    fn reclaim(&mut self, counting: impl FnOnce() -> Vec<bool>) {
        let alone = |known: &RegisteredShape| Arc::strong_count(&known.registered._held) == 1;
        let all = self.scopes.values().flat_map(|scope| &scope.shapes);
        let unheld = all
            .filter(|known| alone(known))
            .map(|known| known.registered.slot);
        let mut unheld: HashSet<Slot> = unheld.collect();
        fence(Acquire);
        let counting = counting();
        unheld.retain(|slot| !counting[usize::from(slot.0)]);
        self.scopes.retain(|_, scope| {
            scope
                .shapes
                .retain(|known| !unheld.contains(&known.registered.slot));
            !scope.shapes.is_empty()
        });
        self.free.extend(unheld);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_again_when_nobody_has_them() {
        let slots = Slots::new();
        let limit = Limit::hard("5/m".parse().unwrap());
        let none = || vec![false; Slots::MOST];
        let held: Vec<Registered> = (0..10)
            .map(|n| slots.register(&format!("held{n}"), &limit, none).unwrap())
            .collect();
        let mut counting = none();
        for n in 0..Slots::MOST - 10 {
            let slot = slots
                .register(&format!("gone{n}"), &limit, none)
                .unwrap()
                .slot();
            counting[usize::from(slot.0)] = n % 2 == 0;
        }
        let all = || vec![true; Slots::MOST];
        assert!(
            slots.register("new", &limit, all).is_err(),
            "all still count"
        );
        for n in 0..(Slots::MOST - 10) / 2 {
            let some = || counting.clone();
            let new = slots.register(&format!("new{n}"), &limit, some).unwrap();
            assert!(held.iter().all(|old| old.slot() != new.slot()));
            assert!(!counting[usize::from(new.slot().0)]);
            let info = slots.get(new.slot()).unwrap();
            assert_ne!(info.scope(), slots.get(held[0].slot()).unwrap().scope());
        }
        assert!(slots.register("new", &limit, all).is_err());
        let again = slots.register("held3", &limit, all).unwrap();
        assert_eq!(again.slot(), held[3].slot());
    }
}
