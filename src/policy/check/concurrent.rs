//! Checks the fields of limits on open requests, which have no rates. The field `sharing` is checked in `sharing.rs`.

use super::super::context::LoadContext;
use super::super::decode::{LimitConfig, ThrottleConfig};

/// Reports fields that have no meaning for a limit on open requests.
pub(super) fn check_concurrent(cx: &mut LoadContext, limit: &LimitConfig) {
    let elastic = limit
        .throttle
        .filter(|field| field.value == ThrottleConfig::Elastic);
    let permit_help = "remove it: a permit is held from the admission to the end of the answer";
    let throttle_help = "write `hard`, or for instance `soft 10%`";
    let elastic_help = "remove it";
    let fields = [
        (
            limit.algorithm.map(|field| field.location),
            "`algorithm`",
            permit_help,
        ),
        (
            limit.burst.map(|field| field.location),
            "`burst`",
            permit_help,
        ),
        (
            limit.delay.map(|field| field.location),
            "`delay`",
            permit_help,
        ),
        (
            limit.count.as_ref().map(|field| field.location),
            "`count`",
            permit_help,
        ),
        (
            limit.reserve.as_ref().map(|field| field.location),
            "`reserve`",
            permit_help,
        ),
        (
            elastic.map(|field| field.location),
            "`throttle: elastic`",
            throttle_help,
        ),
        (
            limit.condition.as_ref().map(|field| field.location),
            "`while`",
            elastic_help,
        ),
        (
            limit.at_most.map(|field| field.location),
            "`at_most`",
            elastic_help,
        ),
    ];
    for (location, field, help) in fields {
        if let Some(location) = location {
            let message = format!("{field} is for limits with `rate`, not with `concurrent`");
            cx.error(location, message, Some(help.into()));
        }
    }
}
