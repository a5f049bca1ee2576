//! Checks the candidate rates of a limit (`try`), which must fit its other fields as its own rates do.

use super::super::context::LoadContext;
use super::super::decode::{GatewayConfig, LimitConfig, split_by_plan};
use super::limit::{check_limit, check_log_size, check_plan_rates, check_windows};

/// Reports everything about a limit and its candidate rates that does not fit together.
pub(super) fn check_limit_with_candidate(
    cx: &mut LoadContext,
    gateway: &GatewayConfig,
    limit: &LimitConfig,
) {
    check_limit(cx, gateway, limit);
    check_candidate(cx, gateway, limit);
}

/// Checks the candidate rates of a limit by the rules of its own rates.
fn check_candidate(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    let (Some(tried), Some(fields)) = (&limit.tried, limit.candidate()) else {
        return;
    };
    if limit.concurrent.is_some() {
        let message = "`try` is a candidate for `rate`, and this limit is on open requests";
        let help = "add a second limit with another `concurrent` and `mode: shadow`";
        return cx.error(tried.location, message, Some(help.into()));
    }
    let candidate = LimitConfig {
        name: limit.name.clone(),
        fields,
    };
    check_plan_rates(cx, gateway, &candidate);
    for variant in split_by_plan(&candidate) {
        check_windows(cx, gateway, &variant.limit);
    }
    if candidate.at_most.is_some() && candidate.elastic_rates().is_none() {
        let message = "an elastic limit lends above the rate with the window of `at_most`, which `try` has not";
        let help = "write a candidate rate with the same unit as `at_most`";
        cx.error(tried.location, message, Some(help.into()));
    }
    check_log_size(cx, gateway, &candidate);
    let rates = |limit: &LimitConfig| limit.rates.iter().collect::<Vec<_>>();
    if rates(&candidate) == rates(limit) {
        let message = "`try` has the rates that the limit has already";
        let help = "try another rate, or remove the field";
        cx.warn(tried.location, message, Some(help.into()));
    }
}
