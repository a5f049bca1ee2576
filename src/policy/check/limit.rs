//! Checks whether the fields of one limit fit together, and whether the limit fits the plans and identities of the
//! gateway file. How gateways share it is checked in `sharing`.

use super::super::context::LoadContext;
use super::super::decode::{
    GatewayConfig, KeyPartConfig, LimitConfig, LimitVariant, ThrottleConfig, split_by_plan,
};
use super::super::tree::Located;
use super::concurrent::check_concurrent;
use super::credits::check_credits;
use super::identity::{check_condition, check_identity, has_default_plan};
use super::quota::check_quota;
use super::sharing::check_sharing;
use crate::limit::{Algorithm, CountMode, Identity, IdentitySet, IdentityTest, MAX_WINDOWS, Rate};

/// Maximum number of units that a sliding log keeps. A larger quota would admit less than the rate promises.
const MAX_LOG_UNITS: u64 = 65_535;

/// Reports everything about `limit` that does not fit together.
pub(super) fn check_limit(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    check_key(cx, gateway, limit);
    check_clients(cx, gateway, limit);
    let has_plans = !gateway.plans.is_empty() && gateway.identity.plan.is_some();
    if let Some(plans) = limit.plans.filter(|plans| plans.value && !has_plans) {
        let message = "`plans: true` needs plans, and a way to know a request's plan";
        let help =
            "add `plans:`, and for instance `plan: { jwt: plan, default: free }` to `identity`";
        cx.error(plans.location, message, Some(help.into()));
    }
    check_ban(cx, limit);
    if limit.credits.is_some() {
        check_credits(cx, gateway, limit);
        return check_reserve(cx, gateway, limit);
    }
    check_sharing(cx, gateway, limit);
    check_quota(cx, limit);
    if limit.concurrent.is_some() && limit.rates.is_empty() {
        return check_concurrent(cx, limit);
    }
    check_plan_rates(cx, gateway, limit);
    for variant in split_by_plan(limit) {
        check_windows(cx, gateway, &variant.limit);
    }
    check_reserve(cx, gateway, limit);
    if !limit.is_quota() {
        check_elastic(cx, limit);
        check_log_size(cx, gateway, limit);
        check_algorithm(cx, limit);
    }
}

/// Reports a ban by a key that many clients share.
fn check_ban(cx: &mut LoadContext, limit: &LimitConfig) {
    let Some(ban) = &limit.ban else {
        return;
    };
    let key = limit.key_spec();
    if key.identities().all(|identity| identity == Identity::Plan) {
        let message =
            "this limit counts many clients together, so a ban would hold for all of them";
        let help = "count by ip or user too, for instance `key: ip`, or remove `ban`";
        cx.error(ban.location, message, Some(help.into()));
    }
}

/// Reports identities that the gateway file does not configure, or that stand twice in the key. Also reports an
/// identity that every request has, if another follows it, and `everyone` beside others.
fn check_key(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    let is_always_present = |identity: &Identity| match identity {
        Identity::Ip => true,
        Identity::Plan => has_default_plan(gateway),
        Identity::User | Identity::Token | Identity::Email | Identity::Custom(_) => false,
    };
    let mut earlier_identities = IdentitySet::default();
    for part in &limit.key {
        if part.value == KeyPartConfig::Everyone && limit.key.len() > 1 {
            let message = "`everyone` is a whole key: all clients count together";
            let help = "write `key: everyone`, or remove it from the list";
            cx.error(part.location, message, Some(help.into()));
        }
        let identities = part.value.identities();
        for identity in identities {
            let located = Located {
                value: *identity,
                location: part.location,
            };
            check_identity(cx, gateway, &located);
            if earlier_identities.contains(*identity) {
                let message = format!("`{}` is twice in this key", identity.as_str());
                cx.error(part.location, message, Some("remove one of them".into()));
            }
            earlier_identities.insert(*identity);
        }
        let before_last = identities
            .split_last()
            .map_or(&[][..], |(_, others)| others);
        if let Some(identity) = before_last
            .iter()
            .copied()
            .find(|identity| is_always_present(identity))
        {
            let name = identity.as_str();
            let message =
                format!("every request has `{name}`, so no request is counted by what follows it");
            let help = format!("put `{name}` last, or remove what follows it");
            cx.error(part.location, message, Some(help));
        }
    }
}

/// Reports conditions that do not fit the gateway file, and conditions that no counted client meets.
fn check_clients(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    for condition in limit.clients.conditions() {
        let identity = condition.value.identity;
        check_condition(cx, gateway, &condition);
        let name = identity.as_str();
        if condition.value.test == IdentityTest::Absent {
            let is_only_key = |part: &Located<KeyPartConfig>| part.value.identities() == [identity];
            if limit.key.len() == 1 && limit.key.iter().any(is_only_key) {
                let message =
                    format!("this limit counts by `{name}`, and is for clients without one");
                let help = format!("count by another identity, or remove `{name}: absent`");
                cx.error(condition.location, message, Some(help));
            }
        }
    }
}

/// Checks rates by plan: each client must have one, and the other fields of the limit must allow them.
pub(super) fn check_plan_rates(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    let Some(first_rates) = limit.rates.by_plan.first() else {
        return;
    };
    let plan = Located {
        value: Identity::Plan,
        location: first_rates.location,
    };
    check_identity(cx, gateway, &plan);
    let names = gateway.plans.iter().map(|plan| plan.name.value.as_str());
    for rates in &limit.rates.by_plan {
        if let Some(plan) = rates.plan.as_deref().filter(|_| !gateway.plans.is_empty())
            && !names.clone().any(|name| name == plan)
        {
            cx.report_unknown_plan(rates.location, plan, names.clone());
        }
    }
    if let Some(plans) = limit.plans.filter(|plans| plans.value) {
        let message = "the rates of this limit are by plan already";
        cx.error(plans.location, message, Some("remove `plans`".into()));
    }
    if let Some(throttle) = limit.throttle
        && throttle.value == ThrottleConfig::Elastic
    {
        let message = "an elastic limit lends above one rate, not above rates by plan";
        let help = "write a limit for each plan: `for: { plan: gold }`";
        cx.error(throttle.location, message, Some(help.into()));
    }
    if limit.rates.iter().next().is_none() {
        let help = "write a rate for at least one plan, or remove the limit";
        cx.error(
            first_rates.location,
            "this limit limits nobody",
            Some(help.into()),
        );
    }
    let has_rates = |name: Option<&str>| {
        let mut by_plan = limit.rates.by_plan.iter();
        by_plan.any(|rates| rates.plan.as_deref() == name)
    };
    if has_rates(None) {
        return;
    }
    let help = "add `else: RATE` for all other clients, or `else: unlimited`";
    if let Some(plan) = names.clone().find(|name| !has_rates(Some(name))) {
        let message = format!("the plan `{plan}` has no rate here");
        cx.error(first_rates.location, message, Some(help.into()));
    } else if !has_default_plan(gateway) {
        let message = "clients without a plan have no rate here";
        cx.error(first_rates.location, message, Some(help.into()));
    }
}

/// Checks a limit with the rates that a single key has in a file of overrides.
pub fn check_override(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    check_windows(cx, gateway, limit);
    check_reserve(cx, gateway, limit);
    check_log_size(cx, gateway, limit);
    check_algorithm(cx, limit);
}

/// Checks the rates of a limit: each has a window of its own, can be reached, and fits the counters.
pub(super) fn check_windows(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    let rates = &limit.rates.of_all;
    if rates.len() > MAX_WINDOWS {
        return; // This was reported when the rates were read.
    }
    let plan_factor = gateway.max_plan_factor(limit);
    for (index, rate) in rates.iter().enumerate() {
        let earlier_rates = &rates[..index];
        if let Some(other) = earlier_rates
            .iter()
            .find(|other| other.value.window() == rate.value.window())
        {
            let tighter = if other.value.quota() < rate.value.quota() {
                other
            } else {
                rate
            };
            let message = format!(
                "`{}` and `{}` have the same window",
                other.value, rate.value
            );
            cx.error(
                rate.location,
                message,
                Some(format!("keep `{}`: it is the tighter one", tighter.value)),
            );
        }
        let tighter_rate = rates
            .iter()
            .filter(|_| has_moving_windows(limit))
            .find(|other| rate_implies(other.value, rate.value));
        if let Some(tighter) = tighter_rate {
            let message = format!(
                "`{}` is never reached: `{}` is tighter",
                rate.value, tighter.value
            );
            cx.warn(
                rate.location,
                message,
                Some("remove it, or make it tighter".into()),
            );
        }
        let max_quota = u64::from(rate.value.quota()) * u64::from(plan_factor);
        if add_throttle(limit, max_quota) > u64::from(u32::MAX)
            || max_quota > u64::from(Rate::MAX_QUOTA)
        {
            let message = format!(
                "`{}`, with all that plans and the throttle add, is more than can be counted",
                rate.value
            );
            let help = format!("the most is {} in a window", Rate::MAX_QUOTA);
            cx.error(rate.location, message, Some(help));
        }
    }
}

/// Whether the limit admits at most its quota in every window, wherever the window begins. Only then does
/// [`rate_implies`] hold. The default algorithms have such windows.
fn has_moving_windows(limit: &LimitConfig) -> bool {
    limit
        .algorithm
        .is_none_or(|algorithm| algorithm.value.has_moving_windows())
}

/// Whether `tight` alone keeps the use within `loose`. False for rates of one window.
fn rate_implies(tight: Rate, loose: Rate) -> bool {
    if tight.window() >= loose.window() {
        return tight.window() > loose.window() && tight.quota() <= loose.quota();
    }
    let windows_to_cover = loose.window().0.div_ceil(tight.window().0);
    u64::from(tight.quota()).saturating_mul(windows_to_cover) <= u64::from(loose.quota())
}

/// Adds to `units` what a soft limit admits above the rate.
fn add_soft(limit: &LimitConfig, units: u64) -> u64 {
    match limit.throttle.map(|throttle| throttle.value) {
        Some(ThrottleConfig::Soft(percent)) => units + units * u64::from(percent) / 100,
        _ => units,
    }
}

/// Adds to `units` the most that a soft or elastic limit admits above the rate.
fn add_throttle(limit: &LimitConfig, units: u64) -> u64 {
    match limit.throttle.map(|throttle| throttle.value) {
        Some(ThrottleConfig::Elastic) => {
            let Some((rate, at_most)) = limit.elastic_rates() else {
                return units;
            };
            let rate_quota = u128::from(rate.quota().max(1));
            let raised = u128::from(units) * u128::from(at_most.quota()) / rate_quota;
            u64::try_from(raised).unwrap_or(u64::MAX)
        }
        _ => add_soft(limit, units),
    }
}

/// Checks the fields of an elastic limit, and reports `while` and `at_most` of a limit that is not elastic.
fn check_elastic(cx: &mut LoadContext, limit: &LimitConfig) {
    let elastic = limit
        .throttle
        .filter(|throttle| throttle.value == ThrottleConfig::Elastic);
    let Some(elastic) = elastic else {
        let help = "write `throttle: elastic`, or remove it";
        if let Some(condition) = &limit.condition {
            cx.error(
                condition.location,
                "`while` is for elastic limits",
                Some(help.into()),
            );
        }
        if let Some(at_most) = limit.at_most {
            cx.error(
                at_most.location,
                "`at_most` is for elastic limits",
                Some(help.into()),
            );
        }
        return;
    };
    if leaky_bucket(limit).is_some() {
        let message = "a leaky bucket delays instead of refusing, so there is nothing to lend";
        let help = "drop `algorithm`, or write `gcra`";
        cx.error(elastic.location, message, Some(help.into()));
    }
    if let Some(count) = limit
        .count
        .as_ref()
        .filter(|count| count.value.is_settled_later())
    {
        let message = "units that are known only after a request is admitted cannot be lent";
        let help = "remove `count`, or write `throttle: hard`";
        cx.error(count.location, message, Some(help.into()));
    }
    let Some(at_most) = limit.at_most else { return };
    check_at_most(cx, limit, at_most);
}

/// Checks that `at_most` has the window of a rate, and is not below that rate.
fn check_at_most(cx: &mut LoadContext, limit: &LimitConfig, at_most: Located<Rate>) {
    match limit.elastic_rates() {
        None => {
            let Some(rate) = limit.rates.of_all.first() else {
                return;
            };
            let message = format!("`{}` has another window than the rate", at_most.value);
            let help = format!("write `at_most` with the window of `{}`", rate.value);
            cx.error(at_most.location, message, Some(help));
        }
        Some((rate, raised)) if raised.quota() < rate.quota() => {
            let message = format!("`{raised}` is below the rate `{rate}`");
            cx.error(
                at_most.location,
                message,
                Some("`at_most` is what the limit may grow to".into()),
            );
        }
        _ => {}
    }
}

/// Checks that the limit counts a cost which is known later, and that a reservation fits into the limit.
fn check_reserve(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    let Some(reserve) = &limit.reserve else {
        return;
    };
    let count = limit.count.as_ref().map(|count| &count.value);
    if let Some(count) = count.filter(|count| count.is_cost() && !count.is_settled_later()) {
        let message = format!("with `count: {count}` each cost is known at once");
        let help = "remove `reserve`: nothing is held until later";
        cx.error(reserve.location, message, Some(help.into()));
        return;
    }
    if !count.is_some_and(CountMode::is_cost) {
        let message = "`reserve` is for limits with `count: cost …`";
        let help = "remove it: each request uses one unit at most";
        cx.error(reserve.location, message, Some(help.into()));
        return;
    }
    // Where rates are by plan, the reservation must fit those of one plan.
    let quotas_of = |variant: &LimitVariant| {
        let rates = variant.limit.rates.iter().map(|rate| rate.quota());
        rates.chain(limit.burst.map(|burst| burst.value)).min()
    };
    let variants = split_by_plan(limit);
    let Some(min_quota) = variants.iter().filter_map(quotas_of).max() else {
        return;
    };
    let units = u64::from(reserve.value.otherwise);
    let max_units = add_soft(limit, u64::from(min_quota));
    let max_units_with_plan = add_soft(
        limit,
        u64::from(min_quota) * u64::from(gateway.max_plan_factor(limit)),
    );
    if units > max_units_with_plan {
        let message =
            format!("a request that holds {units} units never passes: the limit has {max_units}");
        let help = format!("write at most {max_units_with_plan}, or a larger rate");
        cx.error(reserve.location, message, Some(help));
    } else if units > max_units {
        let message = format!(
            "a request without a plan that holds {units} units never passes: the limit has {max_units}"
        );
        let help = format!("write at most {max_units}, or a larger rate");
        cx.warn(reserve.location, message, Some(help));
    }
}

/// Checks that a sliding log has room for the quota.
pub(super) fn check_log_size(cx: &mut LoadContext, gateway: &GatewayConfig, limit: &LimitConfig) {
    let Some(log) = limit
        .algorithm
        .filter(|algorithm| algorithm.value == Algorithm::SlidingLog)
    else {
        return;
    };
    let plan_factor = u64::from(gateway.max_plan_factor(limit));
    let max_quota = limit
        .rates
        .iter()
        .map(|rate| u64::from(rate.quota()) * plan_factor)
        .max()
        .unwrap_or(0);
    if add_soft(limit, max_quota) > MAX_LOG_UNITS {
        let message = format!(
            "a sliding-log keeps at most {MAX_LOG_UNITS} units, with what plans and `soft` add"
        );
        let help = "use `algorithm: sliding-window`, which takes little memory whatever the rate";
        cx.error(log.location, message, Some(help.into()));
    }
}

/// The field `algorithm` if it says leaky-bucket.
fn leaky_bucket(limit: &LimitConfig) -> Option<Located<Algorithm>> {
    let is_leaky =
        |algorithm: &Located<Algorithm>| matches!(algorithm.value, Algorithm::LeakyBucket { .. });
    limit.algorithm.filter(is_leaky)
}

/// Checks `burst` and `delay`, which belong to one algorithm each, and what a leaky bucket cannot count or lend.
fn check_algorithm(cx: &mut LoadContext, limit: &LimitConfig) {
    let algorithm = limit.algorithm.map(|algorithm| algorithm.value);
    if let Some(burst) = limit.burst {
        if !matches!(algorithm, Some(Algorithm::Gcra { .. })) {
            let help = "write `algorithm: gcra`, or remove it";
            cx.error(
                burst.location,
                "`burst` is for the algorithm gcra",
                Some(help.into()),
            );
        } else if split_by_plan(limit)
            .iter()
            .any(|variant| variant.limit.rates.of_all.len() > 1)
        {
            let help = "write two limits, one with the burst";
            cx.error(
                burst.location,
                "`burst` needs a limit with a single rate",
                Some(help.into()),
            );
        }
    }
    let Some(leaky) = leaky_bucket(limit) else {
        if let Some(delay) = limit.delay {
            let help = "write `algorithm: leaky-bucket`, or remove it";
            cx.error(
                delay.location,
                "`delay` is for the algorithm leaky-bucket",
                Some(help.into()),
            );
        }
        return;
    };
    if let Some(count) = limit
        .count
        .as_ref()
        .filter(|count| !matches!(count.value, CountMode::All | CountMode::CostMessages))
    {
        let (message, help) = match count.value.is_settled_later() {
            true => (
                "leaky-bucket cannot count what is known only after a request is admitted",
                "remove `count`, or use another algorithm: it delays requests before they are forwarded",
            ),
            false => (
                "leaky-bucket holds back requests of one unit each",
                "remove `count`, or use another algorithm such as `gcra`",
            ),
        };
        cx.error(count.location, message, Some(help.into()));
    }
    if let Some(throttle) = limit
        .throttle
        .filter(|throttle| throttle.value != ThrottleConfig::Hard)
    {
        let message = "leaky-bucket holds back what is above the rate and lends nothing";
        cx.error(
            throttle.location,
            message,
            Some("write `throttle: hard`, or another algorithm".into()),
        );
    }
    if limit.is_shadow == Some(true) {
        let message = "a leaky-bucket in shadow mode holds nothing back";
        cx.warn(leaky.location, message, None);
    }
}
