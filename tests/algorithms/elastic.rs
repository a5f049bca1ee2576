//! Elastic limits while what is spare comes and goes: what is guaranteed is there at every moment, what is
//! lent keeps its pace, and both together stay below `at_most`.

use smallvec::SmallVec;
use tollgate::base::clock::Nanos;
use tollgate::limit::{Algorithm, Fingerprint, LimitStanding, RateLimit, Scale, ThrottleMode};
use tollgate::store::{LimitItem, MemoryStore, Settings};

use crate::draw::{Draw, SECOND};

const HISTORIES: u64 = 2_000;
const MILLI: u64 = SECOND / 1000;

/// When units were admitted.
#[derive(Default)]
struct History(Vec<u64>);

impl History {
    /// Those in the window that ends at `now`.
    fn count(&self, now: u64, window: u64) -> u32 {
        let inside = |at: &&u64| **at + window > now;
        self.0.iter().rev().take_while(inside).count() as u32
    }
}

struct Subject {
    limit: RateLimit,
    store: MemoryStore,
    scale: Scale,
    window: u64,
    base: u32,
    /// Units above the base that any window may see.
    most: u32,
}

impl Subject {
    fn new(
        algorithm: Algorithm,
        (quota, seconds, most): (u64, u64, u64),
        plan_factor: u32,
    ) -> Subject {
        let limit = RateLimit {
            windows: vec![format!("{quota}/{seconds}s").parse().unwrap()],
            algorithm,
            throttle: ThrottleMode::Elastic {
                at_most: most as u32,
                base: quota as u32,
            },
            reserves: false,
            max_plan_factor: 3,
        };
        Subject {
            limit,
            store: MemoryStore::new(Settings {
                budget_bytes: 1 << 20,
            })
            .unwrap(),
            scale: Scale::plan(plan_factor),
            window: seconds * SECOND,
            base: quota as u32 * plan_factor,
            most: (most - quota) as u32 * plan_factor,
        }
    }

    fn ask(&self, now: u64) -> LimitStanding {
        let registered = self.store.register("elastic", &self.limit).unwrap();
        let item = LimitItem {
            limit: &self.limit,
            slot: registered.slot(),
            key: Fingerprint(7),
            cost: 1,
            scale: self.scale,
            is_shadow: false,
            parents: &[],
        };
        let mut findings = SmallVec::new();
        let admits = self.store.take(&[item], Nanos(now), &mut findings);
        assert_eq!(admits, findings[0].standing.admits());
        findings[0].standing
    }
}

fn run(algorithm: Algorithm, seed: u64) {
    let mut draw = Draw::new(seed);
    let (quota, seconds) = (draw.within(1, 30), draw.within(1, 60));
    let at_most = quota + draw.below(4 * quota + 1);
    let shape = (quota, seconds, at_most);
    let mut subject = Subject::new(algorithm, shape, draw.within(1, 3) as u32);
    let (window, base) = (subject.window, subject.base);
    let (mut own, mut lent) = (History::default(), History::default());
    let mut now = 100_000 * SECOND;
    for _ in 0..300 {
        now += draw.below(2 * window / u64::from(base) / MILLI + 1) * MILLI;
        if draw.below(10) == 0 {
            subject.scale.lent = [0, 0, 500, 1700, u32::MAX][draw.below(5) as usize];
        }
        let standing = subject.ask(now);
        let before = own.count(now, window);
        let above = lent.count(now, window);
        let what =
            format!("seed {seed}: {standing:?} after {before} of {base}, {above} lent, at {now}");
        match standing {
            LimitStanding::Within => {
                assert!(before < base, "{what}");
                own.0.push(now);
            }
            LimitStanding::Over => {
                assert!(above < subject.most && subject.scale.lent > 0, "{what}");
                lent.0.push(now);
            }
            // A stamp may stay a little longer.
            _ if algorithm == Algorithm::SlidingLog => {
                assert!(own.count(now, window + MILLI) >= base, "{what}");
            }
            _ => {}
        }
    }
}

#[test]
fn what_is_guaranteed_and_what_is_lent() {
    let algorithms = [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::MultiLevel,
    ];
    for algorithm in algorithms {
        (0..HISTORIES).for_each(|seed| run(algorithm, seed));
    }
}

/// Who asks all the time gets what is lent to the unit, whatever the algorithm of what is guaranteed.
#[test]
fn greedy_keys_share_in_proportion() {
    let algorithms = [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
        Algorithm::Gcra { burst: Some(2) },
    ];
    for algorithm in algorithms {
        for (quota, lent) in [
            (10, 500),
            (100, 500),
            (1_000, 1_700),
            (10, 30),
            (10, u32::MAX),
        ] {
            let mut subject = Subject::new(algorithm, (quota, 10, 5 * quota), 1);
            subject.scale.lent = lent;
            let mut counts = [0_u32; 2];
            let windows = 20;
            for step in 0..windows * 10_000 {
                match subject.ask(100_000 * SECOND + step * MILLI) {
                    LimitStanding::Within => counts[0] += 1,
                    LimitStanding::Over => counts[1] += 1,
                    _ => {}
                }
            }
            let share = |units: u32| f64::from(units) / (windows * quota) as f64;
            let expected = f64::from(lent.min(4_000)) / 1000.0;
            let what = format!("{algorithm:?}, {quota} at {lent}: {counts:?}");
            assert!(share(counts[0]) >= 0.99, "{what}");
            // Fewer than two units are lent in a window, so that one is all that the highest pace adds.
            let (least, most) = (0.9 * expected, expected + 1.0 / quota as f64);
            assert!(
                (least..=most.max(1.01 * expected)).contains(&share(counts[1])),
                "{what}"
            );
        }
    }
}
