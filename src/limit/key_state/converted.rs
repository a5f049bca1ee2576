//! Conversion of states when a limit changes: what was counted under the old limit counts under the new one. Of used
//! units, a conversion forgives only those that the new limit has no room for.

use smallvec::SmallVec;

use super::super::{Algorithm, RateLimit, fixed_window, gcra, lending, sliding_log};
use super::KeyState;
use crate::base::clock::Nanos;

impl KeyState<'_> {
    /// Fills this fresh state with the counts of `old`, a state of another shape. No window counts less than `old` would,
    /// unless it is full. The state must have `RateLimit::max_words`.
    ///
    /// A log passes its stamps on to a log, and a quota its units to one of the same unit. Between other algorithms, the
    /// most units that count in any window of `old` count in every window from `now` on. Credits have states of their own:
    /// they are registered apart.
    pub fn convert_from(&mut self, old: &KeyState<'_>, now: Nanos) {
        let has_quotas = |limit: &RateLimit| {
            let mut rates = limit.windows.iter();
            limit.algorithm == Algorithm::FixedWindow && rates.all(|rate| rate.calendar().is_some())
        };
        if has_quotas(self.limit) && has_quotas(old.limit) {
            return self.convert_quotas(old, now);
        }
        let mut counted_units = 0;
        let is_log = |limit: &RateLimit| limit.algorithm == Algorithm::SlidingLog;
        if is_log(self.limit) && is_log(old.limit) {
            let state = &mut self.words[self.limit.head_words()..];
            sliding_log::convert(
                old.limit.longest_window(),
                old.algorithm_words(),
                self.limit,
                state,
                now,
            );
        } else {
            // A theoretical arrival time, divided by the interval, gives the units. The key's plan is not stored, so the
            // shortest interval is used, that of the largest plan: it gives the most units.
            let plan_factor = old.limit.max_plan_factor;
            let windows = 0..old.limit.windows.len();
            let used_units = windows.map(|index| old.window(index, plan_factor).used(now));
            counted_units = used_units.max().unwrap_or(0);
        }
        if self.limit.reserves {
            self.words[0] = old.pending();
        } else {
            counted_units = counted_units.saturating_add(old.pending());
        }
        self.copy_lent_units(old);
        match self.limit.algorithm {
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                let state = &mut self.words[self.limit.head_words()..];
                for (index, rate) in self.limit.windows.iter().enumerate() {
                    // The key's plan is not stored here either, so the interval and the ceiling are those without one.
                    // More units than the ceiling would make the key wait for longer than any window.
                    let bounded_units = counted_units.min(self.limit.unit_bounds(rate, 1).1);
                    let interval = rate.interval(1);
                    gcra::add_units(
                        &mut state[index * gcra::WORDS_PER_WINDOW..],
                        now,
                        interval,
                        bounded_units,
                    );
                }
            }
            _ => self.count_units(now, counted_units, 1),
        }
    }

    /// Copies the units on loan, if both limits lend.
    fn copy_lent_units(&mut self, old: &KeyState<'_>) {
        if self.limit.throttle.is_elastic() && old.limit.throttle.is_elastic() {
            let lent_start = self.limit.pending_words();
            self.words[lent_start..lent_start + lending::STATE_WORDS]
                .copy_from_slice(&old.lent_words()[..lending::STATE_WORDS]);
        }
    }

    /// Converts quotas whose zone, start or units have changed. The units of an old window count in the new one of the same
    /// unit; without one the largest count does.
    fn convert_quotas(&mut self, old: &KeyState<'_>, now: Nanos) {
        let old_rates = old.limit.windows.iter().enumerate();
        let used_units: SmallVec<[(Nanos, u32); 2]> = old_rates
            .map(|(index, rate)| (rate.window(), old.window(index, 1).used(now)))
            .collect();
        let most_units = used_units
            .iter()
            .map(|(_, units)| *units)
            .max()
            .unwrap_or(0);
        let mut pending = old.pending();
        if self.limit.reserves {
            self.words[0] = std::mem::take(&mut pending);
        }
        self.copy_lent_units(old);
        let start = self.limit.head_words();
        for index in 0..self.limit.windows.len() {
            let windows = self.window(index, 1).fixed_windows();
            let length = windows.length;
            let same_length = used_units
                .iter()
                .find(|(old_length, _)| *old_length == length);
            let units = same_length.map_or(most_units, |(_, units)| *units);
            let units = units.saturating_add(pending);
            if units > 0 {
                let words = &mut self.words[start + index * fixed_window::WORDS_PER_WINDOW..];
                windows.add_units(words, now, units);
            }
        }
    }
}
