//! Snapshots of a store that is in use while it is copied.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn entries_that_move_while_they_are_copied_are_not_lost() {
    let clock = Clock::manual(START);
    let limits = [RateLimit {
        algorithm: Algorithm::FixedWindow,
        ..RateLimit::hard("1/w".parse().unwrap())
    }];
    let before = TestStore::new(1 << 20, &limits);
    let (limit, slot) = &before.limits[0];
    let take = |subject: &TestStore, numbers: std::ops::Range<u64>| {
        let mut admitted = 0;
        for number in numbers {
            let item = LimitItem {
                limit,
                slot: *slot,
                key: key(number),
                cost: 1,
                scale: Scale::plan(1),
                is_shadow: false,
                parents: &[],
            };
            admitted += u64::from(subject.memory.take(&[item], START, &mut SmallVec::new()));
        }
        admitted
    };
    // So many that keys which come while the table is copied make others move.
    assert_eq!(take(&before, 0..9_000), 9_000);
    let more = |done: u32, of: u32| {
        take(&before, if done < of { 9_000..12_000 } else { 0..0 });
        true
    };
    let file = copy::write_snapshot(&before.memory, Vec::new(), 1, [0; 16], &clock, more).unwrap();
    let after = TestStore::new(1 << 20, &limits);
    load_snapshot(&file[..], &after.memory, START).unwrap();
    assert_eq!(take(&after, 0..9_000), 0);
}

#[test]
fn a_copy_lies_between_its_begin_and_its_end() {
    const KEYS: u64 = 300;
    let clock = Clock::manual(START);
    let limit = |rates: &str, algorithm| RateLimit {
        algorithm,
        ..RateLimit::hard(rates.parse().unwrap())
    };
    // Logs move to larger blocks all the time.
    let limits = [
        limit("20000/w", Algorithm::SlidingLog),
        limit("20000/w", Algorithm::FixedWindow),
    ];
    let before = TestStore::new(16 << 20, &limits);
    let remaining = |subject: &TestStore| -> Vec<u32> {
        let each = (0..KEYS).flat_map(|number| [(0, number), (1, number)]);
        let one = |(which, number)| {
            subject
                .peek(which, number, Scale::plan(1), START)
                .1
                .remaining
        };
        each.map(one).collect()
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (before, stop) = (&before, &stop);
            scope.spawn(move || {
                let mut dice = Dice(seed);
                while !stop.load(Ordering::Relaxed) {
                    let number = dice.below(KEYS);
                    let items = [0, 1].map(|which| {
                        let (limit, slot) = &before.limits[which];
                        LimitItem {
                            limit,
                            slot: *slot,
                            key: key(number),
                            cost: 1,
                            scale: Scale::plan(1),
                            is_shadow: false,
                            parents: &[],
                        }
                    });
                    before.memory.take(&items, START, &mut SmallVec::new());
                }
            });
        }
        for round in 0..20 {
            let at_most = remaining(&before);
            // Reloads meanwhile bring limits of other shapes and other quotas.
            let reload = |done: u32, _| {
                let quota = 20_000 + done + round;
                let edited = limit(&format!("{quota}/w"), Algorithm::SlidingLog);
                before.memory.register("scope0", &edited).unwrap();
                before.memory.register("scope0", &limits[0]).unwrap();
                let other = limit("5/m", Algorithm::MultiLevel);
                before
                    .memory
                    .register(&format!("{round}-{done}"), &other)
                    .unwrap();
                true
            };
            let file = copy::write_snapshot(&before.memory, Vec::new(), 1, [0; 16], &clock, reload);
            let at_least = remaining(&before);
            let after = TestStore::new(16 << 20, &limits);
            load_snapshot(&file.unwrap()[..], &after.memory, START).unwrap();
            let restored = remaining(&after);
            let bounds = at_least.iter().zip(&at_most);
            for ((least, most), restored) in bounds.zip(&restored) {
                assert!(
                    least <= restored && restored <= most,
                    "{least} {restored} {most}"
                );
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
