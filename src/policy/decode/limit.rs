//! One limit.

use std::time::Duration;

use super::super::collect::Cx;
use super::super::model::{At, Limit, Throttle};
use super::super::suggest::nearest;
use super::super::table::{Fields, Form, Shape, Table, may, must};
use super::super::tree::{Key, Node, Place};
use super::leaf::{DURATION, IDENTITIES, RATE, parse_header, parse_name, parse_span};
use super::{Wrong, wrong};
use crate::clock::Nanos;
use crate::limit::{Count, Disclose, MAX_WINDOWS, Rate};

static THROTTLE: Form = Form {
    name: "throttle",
    pattern: r"^\s*(hard|soft\s+[0-9]+\s*%|elastic)\s*$",
    doc: "What happens above the rate: hard, soft P% or elastic.",
};

static CONDITION: Form = Form {
    name: "condition",
    pattern: r"^\s*(upstream\.load|upstream\.latency\.p(50|90|99)|gateway\.cpu)\s*<\s*\S+\s*$",
    doc: "While what an elastic limit lends, for instance upstream.load < 0.7.",
};

static COUNT: Form = Form {
    name: "count",
    pattern: r"^\s*(all|status\s+[1-5][0-9][0-9](-[1-5][0-9][0-9])?|cost\s+(header|json)\s+\S+)\s*$",
    doc: "What uses the limit up: all, status 401, status 400-499, cost header NAME, cost json PATH.",
};

static BAN: Table = Table {
    name: "a ban",
    doc: "Refuses a key for a time once it was refused often.",
    fields: &[
        must(
            "after",
            Shape::Form(&REFUSALS),
            "How many refusals in how long.",
            "3 refusals in 10m",
        ),
        must("for", Shape::Form(&DURATION), "How long.", "1h"),
    ],
};

static REFUSALS: Form = Form {
    name: "refusals",
    pattern: r"^\s*[0-9]+\s+refusals?\s+in\s+[0-9]+(s|m|h|d)\s*$",
    doc: "How many refusals in how long: 3 refusals in 10m.",
};

/// The algorithms by the names that files use.
pub static ALGORITHMS: &[&str] = &[
    "sliding-log",
    "sliding-window",
    "multi-level",
    "fixed-window",
    "gcra",
    "token-bucket",
    "leaky-bucket",
];

/// One limit.
pub static LIMIT: Table = Table {
    name: "a limit",
    doc: "How many requests of one key are admitted in how long.",
    fields: &[
        must(
            "key",
            Shape::Many(&Shape::Words(IDENTITIES)),
            "What it is counted by; of a list the parts that are there make one key.",
            "[ip, email]",
        ),
        must(
            "rate",
            Shape::Many(&Shape::Form(&RATE)),
            "How many in how long; of a list every one holds.",
            "[10/s, 600/h]",
        ),
        may(
            "throttle",
            Shape::Form(&THROTTLE),
            "What happens above the rate. Default: hard.",
            "soft 10%",
        ),
        may(
            "while",
            Shape::Form(&CONDITION),
            "While what an elastic limit lends.",
            "upstream.load < 0.7",
        ),
        may(
            "at_most",
            Shape::Form(&RATE),
            "How much an elastic limit lends at most.",
            "300/m",
        ),
        may(
            "algorithm",
            Shape::Words(ALGORITHMS),
            "How use is remembered. Default: sliding-log up to 1024, sliding-window above.",
            "gcra",
        ),
        may(
            "burst",
            Shape::Whole(1, 1_000_000_000),
            "Units that may come at once; for gcra.",
            "20",
        ),
        may(
            "delay",
            Shape::Form(&DURATION),
            "The longest that a request is held back; for leaky-bucket.",
            "500ms",
        ),
        may(
            "count",
            Shape::Form(&COUNT),
            "What uses the limit up. Default: all.",
            "status 401",
        ),
        may("plans", Shape::Flag, "Whether plans multiply it.", "true"),
        may(
            "mode",
            Shape::Words(&["enforce", "shadow"]),
            "shadow counts and reports without refusing.",
            "shadow",
        ),
        may(
            "try",
            Shape::Many(&Shape::Form(&RATE)),
            "A candidate rate that is watched beside the live one.",
            "80/m",
        ),
        may(
            "exempt",
            Shape::Many(&Shape::Form(&super::leaf::NETWORK)),
            "Addresses that it does not apply to.",
            "[10.0.0.0/8]",
        ),
        may(
            "ban",
            Shape::Table(&BAN),
            "Refuses a key for a time once it was refused often.",
            "{ after: 3 refusals in 10m, for: 1h }",
        ),
        may(
            "disclose",
            Shape::Words(&["all", "none"]),
            "none hides it from clients.",
            "none",
        ),
        may(
            "on_store_error",
            Shape::Words(&["local", "open", "closed"]),
            "What holds while the store cannot be reached. Default: local.",
            "local",
        ),
        may(
            "per",
            Shape::Words(&["route"]),
            "Of a limit in the gateway file: each route counts for itself.",
            "route",
        ),
        may(
            "routes",
            Shape::Words(&["all", "listed"]),
            "Of a limit in the gateway file: listed applies it only to routes that list it by name.",
            "listed",
        ),
    ],
};

/// Reads the limit that is written under `named`; `gateway` tells whose file it is.
pub fn limit(cx: &mut Cx, named: &Key, node: &Node, gateway: bool) -> Option<Limit> {
    let name = match parse_name(&named.text, "a limit") {
        Ok(value) => Some(At {
            value,
            place: named.place,
        }),
        Err(Wrong { message, help, .. }) => {
            cx.error(named.place, message, help);
            None
        }
    };
    let fields = LIMIT.open_as(cx, node, named)?;
    unbuilt(cx, &fields);
    let (per_route, listed) = reach(cx, &fields, gateway);
    let words = [("local", ()), ("open", ()), ("closed", ())];
    word(cx, &fields, "on_store_error", &words);
    let names: Vec<_> = ALGORITHMS.iter().map(|name| (*name, *name)).collect();
    let mut limit = Limit {
        key: fields
            .get("key")
            .map_or_else(Vec::new, |node| cx.many(node, Cx::identity)),
        rates: fields
            .get("rate")
            .map_or_else(Vec::new, |node| rates(cx, node)),
        throttle: None,
        condition: None,
        at_most: fields.get("at_most").and_then(|node| cx.rate(node)),
        has_while: fields.has("while"),
        has_at_most: fields.has("at_most"),
        has_delay: fields.has("delay"),
        algorithm: word(cx, &fields, "algorithm", &names),
        burst: None,
        delay: None,
        count: None,
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
        per_route,
        listed,
        name: name?,
    };
    phrases(cx, &fields, &mut limit);
    Some(limit)
}

/// The field, one of a fixed set of words.
fn word<T: Copy>(
    cx: &mut Cx,
    fields: &Fields<'_>,
    name: &str,
    words: &[(&'static str, T)],
) -> Option<At<T>> {
    fields.get(name).and_then(|node| cx.word(node, words))
}

/// The fields with a small language of their own.
fn phrases(cx: &mut Cx, fields: &Fields<'_>, limit: &mut Limit) {
    if let Some(node) = fields.get("throttle") {
        limit.throttle = cx.read(node, "hard, soft P% or elastic", throttle);
    }
    if let Some(node) = fields.get("while") {
        limit.condition = cx.read(node, "a condition such as upstream.load < 0.7", condition);
    }
    if let Some(node) = fields.get("count") {
        limit.count = cx.read(node, "what is counted, such as all or status 401", count);
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

/// How far a limit of the gateway file reaches: `per: route` and `routes: listed`.
fn reach(cx: &mut Cx, fields: &Fields<'_>, gateway: bool) -> (Option<Place>, Option<Place>) {
    for name in ["per", "routes"] {
        if !gateway && fields.has(name) {
            let message = format!("`{name}` is for limits in the gateway file");
            let help = "remove it: a policy's own limit counts for this route alone";
            cx.error(fields.place_of(name), message, Some(help.into()));
        }
    }
    let per_route = word(cx, fields, "per", &[("route", ())]);
    let listed = word(cx, fields, "routes", &[("all", false), ("listed", true)]);
    (
        per_route.map(|at| at.place),
        listed.filter(|at| at.value).map(|at| at.place),
    )
}

fn rates(cx: &mut Cx, node: &Node) -> Vec<At<Rate>> {
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

/// What is read for its mistakes only, because this gateway does not do it yet.
fn unbuilt(cx: &mut Cx, fields: &Fields<'_>) {
    if let Some(node) = fields.get("try") {
        rates(cx, node);
        cx.unbuilt(
            fields.place_of("try"),
            "candidate rates (`try`) are not built yet: a run refuses them",
        );
    }
    let Some(node) = fields.get("ban") else {
        return;
    };
    cx.unbuilt(
        fields.place_of("ban"),
        "bans are not built yet: a run refuses them",
    );
    let Some(ban) = BAN.open(cx, node) else {
        return;
    };
    if let Some(node) = ban.get("after") {
        cx.read(node, "refusals such as 3 refusals in 10m", refusals);
    }
    if let Some(node) = ban.get("for") {
        cx.span(
            node,
            Duration::from_secs(1),
            Duration::from_secs(366 * 86_400),
        );
    }
}

fn throttle(text: &str) -> Result<Throttle, Wrong> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    match (first, rest.join(" ").as_str()) {
        ("hard", "") => Ok(Throttle::Hard),
        ("elastic", "") => Ok(Throttle::Elastic),
        ("soft", "") => Err(wrong(
            "`soft` needs a percentage",
            "write for instance `soft 10%`",
        )),
        ("soft", percent) => {
            let number = percent
                .strip_suffix('%')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse::<u16>().ok());
            match number {
                Some(percent @ 1..=1000) => Ok(Throttle::Soft(percent)),
                Some(0) => Err(wrong(
                    "`soft 0%` lends nothing",
                    "write `hard`, or a percentage from 1% to 1000%",
                )),
                _ => Err(wrong(
                    format!("`{percent}` is not a percentage from 1% to 1000%"),
                    "write for instance `soft 10%`",
                )),
            }
        }
        ("hard" | "elastic", more) => Err(wrong(
            format!("`{first}` takes nothing behind it, not `{more}`"),
            format!("write `{first}`"),
        )),
        _ => {
            let help = match nearest(first, ["hard", "soft", "elastic"]) {
                Some("soft") => String::from("did you mean `soft 10%`?"),
                Some(word) => format!("did you mean `{word}`?"),
                None => String::from("write `hard`, `soft 10%` or `elastic`"),
            };
            Err(wrong(format!("`{text}` is not a throttle"), help))
        }
    }
}

const SIGNALS: [&str; 5] = [
    "upstream.load",
    "upstream.latency.p50",
    "upstream.latency.p90",
    "upstream.latency.p99",
    "gateway.cpu",
];

fn condition(text: &str) -> Result<String, Wrong> {
    let Some((signal, bound)) = text.split_once('<') else {
        let help = "write SIGNAL < BOUND, for instance `upstream.load < 0.7`";
        return Err(wrong(format!("`{text}` is not a condition"), help));
    };
    let (signal, bound) = (signal.trim(), bound.trim());
    if !SIGNALS.contains(&signal) {
        let help = match nearest(signal, SIGNALS) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("the signals are {}", super::listed(SIGNALS)),
        };
        return Err(wrong(format!("`{signal}` is not a signal"), help));
    }
    if signal.starts_with("upstream.latency") {
        parse_span(bound)?;
        return Ok(text.to_owned());
    }
    let share = match bound.strip_suffix('%') {
        Some(percent) => percent
            .trim()
            .parse::<f64>()
            .ok()
            .map(|percent| percent / 100.0),
        None => bound.parse::<f64>().ok(),
    };
    match share {
        Some(share) if share > 0.0 && share <= 1.0 => Ok(text.to_owned()),
        _ => Err(wrong(
            format!("`{bound}` is not a share above 0 and up to 1"),
            format!("write for instance `{signal} < 0.7` or `{signal} < 70%`"),
        )),
    }
}

fn refusals(text: &str) -> Result<(), Wrong> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let fits = match words.as_slice() {
        [many, "refusal" | "refusals", "in", span] => {
            many.parse::<u32>().is_ok_and(|many| many > 0) && parse_span(span).is_ok()
        }
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(wrong(
        format!("`{text}` does not say when to ban"),
        "write for instance `3 refusals in 10m`",
    ))
}

fn count(text: &str) -> Result<Count, Wrong> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["all"] => Ok(Count::All),
        ["status", range] => status(range),
        ["cost", "header", name] => parse_header(name)
            .map(Count::CostHeader)
            .map_err(|message| wrong(message, "write for instance `cost header x-cost`")),
        ["cost", "json", path] => {
            let parts: Vec<String> = path.split('.').map(String::from).collect();
            if parts.len() > 16 || parts.iter().any(String::is_empty) {
                let help = "write names with dots between them, for instance `cost json usage.total_tokens`";
                return Err(wrong(format!("`{path}` is not a path into JSON"), help));
            }
            Ok(Count::CostJson(parts))
        }
        _ => {
            let first = words.first().copied().unwrap_or_default();
            let help = match (nearest(first, ["all", "status", "cost"]), words.len()) {
                (Some("all"), 1) => "did you mean `all`?",
                (Some("status"), 1) => "write the status too, for instance `status 401`",
                (Some("status"), 2) => "did you mean `status`?",
                (Some("cost"), _) => "write `cost header x-cost` or `cost json usage.total_tokens`",
                _ => {
                    "write `all`, `status 401`, `status 400-499`, `cost header x-cost` or `cost json usage.total_tokens`"
                }
            };
            Err(wrong(
                format!("`{text}` does not say what is counted"),
                help,
            ))
        }
    }
}

fn status(range: &str) -> Result<Count, Wrong> {
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let code = |text: &str| {
        text.parse::<u16>()
            .ok()
            .filter(|code| (100..=599).contains(code))
    };
    let help = "write a status from 100 to 599, or a range such as `status 400-499`";
    match (code(from), code(to)) {
        (Some(from), Some(to)) if from <= to => Ok(Count::Status { from, to }),
        (Some(from), Some(to)) => Err(wrong(
            format!("`{range}` runs backwards"),
            format!("write `status {to}-{from}`"),
        )),
        _ => match range.strip_suffix("xx").filter(|class| class.len() == 1) {
            Some(class) => Err(wrong(
                format!("`{range}` is not a status"),
                format!("write `status {class}00-{class}99`"),
            )),
            None => Err(wrong(format!("`{range}` is not a status"), help)),
        },
    }
}
