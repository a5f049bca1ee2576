//! Many threads, few keys: never one request more than the limit, never one less.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use smallvec::SmallVec;
use tollgate::clock::Nanos;
use tollgate::limit::{Algorithm, Fingerprint, Limit, Throttle};
use tollgate::store::{Item, Memory, Settings, Slot};

const THREADS: u32 = 8;
const NOW: Nanos = Nanos::from_secs(90_000);

fn limit(rates: &str, algorithm: Algorithm) -> Limit {
    let windows = rates.split(',').map(|rate| rate.parse().unwrap()).collect();
    Limit {
        windows,
        algorithm,
        throttle: Throttle::Hard,
        reserves: false,
        max_multiply: 1,
    }
}

fn algorithms() -> [Algorithm; 5] {
    [
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::MultiLevel,
        Algorithm::FixedWindow,
        Algorithm::Gcra { burst: None },
    ]
}

fn item(limit: &Limit, slot: Slot, key: u128) -> Item<'_> {
    let key = Fingerprint(key.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    Item {
        limit,
        slot,
        key,
        cost: 1,
        multiply: 1,
        shadow: false,
        parents: &[],
    }
}

fn store() -> Arc<Memory> {
    Arc::new(Memory::new(Settings { budget: 8 << 20 }).unwrap())
}

/// Runs `work(thread, turn)` on all threads; how often it said yes.
fn count(turns: u32, work: impl Fn(u32, u32) -> bool + Sync) -> u32 {
    let yes = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (yes, work) = (&yes, &work);
            scope.spawn(move || {
                let mine = (0..turns).filter(|turn| work(number, *turn)).count();
                yes.fetch_add(mine as u32, Relaxed);
            });
        }
    });
    yes.into_inner()
}

fn passes(memory: &Memory, items: &[Item<'_>]) -> bool {
    memory.take(items, NOW, &mut SmallVec::new())
}

#[test]
fn admitted_is_the_limit_exactly() {
    for algorithm in algorithms() {
        let memory = store();
        let (ip, user) = (limit("1000/h", algorithm), limit("600/h", algorithm));
        let a = memory.register("ip", &ip).unwrap().slot();
        let b = memory.register("user", &user).unwrap().slot();
        // Two users behind one address: 1,000 of the 1,200 they could have.
        let pairs = [
            [item(&ip, a, 1), item(&user, b, 2)],
            [item(&user, b, 3), item(&ip, a, 1)],
        ];
        let done = count(500, |thread, turn| {
            passes(&memory, &pairs[((thread + turn) % 2) as usize])
        });
        assert_eq!(done, 1_000, "{algorithm:?}");
        // What the users have left is what the refusals did not take.
        let left = |key| {
            let one = [item(&user, b, key)];
            (0..700).filter(|_| passes(&memory, &one)).count()
        };
        assert_eq!(left(2) + left(3), 200, "{algorithm:?}");
    }
}

#[test]
fn refusals_leave_other_limits_untouched() {
    for algorithm in algorithms() {
        let memory = store();
        let (full, free) = (limit("1/h", algorithm), limit("500/h", algorithm));
        let a = memory.register("full", &full).unwrap().slot();
        let b = memory.register("free", &free).unwrap().slot();
        assert!(passes(&memory, &[item(&full, a, 1)]));
        let both = [item(&free, b, 2), item(&full, a, 1)];
        let mixed = count(400, |thread, turn| {
            if (thread + turn) % 2 == 0 {
                assert!(!passes(&memory, &both));
                false
            } else {
                passes(&memory, &both[..1])
            }
        });
        assert_eq!(mixed, 500, "{algorithm:?}");
    }
}

#[test]
fn reservations_never_pass_the_limit() {
    for algorithm in algorithms() {
        let memory = store();
        let limit = Limit {
            reserves: true,
            ..limit("200/h", algorithm)
        };
        let slot = memory.register("fails", &limit).unwrap().slot();
        let (open, most) = (AtomicU32::new(0), AtomicU32::new(0));
        let failed = count(2_000, |thread, turn| {
            let one = item(&limit, slot, 5);
            if !passes(&memory, &[one]) {
                return false;
            }
            most.fetch_max(open.fetch_add(1, Relaxed) + 1, Relaxed);
            let fails = (thread + turn) % 3 == 0;
            if !fails {
                open.fetch_sub(1, Relaxed);
            }
            memory.settle(&one, false, u32::from(fails), NOW);
            fails
        });
        assert_eq!(failed, 200, "{algorithm:?}");
        assert!(most.into_inner() <= 200, "{algorithm:?}");
        assert!(!passes(&memory, &[item(&limit, slot, 5)]));
    }
}
