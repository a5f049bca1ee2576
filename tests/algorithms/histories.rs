//! Random and adversarial histories of each algorithm against the oracle.

use tollgate::limit::{Algorithm, LimitFinding, LimitStanding};

use crate::draw::{BUCKETS, FIXED, GCRA, HISTORIES, LEAKY, LEVELS, LOG, SECOND, histories};
use crate::subject::{Subject, check_finding, check_fresh, check_reset};

/// Drives histories of `algorithm`; `judge` sees each finding before it is taken and the subject
/// after.
fn drive(algorithm: Algorithm, judge: impl Fn(&Subject, &Asked)) {
    histories(HISTORIES, |draw| {
        let mut subject = Subject::drawn(draw, algorithm);
        let plan_factor = draw.within(1, u64::from(subject.limit.max_plan_factor)) as u32;
        let most = subject.most(plan_factor);
        let mut wait = tollgate::base::clock::Nanos::ZERO;
        for _ in 0..draw.within(10, 24) {
            let step = draw.step(subject.now, &subject.limit, wait);
            subject.now = subject.now.saturating_add(step);
            if draw.once_in(16) {
                // Another thread read the clock a moment earlier.
                subject.now -= draw.below(subject.limit.longest_window().0.min(subject.now));
            }
            if algorithm == FIXED && subject.now > 130 * 365 * 86_400 * SECOND {
                break;
            }
            let cost = draw.cost(most);
            let before = subject.eval(subject.now, cost, plan_factor);
            check_finding(&mut subject, cost, plan_factor, before);
            let words = subject.words.clone();
            subject.room = draw.once_in(4).then(|| draw.below(1 << 20) as usize);
            let rounded = standing(&subject, cost, plan_factor, |window| subject.logged(window));
            let latest = subject.latest();
            let exact = standing(&subject, cost, plan_factor, |window| {
                subject.counted(latest, window)
            });
            let finding = subject.ask(cost, plan_factor);
            assert_eq!(finding.standing, before.standing);
            if !finding.standing.admits() {
                assert_eq!(words, subject.words, "a refusal changes nothing");
            }
            judge(
                &subject,
                &Asked {
                    plan_factor,
                    before,
                    rounded,
                    exact,
                },
            );
            if draw.once_in(8) {
                let words = subject.words.clone();
                subject.ask(0, plan_factor);
                assert_eq!(words, subject.words, "nothing asked changes nothing");
            }
            check_reset(&mut subject, plan_factor, finding);
            if draw.once_in(4) {
                check_fresh(&mut subject);
            }
            wait = if finding.wait.0 > 0 {
                finding.wait
            } else {
                finding.reset
            };
        }
    });
}

/// One request, what the cell said, and what logs of all units say.
struct Asked {
    plan_factor: u32,
    before: LimitFinding,
    /// By stamps as coarse as those of the sliding log.
    rounded: LimitStanding,
    /// By the nanosecond.
    exact: LimitStanding,
}

/// What a log says of which `used` tells the units in a window.
fn standing(
    subject: &Subject,
    cost: u32,
    plan_factor: u32,
    used: impl Fn(u64) -> u64,
) -> LimitStanding {
    let each = subject.limit.windows.iter().map(|rate| {
        let used = used(rate.window().0) + u64::from(cost);
        if cost > subject.ceiling(rate, plan_factor) {
            LimitStanding::Unsatisfiable
        } else if used > u64::from(subject.ceiling(rate, plan_factor)) {
            LimitStanding::Refused
        } else if used > u64::from(subject.quota(rate, plan_factor)) {
            LimitStanding::Over
        } else {
            LimitStanding::Within
        }
    });
    each.max_by_key(|standing| strictness(*standing))
        .unwrap_or(LimitStanding::Within)
}

fn strictness(standing: LimitStanding) -> u8 {
    match standing {
        LimitStanding::Within => 0,
        LimitStanding::Over => 1,
        LimitStanding::Refused => 2,
        LimitStanding::Unsatisfiable => 3,
    }
}

/// No window of real time ever holds more than its ceiling.
fn never_above(subject: &Subject, asked: &Asked) {
    for rate in &subject.limit.windows {
        let counted = subject.counted(subject.latest(), rate.window().0);
        let ceiling = subject.ceiling(rate, asked.plan_factor);
        assert!(
            counted <= u64::from(ceiling),
            "{counted} of {ceiling} in {rate}"
        );
    }
}

#[test]
fn sliding_log_decides_as_the_oracle() {
    drive(LOG, |subject, asked| {
        assert_eq!(asked.before.standing, asked.rounded);
        never_above(subject, asked);
    });
}

#[test]
fn sliding_window_never_exceeds() {
    drive(BUCKETS, |subject, asked| {
        conservative(asked);
        never_above(subject, asked);
    });
}

#[test]
fn multi_level_never_exceeds() {
    drive(LEVELS, |subject, asked| {
        conservative(asked);
        never_above(subject, asked);
    });
}

/// Buckets may refuse what an exact log admits; what they admit the log admits, and what they admit
/// without a mark it admits without one. Neither calls impossible what the other does not.
fn conservative(asked: &Asked) {
    let (said, exact) = (asked.before.standing, asked.exact);
    assert!(
        strictness(said) >= strictness(exact),
        "{said:?} where a log says {exact:?}"
    );
    let impossible = exact == LimitStanding::Unsatisfiable;
    assert_eq!(said == LimitStanding::Unsatisfiable, impossible);
}

#[test]
fn fixed_window_holds_in_each_of_its_windows() {
    drive(FIXED, |subject, asked| {
        for rate in &subject.limit.windows {
            let window = rate.window().0;
            let ceiling = u64::from(subject.ceiling(rate, asked.plan_factor));
            let phase = (subject.key.0 >> 64) as u64 % window;
            let latest = subject.latest();
            let begun = latest.saturating_add(phase) % window + 1;
            let here = subject.counted(latest, begun);
            assert!(
                here <= ceiling,
                "{here} of {ceiling} in the window that stands"
            );
            let some = subject.counted(latest, window);
            assert!(some <= 2 * ceiling, "{some} of {ceiling} in some {rate}");
        }
    });
}

#[test]
fn gcra_holds_its_bound() {
    drive(GCRA, |subject, asked| {
        let Algorithm::Gcra { burst } = subject.limit.algorithm else {
            unreachable!()
        };
        for rate in &subject.limit.windows {
            let quota = subject.quota(rate, asked.plan_factor);
            let interval = rate.window().0.div_ceil(u64::from(quota));
            let burst = burst.map_or(quota, |burst| burst.saturating_mul(asked.plan_factor));
            let burst = subject.limit.throttle.ceiling(burst);
            let most = u64::from(burst) + rate.window().0.div_ceil(interval) - 1;
            let counted = subject.counted(subject.latest(), rate.window().0);
            assert!(counted <= most, "{counted} of {most} in {rate}");
        }
    });
}

#[test]
fn leaky_bucket_spaces_what_passes() {
    histories(HISTORIES, |draw| {
        let mut subject = Subject::drawn(draw, LEAKY);
        let Algorithm::LeakyBucket { max_delay } = subject.limit.algorithm else {
            unreachable!()
        };
        let plan_factor = draw.within(1, u64::from(subject.limit.max_plan_factor)) as u32;
        let most = subject.most(plan_factor);
        let mut next = vec![0_u64; subject.limit.windows.len()];
        let mut wait = tollgate::base::clock::Nanos::ZERO;
        for _ in 0..draw.within(10, 24) {
            let step = draw.step(subject.now, &subject.limit, wait);
            subject.now = subject.now.saturating_add(step);
            let cost = draw.cost(most);
            let before = subject.eval(subject.now, cost, plan_factor);
            check_finding(&mut subject, cost, plan_factor, before);
            let finding = subject.ask(cost, plan_factor);
            check_reset(&mut subject, plan_factor, finding);
            if draw.once_in(4) {
                check_fresh(&mut subject);
            }
            wait = if finding.wait.0 > 0 {
                finding.wait
            } else {
                finding.reset
            };
            let turn = next
                .iter()
                .map(|next| next.saturating_sub(subject.now))
                .max();
            let early = turn.unwrap_or(0);
            if finding.standing.admits() {
                assert_eq!(finding.delay.0, early, "held back to its turn");
                assert!(early <= max_delay.0, "held back for {early}");
                for (next, rate) in next.iter_mut().zip(&subject.limit.windows) {
                    let quota = subject.quota(rate, plan_factor);
                    let interval = rate.window().0.div_ceil(u64::from(quota));
                    let turn = (*next).max(subject.now);
                    *next = turn.saturating_add(interval.saturating_mul(u64::from(cost)));
                }
            } else if cost == 1 {
                assert!(early > max_delay.0, "refused what had to wait for {early}");
            }
        }
    });
}
