//! Checks the fields of limits with a quota by the calendar, and those that belong to one.

use super::super::context::LoadContext;
use super::super::decode::{LimitConfig, ThrottleConfig};
use crate::limit::Algorithm;

/// Reports `zone`, `starts` and `align` where they mean nothing, and what a quota cannot have beside it.
pub(super) fn check_quota(cx: &mut LoadContext, limit: &LimitConfig) {
    let quota_fields = [
        ("zone", limit.zone.as_ref().map(|zone| zone.location)),
        ("starts", limit.starts.map(|starts| starts.location)),
    ];
    let algorithm = limit.algorithm.map(|algorithm| algorithm.value);
    if !limit.is_quota() {
        // A quota with a mistake is no rate either, and that was reported.
        let has_rates = !limit.rates.is_empty() || limit.concurrent.is_some();
        for (name, location) in quota_fields {
            if let Some(location) = location.filter(|_| has_rates) {
                let message = format!("`{name}` is for limits with `quota`");
                let help =
                    "remove it, or write for instance `quota: 1000/month` in place of `rate`";
                cx.error(location, message, Some(help.into()));
            }
        }
        if let Some(alignment) = limit.alignment
            && algorithm != Some(Algorithm::FixedWindow)
        {
            let help = "write `algorithm: fixed-window`, or remove it";
            let message = "`align` is for the algorithm fixed-window";
            cx.error(alignment.location, message, Some(help.into()));
        }
        return;
    }
    if let Some(algorithm) = limit
        .algorithm
        .filter(|algorithm| algorithm.value != Algorithm::FixedWindow)
    {
        let message = "a quota is counted in windows of the calendar";
        cx.error(
            algorithm.location,
            message,
            Some("remove `algorithm`".into()),
        );
    }
    let others = [
        (
            limit.alignment.map(|alignment| alignment.location),
            "a quota begins with its calendar",
            "remove `align`",
        ),
        (
            limit.burst.map(|burst| burst.location),
            "a quota may be used up at once, so it has no burst",
            "remove `burst`; for a pace beside the quota write another limit with a `rate`",
        ),
        (
            limit.delay.map(|delay| delay.location),
            "a quota holds no request back",
            "remove `delay`; for a pace beside the quota write another limit with a `rate`",
        ),
        (
            limit
                .throttle
                .filter(|throttle| throttle.value == ThrottleConfig::Elastic)
                .map(|throttle| throttle.location),
            "an elastic limit lends above a rate, not above a quota",
            "write `throttle: hard` or `soft 10%`, and an elastic limit with a `rate` beside it",
        ),
    ];
    for (location, message, help) in others {
        if let Some(location) = location {
            cx.error(location, message, Some(help.into()));
        }
    }
}
