//! States in snapshots: written in as few words as possible, and validated when they are read, because the rest of this
//! module trusts its words.

use super::super::buckets::Ring;
use super::super::{Algorithm, multi_level, sliding_log, sliding_window};
use super::KeyState;
use crate::base::clock::Nanos;

impl KeyState<'_> {
    /// Writes the state into `words`, in as few as possible. Units that have left all windows are left out, and a log
    /// begins with its oldest stamp.
    pub fn save(&self, now: Nanos, words: &mut Vec<u32>) {
        words.clear();
        words.resize(self.words.len(), 0);
        self.move_to(now, words);
        let end = match self.limit.algorithm {
            Algorithm::SlidingLog => {
                let head = self.limit.head_words();
                head + sliding_log::words_of(&words[head..])
            }
            _ => self.limit.max_words(),
        };
        words.truncate(end);
    }

    /// Whether the words, from an untrusted source, can be what [`KeyState::save`] has written for this limit. If not, no
    /// other method may be called.
    pub fn sound(&self) -> bool {
        let limit = self.limit;
        let log = limit.algorithm == Algorithm::SlidingLog;
        if log {
            return self.words.len() >= limit.head_words() && sliding_log::sound(self.state());
        }
        if self.words.len() != limit.max_words() {
            return false;
        }
        let each = limit.windows.iter().enumerate();
        let sound = |ring: Ring, at: usize| ring.sound(&self.state()[at..]);
        match limit.algorithm {
            Algorithm::SlidingWindow => each
                .map(|(index, rate)| (index, sliding_window::ring(rate.bucket())))
                .all(|(index, ring)| sound(ring, index * ring.words())),
            Algorithm::MultiLevel => {
                multi_level::rings(limit).all(|(offset, ring)| sound(ring, offset))
            }
            _ => true,
        }
    }

    /// [`KeyState::used`] with the largest plan, where an arrival time stands for the most units.
    pub fn used_at_most(&self, now: Nanos, index: usize) -> u32 {
        let window = self.window(index, self.limit.max_multiply.max(1));
        window.used(now).saturating_add(self.pending())
    }

    /// Units that are reserved and not settled.
    pub fn reserved(&self) -> u32 {
        self.pending()
    }
}
