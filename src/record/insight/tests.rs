//! Counts known traffic, and compares the lists of keys with it.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::heavy_keeper::HeavyKeeper;
use super::list_sum::ListSum;
use super::*;

/// Marsaglia's xorshift64*, for tests.
struct TestRandom(u64);

impl TestRandom {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn key(number: u64) -> LimitKey {
    LimitKey {
        limit: "per-ip".into(),
        key: format!("ip={number}"),
    }
}

/// A hash as the keyed ones are: without pattern.
fn hash(number: u64) -> u64 {
    let mut random = TestRandom(number + 1);
    random.next();
    random.next()
}

/// The counts to which a key is added, and the number of the key.
struct KeySink<'t>(&'t TopKeys, u64);

impl CountSink for KeySink<'_> {
    fn record(&self, hash: u64, decisions: u32, _: u32) {
        self.0.count(hash, decisions, || key(self.1));
    }
}

/// Counts keys with Zipf's frequencies by four workers, and compares the first 20. `spray_percent` of the events are of
/// keys that come once.
#[track_caller]
fn check(spray_percent: u64, seed: u64) {
    const EVENTS: u64 = 1_200_000;
    let mut random = TestRandom(seed);
    let top = TopKeys::new(seed);
    let workers: [RecentCounts<KeySink<'_>>; 4] = Default::default();
    let weights: Vec<f64> = (1..=2_000).map(|rank| 1.0 / f64::from(rank)).collect();
    let sums: Vec<f64> = weights
        .iter()
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let mut true_counts: HashMap<u64, u64> = HashMap::new();
    for event in 0..EVENTS {
        let number = if random.next() % 100 < spray_percent {
            1_000_000 + event
        } else {
            let point = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * sums[sums.len() - 1];
            sums.partition_point(|sum| *sum < point) as u64
        };
        *true_counts.entry(number).or_default() += 1;
        workers[event as usize % 4].count(hash(number), false, |_| true, || KeySink(&top, number));
        if event % 10_000 == 0 {
            workers.iter().for_each(RecentCounts::flush);
        }
    }
    workers.iter().for_each(RecentCounts::flush);
    let list = top.take_list(0);
    let mut heavy: Vec<(u64, u64)> = true_counts
        .iter()
        .map(|(key, count)| (*count, *key))
        .collect();
    heavy.sort_unstable_by(|a, b| b.cmp(a));
    let is_listed_within_5_percent = |(count, number): &&(u64, u64)| {
        let named = key(*number);
        let listed = list.keys.iter().find(|listed| listed.key == named);
        listed.is_some_and(|listed| listed.count.abs_diff(*count) * 20 <= *count)
    };
    let accurate_count = heavy[..20]
        .iter()
        .filter(is_listed_within_5_percent)
        .count();
    println!("{spray_percent} % spray, seed {seed}: {accurate_count} of 20 within 5 %");
    assert!(
        accurate_count >= 19,
        "{spray_percent} %: {accurate_count} of 20"
    );
    assert_eq!(list.total, EVENTS);
    let (distinct, true_distinct) = (list.distinct_count(), true_counts.len() as u64);
    let error_share = distinct.abs_diff(true_distinct) as f64 / true_distinct as f64;
    assert!(error_share < 0.1, "{distinct} of {true_distinct} keys");
    assert_eq!(top.list(0), KeyList::default());
}

#[test]
fn the_most_frequent_keys_are_found_among_keys_that_come_once() {
    for seed in [1, 2, 3, 4] {
        for spray in [0, 70, 95] {
            check(spray, seed);
        }
    }
}

#[test]
fn top_keys_take_at_most_128_kib() {
    // The two texts of a name are some 100 bytes in all.
    let names = top_keys::STRIPE_CANDIDATES * (16 + 24 * 2 + 100 + 16);
    let cells = heavy_keeper::ROW_COUNT * top_keys::ROW_CELLS * 8;
    let bytes = top_keys::STRIPE_COUNT * (cells + top_keys::STRIPE_REGISTERS + names);
    println!("{bytes} bytes");
    assert!(bytes <= 128 << 10, "{bytes}");
}

#[test]
fn lists_add_up() {
    let list = |counts: &[(u64, u64)]| {
        let insight = LiveInsight::default();
        for (number, count) in counts {
            for _ in 0..*count {
                insight.decided.count(hash(*number), 1, || key(*number));
            }
        }
        insight.decided.take_list(0)
    };
    let sum = |lists: &[KeyList]| {
        let mut sum = ListSum::default();
        lists.iter().for_each(|list| sum.add(list));
        sum.into_list(MAX_LISTED_KEYS)
    };
    let small_sum = sum(&[list(&[(1, 5), (2, 3)]), list(&[(2, 4), (3, 1)])]);
    let counts: Vec<_> = small_sum
        .keys
        .iter()
        .map(|listed| (&*listed.key.key, listed.count))
        .collect();
    assert_eq!(counts, [("ip=2", 7), ("ip=1", 5), ("ip=3", 1)]);
    assert_eq!((small_sum.total, small_sum.distinct_count()), (13, 3));
    let many: Vec<_> = (0..500).map(|number| (number, 1)).collect();
    let other: Vec<_> = (400..900).map(|number| (number, 1)).collect();
    assert_eq!(list(&many).keys.len(), MAX_LISTED_KEYS);
    let spray = sum(&[list(&many), list(&other)]);
    assert_eq!(spray.keys.len(), MAX_LISTED_KEYS);
    let distinct = spray.distinct_count();
    assert!((830..970).contains(&distinct), "{distinct}");
    let text = serde_json::to_string(&spray).unwrap();
    assert_eq!(serde_json::from_str::<KeyList>(&text).unwrap(), spray);
    assert!(
        serde_json::from_str::<KeyList>("{\"total\":1,\"keys\":[],\"distinct\":\"A\"}").is_err()
    );
}

#[test]
fn samples_are_few_and_of_every_class() {
    let sampler = Sampler::default();
    let at = |millis: u64| crate::base::clock::Nanos(millis * 1_000_000);
    let class = |rule_index| SampleClass {
        kind_number: 1,
        rule_index: Some(rule_index),
    };
    let takes = |class, millis| sampler.choose(class, at(millis));
    let taken = (0..100).filter(|_| takes(class(3), 5_000)).count();
    assert_eq!(taken, 2);
    assert!(takes(class(4), 5_500));
    assert!(takes(class(3), 6_000));
    let many = (0..100).filter(|limit| takes(class(*limit), 7_000)).count();
    assert_eq!(many, 24);
    assert!(!sampler.has_room(at(7_999)) && sampler.has_room(at(8_000)));
}

/// Returns the count of a key that takes the cells of another one. The other key was counted `before` times. The key is
/// counted 40 times, `times` at once. The result is the sum over 400 seeds.
fn count_after_decay(before: u32, times: u32) -> u64 {
    let seeds = 1..=400;
    let counts = seeds.map(|seed| {
        let mut keeper = HeavyKeeper::new(1, 2, hash(seed));
        keeper.count(hash(1), before, || "before");
        (0..40 / times).for_each(|_| keeper.count(hash(2), times, || "after"));
        let mut candidates = keeper.candidates().iter();
        let candidate = candidates.find(|candidate| candidate.name == "after");
        let count = candidate.map_or(0, |candidate| candidate.count);
        assert!(count <= 40, "{count}");
        count
    });
    counts.sum()
}

#[test]
fn counts_in_lumps_decay_others_as_single_counts_do() {
    assert_eq!(count_after_decay(0, 40), 400 * 40);
    for before in [1, 5, 15] {
        let (single, lumps) = (count_after_decay(before, 1), count_after_decay(before, 8));
        println!("{before}: {single} singly, {lumps} in lumps");
        assert!(single.abs_diff(lumps) * 25 < 400 * 40);
    }
    assert_eq!(count_after_decay(300, 40), 0);
}

#[test]
fn keys_under_another_secret_are_not_counted_twice() {
    let list = |seed: u64| {
        let top = TopKeys::new(7);
        for number in 0..500 {
            top.count(hash(number * 2 + seed), 1, || key(number));
        }
        top.take_list(seed)
    };
    let mut all = ListSum::default();
    all.add(&list(0));
    all.add(&list(0));
    let mut both = ListSum::default();
    let once = all.into_list(MAX_LISTED_KEYS);
    assert!(!once.is_lower_bound && once.distinct_count().abs_diff(500) < 50);
    both.add(&once);
    both.add(&list(1));
    let both = both.into_list(MAX_LISTED_KEYS);
    assert!(both.is_lower_bound && both.distinct_count().abs_diff(500) < 50);
    assert_eq!(both.total, 1_500);
    // Where there are few keys, all are listed.
    let few = |seed: u64| {
        let top = TopKeys::new(7);
        let keys = 40 * seed..40 * (seed + 1);
        keys.for_each(|number| top.count(hash(number), 1, || key(number)));
        top.take_list(seed)
    };
    let mut all = ListSum::default();
    [
        few(0),
        few(1),
        KeyList {
            seed: 2,
            ..KeyList::default()
        },
    ]
    .iter()
    .for_each(|list| all.add(list));
    let all = all.into_list(MAX_LISTED_KEYS);
    assert!(
        !all.is_lower_bound && all.distinct_count().abs_diff(80) < 5,
        "{}",
        all.distinct_count()
    );
    // Sums of the same keys, in which the processes come in another order, are the same keys again.
    let hour = |seeds: [u64; 2]| {
        let mut hour = ListSum::default();
        seeds.iter().for_each(|seed| hour.add(&few(*seed)));
        hour.into_list(10)
    };
    let mut day = ListSum::default();
    [hour([0, 1]), hour([1, 0])]
        .iter()
        .for_each(|hour| day.add(hour));
    let day = day.into_list(10);
    assert!(
        day.distinct_count().abs_diff(80) < 5,
        "{}",
        day.distinct_count()
    );
}

#[test]
fn a_minute_is_in_the_current_lists_or_in_the_stored_ones() {
    let insight = LiveInsight::default();
    insight.decided.count(hash(1), 1, || key(1));
    let stored = Mutex::new(Vec::new());
    let next = Minute { start: 60, seed: 0 };
    let minute_ends = std::cell::Cell::new(true);
    let read_stored = || -> Result<_, ()> {
        let totals = stored.lock().clone();
        // The minute ends just after the stored minutes were read.
        if minute_ends.replace(false) {
            insight.begin_minute(next, |_, lists| stored.lock().push(lists.decided.total));
        }
        Ok(totals)
    };
    let (minute, current, stored_totals) = insight.with_current(read_stored).unwrap();
    assert_eq!(
        (minute, current.decided.total, stored_totals),
        (60, 0, vec![1])
    );
}
