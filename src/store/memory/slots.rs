//! The limits that were registered: a number for each shape that a scope has had, so that an edited
//! policy finds the counts of the one before.

use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use siphasher::sip::SipHasher13;

use super::{Error, Slot};
use crate::limit::{Limit, Shape};

const CHUNK: usize = 256;

/// One slot.
#[derive(Debug)]
pub(super) struct Info {
    /// Hash of the scope: the same for all its slots, so that their cells meet in the same buckets.
    pub(super) seed: u64,
    /// Number of the scope.
    pub(super) scope: u32,
    /// Whether states live in the table's entries.
    pub(super) inline: bool,
    /// The limit as last registered.
    pub(super) limit: RwLock<Arc<Limit>>,
}

#[derive(Debug, Default)]
struct Names {
    scopes: HashMap<Box<str>, Scope>,
    taken: usize,
}

#[derive(Debug)]
struct Scope {
    number: u32,
    shapes: Vec<(Shape, bool, Slot)>,
}

type Chunk = Box<[OnceLock<Info>]>;

/// All slots; grows by chunks, reads take no lock.
#[derive(Debug)]
pub(super) struct Slots {
    names: Mutex<Names>,
    chunks: Box<[OnceLock<Chunk>]>,
}

impl Slots {
    /// Most slots that can be registered.
    pub(super) const MOST: usize = 65_536;

    pub(super) fn new() -> Slots {
        let chunks = (0..Slots::MOST / CHUNK).map(|_| OnceLock::new()).collect();
        Slots {
            names: Mutex::default(),
            chunks,
        }
    }

    /// The slot of `limit` under `scope`, a new one when the scope never had this shape.
    pub(super) fn register(&self, scope: &str, limit: &Limit) -> Result<Slot, Error> {
        // Where states live must not change under the cells there are, so it is part of the shape.
        let (shape, inline) = (limit.shape(), limit.inline());
        let mut names = self.names.lock();
        let names = &mut *names;
        let next = names.scopes.len() as u32;
        let entry = names.scopes.entry(scope.into()).or_insert_with(|| Scope {
            number: next,
            shapes: Vec::new(),
        });
        let known = entry
            .shapes
            .iter()
            .find(|(s, i, _)| *s == shape && *i == inline);
        if let Some((.., slot)) = known {
            if let Some(info) = self.get(*slot) {
                *info.limit.write() = Arc::new(limit.clone());
            }
            return Ok(*slot);
        }
        if names.taken == Slots::MOST {
            return Err(Error::Slots);
        }
        let slot = Slot(names.taken as u16);
        let mut hasher = SipHasher13::new();
        hasher.write(scope.as_bytes());
        let info = Info {
            seed: hasher.finish(),
            scope: entry.number,
            inline,
            limit: RwLock::new(Arc::new(limit.clone())),
        };
        let chunk = self.chunks[usize::from(slot.0) / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        // The slot is new, so its place is empty.
        let _ = chunk[usize::from(slot.0) % CHUNK].set(info);
        names.taken += 1;
        entry.shapes.push((shape, inline, slot));
        Ok(slot)
    }

    /// What is known of `slot`.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&Info> {
        let slot = usize::from(slot.0);
        self.chunks[slot / CHUNK].get()?[slot % CHUNK].get()
    }
}
