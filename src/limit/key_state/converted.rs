//! States of another shape: what a changed limit makes of what was counted under the one before.

use super::super::{Algorithm, gcra, lending, sliding_log};
use super::KeyState;
use crate::base::clock::Nanos;

impl KeyState<'_> {
    /// Fills this fresh state with what `old`, a state of another shape, counts: never less in any
    /// window than `old` would have counted there, or all that the window admits, so that a changed
    /// limit forgives nothing. A log hands its stamps on to a log; from other shapes all that counts
    /// in some window counts from `now`. Needs `Limit::max_words`.
    pub fn convert_from(&mut self, old: &KeyState<'_>, now: Nanos) {
        let log = Algorithm::SlidingLog;
        let mut counted = 0;
        if self.limit.algorithm == log && old.limit.algorithm == log {
            let state = &mut self.words[self.limit.head_words()..];
            sliding_log::convert((old.limit, old.state()), (self.limit, state), now);
        } else {
            // With the largest plan, for which the shortest interval counts the most units.
            let multiply = old.limit.max_multiply;
            let windows = 0..old.limit.windows.len();
            let most = windows.map(|index| old.window(index, multiply).used(now));
            counted = most.max().unwrap_or(0);
        }
        if self.limit.reserves {
            self.words[0] = old.pending();
        } else {
            counted = counted.saturating_add(old.pending());
        }
        if self.limit.throttle.lends() && old.limit.throttle.lends() {
            let at = self.limit.pending_words();
            self.words[at..at + lending::WORDS].copy_from_slice(&old.lent()[..lending::WORDS]);
        }
        match self.limit.algorithm {
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                let state = &mut self.words[self.limit.head_words()..];
                for (index, rate) in self.limit.windows.iter().enumerate() {
                    // More than all of it would keep the key waiting for longer than any window.
                    let counted = counted.min(self.limit.bounds(rate, 1).1);
                    let interval = rate.interval(1);
                    gcra::apply(&mut state[index * gcra::WORDS..], now, interval, counted);
                }
            }
            _ => self.commit(now, counted, 1),
        }
    }
}
