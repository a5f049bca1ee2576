//! A bounded cache by fingerprint. It holds results for tokens, because verifying a signature costs far more CPU time
//! than a lookup, and the failures of addresses.
//!
//! It is a set-associative cache with second-chance eviction: reading an entry marks it as read, and an entry with this
//! mark is evicted only if all entries of its set have it.

use crate::limit::Fingerprint;

/// Entries of one set. A lookup compares at most this many fingerprints.
const WAYS: usize = 4;

/// A bounded map from fingerprints to values. It allocates with the first `put`.
#[derive(Debug)]
pub struct FingerprintCache<V> {
    /// Empty before the first `put`.
    sets: Vec<CacheSet<V>>,
    /// The number of sets that the first `put` allocates.
    set_count: usize,
}

/// The entries among which a fingerprint is looked up; a free one is `None`.
type CacheSet<V> = [Option<CacheEntry<V>>; WAYS];

#[derive(Debug)]
struct CacheEntry<V> {
    key: Fingerprint,
    /// Whether the entry is marked as read: it was read since it was stored, and since the marks of its set were
    /// cleared.
    was_read: bool,
    value: V,
}

impl<V> FingerprintCache<V> {
    /// An empty cache for `capacity` values, rounded up to a multiple of [`WAYS`].
    pub fn new(capacity: usize) -> FingerprintCache<V> {
        FingerprintCache {
            sets: Vec::new(),
            set_count: capacity.div_ceil(WAYS).max(1),
        }
    }

    /// The value of `key`, which is marked as read; `None` if it is not in the cache.
    pub fn get(&mut self, key: Fingerprint) -> Option<&V> {
        let set_index = self.set_index(key);
        let entry = self
            .sets
            .get_mut(set_index)?
            .iter_mut()
            .flatten()
            .find(|entry| entry.key == key)?;
        entry.was_read = true;
        Some(&entry.value)
    }

    /// Stores `value` under `key`, and replaces a value that the key has. If the key's set is full, an entry that is
    /// not marked as read is evicted, or any one if all are marked.
    pub fn put(&mut self, key: Fingerprint, value: V) {
        if self.sets.is_empty() {
            self.sets
                .resize_with(self.set_count, || [const { None }; WAYS]);
        }
        let set_index = self.set_index(key);
        let Some(set) = self.sets.get_mut(set_index) else {
            return;
        };
        let way = choose_way(set, key);
        set[way] = Some(CacheEntry {
            key,
            was_read: false,
            value,
        });
    }

    fn set_index(&self, key: Fingerprint) -> usize {
        key.0 as usize % self.set_count
    }
}

/// The index in `set` where `key` is to be stored: that of its own entry, else a free one, else that of an entry that
/// is not marked as read. If all are marked, the marks are cleared and the key decides.
fn choose_way<V>(set: &mut CacheSet<V>, key: Fingerprint) -> usize {
    let way = find_way(set, |entry| entry.key == key)
        .or_else(|| set.iter().position(Option::is_none))
        .or_else(|| find_way(set, |entry| !entry.was_read));
    way.unwrap_or_else(|| {
        for entry in set.iter_mut().flatten() {
            entry.was_read = false;
        }
        // The upper half of the key chooses the entry, because the lower half chose the set already.
        (key.0 >> 64) as usize % WAYS
    })
}

/// The index in `set` of the first entry that has the property.
fn find_way<V>(set: &CacheSet<V>, has_property: impl Fn(&CacheEntry<V>) -> bool) -> Option<usize> {
    set.iter()
        .position(|entry| entry.as_ref().is_some_and(&has_property))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_what_is_used_within_its_bound() {
        let mut cache = FingerprintCache::new(8);
        assert_eq!(cache.get(Fingerprint(0)), None);
        for number in 0..1_000_u128 {
            cache.put(Fingerprint(number), number);
            assert_eq!(cache.get(Fingerprint(number)), Some(&number));
        }
        let kept = (0..1_000)
            .filter(|number| cache.get(Fingerprint(*number)).is_some())
            .count();
        assert_eq!(kept, 8);
        cache.put(Fingerprint(999), 5);
        assert_eq!(cache.get(Fingerprint(999)), Some(&5));
    }

    #[test]
    fn a_flood_leaves_what_is_used() {
        let mut cache = FingerprintCache::new(4);
        cache.put(Fingerprint(0), 0);
        for number in 1..1_000_u128 {
            assert_eq!(cache.get(Fingerprint(0)), Some(&0), "{number}");
            cache.put(Fingerprint(number), number);
        }
    }
}
