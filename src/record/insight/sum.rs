//! The sums of many lists.
//!
//! Bound: [`MOST`] keys of each list.

use std::collections::HashMap;

use super::distinct::DistinctCount;
use super::key::LimitKey;
use super::list::{KeyList, KeyLists, LONGEST, ListedKey};

/// Most keys of a sum. A key that is low in many lists may be high in their sum.
const MOST: usize = 100 * LONGEST;

/// See the module.
#[derive(Default)]
pub struct ListSums {
    asked: ListSum,
    refused: ListSum,
}

impl ListSums {
    /// Adds the lists of another span.
    pub fn add(&mut self, lists: &KeyLists) {
        self.asked.add(&lists.asked);
        self.refused.add(&lists.refused);
    }

    /// The most frequent keys of all.
    pub fn lists(self, most: usize) -> KeyLists {
        KeyLists {
            asked: self.asked.list(most),
            refused: self.refused.list(most),
        }
    }
}

/// The sum of lists of one kind.
#[derive(Default)]
pub struct ListSum {
    total: u64,
    // By key and not by hash: another process may hash under another secret.
    keys: HashMap<LimitKey, ListedKey>,
    distinct: DistinctCount,
    /// Whether there were more keys than those in `keys`.
    more: bool,
    /// Names the secret under which `distinct` was counted.
    seed: u64,
    /// Whether some keys were counted under another secret.
    mixed: bool,
    at_least: bool,
}

impl ListSum {
    /// Adds a list.
    pub fn add(&mut self, list: &KeyList) {
        if list.total == 0 {
            return;
        }
        let others = list.registers();
        if self.total == 0 {
            self.seed = list.seed;
        }
        if self.seed == list.seed {
            self.distinct.merge(&others);
        } else {
            self.mixed = true;
            if others.estimate() > self.distinct.estimate() {
                (self.distinct, self.seed) = (others, list.seed);
            }
        }
        self.more |= list.distinct.is_some();
        self.at_least |= list.at_least;
        self.total += list.total;
        for listed in &list.keys {
            match self.keys.get_mut(&listed.key) {
                Some(known) => known.count += listed.count,
                None => {
                    self.keys.insert(listed.key.clone(), listed.clone());
                }
            }
        }
        if self.keys.len() > MOST {
            let kept = self.sorted(MOST / 2).into_iter();
            self.keys = kept.map(|listed| (listed.key.clone(), listed)).collect();
            self.more = true;
        }
    }

    /// The most frequent keys.
    pub fn list(mut self, most: usize) -> KeyList {
        if !self.more {
            // The keys are complete, so any secret will do.
            self.distinct = DistinctCount::default();
            let hashes = self.keys.values().map(|listed| listed.hash);
            hashes.for_each(|hash| self.distinct.add(hash));
        }
        KeyList {
            total: self.total,
            at_least: self.at_least || (self.mixed && self.more),
            distinct: (self.more || self.keys.len() > most).then(|| self.distinct.clone()),
            seed: self.seed,
            keys: self.sorted(most),
        }
    }

    fn sorted(&mut self, most: usize) -> Vec<ListedKey> {
        let mut all: Vec<ListedKey> = self.keys.drain().map(|(_, listed)| listed).collect();
        all.sort_by(ListedKey::order);
        all.truncate(most);
        all
    }
}
