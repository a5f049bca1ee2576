//! x, the level: which classes are cut and how much, from 4 (nobody) to 0. And what each class may have
//! open, which answers at once where the level takes steps.
//!
//! | level | what it cuts |
//! |---|---|
//! | 3 to 4 | lending, by a lower factor for all keys alike |
//! | 2 to 3 | low requests, by cohorts |
//! | 1 to 2 | normal requests, by cohorts |
//! | 0 to 1 | the room of critical requests above L |
//!
//! Whole cohorts are refused, not requests at random, so that a session works or does not; a key's cohort
//! lasts an hour, so that nobody is always the first (DAGOR; Uber's Cinnamon). What is borrowed is cut by
//! the factor instead: cohorts would take all from some keys, and the factor takes from each by its weight.

use super::class::Class;
use super::step::STEP;
use crate::base::clock::Nanos;

/// Nobody is cut.
pub(crate) const TOP: f64 = 4.0;

/// Open requests over L that the level steers to.
const TARGET: f64 = 0.95;
const GAIN: f64 = 0.5;
/// A step's rise at most, and its fall at least when a critical request met a crowd.
const RISE: f64 = 0.05;
const CROWDED: f64 = 0.1;
/// Critical requests lose room only while the median is above this many baselines: where gateways see one
/// upstream differently, the one with the smallest L would otherwise shed them while others serve all.
const URGENT: f64 = 2.3;
/// The same that shows a queue at all, one that critical requests are turned away for, and for how long both
/// are remembered: shorter, and all who were turned away would come back at once whenever the queue is short.
const QUEUE: f64 = 1.5;
const LONG_QUEUE: f64 = 2.0;
const MEMORY: Nanos = Nanos::from_secs(5);
/// What a probe raises the baseline by at most when nobody was held back: a server that grows slow while it is
/// not busy is found, and a queue that others feed is not learned before they drain it. When only critical
/// requests are left it may be either, and a baseline that is too high lets others in, who can be held back.
const CREEP: f64 = 1.05;
const CREEP_LAST: f64 = 1.02;

/// See the module.
#[derive(Debug)]
pub(crate) struct Level {
    level: f64,
    /// When there was a queue, and one that critical requests are turned away for.
    queued: Option<Nanos>,
    urgent: Option<Nanos>,
}

impl Level {
    pub(crate) fn new() -> Level {
        Level {
            level: TOP,
            queued: None,
            urgent: None,
        }
    }

    pub(crate) fn get(&self) -> f64 {
        self.level
    }

    /// What was taken for a queue of the upstream may have been one of the gateway.
    pub(crate) fn forget(&mut self) {
        self.queued = None;
        self.urgent = None;
    }

    /// Lending is cut by less than half.
    pub(crate) fn is_calm(&self) -> bool {
        self.level > 3.5
    }

    /// Nothing but lending is cut.
    fn spares_all(&self) -> bool {
        self.level > 3.0
    }

    /// `load` is the step's open requests over L, `crowded` that a critical request met [`crowd`].
    pub(crate) fn step(&mut self, load: f64, crowded: bool, slowness: f64, now: Nanos) {
        let recent = |last: Option<Nanos>| last.filter(|last| now.since(*last) < MEMORY);
        let since = |last, least| (slowness > least).then_some(now).or(recent(last));
        self.queued = since(self.queued, QUEUE);
        self.urgent = since(self.urgent, LONG_QUEUE);
        let (load, crowded) = match self.queued {
            Some(_) => (load, crowded),
            None => (0.0, false),
        };
        let change = (GAIN * (TARGET - load)).clamp(-1.0, RISE);
        let change = if crowded {
            change.min(-CROWDED)
        } else {
            change
        };
        let floor = if slowness > URGENT {
            0.0
        } else {
            self.level.min(1.0)
        };
        self.level = (self.level + change).clamp(floor, TOP);
    }

    /// Whether the class may be turned away at all: while answers come in time there is no queue, however many
    /// are open.
    pub(crate) fn bounds(&self, class: Class) -> bool {
        match class {
            Class::Critical => self.urgent.is_some(),
            Class::Normal | Class::Low => self.queued.is_some(),
        }
    }

    /// By what a probe may raise the baseline at most that held back nobody.
    pub(crate) fn creep(&self) -> f64 {
        if self.spares_all() {
            CREEP
        } else if self.level > 1.0 {
            1.0
        } else {
            CREEP_LAST
        }
    }

    /// Whether a probe may hold a class back: while it is being cut anyway, normal requests a little before.
    pub(crate) fn gives_way(&self, class: Class) -> bool {
        match class {
            Class::Low => !self.spares_all(),
            Class::Normal => self.level < 2.5,
            Class::Critical => self.level < 0.8,
        }
    }
}

/// The share of a factor's lending that is left at `level`.
pub(crate) fn lending(level: f64) -> f64 {
    (level - 3.0).clamp(0.0, 1.0)
}

/// Open requests that a class must find fewer of. Room above its share of L is for chance: where L is 2, a
/// class that had no more would refuse every second request of a quiet upstream. There is less of it as the
/// level falls.
pub(crate) fn bound(class: Class, limit: f64, level: f64) -> f64 {
    let root = limit.sqrt();
    let room = root * level / TOP;
    match class {
        Class::Critical => limit + root + level.min(1.0) * (0.5 * root + 3.0),
        Class::Normal => 0.95 * limit + 1.5 * room,
        Class::Low => 0.85 * limit + room,
    }
}

/// The same for what is lent.
pub(crate) fn lending_bound(limit: f64, level: f64) -> f64 {
    0.80 * limit + 0.5 * limit.sqrt() * level / TOP
}

/// Open requests that are a crowd to a critical one.
pub(crate) fn crowd(limit: f64) -> f64 {
    limit + 2.0 * limit.sqrt()
}

/// How long a request of the key is told to wait when the level cuts its cohort: until the level is back at
/// the cohort at its fastest.
pub(crate) fn cut(class: Class, level: f64, key: impl FnOnce() -> u64, hour: u64) -> Option<Nanos> {
    let lowest = match class {
        Class::Normal => 1.0,
        Class::Low => 2.0,
        Class::Critical => return None,
    };
    if level >= lowest + 1.0 {
        return None;
    }
    let above = lowest + cohort(key(), hour) - level;
    (above >= 0.0).then(|| Nanos((above / RISE).ceil() as u64 * STEP.0))
}

/// Where a key stands in its class in this hour, from 0 up to but not including 1. The key is a keyed hash
/// already; SplitMix64's finalizer (Steele, Lea, Flood 2014) shuffles it anew each hour.
fn cohort(key: u64, hour: u64) -> f64 {
    let mut z = key ^ hour.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_cut(class: Class, level: f64) -> f64 {
        let keys = 10_000_u64;
        let cut = (0..keys).filter(|key| cut(class, level, || *key, 7).is_some());
        cut.count() as f64 / keys as f64
    }

    #[test]
    fn low_is_cut_before_normal_and_neither_before_lending() {
        for (level, low, normal) in [(4.0, 0.0, 0.0), (3.0, 0.0, 0.0), (2.5, 0.5, 0.0)] {
            assert!((share_cut(Class::Low, level) - low).abs() < 0.02, "{level}");
            assert_eq!(share_cut(Class::Normal, level), normal);
        }
        assert_eq!(share_cut(Class::Low, 2.0), 1.0);
        assert!((share_cut(Class::Normal, 1.75) - 0.25).abs() < 0.02);
        assert_eq!(share_cut(Class::Normal, 1.0), 1.0);
        assert_eq!(share_cut(Class::Critical, 0.0), 0.0);
        assert_eq!(
            (lending(4.0), lending(3.25), lending(2.0)),
            (1.0, 0.25, 0.0)
        );
    }

    #[test]
    fn cohorts_last_an_hour() {
        let is_cut = |key, hour| cut(Class::Normal, 1.5, || key, hour).is_some();
        let differ = (0..1_000)
            .filter(|key| is_cut(*key, 1) != is_cut(*key, 2))
            .count();
        assert!((400..600).contains(&differ), "{differ}");
        // Who is cut stays so while the level falls.
        for key in 0..1_000 {
            let wait = |level| cut(Class::Normal, level, || key, 1);
            assert!(wait(1.6).is_none() || wait(1.3).is_some());
            assert!(wait(1.3) >= wait(1.6));
        }
    }

    #[test]
    fn waits_are_short() {
        let longest = (0..1_000)
            .filter_map(|key| cut(Class::Low, 0.0, || key, 1))
            .max();
        let longest = longest.unwrap_or_default();
        assert!(longest > Nanos::from_secs(5) && longest <= Nanos::from_secs(6));
    }

    #[test]
    fn without_a_queue_nobody_is_cut() {
        let mut level = Level::new();
        let classes = [Class::Normal, Class::Low, Class::Critical];
        let at = Nanos::from_secs;
        level.step(9.0, true, 1.4, at(1));
        assert_eq!(level.get(), TOP);
        assert!(!classes.iter().any(|class| level.bounds(*class)));
        level.step(9.0, true, 1.6, at(2));
        assert!(level.get() < TOP);
        assert_eq!(
            classes.map(|class| level.bounds(class)),
            [true, true, false]
        );
        level.step(9.0, true, 2.1, at(3));
        assert!(classes.iter().all(|class| level.bounds(*class)));
        // It is remembered for a while.
        level.step(9.0, true, 1.0, at(7));
        assert!(level.bounds(Class::Critical));
        level.step(9.0, true, 1.0, at(8));
        assert!(!classes.iter().any(|class| level.bounds(*class)));
    }

    #[test]
    fn critical_is_last() {
        let mut level = Level::new();
        (0..100).for_each(|_| level.step(3.0, true, 2.1, Nanos::ZERO));
        assert_eq!(level.get(), 1.0);
        assert!(!level.gives_way(Class::Critical) && level.gives_way(Class::Normal));
        (0..100).for_each(|_| level.step(3.0, true, 3.0, Nanos::ZERO));
        assert_eq!(level.get(), 0.0);
        level.step(0.0, false, 1.0, Nanos::ZERO);
        assert!((level.get() - RISE).abs() < 1e-9);
        level.step(0.0, true, 3.0, Nanos::ZERO);
        assert_eq!(level.get(), 0.0);
        for limit in [1.0, 2.0, 20.0, 500.0] {
            for level in [0.0, 0.5, 1.0, 2.0, 4.0] {
                let [critical, normal, low] = Class::ALL.map(|class| bound(class, limit, level));
                let bounds = [critical, normal, low, lending_bound(limit, level)];
                assert!(bounds.is_sorted_by(|a, b| a >= b), "{bounds:?}");
                assert!(bounds[0] >= limit && bounds[0] >= bounds[1]);
            }
        }
    }
}
