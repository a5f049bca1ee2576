//! One limit, of the gateway file or of a policy.

use std::time::Duration;

use super::super::collect::Cx;
use super::super::model::{LimitConfig, LimitRoutes, Located};
use super::super::table::{Form, MapFields, Table, ValueShape, either, may, must, words};
use super::super::tree::{MapKey, Node};
use super::ValueError;
use super::leaf::{DURATION, IDENTITIES, RATE, parse_name};
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, Disclose, MAX_WINDOWS, OnStoreError, Rate, Sharing};

mod phrase;

use phrase::{condition, count, reserve, throttle};

/// Most permits of a key as written: with the largest plan and all that `soft` lends it still fits 32
/// bits.
const MOST_OPEN: u64 = 100_000;

static THROTTLE: Form = Form {
    name: "throttle",
    pattern: r"^\s*(hard|soft\s+[0-9]+\s*%|elastic)\s*$",
    doc: "What happens above the rate: hard, soft P% or elastic.",
};

static CONDITION: Form = Form {
    name: "condition",
    pattern: r"^\s*(upstream\.load|upstream\.latency\.p(50|90)|gateway\.cpu)\s*<\s*[^\s<]+(\s+and\s+(upstream\.load|upstream\.latency\.p(50|90)|gateway\.cpu)\s*<\s*[^\s<]+)*\s*$",
    doc: "While what an elastic limit lends, for instance upstream.load < 0.7.",
};

static COUNT: Form = Form {
    name: "count",
    pattern: r"^\s*(all|status\s+[1-5][0-9][0-9](-[1-5][0-9][0-9])?|cost\s+(header|json)\s+\S+)\s*$",
    doc: "What uses the limit up: all, status 401, status 400-499, cost header NAME, cost json PATH.",
};

static RESERVE: Form = Form {
    name: "reserve",
    pattern: r"^\s*(json|header)\s+\S+\s+else\s+[0-9]+\s*$",
    doc: "Where a request says how many: json PATH else 4000 (of its body), header NAME else 4000.",
};

/// The algorithms by the names that files use, without their parameters.
const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("sliding-log", Algorithm::SlidingLog),
    ("sliding-window", Algorithm::SlidingWindow),
    ("multi-level", Algorithm::MultiLevel),
    ("fixed-window", Algorithm::FixedWindow),
    ("gcra", Algorithm::Gcra { burst: None }),
    (
        "leaky-bucket",
        Algorithm::LeakyBucket {
            max_delay: Nanos(0),
        },
    ),
];

const ROUTES: [(&str, LimitRoutes); 4] = [
    ("all", LimitRoutes::All),
    ("each", LimitRoutes::Each),
    ("listed", LimitRoutes::Listed),
    ("each-listed", LimitRoutes::EachListed),
];

/// One limit.
pub static LIMIT: Table = Table {
    name: "a limit",
    doc: "How many requests of one key are admitted in how long, or are open at once.",
    fields: &[
        must(
            "key",
            ValueShape::Many(&ValueShape::Words(IDENTITIES)),
            "What it is counted by; of a list the parts that are there make one key.",
            "[ip, email]",
        ),
        either(
            "rate",
            ValueShape::Many(&ValueShape::Form(&RATE)),
            "How many in how long; of a list every one holds.",
            "[10/s, 600/h]",
        ),
        either(
            "concurrent",
            ValueShape::Whole(1, MOST_OPEN),
            "How many may be open at once, from their admission to the end of their answers.",
            "10",
        ),
        may(
            "throttle",
            ValueShape::Form(&THROTTLE),
            "What happens above the rate. Default: hard.",
            "soft 10%",
        ),
        may(
            "while",
            ValueShape::Form(&CONDITION),
            "While what an elastic limit lends.",
            "upstream.load < 0.7",
        ),
        may(
            "at_most",
            ValueShape::Form(&RATE),
            "How much an elastic limit lends at most.",
            "300/m",
        ),
        may(
            "algorithm",
            ValueShape::Words(&words(&ALGORITHMS)),
            "How use is remembered. Default: sliding-log up to 1024, sliding-window above.",
            "gcra",
        ),
        may(
            "burst",
            ValueShape::Whole(1, 1_000_000_000),
            "Units that may come at once; for gcra.",
            "20",
        ),
        may(
            "delay",
            ValueShape::Form(&DURATION),
            "The longest that a request is held back; for leaky-bucket.",
            "500ms",
        ),
        may(
            "count",
            ValueShape::Form(&COUNT),
            "What uses the limit up. Default: all.",
            "status 401",
        ),
        may(
            "reserve",
            ValueShape::Either(&[
                ValueShape::Whole(1, Rate::MAX_QUOTA as u64),
                ValueShape::Form(&RESERVE),
            ]),
            "With a cost: units that a request holds from its admission until its cost is known, and is charged if it never is. Default: 1.",
            "json max_tokens else 4000",
        ),
        may(
            "plans",
            ValueShape::Flag,
            "Whether plans multiply it.",
            "true",
        ),
        may(
            "mode",
            ValueShape::Words(&["enforce", "shadow"]),
            "shadow counts and reports without refusing.",
            "shadow",
        ),
        may(
            "exempt",
            ValueShape::Many(&ValueShape::Form(&super::leaf::NETWORK)),
            "Addresses that it does not apply to.",
            "[10.0.0.0/8]",
        ),
        may(
            "disclose",
            ValueShape::Words(&["all", "none"]),
            "none hides it from clients.",
            "none",
        ),
        may(
            "on_store_error",
            ValueShape::Words(&["local", "open", "closed"]),
            "What holds while the store cannot be reached. Default: local.",
            "local",
        ),
        may(
            "sharing",
            ValueShape::Words(&["strict", "leased", "local"]),
            "How gateways with one store share it. Default: leased for windows from 10s, else strict.",
            "strict",
        ),
        may(
            "routes",
            ValueShape::Words(&words(&ROUTES)),
            "Of a limit in the gateway file: `all` counts every route together, `each` counts each one for itself; `listed` and `each-listed` do so only for routes that list it by name. Default: all.",
            "listed",
        ),
    ],
};

/// Reads the limit that is written under `named`; `gateway` is set in the gateway file.
pub fn limit(cx: &mut Cx, named: &MapKey, node: &Node, gateway: bool) -> Option<LimitConfig> {
    let name = match parse_name(&named.text, "a limit") {
        Ok(value) => Some(Located {
            value,
            place: named.place,
        }),
        Err(ValueError { message, help, .. }) => {
            cx.error(named.place, message, help);
            None
        }
    };
    let fields = LIMIT.open_as(cx, node, named)?;
    let routes = routes(cx, &fields, gateway);
    let on_error = [
        OnStoreError::Local,
        OnStoreError::Open,
        OnStoreError::Closed,
    ];
    let on_error = on_error.map(|each| (each.as_str(), each));
    let sharing = [Sharing::Strict, Sharing::Leased, Sharing::Local];
    let sharing = sharing.map(|each| (each.as_str(), each));
    let mut limit = LimitConfig {
        key: fields
            .get("key")
            .map_or_else(Vec::new, |node| cx.many(node, Cx::identity)),
        rates: fields
            .get("rate")
            .map_or_else(Vec::new, |node| rates(cx, node)),
        concurrent: concurrent(cx, &fields),
        throttle: None,
        condition: None,
        at_most: fields.get("at_most").and_then(|node| cx.rate(node)),
        has_while: fields.has("while"),
        has_at_most: fields.has("at_most"),
        has_delay: fields.has("delay"),
        algorithm: word(cx, &fields, "algorithm", &ALGORITHMS),
        burst: None,
        delay: None,
        count: None,
        reserve: None,
        plans: fields.get("plans").and_then(|node| cx.flag(node)),
        shadow: word(cx, &fields, "mode", &[("enforce", false), ("shadow", true)])
            .is_some_and(|shadow| shadow.value),
        exempt: fields
            .get("exempt")
            .map_or_else(Vec::new, |node| cx.networks(node)),
        disclose: word(
            cx,
            &fields,
            "disclose",
            &[("all", Disclose::All), ("none", Disclose::None)],
        )
        .map_or(Disclose::All, |disclose| disclose.value),
        sharing: word(cx, &fields, "sharing", &sharing),
        on_store_error: word(cx, &fields, "on_store_error", &on_error)
            .map_or(OnStoreError::Local, |on_error| on_error.value),
        routes,
        name: name?,
    };
    phrases(cx, &fields, &mut limit);
    Some(limit)
}

/// The field, one of a fixed set of words.
fn word<T: Copy>(
    cx: &mut Cx,
    fields: &MapFields<'_>,
    name: &str,
    words: &[(&'static str, T)],
) -> Option<Located<T>> {
    fields.get(name).and_then(|node| cx.word(node, words))
}

/// The fields with a small language of their own.
fn phrases(cx: &mut Cx, fields: &MapFields<'_>, limit: &mut LimitConfig) {
    if let Some(node) = fields.get("throttle") {
        limit.throttle = cx.read(node, "hard, soft P% or elastic", throttle);
    }
    if let Some(node) = fields.get("while") {
        limit.condition = cx.read(node, "a condition such as upstream.load < 0.7", condition);
    }
    if let Some(node) = fields.get("count") {
        limit.count = cx.read(node, "what is counted, such as all or status 401", count);
    }
    if let Some(node) = fields.get("reserve") {
        limit.reserve = cx.read(node, "units, or where a request says how many", reserve);
    }
    if let Some(node) = fields.get("burst") {
        let burst = cx.whole(node, 1, u64::from(Rate::MAX_QUOTA));
        limit.burst = burst.map(|at| at.map(|units| u32::try_from(units).unwrap_or(u32::MAX)));
    }
    if let Some(node) = fields.get("delay") {
        let delay = cx.span(node, Duration::from_millis(1), Duration::from_secs(60));
        limit.delay = delay.map(|at| at.map(Nanos::from));
    }
}

/// Reads `routes`, which a limit of the gateway file may have.
fn routes(cx: &mut Cx, fields: &MapFields<'_>, gateway: bool) -> LimitRoutes {
    if !gateway && fields.has("routes") {
        let help = "remove it: a policy's own limit counts for this route alone";
        cx.error(
            fields.place_of("routes"),
            "`routes` is for limits in the gateway file",
            Some(help.into()),
        );
    }
    word(cx, fields, "routes", &ROUTES).map_or_else(LimitRoutes::default, |routes| routes.value)
}

fn concurrent(cx: &mut Cx, fields: &MapFields<'_>) -> Option<Located<u32>> {
    let node = fields.get("concurrent")?;
    if fields.has("rate") {
        let place = fields.place_of("concurrent");
        let help = "write two limits with names of their own, one with each";
        cx.error(
            place,
            "a limit has `rate` or `concurrent`, not both",
            Some(help.into()),
        );
    }
    let most = cx.whole(node, 1, MOST_OPEN)?;
    Some(most.map(|most| u32::try_from(most).unwrap_or(u32::MAX)))
}

fn rates(cx: &mut Cx, node: &Node) -> Vec<Located<Rate>> {
    let rates = cx.many(node, |cx, node| cx.rate(node));
    if rates.len() > MAX_WINDOWS {
        let message = format!("a limit has at most {MAX_WINDOWS} rates");
        cx.error(
            node.place,
            message,
            Some("drop those that the others imply".into()),
        );
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::pressure::Condition;

    /// Editors must not mark a condition that a run takes, nor pass one that it refuses.
    #[test]
    fn the_schema_takes_the_conditions_that_are_read() {
        let pattern = regex_lite::Regex::new(CONDITION.pattern).unwrap();
        for text in [
            "upstream.load < 0.7",
            "upstream.load<30%  and\tupstream.latency.p50<0.021s",
            "upstream.latency.p90 < 200ms and gateway.cpu < 80%",
            "load < 0.7",
            "upstream.latency.p99 < 1s",
            "upstream.load < 0.7 or gateway.cpu < 80%",
            "upstream.load < 0.7 and",
        ] {
            let is_read = Condition::parse(text).is_ok();
            assert_eq!(pattern.is_match(text), is_read, "{text}");
        }
    }
}
