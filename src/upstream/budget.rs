//! The retry budget of one worker and upstream, as in Finagle: one retry for every five requests, beside a small floor.
//! So failing servers do not get more work by retries. While the budget is nearly spent, requests use new
//! connections, which need no retry.

use std::cell::Cell;

use crate::base::clock::Nanos;

/// Requests that earn one retry.
const EARN: u32 = 5;
/// Retries that are available without any requests; one returns each second.
const FLOOR: u32 = 10;
/// Below this many, the rest is kept for requests under way.
const NEARLY: u32 = 5;
/// Most retries that can be saved up.
const MOST: u32 = 100;

/// See the module.
#[derive(Debug)]
pub struct RetryBudget {
    /// In requests.
    saved: Cell<u32>,
    filled: Cell<Nanos>,
}

impl RetryBudget {
    /// A budget with only the floor.
    pub fn new(now: Nanos) -> RetryBudget {
        RetryBudget {
            saved: Cell::new(FLOOR * EARN),
            filled: Cell::new(now),
        }
    }

    /// Counts a request that is sent for the first time.
    pub fn earn(&self) {
        self.saved.set((self.saved.get() + 1).min(MOST * EARN));
    }

    /// Whether too few retries are left for requests that may need one.
    pub fn is_low(&self) -> bool {
        self.saved.get() < NEARLY * EARN
    }

    /// Takes one retry; false if none is left.
    pub fn spend(&self, now: Nanos) -> bool {
        self.fill(now);
        let left = self.saved.get().checked_sub(EARN);
        if let Some(left) = left {
            self.saved.set(left);
        }
        left.is_some()
    }

    fn fill(&self, now: Nanos) {
        let seconds = now.since(self.filled.get()).0 / Nanos::from_secs(1).0;
        if seconds == 0 {
            return;
        }
        self.filled.set(now);
        let saved = self.saved.get();
        let come = u32::try_from(seconds).unwrap_or(FLOOR).min(FLOOR) * EARN;
        self.saved.set(saved.max((saved + come).min(FLOOR * EARN)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(budget: &RetryBudget, now: Nanos) -> usize {
        (0..1_000).take_while(|_| budget.spend(now)).count()
    }

    #[test]
    fn a_fifth_of_the_requests_beside_a_floor() {
        let now = Nanos::from_secs(9);
        let budget = RetryBudget::new(now);
        assert!(!budget.is_low());
        assert_eq!(spent(&budget, now), 10);
        assert!(budget.is_low());
        (0..49).for_each(|_| budget.earn());
        assert_eq!(spent(&budget, now), 9);
        (0..10_000).for_each(|_| budget.earn());
        assert_eq!(spent(&budget, now), 100);
    }

    #[test]
    fn the_floor_comes_back_with_time() {
        let now = Nanos::from_secs(9);
        let budget = RetryBudget::new(now);
        assert_eq!(spent(&budget, now), 10);
        assert_eq!(spent(&budget, now.after(Nanos::from_millis(900))), 0);
        assert_eq!(spent(&budget, now.after(Nanos::from_secs(3))), 3);
        assert_eq!(spent(&budget, now.after(Nanos::from_secs(3_000))), 10);
    }
}
