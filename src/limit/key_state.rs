//! The state of one key under one limit on a rate: plain words, so that a store can keep them anywhere, and pure
//! functions over them.
//!
//! A state of zeros is a fresh one. A state that always fits into two words ([`RateLimit::is_inline`]) may stand inside
//! a table entry; other states grow with use, up to [`RateLimit::max_words`].
//!
//! Counts saturate at `u32::MAX`. Under a smaller quota, only units that are settled late, beyond their reservation, get
//! there; a wait may then be too short.

mod converted;
mod saved;

use super::fixed_window::{self, FixedWindows};
use super::lending::{self, Lending};
use super::state_window::StateWindow;
use super::{
    Algorithm, Fingerprint, LimitFinding, LimitStanding, Rate, RateLimit, Scale, ThrottleMode,
};
use super::{gcra, multi_level, sliding_log, sliding_window};
use crate::base::clock::{Nanos, WallOffset};

/// The state of one key: a view of the words that a store keeps.
#[derive(Debug)]
pub struct KeyState<'a> {
    /// The limit that the state belongs to.
    pub limit: &'a RateLimit,
    /// The key of the state. Fixed windows take their phase from it.
    pub key: Fingerprint,
    /// What gives the wall time, by which windows of the clock and the calendar begin.
    pub wall: WallOffset,
    /// The words of the state.
    pub words: &'a mut [u32],
}

impl RateLimit {
    /// The length of the longest window.
    pub fn longest_window(&self) -> Nanos {
        self.windows
            .last()
            .map_or(Nanos::ZERO, |rate| rate.window())
    }

    /// Whether the state always fits into two words.
    pub fn is_inline(&self) -> bool {
        let has_two_words = self.algorithm.is_gcra() || self.algorithm == Algorithm::FixedWindow;
        has_two_words && self.windows.len() == 1 && self.head_words() == 0
    }

    /// The number of words that a fresh state needs before `cost` units can be counted.
    pub fn min_words(&self, cost: u32) -> usize {
        match self.algorithm {
            Algorithm::SlidingLog => self.log_words(&[], Nanos::ZERO, cost),
            _ => self.max_words(),
        }
    }

    /// The largest number of words that a state can need.
    pub fn max_words(&self) -> usize {
        let algorithm_words = match self.algorithm {
            Algorithm::SlidingLog => {
                let ceilings = self
                    .windows
                    .iter()
                    .map(|rate| self.unit_bounds(rate, self.max_plan_factor).1);
                let stamps = ceilings.max().unwrap_or(1).min(sliding_log::MAX_STAMPS);
                return sliding_log::size_class(
                    sliding_log::HEAD_WORDS + stamps as usize + self.head_words(),
                );
            }
            Algorithm::SlidingWindow => self
                .windows
                .iter()
                .map(|rate| sliding_window::ring(rate.bucket_length()).word_count())
                .sum(),
            Algorithm::MultiLevel => multi_level::rings(self)
                .map(|(_, ring)| ring.word_count())
                .sum(),
            Algorithm::FixedWindow => self.windows.len() * fixed_window::WORDS_PER_WINDOW,
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                self.windows.len() * gcra::WORDS_PER_WINDOW
            }
        };
        algorithm_words + self.head_words()
    }

    /// The number of words for pending units.
    fn pending_words(&self) -> usize {
        usize::from(self.reserves)
    }

    /// The number of words before those of the algorithm: for pending units, then for lent ones.
    pub(super) fn head_words(&self) -> usize {
        self.pending_words() + usize::from(self.throttle.is_elastic()) * lending::STATE_WORDS
    }

    /// The words of a log with room for the units of `state` and `cost` more: a size class, at most `max_words`.
    fn log_words(&self, state: &[u32], now: Nanos, cost: u32) -> usize {
        let words = sliding_log::required_words(self, state, now, cost) + self.head_words();
        sliding_log::size_class(words).min(self.max_words())
    }

    /// The base and the ceiling of a window: the most units that may count within the rate, and with what a soft limit
    /// adds.
    #[inline]
    pub(crate) fn unit_bounds(&self, rate: &Rate, plan_factor: u32) -> (u32, u32) {
        let quota = rate.quota_times(plan_factor);
        let base_is_quota = match self.algorithm {
            // A burst of the quota comes back within one window, so it needs no bound.
            Algorithm::Gcra { burst } => burst.is_none(),
            Algorithm::SlidingLog | Algorithm::LeakyBucket { .. } => false,
            Algorithm::SlidingWindow | Algorithm::MultiLevel | Algorithm::FixedWindow => true,
        };
        if base_is_quota && self.throttle == ThrottleMode::Hard {
            return (quota, quota);
        }
        self.compute_unit_bounds(rate, plan_factor)
    }

    /// [`RateLimit::unit_bounds`] where base or ceiling may differ from the quota.
    fn compute_unit_bounds(&self, rate: &Rate, plan_factor: u32) -> (u32, u32) {
        let quota = rate.quota_times(plan_factor);
        let base = match self.algorithm {
            Algorithm::Gcra { burst } => {
                burst.map_or(quota, |burst| burst.saturating_mul(plan_factor))
            }
            Algorithm::LeakyBucket { max_delay } => {
                let delayed = max_delay.0 / rate.interval(plan_factor).nanos();
                u32::try_from(delayed).unwrap_or(u32::MAX).saturating_add(1)
            }
            _ => quota,
        };
        let ceiling = self.throttle.ceiling(base);
        let bounded = |units: u32| match self.algorithm {
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                gcra::bounded_burst(units, rate.interval(plan_factor))
            }
            // A ring holds no more stamps than this, so it must not admit more.
            Algorithm::SlidingLog => units.min(sliding_log::MAX_STAMPS),
            _ => units,
        };
        (bounded(base), bounded(ceiling))
    }
}

impl KeyState<'_> {
    #[inline]
    fn algorithm_words(&self) -> &[u32] {
        &self.words[self.limit.head_words()..]
    }

    /// The units that are reserved and not settled.
    #[inline]
    pub fn pending(&self) -> u32 {
        if self.limit.reserves {
            self.words[0]
        } else {
            0
        }
    }

    fn lent_words(&self) -> &[u32] {
        &self.words[self.limit.pending_words()..]
    }

    #[inline(always)]
    fn window(&self, index: usize, plan_factor: u32) -> StateWindow<'_> {
        let rate = &self.limit.windows[index];
        // With a multiplier the interval takes a division, and only arrival times need it.
        let needs_interval = self.limit.algorithm.is_gcra();
        StateWindow {
            limit: self.limit,
            rate,
            index,
            key: self.key,
            wall: self.wall,
            state: self.algorithm_words(),
            interval: rate.interval(if needs_interval { plan_factor } else { 1 }),
        }
    }

    /// Decides about `cost` units at `now` without changing the state. [`KeyState::complete_finding`] completes the
    /// finding.
    pub fn assess(&self, now: Nanos, cost: u32, scale: Scale) -> LimitFinding {
        let mut finding = LimitFinding::INITIAL;
        let mut is_over_any_rate = false;
        let mut longest_delay = Nanos::ZERO;
        for index in 0..self.limit.windows.len() {
            let (window_finding, is_over_rate) =
                self.assess_window(index, now, cost, scale.plan_factor);
            is_over_any_rate |= is_over_rate;
            longest_delay = longest_delay.max(window_finding.delay);
            if index == 0 || is_reported_before(&window_finding, &finding) {
                finding = window_finding;
            }
        }
        if finding.standing == LimitStanding::Within {
            finding.delay = longest_delay;
            if is_over_any_rate {
                finding.standing = LimitStanding::Over;
            }
        }
        if finding.standing == LimitStanding::Refused
            && let Some(lending) = Lending::new(self.limit, scale)
        {
            let wait = lending.wait(self.lent_words(), now, cost);
            finding.wait = finding.wait.min(wait);
            if wait == Nanos::ZERO {
                finding.standing = LimitStanding::Over;
            }
        }
        finding
    }

    /// The finding of one window, and whether the request is above the window's rate.
    #[inline]
    fn assess_window(
        &self,
        index: usize,
        now: Nanos,
        cost: u32,
        plan_factor: u32,
    ) -> (LimitFinding, bool) {
        let window = self.window(index, plan_factor);
        let (base, ceiling) = self.limit.unit_bounds(window.rate, plan_factor);
        let committed = window.used(now);
        let total_units = committed.saturating_add(self.pending());
        let mut is_over_rate = false;
        let mut finding = LimitFinding {
            standing: LimitStanding::Within,
            window: index as u8,
            quota: window.rate.quota_times(plan_factor),
            remaining: base.saturating_sub(total_units),
            wait: Nanos::ZERO,
            reset: Nanos::ZERO,
            delay: Nanos::ZERO,
            calendar_window: window.calendar_window(now),
            sketched: false,
        };
        // Operators may add the credits that a request lacks.
        if cost > ceiling && !window.rate.is_credits() {
            finding.standing = LimitStanding::Unsatisfiable;
        } else if let Some(excess) = excess_over(total_units, cost, ceiling) {
            finding.standing = LimitStanding::Refused;
            finding.wait = window.wait_for(now, committed, excess);
            // If the same units must leave for one more to be free, both times are equal. The second search is saved.
            if excess <= committed
                && excess_over(total_units, 1, base.min(total_units)) == Some(excess)
            {
                finding.reset = finding.wait;
            }
        } else {
            is_over_rate = excess_over(total_units, cost, base).is_some();
            finding.delay = self.leaky_delay(&window, now);
        }
        (finding, is_over_rate)
    }

    /// Completes a finding after the decision. `cost` is the number of units that the request has taken, or zero.
    pub fn complete_finding(
        &self,
        finding: &mut LimitFinding,
        now: Nanos,
        cost: u32,
        plan_factor: u32,
    ) {
        if !self.limit.is_lent(finding) {
            finding.remaining = finding.remaining.saturating_sub(cost);
        }
        if finding.reset == Nanos::ZERO {
            finding.reset = self.time_until_reset(finding, now, plan_factor);
        }
    }

    /// The time until the reported window has one more unit than remains now.
    fn time_until_reset(&self, finding: &LimitFinding, now: Nanos, plan_factor: u32) -> Nanos {
        let window = self.window(usize::from(finding.window), plan_factor);
        let has_moving_windows = self.limit.algorithm.has_moving_windows();
        let (base, _) = self.limit.unit_bounds(window.rate, plan_factor);
        if finding.remaining > 0 && has_moving_windows && !self.limit.reserves {
            let used = base.saturating_sub(finding.remaining);
            return window.time_until_oldest_leaves(now, used);
        }
        let committed = window.used(now);
        let total_units = committed.saturating_add(self.pending());
        match excess_over(total_units, 1, base.min(total_units)) {
            Some(units) if units <= committed => window.wait_for(now, committed, units),
            // The time at which a reservation is settled is not known, so a window is the guess.
            Some(_) if total_units > 0 => window.rate.window(),
            _ => Nanos::ZERO,
        }
    }

    /// The time for which an admitted request must be held back; zero unless the limit is a leaky bucket.
    fn leaky_delay(&self, window: &StateWindow<'_>, now: Nanos) -> Nanos {
        match self.limit.algorithm {
            Algorithm::LeakyBucket { .. } => gcra::theoretical_arrival_time(
                &self.algorithm_words()[window.index * gcra::WORDS_PER_WINDOW..],
            )
            .since(now),
            _ => Nanos::ZERO,
        }
    }

    /// The number of words that are needed to count `cost` more units at `now`. If the state has fewer, the store must
    /// move it to more words first, by [`KeyState::move_to`].
    pub fn required_words(&self, now: Nanos, cost: u32) -> usize {
        match self.limit.algorithm {
            Algorithm::SlidingLog => self.limit.log_words(self.algorithm_words(), now, cost),
            _ => self.limit.max_words(),
        }
    }

    /// Whether the words are enough for `cost` more units at `now`.
    #[inline]
    pub fn has_room(&self, now: Nanos, cost: u32) -> bool {
        match self.limit.algorithm {
            Algorithm::SlidingLog => {
                sliding_log::has_room(self.algorithm_words(), cost)
                    || self.required_words(now, cost) <= self.words.len()
            }
            _ => true,
        }
    }

    /// Copies the state to other words, at least [`KeyState::required_words`] of them. Units that have left all windows
    /// are dropped.
    pub fn move_to(&self, now: Nanos, words: &mut [u32]) {
        let head_words = self.limit.head_words();
        words[..head_words].copy_from_slice(&self.words[..head_words]);
        match self.limit.algorithm {
            Algorithm::SlidingLog => {
                sliding_log::move_to(
                    self.limit,
                    self.algorithm_words(),
                    now,
                    &mut words[head_words..],
                );
            }
            // The target may have more words than the state.
            _ => {
                let end = self.limit.max_words();
                words[head_words..end].copy_from_slice(&self.words[head_words..end]);
            }
        }
    }

    /// Moves units of windows that a clock was put back from to the windows of `now`. Returns whether the state has changed.
    pub fn follow_clock(&mut self, now: Nanos) -> bool {
        if self.limit.algorithm != Algorithm::FixedWindow {
            return false;
        }
        let mut is_changed = false;
        let head_words = self.limit.head_words();
        for index in 0..self.limit.windows.len() {
            let windows = self.window(index, 1).fixed_windows();
            let words = &mut self.words[head_words + index * fixed_window::WORDS_PER_WINDOW..];
            is_changed |= windows.follow_clock(words, now);
        }
        is_changed
    }

    /// Counts `cost` units at `now`: as lent if the finding says so, or else as pending if the limit reserves.
    /// [`KeyState::assess`] must have admitted them with this finding, and [`KeyState::has_room`] must be true.
    pub fn take_units(&mut self, finding: &LimitFinding, now: Nanos, cost: u32, scale: Scale) {
        if self.limit.is_lent(finding) {
            if let Some(lending) = Lending::new(self.limit, scale) {
                let lent_start = self.limit.pending_words();
                lending.add_units(&mut self.words[lent_start..], now, cost);
            }
        } else if self.limit.reserves {
            self.words[0] = self.words[0].saturating_add(cost);
        } else {
            self.count_units(now, cost, scale.plan_factor);
        }
    }

    /// Adds `cost` units to all windows.
    fn count_units(&mut self, now: Nanos, cost: u32, plan_factor: u32) {
        if cost == 0 {
            return;
        }
        let (limit, key, wall) = (self.limit, self.key, self.wall);
        let state = &mut self.words[limit.head_words()..];
        let rates = limit.windows.iter().enumerate();
        match limit.algorithm {
            Algorithm::SlidingLog => {
                sliding_log::add_units(limit.longest_window(), state, now, cost)
            }
            Algorithm::SlidingWindow => {
                for (index, rate) in rates {
                    let ring = sliding_window::ring(rate.bucket_length());
                    ring.add_units(&mut state[index * ring.word_count()..], now, cost);
                }
            }
            Algorithm::MultiLevel => {
                for (offset, ring) in multi_level::rings(limit) {
                    ring.add_units(&mut state[offset..], now, cost);
                }
            }
            Algorithm::FixedWindow => {
                for (index, rate) in rates {
                    let words = &mut state[index * fixed_window::WORDS_PER_WINDOW..];
                    FixedWindows::new(rate, key, wall).add_units(words, now, cost);
                }
            }
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {
                for (index, rate) in rates {
                    let words = &mut state[index * gcra::WORDS_PER_WINDOW..];
                    gcra::add_units(words, now, rate.interval(plan_factor), cost);
                }
            }
        }
    }

    /// Ends a reservation: `reserved` units are no longer pending, and `used` units count from `now` on. There must be
    /// room for `used` units, as for [`KeyState::take_units`]. A state that was converted to a limit without
    /// reservations counts the reserved units already.
    pub fn settle(&mut self, now: Nanos, reserved: u32, used: u32, plan_factor: u32) {
        if self.limit.reserves {
            self.words[0] = self.words[0].saturating_sub(reserved);
            self.count_units(now, used, plan_factor);
        } else {
            self.count_units(now, used.saturating_sub(reserved), plan_factor);
        }
    }

    /// The time from which on the state is equal to a fresh one, if nothing more is counted. `u64::MAX` while units are
    /// pending.
    pub fn fresh_at(&self) -> Nanos {
        if self.pending() > 0 {
            return Nanos(u64::MAX);
        }
        let (limit, state) = (self.limit, self.algorithm_words());
        let mut latest = match limit.throttle.is_elastic() {
            true => lending::fresh_at(limit, self.lent_words()),
            false => Nanos::ZERO,
        };
        match limit.algorithm {
            Algorithm::SlidingLog => {
                return latest.max(sliding_log::fresh_at(limit.longest_window(), state));
            }
            Algorithm::MultiLevel => {
                for (offset, ring) in multi_level::rings(limit) {
                    latest = latest.max(ring.fresh_at(&state[offset..]));
                }
                return latest;
            }
            _ => {}
        }
        for (index, rate) in limit.windows.iter().enumerate() {
            latest = latest.max(match limit.algorithm {
                Algorithm::SlidingWindow => {
                    let ring = sliding_window::ring(rate.bucket_length());
                    ring.fresh_at(&state[index * ring.word_count()..])
                }
                Algorithm::FixedWindow => {
                    let words = &state[index * fixed_window::WORDS_PER_WINDOW..];
                    self.window(index, 1).fixed_windows().fresh_at(words)
                }
                _ => gcra::theoretical_arrival_time(&state[index * gcra::WORDS_PER_WINDOW..]),
            });
        }
        latest
    }

    /// The units that count at `now` in the window with this index, pending ones included. Arrival times are read
    /// without a plan's multiplier.
    pub fn used(&self, now: Nanos, index: usize) -> u32 {
        self.window(index, 1)
            .used(now)
            .saturating_add(self.pending())
    }
}

/// The number of units by which `used` and `cost` together exceed `ceiling`; `None` if they do not.
fn excess_over(used: u32, cost: u32, ceiling: u32) -> Option<u32> {
    let total_units = u64::from(used) + u64::from(cost);
    let excess = total_units
        .checked_sub(u64::from(ceiling))
        .filter(|excess| *excess > 0)?;
    Some(u32::try_from(excess).unwrap_or(u32::MAX))
}

/// Whether window `first` of a limit is reported rather than `second`, also of equals; see [`LimitFinding::window`].
fn is_reported_before(first: &LimitFinding, second: &LimitFinding) -> bool {
    let rank = |finding: &LimitFinding| match finding.standing {
        LimitStanding::Unsatisfiable => (3, u64::MAX),
        LimitStanding::Refused => (2, finding.wait.0),
        LimitStanding::Over => (1, u64::MAX),
        LimitStanding::Within => (0, u64::from(u32::MAX - finding.remaining)),
    };
    rank(first) >= rank(second)
}
