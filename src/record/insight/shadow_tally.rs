//! The keys that limits would have refused: limits in shadow mode, and candidate rates beside a limit (`try`). Counts are
//! exact, unlike those of lists of top keys, as long as a tally has room for all its keys.
//!
//! Bounds: [`MAX_KEYS`] keys of all tallies together, and at least [`MIN_KEYS_PER_TALLY`] of each.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of keys that all tallies share.
const MAX_KEYS: usize = 16_384;

/// The number of keys that a tally has room for, however many tallies there are.
const MIN_KEYS_PER_TALLY: usize = 8;

/// The tallies of all limits that refuse nothing, by the scope of their counts.
#[derive(Debug, Default)]
pub struct ShadowTallies(Mutex<HashMap<String, Arc<ShadowTally>>>);

/// What one limit would have refused, for all workers.
#[derive(Debug)]
pub struct ShadowTally {
    /// The terms of the limit. With other terms a new tally begins.
    terms: String,
    /// When the tally began, in seconds since 1970.
    pub since: u64,
    max_keys: usize,
    counts: Mutex<ShadowCounts>,
}

/// The counts of a tally.
#[derive(Clone, Debug, Default)]
pub struct ShadowCounts {
    /// All decisions of the limit.
    pub decisions: u64,
    /// The decisions that would have been refusals.
    pub refusals: u64,
    /// The keys that would have been refused and how often, by their hashes.
    keys: HashMap<u64, (String, u64)>,
    /// Whether rare keys were dropped, so that some counts of keys are too low.
    pub has_dropped_keys: bool,
}

impl ShadowTallies {
    /// The tally of the limit with this scope and these terms. If the terms have changed, or there is no tally yet, a new
    /// one begins `now`, in seconds since 1970. `tally_count` is the number of all tallies of the running policies.
    pub fn find_or_begin(
        &self,
        scope: &str,
        terms: String,
        now: u64,
        tally_count: usize,
    ) -> Arc<ShadowTally> {
        let mut tallies = self.0.lock();
        if let Some(tally) = tallies.get(scope).filter(|tally| tally.terms == terms) {
            return tally.clone();
        }
        let tally = Arc::new(ShadowTally {
            terms,
            since: now,
            max_keys: (MAX_KEYS / tally_count.max(1)).max(MIN_KEYS_PER_TALLY),
            counts: Mutex::default(),
        });
        tallies.insert(scope.to_owned(), tally.clone());
        tally
    }

    /// The tally of the limit with this scope; `None` if it refuses, or if no worker runs it yet.
    pub fn find(&self, scope: &str) -> Option<Arc<ShadowTally>> {
        self.0.lock().get(scope).cloned()
    }

    /// Drops the tallies of other scopes than these.
    pub fn retain(&self, is_running: impl Fn(&str) -> bool) {
        self.0.lock().retain(|scope, _| is_running(scope));
    }
}

impl ShadowTally {
    /// Adds decisions about a key, by its hash, of which `refusals` would have been refusals. Calls `name` only for a key
    /// that is not in the tally.
    pub fn add(&self, hash: u64, decisions: u32, refusals: u32, name: impl FnOnce() -> String) {
        let mut counts = self.counts.lock();
        counts.decisions += u64::from(decisions);
        if refusals == 0 {
            return;
        }
        counts.refusals += u64::from(refusals);
        if let Some((_, count)) = counts.keys.get_mut(&hash) {
            *count += u64::from(refusals);
            return;
        }
        if counts.keys.len() >= self.max_keys {
            counts.drop_rare_keys(self.max_keys / 2);
        }
        counts.keys.insert(hash, (name(), refusals.into()));
    }

    /// The counts so far.
    pub fn counts(&self) -> ShadowCounts {
        self.counts.lock().clone()
    }
}

impl ShadowCounts {
    /// The number of keys.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The keys that would have been refused most, each with its count, at most `most`.
    pub fn top_keys(&self, most: usize) -> Vec<(&str, u64)> {
        let keys = self.keys.values();
        let mut keys: Vec<(&str, u64)> = keys.map(|(name, count)| (&**name, *count)).collect();
        keys.sort_by(|(name, count), (other_name, other)| {
            other.cmp(count).then_with(|| name.cmp(other_name))
        });
        keys.truncate(most);
        keys
    }

    /// Keeps the `most` keys with the highest counts.
    fn drop_rare_keys(&mut self, most: usize) {
        let mut keys: Vec<(u64, (String, u64))> = self.keys.drain().collect();
        keys.sort_by(|(_, (_, count)), (_, (_, other))| other.cmp(count));
        keys.truncate(most);
        self.keys = keys.into_iter().collect();
        self.has_dropped_keys = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_exact_until_it_is_full_and_says_so() {
        let tallies = ShadowTallies::default();
        let tally = tallies.find_or_begin("a", "10/s".into(), 7, MAX_KEYS / 16);
        for round in 0..3 {
            for key in 0..16 {
                tally.add(key, 5, 1 + u32::from(key < 2), || format!("ip={key}"));
            }
            let counts = tally.counts();
            assert_eq!(
                (counts.decisions, counts.key_count()),
                (80 * (round + 1), 16)
            );
            assert_eq!(counts.refusals, 18 * (round + 1));
            assert_eq!(
                counts.top_keys(2),
                [("ip=0", 2 * (round + 1)), ("ip=1", 2 * (round + 1))]
            );
            assert!(!counts.has_dropped_keys);
        }
        tally.add(99, 1, 0, || unreachable!());
        tally.add(99, 1, 1, || "ip=99".into());
        let counts = tally.counts();
        assert!(counts.has_dropped_keys);
        assert_eq!((counts.key_count(), counts.refusals), (9, 55));
        assert_eq!(counts.top_keys(1), [("ip=0", 6)]);
    }

    #[test]
    fn other_terms_begin_anew_and_the_same_terms_go_on() {
        let tallies = ShadowTallies::default();
        let first = tallies.find_or_begin("a", "10/s".into(), 7, 1);
        first.add(1, 1, 1, || "ip=1".into());
        let same = tallies.find_or_begin("a", "10/s".into(), 9, 1);
        assert_eq!((same.since, same.counts().refusals), (7, 1));
        let other = tallies.find_or_begin("a", "9/s".into(), 9, 1);
        assert_eq!((other.since, other.counts().refusals), (9, 0));
        tallies.retain(|scope| scope != "a");
        assert!(tallies.find("a").is_none());
    }
}
