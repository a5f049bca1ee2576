//! What is decided, beside the arithmetic that stores in this process use.

use tollgate::base::clock::{Clock, Nanos, WallOffset};
use tollgate::limit::{
    Algorithm, Fingerprint, KeyState, LimitStanding, Rate, RateLimit, Scale, ThrottleMode,
};
use tollgate::store::shared::call::{CallPart, CounterName, GiveBack, StoreError};

use crate::server::Server;
use crate::site::{Gateway, block_on, clock, limit, minute, most_in, part, units, until};
use tollgate::store::Taking;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

const SECOND: u64 = 1_000_000_000;

/// Limits whose buckets are whole microseconds long, for the store counts those.
fn draw_limit(draw: &mut Draw, algorithm: Algorithm) -> RateLimit {
    let windows = [3, 6, 60, 90, 900, 3_600, 86_400, 60 * 86_400];
    let mut chosen: Vec<u64> = (0..draw.one_of(&[1, 1, 2, 3]))
        .map(|_| draw.one_of(&windows))
        .collect();
    chosen.sort_unstable();
    chosen.dedup();
    let mut quota = 0;
    let rates = chosen.into_iter().map(|window| {
        quota += 1 + draw.below(6) as u32;
        Rate::new(quota, Nanos::from_secs(window)).unwrap()
    });
    RateLimit {
        windows: rates.collect(),
        algorithm,
        throttle: match draw.below(3) {
            0 => ThrottleMode::Soft { percent: 50 },
            _ => ThrottleMode::Hard,
        },
        reserves: false,
        max_plan_factor: 1,
    }
}

/// How far a history moves on: not at all, a little, to the edge of a bucket or a window.
fn draw_step(draw: &mut Draw, limit: &RateLimit, now: Nanos) -> Nanos {
    let window = draw.one_of(&limit.windows).window().0;
    let of = draw.one_of(&[window / 60, window, SECOND, 60 * SECOND]);
    Nanos(match draw.below(6) {
        0 => 0,
        1 => draw.below(1_000_000) * 1_000,
        2 => draw.below(window / 1_000) * 1_000,
        3 => (now.0 / of + 1) * of - now.0 - 1_000,
        _ => (now.0 / of + 1) * of - now.0,
    })
}

async fn history(gateway: &Gateway, algorithm: Algorithm, seed: u64) {
    let mut draw = Draw(seed);
    let limit = draw_limit(&mut draw, algorithm);
    // A phase of whole microseconds.
    let key = Fingerprint(u128::from(draw.below(1 << 40) * 1_000) << 64 | u128::from(seed));
    let mut words = vec![0; limit.max_words()];
    let scale = Scale::plan(1);
    let mut asked = CallPart {
        name: CounterName { limit: 1, key },
        ..part(&limit, key.0)
    };
    for step in 0..40 {
        let now = gateway.clock.now();
        let cost = draw.one_of(&[1, 1, 1, 2, 3, 9]);
        (asked.cost, asked.wanted_units) = (cost, cost);
        let taking = draw.one_of(&[Taking::All, Taking::All, Taking::All, Taking::Nothing]);
        let mut cell = KeyState {
            limit: &limit,
            key,
            wall: WallOffset::default(),
            words: &mut words,
        };
        let mut expected = cell.assess(now, cost, scale);
        let takes = expected.standing.admits() && taking == Taking::All;
        let took = if takes { cost } else { 0 };
        if takes {
            cell.take_units(&expected, now, cost, scale);
        }
        cell.complete_finding(&mut expected, now, took, 1);
        let said = gateway
            .ask(taking, std::slice::from_ref(&asked))
            .await
            .unwrap();
        let answer = &said.counters[0];
        let place = format!("{algorithm:?} seed {seed} step {step} {limit:?}");
        assert_eq!(said.is_admitted, expected.standing.admits(), "{place}");
        assert_eq!(
            (
                answer.standing,
                answer.window_index,
                answer.remaining,
                answer.granted_units
            ),
            (expected.standing, expected.window, expected.remaining, took),
            "{place}"
        );
        assert_eq!(
            (answer.retry_after, answer.reset_after),
            (expected.wait, expected.reset),
            "{place}"
        );
        for index in 0..limit.windows.len() {
            assert_eq!(answer.used_units[index], cell.used(now, index), "{place}");
        }
        gateway.clock.advance(draw_step(&mut draw, &limit, now));
    }
}

#[test]
fn it_decides_as_cells_do() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        for algorithm in [
            Algorithm::SlidingWindow,
            Algorithm::MultiLevel,
            Algorithm::FixedWindow,
        ] {
            for seed in 0..150 {
                history(&gateway, algorithm, seed).await;
            }
        }
    });
}

#[test]
fn a_log_in_buckets_never_admits_too_much_and_nearly_all() {
    const WINDOW: u64 = 6_000_000;
    let server = Server::start();
    let logged = limit(Algorithm::SlidingLog, 60, Nanos(WINDOW * 1_000));
    block_on(async {
        for (seed, steady) in [(1, true), (2, false), (3, false)] {
            let gateway = Gateway::start(&[server.address], &clock(), 1).await;
            let mut draw = Draw(seed);
            let asked = part(&logged, u128::from(seed));
            let (mut stamps, mut at) = (Vec::new(), 0);
            while at < 10 * WINDOW {
                let said = gateway.decide(std::slice::from_ref(&asked)).await.unwrap();
                if said.is_admitted {
                    stamps.push(said.now_micros);
                }
                let step = if steady {
                    WINDOW / 60
                } else {
                    1 + draw.below(WINDOW / 60)
                };
                gateway.clock.advance(Nanos(step * 1_000));
                at += step;
            }
            let most = most_in(WINDOW, &mut stamps);
            assert!(most <= 60, "{most} in a window");
            let least = 10 * 60 * 60 / 61;
            assert!(
                stamps.len() >= least,
                "{} of {least}, steady: {steady}",
                stamps.len()
            );
            println!(
                "steady {steady}: {} of 600 in ten windows, {most} in one",
                stamps.len()
            );
        }
    });
}

#[test]
fn all_or_none() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let (wide, narrow) = (minute(5, 1), minute(2, 2));
        let both = [wide.clone(), narrow.clone()];
        for admitted in [true, true, false, false] {
            assert_eq!(gateway.decide(&both).await.unwrap().is_admitted, admitted);
        }
        assert_eq!(
            (gateway.used(&wide).await, gateway.used(&narrow).await),
            (2, 2)
        );
        let never = [wide.clone(), units(&narrow, 3, 3)];
        let said = gateway.decide(&never).await.unwrap();
        assert_eq!(said.counters[1].standing, LimitStanding::Unsatisfiable);
        assert_eq!(
            (said.is_admitted, said.counters[0].granted_units),
            (false, 0)
        );
        assert_eq!(gateway.used(&wide).await, 2);
    });
}

#[test]
fn what_is_wanted_is_granted_as_far_as_it_fits() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let asked = minute(10, 1);
        for (cost, want, took) in [(1, 4, 4), (2, 4, 4), (3, 9, 0), (1, 9, 2), (1, 9, 0)] {
            let said = gateway.decide(&[units(&asked, cost, want)]).await.unwrap();
            assert_eq!(
                (said.is_admitted, said.counters[0].granted_units),
                (took > 0, took),
                "{cost} {want}"
            );
        }
        assert_eq!(gateway.used(&asked).await, 10);
    });
}

#[test]
fn shadows_decide_alone() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let shadow = |quota, key| CallPart {
            is_shadow: true,
            ..minute(quota, key)
        };
        let parts = [minute(3, 1), shadow(1, 2), shadow(9, 3)];
        let mut admitted = Vec::new();
        for _ in 0..5 {
            admitted.push(gateway.decide(&parts).await.unwrap().is_admitted);
        }
        assert_eq!(admitted, [true, true, true, false, false]);
        let said = gateway.ask(Taking::Shadows, &parts).await.unwrap();
        assert!(!said.is_admitted);
        for (part, used) in parts.iter().zip([3, 1, 6]) {
            assert_eq!(gateway.used(part).await, used);
        }
    });
}

#[test]
fn networks_are_not_counted_and_arrival_times_refused() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let gcra = limit(Algorithm::Gcra { burst: None }, 1, Nanos::from_secs(60));
        let network = CallPart {
            key_part_index: Some(0),
            ..part(&gcra, 2)
        };
        let parts = [units(&minute(9, 1), 1, 4), network.clone()];
        for _ in 0..2 {
            let said = gateway.decide(&parts).await.unwrap();
            let network = &said.counters[1];
            assert_eq!(
                (said.is_admitted, network.standing, network.granted_units),
                (true, LimitStanding::Within, 4)
            );
        }
        let alone = CallPart {
            key_part_index: None,
            ..network
        };
        let said = gateway.decide(&[alone]).await;
        assert!(matches!(said, Err(StoreError::Other(_))), "{said:?}");
    });
}

#[test]
fn give_backs_free_the_bucket_that_was_charged() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let asked = minute(10, 1);
        let said = gateway.decide(&[units(&asked, 8, 8)]).await.unwrap();
        gateway.clock.advance(Nanos::from_secs(30));
        let back = CallPart {
            cost: 6,
            give_back: Some(GiveBack {
                granted_at_micros: said.counters[0].granted_at_micros,
                number: 1,
            }),
            ..asked.clone()
        };
        let answer = gateway.decide(std::slice::from_ref(&back)).await.unwrap();
        assert_eq!(answer.counters[0].used_units[0], 2);
        assert!(
            gateway
                .decide(&[units(&asked, 8, 8)])
                .await
                .unwrap()
                .is_admitted
        );
        // More than there is leaves nothing, and a bucket that is gone stays so.
        gateway.decide(&[back]).await.unwrap();
        assert_eq!(gateway.used(&asked).await, 8);
    });
}

#[test]
fn forgetting_deletes_all_that_counts() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &clock(), 1).await;
        let (asked, other) = (minute(10, 1), minute(10, 2));
        for _ in 0..5 {
            gateway
                .decide(&[asked.clone(), other.clone()])
                .await
                .unwrap();
            gateway.clock.advance(Nanos::from_secs(7));
        }
        assert_eq!(gateway.used(&asked).await, 5);
        assert_eq!(gateway.client.forget_counter(0, &asked).await, Ok(true));
        assert_eq!(gateway.client.forget_counter(0, &asked).await, Ok(false));
        assert_eq!(
            (gateway.used(&asked).await, gateway.used(&other).await),
            (0, 5)
        );
    });
}

#[test]
fn buckets_live_as_long_as_they_count() {
    let server = Server::start();
    block_on(async {
        let gateway = Gateway::start(&[server.address], &Clock::system(), 1).await;
        let asked = part(&limit(Algorithm::SlidingWindow, 5, Nanos::from_secs(1)), 1);
        gateway.decide(std::slice::from_ref(&asked)).await.unwrap();
        assert_eq!(gateway.used(&asked).await, 1);
        let clock = Clock::system();
        let began = clock.now();
        until(|| {
            // The mark, and the bucket.
            let items = server.items();
            let age = clock.now().since(began);
            assert!(
                items == 2 || age > Nanos::from_secs(1),
                "it lived for {age:?}"
            );
            items == 1
        })
        .await;
    });
}
