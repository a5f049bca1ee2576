//! Parses the fields of a limit that have a grammar of their own, such as `soft 10%` and `status 401`. The errors
//! suggest what the user probably meant.

use super::super::ValueError;
use super::super::scalar::{parse_header_name, parse_identity_or};
use crate::base::suggest::nearest_word;
use crate::limit::cost;
use crate::limit::key_spec::EVERYONE;
use crate::limit::pressure::Condition;
use crate::limit::{
    BodyDirection, CountMode, Identity, KeyPart, Rate, RequestCost, Reserve, ReserveSource,
};

/// Maximum number of names in a path into JSON, which bounds the depth of the search.
const MAX_JSON_PATH_NAMES: usize = 16;

/// The word of a key by which each route counts for itself.
const ROUTE: &str = "route";

/// One part of a limit's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPartConfig {
    /// The word `everyone`, which is a whole key.
    Everyone,
    /// The word `route`: each route counts for itself.
    Route,
    /// The first of these identities that the client has.
    FirstOf(KeyPart),
}

impl KeyPartConfig {
    /// The identities, the first choice first; empty for the two words.
    pub fn identities(&self) -> &[Identity] {
        match self {
            KeyPartConfig::Everyone | KeyPartConfig::Route => &[],
            KeyPartConfig::FirstOf(part) => part.identities(),
        }
    }
}

/// How far a limit may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleConfig {
    /// The limit refuses every request above the rate.
    Hard,
    /// The limit admits requests up to this percentage above the rate, from 1 to 1000.
    Soft(u16),
    /// The limit admits requests above the rate, up to `at_most`, as long as the upstream can bear them.
    Elastic,
}

/// Parses a part of a key: `everyone`, `route`, an identity, or identities with `or` between them.
pub(super) fn parse_key_part(text: &str) -> Result<KeyPartConfig, ValueError> {
    if text.trim() == EVERYONE {
        return Ok(KeyPartConfig::Everyone);
    }
    if text.trim() == ROUTE {
        return Ok(KeyPartConfig::Route);
    }
    let parse_identity = |name: &str| parse_identity_or(name, &[EVERYONE, ROUTE]);
    let mut words = text.split_whitespace();
    let mut alternatives = vec![parse_identity(words.next().unwrap_or_default())?];
    while let Some(conjunction) = words.next() {
        let next_word = words.next();
        let before = alternatives
            .last()
            .map_or("user", |identity| identity.as_str());
        let after = next_word.unwrap_or("ip");
        if conjunction == "or" && next_word.is_none() {
            let help = format!("write for instance `{before} or ip`");
            return Err(ValueError::new("`or` needs an identity after it", help));
        }
        if conjunction != "or" {
            let message = format!("expected `or` after `{before}`, found `{conjunction}`");
            let help = format!(
                "write `{before} or {after}` for the first that a client has, or the list `[{before}, {after}]` for both"
            );
            return Err(ValueError::new(message, help));
        }
        alternatives.push(parse_identity(after)?);
    }
    // Never `None`, because there is at least one alternative.
    let part = KeyPart::first_of(&alternatives);
    Ok(part.map_or(KeyPartConfig::Everyone, KeyPartConfig::FirstOf))
}

/// The error that a limit counts by an entry of descriptors that has one value.
pub(super) fn fixed_entry_error(key: &str) -> ValueError {
    let message =
        format!("the entry `{key}` has one value in this policy, so nothing counts by it");
    let help =
        "leave it out of the key, or write `key: everyone` to count all descriptors together";
    ValueError::new(message, help)
}

/// Parses `hard`, `elastic`, or `soft` with a percentage from 1 to 1000.
pub(super) fn parse_throttle(text: &str) -> Result<ThrottleConfig, ValueError> {
    let mut words = text.split_whitespace();
    let keyword = words.next().unwrap_or_default();
    let argument = words.collect::<Vec<&str>>().join(" ");
    match (keyword, argument.as_str()) {
        ("hard", "") => Ok(ThrottleConfig::Hard),
        ("elastic", "") => Ok(ThrottleConfig::Elastic),
        ("soft", "") => Err(ValueError::new(
            "`soft` needs a percentage",
            "write for instance `soft 10%`",
        )),
        ("soft", percent) => {
            let number = percent
                .strip_suffix('%')
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse::<u16>().ok());
            match number {
                Some(percent @ 1..=1000) => Ok(ThrottleConfig::Soft(percent)),
                Some(0) => Err(ValueError::new(
                    "`soft 0%` lends nothing",
                    "write `hard`, or a percentage from 1% to 1000%",
                )),
                _ => Err(ValueError::new(
                    format!("`{percent}` is not a percentage from 1% to 1000%"),
                    "write for instance `soft 10%`",
                )),
            }
        }
        ("hard" | "elastic", argument) => Err(ValueError::new(
            format!("`{keyword}` takes nothing behind it, not `{argument}`"),
            format!("write `{keyword}`"),
        )),
        _ => {
            let help = match nearest_word(keyword, ["hard", "soft", "elastic"]) {
                Some("soft") => String::from("did you mean `soft 10%`?"),
                Some(word) => format!("did you mean `{word}`?"),
                None => String::from("write `hard`, `soft 10%` or `elastic`"),
            };
            Err(ValueError::new(format!("`{text}` is not a throttle"), help))
        }
    }
}

/// Parses a condition such as `upstream.load < 0.7`.
pub(super) fn parse_condition(text: &str) -> Result<Condition, ValueError> {
    Condition::parse(text).map_err(|error| ValueError {
        message: error.to_string(),
        help: Some("write for instance `upstream.load < 0.7`".into()),
        offset: Some(error.offset),
    })
}

/// Parses what a limit counts: `all`, `status` with one status or a range, or `cost` with what it is made of.
pub(super) fn parse_count(text: &str) -> Result<CountMode, ValueError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["all"] => Ok(CountMode::All),
        ["status", range] => parse_status_range(range),
        ["cost", "header", name] => parse_header_name(name)
            .map(CountMode::CostHeader)
            .map_err(|message| ValueError::new(message, "write for instance `cost header x-cost`")),
        ["cost", "json", path] => {
            let help =
                "write names with dots between them, for instance `cost json usage.total_tokens`";
            parse_json_path(path, ("cost json", ""), help).map(CountMode::CostJson)
        }
        ["cost", "request", words @ ..] => {
            parse_request_cost(text, words).map(CountMode::CostRequest)
        }
        ["cost", "messages"] => Ok(CountMode::CostMessages),
        ["cost", "bytes", "in"] => Ok(CountMode::CostBytes(BodyDirection::In)),
        ["cost", "bytes", "out"] => Ok(CountMode::CostBytes(BodyDirection::Out)),
        ["cost", "bytes", "both"] => Ok(CountMode::CostBytes(BodyDirection::Both)),
        ["cost", "bytes", ..] => Err(ValueError::new(
            format!("`{text}` does not say which bytes are counted"),
            "write `cost bytes in` for bodies of requests, `cost bytes out` for those of responses, or `cost bytes both`",
        )),
        _ => {
            let keyword = words.first().copied().unwrap_or_default();
            let help = match (
                nearest_word(keyword, ["all", "status", "cost"]),
                words.len(),
            ) {
                (Some("all"), 1) => "did you mean `all`?",
                (Some("status"), 1) => "write the status too, for instance `status 401`",
                (Some("status"), 2) => "did you mean `status`?",
                (Some("cost"), _) => {
                    "write for instance `cost json usage.total_tokens`, `cost request items`, `cost bytes out` or `cost messages`"
                }
                _ => {
                    "write `all`, `status 401`, `status 400-499`, `cost header x-cost` or `cost json usage.total_tokens`"
                }
            };
            Err(ValueError::new(
                format!("`{text}` does not say what is counted"),
                help,
            ))
        }
    }
}

/// Parses `words`, which follow `cost request`. `text` is the whole value, for messages.
fn parse_request_cost(text: &str, words: &[&str]) -> Result<RequestCost, ValueError> {
    let help = "write `cost request items`, or for instance `cost request json amount`";
    match words {
        ["items"] => Ok(RequestCost::Items),
        ["json", path] => {
            parse_json_path(path, ("cost request json", ""), help).map(RequestCost::Json)
        }
        _ => Err(ValueError::new(
            format!("`{text}` does not say what a request costs"),
            help,
        )),
    }
}

/// Parses a number of units from 1 to [`Rate::MAX_QUOTA`], or where a request states it, with such a number behind
/// `else`.
pub(super) fn parse_reserve(text: &str) -> Result<Reserve, ValueError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let parse_units = |text: &str| {
        let units = text.parse::<u32>().ok();
        let units = units.filter(|units| (1..=Rate::MAX_QUOTA).contains(units));
        units.ok_or_else(|| {
            let help = format!("write a whole number from 1 to {}", Rate::MAX_QUOTA);
            ValueError::new(format!("`{text}` is not a number of units"), help)
        })
    };
    let example =
        "write for instance `4000`, `json max_tokens else 4000` or `header x-max else 4000`";
    match words.as_slice() {
        ["json", path, "else", otherwise] => Ok(Reserve {
            source: Some(ReserveSource::Json(parse_json_path(
                path,
                ("json", &format!(" else {otherwise}")),
                example,
            )?)),
            otherwise: parse_units(otherwise)?,
        }),
        ["header", name, "else", otherwise] => Ok(Reserve {
            source: Some(ReserveSource::Header(
                parse_header_name(name).map_err(|message| ValueError::new(message, example))?,
            )),
            otherwise: parse_units(otherwise)?,
        }),
        ["json" | "header", _] => Err(ValueError::new(
            "a request need not say what it may cost",
            format!("add what is held then, for instance `{text} else 4000`"),
        )),
        [number] if number.starts_with(|first: char| first.is_ascii_digit()) => Ok(Reserve {
            source: None,
            otherwise: parse_units(number)?,
        }),
        _ => Err(ValueError::new(
            format!("`{text}` does not say what is held"),
            example,
        )),
    }
}

/// Parses a path into JSON: names separated by dots.
///
/// If the path has the syntax of JSONPath, JSON Pointer or jq, the error suggests the same path with dots. The
/// suggestion stands between the texts `before` and `behind`, which complete the field's value. The help for any other
/// path is `help`.
fn parse_json_path(
    path: &str,
    (before, behind): (&str, &str),
    help: &str,
) -> Result<cost::JsonPath, ValueError> {
    // `$` begins a JSONPath, `/` a JSON Pointer, and `.` a path of jq.
    let has_other_syntax = path.starts_with(['$', '/', '.']) || path.contains(['[', '*']);
    if !has_other_syntax {
        let names: Vec<String> = path.split('.').map(String::from).collect();
        if names.len() <= MAX_JSON_PATH_NAMES && !names.iter().any(String::is_empty) {
            return Ok(names.into());
        }
    }
    let message = format!("`{path}` is not a path into JSON");
    let names = path
        .trim_start_matches('$')
        .replace(['[', ']', '/', '"', '\''], ".");
    let names: Vec<&str> = names.split('.').filter(|name| !name.is_empty()).collect();
    if !has_other_syntax || names.is_empty() || names.contains(&"*") {
        return Err(ValueError::new(message, help));
    }
    Err(ValueError::new(
        message,
        format!("write `{before} {}{behind}`", names.join(".")),
    ))
}

/// Parses a status such as `401`, or a range such as `400-499`, both ends included.
fn parse_status_range(range: &str) -> Result<CountMode, ValueError> {
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let parse_status = |text: &str| {
        text.parse::<u16>()
            .ok()
            .filter(|status| (100..=599).contains(status))
    };
    let help = "write a status from 100 to 599, or a range such as `status 400-499`";
    match (parse_status(from), parse_status(to)) {
        (Some(from), Some(to)) if from <= to => Ok(CountMode::Status { from, to }),
        (Some(from), Some(to)) => Err(ValueError::new(
            format!("`{range}` runs backwards"),
            format!("write `status {to}-{from}`"),
        )),
        _ => match range.strip_suffix("xx").filter(|class| class.len() == 1) {
            Some(class) => Err(ValueError::new(
                format!("`{range}` is not a status"),
                format!("write `status {class}00-{class}99`"),
            )),
            None => Err(ValueError::new(format!("`{range}` is not a status"), help)),
        },
    }
}
