//! Reads one limit, of the gateway file or of a policy. Whether its fields fit together is checked later, because that
//! depends on the store and the plans.

use std::time::Duration;

use super::super::context::LoadContext;
use super::super::model::{LimitConfig, LimitRoutes, Located};
use super::super::table::{
    MapFields, Table, TextFormat, ValueShape, alternative, optional, required, words,
};
use super::super::tree::{MapKey, Node};
use super::ValueError;
use super::scalar::{DURATION_FORMAT, IDENTITY_WORDS, NETWORK_FORMAT, RATE_FORMAT, parse_name};
use crate::base::clock::Nanos;
use crate::limit::{Algorithm, Disclose, MAX_WINDOWS, OnStoreError, Rate, Sharing};

mod phrase;

use phrase::{parse_condition, parse_count, parse_reserve, parse_throttle};

/// Maximum value of `concurrent`. Multiplied by the largest plan and raised by `soft`, it still fits 32 bits.
const MAX_CONCURRENT: u64 = 100_000;

/// Minimum of `delay`: the resolution of its unit.
const MIN_DELAY: Duration = Duration::from_millis(1);
/// Maximum of `delay`: most clients do not wait longer for a response.
const MAX_DELAY: Duration = Duration::from_secs(60);

static THROTTLE_FORMAT: TextFormat = TextFormat {
    name: "throttle",
    pattern: r"^\s*(hard|soft\s+[0-9]+\s*%|elastic)\s*$",
    doc: "What happens above the rate: hard, soft P% or elastic.",
};

static CONDITION_FORMAT: TextFormat = TextFormat {
    name: "condition",
    pattern: r"^\s*(upstream\.load|upstream\.latency\.p(50|90)|gateway\.cpu)\s*<\s*[^\s<]+(\s+and\s+(upstream\.load|upstream\.latency\.p(50|90)|gateway\.cpu)\s*<\s*[^\s<]+)*\s*$",
    doc: "While what an elastic limit lends, for instance upstream.load < 0.7.",
};

static COUNT_FORMAT: TextFormat = TextFormat {
    name: "count",
    pattern: r"^\s*(all|status\s+[1-5][0-9][0-9](-[1-5][0-9][0-9])?|cost\s+(header|json)\s+\S+)\s*$",
    doc: "What uses the limit up: all, status 401, status 400-499, cost header NAME, cost json PATH.",
};

static RESERVE_FORMAT: TextFormat = TextFormat {
    name: "reserve",
    pattern: r"^\s*(json|header)\s+\S+\s+else\s+[0-9]+\s*$",
    doc: "Where a request says how many: json PATH else 4000 (of its body), header NAME else 4000.",
};

/// The words for algorithms. The parameters come from the fields `burst` and `delay`.
const ALGORITHM_WORDS: [(&str, Algorithm); 6] = [
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

const LIMIT_ROUTES_WORDS: [(&str, LimitRoutes); 4] = [
    ("all", LimitRoutes::All),
    ("each", LimitRoutes::Each),
    ("listed", LimitRoutes::Listed),
    ("each-listed", LimitRoutes::EachListed),
];

pub static LIMIT_TABLE: Table = Table {
    name: "a limit",
    doc: "How many requests of one key are admitted in how long, or are open at once.",
    fields: &[
        required(
            "key",
            ValueShape::OneOrList(&ValueShape::Words(IDENTITY_WORDS)),
            "What it is counted by; of a list the parts that are there make one key.",
            "[ip, email]",
        ),
        alternative(
            "rate",
            ValueShape::OneOrList(&ValueShape::Format(&RATE_FORMAT)),
            "How many in how long; of a list every one holds.",
            "[10/s, 600/h]",
        ),
        alternative(
            "concurrent",
            ValueShape::WholeNumber(1, MAX_CONCURRENT),
            "How many may be open at once, from their admission to the end of their answers.",
            "10",
        ),
        optional(
            "throttle",
            ValueShape::Format(&THROTTLE_FORMAT),
            "What happens above the rate. Default: hard.",
            "soft 10%",
        ),
        optional(
            "while",
            ValueShape::Format(&CONDITION_FORMAT),
            "While what an elastic limit lends.",
            "upstream.load < 0.7",
        ),
        optional(
            "at_most",
            ValueShape::Format(&RATE_FORMAT),
            "How much an elastic limit lends at most.",
            "300/m",
        ),
        optional(
            "algorithm",
            ValueShape::Words(&words(&ALGORITHM_WORDS)),
            "How use is remembered. Default: sliding-log up to 1024, sliding-window above.",
            "gcra",
        ),
        optional(
            "burst",
            ValueShape::WholeNumber(1, 1_000_000_000),
            "Units that may come at once; for gcra.",
            "20",
        ),
        optional(
            "delay",
            ValueShape::Format(&DURATION_FORMAT),
            "The longest that a request is held back; for leaky-bucket.",
            "500ms",
        ),
        optional(
            "count",
            ValueShape::Format(&COUNT_FORMAT),
            "What uses the limit up. Default: all.",
            "status 401",
        ),
        optional(
            "reserve",
            ValueShape::AnyOf(&[
                ValueShape::WholeNumber(1, Rate::MAX_QUOTA as u64),
                ValueShape::Format(&RESERVE_FORMAT),
            ]),
            "With a cost: units that a request holds from its admission until its cost is known, and is charged if it never is. Default: 1.",
            "json max_tokens else 4000",
        ),
        optional(
            "plans",
            ValueShape::Bool,
            "Whether plans multiply it.",
            "true",
        ),
        optional(
            "mode",
            ValueShape::Words(&["enforce", "shadow"]),
            "shadow counts and reports without refusing.",
            "shadow",
        ),
        optional(
            "exempt",
            ValueShape::OneOrList(&ValueShape::Format(&NETWORK_FORMAT)),
            "Addresses that it does not apply to.",
            "[10.0.0.0/8]",
        ),
        optional(
            "disclose",
            ValueShape::Words(&["all", "none"]),
            "none hides it from clients.",
            "none",
        ),
        optional(
            "on_store_error",
            ValueShape::Words(&["local", "open", "closed"]),
            "What holds while the store cannot be reached. Default: local.",
            "local",
        ),
        optional(
            "sharing",
            ValueShape::Words(&["strict", "leased", "local"]),
            "How gateways with one store share it. Default: leased for windows from 10s, else strict.",
            "strict",
        ),
        optional(
            "routes",
            ValueShape::Words(&words(&LIMIT_ROUTES_WORDS)),
            "Of a limit in the gateway file: `all` counts every route together, `each` counts each one for itself; `listed` and `each-listed` do so only for routes that list it by name. Default: all.",
            "listed",
        ),
    ],
};

/// The kind of file that defines a limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LimitFile {
    /// The gateway file, whose limits say on which routes they hold.
    Gateway,
    /// A policy file, whose limits hold on its own route only.
    Policy,
}

/// Reads the limit that is written under the name `key`.
pub fn read_limit(
    cx: &mut LoadContext,
    key: &MapKey,
    node: &Node,
    file: LimitFile,
) -> Option<LimitConfig> {
    let name = match parse_name(&key.text, "a limit") {
        Ok(value) => Some(Located {
            value,
            location: key.location,
        }),
        Err(ValueError { message, help, .. }) => {
            cx.error(key.location, message, help);
            None
        }
    };
    let fields = LIMIT_TABLE.open_named(cx, node, key)?;
    let routes = read_routes(cx, &fields, file);
    let on_error_words = [
        OnStoreError::Local,
        OnStoreError::Open,
        OnStoreError::Closed,
    ]
    .map(|on_error| (on_error.as_str(), on_error));
    let sharing_words = [Sharing::Strict, Sharing::Leased, Sharing::Local]
        .map(|sharing| (sharing.as_str(), sharing));
    let mut limit = LimitConfig {
        key: fields.get("key").map_or_else(Vec::new, |node| {
            cx.read_list(node, LoadContext::read_identity)
        }),
        rates: fields
            .get("rate")
            .map_or_else(Vec::new, |node| read_rates(cx, node)),
        concurrent: read_concurrent(cx, &fields),
        throttle: None,
        condition: None,
        at_most: fields.get("at_most").and_then(|node| cx.read_rate(node)),
        has_while: fields.has("while"),
        has_at_most: fields.has("at_most"),
        has_delay: fields.has("delay"),
        algorithm: read_word_field(cx, &fields, "algorithm", &ALGORITHM_WORDS),
        burst: None,
        delay: None,
        count: None,
        reserve: None,
        plans: fields.get("plans").and_then(|node| cx.read_bool(node)),
        shadow: read_word_field(cx, &fields, "mode", &[("enforce", false), ("shadow", true)])
            .is_some_and(|shadow| shadow.value),
        exempt: fields
            .get("exempt")
            .map_or_else(Vec::new, |node| cx.read_networks(node)),
        disclose: read_word_field(
            cx,
            &fields,
            "disclose",
            &[("all", Disclose::All), ("none", Disclose::None)],
        )
        .map_or(Disclose::All, |disclose| disclose.value),
        sharing: read_word_field(cx, &fields, "sharing", &sharing_words),
        on_store_error: read_word_field(cx, &fields, "on_store_error", &on_error_words)
            .map_or(OnStoreError::Local, |on_error| on_error.value),
        routes,
        name: name?,
    };
    read_phrase_fields(cx, &fields, &mut limit);
    Some(limit)
}

/// Reads a field whose value is one of a fixed set of words.
fn read_word_field<T: Copy>(
    cx: &mut LoadContext,
    fields: &MapFields<'_>,
    name: &str,
    words: &[(&'static str, T)],
) -> Option<Located<T>> {
    fields.get(name).and_then(|node| cx.read_word(node, words))
}

/// Reads the fields with a grammar of their own or with bounds.
fn read_phrase_fields(cx: &mut LoadContext, fields: &MapFields<'_>, limit: &mut LimitConfig) {
    if let Some(node) = fields.get("throttle") {
        limit.throttle = cx.read_scalar(node, "hard, soft P% or elastic", parse_throttle);
    }
    if let Some(node) = fields.get("while") {
        limit.condition = cx.read_scalar(
            node,
            "a condition such as upstream.load < 0.7",
            parse_condition,
        );
    }
    if let Some(node) = fields.get("count") {
        limit.count = cx.read_scalar(
            node,
            "what is counted, such as all or status 401",
            parse_count,
        );
    }
    if let Some(node) = fields.get("reserve") {
        limit.reserve = cx.read_scalar(
            node,
            "units, or where a request says how many",
            parse_reserve,
        );
    }
    if let Some(node) = fields.get("burst") {
        let burst = cx.read_whole_number(node, 1, u64::from(Rate::MAX_QUOTA));
        limit.burst = burst.map(|at| at.map(|units| u32::try_from(units).unwrap_or(u32::MAX)));
    }
    if let Some(node) = fields.get("delay") {
        let delay = cx.read_duration(node, MIN_DELAY, MAX_DELAY);
        limit.delay = delay.map(|at| at.map(Nanos::from));
    }
}

/// Reads `routes`, which only a limit of the gateway file may have.
fn read_routes(cx: &mut LoadContext, fields: &MapFields<'_>, file: LimitFile) -> LimitRoutes {
    if file == LimitFile::Policy && fields.has("routes") {
        let help = "remove it: a policy's own limit counts for this route alone";
        cx.error(
            fields.location_of("routes"),
            "`routes` is for limits in the gateway file",
            Some(help.into()),
        );
    }
    read_word_field(cx, fields, "routes", &LIMIT_ROUTES_WORDS)
        .map_or_else(LimitRoutes::default, |routes| routes.value)
}

fn read_concurrent(cx: &mut LoadContext, fields: &MapFields<'_>) -> Option<Located<u32>> {
    let node = fields.get("concurrent")?;
    if fields.has("rate") {
        let location = fields.location_of("concurrent");
        let help = "write two limits with names of their own, one with each";
        cx.error(
            location,
            "a limit has `rate` or `concurrent`, not both",
            Some(help.into()),
        );
    }
    let concurrent = cx.read_whole_number(node, 1, MAX_CONCURRENT)?;
    Some(concurrent.map(|permits| u32::try_from(permits).unwrap_or(u32::MAX)))
}

fn read_rates(cx: &mut LoadContext, node: &Node) -> Vec<Located<Rate>> {
    let rates = cx.read_list(node, |cx, node| cx.read_rate(node));
    if rates.len() > MAX_WINDOWS {
        let message = format!("a limit has at most {MAX_WINDOWS} rates");
        cx.error(
            node.location,
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

    /// Editors must not mark a condition that the gateway accepts, nor accept one that it refuses.
    #[test]
    fn the_schema_accepts_the_conditions_that_are_read() {
        let pattern = regex_lite::Regex::new(CONDITION_FORMAT.pattern).unwrap();
        for text in [
            "upstream.load < 0.7",
            "upstream.load<30%  and\tupstream.latency.p50<0.021s",
            "upstream.latency.p90 < 200ms and gateway.cpu < 80%",
            "load < 0.7",
            "upstream.latency.p99 < 1s",
            "upstream.load < 0.7 or gateway.cpu < 80%",
            "upstream.load < 0.7 and",
        ] {
            let is_accepted = Condition::parse(text).is_ok();
            assert_eq!(pattern.is_match(text), is_accepted, "{text}");
        }
    }
}
