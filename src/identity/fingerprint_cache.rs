//! A small cache by fingerprint, as for verified tokens: a signature costs a hundred times as much as a lookup.

use crate::limit::Fingerprint;

const WAYS: usize = 4;

/// A bounded map from fingerprints: sets of four entries, in each of which an unused one makes room. It takes no memory
/// before the first `put`.
#[derive(Debug)]
pub struct FingerprintCache<V> {
    sets: Vec<Set<V>>,
    count: usize,
}

type Set<V> = [Option<CacheEntry<V>>; WAYS];

#[derive(Debug)]
struct CacheEntry<V> {
    key: Fingerprint,
    /// Read since the set last made room.
    used: bool,
    value: V,
}

impl<V> FingerprintCache<V> {
    /// Room for `capacity` values, rounded up to a multiple of four.
    pub fn new(capacity: usize) -> FingerprintCache<V> {
        FingerprintCache {
            sets: Vec::new(),
            count: capacity.div_ceil(WAYS).max(1),
        }
    }

    /// The value of `key`.
    pub fn get(&mut self, key: Fingerprint) -> Option<&V> {
        let set = self.place(key);
        let found = self
            .sets
            .get_mut(set)?
            .iter_mut()
            .flatten()
            .find(|entry| entry.key == key)?;
        found.used = true;
        Some(&found.value)
    }

    /// Remembers `value`, in the place of an older one if need be.
    pub fn put(&mut self, key: Fingerprint, value: V) {
        if self.sets.is_empty() {
            self.sets.resize_with(self.count, || [const { None }; WAYS]);
        }
        let place = self.place(key);
        let Some(set) = self.sets.get_mut(place) else {
            return;
        };
        let known = set
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|entry| entry.key == key));
        let place = known
            .or_else(|| set.iter().position(Option::is_none))
            .or_else(|| {
                set.iter()
                    .position(|entry| entry.as_ref().is_some_and(|e| !e.used))
            });
        let place = place.unwrap_or_else(|| {
            set.iter_mut()
                .flatten()
                .for_each(|entry| entry.used = false);
            // Every place was in use: the key decides, so that no place is always the victim.
            (key.0 >> 64) as usize % WAYS
        });
        set[place] = Some(CacheEntry {
            key,
            used: false,
            value,
        });
    }

    fn place(&self, key: Fingerprint) -> usize {
        key.0 as usize % self.count
    }
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
