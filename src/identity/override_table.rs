//! The keys whose limits the policies or grants override, by their hashes under the secret of one [`Keyer`](super::Keyer),
//! and a cache of one such table.
//!
//! A table has at most one entry for each key in the files of overrides, whose sizes `policy` bounds.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limit::{Fingerprint, KeyLimit, OverrideSet};

/// The overriding limit of each key, for all sets of overrides.
#[derive(Debug, Default)]
pub struct OverrideTable {
    /// The keys of each set, by [`OverrideSet::index`] or [`Overrides::granted_set`](crate::limit::Overrides::granted_set).
    keys_by_set: Vec<HashMap<Fingerprint, KeyLimit>>,
}

/// The last table that was built for the policies of one load, with the mark of its secret. Workers with the same secret
/// share the table, because hashing many keys takes long.
#[derive(Debug, Default)]
pub struct OverrideCache(Mutex<Option<(Fingerprint, Arc<OverrideTable>)>>);

impl OverrideTable {
    /// Adds a key to the set with this index. A key that is added twice has the limit of the second time.
    pub fn insert(&mut self, set_index: usize, key: Fingerprint, limit: KeyLimit) {
        if self.keys_by_set.len() <= set_index {
            self.keys_by_set.resize_with(set_index + 1, HashMap::new);
        }
        self.keys_by_set[set_index].insert(key, limit);
    }

    /// Whether keys of the set were added.
    pub fn has_keys_of(&self, set: &OverrideSet) -> bool {
        self.keys_by_set
            .get(set.index)
            .is_some_and(|keys| !keys.is_empty())
    }

    /// The limit of a key of the set with this index in place of that of its rule; `None` if nothing overrides it.
    pub fn find(&self, set_index: usize, key: Fingerprint) -> Option<KeyLimit> {
        self.keys_by_set.get(set_index)?.get(&key).copied()
    }
}

impl OverrideCache {
    /// Returns the cached table if it was built under the same secret. Otherwise it builds one, which replaces the cached
    /// one. `secret_mark` is the hash of an empty text under the secret.
    ///
    /// The cache stays locked during `build`, so that workers that start together wait for one table and build no other.
    pub fn get_or_build(
        &self,
        secret_mark: Fingerprint,
        build: impl FnOnce() -> OverrideTable,
    ) -> Arc<OverrideTable> {
        let mut cached = self.0.lock();
        match &*cached {
            Some((cached_mark, table)) if *cached_mark == secret_mark => table.clone(),
            _ => {
                let table = Arc::new(build());
                *cached = Some((secret_mark, table.clone()));
                table
            }
        }
    }
}
