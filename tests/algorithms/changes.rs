//! Limits that change under a key: other quotas and plans on the same state, other shapes by
//! conversion. Nothing that was used is forgiven.

use tollgate::base::clock::{Nanos, WallOffset};
use tollgate::limit::{KeyState, ThrottleMode};

use crate::draw::{BUCKETS, Draw, FIXED, GCRA, HISTORIES, LEAKY, LEVELS, LOG, histories};
use crate::subject::Subject;

const ALL: [tollgate::limit::Algorithm; 6] = [LOG, BUCKETS, LEVELS, FIXED, GCRA, LEAKY];

fn walk(draw: &mut Draw, subject: &mut Subject, plan_factor: u32) {
    let most = subject.most(plan_factor);
    let mut wait = Nanos::ZERO;
    for _ in 0..draw.within(3, 12) {
        let step = draw.step(subject.now, &subject.limit, wait);
        subject.now = (subject.now + step).min(u64::MAX / 8);
        let cost = draw.cost(most);
        wait = subject.ask(cost, plan_factor).wait;
    }
}

/// Converts the state of `subject` to `limit`, as a store does when a policy is changed.
fn convert(subject: &mut Subject, limit: tollgate::limit::RateLimit) {
    let (now, key) = (Nanos(subject.now), subject.key);
    let mut words = vec![0; limit.max_words()];
    let mut cell = KeyState {
        limit: &limit,
        key,
        wall: WallOffset::default(),
        words: &mut words,
    };
    cell.convert_from(&subject.cell(), now);
    subject.words = words;
    subject.limit = limit;
}

#[test]
fn conversion_forgives_nothing() {
    histories(HISTORIES, |draw| {
        let (from, to) = (draw.below(6) as usize, draw.below(6) as usize);
        let mut subject = Subject::drawn(draw, ALL[from]);
        subject.now %= 1 << 60;
        let plan_factor = draw.within(1, u64::from(subject.limit.max_plan_factor)) as u32;
        walk(draw, &mut subject, plan_factor);
        let mut limit = draw.limit(ALL[to]);
        limit.reserves = draw.once_in(4);
        let old = 0..subject.limit.windows.len();
        let used = old
            .map(|index| subject.used(subject.now, index))
            .max()
            .unwrap();
        let longest = subject.limit.longest_window();
        convert(&mut subject, limit);
        // Of more than all that it may use a key need not know.
        let known = match ALL[to] {
            LOG | GCRA | LEAKY => subject.most(1),
            _ => u32::MAX,
        };
        for index in 0..subject.limit.windows.len() {
            let now = subject.now;
            // Between logs units keep their times: each window has what was used in it.
            let used = if (ALL[from], ALL[to]) == (LOG, LOG) {
                let window = subject.limit.windows[index].window().min(longest);
                subject.counted(now, window.0) as u32 + subject.pending
            } else {
                used
            };
            assert!(
                subject.used(now, index) >= used.min(known),
                "{used} forgiven"
            );
        }
    });
}

/// With the same rates before and after, no window holds more than its quota although the algorithm
/// changed inside it.
#[test]
fn windows_hold_across_a_conversion() {
    histories(HISTORIES / 4, |draw| {
        let exact = [LOG, BUCKETS, LEVELS];
        let from = exact[draw.below(3) as usize];
        let mut subject = Subject::drawn(draw, from);
        subject.limit.throttle = ThrottleMode::Hard;
        let plan_factor = draw.within(1, u64::from(subject.limit.max_plan_factor)) as u32;
        walk(draw, &mut subject, plan_factor);
        let mut limit = subject.limit.clone();
        if limit.windows.iter().any(|rate| rate.quota() > 10_000) {
            return;
        }
        limit.algorithm = exact[draw.below(3) as usize];
        if limit.shape() != subject.limit.shape() {
            convert(&mut subject, limit);
        }
        for _ in 0..3 {
            walk(draw, &mut subject, plan_factor);
        }
        check_windows(&subject, plan_factor);
    });
}

fn check_windows(subject: &Subject, plan_factor: u32) {
    for (end, _) in &subject.admitted {
        for rate in &subject.limit.windows {
            let counted = subject.counted_between(*end, rate.window().0);
            let quota = u64::from(subject.quota(rate, plan_factor));
            assert!(counted <= quota, "{counted} of {quota} in {rate}");
        }
    }
}

/// Quotas, throttles and plans may change without a conversion: every request is judged by what holds
/// now, over all that was used before.
#[test]
fn quotas_and_plans_may_change_in_place() {
    for algorithm in [LOG, BUCKETS, LEVELS] {
        histories(HISTORIES / 4, |draw| {
            let mut subject = Subject::drawn(draw, algorithm);
            for _ in 0..draw.within(10, 25) {
                if draw.once_in(4) {
                    let windows = subject.limit.windows.clone();
                    let each = windows.iter().map(|rate| {
                        let quota = draw.within(1, u64::from(rate.quota()) * 2).min(1_000) as u32;
                        tollgate::limit::Rate::new(quota, rate.window()).unwrap()
                    });
                    subject.limit.windows = each.collect();
                }
                let plan_factor = draw.within(1, u64::from(subject.limit.max_plan_factor)) as u32;
                let step = draw.step(subject.now, &subject.limit, Nanos::ZERO);
                subject.now = subject.now.saturating_add(step);
                let cost = draw.cost(subject.most(plan_factor));
                if !subject.ask(cost, plan_factor).standing.admits() {
                    continue;
                }
                for rate in &subject.limit.windows {
                    let counted = subject.counted(subject.now, rate.window().0);
                    let ceiling = u64::from(subject.ceiling(rate, plan_factor));
                    assert!(counted <= ceiling, "{counted} of {ceiling} in {rate}");
                }
            }
        });
    }
}
