//! [`NetworkBudget`]: budgets of the networks around an address. A client that owns a network may send each request
//! from another address, so a limit by ip needs a bound for the whole network. `network_calls.rs` passes the budgets on to
//! a shared store.
//!
//! A budget is a multiple of the units that the limit's longest window admits to one key, burst included. One key's loan
//! is added, so that a network does not refuse its only client.
//!
//! The arithmetic is the generic cell rate algorithm (ITU-T I.371) with a burst of the whole budget. So a network needs
//! one theoretical arrival time (TAT) only, in nanoseconds, which fits an entry. Waits are exact, and a window may admit up
//! to twice the budget.

use crate::base::clock::Nanos;
use crate::limit::{Rate, RateLimit};

/// A network's budget in the longest window of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkBudget {
    /// The time between two units of a steady flow, in nanoseconds.
    pub(super) interval_nanos: u64,
    /// The number of units of the largest burst, which is the whole budget.
    pub(super) burst_units: u64,
}

/// Whether a network has room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkRoom {
    /// The request passes; the TAT after its units.
    Passes(u64),
    /// The request would pass after this wait.
    Full(Nanos),
    /// The request can never pass.
    Never,
}

impl NetworkBudget {
    /// The budget of a network in the window of `rate`, which is the limit's longest. It is `factor` times the units of
    /// a key, and one key's loan. A `factor` of 0 counts as 1.
    pub(super) fn new(
        limit: &RateLimit,
        rate: &Rate,
        plan_factor: u32,
        factor: u32,
    ) -> NetworkBudget {
        let quota = rate.quota_times(plan_factor);
        let (_, ceiling) = limit.unit_bounds(rate, plan_factor);
        let lent_units = limit.throttle.max_lent(quota);
        // A burst of `gcra` comes back at the rate of the quota. With other algorithms, units above the quota come back
        // in each window. Loans are spare capacity, and not for the client with the most addresses, so `factor` does
        // not multiply them.
        let steady_units = if limit.algorithm.is_gcra() {
            quota
        } else {
            ceiling
        };
        let factor = u64::from(factor.max(1));
        NetworkBudget {
            interval_nanos: rate
                .window()
                .0
                .div_ceil((u64::from(steady_units) * factor + u64::from(lent_units)).max(1))
                .max(1),
            burst_units: u64::from(quota.max(ceiling)) * factor + u64::from(lent_units),
        }
    }

    /// The time in which a steady flow uses the units of one burst, in nanoseconds.
    fn burst_nanos(self) -> u64 {
        self.interval_nanos.saturating_mul(self.burst_units)
    }

    /// Whether `cost` units fit. `tat` is the network's state, in nanoseconds.
    pub(super) fn evaluate(self, tat: u64, now: Nanos, cost: u32) -> NetworkRoom {
        if u64::from(cost) > self.burst_units {
            return NetworkRoom::Never;
        }
        let next_tat = self.charged_tat(tat, now, cost);
        let latest_tat = now.0.saturating_add(self.burst_nanos());
        if next_tat <= latest_tat {
            NetworkRoom::Passes(next_tat)
        } else {
            NetworkRoom::Full(Nanos(next_tat - latest_tat))
        }
    }

    /// The TAT after `cost` more units at `now`, in nanoseconds.
    pub(super) fn charged_tat(self, tat: u64, now: Nanos, cost: u32) -> u64 {
        tat.max(now.0)
            .saturating_add(self.interval_nanos.saturating_mul(u64::from(cost)))
    }

    /// Units that are used at `now`, rounded up.
    pub(super) fn used_units(self, tat: u64, now: Nanos) -> u32 {
        let used_nanos = tat.saturating_sub(now.0);
        u32::try_from(used_nanos.div_ceil(self.interval_nanos)).unwrap_or(u32::MAX)
    }

    /// Units that would pass at `now`, rounded down.
    pub(super) fn remaining_units(self, tat: u64, now: Nanos) -> u32 {
        let used_nanos = tat.saturating_sub(now.0);
        let free_units = self.burst_nanos().saturating_sub(used_nanos) / self.interval_nanos;
        u32::try_from(free_units).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_fill_and_waits_are_exact() {
        for (rate, factor) in [("7/s", 1), ("5/m", 4), ("3/h", 256), ("1000000000/s", 256)] {
            let rate = rate.parse().unwrap();
            let budget = NetworkBudget::new(&RateLimit::hard(rate), &rate, 1, factor);
            let now = Nanos::from_secs(86_400);
            let mut tat = 0;
            for units_left in (0..budget.burst_units.min(1_000)).rev() {
                match budget.evaluate(tat, now, 1) {
                    NetworkRoom::Passes(next_tat) => tat = next_tat,
                    other => panic!("{rate}: {units_left} left but {other:?}"),
                }
            }
            if budget.burst_units > 1_000 {
                continue;
            }
            assert_eq!(budget.remaining_units(tat, now), 0);
            let NetworkRoom::Full(wait) = budget.evaluate(tat, now, 1) else {
                panic!("{rate} is full")
            };
            assert!(matches!(
                budget.evaluate(tat, now.after(wait), 1),
                NetworkRoom::Passes(_)
            ));
            let early = Nanos(now.after(wait).0 - 1);
            assert!(matches!(
                budget.evaluate(tat, early, 1),
                NetworkRoom::Full(Nanos(1))
            ));
            assert_eq!(budget.evaluate(tat, now, u32::MAX), NetworkRoom::Never);
        }
    }
}
