//! Snapshots of counts. As a file: what is damaged anywhere is no snapshot. As what is inside sound blocks:
//! whatever it says, reading it ends without a panic, and so does every decision after it; the
//! store stays within its budget.

#![no_main]

use libfuzzer_sys::fuzz_target;
use smallvec::SmallVec;
use tollgate::base::clock::Nanos;
use tollgate::limit::{Algorithm, Fingerprint, RateLimit, Scale, ThrottleMode};
use tollgate::store::snapshot::{encode_blocks, load_snapshot};
use tollgate::store::{LimitItem, MemoryStore, Settings};

fn limits() -> [RateLimit; 4] {
    let limit = |rates: &str, algorithm, throttle, reserves| RateLimit {
        windows: rates
            .split(',')
            .filter_map(|rate| rate.parse().ok())
            .collect(),
        algorithm,
        throttle,
        reserves,
        max_plan_factor: 2,
    };
    [
        limit("5/m", Algorithm::SlidingLog, ThrottleMode::Hard, true),
        limit(
            "5/s,9/h",
            Algorithm::MultiLevel,
            ThrottleMode::Elastic {
                at_most: 3,
                base: 1,
            },
            false,
        ),
        limit(
            "5/m",
            Algorithm::SlidingWindow,
            ThrottleMode::Soft { percent: 9 },
            false,
        ),
        limit(
            "5/m",
            Algorithm::Gcra { burst: None },
            ThrottleMode::Hard,
            false,
        ),
    ]
}

fuzz_target!(|data: &[u8]| {
    let Ok(memory) = MemoryStore::new(Settings {
        budget_bytes: Settings::MIN_BUDGET_BYTES,
    }) else {
        return;
    };
    let now = Nanos::from_secs(100_000);
    let limits = limits();
    let known: Vec<_> = (limits.iter().zip('a'..))
        .filter_map(|(limit, scope)| memory.register(&scope.to_string(), limit).ok())
        .collect();
    let file = encode_blocks(data);
    let _ = load_snapshot(&file[..], &memory, now);
    for (limit, registered) in limits.iter().zip(&known) {
        for key in 0..4 {
            let item = LimitItem {
                limit,
                slot: registered.slot(),
                key: Fingerprint(key << 64 | key),
                cost: 1,
                scale: Scale {
                    plan_factor: 1,
                    lent: 500,
                },
                is_shadow: false,
                parents: &[],
            };
            memory.take(&[item], now, &mut SmallVec::new());
        }
    }
    memory.evict_fresh_cells(now, usize::MAX);
    let usage = memory.usage();
    assert!(usage.used_bytes <= usage.budget_bytes, "{usage:?}");
    // The same bytes with one of them changed.
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let mut file = encode_blocks(rest);
    let at = usize::from(*first) * 7 % file.len();
    file[at] ^= 1;
    assert!(load_snapshot(&file[..], &memory, now).is_err());
});
