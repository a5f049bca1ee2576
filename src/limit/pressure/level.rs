//! x, the level: which classes are cut and how much, from 4 (none) to 0. Also how many requests each class may have
//! open: that bound works at once, while the level takes steps.
//!
//! | level | what it cuts |
//! |---|---|
//! | 3 to 4 | lending, by a lower factor for all keys alike |
//! | 2 to 3 | low requests, by cohorts |
//! | 1 to 2 | normal requests, by cohorts |
//! | 0 to 1 | the room of critical requests above L |
//!
//! Whole cohorts are refused, not requests at random, so that a session works or does not. A key's cohort lasts an
//! hour, so that no key is always the first to be refused (DAGOR; Uber's Cinnamon). Lending is cut by the factor
//! instead: cohorts would take everything from some keys, and the factor takes from each by its weight.

use super::class::RequestClass;
use super::step::STEP;
use crate::base::clock::Nanos;
use crate::base::random::{GOLDEN, mix};

/// The level at which nothing is cut.
pub(crate) const TOP: f64 = 4.0;

/// The ratio of open requests to L that the level steers to.
const TARGET: f64 = 0.95;
const GAIN: f64 = 0.5;
/// The most that the level rises in a step.
const RISE: f64 = 0.05;
/// The least that it falls in a step in which a critical request met a crowd.
const CROWDED: f64 = 0.1;
/// Critical requests lose room only while the median is above this many baselines: where gateways see one
/// upstream differently, the one with the smallest L would otherwise shed them while others serve all.
const URGENT: f64 = 2.3;
/// The median, in baselines, above which there is a queue.
const QUEUE: f64 = 1.5;
/// The median, in baselines, above which critical requests may be refused.
const LONG_QUEUE: f64 = 2.0;
/// For how long a queue is remembered. With a shorter memory, all refused clients would come back at once whenever the
/// queue is short.
const MEMORY: Nanos = Nanos::from_secs(5);
/// The most that a probe raises the baseline if it held no class back. So a server that becomes slow while it is not
/// busy is noticed. A queue that other gateways feed is not learned before they drain it.
const CREEP: f64 = 1.05;
/// The same when only critical requests are left. The slowness may then be either, and a baseline that is too high
/// admits other classes, which can be held back.
const CREEP_LAST: f64 = 1.02;

/// The level, and when it last saw a queue.
#[derive(Debug)]
pub(crate) struct Level {
    level: f64,
    /// When the median was last above [`QUEUE`].
    queued: Option<Nanos>,
    /// When it was last above [`LONG_QUEUE`].
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

    /// Forgets queues: they may have been the gateway's own.
    pub(crate) fn forget(&mut self) {
        self.queued = None;
        self.urgent = None;
    }

    /// Whether lending is cut by less than half, and nothing else is.
    pub(crate) fn is_calm(&self) -> bool {
        self.level > 3.5
    }

    /// Whether nothing but lending is cut.
    fn spares_all(&self) -> bool {
        self.level > 3.0
    }

    /// One control step. `load` is the ratio of open requests to L; `crowded` says that a critical request met
    /// [`crowd_size`]; `slowness` is the ratio of the median to the baseline.
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

    /// Whether requests of the class may be refused at all: as long as responses come in time there is no queue,
    /// however many requests are open.
    pub(crate) fn may_refuse(&self, class: RequestClass) -> bool {
        match class {
            RequestClass::Critical => self.urgent.is_some(),
            RequestClass::Normal | RequestClass::Low => self.queued.is_some(),
        }
    }

    /// The factor by which a probe may raise the baseline if open requests did not fall.
    pub(crate) fn creep(&self) -> f64 {
        if self.spares_all() {
            CREEP
        } else if self.level > 1.0 {
            1.0
        } else {
            CREEP_LAST
        }
    }

    /// Whether a probe may hold the class back. It may while the class is being cut, and normal requests a little
    /// earlier.
    pub(crate) fn yields_to_probe(&self, class: RequestClass) -> bool {
        match class {
            RequestClass::Low => !self.spares_all(),
            RequestClass::Normal => self.level < 2.5,
            RequestClass::Critical => self.level < 0.8,
        }
    }
}

/// The share of m - 1 that is still lent at `level`.
pub(crate) fn lending_share(level: f64) -> f64 {
    (level - 3.0).clamp(0.0, 1.0)
}

/// Open requests from which on a class is refused. The room above its share of L is for chance: where L is 2, a class
/// without it would refuse every second request of a quiet upstream. The room shrinks with the level.
pub(crate) fn class_bound(class: RequestClass, limit: f64, level: f64) -> f64 {
    let root = limit.sqrt();
    let room = root * level / TOP;
    match class {
        RequestClass::Critical => limit + root + level.min(1.0) * (0.5 * root + 3.0),
        RequestClass::Normal => 0.95 * limit + 1.5 * room,
        RequestClass::Low => 0.85 * limit + room,
    }
}

/// Open requests up to which anything is lent.
pub(crate) fn lending_bound(limit: f64, level: f64) -> f64 {
    0.80 * limit + 0.5 * limit.sqrt() * level / TOP
}

/// Open requests that are a crowd to a critical one.
pub(crate) fn crowd_size(limit: f64) -> f64 {
    limit + 2.0 * limit.sqrt()
}

/// How long a request waits at least if the level cuts the cohort of its key: until the level can be back at that
/// cohort. None if the cohort is not cut.
pub(crate) fn cohort_wait(
    class: RequestClass,
    level: f64,
    key: impl FnOnce() -> u64,
    hour: u64,
) -> Option<Nanos> {
    let lowest = match class {
        RequestClass::Normal => 1.0,
        RequestClass::Low => 2.0,
        RequestClass::Critical => return None,
    };
    if level >= lowest + 1.0 {
        return None;
    }
    let above = lowest + cohort(key(), hour) - level;
    (above >= 0.0).then(|| Nanos((above / RISE).ceil() as u64 * STEP.0))
}

/// The position of a key in its class in this hour, at least 0 and below 1. The key is a keyed hash already;
/// SplitMix64's finalizer (Steele, Lea, Flood 2014) shuffles it for each hour.
fn cohort(key: u64, hour: u64) -> f64 {
    (mix(key ^ hour.wrapping_mul(GOLDEN)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_cut(class: RequestClass, level: f64) -> f64 {
        let keys = 10_000_u64;
        let cut = (0..keys).filter(|key| cohort_wait(class, level, || *key, 7).is_some());
        cut.count() as f64 / keys as f64
    }

    #[test]
    fn low_is_cut_before_normal_and_neither_before_lending() {
        for (level, low, normal) in [(4.0, 0.0, 0.0), (3.0, 0.0, 0.0), (2.5, 0.5, 0.0)] {
            assert!(
                (share_cut(RequestClass::Low, level) - low).abs() < 0.02,
                "{level}"
            );
            assert_eq!(share_cut(RequestClass::Normal, level), normal);
        }
        assert_eq!(share_cut(RequestClass::Low, 2.0), 1.0);
        assert!((share_cut(RequestClass::Normal, 1.75) - 0.25).abs() < 0.02);
        assert_eq!(share_cut(RequestClass::Normal, 1.0), 1.0);
        assert_eq!(share_cut(RequestClass::Critical, 0.0), 0.0);
        assert_eq!(
            (lending_share(4.0), lending_share(3.25), lending_share(2.0)),
            (1.0, 0.25, 0.0)
        );
    }

    #[test]
    fn cohorts_last_an_hour() {
        let is_cut = |key, hour| cohort_wait(RequestClass::Normal, 1.5, || key, hour).is_some();
        let differ = (0..1_000)
            .filter(|key| is_cut(*key, 1) != is_cut(*key, 2))
            .count();
        assert!((400..600).contains(&differ), "{differ}");
        // A key that is cut stays so while the level falls.
        for key in 0..1_000 {
            let wait = |level| cohort_wait(RequestClass::Normal, level, || key, 1);
            assert!(wait(1.6).is_none() || wait(1.3).is_some());
            assert!(wait(1.3) >= wait(1.6));
        }
    }

    #[test]
    fn waits_are_short() {
        let longest = (0..1_000)
            .filter_map(|key| cohort_wait(RequestClass::Low, 0.0, || key, 1))
            .max();
        let longest = longest.unwrap_or_default();
        assert!(longest > Nanos::from_secs(5) && longest <= Nanos::from_secs(6));
    }

    #[test]
    fn without_a_queue_nobody_is_cut() {
        let mut level = Level::new();
        let classes = [
            RequestClass::Normal,
            RequestClass::Low,
            RequestClass::Critical,
        ];
        let at = Nanos::from_secs;
        level.step(9.0, true, 1.4, at(1));
        assert_eq!(level.get(), TOP);
        assert!(!classes.iter().any(|class| level.may_refuse(*class)));
        level.step(9.0, true, 1.6, at(2));
        assert!(level.get() < TOP);
        assert_eq!(
            classes.map(|class| level.may_refuse(class)),
            [true, true, false]
        );
        level.step(9.0, true, 2.1, at(3));
        assert!(classes.iter().all(|class| level.may_refuse(*class)));
        // It is remembered for a while.
        level.step(9.0, true, 1.0, at(7));
        assert!(level.may_refuse(RequestClass::Critical));
        level.step(9.0, true, 1.0, at(8));
        assert!(!classes.iter().any(|class| level.may_refuse(*class)));
    }

    #[test]
    fn critical_is_last() {
        let mut level = Level::new();
        (0..100).for_each(|_| level.step(3.0, true, 2.1, Nanos::ZERO));
        assert_eq!(level.get(), 1.0);
        assert!(
            !level.yields_to_probe(RequestClass::Critical)
                && level.yields_to_probe(RequestClass::Normal)
        );
        (0..100).for_each(|_| level.step(3.0, true, 3.0, Nanos::ZERO));
        assert_eq!(level.get(), 0.0);
        level.step(0.0, false, 1.0, Nanos::ZERO);
        assert!((level.get() - RISE).abs() < 1e-9);
        level.step(0.0, true, 3.0, Nanos::ZERO);
        assert_eq!(level.get(), 0.0);
        for limit in [1.0, 2.0, 20.0, 500.0] {
            for level in [0.0, 0.5, 1.0, 2.0, 4.0] {
                let [critical, normal, low] =
                    RequestClass::ALL.map(|class| class_bound(class, limit, level));
                let bounds = [critical, normal, low, lending_bound(limit, level)];
                assert!(bounds.is_sorted_by(|a, b| a >= b), "{bounds:?}");
                assert!(bounds[0] >= limit && bounds[0] >= bounds[1]);
            }
        }
    }
}
