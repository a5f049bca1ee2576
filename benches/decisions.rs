//! Decisions a second and bytes a key, beside the governor crate in the same run: rounds are
//! interleaved and medians taken, so that ratios hold where absolute figures do not travel.
//!
//! `cargo bench --bench decisions [-- --quick]`

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use governor::{Quota, RateLimiter};
use smallvec::SmallVec;
use tollgate::base::clock::{Clock, Nanos};
use tollgate::limit::{Algorithm, Fingerprint, Limit, Scale, ThrottleMode};
use tollgate::store::{CellPlaces, Item, Memory, Settings, Slot};

const THREADS: u64 = 2;

fn limit(rates: &str, algorithm: Algorithm) -> Limit {
    let windows = rates
        .split(',')
        .filter_map(|rate| rate.parse().ok())
        .collect();
    Limit {
        windows,
        algorithm,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_multiply: 1,
    }
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// A number below `most`, drawn by a hash without a division, which the engines would be charged for.
fn below(most: u64, hash: u64) -> u64 {
    ((u128::from(hash) * u128::from(most)) >> 64) as u64
}

fn fingerprint(n: u64) -> Fingerprint {
    Fingerprint(u128::from(mix(n)) << 64 | u128::from(mix(!n)))
}

/// Something that decides about a numbered key.
trait Engine: Sync {
    /// `known` is what [`Engine::expect`] has said of the key, nothing if it was not asked.
    fn decide(&self, key: u64, known: &CellPlaces) -> bool;

    /// What is known of a key that comes `AHEAD` decisions later.
    fn expect(&self, _key: u64, _known: &mut CellPlaces) {}
}

/// Less than what a gateway has time for: it reads a request between the two.
const AHEAD: usize = 8;

struct Ours {
    memory: Memory,
    limit: Limit,
    slot: Slot,
    clock: Clock,
}

impl Ours {
    fn new(budget: usize, limit: Limit) -> Result<Ours, tollgate::store::Error> {
        let memory = Memory::new(Settings { budget })?;
        let slot = memory.register("bench", &limit)?.slot();
        Ok(Ours {
            memory,
            limit,
            slot,
            clock: Clock::system(),
        })
    }

    fn item(&self, key: u64) -> Item<'_> {
        Item {
            limit: &self.limit,
            slot: self.slot,
            key: fingerprint(key),
            cost: 1,
            scale: Scale::plan(1),
            shadow: false,
            parents: &[],
        }
    }

    /// Where the store counts it; starts to load that.
    fn places(&self, item: &Item<'_>) -> CellPlaces {
        let (key, multiply) = (item.key, item.scale.multiply);
        let place = self.memory.place(item.limit, item.slot, key, multiply);
        let prefetched = place.inspect(|place| self.memory.prefetch(place));
        prefetched.into_iter().collect()
    }

    fn at(&self, item: Item<'_>, places: &CellPlaces, now: Nanos) -> bool {
        self.memory
            .take_at(&[item], places, now, &mut SmallVec::new())
    }
}

impl Engine for Ours {
    fn decide(&self, key: u64, known: &CellPlaces) -> bool {
        let item = self.item(key);
        if known.is_empty() {
            let places = self.places(&item);
            return self.at(item, &places, self.clock.now());
        }
        self.at(item, known, self.clock.now())
    }

    fn expect(&self, key: u64, known: &mut CellPlaces) {
        *known = self.places(&self.item(key));
    }
}

type Keyed = governor::DefaultKeyedRateLimiter<u64>;

struct Governor(Keyed);

impl Engine for Governor {
    fn decide(&self, key: u64, _known: &CellPlaces) -> bool {
        self.0.check_key(&mix(key)).is_ok()
    }
}

fn governor() -> Governor {
    let hundred = NonZeroU32::MIN.saturating_add(99);
    Governor(RateLimiter::dashmap(Quota::per_minute(hundred)))
}

/// An engine, and whether it is told of keys before: as of a connection's next request, whose keys are those of the
/// last one.
struct Row {
    name: &'static str,
    engine: Box<dyn Engine>,
    ahead: bool,
}

impl Row {
    fn new(name: &'static str, engine: impl Engine + 'static) -> Row {
        Row {
            name,
            engine: Box::new(engine),
            ahead: false,
        }
    }

    /// What one thread asks; how much of it passes.
    fn ask(&self, turns: u64, key: impl Fn(u64) -> u64) -> usize {
        let engine = self.engine.as_ref();
        let mut known: [CellPlaces; AHEAD] = std::array::from_fn(|_| CellPlaces::default());
        let passed = (0..turns).filter(|turn| {
            let known = &mut known[*turn as usize % AHEAD];
            let passes = engine.decide(key(*turn), known);
            if self.ahead {
                engine.expect(key((turn + AHEAD as u64).min(turns - 1)), known);
            }
            passes
        });
        passed.count()
    }

    /// Millions of decisions a second; `keys` gives each thread its keys.
    fn speed(&self, turns: u64, keys: &(dyn Fn(u64, u64) -> u64 + Sync)) -> f64 {
        let clock = Clock::system();
        let start = clock.now();
        thread::scope(|scope| {
            for number in 0..THREADS {
                scope.spawn(move || {
                    std::hint::black_box(self.ask(turns, |turn| keys(number, turn)));
                });
            }
        });
        let spent = Duration::from(clock.now().since(start));
        (turns * THREADS) as f64 / spent.as_secs_f64() / 1e6
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok());
    pages.unwrap_or(0) * 4_096
}

fn windows() -> [(&'static str, Limit); 3] {
    let four = "2/s,5/m,10/h,100/d";
    [
        ("sliding-log 100/m", limit("100/m", Algorithm::SlidingLog)),
        (
            "sliding-log, four windows",
            limit(four, Algorithm::SlidingLog),
        ),
        ("gcra 100/m", gcra()),
    ]
}

fn gcra() -> Limit {
    limit("100/m", Algorithm::Gcra { burst: None })
}

/// What `turns` requests of each thread ask for, where the key of rank k comes a k-th as often as the first.
fn zipf(keys: u64, turns: u64) -> Vec<u32> {
    let sums: Vec<f64> = (1..=keys)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        })
        .collect();
    let all = sums.last().copied().unwrap_or(1.0);
    let draw = |turn| {
        let point = (mix(turn) >> 11) as f64 / (1_u64 << 53) as f64 * all;
        sums.partition_point(|sum| *sum < point) as u32
    };
    (0..THREADS * turns).map(draw).collect()
}

fn speeds(keys: u64, budget: usize, rounds: u64, turns: u64) -> Result<(), tollgate::store::Error> {
    let drawn = zipf(keys, turns);
    let zipf = |number, turn, _| drawn[(number * turns + turn) as usize].into();
    let uniform =
        |number: u64, turn: u64, round: u64| below(keys, mix(turn ^ number << 40 ^ round << 48));
    type Draw<'a> = &'a (dyn Fn(u64, u64, u64) -> u64 + Sync);
    let draws: [(&str, Draw<'_>); 2] = [("uniform", &uniform), ("Zipf", &zipf)];
    for (which, draw) in draws {
        // What one distribution has filled is not the next one's.
        let mut rows = vec![Row::new("governor", governor())];
        for (name, limit) in windows() {
            rows.push(Row::new(name, Ours::new(budget, limit)?));
        }
        rows.push(Row {
            ahead: true,
            ..Row::new("gcra 100/m, key known ahead", Ours::new(budget, gcra())?)
        });
        for row in &rows {
            for key in 0..keys {
                row.engine.decide(key, &CellPlaces::default());
            }
        }
        let mut found: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
        for round in 0..rounds {
            for (row, found) in rows.iter().zip(&mut found) {
                found.push(row.speed(turns, &|number, turn| draw(number, turn, round)));
            }
        }
        let peer = found[0].clone();
        for (Row { name, .. }, speeds) in rows.iter().zip(found) {
            let ratios = speeds.iter().zip(&peer).map(|(ours, peer)| ours / peer);
            let ratio = median(ratios.collect());
            println!(
                "| {keys}, {which} | {name} | {:.1} | {ratio:.2} |",
                median(speeds)
            );
        }
    }
    Ok(())
}

fn contention(rounds: u64, turns: u64) -> Result<(), tollgate::store::Error> {
    println!(
        "\n| same 16 keys against distinct ones, 2 threads | M/s same | M/s distinct | ratio |"
    );
    println!("|---|---|---|---|");
    for (name, limit) in windows() {
        let row = Row::new(name, Ours::new(128 << 20, limit)?);
        let (mut same, mut apart) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            same.push(row.speed(turns, &|_, turn| turn % 16));
            apart.push(row.speed(turns, &|number, turn| 1_000 * (1 + number) + turn % 16));
        }
        let (same, apart) = (median(same), median(apart));
        println!("| {name} | {same:.1} | {apart:.1} | {:.2} |", same / apart);
    }
    Ok(())
}

fn sizes(users: u64) -> Result<(), tollgate::store::Error> {
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
        let before = resident();
        let ours = Ours::new(128 << 20, limit)?;
        let mut passed = 0;
        for turn in 0..requests {
            // Six minutes apart, so that every window but the day admits.
            let now = Nanos::from_secs(90_000 + 361 * turn);
            let takes = |key: &u64| {
                let item = ours.item(*key);
                ours.at(item, &ours.places(&item), now)
            };
            passed += (0..users).filter(takes).count();
        }
        let grown = resident().saturating_sub(before) as f64;
        let usage = ours.memory.usage();
        assert_eq!(passed as u64, users * requests);
        let (mb, each) = (grown / 1e6, grown / users as f64);
        println!("| {name} | {requests} | {mb:.1} | {each:.1} | <!-- {usage:?} -->");
    }
    Ok(())
}

fn main() -> Result<(), tollgate::store::Error> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let users = if quick { 100_000 } else { 1_000_000 };
    sizes(users)?;
    println!("\n| keys | engine, {THREADS} threads | M decisions/s | of governor |");
    println!("|---|---|---|---|");
    let (rounds, turns) = if quick { (3, 300_000) } else { (15, 500_000) };
    // A gateway has 256 MiB unless told otherwise.
    speeds(users, 256 << 20, rounds, turns)?;
    if !quick {
        speeds(10_000_000, 1 << 30, rounds, turns)?;
    }
    contention(rounds, turns)
}
