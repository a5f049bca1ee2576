//! A limit on how many requests of one key are open at once. Its count is of now, so that it knows no
//! window and no clock.

use super::{Reading, Standing, ThrottleMode};
use crate::base::clock::Nanos;

/// What a refused client is told to wait. Nobody knows when an open request ends; a second is the
/// least that the field can say, and who asks that often costs little.
pub const GUESS: Nanos = Nanos::from_secs(1);

/// So many open requests of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// How many, without a plan's multiplier. With 0 nobody is admitted.
    pub most: u32,
    /// What happens above.
    pub throttle: ThrottleMode,
    /// The largest plan multiplier that a request may bring.
    pub max_multiply: u32,
}

impl Concurrency {
    /// Never more than `most`.
    pub fn hard(most: u32) -> Concurrency {
        Concurrency {
            most,
            throttle: ThrottleMode::Hard,
            max_multiply: 1,
        }
    }

    /// Permits of a key.
    pub fn quota(&self, multiply: u32) -> u32 {
        self.most.saturating_mul(multiply)
    }

    /// The most that are ever given out to a key.
    pub fn ceiling(&self, multiply: u32) -> u32 {
        self.throttle.ceiling(self.quota(multiply))
    }

    /// Permits that are left below the quota while `open` are out.
    pub fn left(&self, open: u32, multiply: u32) -> u32 {
        self.quota(multiply).saturating_sub(open)
    }

    /// Permits that are left in a network which gets `factor` times as many as a key, what a soft limit
    /// lends included, so that it never refuses its only client.
    pub fn left_in_network(&self, open: u32, multiply: u32, factor: u32) -> u32 {
        let most = self.ceiling(multiply).saturating_mul(factor.max(1));
        most.saturating_sub(open)
    }

    /// How the limit stands towards one more request while `open` are out.
    pub fn stand(&self, open: u32, multiply: u32) -> Reading {
        let quota = self.quota(multiply);
        let standing = if open < quota {
            Standing::Within
        } else if open < self.ceiling(multiply) {
            Standing::Over
        } else {
            Standing::Refused
        };
        Reading {
            standing,
            window: 0,
            quota,
            remaining: self.left(open, multiply),
            wait: if standing.admits() {
                Nanos::ZERO
            } else {
                GUESS
            },
            reset: Nanos::ZERO,
            delay: Nanos::ZERO,
            sketched: false,
        }
    }

    /// What the limit promises, as one sentence without a full stop. Plans multiply the numbers.
    pub fn guarantee(&self) -> String {
        format!(
            "never more than {} open at once{}",
            self.most,
            self.throttle.lent()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(limit: Concurrency, multiply: u32, expected: &[(u32, Standing, u32)]) {
        for (open, standing, left) in expected {
            let reading = limit.stand(*open, multiply);
            assert_eq!((reading.standing, reading.remaining), (*standing, *left));
            assert_eq!(reading.wait == GUESS, *standing == Standing::Refused);
        }
    }

    #[test]
    fn permits_are_left_until_all_are_out() {
        use Standing::{Over, Refused, Within};
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
