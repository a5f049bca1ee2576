//! What many lists say together.
//!
//! Bound: [`MOST`] keys of each list.

use std::collections::HashMap;

use super::distinct::Distinct;
use super::list::{LONGEST, List, Listed, Lists};
use super::top::Key;

/// Most keys. What is below in many lists may be above in their sum.
const MOST: usize = 100 * LONGEST;

/// See the module.
#[derive(Default)]
pub struct Sums {
    asked: Sum,
    refused: Sum,
}

impl Sums {
    /// Adds what others say.
    pub fn add(&mut self, lists: &Lists) {
        self.asked.add(&lists.asked);
        self.refused.add(&lists.refused);
    }

    /// The most frequent.
    pub fn lists(self, most: usize) -> Lists {
        Lists {
            asked: self.asked.list(most),
            refused: self.refused.list(most),
        }
    }
}

/// Of one of the lists.
#[derive(Default)]
pub struct Sum {
    total: u64,
    // Not by hash: another process may hash under another secret.
    keys: HashMap<Key, Listed>,
    distinct: Distinct,
    /// There were more than those in `keys`.
    more: bool,
    /// Tells under which secret `distinct` was counted.
    seed: u64,
    /// Some were counted under another.
    mixed: bool,
    at_least: bool,
}

impl Sum {
    /// Adds what a list says.
    pub fn add(&mut self, list: &List) {
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

    /// The most frequent.
    pub fn list(mut self, most: usize) -> List {
        if !self.more {
            // These are all there were, under whatever secret.
            self.distinct = Distinct::default();
            let hashes = self.keys.values().map(|listed| listed.hash);
            hashes.for_each(|hash| self.distinct.add(hash));
        }
        List {
            total: self.total,
            at_least: self.at_least || (self.mixed && self.more),
            distinct: (self.more || self.keys.len() > most).then(|| self.distinct.clone()),
            seed: self.seed,
            keys: self.sorted(most),
        }
    }

    fn sorted(&mut self, most: usize) -> Vec<Listed> {
        let mut all: Vec<Listed> = self.keys.drain().map(|(_, listed)| listed).collect();
        all.sort_by(Listed::order);
        all.truncate(most);
        all
    }
}
