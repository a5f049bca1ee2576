//! The guarantee of a limit as a sentence for `explain` and the docs, and the memory that one of its keys needs.

use super::{
    Algorithm, Alignment, CountMode, Rate, RateLimit, RequestCost, Rule, RuleLimit, multi_level,
    sliding_window,
};
use crate::base::clock::Nanos;

/// The bytes of an entry in the store's table, with a share of the free entries at the usual fill.
const TABLE_ENTRY_BYTES: usize = 22;
/// An allowance for rounding a state up to the sizes of the arena's blocks.
const BLOCK_OVERHEAD_BYTES: usize = 4;

impl Rule {
    /// What the limit guarantees, as one sentence without a full stop. Of a limit on cost the sentence says
    /// what a request or message counts, or what requests in flight may add. It also says how many keys have overrides.
    pub fn guarantee(&self) -> String {
        let guarantee = self.guarantee_of_limit();
        match self
            .overrides
            .as_ref()
            .map(|overrides| overrides.set.keys.len())
        {
            None | Some(0) => guarantee,
            Some(1) => guarantee + "; one key has a limit of its own",
            Some(count) => format!("{guarantee}; {count} keys have limits of their own"),
        }
    }

    /// The guarantee for keys without a limit of their own.
    fn guarantee_of_limit(&self) -> String {
        let (RuleLimit::Rate(limit), true) = (&self.limit, self.count.is_cost()) else {
            return self.limit.guarantee();
        };
        if self.count == CountMode::CostMessages {
            let guarantee = limit.guarantee();
            return format!("{guarantee}; each WebSocket message of a client counts as a request");
        }
        if let CountMode::CostRequest(cost) = &self.count {
            let units = match cost {
                RequestCost::Json(path) => {
                    format!("the number at `{}` of its body", path.join("."))
                }
                RequestCost::Items => String::from("the items of its batch"),
            };
            return format!("{}; a request counts {units}", limit.guarantee());
        }
        if let Some(reserve) = &self.reserve {
            let excess = match reserve.source {
                None => format!(
                    "costs more than the {} units that it reserves",
                    reserve.otherwise
                ),
                Some(_) => format!("costs more than it reserves ({reserve})"),
            };
            return format!(
                "{}; a request that {excess} may pass that by the rest",
                limit.guarantee()
            );
        }
        let (unit, cost) = match self.count {
            CountMode::CostBytes(_) => (" bytes", "bytes"),
            _ => ("", "cost"),
        };
        let windows = limit.windows.iter().map(|rate| match rate.is_credits() {
            true => format_credits(rate),
            false => format!("{}{unit} in {}", rate.quota(), format_window(rate)),
        });
        format!(
            "admits until {} are used; each request in flight may pass that by its own {cost}: add `reserve`",
            windows.collect::<Vec<_>>().join(" or ")
        )
    }
}

impl RateLimit {
    /// What the limit guarantees, as one sentence without a full stop. Plans multiply the numbers.
    pub fn guarantee(&self) -> String {
        let windows: Vec<String> = self
            .windows
            .iter()
            .map(|rate| self.window_guarantee(rate))
            .collect();
        windows.join(" and ") + &self.throttle.guarantee_suffix()
    }

    /// The guarantee of one window at the plan multiplier 1, without what the throttle adds.
    fn window_guarantee(&self, rate: &Rate) -> String {
        let (quota, span) = (rate.quota(), format_span(rate.window()));
        match self.algorithm {
            Algorithm::SlidingLog => format!("never more than {quota} in any {span}"),
            Algorithm::SlidingWindow => {
                let bucket_count = f64::from(sliding_window::BUCKETS);
                // All buckets of a window count, and the one that is leaving it.
                let min_steady = f64::from(quota) * bucket_count / (bucket_count + 1.0);
                let min_steady = (min_steady * 10.0).floor() / 10.0;
                format!(
                    "never more than {quota} in any {span}, a steady client gets at least {min_steady}"
                )
            }
            Algorithm::MultiLevel => {
                let bucket_span = format_span(multi_level::bucket_length(rate.window()));
                format!(
                    "never more than {quota} in any {span}, a unit counts for up to {bucket_span} longer"
                )
            }
            Algorithm::FixedWindow if rate.is_credits() => {
                format!("never more than {}", format_credits(rate))
            }
            Algorithm::FixedWindow if rate.calendar().is_some() => {
                format!("never more than {quota} in {}", format_window(rate))
            }
            Algorithm::FixedWindow if rate.alignment() == Alignment::Clock => format!(
                "never more than {quota} in a {span} of the clock, up to {} in some {span}",
                u64::from(quota) * 2
            ),
            Algorithm::FixedWindow => format!(
                "never more than {quota} in a {span} that stands still, up to {} in some {span}",
                u64::from(quota) * 2
            ),
            Algorithm::Gcra { burst } => {
                let burst = u64::from(burst.unwrap_or(quota));
                let interval = rate.interval(1).nanos();
                let max_units = burst + rate.window().0.div_ceil(interval) - 1;
                format!(
                    "never more than {burst} at once, then one each {}, up to {max_units} in some {span}",
                    format_span(Nanos(interval))
                )
            }
            Algorithm::LeakyBucket { max_delay } => format!(
                "one each {}, early ones held back for at most {}",
                format_span(Nanos(rate.interval(1).nanos())),
                format_span(max_delay)
            ),
        }
    }

    /// Estimates the bytes of memory of a key that has used all of its units.
    pub fn bytes_per_key(&self) -> usize {
        let block_bytes = if self.is_inline() {
            0
        } else {
            self.max_words() * size_of::<u32>() + BLOCK_OVERHEAD_BYTES
        };
        TABLE_ENTRY_BYTES + block_bytes
    }
}

/// Formats the credits of a key, or of all keys of a limit.
fn format_credits(rate: &Rate) -> String {
    match rate.quota() {
        0 => "the credits that operators add to a key".to_owned(),
        quota => format!("its {quota} credits"),
    }
}

/// Formats the windows of a rate, as in `any 60 s` or `a month from the 15th, Europe/Berlin`.
fn format_window(rate: &Rate) -> String {
    match rate.calendar() {
        Some(calendar) => format!("a {calendar}"),
        None => format!("any {}", format_span(rate.window())),
    }
}

/// Formats a duration in the largest unit that it reaches, as in `60 s` or `1.5 ms`.
fn format_span(span: Nanos) -> String {
    let units = [
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let is_reached = |(unit_nanos, _): &(u64, &str)| span.0 >= *unit_nanos;
    let (unit_nanos, unit) = units.into_iter().find(is_reached).unwrap_or((1, "ns"));
    if span.0.is_multiple_of(unit_nanos) {
        format!("{} {unit}", span.0 / unit_nanos)
    } else {
        let text = format!("{:.3}", span.0 as f64 / unit_nanos as f64);
        format!(
            "{} {unit}",
            text.trim_end_matches('0').trim_end_matches('.')
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{
        BodyDirection, Identity, LimitGrant, LimitName, Reserve, ReserveSource, ThrottleMode,
    };

    #[track_caller]
    fn check(rates: &[&str], algorithm: Algorithm, throttle: ThrottleMode, expected: &str) {
        let windows = rates.iter().map(|rate| rate.parse().unwrap()).collect();
        let limit = RateLimit {
            windows,
            algorithm,
            throttle,
            reserves: false,
            max_plan_factor: 1,
        };
        assert_eq!(limit.guarantee(), expected);
    }

    #[test]
    fn where_responses_say_the_cost() {
        let limit = RateLimit::hard("100/m".parse().unwrap());
        let name = LimitName::new("units").unwrap();
        let mut rule = Rule::new(name, 0, &[Identity::Ip], limit);
        let hard = "never more than 100 in any 60 s";
        assert_eq!(rule.guarantee(), hard);
        rule.count = CountMode::CostHeader("x-cost".parse().unwrap());
        let open = "admits until 100 in any 60 s are used; each request in flight may pass that by its own cost: add `reserve`";
        assert_eq!(rule.guarantee(), open);
        let credits = Rule {
            limit: RateLimit::of_credits(true).into(),
            ..rule.clone()
        };
        let open = "admits until the credits that operators add to a key are used; each request in flight may pass that by its own cost: add `reserve`";
        assert_eq!(credits.guarantee(), open);
        let reserve = |source| Reserve {
            source,
            otherwise: 9,
        };
        rule.reserve = Some(reserve(None));
        let more =
            "a request that costs more than the 9 units that it reserves may pass that by the rest";
        assert_eq!(rule.guarantee(), format!("{hard}; {more}"));
        rule.reserve = Some(reserve(Some(ReserveSource::Header(
            "x-max".parse().unwrap(),
        ))));
        let more = "a request that costs more than it reserves (header x-max else 9) may pass that by the rest";
        assert_eq!(rule.guarantee(), format!("{hard}; {more}"));
    }

    #[test]
    fn credits_are_promised_without_a_time() {
        let check = |units: u32, count: CountMode, expected: &str| {
            let grant = LimitGrant {
                times: 1,
                add: units,
            };
            let limit = RuleLimit::from(RateLimit::of_credits(false)).granted(grant);
            let name = LimitName::new("units").unwrap();
            let mut rule = Rule::new(name, 0, &[Identity::Ip], RateLimit::of_credits(false));
            rule.limit = limit.unwrap();
            rule.count = count;
            assert_eq!(rule.guarantee(), expected);
        };
        let of_keys = "never more than the credits that operators add to a key";
        check(0, CountMode::All, of_keys);
        check(5_000, CountMode::All, "never more than its 5000 credits");
        let bytes = |end: &str| {
            format!(
                "admits until {end} are used; each request in flight may pass that by its own bytes: add `reserve`"
            )
        };
        let count = CountMode::CostBytes(BodyDirection::Out);
        check(
            0,
            count.clone(),
            &bytes("the credits that operators add to a key"),
        );
        check(5_000, count, &bytes("its 5000 credits"));
    }

    #[test]
    fn where_requests_state_the_cost() {
        let check = |count: CountMode, expected: &str| {
            let limit = RateLimit::hard("100/m".parse().unwrap());
            let name = LimitName::new("units").unwrap();
            let mut rule = Rule::new(name, 0, &[Identity::Ip], limit);
            rule.count = count;
            assert_eq!(rule.guarantee(), expected);
        };
        let path = ["a".to_owned(), "b".to_owned()].into();
        check(
            CountMode::CostRequest(RequestCost::Json(path)),
            "never more than 100 in any 60 s; a request counts the number at `a.b` of its body",
        );
        check(
            CountMode::CostRequest(RequestCost::Items),
            "never more than 100 in any 60 s; a request counts the items of its batch",
        );
        check(
            CountMode::CostMessages,
            "never more than 100 in any 60 s; each WebSocket message of a client counts as a request",
        );
        check(
            CountMode::CostBytes(BodyDirection::Out),
            "admits until 100 bytes in any 60 s are used; each request in flight may pass that by its own bytes: add `reserve`",
        );
    }

    #[test]
    fn guarantees_of_algorithms() {
        let hard = ThrottleMode::Hard;
        let two = "never more than 10 in any 1 s and never more than 600 in any 3600 s";
        check(&["10/s", "600/h"], Algorithm::SlidingLog, hard, two);
        let soft = "never more than 100 in any 60 s; up to 10 % more admitted and marked";
        check(
            &["100/m"],
            Algorithm::SlidingLog,
            ThrottleMode::Soft { percent: 10 },
            soft,
        );
        let window = "never more than 100 in any 60 s, a steady client gets at least 98.3";
        check(&["100/m"], Algorithm::SlidingWindow, hard, window);
        let level = "never more than 100 in any 86400 s, a unit counts for up to 3600 s longer";
        check(&["100/d"], Algorithm::MultiLevel, hard, level);
        let fixed = "never more than 5 in a 60 s that stands still, up to 10 in some 60 s";
        check(&["5/m"], Algorithm::FixedWindow, hard, fixed);
        let gcra = "never more than 60 at once, then one each 1 s, up to 119 in some 60 s";
        check(&["60/m"], Algorithm::Gcra { burst: None }, hard, gcra);
        let leaky = "one each 333.333 ms, early ones held back for at most 2 s";
        let max_delay = Nanos::from_secs(2);
        check(&["3/s"], Algorithm::LeakyBucket { max_delay }, hard, leaky);
    }
}
