//! The level: which classes are cut and how much, from 4 (none) down to 0. This file also derives the bounds of the
//! classes on open requests from the capacity and the level. Bounds stop a burst at once; the level needs several
//! steps. The refusals themselves are made in `upstream_pressure.rs`.
//!
//! | level | what it cuts |
//! |---|---|
//! | 3 to 4 | lending, by a lower factor for all keys alike |
//! | 2 to 3 | low requests, by cohorts |
//! | 1 to 2 | normal requests, by cohorts |
//! | 0 to 1 | a part of the room of critical requests above the capacity |
//!
//! Whole cohorts are refused, not requests at random, so that a session works or does not. A key's cohort lasts an
//! hour, so that no key is always the first to be refused (DAGOR; Uber's Cinnamon). Lending is cut by the factor
//! instead: cohorts would take everything from some keys, and the factor takes from each by its weight.

use super::control_step::CONTROL_STEP;
use super::request_class::RequestClass;
use crate::base::clock::Nanos;
use crate::base::random::{GOLDEN_RATIO, mix};

/// The highest level, at which nothing is cut.
pub(crate) const MAX_LEVEL: f64 = 4.0;

/// The ratio of open requests to the capacity that the level steers to.
const TARGET_LOAD: f64 = 0.95;
/// The distance that the level moves in a step for each unit by which open / capacity differs from [`TARGET_LOAD`]. The
/// level falls by at most 1 in a step.
const LEVEL_GAIN: f64 = 0.5;
/// The most that the level rises in a step: from 0 to the highest level it takes at least 8 s.
const MAX_RISE_PER_STEP: f64 = 0.05;
/// The least that the level falls in a step in which a critical request met a crowd.
const MIN_FALL_IF_CROWDED: f64 = 0.1;
/// The median latency, in baselines, above which critical requests lose room. Several gateways estimate different
/// capacities for one upstream. Without this threshold, the gateway with the smallest one would shed critical requests
/// while the other gateways serve all.
const CRITICAL_CUT_SLOWNESS: f64 = 2.3;
/// The median latency, in baselines, above which there is a queue.
const QUEUE_SLOWNESS: f64 = 1.5;
/// The median latency, in baselines, above which critical requests may be refused.
const LONG_QUEUE_SLOWNESS: f64 = 2.0;
/// The time for which requests may be refused after a queue was seen. With a shorter memory, all refused clients would
/// come back at once whenever the queue is short.
const QUEUE_MEMORY: Nanos = Nanos::from_secs(5);
/// The factor by which a probe may raise the baseline while at most lending is cut, although open requests did not
/// fall. So the baseline follows a server that becomes slow while it is not busy. The factor is small: other gateways
/// drain their queue before it raises the baseline much.
const MAX_CREEP: f64 = 1.05;
/// The same factor where only critical requests pass. Then the server may be slow by itself, or have a queue. A
/// baseline that is too high admits requests of other classes, which can be cut again.
const MAX_CREEP_CRITICAL_ONLY: f64 = 1.02;

/// The level above which lending is cut by less than half.
const CALM_LEVEL: f64 = 3.5;
/// The level below which a probe may hold normal requests back: half a level before they are cut.
const NORMAL_YIELD_LEVEL: f64 = 2.5;
/// The level below which a probe may hold critical requests back: a fifth of a level after they have begun to lose
/// room.
const CRITICAL_YIELD_LEVEL: f64 = 0.8;

/// The share of the capacity up to which normal requests are open, besides the room for chance.
const NORMAL_SHARE: f64 = 0.95;
/// The same share for low requests, which give way first.
const LOW_SHARE: f64 = 0.85;
/// The same share for lending, which is cut before any request.
const LENDING_SHARE: f64 = 0.80;
/// The room of normal requests for chance, in square roots of the capacity. A count spreads by its square root by
/// chance.
const NORMAL_ROOM: f64 = 1.5;
/// The room of lending for chance, in square roots of the capacity.
const LENDING_ROOM: f64 = 0.5;
/// The room that critical requests lose below level 1, in square roots of the capacity.
const CRITICAL_ROOM: f64 = 0.5;
/// The requests that this room has besides, so that a small capacity leaves some.
const CRITICAL_ROOM_REQUESTS: f64 = 3.0;
/// The distance of a crowd above the capacity, in square roots of the capacity. Chance alone rarely reaches it.
const CROWD_ROOM: f64 = 2.0;

/// The level, and when the upstream last had a queue.
#[derive(Debug)]
pub(crate) struct ShedLevel {
    /// The level, from 0 to [`MAX_LEVEL`].
    level: f64,
    /// The time at which the median was last above [`QUEUE_SLOWNESS`]; `None` if not in the [`QUEUE_MEMORY`], or if
    /// forgotten.
    last_queue: Option<Nanos>,
    /// The same for [`LONG_QUEUE_SLOWNESS`].
    last_long_queue: Option<Nanos>,
}

impl ShedLevel {
    pub(crate) fn new() -> ShedLevel {
        ShedLevel {
            level: MAX_LEVEL,
            last_queue: None,
            last_long_queue: None,
        }
    }

    /// The level, from 0 to [`MAX_LEVEL`].
    pub(crate) fn get(&self) -> f64 {
        self.level
    }

    /// Forgets all queues so far: the gateway itself may have been what was slow.
    pub(crate) fn forget_queues(&mut self) {
        self.last_queue = None;
        self.last_long_queue = None;
    }

    /// Whether lending is cut by less than half, and no request is.
    pub(crate) fn is_calm(&self) -> bool {
        self.level > CALM_LEVEL
    }

    /// Whether at most lending is cut.
    fn cuts_no_requests(&self) -> bool {
        self.level > 3.0
    }

    /// Advances the level by a control step. `open_load` is the ratio of open requests to the capacity. `met_crowd`
    /// says that a critical request met [`crowd_size`] open ones. `slowness` is the ratio of the median to the
    /// baseline.
    pub(crate) fn step(&mut self, open_load: f64, met_crowd: bool, slowness: f64, now: Nanos) {
        let recent = |last: Option<Nanos>| last.filter(|last| now.since(*last) < QUEUE_MEMORY);
        let last_above = |threshold, last| (slowness > threshold).then_some(now).or(recent(last));
        self.last_queue = last_above(QUEUE_SLOWNESS, self.last_queue);
        self.last_long_queue = last_above(LONG_QUEUE_SLOWNESS, self.last_long_queue);
        // Without a recent queue the level only rises.
        let (open_load, met_crowd) = match self.last_queue {
            Some(_) => (open_load, met_crowd),
            None => (0.0, false),
        };
        let change = (LEVEL_GAIN * (TARGET_LOAD - open_load)).clamp(-1.0, MAX_RISE_PER_STEP);
        let change = if met_crowd {
            change.min(-MIN_FALL_IF_CROWDED)
        } else {
            change
        };
        let floor = if slowness > CRITICAL_CUT_SLOWNESS {
            0.0
        } else {
            self.level.min(1.0)
        };
        self.level = (self.level + change).clamp(floor, MAX_LEVEL);
    }

    /// Whether the bound of the class on open requests holds now. As long as responses come in time there is no queue,
    /// however many requests are open. Cohorts that the level cuts are refused anyway.
    pub(crate) fn enforces_bound(&self, class: RequestClass) -> bool {
        match class {
            RequestClass::Critical => self.last_long_queue.is_some(),
            RequestClass::Normal | RequestClass::Low => self.last_queue.is_some(),
        }
    }

    /// The factor by which a probe may raise the baseline if open requests did not fall. It is 1 while low or normal
    /// requests are cut and some normal ones pass.
    pub(crate) fn max_creep(&self) -> f64 {
        if self.cuts_no_requests() {
            MAX_CREEP
        } else if self.level > 1.0 {
            1.0
        } else {
            MAX_CREEP_CRITICAL_ONLY
        }
    }

    /// Whether a probe may hold the class back: low requests once they are cut, normal ones half a level before they
    /// are cut. Critical ones may be held back only once they have lost a fifth of the room that the level cuts.
    pub(crate) fn may_yield_to_probe(&self, class: RequestClass) -> bool {
        match class {
            RequestClass::Low => !self.cuts_no_requests(),
            RequestClass::Normal => self.level < NORMAL_YIELD_LEVEL,
            RequestClass::Critical => self.level < CRITICAL_YIELD_LEVEL,
        }
    }
}

/// The part of the lent share that is still lent at `level`, from 0 to 1.
pub(crate) fn lending_share(level: f64) -> f64 {
    (level - 3.0).clamp(0.0, 1.0)
}

/// The number of open requests from which on a class is refused: its share of the capacity, and room for chance.
/// Without that room, an upstream with a small capacity would refuse requests that only happen to come together. The
/// room shrinks with the level. The room of critical requests shrinks only below level 1, and never to less than a
/// square root of the capacity.
pub(crate) fn class_bound(class: RequestClass, capacity: f64, level: f64) -> f64 {
    let root = capacity.sqrt();
    let room = root * level / MAX_LEVEL;
    match class {
        RequestClass::Critical => {
            capacity + root + level.min(1.0) * (CRITICAL_ROOM * root + CRITICAL_ROOM_REQUESTS)
        }
        RequestClass::Normal => NORMAL_SHARE * capacity + NORMAL_ROOM * room,
        RequestClass::Low => LOW_SHARE * capacity + room,
    }
}

/// The number of open requests up to which anything is lent.
pub(crate) fn lending_bound(capacity: f64, level: f64) -> f64 {
    LENDING_SHARE * capacity + LENDING_ROOM * capacity.sqrt() * level / MAX_LEVEL
}

/// The number of open requests that count as a crowd when a critical request meets them.
pub(crate) fn crowd_size(capacity: f64) -> f64 {
    capacity + CROWD_ROOM * capacity.sqrt()
}

/// The shortest wait of a request whose cohort the level cuts: the time that the level needs at least to rise to that
/// cohort. `None` if the cohort is not cut. `key` returns the keyed hash of the client; `hour` is counted from the Unix
/// epoch.
pub(crate) fn cohort_wait(
    class: RequestClass,
    level: f64,
    key: impl FnOnce() -> u64,
    hour: u64,
) -> Option<Nanos> {
    // The level at which all cohorts of the class are cut.
    let all_cut_level = match class {
        RequestClass::Normal => 1.0,
        RequestClass::Low => 2.0,
        RequestClass::Critical => return None,
    };
    if level >= all_cut_level + 1.0 {
        return None;
    }
    let rise = all_cut_level + cohort(key(), hour) - level;
    (rise >= 0.0).then(|| Nanos((rise / MAX_RISE_PER_STEP).ceil() as u64 * CONTROL_STEP.0))
}

/// The position of a key in its class in this hour, at least 0 and below 1. The key is a keyed hash already.
/// SplitMix64's finalizer (Steele, Lea, Flood 2014) shuffles it for each hour. Of the result, 53 bits are used, as many
/// as an `f64` holds exactly.
fn cohort(key: u64, hour: u64) -> f64 {
    (mix(key ^ hour.wrapping_mul(GOLDEN_RATIO)) >> 11) as f64 / (1_u64 << 53) as f64
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
        let mut level = ShedLevel::new();
        let classes = [
            RequestClass::Normal,
            RequestClass::Low,
            RequestClass::Critical,
        ];
        let at = Nanos::from_secs;
        level.step(9.0, true, 1.4, at(1));
        assert_eq!(level.get(), MAX_LEVEL);
        assert!(!classes.iter().any(|class| level.enforces_bound(*class)));
        level.step(9.0, true, 1.6, at(2));
        assert!(level.get() < MAX_LEVEL);
        assert_eq!(
            classes.map(|class| level.enforces_bound(class)),
            [true, true, false]
        );
        level.step(9.0, true, 2.1, at(3));
        assert!(classes.iter().all(|class| level.enforces_bound(*class)));
        // It is remembered for a while.
        level.step(9.0, true, 1.0, at(7));
        assert!(level.enforces_bound(RequestClass::Critical));
        level.step(9.0, true, 1.0, at(8));
        assert!(!classes.iter().any(|class| level.enforces_bound(*class)));
    }

    #[test]
    fn critical_is_last() {
        let mut level = ShedLevel::new();
        (0..100).for_each(|_| level.step(3.0, true, 2.1, Nanos::ZERO));
        assert_eq!(level.get(), 1.0);
        assert!(
            !level.may_yield_to_probe(RequestClass::Critical)
                && level.may_yield_to_probe(RequestClass::Normal)
        );
        (0..100).for_each(|_| level.step(3.0, true, 3.0, Nanos::ZERO));
        assert_eq!(level.get(), 0.0);
        level.step(0.0, false, 1.0, Nanos::ZERO);
        assert!((level.get() - MAX_RISE_PER_STEP).abs() < 1e-9);
        level.step(0.0, true, 3.0, Nanos::ZERO);
        assert_eq!(level.get(), 0.0);
        for capacity in [1.0, 2.0, 20.0, 500.0] {
            for level in [0.0, 0.5, 1.0, 2.0, 4.0] {
                let [critical, normal, low] =
                    RequestClass::ALL.map(|class| class_bound(class, capacity, level));
                let bounds = [critical, normal, low, lending_bound(capacity, level)];
                assert!(bounds.is_sorted_by(|a, b| a >= b), "{bounds:?}");
                assert!(bounds[0] >= capacity && bounds[0] >= bounds[1]);
            }
        }
    }
}
