//! Clients that time their requests: the attacks that a limit's sentence admits reach its bound, so
//! that the sentence stays honest, and greedy clients get at least what it promises.

use tollgate::base::clock::Nanos;
use tollgate::limit::{Algorithm, LimitStanding, Rate, RateLimit, ThrottleMode};

use crate::draw::{BUCKETS, Draw, FIXED, GCRA, LEVELS, LOG, SECOND, histories};
use crate::subject::Subject;

const ATTACKS: u64 = 2_000;

fn limit(rate: &str, algorithm: Algorithm) -> RateLimit {
    let windows = vec![rate.parse().unwrap()];
    RateLimit {
        windows,
        algorithm,
        throttle: ThrottleMode::Hard,
        reserves: false,
        max_plan_factor: 1,
    }
}

fn subject(draw: &mut Draw, limit: RateLimit) -> Subject {
    let key = u128::from(draw.next()) << 64;
    let now = draw.within(86_400 * SECOND, 90 * 86_400 * SECOND);
    Subject::new(limit, key, now)
}

/// Takes all that there is at once.
fn take_all(subject: &mut Subject) -> u32 {
    let left = subject.eval(subject.now, 0, 1).remaining;
    if left > 0 {
        assert_eq!(subject.ask(left, 1).standing, LimitStanding::Within);
    }
    left
}

/// The most units in any window of real time.
fn worst(subject: &Subject, window: u64) -> u64 {
    let ends = subject.admitted.iter().map(|(time, _)| *time);
    ends.map(|end| subject.counted_between(end, window))
        .max()
        .unwrap_or(0)
}

const RATES: [&str; 6] = ["2/s", "5/m", "100/m", "7/90s", "1000/h", "100/d"];

#[test]
fn around_the_edge_of_a_fixed_window_twice_the_quota_passes() {
    for rate in RATES {
        histories(ATTACKS / 10, |draw| {
            let mut subject = subject(draw, limit(rate, FIXED));
            let rate = subject.limit.windows[0];
            let phase = (subject.key.0 >> 64) as u64 % rate.window().0;
            let edge = ((subject.now + phase) / rate.window().0 + 1) * rate.window().0 - phase;
            subject.now = edge - 1;
            take_all(&mut subject);
            subject.now = edge;
            take_all(&mut subject);
            let quota = u64::from(rate.quota());
            assert_eq!(worst(&subject, rate.window().0), 2 * quota, "{rate}");
        });
    }
}

#[test]
fn a_drained_and_watched_gcra_passes_its_bound() {
    for burst in [None, Some(1), Some(3)] {
        for rate in RATES {
            histories(ATTACKS / 400, |draw| {
                let mut subject = subject(draw, limit(rate, Algorithm::Gcra { burst }));
                let rate = subject.limit.windows[0];
                let (quota, window) = (rate.quota(), rate.window().0);
                for _ in 0..3 * quota {
                    take_all(&mut subject);
                    let wait = subject.eval(subject.now, 1, 1).wait;
                    subject.now += wait.0;
                }
                let interval = window.div_ceil(u64::from(quota));
                let most = u64::from(burst.unwrap_or(quota)) + window.div_ceil(interval) - 1;
                assert_eq!(worst(&subject, window), most, "{rate}");
            });
        }
    }
}

/// Full bursts on both sides of the edges of seconds, minutes, hours, days and bucket lengths: two
/// bursts pass where buckets are summed without the one that is leaving.
#[test]
fn bursts_timed_to_bucket_edges_gain_nothing() {
    for algorithm in [LOG, BUCKETS, LEVELS] {
        for rate in RATES {
            histories(ATTACKS / 10, |draw| {
                let mut subject = subject(draw, limit(rate, algorithm));
                let rate = subject.limit.windows[0];
                let window = rate.window().0;
                for bucket in [
                    SECOND,
                    60 * SECOND,
                    3_600 * SECOND,
                    window.div_ceil(60),
                    window,
                ] {
                    subject.now = (subject.now / bucket + 1) * bucket - draw.below(2);
                    take_all(&mut subject);
                    let back = draw.within(0, 2 * bucket).min(window);
                    subject.now += window - back;
                    take_all(&mut subject);
                }
                assert_eq!(worst(&subject, window), u64::from(rate.quota()), "{rate}");
            });
        }
    }
}

/// Asks for `cost` units whenever they pass for `windows` windows; what it got.
fn greedy(subject: &mut Subject, cost: u32, end: u64) -> u64 {
    while subject.now < end {
        let finding = subject.ask(cost, 1);
        if !finding.standing.admits() {
            subject.now += finding.wait.0;
        }
    }
    subject
        .admitted
        .iter()
        .map(|(_, units)| u64::from(*units))
        .sum()
}

/// How long a unit counts at most, as the sentence of the limit says.
fn holds(rate: Rate, algorithm: Algorithm) -> u64 {
    let window = rate.window().0;
    let levels = [SECOND, 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND];
    let bucket = match algorithm {
        Algorithm::SlidingWindow => window.div_ceil(60),
        Algorithm::MultiLevel => {
            let fits = |length: &u64| window.div_ceil(*length) <= 60;
            levels.into_iter().find(fits).unwrap_or(86_400 * SECOND)
        }
        // Two ticks.
        _ => return window + window / (1 << 28),
    };
    (window.div_ceil(bucket) + 1) * bucket
}

#[test]
fn greedy_clients_get_what_is_promised() {
    for algorithm in [LOG, BUCKETS, LEVELS, FIXED, GCRA] {
        for rate in RATES {
            histories(20, |draw| {
                let mut subject = subject(draw, limit(rate, algorithm));
                let rate = subject.limit.windows[0];
                let cost = draw.within(1, u64::from(rate.quota()).div_ceil(20)) as u32;
                let span = 10 * holds(rate, algorithm);
                let end = subject.now + span;
                let got = greedy(&mut subject, cost, end);
                // What is left of a quota that the cost does not divide is never asked for.
                let each = u64::from(rate.quota() / cost * cost);
                assert!(got >= 10 * each, "{algorithm:?} {rate}: {got}");
            });
        }
    }
}

#[test]
fn steady_clients_within_sixty_of_sixty_one_are_never_refused() {
    for rate in ["60/m", "120/m", "600/h", "1000/d"] {
        let mut draw = Draw::new(1);
        let mut subject = subject(&mut draw, limit(rate, BUCKETS));
        let rate = subject.limit.windows[0];
        let gap = (rate.window().0 * 61 / 60).div_ceil(u64::from(rate.quota()));
        for _ in 0..5 * rate.quota() {
            assert_eq!(subject.ask(1, 1).standing, LimitStanding::Within, "{rate}");
            subject.now += gap;
        }
    }
}

#[test]
fn the_largest_log_wraps_wherever_it_begins() {
    let mut draw = Draw::new(2);
    let rate = Rate::new(65_535, Nanos::from_secs(10)).unwrap();
    let mut limit = limit("1/s", LOG);
    limit.windows = vec![rate];
    limit.reserves = true;
    let mut subject = subject(&mut draw, limit);
    // A place may be larger than the state needs.
    subject.relocate(131_072);
    for _ in 0..200 {
        let cost = draw.within(1, 5_000) as u32;
        if subject.ask(cost, 1).standing.admits() {
            subject.settle(cost, cost, 1);
        }
        let used = u64::from(subject.used(subject.now, 0));
        assert_eq!(used, subject.logged(rate.window().0));
        subject.now += draw.below(SECOND);
    }
}
