//! Limits whose use is known only from the response: what is pending counts, and settling it never
//! takes a window above its ceiling unless more was used than was reserved.

use tollgate::limit::{Algorithm, LimitStanding};

use crate::draw::{BUCKETS, FIXED, GCRA, HISTORIES, LEVELS, LOG, histories};
use crate::subject::{Subject, check_fresh};

fn drive(algorithm: Algorithm, debts: bool, judge: impl Fn(&mut Subject, u32)) {
    histories(HISTORIES / 2, |draw| {
        let mut subject = Subject::drawn(draw, algorithm);
        subject.limit.reserves = true;
        subject.words = vec![0; subject.limit.min_words(1)];
        let plan_factor = draw.within(1, u64::from(subject.limit.max_plan_factor)) as u32;
        let most = subject.most(plan_factor);
        let mut open: Vec<u32> = Vec::new();
        let mut wait = tollgate::base::clock::Nanos::ZERO;
        for _ in 0..draw.within(10, 30) {
            let step = draw.step(subject.now, &subject.limit, wait);
            subject.now = (subject.now + step).min(u64::MAX / 8);
            if open.is_empty() || draw.once_in(2) {
                let cost = draw.cost(most).min(most);
                let finding = subject.ask(cost, plan_factor);
                match finding.standing {
                    LimitStanding::Within | LimitStanding::Over => open.push(cost),
                    _ => {
                        assert!(finding.wait.0 > 0, "a refusal waits");
                        check_refusal(&mut subject, cost, plan_factor, finding.wait.0);
                    }
                }
                wait = finding.wait;
            } else {
                let reserved = open.swap_remove(draw.below(open.len() as u64) as usize);
                let used = match draw.below(4) {
                    0 => 0,
                    1 => draw.within(0, u64::from(reserved)) as u32,
                    2 if debts => draw.within(0, 2 * u64::from(most)) as u32,
                    _ => reserved,
                };
                subject.settle(reserved, used, plan_factor);
            }
            judge(&mut subject, plan_factor);
            if !open.is_empty() {
                assert_eq!(
                    subject.cell().fresh_at().0,
                    u64::MAX,
                    "pending is not fresh"
                );
            }
        }
        for reserved in open.drain(..) {
            subject.settle(reserved, reserved, plan_factor);
        }
        judge(&mut subject, plan_factor);
        check_fresh(&mut subject);
    });
}

/// While what is pending stays, the wait is what the rest needs; where it alone is in the way, nobody
/// knows.
fn check_refusal(subject: &mut Subject, cost: u32, plan_factor: u32, wait: u64) {
    let then = subject.now + wait;
    if subject.eval(then, cost, plan_factor).standing.admits() {
        let before = subject.eval(then - 1, cost, plan_factor).standing;
        assert!(
            before == LimitStanding::Refused || wait == 1_000_000_000,
            "one tick early"
        );
    } else {
        let ever: u64 = subject
            .admitted
            .iter()
            .map(|(_, units)| u64::from(*units))
            .sum();
        let uncounted = ever > u64::from(u32::MAX);
        assert!(
            subject.pending > 0 || uncounted,
            "only pending units, or more than are counted, may prolong a wait"
        );
    }
}

fn holds(subject: &mut Subject, plan_factor: u32) {
    for rate in subject.limit.windows.clone() {
        let counted = subject.counted(subject.now, rate.window().0) + u64::from(subject.pending);
        let ceiling = u64::from(subject.ceiling(&rate, plan_factor));
        assert!(counted <= ceiling, "{counted} of {ceiling} in {rate}");
    }
}

#[test]
fn sliding_log_holds() {
    drive(LOG, false, holds);
}

#[test]
fn sliding_window_holds() {
    drive(BUCKETS, false, holds);
}

#[test]
fn multi_level_holds() {
    drive(LEVELS, false, holds);
}

/// More used than reserved is debt: whoever owes waits, and each algorithm knows of all of it that
/// matters.
#[test]
fn debts_are_paid() {
    for algorithm in [LOG, BUCKETS, LEVELS, FIXED, GCRA] {
        drive(algorithm, true, |subject, plan_factor| {
            let exact = matches!(algorithm, LOG | BUCKETS | LEVELS);
            for rate in subject.limit.windows.clone() {
                let counted = subject.counted(subject.now, rate.window().0);
                let counted = counted + u64::from(subject.pending);
                let held = if algorithm == LOG { 65_535 } else { u32::MAX };
                let ceiling = u64::from(subject.ceiling(&rate, plan_factor).min(held));
                if exact && counted >= ceiling {
                    let standing = subject.eval(subject.now, 1, plan_factor).standing;
                    assert_eq!(
                        standing,
                        LimitStanding::Refused,
                        "{counted} of {ceiling} in {rate}"
                    );
                }
            }
        });
    }
}
