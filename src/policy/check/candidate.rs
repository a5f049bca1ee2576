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
    if limit.credits.is_some() {
        return; // Reported when the fields were read.
    }
    let other = match (&limit.concurrent, limit.is_quota()) {
        (Some(_), _) => Some(("on open requests", "concurrent")),
        (None, true) => Some(("by the calendar", "quota")),
        (None, false) => None,
    };
    if let Some((kind, field)) = other {
        let message = format!("`try` is a candidate for `rate`, and this limit is {kind}");
        let help = format!("add a second limit with another `{field}` and `mode: shadow`");
        return cx.error(tried.location, message, Some(help));
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
