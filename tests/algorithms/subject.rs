//! A cell, the words it lives in, and the oracle beside it: every unit that was ever admitted.

use tollgate::base::clock::{Nanos, WallOffset};
use tollgate::limit::{
    Algorithm, Fingerprint, KeyState, LimitFinding, LimitStanding, Rate, RateLimit, Scale,
};

use crate::draw::{Draw, SECOND};

pub struct Subject {
    pub limit: RateLimit,
    pub key: Fingerprint,
    pub words: Vec<u32>,
    pub now: u64,
    /// When the state was last written: what had left its windows by then is forgotten.
    pub written: u64,
    /// Units and when they were counted, never before an earlier one.
    pub admitted: Vec<(u64, u32)>,
    pub pending: u32,
    /// When set, the state moves before it grows next, to a place so much larger than it needs.
    pub room: Option<usize>,
}

impl Subject {
    pub fn new(limit: RateLimit, key: u128, now: u64) -> Subject {
        Subject {
            words: vec![0; limit.min_words(1)],
            limit,
            key: Fingerprint(key),
            now,
            written: 0,
            admitted: Vec::new(),
            pending: 0,
            room: None,
        }
    }

    pub fn drawn(draw: &mut Draw, algorithm: Algorithm) -> Subject {
        let limit = draw.limit(algorithm);
        let key = u128::from(draw.next()) << 64 | u128::from(draw.next());
        let now = match algorithm {
            // The numbers of its windows wrap after 136 years.
            Algorithm::FixedWindow => draw.start() % (365 * 86_400 * SECOND),
            _ => draw.start(),
        };
        Subject::new(limit, key, now)
    }

    pub fn cell(&mut self) -> KeyState<'_> {
        KeyState {
            limit: &self.limit,
            key: self.key,
            wall: WallOffset::default(),
            words: &mut self.words,
        }
    }

    pub fn eval(&mut self, now: u64, cost: u32, plan_factor: u32) -> LimitFinding {
        self.cell()
            .assess(Nanos(now), cost, Scale::plan(plan_factor))
    }

    pub fn used(&mut self, now: u64, index: usize) -> u32 {
        self.cell().used(Nanos(now), index)
    }

    /// Moves the state to a place of `len` words.
    pub fn relocate(&mut self, len: usize) {
        let now = Nanos(self.now);
        let mut place = vec![u32::MAX; len];
        place.fill(0);
        self.cell().move_to(now, &mut place);
        self.words = place;
    }

    /// As a store does before it writes.
    pub fn make_room(&mut self, cost: u32) {
        let (now, most) = (self.now, self.limit.max_words());
        let needs = self.cell().required_words(Nanos(now), cost);
        assert!(needs <= most, "room beyond the most");
        let moves = self.room.take().filter(|_| cost > 0);
        if moves.is_some() || needs > self.words.len() {
            let before = self.eval(now, 1, 1);
            self.relocate(needs + moves.unwrap_or(0) % (most - needs + 1));
            assert_eq!(before, self.eval(now, 1, 1), "a move changes nothing");
        }
    }

    /// Asks and takes as a store does.
    pub fn ask(&mut self, cost: u32, plan_factor: u32) -> LimitFinding {
        let now = self.now;
        let mut finding = self.eval(now, cost, plan_factor);
        let admits = finding.standing.admits();
        if admits && self.limit.reserves {
            self.pending += cost;
        } else if admits && cost > 0 {
            self.make_room(cost);
            self.admitted.push((self.latest(), cost));
        }
        let before = self.words.clone();
        let mut cell = self.cell();
        let mut looked = finding;
        cell.complete_finding(&mut looked, Nanos(now), 0, plan_factor);
        if !admits {
            self.in_one_step(&before, (cost, plan_factor), true, looked);
            return finding;
        }
        cell.take_units(&finding, Nanos(now), cost, Scale::plan(plan_factor));
        cell.complete_finding(&mut finding, Nanos(now), cost, plan_factor);
        self.in_one_step(&before, (cost, plan_factor), false, looked);
        self.in_one_step(&before, (cost, plan_factor), true, finding);
        if cost > 0 {
            self.written = self.written.max(now);
        }
        finding
    }

    /// Where a limit decides in one step, it says and leaves what the three steps did.
    fn in_one_step(&self, before: &[u32], ask: (u32, u32), consume: bool, expected: LimitFinding) {
        let (cost, plan_factor) = ask;
        let Some(fast_path) = self.limit.fast_path(plan_factor) else {
            return;
        };
        let (mut words, now) = (before.to_vec(), Nanos(self.now));
        let found = fast_path.assess(&words, now, cost);
        let finding = if consume && found.standing.admits() {
            let (finding, fresh_at) = fast_path.take_units(&mut words, now, cost, found);
            if !self.limit.is_inline() {
                let unless_told = || self.fresh_at(before);
                let fresh_at = fresh_at.unwrap_or_else(unless_told);
                assert_eq!(fresh_at, self.fresh_at(&words));
            }
            finding
        } else {
            fast_path.untaken_finding(&words, now, cost, found)
        };
        assert_eq!(finding, expected);
        assert_eq!(words, if consume { &self.words[..] } else { before });
    }

    fn fresh_at(&self, words: &[u32]) -> Nanos {
        let cell = KeyState {
            limit: &self.limit,
            key: self.key,
            wall: WallOffset::default(),
            words: &mut words.to_vec(),
        };
        cell.fresh_at()
    }

    pub fn settle(&mut self, reserved: u32, used: u32, plan_factor: u32) {
        let now = Nanos(self.now);
        self.make_room(used);
        self.cell().settle(now, reserved, used, plan_factor);
        self.pending -= reserved;
        if used > 0 {
            self.admitted.push((self.latest(), used));
        }
    }

    /// The newest moment that was seen when something was admitted, or now.
    pub fn latest(&self) -> u64 {
        let newest = self.admitted.last().map_or(0, |(time, _)| *time);
        self.now.max(newest)
    }

    /// Units in the window `(end - window, end]` of real time.
    pub fn counted(&self, end: u64, window: u64) -> u64 {
        let newest_first = self.admitted.iter().rev();
        let inside = newest_first.take_while(|(time, _)| end.saturating_sub(*time) < window);
        inside.map(|(_, units)| u64::from(*units)).sum()
    }

    /// Units in the window of real time that ends at `end`, with what came later left out.
    pub fn counted_between(&self, end: u64, window: u64) -> u64 {
        let before = self.admitted.iter().filter(|(time, _)| *time <= end);
        let inside = before.filter(|(time, _)| time + window > end);
        inside.map(|(_, units)| u64::from(*units)).sum()
    }

    /// Units that an exact log of ticks of `1 << shift` ns counts, as documented.
    pub fn logged(&self, window: u64) -> u64 {
        let shift = self.log_shift();
        let longest = self.limit.longest_window().0.div_ceil(1 << shift);
        let (now, written) = (self.now >> shift, self.written >> shift);
        let window = window.div_ceil(1 << shift);
        let counts = |time: u64| {
            let tick = time.div_ceil(1 << shift);
            tick + window > now && tick + longest > written
        };
        let newest_first = self.admitted.iter().rev();
        let inside = newest_first.take_while(|(time, _)| counts(*time));
        inside.map(|(_, units)| u64::from(*units)).sum()
    }

    fn log_shift(&self) -> u32 {
        let longest = self.limit.longest_window().0;
        (0..64).find(|shift| longest >> shift < 1 << 30).unwrap()
    }

    pub fn quota(&self, rate: &Rate, plan_factor: u32) -> u32 {
        rate.quota().saturating_mul(plan_factor)
    }

    pub fn ceiling(&self, rate: &Rate, plan_factor: u32) -> u32 {
        self.limit.throttle.ceiling(self.quota(rate, plan_factor))
    }

    /// The largest cost that a fresh cell admits.
    pub fn most(&self, plan_factor: u32) -> u32 {
        let ceilings = self
            .limit
            .windows
            .iter()
            .map(|rate| self.ceiling(rate, plan_factor));
        let ceiling = ceilings.min().unwrap();
        match self.limit.algorithm {
            Algorithm::SlidingLog => return ceiling.min(65_535),
            Algorithm::Gcra { .. } | Algorithm::LeakyBucket { .. } => {}
            _ => return ceiling,
        }
        let fresh = |cost| {
            let mut words = vec![0; self.limit.min_words(1)];
            let (limit, key) = (&self.limit, self.key);
            let words = &mut words;
            KeyState {
                limit,
                key,
                wall: WallOffset::default(),
                words,
            }
            .assess(Nanos(self.now), cost, Scale::plan(plan_factor))
            .standing
            .admits()
        };
        let (mut low, mut high) = (0, u32::MAX);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fresh(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}

/// What must hold of every finding, whatever the algorithm.
pub fn check_finding(subject: &mut Subject, cost: u32, plan_factor: u32, finding: LimitFinding) {
    let now = subject.now;
    let rate = subject.limit.windows[usize::from(finding.window)];
    assert_eq!(finding.quota, subject.quota(&rate, plan_factor));
    match finding.standing {
        LimitStanding::Within | LimitStanding::Over => {
            assert_eq!(finding.wait, Nanos::ZERO, "what passes does not wait");
            let left = finding.remaining;
            if left > 0 {
                let fits = subject.eval(now, left, plan_factor).standing;
                assert_eq!(fits, LimitStanding::Within, "{left} units remain");
            }
            if let Some(above) = left.checked_add(1) {
                let above = subject.eval(now, above, plan_factor).standing;
                assert_ne!(above, LimitStanding::Within, "only {left} units remain");
            }
        }
        LimitStanding::Refused => {
            let wait = finding.wait.0;
            assert!(wait > 0, "a refusal waits");
            let Some(then) = now.checked_add(wait) else {
                return;
            };
            let before = subject.eval(then - 1, cost, plan_factor).standing;
            assert_eq!(before, LimitStanding::Refused, "one tick early");
            let then = subject.eval(then, cost, plan_factor).standing;
            assert!(then.admits(), "{then:?} after the wait");
        }
        LimitStanding::Unsatisfiable => {
            let ever = subject.most(plan_factor);
            assert!(cost > ever, "{cost} would pass a fresh cell");
        }
    }
}

/// Once a state says it is fresh, it is; and not a tick earlier.
pub fn check_fresh(subject: &mut Subject) {
    let fresh_at = subject.cell().fresh_at().0;
    let windows = subject.limit.windows.len();
    let used = |subject: &mut Subject, now| {
        let delayed = subject.eval(now, 0, 1).delay > Nanos::ZERO;
        delayed || (0..windows).any(|i| subject.used(now, i) > 0)
    };
    assert!(!used(subject, fresh_at), "fresh at {fresh_at}");
    if fresh_at > subject.now {
        assert!(used(subject, fresh_at - 1), "not fresh before {fresh_at}");
    }
}

/// While the speaking window is the only one: `reset` is when one more unit is free.
pub fn check_reset(subject: &mut Subject, plan_factor: u32, taken: LimitFinding) {
    if subject.limit.windows.len() > 1 || !taken.standing.admits() || subject.limit.reserves {
        return;
    }
    let now = subject.now;
    assert_eq!(
        taken.remaining,
        subject.eval(now, 0, plan_factor).remaining,
        "after taking"
    );
    let Some(then) = now.checked_add(taken.reset.0).filter(|then| *then > now) else {
        return;
    };
    let before = subject.eval(then - 1, 0, plan_factor).remaining;
    assert_eq!(before, taken.remaining, "before the reset");
    let after = subject.eval(then, 0, plan_factor).remaining;
    assert!(after > taken.remaining, "{after} after the reset");
}
