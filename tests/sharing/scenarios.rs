//! What happens in a run, by name.

use tollgate::base::clock::Nanos;
use tollgate::limit::{Algorithm, Scale, Sharing};

use super::faults::Fault;
use super::gateway::{Gateway, Rule};
use super::judge::Track;
use super::world::{Load, Net, SECOND, World};

const fn rule(
    scope: &'static str,
    sharing: Sharing,
    windows: &'static [(u32, u64)],
    keys: u64,
) -> Rule {
    Rule {
        scope,
        sharing,
        algorithm: Algorithm::SlidingLog,
        windows,
        keys,
    }
}

/// The limits of a run.
const RULES: [&[Rule]; 5] = [
    &[rule("ip", Sharing::Strict, &[(40, 2)], 2)],
    &[rule("user", Sharing::Leased, &[(400, 10)], 2)],
    &[
        rule("ip", Sharing::Strict, &[(60, 1)], 4),
        rule("user", Sharing::Leased, &[(600, 20)], 2),
    ],
    &[
        rule("ip", Sharing::Leased, &[(100, 10), (300, 60)], 2),
        rule("user", Sharing::Strict, &[(20, 1), (150, 20)], 2),
    ],
    &[rule("user", Sharing::Leased, &[(60, 1)], 1)],
];

/// Short windows and long ones: a store that learns is asked about the short ones first.
const SHORT_AND_LONG: [&[Rule]; 2] = [
    &[
        rule("ip", Sharing::Strict, &[(60, 2)], 2),
        rule("user", Sharing::Leased, &[(900, 60)], 2),
    ],
    &[
        rule("ip", Sharing::Leased, &[(300, 10)], 2),
        rule("user", Sharing::Strict, &[(900, 60)], 2),
    ],
];

const QUIET: Net = Net {
    lost: 0,
    doubled: 0,
    slow: 0,
};
const ROUGH: Net = Net {
    lost: 5_000,
    doubled: 5_000,
    slow: 10_000,
};

/// Connections break now and then, and many messages are slow.
const FRAIL: Net = Net {
    lost: 500,
    doubled: 500,
    slow: 20_000,
};

/// Runs with a seed.
pub type Scenario = fn(u64) -> World;

/// Runs one and gives back the world at its end.
pub fn run(name: &str, seed: u64) -> World {
    let scenario = ALL.iter().find(|(known, _)| *known == name);
    let (_, scenario) = scenario.unwrap_or_else(|| panic!("no scenario `{name}`"));
    let mut world = scenario(seed);
    if let Some(failed) = &world.failed {
        let replay = format!("SHARING={name}:{seed} cargo nextest run --test sharing one");
        panic!("{name}, seed {seed}: {failed}\n{replay}");
    }
    for track in world.tracks.iter().flatten() {
        assert!(
            track.admitted > 0,
            "{name}, seed {seed}: {} idle",
            track.name
        );
    }
    world.now += 1;
    world
}

/// See [`run`].
pub const ALL: &[(&str, Scenario)] = &[
    ("calm", calm),
    ("rough", rough),
    ("pauses", pauses),
    ("clock", clock),
    ("down", |seed| {
        outage(seed, QUIET, Fault::Down, Fault::Up(false))
    }),
    ("emptied", |seed| {
        outage(seed, QUIET, Fault::Down, Fault::Up(true))
    }),
    ("stopped", |seed| {
        outage(seed, QUIET, Fault::Stop, Fault::Go)
    }),
    ("stalls", |seed| stalls(seed, QUIET)),
    ("lossy stalls", |seed| stalls(seed, FRAIL)),
    ("failovers", failovers),
    ("relapse", relapse),
    ("newcomer", newcomer),
    ("cut", cut),
    ("chaos", chaos),
];

fn world(seed: u64, net: Net) -> World {
    world_of(seed, net, 1 + seed as usize % 8)
}

fn world_of(seed: u64, net: Net, gateways: usize) -> World {
    let rules = RULES[(seed / 8) as usize % RULES.len()];
    let loads = [
        Load {
            rate: 150.0,
            burst: 1,
        },
        Load {
            rate: 120.0,
            burst: 40,
        },
        Load {
            rate: 60.0,
            burst: 2,
        },
    ];
    World::new(seed, rules, gateways, net, loads[seed as usize % 3])
}

/// Runs on, with a look at whether all gateways share the store within `seconds`.
fn settles(world: &mut World, seconds: f64) {
    let until = world.now + (seconds * SECOND as f64) as u64;
    while world.now < until && world.failed.is_none() {
        world.run(0.1);
        let mut alive = world.gateways.iter().filter(|one| one.alive);
        if alive.all(Gateway::shared) {
            return;
        }
    }
    let standing = |one: &Gateway| one.decider.breaker.status();
    let each: Vec<_> = world.gateways.iter().map(standing).collect();
    world
        .failed
        .get_or_insert(format!("not shared after {seconds} s: {each:?}"));
}

/// Asserts that so many hundredths of each greedy key's limit are used, in windows as long as the store's: what
/// comes in bursts comes once in each, or a little later.
fn busy(world: &mut World, hundredths: usize) {
    let part = world.gateways[0].plan(0).store_limit().longest_window();
    let from = world.now;
    world.run(3.0 * part.0 as f64 / SECOND as f64);
    for track in &world.tracks[0] {
        let (quota, window) = track.windows[track.windows.len() - 1];
        let asked = world.load.rate * window as f64 / SECOND as f64;
        // Leases of a limit that is strict where nothing else is said.
        let small = world.rules[0].sharing == Sharing::Leased && quota < 100;
        if small || world.rules.len() > 1 || world.load.burst > 1 || asked < 2.0 * f64::from(quota)
        {
            continue;
        }
        let admitted = track.between(from, world.now);
        if admitted * 100 < 3 * quota as usize * hundredths {
            let low = format!("{}: {admitted} of 3 times {quota} admitted", track.name);
            world.failed.get_or_insert(low);
        }
    }
}

fn calm(seed: u64) -> World {
    let mut world = world(seed, QUIET);
    settles(&mut world, 3.0);
    world.run(30.0);
    busy(&mut world, 97);
    world
}

fn rough(seed: u64) -> World {
    let mut world = world(seed, ROUGH);
    settles(&mut world, 5.0);
    world.run(60.0);
    busy(&mut world, 70);
    world
}

/// Machines stand still for seconds, and processes die.
fn pauses(seed: u64) -> World {
    let mut world = world(seed, QUIET);
    settles(&mut world, 3.0);
    world.run(5.0);
    for _ in 0..12 {
        let gateway = world.draw.below(world.gateways.len() as u64) as usize;
        let ms = world.draw.below(4_000);
        let fault = match world.draw.below(3) {
            0 => Fault::Crash(gateway),
            _ => Fault::Pause(gateway, ms),
        };
        world.fault(0, fault);
        let seconds = world.draw.unit() * 6.0;
        world.run(seconds);
    }
    // A process that starts waits until one that has died is no longer listed, for ten seconds.
    settles(&mut world, 12.0);
    world
}

/// The store's clock jumps back.
fn clock(seed: u64) -> World {
    let mut world = world(seed, QUIET);
    settles(&mut world, 3.0);
    for _ in 0..4 {
        world.run(12.0);
        let back = world.draw.below(3_000) as i64;
        world.fault(0, Fault::Jump(-back));
    }
    world.run(20.0);
    world
}

/// All gateways lose the store at once, and find it again.
fn outage(seed: u64, net: Net, begins: Fault, ends: Fault) -> World {
    let mut world = world(seed, net);
    settles(&mut world, 3.0);
    world.run(20.0);
    for _ in 0..2 {
        world.fault(0, begins);
        let seconds = 0.5 + world.draw.unit() * 30.0;
        world.run(seconds);
        world.fault(0, ends);
        world.run(0.2);
        settles(&mut world, 5.0);
        world.run(25.0);
    }
    busy(&mut world, 90);
    world
}

/// Windows that nothing leaves, so that all that was counted can be held against all that was admitted.
const LONG: [&[Rule]; 3] = [
    &[rule("ip", Sharing::Strict, &[(4_000, 3_600)], 1)],
    &[rule("user", Sharing::Leased, &[(4_000, 3_600)], 1)],
    &[
        rule("ip", Sharing::Leased, &[(4_000, 3_600)], 1),
        rule("user", Sharing::Strict, &[(4_000, 3_600)], 1),
    ],
];

/// The store hangs, from 20 ms to 30 s, and executes what lies in its socket when it goes on. What it took for calls
/// that were given up counts no more, and what was admitted meanwhile counts once.
fn stalls(seed: u64, net: Net) -> World {
    let slack = if net.lost > 0 { 3 } else { 0 };
    hangs(seed, net, (slack, slack), |world| {
        let ms = [20, 50, 300, 1_500, 10_000, 30_000][world.draw.below(6) as usize];
        world.fault(0, Fault::Stop);
        world.fault(ms, Fault::Go);
        ms
    })
}

/// A master hangs and sentinels name another, before it goes on or when it has executed half of what lay in its socket.
/// What it took for calls that were given up is given back to the new one where that has it, and nowhere else. Units in
/// hand that the new one lacks are told to it, and count until they leave the window: each time an eighth at most.
fn failovers(seed: u64) -> World {
    hangs(seed, QUIET, (0, 50), |world| {
        let ms = 1_500 + world.draw.below(10_000);
        // What it does last is not copied.
        world.fault(0, Fault::Copy);
        let seconds = world.draw.unit() / 50.0;
        world.run(seconds);
        world.fault(0, Fault::Stop);
        match world.draw.below(2) {
            0 => world.fault(ms, Fault::Fork),
            _ => {
                let sooner = world.draw.below(ms);
                world.fault(sooner, Fault::Promote);
                world.fault(ms, Fault::Wake);
            }
        }
        ms
    })
}

/// Windows that nothing leaves, a store that hangs four times, and what is counted and admitted in the end. `hang` says
/// for how many ms it does. So many hundredths may count besides, of strict limits and of leased ones.
fn hangs(seed: u64, net: Net, slack: (u64, u64), hang: fn(&mut World) -> u64) -> World {
    let gateways = [1, 2, 3, 8][(seed / 3) as usize % 4];
    let burst = [1, 5, 40, 100][(seed / 5) as usize % 4];
    let load = Load { rate: 40.0, burst };
    let mut world = World::new(seed, LONG[seed as usize % 3], gateways, net, load);
    settles(&mut world, 5.0);
    world.run(5.0);
    for _ in 0..4 {
        let ms = hang(&mut world);
        world.run(ms as f64 / 1_000.0 + 0.2);
        settles(&mut world, 8.0);
        world.run(2.0);
    }
    let rate = std::mem::replace(&mut world.load.rate, 1e-6);
    // Leases end, and clients that wait come once more.
    world.run(40.0);
    counted(&mut world, slack);
    world.load.rate = rate * 10.0;
    for key in 0..world.rules[0].keys {
        world.come(key);
    }
    world.run(30.0);
    let used_up = |(rule, track): (&Rule, &Track)| {
        let least = match rule.sharing {
            Sharing::Leased => 100 - slack.1.max(3),
            Sharing::Strict | Sharing::Local => 97,
        };
        track.admitted * 100 >= u64::from(track.windows[0].0) * least
    };
    let each = world.rules.iter().zip(&world.tracks);
    let mut each = each.flat_map(|(rule, tracks)| tracks.iter().map(move |track| (rule, track)));
    if !each.all(used_up) {
        let low = |track: &Track| format!("{}: {} admitted", track.name, track.admitted);
        let low: Vec<_> = world.tracks.iter().flatten().map(low).collect();
        world.failed.get_or_insert(low.join(", "));
    }
    world
}

/// Asserts that the store counts what was admitted, or a few hundredths more of strict limits and of leased ones.
fn counted(world: &mut World, (strict, leased): (u64, u64)) {
    let time = world.store_time();
    for (rule, tracks) in world.tracks.iter().enumerate() {
        let hundredths = match world.rules[rule].sharing {
            Sharing::Leased => leased,
            Sharing::Strict | Sharing::Local => strict,
        };
        for (key, track) in tracks.iter().enumerate() {
            let one = &world.gateways[0];
            let name = one.name(rule, key as u64);
            let part = one
                .plan(rule)
                .call_part(name.key, Scale::plan(1), 0, Nanos::ZERO);
            let data = world.store.as_ref().ok();
            let used = data.map_or(0, |data| data.used(&part, time, &part.spec.windows[0]));
            let admitted = track.admitted.min(u64::from(track.windows[0].0));
            let used = u64::from(used);
            if used < admitted || (used - admitted) * 100 > admitted * hundredths {
                let wrong = format!("{}: {used} count, {admitted} were admitted", track.name);
                world.failed.get_or_insert(wrong);
            }
        }
    }
}

/// A gateway dies while the store is away, so that the others wait for long windows to pass; meanwhile the store
/// goes away again.
fn relapse(seed: u64) -> World {
    let gateways = 2 + seed as usize % 7;
    let rules = SHORT_AND_LONG[(seed / 8) as usize % 2];
    let load = Load {
        rate: 150.0,
        burst: 1 + seed % 3 * 20,
    };
    let mut world = World::new(seed, rules, gateways, QUIET, load);
    world.partial = true;
    settles(&mut world, 3.0);
    world.run(20.0);
    let short = rules[0].windows[0].1 as f64;
    for times in 0..3 {
        world.fault(0, Fault::Down);
        let seconds = 1.0 + world.draw.unit() * 10.0;
        world.run(seconds);
        world.gateways[0].alive &= times > 0;
        let empty = world.draw.below(2) == 0;
        world.fault(0, Fault::Up(empty));
        let seconds = (0.5 + world.draw.unit()) * 2.0 * short;
        world.run(seconds);
        if world.gateways.iter().any(Gateway::shared) {
            let soon = String::from("shared before the dead one's units have left");
            world.failed.get_or_insert(soon);
        }
    }
    settles(&mut world, 90.0);
    world.run(20.0);
    world
}

/// A gateway that nobody knew starts at the moment when the store comes back empty.
fn newcomer(seed: u64) -> World {
    let gateways = 2 + seed as usize % 7;
    let mut world = world_of(seed, QUIET, gateways);
    world.gateways[0].alive = false;
    settles(&mut world, 3.0);
    world.run(20.0);
    world.fault(0, Fault::Down);
    let seconds = 0.5 + world.draw.unit() * 10.0;
    world.run(seconds);
    world.fault(0, Fault::Crash(0));
    let ms = world.draw.below(100);
    world.fault(ms, Fault::Up(true));
    world.run(0.5);
    settles(&mut world, 5.0);
    world.run(25.0);
    world
}

/// Some gateways do not reach the store for a while.
fn cut(seed: u64) -> World {
    let mut world = world(seed, QUIET);
    settles(&mut world, 3.0);
    world.run(20.0);
    let some = world.draw.below(world.gateways.len() as u64) as usize;
    for gateway in 0..=some {
        world.fault(0, Fault::Cut(gateway));
    }
    let seconds = 2.0 + world.draw.unit() * 30.0;
    world.run(seconds);
    for gateway in 0..=some {
        world.fault(0, Fault::Heal(gateway));
    }
    world.run(0.2);
    settles(&mut world, 5.0);
    world.run(30.0);
    world
}

/// Anything, anytime; and when all is well again, all holds again.
fn chaos(seed: u64) -> World {
    let mut world = world(seed, ROUGH);
    settles(&mut world, 5.0);
    let longest = world.rules.iter().flat_map(|rule| rule.windows);
    let longest = longest.map(|(_, seconds)| *seconds).max().unwrap_or(1) as f64;
    for _ in 0..2 {
        // What holds meanwhile is what the other scenarios say; here it is what holds after.
        for track in world.tracks.iter_mut().flatten() {
            for window in 0..track.windows.len() {
                let until = world.now + ((60.0 + 6.0 * longest) * SECOND as f64) as u64;
                track.allow(window, world.now, until, 1 << 20);
            }
        }
        let mut seconds = 0.0;
        while seconds < 30.0 && world.failed.is_none() {
            let gateway = world.draw.below(world.gateways.len() as u64) as usize;
            let ms = world.draw.below(3_000);
            let empty = world.draw.below(2) == 0;
            let (one, other) = match world.draw.below(7) {
                0 => (Fault::Down, Fault::Up(empty)),
                1 => (Fault::Stop, Fault::Go),
                2 => (Fault::Copy, Fault::Switch),
                3 => (Fault::Cut(gateway), Fault::Heal(gateway)),
                4 => (Fault::Crash(gateway), Fault::Pause(gateway, ms)),
                5 => (
                    Fault::Jump(ms as i64 - 1_500),
                    Fault::Jump(1_500 - ms as i64),
                ),
                _ => (Fault::Pause(gateway, ms), Fault::Crash(gateway)),
            };
            world.fault(0, one);
            world.fault(ms, other);
            let pass = world.draw.unit() * 4.0;
            world.run(pass);
            seconds += pass;
        }
        world.run(4.0);
        // Of who died without the store nobody knows what it counted before that has left all windows.
        settles(&mut world, 15.0 + 3.0 * longest);
        world.run(60.0 + 6.0 * longest);
    }
    world
}
