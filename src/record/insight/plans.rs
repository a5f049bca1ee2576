//! The plan by which each key was counted last. A key does not name its plan, and its limits depend on it.
//!
//! Bound: twice [`MOST`] keys, some 100 bytes each. Keys that are counted again stay.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Keys of a generation. When it is full, keys that were not counted since the generation before are forgotten.
pub const MOST: usize = 8_192;

/// See the module.
#[derive(Debug, Default)]
pub struct KeyPlans(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, Box<str>>,
    old: HashMap<u64, Box<str>>,
}

impl KeyPlans {
    /// Remembers a plan by a hash of limit and key, which must be spread evenly. An empty name is no plan.
    pub fn record(&self, hash: u64, plan: &str) {
        let kept = &mut *self.0.lock();
        if kept.young.get(&hash).is_some_and(|known| **known == *plan) {
            return;
        }
        if kept.young.len() >= MOST {
            kept.old = std::mem::take(&mut kept.young);
        }
        kept.young.insert(hash, plan.into());
    }

    /// The plan of a key, if it is remembered.
    pub fn get(&self, hash: u64) -> Option<Box<str>> {
        let kept = self.0.lock();
        let plan = kept.young.get(&hash).or_else(|| kept.old.get(&hash));
        plan.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_counted_again_are_remembered() {
        let plans = KeyPlans::default();
        let most = MOST as u64;
        for hash in 0..3 * most {
            plans.record(hash, "free");
            plans.record(7, "gold");
        }
        assert_eq!(plans.get(7).as_deref(), Some("gold"));
        assert_eq!(plans.get(3 * most - 1).as_deref(), Some("free"));
        assert_eq!(plans.get(8), None);
        plans.record(7, "");
        assert_eq!(plans.get(7).as_deref(), Some(""));
        let kept = plans.0.lock();
        assert!(kept.young.len() + kept.old.len() <= 2 * MOST);
    }
}
