//! The retry budget of one worker and upstream, after the retry budgets of Finagle: one retry for every five requests,
//! and one a second while there are fewer than ten. So retries add little work to failing servers. `upstream_pool` spends the budget.
//! While it is low, requests use new connections of HTTP/1.1, which the server cannot have closed before.

use std::cell::Cell;

use crate::base::clock::Nanos;

/// The number of requests that earn one retry. Retries are at most a fifth of the requests, beside those
/// that come back with time.
const REQUESTS_PER_RETRY: u32 = 5;
/// The number of retries that are available without any requests. While fewer are left, one comes back each second.
const MIN_RETRIES: u32 = 10;
/// With fewer retries the budget is low, and new requests should not need one.
const LOW_RETRIES: u32 = 5;
/// Maximum number of retries that can be saved up, so that a long calm does not pay for a flood of retries.
const MAX_RETRIES: u32 = 100;

/// The retry budget of one worker for one upstream.
#[derive(Debug)]
pub struct RetryBudget {
    /// The budget that is left, in requests: [`REQUESTS_PER_RETRY`] of them pay for one retry.
    balance: Cell<u32>,
    /// The time up to which [`RetryBudget::refill`] has counted whole seconds.
    refilled_until: Cell<Nanos>,
}

impl RetryBudget {
    /// A budget of [`MIN_RETRIES`].
    pub fn new(now: Nanos) -> RetryBudget {
        RetryBudget {
            balance: Cell::new(MIN_RETRIES * REQUESTS_PER_RETRY),
            refilled_until: Cell::new(now),
        }
    }

    /// Counts a request that is sent for the first time.
    pub fn record_request(&self) {
        let new_balance = self.balance.get() + 1;
        self.balance
            .set(new_balance.min(MAX_RETRIES * REQUESTS_PER_RETRY));
    }

    /// Whether fewer than [`LOW_RETRIES`] are left. Retries that have come back since the last
    /// [`RetryBudget::take_retry`] do not count yet.
    pub fn is_low(&self) -> bool {
        self.balance.get() < LOW_RETRIES * REQUESTS_PER_RETRY
    }

    /// Takes one retry; false if none is left. First adds the retries that have come back by `now`.
    pub fn take_retry(&self, now: Nanos) -> bool {
        self.refill(now);
        let new_balance = self.balance.get().checked_sub(REQUESTS_PER_RETRY);
        if let Some(new_balance) = new_balance {
            self.balance.set(new_balance);
        }
        new_balance.is_some()
    }

    /// Adds one retry to the balance for each whole second that passed, up to [`MIN_RETRIES`]. The rest of a second counts next
    /// time.
    fn refill(&self, now: Nanos) {
        let passed_seconds = now.since(self.refilled_until.get()).0 / Nanos::from_secs(1).0;
        if passed_seconds == 0 {
            return;
        }
        let refilled_span = Nanos::from_secs(passed_seconds);
        self.refilled_until
            .set(self.refilled_until.get().after(refilled_span));
        let balance = self.balance.get();
        let returned_retries = u32::try_from(passed_seconds)
            .unwrap_or(MIN_RETRIES)
            .min(MIN_RETRIES);
        let refilled = balance + returned_retries * REQUESTS_PER_RETRY;
        let refilled = refilled.min(MIN_RETRIES * REQUESTS_PER_RETRY);
        self.balance.set(balance.max(refilled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all_retries(budget: &RetryBudget, now: Nanos) -> usize {
        (0..1_000).take_while(|_| budget.take_retry(now)).count()
    }

    #[test]
    fn a_fifth_of_the_requests_beside_a_floor() {
        let now = Nanos::from_secs(9);
        let budget = RetryBudget::new(now);
        assert!(!budget.is_low());
        assert_eq!(take_all_retries(&budget, now), 10);
        assert!(budget.is_low());
        (0..49).for_each(|_| budget.record_request());
        assert_eq!(take_all_retries(&budget, now), 9);
        (0..10_000).for_each(|_| budget.record_request());
        assert_eq!(take_all_retries(&budget, now), 100);
    }

    #[test]
    fn the_floor_comes_back_with_time() {
        let now = Nanos::from_secs(9);
        let budget = RetryBudget::new(now);
        assert_eq!(take_all_retries(&budget, now), 10);
        assert_eq!(
            take_all_retries(&budget, now.after(Nanos::from_millis(900))),
            0
        );
        assert_eq!(take_all_retries(&budget, now.after(Nanos::from_secs(3))), 3);
        assert_eq!(
            take_all_retries(&budget, now.after(Nanos::from_secs(3_000))),
            10
        );
    }

    /// Each refill once dropped the rest of a second.
    #[test]
    fn the_rest_of_a_second_counts_for_the_next_refill() {
        let now = Nanos::from_secs(9);
        let budget = RetryBudget::new(now);
        assert_eq!(take_all_retries(&budget, now), 10);
        let returned = [1_900, 3_800]
            .map(|millis| take_all_retries(&budget, now.after(Nanos::from_millis(millis))));
        assert_eq!(returned, [1, 2]);
    }
}
