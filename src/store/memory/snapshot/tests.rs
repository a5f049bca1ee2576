//! A snapshot at a random moment, loaded into another store: its findings are those of the store that went on.

mod busy;
mod credits;
mod files;

use proptest::prelude::*;
use smallvec::SmallVec;

use super::super::MemoryStore;
use super::records::{RecordWriter, SnapshotEnd, SnapshotHead};
use super::saved_counts::check_snapshot;
use super::*;
use crate::base::clock::{Clock, Nanos};
use crate::limit::{
    Algorithm, Alignment, Calendar, CalendarUnit, Fingerprint, LimitFinding, LimitGrant, Rate,
    RateLimit, RuleLimit, Scale, ThrottleMode,
};
use crate::store::{self, LimitItem, LimitSlot, ParentNetwork};

const START: Nanos = Nanos::from_secs(100_000);
const KEYS: u64 = 40;

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        let Dice(state) = self;
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % end
    }

    fn choose<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    fn limit(&mut self) -> RateLimit {
        if self.below(8) == 0 {
            let grant = LimitGrant { times: 1, add: 9 };
            let credits = RuleLimit::from(RateLimit::of_credits(self.below(2) == 0));
            return credits.granted(grant).unwrap().rate().unwrap().clone();
        }
        let rates = self.choose(&["5/m", "3/s", "900/h", "4/s,30/m", "5/m,20/h,100/d", "70/w"]);
        let algorithm = self.choose(&[
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::MultiLevel,
            Algorithm::FixedWindow,
            Algorithm::Gcra { burst: None },
            Algorithm::Gcra { burst: Some(9) },
            Algorithm::LeakyBucket {
                max_delay: Nanos::from_secs(20),
            },
        ]);
        let mut windows: Vec<Rate> = rates.split(',').map(|rate| rate.parse().unwrap()).collect();
        if algorithm == Algorithm::FixedWindow {
            let alignment = self.below(3);
            let units = [CalendarUnit::Day, CalendarUnit::Month, CalendarUnit::Year];
            for (rate, unit) in windows.iter_mut().zip(units) {
                let calendar = Calendar::new(unit.usual_period(), "Europe/Berlin").unwrap();
                *rate = match alignment {
                    0 => *rate,
                    1 => rate.aligned(Alignment::Clock),
                    _ => Rate::of_calendar(rate.quota(), calendar).unwrap(),
                };
            }
        }
        RateLimit {
            windows,
            algorithm,
            throttle: self.choose(&[
                ThrottleMode::Hard,
                ThrottleMode::Soft { percent: 50 },
                ThrottleMode::Elastic {
                    at_most: 3,
                    base: 1,
                },
            ]),
            reserves: self.below(4) == 0,
            max_plan_factor: 4,
        }
    }
}

fn key(number: u64) -> Fingerprint {
    let spread = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Fingerprint(spread)
}

fn parents(number: u64) -> [ParentNetwork; 2] {
    [(1_000 + number / 4, 4), (2_000 + number / 16, 16)].map(|(key, factor)| ParentNetwork {
        key: self::key(key),
        factor,
    })
}

/// A store and the limits that it knows.
struct TestStore {
    memory: MemoryStore,
    limits: Vec<(RateLimit, LimitSlot)>,
}

impl TestStore {
    fn new(budget: usize, limits: &[RateLimit]) -> TestStore {
        let memory = MemoryStore::new(store::Settings {
            budget_bytes: budget,
        })
        .unwrap();
        let register = |(number, limit): (usize, &RateLimit)| {
            let registered = memory.register(&format!("scope{number}"), limit).unwrap();
            (limit.clone(), registered.slot())
        };
        let limits = limits.iter().enumerate().map(register).collect();
        TestStore { memory, limits }
    }

    fn peek(&self, which: usize, number: u64, scale: Scale, now: Nanos) -> (bool, LimitFinding) {
        let (limit, slot) = &self.limits[which];
        let mut findings = SmallVec::new();
        let item = LimitItem {
            limit,
            slot: *slot,
            key: key(number),
            cost: 1,
            scale,
            is_shadow: false,
            parents: &parents(number),
        };
        let admits = self.memory.peek(&[item], now, &mut findings);
        (admits, findings[0])
    }

    /// One request of a random key, with one limit or two.
    fn request(&self, dice: &mut Dice, now: Nanos) {
        let number = dice.below(KEYS);
        let parents = parents(number);
        let mut items: SmallVec<[LimitItem<'_>; 2]> = SmallVec::new();
        for _ in 0..=dice.below(2) {
            let (limit, slot) = &self.limits[dice.below(self.limits.len() as u64) as usize];
            items.push(LimitItem {
                limit,
                slot: *slot,
                key: key(number),
                cost: 1 + dice.below(3) as u32,
                scale: Scale {
                    plan_factor: 1 + dice.below(4) as u32,
                    lent: dice.below(3) as u32 * 500,
                },
                is_shadow: dice.below(8) == 0,
                parents: if dice.below(3) == 0 { &parents } else { &[] },
            });
        }
        let mut findings: SmallVec<[LimitFinding; 4]> = SmallVec::new();
        let admitted = self.memory.take(&items, now, &mut findings);
        for (item, finding) in items.iter().zip(&findings) {
            let taken = finding.standing.admits() && (admitted || item.is_shadow);
            if taken && item.limit.reserves && !item.limit.is_lent(finding) {
                let used = dice.below(u64::from(item.cost) + 2) as u32;
                self.memory.settle(item, finding.sketched, used, now);
            }
        }
    }

    fn snapshot(&self, clock: &Clock) -> Vec<u8> {
        let all = |_, _| true;
        copy::write_snapshot(&self.memory, Vec::new(), 7, [9; 16], clock, all).unwrap()
    }
}

/// Some limits, and a store in which they have counted for a while.
fn make_used_store(dice: &mut Dice, budget: usize, clock: &Clock) -> (Vec<RateLimit>, TestStore) {
    let limits: Vec<RateLimit> = (0..=dice.below(4)).map(|_| dice.limit()).collect();
    let subject = TestStore::new(budget, &limits);
    for _ in 0..dice.below(600) {
        let span = dice.choose(&[0, 1_000, 70_000_000, 3_000_000_000, 400_000_000_000]);
        clock.advance(Nanos(dice.below(span + 1)));
        subject.request(dice, clock.now());
    }
    (limits, subject)
}

/// Fills the table of a small store with keys that stay.
fn fill(subject: &TestStore, now: Nanos) -> u64 {
    let stay = RateLimit {
        algorithm: Algorithm::FixedWindow,
        ..RateLimit::hard("5/w".parse().unwrap())
    };
    let slot = subject.memory.register("fill", &stay).unwrap().slot();
    let many = u64::from(subject.memory.cells.table.bucket_count()) * 9;
    for number in 0..many {
        let item = LimitItem {
            limit: &stay,
            slot,
            key: key(number),
            cost: 1,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: &[],
        };
        subject.memory.take(&[item], now, &mut SmallVec::new());
    }
    many
}

/// Peeks at all keys in both stores, now and later. Fresh cells are evicted first, because the loaded store has none of
/// them: where the sketch decides, `sketched` would differ.
fn check_same_findings(
    dice: &mut Dice,
    clock: &Clock,
    limits: &[RateLimit],
    both: [&TestStore; 2],
) {
    for _ in 0..3 {
        let now = clock.now();
        both.iter().for_each(|subject| {
            subject.memory.evict_fresh_cells(now, usize::MAX);
        });
        for (which, limit) in limits.iter().enumerate() {
            for number in 0..KEYS {
                let scale = Scale {
                    plan_factor: 1 + dice.below(4) as u32,
                    lent: dice.below(3) as u32 * 500,
                };
                let [one, other] = both.map(|subject| {
                    let (admits, finding) = subject.peek(which, number, scale, now);
                    let fresh = finding.remaining == finding.quota || finding.reset == Nanos(0);
                    let sketched = finding.sketched && !fresh;
                    (
                        admits,
                        LimitFinding {
                            sketched,
                            ..finding
                        },
                    )
                });
                assert_eq!(one, other, "{limit:?} of {number} at {now:?}");
            }
        }
        clock.advance(Nanos(dice.below(90_000_000_000)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn what_is_restored_reads_as_what_went_on(seed: u64, full: bool) {
        let mut dice = Dice(seed);
        let clock = Clock::manual(START);
        let (limits, before) = make_used_store(&mut dice, 1 << 20, &clock);
        if full && seed.is_multiple_of(4) {
            fill(&before, clock.now());
            for _ in 0..200 {
                before.request(&mut dice, clock.now());
            }
        }
        let file = before.snapshot(&clock);
        let after = TestStore::new(1 << 20, &limits);
        let stay = RateLimit {
            algorithm: Algorithm::FixedWindow,
            ..RateLimit::hard("5/w".parse().unwrap())
        };
        let _fill = after.memory.register("fill", &stay).unwrap();
        let loaded = load_snapshot(&file[..], &after.memory, clock.now()).unwrap();
        prop_assert_eq!((loaded.sketched_count, loaded.dropped_count), (0, 0));
        check_same_findings(&mut dice, &clock, &limits, [&before, &after]);
    }

    #[test]
    fn another_budget_forgives_nothing(seed: u64, budget in 20u32..23, other in 20u32..23, third: bool) {
        let mut dice = Dice(seed);
        let clock = Clock::manual(START);
        let (limits, before) = make_used_store(&mut dice, 1 << budget, &clock);
        let other = (1 << other) + if third { 333_333 } else { 0 };
        let after = TestStore::new(other, &limits);
        load_snapshot(&before.snapshot(&clock)[..], &after.memory, clock.now()).unwrap();
        check_same_findings(&mut dice, &clock, &limits, [&before, &after]);
    }

    #[test]
    fn what_makes_no_sense_is_no_panic(seed: u64) {
        let mut dice = Dice(seed);
        let clock = Clock::manual(START);
        let (limits, before) = make_used_store(&mut dice, 1 << 20, &clock);
        let mut content = content_of(&before.snapshot(&clock));
        for _ in 0..=dice.below(3) {
            let at = dice.below(content.len() as u64) as usize;
            content[at] = dice.below(256) as u8;
        }
        let after = TestStore::new(1 << 20, &limits);
        let _ = load_snapshot(&encode_blocks(&content)[..], &after.memory, clock.now());
        for _ in 0..50 {
            after.request(&mut dice, clock.now());
        }
        check_same_findings(&mut dice, &clock, &limits, [&after, &after]);
    }
}

/// The content of all blocks of a snapshot.
fn content_of(file: &[u8]) -> Vec<u8> {
    let mut reader = blocks::BlockReader::new(file).unwrap();
    let mut content = Vec::new();
    while !reader.is_at_end().unwrap() {
        content.push(reader.read_u8().unwrap());
    }
    content
}

#[test]
fn whatever_is_damaged_is_seen() {
    let clock = Clock::manual(START);
    let limits = [RateLimit::hard("900/h".parse().unwrap())];
    let subject = TestStore::new(1 << 20, &limits);
    let mut dice = Dice(1);
    fill(&subject, START);
    for _ in 0..400 {
        subject.request(&mut dice, START);
    }
    let good = subject.snapshot(&clock);
    assert!(good.len() > 3 * 65_536, "{}", good.len());
    assert!(check_snapshot(&good[..]).is_ok());
    let mut bad = good.clone();
    let near = (0..60)
        .chain(65_530..65_580)
        .chain(good.len() - 60..good.len());
    let places: Vec<usize> = near
        .chain((0..200).map(|_| dice.below(good.len() as u64) as usize))
        .collect();
    for at in places {
        bad[at] ^= 1 << dice.below(8);
        assert!(check_snapshot(&bad[..]).is_err(), "byte {at}");
        bad[at] = good[at];
        assert!(check_snapshot(&good[..at]).is_err(), "cut at {at}");
    }
    assert!(check_snapshot(&[&good[..], b"x"].concat()[..]).is_err());
    // A block in the place of another.
    let block = 65_536;
    bad.copy_within(20 + block..20 + 2 * block, 20);
    assert!(check_snapshot(&bad[..]).is_err());
}

#[test]
fn a_full_store_goes_into_a_smaller_one_and_forgives_nothing() {
    let clock = Clock::manual(START);
    let limits = [RateLimit {
        algorithm: Algorithm::SlidingLog,
        ..RateLimit::hard("5/h".parse().unwrap())
    }];
    let before = TestStore::new(4 << 20, &limits);
    let many = 20_000;
    let request = |subject: &TestStore, number| {
        let (limit, slot) = &subject.limits[0];
        let item = LimitItem {
            limit,
            slot: *slot,
            key: key(number),
            cost: 5,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: &[],
        };
        let admitted = subject.memory.take(&[item], START, &mut SmallVec::new());
        u64::from(admitted)
    };
    let admitted: u64 = (0..many).map(|number| request(&before, number)).sum();
    assert_eq!(admitted, many);
    let after = TestStore::new(1 << 20, &limits);
    let loaded = load_snapshot(&before.snapshot(&clock)[..], &after.memory, START).unwrap();
    assert_eq!(loaded.key_count as u64, many);
    assert!(loaded.sketched_count > 1_000, "{loaded:?}");
    let again: u64 = (0..many).map(|number| request(&after, number)).sum();
    assert_eq!(again, 0);
    let usage = after.memory.usage();
    assert!(usage.used_bytes <= usage.budget_bytes, "{usage:?}");
}

/// A forged size of the saved table does not put an entry into half of a large table.
#[test]
fn a_table_that_is_said_to_be_small() {
    let clock = Clock::manual(START);
    let limits = [RateLimit::hard("900/h".parse().unwrap())];
    let small = |bucket_count| {
        let head = SnapshotHead {
            number: 7,
            secret: [9; 16],
            bucket_count,
        };
        let end = SnapshotEnd {
            now: START,
            wall: START,
        };
        RecordWriter::new(Vec::new(), head)
            .unwrap()
            .finish(end)
            .unwrap()
    };
    assert!(check_snapshot(&small(2)[..]).is_err());
    assert!(check_snapshot(&small(2_047)[..]).is_err());
    assert!(check_snapshot(&small(2_048)[..]).is_ok());
    let before = TestStore::new(1 << 20, &limits);
    let mut dice = Dice(1);
    for _ in 0..100 {
        before.request(&mut dice, START);
    }
    let saved = before.snapshot(&clock);
    for (budget, copied) in [(256 << 20, true), (512 << 20, false)] {
        let after = TestStore::new(budget, &limits);
        let loaded = load_snapshot(&saved[..], &after.memory, START).unwrap();
        assert!(loaded.key_count > 10, "{loaded:?}");
        assert_eq!(loaded.sketched_count == 0, copied, "{loaded:?}");
        for number in 0..KEYS {
            let [was, is] = [&before, &after].map(|subject| {
                let (_, finding) = subject.peek(0, number, Scale::plan(4), START);
                finding.remaining
            });
            assert!(is <= was, "{number}: {is} of {was}");
        }
    }
}

#[test]
fn another_shape_is_converted_and_what_nobody_has_is_dropped() {
    let clock = Clock::manual(START);
    let log = RateLimit::hard("100/h".parse().unwrap());
    let before = TestStore::new(1 << 20, &[log.clone(), log.clone()]);
    let mut dice = Dice(3);
    for _ in 0..2_000 {
        before.request(&mut dice, START);
    }
    let gcra = RateLimit {
        algorithm: Algorithm::Gcra { burst: None },
        ..log.clone()
    };
    let after = TestStore::new(1 << 20, &[gcra]);
    let loaded = load_snapshot(&before.snapshot(&clock)[..], &after.memory, START).unwrap();
    assert!(loaded.dropped_count > 0, "{loaded:?}");
    for number in 0..KEYS {
        let scale = Scale::plan(1);
        let [one, other] = [&before, &after].map(|s| s.peek(0, number, scale, START));
        assert_eq!(one.1.remaining, other.1.remaining, "{number}");
    }
}

#[test]
fn reservations_of_a_process_that_is_gone_are_used() {
    let clock = Clock::manual(START);
    for algorithm in [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::FixedWindow,
    ] {
        let limits = [RateLimit {
            algorithm,
            reserves: true,
            ..RateLimit::hard("5/m".parse().unwrap())
        }];
        let before = TestStore::new(1 << 20, &limits);
        let item = LimitItem {
            limit: &limits[0],
            slot: before.limits[0].1,
            key: key(1),
            cost: 3,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: &[],
        };
        assert!(before.memory.take(&[item], START, &mut SmallVec::new()));
        let after = TestStore::new(1 << 20, &limits);
        load_snapshot(&before.snapshot(&clock)[..], &after.memory, START).unwrap();
        let peek =
            |seconds| after.peek(0, 1, Scale::plan(1), START.after(Nanos::from_secs(seconds)));
        assert_eq!(peek(0).1.remaining, 2, "{algorithm:?}");
        assert_eq!(peek(121).1.remaining, 5, "{algorithm:?}");
    }
}
