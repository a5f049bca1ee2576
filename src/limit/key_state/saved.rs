//! States as they are saved: in as few words as hold them, and looked at when they are read again, for
//! the rest of this module trusts its words.

use super::super::buckets::Ring;
use super::super::{Algorithm, multi_level, sliding_log, sliding_window};
use super::KeyState;
use crate::base::clock::Nanos;

impl KeyState<'_> {
    /// Writes the state into `words`, which become as few as hold it; what has left all windows is left
    /// out, and a log's oldest stamp comes first.
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

    /// Whether the words, wherever they come from, can be what [`KeyState::save`] has written of a state of
    /// this limit. What cannot must not be asked anything else.
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

    /// [`KeyState::used`] with the largest plan, for which an arrival time stands for the most units.
    pub fn used_at_most(&self, now: Nanos, index: usize) -> u32 {
        let window = self.window(index, self.limit.max_multiply.max(1));
        window.used(now).saturating_add(self.pending())
    }

    /// Units that are reserved.
    pub fn reserved(&self) -> u32 {
        self.pending()
    }
}
