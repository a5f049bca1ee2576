//! Checks whether the parts of one limit fit together, and whether it fits the gateway file.

use super::super::collect::Cx;
use super::super::model::{GatewayConfig, LimitConfig, Located, ThrottleConfig};
use super::identity::check_identity;
use super::sharing::check_sharing;
use crate::limit::{Algorithm, CountMode, MAX_WINDOWS, Rate};

/// Most units of an exact log.
const LARGEST_LOG: u64 = 65_535;

/// Reports everything about `limit` that does not fit together.
pub(super) fn check_limit(cx: &mut Cx, gateway: &GatewayConfig, limit: &LimitConfig) {
    for (index, part) in limit.key.iter().enumerate() {
        check_identity(cx, gateway, part);
        if limit.key[..index]
            .iter()
            .any(|other| other.value == part.value)
        {
            let message = format!("`{}` stands twice in this key", part.value.as_str());
            cx.error(part.place, message, Some("remove one of them".into()));
        }
    }
    let known = !gateway.plans.is_empty() && gateway.identity.plan.is_some();
    if let Some(plans) = limit.plans.filter(|plans| plans.value && !known) {
        let message = "`plans: true` needs plans, and a way to know a request's plan";
        let help =
            "add `plans:`, and for instance `plan: { jwt: plan, default: free }` to `identity`";
        cx.error(plans.place, message, Some(help.into()));
    }
    check_sharing(cx, gateway, limit);
    if limit.concurrent.is_some() && limit.rates.is_empty() {
        return check_concurrent(cx, limit);
    }
    check_windows(cx, gateway, limit);
    check_lending(cx, limit);
    check_reserve(cx, gateway, limit);
    check_log_size(cx, gateway, limit);
    check_algorithm(cx, limit);
}

/// Reports fields that have no meaning for a limit on open requests.
fn check_concurrent(cx: &mut Cx, limit: &LimitConfig) {
    let elastic = limit
        .throttle
        .filter(|at| at.value == ThrottleConfig::Elastic);
    let at_once = "remove it: a permit is held from the admission to the end of the answer";
    let lent = "write `hard`, or for instance `soft 10%`";
    let nothing = "remove it";
    let fields = [
        (limit.algorithm.map(|at| at.place), "`algorithm`", at_once),
        (limit.burst.map(|at| at.place), "`burst`", at_once),
        (limit.delay.map(|at| at.place), "`delay`", at_once),
        (limit.count.as_ref().map(|at| at.place), "`count`", at_once),
        (
            limit.reserve.as_ref().map(|at| at.place),
            "`reserve`",
            at_once,
        ),
        (elastic.map(|at| at.place), "`throttle: elastic`", lent),
        (
            limit.condition.as_ref().map(|at| at.place),
            "`while`",
            nothing,
        ),
        (limit.at_most.map(|at| at.place), "`at_most`", nothing),
    ];
    for (place, field, help) in fields {
        if let Some(place) = place {
            let message = format!("{field} is for limits with `rate`, not with `concurrent`");
            cx.error(place, message, Some(help.into()));
        }
    }
}

fn check_windows(cx: &mut Cx, gateway: &GatewayConfig, limit: &LimitConfig) {
    if limit.rates.len() > MAX_WINDOWS {
        return;
    }
    let multiply = gateway.max_multiply(limit);
    for (index, rate) in limit.rates.iter().enumerate() {
        let before = &limit.rates[..index];
        if let Some(other) = before
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
                rate.place,
                message,
                Some(format!("keep `{}`: it is the tighter one", tighter.value)),
            );
        }
        let implied = limit
            .rates
            .iter()
            .filter(|_| has_moving_windows(limit))
            .find(|other| implies(other.value, rate.value));
        if let Some(other) = implied {
            let message = format!(
                "`{}` is never reached: `{}` is tighter",
                rate.value, other.value
            );
            cx.warn(
                rate.place,
                message,
                Some("remove it, or make it tighter".into()),
            );
        }
        let most = u64::from(rate.value.quota()) * u64::from(multiply);
        if with_lent(limit, most) > u64::from(u32::MAX) || most > u64::from(Rate::MAX_QUOTA) {
            let message = format!(
                "`{}`, with all that plans and the throttle add, is more than can be counted",
                rate.value
            );
            let help = format!("the most is {} in a window", Rate::MAX_QUOTA);
            cx.error(rate.place, message, Some(help));
        }
    }
}

/// Whether no window whatever has more than its quota; `implies` counts on that.
fn has_moving_windows(limit: &LimitConfig) -> bool {
    limit
        .algorithm
        .is_none_or(|algorithm| algorithm.value.has_moving_windows())
}

/// Whether `tight` alone keeps the use below `loose`.
fn implies(tight: Rate, loose: Rate) -> bool {
    if tight.window() >= loose.window() {
        return tight.window() > loose.window() && tight.quota() <= loose.quota();
    }
    // So many of the shorter windows cover a longer one.
    let windows = loose.window().0.div_ceil(tight.window().0);
    u64::from(tight.quota()).saturating_mul(windows) <= u64::from(loose.quota())
}

/// `units` with what a soft limit adds.
fn with_soft(limit: &LimitConfig, units: u64) -> u64 {
    match limit.throttle.map(|throttle| throttle.value) {
        Some(ThrottleConfig::Soft(percent)) => units + units * u64::from(percent) / 100,
        _ => units,
    }
}

/// `units` with the most that the throttle adds or lends.
fn with_lent(limit: &LimitConfig, units: u64) -> u64 {
    match limit.throttle.map(|throttle| throttle.value) {
        Some(ThrottleConfig::Elastic) => {
            let Some((rate, most)) = limit.growth() else {
                return units;
            };
            let of = u128::from(rate.quota().max(1));
            let lent = u128::from(units) * u128::from(most.quota()) / of;
            u64::try_from(lent).unwrap_or(u64::MAX)
        }
        _ => with_soft(limit, units),
    }
}

/// `soft` and `elastic` with what belongs to them.
fn check_lending(cx: &mut Cx, limit: &LimitConfig) {
    let elastic = limit
        .throttle
        .filter(|throttle| throttle.value == ThrottleConfig::Elastic);
    let Some(elastic) = elastic else {
        let help = "write `throttle: elastic`, or remove it";
        if let Some(condition) = &limit.condition {
            cx.error(
                condition.place,
                "`while` is for elastic limits",
                Some(help.into()),
            );
        }
        if let Some(at_most) = limit.at_most {
            cx.error(
                at_most.place,
                "`at_most` is for elastic limits",
                Some(help.into()),
            );
        }
        return;
    };
    if leaky_bucket(limit).is_some() {
        let message = "a leaky bucket delays instead of refusing, so there is nothing to lend";
        let help = "drop `algorithm`, or write `gcra`";
        cx.error(elastic.place, message, Some(help.into()));
    }
    if let Some(count) = limit.count.as_ref().filter(|at| at.value.needs_response()) {
        let message = "what is counted by the answer cannot be lent before it is there";
        let help = "remove `count`, or write `throttle: hard`";
        cx.error(count.place, message, Some(help.into()));
    }
    if !limit.has_while {
        let help = "add for instance `while: upstream.load < 0.7`";
        cx.error(
            elastic.place,
            "an elastic limit needs `while`",
            Some(help.into()),
        );
    }
    if !limit.has_at_most {
        let help = "add for instance `at_most: 300/m`";
        cx.error(
            elastic.place,
            "an elastic limit needs `at_most`",
            Some(help.into()),
        );
    }
    let Some(at_most) = limit.at_most else { return };
    check_at_most(cx, limit, at_most);
}

/// Whether `at_most` lies above the rate of the same window.
fn check_at_most(cx: &mut Cx, limit: &LimitConfig, at_most: Located<Rate>) {
    match limit.growth() {
        None if !limit.rates.is_empty() => {
            let message = format!("`{}` has another window than the rate", at_most.value);
            let help = format!(
                "write `at_most` with the window of `{}`",
                limit.rates[0].value
            );
            cx.error(at_most.place, message, Some(help));
        }
        Some((rate, most)) if most.quota() < rate.quota() => {
            let message = format!("`{most}` is below the rate `{rate}`");
            cx.error(
                at_most.place,
                message,
                Some("`at_most` is what the limit may grow to".into()),
            );
        }
        _ => {}
    }
}

/// Checks that a reservation fits into the limit, and that the limit counts a cost.
fn check_reserve(cx: &mut Cx, gateway: &GatewayConfig, limit: &LimitConfig) {
    let Some(reserve) = &limit.reserve else {
        return;
    };
    if !limit.count.as_ref().is_some_and(|at| at.value.is_cost()) {
        let message = "`reserve` is for limits with `count: cost …`";
        let help = "remove it: each request uses one unit at most";
        cx.error(reserve.place, message, Some(help.into()));
        return;
    }
    let rates = limit.rates.iter().map(|rate| rate.value.quota());
    let quotas = rates.chain(limit.burst.map(|burst| burst.value));
    let Some(least) = quotas.min() else { return };
    let units = u64::from(reserve.value.otherwise);
    let most = with_soft(limit, u64::from(least));
    let with_plans = with_soft(
        limit,
        u64::from(least) * u64::from(gateway.max_multiply(limit)),
    );
    if units > with_plans {
        let message =
            format!("a request that holds {units} units never passes: the limit has {most}");
        let help = format!("write at most {with_plans}, or a larger rate");
        cx.error(reserve.place, message, Some(help));
    } else if units > most {
        let message = format!(
            "a request without a plan that holds {units} units never passes: the limit has {most}"
        );
        let help = format!("write at most {most}, or a larger rate");
        cx.warn(reserve.place, message, Some(help));
    }
}

/// An exact log has room for so many units; with more it would admit less than the rate says.
fn check_log_size(cx: &mut Cx, gateway: &GatewayConfig, limit: &LimitConfig) {
    let Some(log) = limit
        .algorithm
        .filter(|algorithm| algorithm.value == Algorithm::SlidingLog)
    else {
        return;
    };
    let multiply = u64::from(gateway.max_multiply(limit));
    let most = limit
        .rates
        .iter()
        .map(|rate| u64::from(rate.value.quota()) * multiply)
        .max();
    let most = most.unwrap_or(0);
    if with_soft(limit, most) > LARGEST_LOG {
        let message = format!(
            "a sliding-log keeps at most {LARGEST_LOG} units, with what plans and `soft` add"
        );
        let help = "use `algorithm: sliding-window`, which takes little memory whatever the rate";
        cx.error(log.place, message, Some(help.into()));
    }
}

fn leaky_bucket(limit: &LimitConfig) -> Option<Located<Algorithm>> {
    let is_leaky = |at: &Located<Algorithm>| matches!(at.value, Algorithm::LeakyBucket { .. });
    limit.algorithm.filter(is_leaky)
}

/// The algorithm with what belongs to it.
fn check_algorithm(cx: &mut Cx, limit: &LimitConfig) {
    let algorithm = limit.algorithm.map(|algorithm| algorithm.value);
    if let Some(burst) = limit.burst {
        if !matches!(algorithm, Some(Algorithm::Gcra { .. })) {
            let help = "write `algorithm: gcra`, or remove it";
            cx.error(
                burst.place,
                "`burst` is for the algorithm gcra",
                Some(help.into()),
            );
        } else if limit.rates.len() > 1 {
            let help = "write two limits, one with the burst";
            cx.error(
                burst.place,
                "`burst` needs a limit with a single rate",
                Some(help.into()),
            );
        }
    }
    let Some(leaky) = leaky_bucket(limit) else {
        if let Some(delay) = limit.delay {
            let help = "write `algorithm: leaky-bucket`, or remove it";
            cx.error(
                delay.place,
                "`delay` is for the algorithm leaky-bucket",
                Some(help.into()),
            );
        }
        return;
    };
    if !limit.has_delay {
        let help = "add for instance `delay: 500ms`: what would wait longer is refused";
        cx.error(leaky.place, "leaky-bucket needs `delay`", Some(help.into()));
    }
    if let Some(count) = limit
        .count
        .as_ref()
        .filter(|count| count.value != CountMode::All)
    {
        let message = "leaky-bucket cannot count what is known only from the answer";
        let help = "remove `count`, or use another algorithm: it holds requests back before they are answered";
        cx.error(count.place, message, Some(help.into()));
    }
    if let Some(throttle) = limit
        .throttle
        .filter(|throttle| throttle.value != ThrottleConfig::Hard)
    {
        let message = "leaky-bucket holds back what is above the rate and lends nothing";
        cx.error(
            throttle.place,
            message,
            Some("write `throttle: hard`, or another algorithm".into()),
        );
    }
    if limit.shadow {
        let message = "a leaky-bucket in shadow mode holds nothing back";
        cx.warn(leaky.place, message, None);
    }
}
