//! A limit on how many requests of one key are open at once. It counts the requests that are open now, so it needs no
//! window and no clock. The permits themselves are kept by `store/permits/`.

use super::{LimitFinding, LimitStanding, ThrottleMode};
use crate::base::clock::Nanos;

/// The wait of a refused client. It is a guess, because the end of an open request cannot be foreseen. A second is the
/// shortest time that `Retry-After` can express, and a client that retries each second costs little.
pub const REFUSAL_WAIT: Nanos = Nanos::from_secs(1);

/// A limit on the open requests of each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// The largest number of open requests, without a plan's multiplier. With 0 no request is admitted.
    pub max_open: u32,
    /// Permits of a grant that no plan multiplies.
    pub added: u32,
    /// What the limit does above that number.
    pub throttle: ThrottleMode,
    /// The largest plan multiplier of a request.
    pub max_plan_factor: u32,
}

impl Concurrency {
    /// A limit that never admits more than `max_open`.
    pub fn hard(max_open: u32) -> Concurrency {
        Concurrency {
            max_open,
            added: 0,
            throttle: ThrottleMode::Hard,
            max_plan_factor: 1,
        }
    }

    /// The number of permits of a key, without what a soft limit adds.
    pub fn quota(&self, plan_factor: u32) -> u32 {
        let max_open = self.max_open.saturating_mul(plan_factor);
        max_open.saturating_add(self.added)
    }

    /// The number of permits of a key, with what a soft limit adds to the quota.
    pub fn ceiling(&self, plan_factor: u32) -> u32 {
        self.throttle.ceiling(self.quota(plan_factor))
    }

    /// The number of permits that are free below the quota while `open_count` requests are open.
    pub fn free_permits(&self, open_count: u32, plan_factor: u32) -> u32 {
        self.quota(plan_factor).saturating_sub(open_count)
    }

    /// The number of permits that are free in a network, which gets `network_factor` times as many as a key. What a
    /// soft limit adds is included, so that a network never refuses its only client.
    pub fn free_in_network(&self, open_count: u32, plan_factor: u32, network_factor: u32) -> u32 {
        let max_open = self
            .ceiling(plan_factor)
            .saturating_mul(network_factor.max(1));
        max_open.saturating_sub(open_count)
    }

    /// The finding of one more request while `open_count` others are open. `remaining` does not yet count the request
    /// itself.
    pub fn assess(&self, open_count: u32, plan_factor: u32) -> LimitFinding {
        let quota = self.quota(plan_factor);
        let standing = if open_count < quota {
            LimitStanding::Within
        } else if open_count < self.ceiling(plan_factor) {
            LimitStanding::Over
        } else {
            LimitStanding::Refused
        };
        LimitFinding {
            standing,
            window: 0,
            quota,
            remaining: self.free_permits(open_count, plan_factor),
            wait: if standing.admits() {
                Nanos::ZERO
            } else {
                REFUSAL_WAIT
            },
            reset: Nanos::ZERO,
            delay: Nanos::ZERO,
            calendar_window: None,
            sketched: false,
        }
    }

    /// What the limit guarantees, as one sentence without a full stop. Plans multiply the numbers.
    pub fn guarantee(&self) -> String {
        format!(
            "never more than {} open at once{}",
            self.quota(1),
            self.throttle.guarantee_suffix()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(limit: Concurrency, plan_factor: u32, expected: &[(u32, LimitStanding, u32)]) {
        for (open_count, standing, free_count) in expected {
            let finding = limit.assess(*open_count, plan_factor);
            assert_eq!(
                (finding.standing, finding.remaining),
                (*standing, *free_count)
            );
            assert_eq!(
                finding.wait == REFUSAL_WAIT,
                *standing == LimitStanding::Refused
            );
        }
    }

    #[test]
    fn permits_are_free_until_all_are_taken() {
        use LimitStanding::{Over, Refused, Within};
        let hard = Concurrency::hard(2);
        check(hard, 1, &[(0, Within, 2), (1, Within, 1), (2, Refused, 0)]);
        check(hard, 3, &[(2, Within, 4), (5, Within, 1), (6, Refused, 0)]);
        check(Concurrency::hard(0), 1, &[(0, Refused, 0)]);
        let soft = Concurrency {
            throttle: ThrottleMode::Soft { percent: 50 },
            ..hard
        };
        check(soft, 1, &[(1, Within, 1), (2, Over, 0), (3, Refused, 0)]);
        check(Concurrency::hard(u32::MAX), 9, &[(7, Within, u32::MAX - 7)]);
        assert_eq!(
            soft.guarantee(),
            "never more than 2 open at once; up to 50 % more admitted and marked"
        );
    }
}
