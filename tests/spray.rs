//! Five million keys sprayed over a small budget: memory stays inside it, nothing is forgiven, and
//! honest keys hardly notice.

// A test that cannot be set up has failed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use smallvec::SmallVec;
use tollgate::base::clock::Nanos;
use tollgate::limit::{Algorithm, Fingerprint, RateLimit, Scale, ThrottleMode};
use tollgate::store::{LimitItem, LimitSlot, MemoryStore, ParentNetwork, Settings};

const BUDGET: usize = 64 << 20;
const SPRAYED: u64 = 5_000_000;
const START: Nanos = Nanos::from_secs(90_000);
/// The spray takes this long, well inside the window.
const STEP: u64 = 60_000_000_000 / SPRAYED;

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// A keyed hash of an address, as the identity layer makes it.
fn keyed(kind: u64, address: u64) -> Fingerprint {
    let high = mix(address ^ mix(kind));
    Fingerprint(u128::from(high) << 64 | u128::from(mix(high ^ 0x5bd1_e995)))
}

struct Spray {
    memory: MemoryStore,
    limit: RateLimit,
    slot: LimitSlot,
}

impl Spray {
    fn new() -> Spray {
        let limit = RateLimit {
            windows: vec!["100/h".parse().unwrap()],
            algorithm: Algorithm::SlidingLog,
            throttle: ThrottleMode::Hard,
            reserves: false,
            max_plan_factor: 1,
        };
        let memory = MemoryStore::new(Settings {
            budget_bytes: BUDGET,
        })
        .unwrap();
        let slot = memory.register("ip", &limit).unwrap().slot();
        Spray {
            memory,
            limit,
            slot,
        }
    }

    fn take(&self, key: Fingerprint, parents: &[ParentNetwork], now: Nanos) -> bool {
        let item = LimitItem {
            limit: &self.limit,
            slot: self.slot,
            key,
            cost: 1,
            scale: Scale::plan(1),
            is_shadow: false,
            parents,
        };
        self.memory.take(&[item], now, &mut SmallVec::new())
    }

    fn times(&self, key: Fingerprint, times: u32, now: Nanos) -> u32 {
        (0..times)
            .map(|_| u32::from(self.take(key, &[], now)))
            .sum()
    }
}

fn parents(network: u64) -> [ParentNetwork; 3] {
    [(8, 4), (16, 16), (32, 256)].map(|(bits, factor)| ParentNetwork {
        key: keyed(100 + bits, network >> bits),
        factor,
    })
}

#[test]
fn five_million_keys() {
    let before = resident();
    let spray = Spray::new();
    let honest = |n| keyed(1, n);
    let guilty = |n| keyed(2, n);
    let late = |n| keyed(3, n);
    for n in 0..5_000 {
        assert_eq!(spray.times(honest(n), 2, START), 2);
    }
    for n in 0..500 {
        assert_eq!(spray.times(guilty(n), 120, START), 100);
    }
    let mut now = START;
    for n in 0..SPRAYED {
        now = Nanos(START.0 + n * STEP);
        if n % 2 == 0 {
            spray.take(keyed(4, n), &[], now);
        } else {
            // Half of IPv6's space is a spray of networks, so parents are as many as keys.
            let network = mix(n);
            spray.take(keyed(6, network), &parents(network), now);
        }
    }
    let grown = resident().saturating_sub(before);
    let usage = spray.memory.usage();
    println!(
        "resident +{:.1} MiB, {usage:?}",
        grown as f64 / (1 << 20) as f64
    );
    assert!(usage.used_bytes <= BUDGET, "{usage:?}");
    assert!(grown <= BUDGET / 10 * 11, "{grown} bytes resident");
    assert!(usage.sketched_decisions > 1_000_000, "{usage:?}");

    let forgiven: u32 = (0..500).map(|n| spray.times(guilty(n), 3, now)).sum();
    assert_eq!(forgiven, 0, "what was over its limit still is");
    let old: u32 = (0..5_000).map(|n| 8 - spray.times(honest(n), 8, now)).sum();
    let new: u32 = (0..5_000).map(|n| 10 - spray.times(late(n), 10, now)).sum();
    println!("wrongly refused: {old} of 40000 old, {new} of 50000 new");
    assert!(old * 1_000 <= 40_000 * 5, "{old} requests of old keys");
    assert!(new * 1_000 <= 50_000 * 5, "{new} requests of new keys");
}
