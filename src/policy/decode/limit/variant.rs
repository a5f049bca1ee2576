//! Splits a limit with rates by plan into limits with the same rates for all their clients.

use super::LimitConfig;
use super::rates::{ELSE, RatesConfig};
use crate::limit::{ClientCondition, Identity, IdentityTest};

/// A limit with one set of rates: for the clients of one plan, for those of `else`, or for all clients.
pub struct LimitVariant {
    /// The name of the plan, or `else`, which keeps its counts apart. `None` if the limit is for all clients.
    pub plan: Option<String>,
    /// The limit. Its rates are in [`RatesConfig::of_all`].
    pub limit: LimitConfig,
    /// The condition on the plan; `None` if the limit is for all clients.
    pub condition: Option<ClientCondition>,
    /// Whether the rates are the candidates of the limit.
    pub is_candidate: bool,
}

/// Splits a limit as [`split_by_plan`] does, and its candidate rates as well, which come last.
pub fn split_with_candidates(limit: &LimitConfig) -> Vec<LimitVariant> {
    let mut variants = split_by_plan(limit);
    let candidate = limit.candidate().map(|fields| LimitConfig {
        name: limit.name.clone(),
        fields,
    });
    let candidates = candidate.iter().flat_map(split_by_plan);
    variants.extend(candidates.map(|variant| LimitVariant {
        is_candidate: true,
        ..variant
    }));
    variants
}

/// Splits a limit with rates by plan into one limit for each plan and one for `else`. Those that are unlimited are left
/// out, so the result may be empty. A limit with the same rates for all clients is returned alone.
pub fn split_by_plan(limit: &LimitConfig) -> Vec<LimitVariant> {
    let by_plan = &limit.rates.by_plan;
    if by_plan.is_empty() {
        return vec![LimitVariant {
            plan: None,
            limit: limit.clone(),
            condition: None,
            is_candidate: false,
        }];
    }
    // Unlimited plans are among these names, because `else` is not for their clients either.
    let plan_names = || {
        by_plan
            .iter()
            .filter_map(|plan_rates| plan_rates.plan.clone())
    };
    let limited_plans = by_plan
        .iter()
        .filter(|plan_rates| !plan_rates.rates.is_empty());
    let variants = limited_plans.map(|plan_rates| {
        let test = match &plan_rates.plan {
            Some(plan) => IdentityTest::OneOf(vec![plan.clone()]),
            None => IdentityTest::NoneOf(plan_names().collect()),
        };
        let mut variant = limit.clone();
        variant.fields.rates = RatesConfig {
            of_all: plan_rates.rates.clone(),
            by_plan: Vec::new(),
        };
        LimitVariant {
            plan: Some(plan_rates.plan.clone().unwrap_or_else(|| ELSE.to_owned())),
            limit: variant,
            condition: Some(ClientCondition {
                identity: Identity::Plan,
                test,
            }),
            is_candidate: false,
        }
    });
    variants.collect()
}
