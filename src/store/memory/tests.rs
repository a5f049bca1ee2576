//! The store as a whole: no unit that counts is forgotten, and no limit changes another.

mod credits;
mod edited;
mod settling;
mod together;

use smallvec::SmallVec;

use super::cells::Cells;
use super::{Error, MemoryStore, Settings, bucket_layout};
use crate::base::clock::Nanos;
use crate::limit::{
    Algorithm, Fingerprint, LimitFinding, LimitStanding, RateLimit, Scale, ThrottleMode,
};
use crate::store::{LimitItem, LimitSlot, ParentNetwork, Taking};

const START: Nanos = Nanos::from_secs(100_000);

fn limit(rates: &str, algorithm: Algorithm) -> RateLimit {
    let windows = rates.split(',').map(|rate| rate.parse().unwrap()).collect();
    RateLimit {
        windows,
        algorithm,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 4,
    }
}

fn log_limit(rates: &str) -> RateLimit {
    limit(rates, Algorithm::SlidingLog)
}

fn all_algorithms() -> [RateLimit; 6] {
    [
        log_limit("5/m"),
        limit("5/m", Algorithm::SlidingWindow),
        limit("5/m", Algorithm::MultiLevel),
        limit("5/m", Algorithm::FixedWindow),
        limit("5/m", Algorithm::Gcra { burst: None }),
        limit(
            "5/m",
            Algorithm::LeakyBucket {
                max_delay: Nanos::from_secs(48),
            },
        ),
    ]
}

fn store(budget: usize) -> MemoryStore {
    MemoryStore::new(Settings {
        budget_bytes: budget,
    })
    .unwrap()
}

fn key(key_number: u128) -> Fingerprint {
    Fingerprint(
        key_number
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835),
    )
}

fn item(limit: &RateLimit, slot: LimitSlot, key_number: u128) -> LimitItem<'_> {
    LimitItem {
        limit,
        slot,
        key: key(key_number),
        cost: 1,
        scale: Scale::plan(1),
        is_shadow: false,
        parents: &[],
    }
}

fn take(
    memory: &MemoryStore,
    items: &[LimitItem<'_>],
    now: Nanos,
) -> (bool, SmallVec<[LimitFinding; 4]>) {
    let mut findings = SmallVec::new();
    let is_admitted = memory.take(items, now, &mut findings);
    assert_eq!(findings.len(), items.len());
    (is_admitted, findings)
}

/// The number of `tries` that are admitted.
fn admitted(memory: &MemoryStore, items: &[LimitItem<'_>], now: Nanos, tries: u32) -> u32 {
    (0..tries)
        .map(|_| u32::from(take(memory, items, now).0))
        .sum()
}

#[test]
fn a_table_two_thirds_full_needs_no_sketch() {
    let memory = store(4 << 20);
    let limit = limit("5/h", Algorithm::Gcra { burst: None });
    let slot = memory.register("all", &limit).unwrap().slot();
    let keys =
        (1 << 20) / bucket_layout::BUCKET_BYTES as u128 * bucket_layout::BUCKET_ENTRIES as u128 * 2
            / 3;
    for remaining in [4, 3, 2] {
        for number in 0..keys {
            let (is_admitted, findings) = take(&memory, &[item(&limit, slot, number)], START);
            assert!(
                is_admitted && findings[0].remaining == remaining,
                "{number}"
            );
        }
    }
    let usage = memory.usage();
    assert_eq!(
        (usage.key_count as u128, usage.sketched_decisions),
        (keys, 0)
    );
}

/// Fills the table with keys that stay.
fn fill(memory: &MemoryStore, now: Nanos) {
    crowd(memory, 16, now);
}

/// Counts keys under a limit of a week, so that they stay: on average `keys_per_bucket` for each bucket.
fn crowd(memory: &MemoryStore, keys_per_bucket: u128, now: Nanos) {
    let stay = limit("5/w", Algorithm::FixedWindow);
    let slot = memory.register("fill", &stay).unwrap().slot();
    for number in 0..u128::from(memory.cells.table.bucket_count()) * keys_per_bucket {
        take(memory, &[item(&stay, slot, number)], now);
    }
}

#[test]
fn counts_and_says_what_is_left() {
    for limit in all_algorithms() {
        let memory = store(1 << 20);
        let slot = memory.register("a", &limit).unwrap().slot();
        for left in (0..5).rev() {
            let (passed, findings) = take(&memory, &[item(&limit, slot, 1)], START);
            assert!(passed, "{limit:?}");
            assert_eq!(findings[0].remaining, left, "{limit:?}");
        }
        let (passed, findings) = take(&memory, &[item(&limit, slot, 1)], START);
        assert!(
            !passed && findings[0].standing == LimitStanding::Refused,
            "{limit:?}"
        );
        let later = START.after(findings[0].wait);
        let mut peeked = SmallVec::new();
        assert!(!memory.peek(&[item(&limit, slot, 1)], Nanos(later.0 - 1), &mut peeked));
        assert!(memory.peek(&[item(&limit, slot, 1)], later, &mut peeked));
        assert!(take(&memory, &[item(&limit, slot, 1)], later).0);
        assert!(
            take(&memory, &[item(&limit, slot, 2)], START).0,
            "other keys are apart"
        );
    }
}

#[test]
fn all_or_none() {
    let memory = store(1 << 20);
    let (wide, narrow) = (
        log_limit("10/m"),
        limit("3/m", Algorithm::Gcra { burst: None }),
    );
    let (wide_slot, narrow_slot) = (
        memory.register("a", &wide).unwrap().slot(),
        memory.register("b", &narrow).unwrap().slot(),
    );
    let both = [item(&wide, wide_slot, 1), item(&narrow, narrow_slot, 2)];
    assert_eq!(admitted(&memory, &both, START, 20), 3);
    assert_eq!(
        admitted(&memory, &both[..1], START, 20),
        7,
        "refusals took nothing"
    );
    let unknown = [item(&wide, wide_slot, 9), item(&narrow, narrow_slot, 2)];
    let keys = memory.usage().key_count;
    assert!(!take(&memory, &unknown, START).0);
    assert_eq!(memory.usage().key_count, keys, "a refusal leaves no cell");
}

#[test]
fn shadows_decide_for_themselves() {
    let memory = store(1 << 20);
    let (live, trial) = (log_limit("4/m"), log_limit("2/m"));
    let (live_slot, trial_slot) = (
        memory.register("a", &live).unwrap().slot(),
        memory.register("b", &trial).unwrap().slot(),
    );
    let shadow = LimitItem {
        is_shadow: true,
        ..item(&trial, trial_slot, 1)
    };
    let items = [item(&live, live_slot, 1), shadow];
    let seen: Vec<(bool, bool)> = (0..5)
        .map(|_| take(&memory, &items, START))
        .map(|(passed, findings)| (passed, findings[1].standing.admits()))
        .collect();
    assert_eq!(
        seen,
        [
            (true, true),
            (true, true),
            (true, false),
            (true, false),
            (false, false)
        ]
    );
    let spare = LimitItem {
        key: key(7),
        ..shadow
    };
    assert!(!take(&memory, &[items[0], spare], START).0);
    assert_eq!(
        admitted(&memory, &[item(&trial, trial_slot, 7)], START, 9),
        1,
        "it took for itself"
    );
}

#[test]
fn a_key_twice_sees_itself() {
    for limit in all_algorithms() {
        let memory = store(1 << 20);
        let slot = memory.register("a", &limit).unwrap().slot();
        let twice = [item(&limit, slot, 1), item(&limit, slot, 1)];
        let (_, findings) = take(&memory, &twice, START);
        assert_eq!(
            (findings[0].remaining, findings[1].remaining),
            (4, 3),
            "{limit:?}"
        );
        assert_eq!(admitted(&memory, &twice, START, 9), 1, "{limit:?}");
        assert_eq!(admitted(&memory, &twice[..1], START, 9), 1, "{limit:?}");
    }
}

#[test]
fn networks_have_budgets_too() {
    let memory = store(1 << 20);
    let limit = log_limit("5/m");
    let slot = memory.register("a", &limit).unwrap().slot();
    let parents = [
        ParentNetwork {
            key: key(900),
            factor: 2,
        },
        ParentNetwork {
            key: key(901),
            factor: 3,
        },
    ];
    let from_key = |number| LimitItem {
        parents: &parents,
        ..item(&limit, slot, number)
    };
    assert_eq!(admitted(&memory, &[from_key(1)], START, 9), 5);
    assert_eq!(admitted(&memory, &[from_key(2)], START, 9), 5);
    let (passed, findings) = take(&memory, &[from_key(3)], START);
    assert!(!passed && findings[0].standing == LimitStanding::Refused);
    let later = START.after(findings[0].wait);
    assert_eq!(findings[0].wait, Nanos::from_secs(6), "a tenth of a minute");
    assert!(!take(&memory, &[from_key(3)], Nanos(later.0 - 1)).0);
    assert!(take(&memory, &[from_key(3)], later).0);
    let far = LimitItem {
        parents: &parents[1..],
        ..item(&limit, slot, 4)
    };
    assert_eq!(
        admitted(&memory, &[far], START, 9),
        4,
        "refused requests charge no network"
    );
}

#[test]
fn a_network_never_refuses_its_only_client() {
    let soft = RateLimit {
        throttle: ThrottleMode::Soft { percent: 500 },
        ..log_limit("10/m")
    };
    let burst = limit("10/m", Algorithm::Gcra { burst: Some(100) });
    let parents = [ParentNetwork {
        key: key(900),
        factor: 4,
    }];
    for (limit, most) in [(soft, 60), (burst, 100)] {
        let memory = store(1 << 20);
        let slot = memory.register("a", &limit).unwrap().slot();
        let from_key = |number| LimitItem {
            parents: &parents,
            ..item(&limit, slot, number)
        };
        for number in 0..4 {
            assert_eq!(
                admitted(&memory, &[from_key(number)], START, 200),
                most,
                "{limit:?}"
            );
        }
        assert_eq!(
            admitted(&memory, &[from_key(4)], START, 200),
            0,
            "{limit:?}"
        );
    }
}

#[test]
fn a_log_keeps_its_stamps_when_windows_change() {
    let memory = store(1 << 20);
    let (before, after) = (log_limit("10/s,600/h"), log_limit("600/h"));
    let old = memory.register("a", &before).unwrap().slot();
    let at = |minutes: u64| START.after(Nanos::from_secs(minutes * 60));
    for minute in 0..50 {
        let done = admitted(&memory, &[item(&before, old, 1)], at(minute), 10);
        assert_eq!(done, 10);
    }
    let new = memory.register("a", &after).unwrap().slot();
    let one = [item(&after, new, 1)];
    assert_eq!(admitted(&memory, &one, at(50), 900), 100, "500 count");
    assert_eq!(admitted(&memory, &one, at(59), 900), 0);
    // The first ten leave when their hour is over, not an hour after the reload.
    let soon = |minutes: u64| at(minutes).after(Nanos::from_secs(1));
    assert_eq!(admitted(&memory, &one, soon(60), 900), 10);
    assert_eq!(admitted(&memory, &one, soon(63), 900), 30);
    // Back: what was taken this second counts in the short window too.
    let back = [item(&before, old, 1)];
    assert_eq!(admitted(&memory, &back, soon(63), 900), 0);
}

#[test]
fn slots_last_through_any_number_of_reloads() {
    let memory = store(1 << 20);
    let stay = limit("5/w", Algorithm::FixedWindow);
    let first = memory.register("stay", &stay).unwrap();
    let one = [item(&stay, first.slot(), 1)];
    assert_eq!(admitted(&memory, &one, START, 3), 3);
    drop(first);
    for reload in 0..200 {
        let rate = crate::limit::Rate::new(5, Nanos::from_secs(reload + 1)).unwrap();
        for route in 0..400 {
            let scope = format!("route{route}");
            assert!(memory.register(&scope, &RateLimit::hard(rate)).is_ok());
        }
    }
    let other = limit("5/w", Algorithm::Gcra { burst: None });
    let slot = memory.register("stay", &other).unwrap().slot();
    let one = [item(&other, slot, 1)];
    assert_eq!(admitted(&memory, &one, START, 9), 2, "its count is kept");
}

#[test]
fn reset_forgets_one_key() {
    let memory = store(1 << 20);
    let limit = log_limit("5/m");
    let slot = memory.register("a", &limit).unwrap().slot();
    assert!(!memory.forget_key(slot, key(1)));
    assert_eq!(admitted(&memory, &[item(&limit, slot, 1)], START, 9), 5);
    assert_eq!(admitted(&memory, &[item(&limit, slot, 2)], START, 9), 5);
    assert!(memory.forget_key(slot, key(1)));
    assert_eq!(admitted(&memory, &[item(&limit, slot, 1)], START, 9), 5);
    assert_eq!(admitted(&memory, &[item(&limit, slot, 2)], START, 9), 0);
}

#[test]
fn eviction_never_frees_an_exhausted_key() {
    for limit in all_algorithms() {
        let memory = store(1 << 20);
        let slot = memory.register("a", &limit).unwrap().slot();
        for number in 0..50 {
            assert_eq!(
                admitted(&memory, &[item(&limit, slot, number)], START, 9),
                5,
                "{limit:?}"
            );
        }
        fill(&memory, START);
        assert!(memory.usage().sketched_decisions > 0);
        memory.evict_fresh_cells(START, usize::MAX);
        for number in 0..50 {
            assert_eq!(
                admitted(&memory, &[item(&limit, slot, number)], START, 9),
                0,
                "{limit:?}"
            );
        }
        let usage = memory.usage();
        assert!(usage.used_bytes <= usage.budget_bytes, "{usage:?}");
    }
}

#[test]
fn sketched_keys_are_held_to_their_limit() {
    for limit in all_algorithms() {
        let memory = store(1 << 20);
        let slot = memory.register("a", &limit).unwrap().slot();
        fill(&memory, START);
        for number in 0..200 {
            let most = admitted(&memory, &[item(&limit, slot, number)], START, 9);
            assert!((1..=5).contains(&most), "{limit:?}: {most}");
        }
        // The table empties, the keys get cells: what the sketch counted still counts.
        let soon = Nanos(START.0 + 1_000_000_000);
        memory.evict_fresh_cells(START.after(Nanos::from_secs(3 * 7 * 86_400)), usize::MAX);
        assert_eq!(memory.usage().key_count, 0);
        for number in 0..200 {
            let more = admitted(&memory, &[item(&limit, slot, number)], soon, 9);
            assert!(more <= 1, "{limit:?}: {more}");
        }
    }
}

#[test]
fn exhausted_arena_forgives_nothing() {
    let memory = store(1 << 20);
    let big = log_limit("1000/d");
    let slot = memory.register("a", &big).unwrap().slot();
    let many = |number, cost| LimitItem {
        cost,
        ..item(&big, slot, number)
    };
    let mut spent = Vec::new();
    for number in 0..400 {
        // Some cells exist when the arena runs dry, some never come to be.
        spent.push(u32::from(take(&memory, &[many(number, 1)], START).0));
    }
    for (number, units) in spent.iter_mut().enumerate() {
        for cost in [400, 300, 200, 100, 50] {
            if take(&memory, &[many(number as u128, cost)], START).0 {
                *units += cost;
            }
        }
    }
    assert!(spent.iter().all(|units| *units <= 1_000));
    assert!(memory.usage().sketched_decisions > 0);
    assert!(memory.usage().used_bytes <= memory.usage().budget_bytes);
    let later = START.after(Nanos::from_secs(3 * 86_400));
    assert!(take(&memory, &[many(7, 900)], later).0, "all of it passes");
}

#[test]
fn sweeping_frees_what_is_fresh() {
    let memory = store(1 << 20);
    let limits = all_algorithms();
    for (number, limit) in limits.iter().enumerate() {
        let slot = memory
            .register(&format!("s{number}"), limit)
            .unwrap()
            .slot();
        for number in 0..100 {
            take(&memory, &[item(limit, slot, number)], START);
        }
    }
    assert_eq!(memory.evict_fresh_cells(START, usize::MAX), 0);
    assert_eq!(memory.usage().key_count, 600);
    assert_eq!(
        memory.evict_fresh_cells(START.after(Nanos::from_secs(200)), usize::MAX),
        600
    );
    assert_eq!(memory.usage().key_count, 0);
}

#[test]
fn sweeping_touches_no_memory_that_was_never_used() {
    const BUDGET: usize = 256 << 20;
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    };
    let memory = store(BUDGET);
    let before = resident();
    memory.evict_fresh_cells(START, usize::MAX);
    let grown = resident().saturating_sub(before);
    assert!(grown < BUDGET / 16, "{grown} bytes");
}

#[test]
fn unknown_slots_and_small_budgets() {
    for budget in [1_000, Settings::MAX_BUDGET_BYTES + 1] {
        let refused = MemoryStore::new(Settings {
            budget_bytes: budget,
        });
        assert!(matches!(refused, Err(Error::Budget)), "{budget}");
    }
    let memory = store(1 << 20);
    let limit = log_limit("5/m");
    assert!(!take(&memory, &[item(&limit, LimitSlot(77), 1)], START).0);
}
