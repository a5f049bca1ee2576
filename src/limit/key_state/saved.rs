//! Saves states for snapshots, in as few words as possible. States from a snapshot are validated, because all other
//! functions trust the words of a state.

use super::super::bucket_ring::BucketRing;
use super::super::{Algorithm, multi_level, sliding_log, sliding_window};
use super::KeyState;
use crate::base::clock::Nanos;

impl KeyState<'_> {
    /// Replaces `words` by the state, in as few words as possible. A log begins with its oldest stamp, and stamps that have
    /// left all windows are left out.
    pub fn save(&self, now: Nanos, words: &mut Vec<u32>) {
        words.clear();
        words.resize(self.words.len(), 0);
        self.move_to(now, words);
        let end = match self.limit.algorithm {
            Algorithm::SlidingLog => {
                let head_words = self.limit.head_words();
                head_words + sliding_log::filled_words(&words[head_words..])
            }
            _ => self.limit.max_words(),
        };
        words.truncate(end);
    }

    /// Whether the words, from an untrusted source, may have been written by [`KeyState::save`] for this limit. If not,
    /// no other method may be called.
    pub fn is_valid(&self) -> bool {
        let limit = self.limit;
        if limit.algorithm == Algorithm::SlidingLog {
            return self.words.len() >= limit.head_words()
                && sliding_log::is_valid(self.algorithm_words());
        }
        if self.words.len() != limit.max_words() {
            return false;
        }
        let windows = limit.windows.iter().enumerate();
        let is_valid_ring =
            |ring: BucketRing, offset: usize| ring.is_valid(&self.algorithm_words()[offset..]);
        match limit.algorithm {
            Algorithm::SlidingWindow => windows
                .map(|(index, rate)| (index, sliding_window::ring(rate.bucket_length())))
                .all(|(index, ring)| is_valid_ring(ring, index * ring.word_count())),
            Algorithm::MultiLevel => {
                multi_level::rings(limit).all(|(offset, ring)| is_valid_ring(ring, offset))
            }
            _ => true,
        }
    }

    /// The most units that may be used in the window with this index, whatever the key's plan is. A theoretical arrival
    /// time stands for the most units under the largest plan.
    pub fn max_used_units(&self, now: Nanos, index: usize) -> u32 {
        let window = self.window(index, self.limit.max_plan_factor.max(1));
        window.used(now).saturating_add(self.pending())
    }
}
