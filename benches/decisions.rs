//! Decisions a second and bytes a key, beside the governor crate in the same run. Rounds are interleaved and medians
//! taken, so that ratios are comparable between machines where absolute figures are not.
//!
//! `cargo bench --bench decisions [-- --quick]`

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use governor::{Quota, RateLimiter};
use smallvec::SmallVec;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::limit::{Algorithm, Fingerprint, RateLimit, Scale, ThrottleMode};
use tollgate::store::{CellPlaces, LimitItem, LimitSlot, MemoryStore, Settings};

/// The threads that decide at the same time.
const THREADS: u64 = 2;

fn limit(rates: &str, algorithm: Algorithm) -> RateLimit {
    let windows = rates
        .split(',')
        .filter_map(|rate| rate.parse().ok())
        .collect();
    RateLimit {
        windows,
        algorithm,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 1,
    }
}

/// A number that looks random (SplitMix64).
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// A number below `bound`, drawn by a hash. A division would be charged to the engines.
fn below(bound: u64, hash: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}

fn fingerprint(n: u64) -> Fingerprint {
    Fingerprint(u128::from(mix(n)) << 64 | u128::from(mix(!n)))
}

/// A rate limiter that decides about numbered keys.
trait Engine: Sync {
    /// Whether the key is admitted. `places` is what [`Engine::look_ahead`] has found for the key, or empty.
    fn decide(&self, key: u64, places: &CellPlaces) -> bool;

    /// Finds the places of a key that comes [`LOOKAHEAD`] decisions later.
    fn look_ahead(&self, _key: u64, _places: &mut CellPlaces) {}
}

/// The decisions between finding the places of a key and deciding about it. A gateway has more time: it reads a request
/// in between.
const LOOKAHEAD: usize = 8;

/// tollgate's memory store.
struct MemoryEngine {
    memory: MemoryStore,
    limit: RateLimit,
    slot: LimitSlot,
    clock: Clock,
}

impl MemoryEngine {
    fn new(budget: usize, limit: RateLimit) -> Result<MemoryEngine, tollgate::store::Error> {
        let memory = MemoryStore::new(Settings {
            budget_bytes: budget,
        })?;
        let slot = memory.register("bench", &limit)?.slot();
        Ok(MemoryEngine {
            memory,
            limit,
            slot,
            clock: Clock::system(),
        })
    }

    fn item(&self, key: u64) -> LimitItem<'_> {
        LimitItem {
            limit: &self.limit,
            slot: self.slot,
            key: fingerprint(key),
            cost: 1,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: &[],
        }
    }

    /// The places where the store counts the item. Starts to load them into the processor's cache.
    fn places(&self, item: &LimitItem<'_>) -> CellPlaces {
        let (key, plan_factor) = (item.key, item.scale.plan_factor);
        let place = self
            .memory
            .cell_place(item.limit, item.slot, key, plan_factor);
        let prefetched = place.inspect(|place| self.memory.prefetch(place));
        prefetched.into_iter().collect()
    }

    fn take(&self, item: LimitItem<'_>, places: &CellPlaces, now: Nanos) -> bool {
        self.memory
            .take_at(&[item], places, now, &mut SmallVec::new())
    }
}

impl Engine for MemoryEngine {
    fn decide(&self, key: u64, places: &CellPlaces) -> bool {
        let item = self.item(key);
        if places.is_empty() {
            let places = self.places(&item);
            return self.take(item, &places, self.clock.now());
        }
        self.take(item, places, self.clock.now())
    }

    fn look_ahead(&self, key: u64, places: &mut CellPlaces) {
        *places = self.places(&self.item(key));
    }
}

type KeyedLimiter = governor::DefaultKeyedRateLimiter<u64>;

struct GovernorEngine(KeyedLimiter);

impl Engine for GovernorEngine {
    fn decide(&self, key: u64, _known: &CellPlaces) -> bool {
        self.0.check_key(&mix(key)).is_ok()
    }
}

fn governor() -> GovernorEngine {
    let hundred = NonZeroU32::MIN.saturating_add(99);
    GovernorEngine(RateLimiter::dashmap(Quota::per_minute(hundred)))
}

/// An engine that is measured.
struct Row {
    name: &'static str,
    engine: Box<dyn Engine>,
    /// Whether the engine may look ahead, as a connection does: the keys of its next request are those of the last one.
    knows_keys_ahead: bool,
}

impl Row {
    fn new(name: &'static str, engine: impl Engine + 'static) -> Row {
        Row {
            name,
            engine: Box::new(engine),
            knows_keys_ahead: false,
        }
    }

    /// Decides `turns` times on this thread. Returns how many decisions admit.
    fn run_thread(&self, turns: u64, key: impl Fn(u64) -> u64) -> usize {
        let engine = self.engine.as_ref();
        let mut places: [CellPlaces; LOOKAHEAD] = std::array::from_fn(|_| CellPlaces::default());
        let admitted = (0..turns).filter(|turn| {
            let places = &mut places[*turn as usize % LOOKAHEAD];
            let admits = engine.decide(key(*turn), places);
            if self.knows_keys_ahead {
                engine.look_ahead(key((turn + LOOKAHEAD as u64).min(turns - 1)), places);
            }
            admits
        });
        admitted.count()
    }

    /// Millions of decisions a second, of all threads. `keys` returns the key for a thread and a turn.
    fn speed(&self, turns: u64, keys: &(dyn Fn(u64, u64) -> u64 + Sync)) -> f64 {
        let clock = Clock::system();
        let start = clock.now();
        thread::scope(|scope| {
            for number in 0..THREADS {
                scope.spawn(move || {
                    std::hint::black_box(self.run_thread(turns, |turn| keys(number, turn)));
                });
            }
        });
        let spent = Duration::from(clock.now().since(start));
        (turns * THREADS) as f64 / spent.as_secs_f64() / 1e6
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

fn measured_limits() -> [(&'static str, RateLimit); 3] {
    let four = "2/s,5/m,10/h,100/d";
    [
        ("sliding-log 100/m", limit("100/m", Algorithm::SlidingLog)),
        (
            "sliding-log, four windows",
            limit(four, Algorithm::SlidingLog),
        ),
        ("gcra 100/m", gcra_limit()),
    ]
}

fn gcra_limit() -> RateLimit {
    limit("100/m", Algorithm::Gcra { burst: None })
}

/// The keys of `turns` decisions of each thread. The key of rank k comes a k-th as often as the first one.
fn draw_zipf(keys: u64, turns: u64) -> Vec<u32> {
    let sums: Vec<f64> = (1..=keys)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        })
        .collect();
    let total = sums.last().copied().unwrap_or(1.0);
    let draw = |turn| {
        let point = (mix(turn) >> 11) as f64 / (1_u64 << 53) as f64 * total;
        sums.partition_point(|sum| *sum < point) as u32
    };
    (0..THREADS * turns).map(draw).collect()
}

fn print_speeds(
    keys: u64,
    budget: usize,
    rounds: u64,
    turns: u64,
) -> Result<(), tollgate::store::Error> {
    let drawn = draw_zipf(keys, turns);
    let zipf = |number, turn, _| drawn[(number * turns + turn) as usize].into();
    let uniform =
        |number: u64, turn: u64, round: u64| below(keys, mix(turn ^ number << 40 ^ round << 48));
    type Draw<'a> = &'a (dyn Fn(u64, u64, u64) -> u64 + Sync);
    let draws: [(&str, Draw<'_>); 2] = [("uniform", &uniform), ("Zipf", &zipf)];
    for (distribution, draw) in draws {
        // Each distribution begins with empty engines.
        let mut rows = vec![Row::new("governor", governor())];
        for (name, limit) in measured_limits() {
            rows.push(Row::new(name, MemoryEngine::new(budget, limit)?));
        }
        rows.push(Row {
            knows_keys_ahead: true,
            ..Row::new(
                "gcra 100/m, key known ahead",
                MemoryEngine::new(budget, gcra_limit())?,
            )
        });
        for row in &rows {
            for key in 0..keys {
                row.engine.decide(key, &CellPlaces::default());
            }
        }
        let mut speeds: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
        for round in 0..rounds {
            for (row, speeds) in rows.iter().zip(&mut speeds) {
                speeds.push(row.speed(turns, &|number, turn| draw(number, turn, round)));
            }
        }
        let governor_speeds = speeds[0].clone();
        for (Row { name, .. }, speeds) in rows.iter().zip(speeds) {
            let pairs = speeds.iter().zip(&governor_speeds);
            let ratio = median(pairs.map(|(speed, governor)| speed / governor).collect());
            println!(
                "| {keys}, {distribution} | {name} | {:.1} | {ratio:.2} |",
                median(speeds)
            );
        }
    }
    Ok(())
}

fn print_contention(rounds: u64, turns: u64) -> Result<(), tollgate::store::Error> {
    println!(
        "\n| same 16 keys against distinct ones, 2 threads | M/s same | M/s distinct | ratio |"
    );
    println!("|---|---|---|---|");
    for (name, limit) in measured_limits() {
        let row = Row::new(name, MemoryEngine::new(128 << 20, limit)?);
        let (mut same, mut distinct) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            same.push(row.speed(turns, &|_, turn| turn % 16));
            distinct.push(row.speed(turns, &|number, turn| 1_000 * (1 + number) + turn % 16));
        }
        let (same, distinct) = (median(same), median(distinct));
        println!(
            "| {name} | {same:.1} | {distinct:.1} | {:.2} |",
            same / distinct
        );
    }
    Ok(())
}

fn print_sizes(users: u64) -> Result<(), tollgate::store::Error> {
    println!("\n| {users} users, 128 MiB budget | requests each | MB resident | bytes a key |");
    println!("|---|---|---|---|");
    let cases = [
        (
            "four windows",
            limit("2/s,5/m,10/h,100/d", Algorithm::SlidingLog),
            10,
        ),
        (
            "fixed-window 100/h",
            limit("100/h", Algorithm::FixedWindow),
            10,
        ),
        (
            "gcra 100/h",
            limit("100/h", Algorithm::Gcra { burst: None }),
            10,
        ),
    ];
    for (name, limit, requests) in cases {
        let before = resident_bytes();
        let engine = MemoryEngine::new(128 << 20, limit)?;
        let mut admitted = 0;
        for turn in 0..requests {
            // The requests are six minutes apart, so that every window but the day admits.
            let now = Nanos::from_secs(90_000 + 361 * turn);
            let is_admitted = |key: &u64| {
                let item = engine.item(*key);
                engine.take(item, &engine.places(&item), now)
            };
            admitted += (0..users).filter(is_admitted).count();
        }
        let grown = resident_bytes().saturating_sub(before) as f64;
        let usage = engine.memory.usage();
        assert_eq!(admitted as u64, users * requests);
        let (megabytes, per_key) = (grown / 1e6, grown / users as f64);
        println!("| {name} | {requests} | {megabytes:.1} | {per_key:.1} | <!-- {usage:?} -->");
    }
    Ok(())
}

fn main() -> Result<(), tollgate::store::Error> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let users = if quick { 100_000 } else { 1_000_000 };
    print_sizes(users)?;
    println!("\n| keys | engine, {THREADS} threads | M decisions/s | of governor |");
    println!("|---|---|---|---|");
    let (rounds, turns) = if quick { (3, 300_000) } else { (15, 500_000) };
    // A gateway has 256 MiB by default.
    print_speeds(users, 256 << 20, rounds, turns)?;
    if !quick {
        print_speeds(10_000_000, 1 << 30, rounds, turns)?;
    }
    print_contention(rounds, turns)
}
