//! Remembers the plan by which each key was counted last. A key does not name its plan, but its limits depend on it.
//!
//! Bound: twice [`MAX_GENERATION_KEYS`] keys of about 100 bytes. Keys that are counted again stay, and others are
//! forgotten.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The most keys of a generation. A full young generation becomes the old one, and the keys of the old one are
/// forgotten.
pub const MAX_GENERATION_KEYS: usize = 8_192;

/// The plans of keys, in two generations.
#[derive(Debug, Default)]
pub struct KeyPlans(Mutex<Generations>);

/// The plans of keys, by hashes of the keys.
#[derive(Debug, Default)]
struct Generations {
    /// The keys that were counted last.
    young: HashMap<u64, Box<str>>,
    /// The keys that were counted before those.
    old: HashMap<u64, Box<str>>,
}

impl KeyPlans {
    /// Remembers the plan of a key by a hash of limit and key, which must be spread evenly. An empty name stands for no
    /// plan.
    pub fn record(&self, hash: u64, plan: &str) {
        let generations = &mut *self.0.lock();
        let current_plan = generations.young.get(&hash);
        if current_plan.is_some_and(|current_plan| **current_plan == *plan) {
            return;
        }
        if generations.young.len() >= MAX_GENERATION_KEYS {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(hash, plan.into());
    }

    /// Returns the plan of a key; `None` if the key was forgotten or never counted. An empty name stands for no plan.
    pub fn get(&self, hash: u64) -> Option<Box<str>> {
        let generations = self.0.lock();
        let young_plan = generations.young.get(&hash);
        let plan = young_plan.or_else(|| generations.old.get(&hash));
        plan.cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_counted_again_are_remembered() {
        let plans = KeyPlans::default();
        let generation_keys = MAX_GENERATION_KEYS as u64;
        for hash in 0..3 * generation_keys {
            plans.record(hash, "free");
            plans.record(7, "gold");
        }
        assert_eq!(plans.get(7).as_deref(), Some("gold"));
        assert_eq!(plans.get(3 * generation_keys - 1).as_deref(), Some("free"));
        assert_eq!(plans.get(8), None);
        plans.record(7, "");
        assert_eq!(plans.get(7).as_deref(), Some(""));
        let generations = plans.0.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * MAX_GENERATION_KEYS);
    }
}
