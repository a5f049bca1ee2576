//! Budgets of the networks around an address, as parts of calls to a shared store.

use super::networks::NetworkBudget;
use crate::limit::spec::{StateKind, WindowSpec};
use crate::limit::{LimitSpec, Rate, RateLimit, Scale};
use crate::store::ParentNetwork;
use crate::store::shared::call::{CallPart, CounterName};

/// The parts of a shared store's call for the networks around a key. The caller sets their units, `key_part_index` and
/// `is_shadow`. `limit_hash` is the limit's
/// [`SharingPlan::hash`](crate::store::shared::sharing_plan::SharingPlan::hash).
pub fn call_parts(
    limit: &RateLimit,
    scale: Scale,
    parents: &[ParentNetwork],
    limit_hash: u64,
) -> impl Iterator<Item = CallPart> {
    // A limit without windows has no budgets for networks.
    let longest_rate = limit.windows.last();
    parents
        .iter()
        .zip(longest_rate.into_iter().cycle())
        .map(move |(parent, rate)| {
            let budget = NetworkBudget::new(limit, rate, scale.plan_factor, parent.factor);
            let name = CounterName {
                // The inverted hash, so that no key of the limit shares a counter with a network.
                limit: !limit_hash,
                key: parent.key,
            };
            CallPart::new(name, budget.spec(rate), 0)
        })
}

impl NetworkBudget {
    /// The arithmetic of the budget for a shared store, in microseconds.
    fn spec(self, rate: &Rate) -> LimitSpec {
        let burst_units = u32::try_from(self.burst_units).unwrap_or(u32::MAX);
        let interval_micros = self.interval_nanos.div_ceil(1_000);
        LimitSpec {
            kind: StateKind::Gcra,
            windows: smallvec::smallvec![WindowSpec {
                window_micros: rate.window().0.div_ceil(1_000),
                base: burst_units,
                ceiling: burst_units,
                ring_phase_or_interval: interval_micros,
                early_slack_micros: 0,
                // Zero: the store converts no state to another interval. One network has keys of several plans, whose
                // intervals differ.
                plain_interval_micros: 0,
                // The time of a whole burst, and one unit more for what is rounded. The store corrects a state that is
                // further ahead than twice this time, as after a clock was put back.
                max_lead_micros: interval_micros
                    .saturating_mul(u64::from(burst_units))
                    .saturating_add(rate.interval(1).nanos().div_ceil(1_000)),
                bounds_micros: [0; 4],
            }],
            rings: smallvec::smallvec![],
            lends: false,
            pace: Default::default(),
            lifetime_micros: interval_micros.saturating_mul(u64::from(burst_units)),
        }
    }
}
