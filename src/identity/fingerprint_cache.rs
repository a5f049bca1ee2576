//! A bounded cache by fingerprint, for verified tokens among others: checking a signature costs a hundred times as
//! much as a lookup.
//!
//! It is a set-associative cache with second-chance eviction. It never evicts an entry that was read since its set
//! was last full, while another one was not.

use crate::limit::Fingerprint;

/// Entries of one set.
const WAYS: usize = 4;

/// A bounded map from fingerprints to values. It allocates with the first `put`.
#[derive(Debug)]
pub struct FingerprintCache<V> {
    /// Empty before the first `put`.
    sets: Vec<CacheSet<V>>,
    set_count: usize,
}

type CacheSet<V> = [Option<CacheEntry<V>>; WAYS];

#[derive(Debug)]
struct CacheEntry<V> {
    key: Fingerprint,
    /// The entry was read since all entries of its set were in use.
    was_read: bool,
    value: V,
}

impl<V> FingerprintCache<V> {
    /// Has room for `capacity` values, rounded up to a multiple of four.
    pub fn new(capacity: usize) -> FingerprintCache<V> {
        FingerprintCache {
            sets: Vec::new(),
            set_count: capacity.div_ceil(WAYS).max(1),
        }
    }

    /// The value of `key`, which counts as used from now on.
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

    /// Stores `value` under `key`. If the set is full, an entry that was not used is evicted.
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

/// The index in `set` where `key` is stored: its own, else a free one, else that of an unused entry.
fn choose_way<V>(set: &mut CacheSet<V>, key: Fingerprint) -> usize {
    let way = find_way(set, |entry| entry.key == key)
        .or_else(|| set.iter().position(Option::is_none))
        .or_else(|| find_way(set, |entry| !entry.was_read));
    way.unwrap_or_else(|| {
        for entry in set.iter_mut().flatten() {
            entry.was_read = false;
        }
        // All entries are in use. The key chooses one of them, so that it is not always the same.
        (key.0 >> 64) as usize % WAYS
    })
}

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
