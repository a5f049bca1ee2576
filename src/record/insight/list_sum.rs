//! Adds up lists of the most frequent keys, each of one minute, hour or day.
//!
//! Bound: [`MAX_SUMMED_KEYS`] keys of each kind of list, and those of one list more while it is added.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher13;

use super::distinct_count::DistinctCount;
use super::key_list::{KeyList, KeyLists, ListedKey, MAX_LISTED_KEYS};
use super::limit_key::LimitKey;

/// The most keys of a sum while lists are added, far more than are listed: a key with a low rank in many lists may have
/// a high rank in their sum. When there are more, the most frequent ones stay, half as many as this.
const MAX_SUMMED_KEYS: usize = 100 * MAX_LISTED_KEYS;

/// The seed of a sum whose different keys were counted by [`hash_without_secret`].
const NO_SECRET: u64 = u64::MAX;

/// The sums of the lists of decisions and of those of refusals.
#[derive(Default)]
pub struct ListSums {
    decided: ListSum,
    refused: ListSum,
}

impl ListSums {
    /// Adds the lists of one span of time.
    pub fn add(&mut self, lists: &KeyLists) {
        self.decided.add(&lists.decided);
        self.refused.add(&lists.refused);
    }

    /// Returns the sums, each with at most `max_keys` of the most frequent keys.
    pub fn into_lists(self, max_keys: usize) -> KeyLists {
        KeyLists {
            decided: self.decided.into_list(max_keys),
            refused: self.refused.into_list(max_keys),
        }
    }
}

/// The sum of lists of one kind.
#[derive(Default)]
pub struct ListSum {
    /// The sum of the counts of all keys, listed or not.
    total: u64,
    /// The counts by the names of the keys. Their hashes would not do, because another process has another secret.
    keys: HashMap<LimitKey, ListedKey>,
    /// An estimator of the number of different keys.
    distinct: DistinctCount,
    /// Whether keys were counted that are not in `keys`.
    has_unlisted: bool,
    /// A number that stands for the secret under which `distinct` was counted.
    seed: u64,
    /// Whether some lists were counted under another secret than the first one.
    has_other_seeds: bool,
    /// Whether a list in the sum was only a lower bound, as [`KeyList::is_lower_bound`] says.
    is_lower_bound: bool,
}

impl ListSum {
    /// Adds a list of one span of time. An empty list changes nothing.
    pub fn add(&mut self, list: &KeyList) {
        if list.total == 0 {
            return;
        }
        let list_estimator = list.estimator();
        if self.total == 0 {
            self.seed = list.seed;
        }
        if self.seed == list.seed {
            self.distinct.merge(&list_estimator);
        } else {
            self.has_other_seeds = true;
            // Keys under another secret cannot be merged, so the greater estimate is kept as a lower bound.
            if list_estimator.estimate() > self.distinct.estimate() {
                self.distinct = list_estimator;
                self.seed = list.seed;
            }
        }
        self.has_unlisted |= list.distinct.is_some();
        self.is_lower_bound |= list.is_lower_bound;
        self.total += list.total;
        for listed in &list.keys {
            match self.keys.get_mut(&listed.key) {
                Some(summed) => summed.count += listed.count,
                None => {
                    self.keys.insert(listed.key.clone(), listed.clone());
                }
            }
        }
        if self.keys.len() > MAX_SUMMED_KEYS {
            let frequent_keys = self.take_most_frequent(MAX_SUMMED_KEYS / 2).into_iter();
            self.keys = frequent_keys
                .map(|listed| (listed.key.clone(), listed))
                .collect();
            self.has_unlisted = true;
        }
    }

    /// Returns the sum, with at most `max_keys` of the most frequent keys.
    pub fn into_list(mut self, max_keys: usize) -> KeyList {
        if !self.has_unlisted {
            self.count_listed_keys();
        }
        KeyList {
            total: self.total,
            is_lower_bound: self.is_lower_bound || (self.has_other_seeds && self.has_unlisted),
            distinct: (self.has_unlisted || self.keys.len() > max_keys)
                .then(|| self.distinct.clone()),
            seed: self.seed,
            keys: self.take_most_frequent(max_keys),
        }
    }

    /// Counts the different keys anew, where all are listed. If they were hashed under several secrets, they are hashed
    /// without a secret now, so that later sums count each of them once.
    fn count_listed_keys(&mut self) {
        self.distinct = DistinctCount::default();
        if self.has_other_seeds {
            self.seed = NO_SECRET;
        }
        for listed in self.keys.values() {
            self.distinct.add(match self.has_other_seeds {
                true => hash_without_secret(&listed.key),
                false => listed.hash,
            });
        }
    }

    /// Removes all keys, and returns at most `max_keys` of the most frequent ones, in the order of lists.
    fn take_most_frequent(&mut self, max_keys: usize) -> Vec<ListedKey> {
        let mut keys: Vec<ListedKey> = self.keys.drain().map(|(_, listed)| listed).collect();
        keys.sort_by(ListedKey::compare);
        keys.truncate(max_keys);
        keys
    }
}

/// A hash of a key's names that is the same in every process.
fn hash_without_secret(key: &LimitKey) -> u64 {
    let mut hasher = SipHasher13::new();
    key.hash(&mut hasher);
    hasher.finish()
}
