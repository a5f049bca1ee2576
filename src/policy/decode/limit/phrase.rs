//! The fields of a limit with a small language of their own: `soft 10%`, `status 401`.

use super::super::super::model::ThrottleConfig;
use super::super::leaf::parse_header;
use super::super::{ValueError, invalid};
use crate::base::suggest::nearest;
use crate::limit::cost;
use crate::limit::pressure::Condition;
use crate::limit::{CountMode, Rate, Reserve, ReserveSource};

pub(super) fn throttle(text: &str) -> Result<ThrottleConfig, ValueError> {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    match (first, rest.join(" ").as_str()) {
        ("hard", "") => Ok(ThrottleConfig::Hard),
        ("elastic", "") => Ok(ThrottleConfig::Elastic),
        ("soft", "") => Err(invalid(
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
                Some(0) => Err(invalid(
                    "`soft 0%` lends nothing",
                    "write `hard`, or a percentage from 1% to 1000%",
                )),
                _ => Err(invalid(
                    format!("`{percent}` is not a percentage from 1% to 1000%"),
                    "write for instance `soft 10%`",
                )),
            }
        }
        ("hard" | "elastic", more) => Err(invalid(
            format!("`{first}` takes nothing behind it, not `{more}`"),
            format!("write `{first}`"),
        )),
        _ => {
            let help = match nearest(first, ["hard", "soft", "elastic"]) {
                Some("soft") => String::from("did you mean `soft 10%`?"),
                Some(word) => format!("did you mean `{word}`?"),
                None => String::from("write `hard`, `soft 10%` or `elastic`"),
            };
            Err(invalid(format!("`{text}` is not a throttle"), help))
        }
    }
}

pub(super) fn condition(text: &str) -> Result<Condition, ValueError> {
    Condition::parse(text).map_err(|error| ValueError {
        message: error.to_string(),
        help: Some("write for instance `upstream.load < 0.7`".into()),
        offset: Some(error.offset),
    })
}

pub(super) fn count(text: &str) -> Result<CountMode, ValueError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["all"] => Ok(CountMode::All),
        ["status", range] => status(range),
        ["cost", "header", name] => parse_header(name)
            .map(CountMode::CostHeader)
            .map_err(|message| invalid(message, "write for instance `cost header x-cost`")),
        ["cost", "json", path] => {
            let help =
                "write names with dots between them, for instance `cost json usage.total_tokens`";
            json_path(path, ("cost json", ""), help).map(CountMode::CostJson)
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
            Err(invalid(
                format!("`{text}` does not say what is counted"),
                help,
            ))
        }
    }
}

pub(super) fn reserve(text: &str) -> Result<Reserve, ValueError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let units = |text: &str| {
        let units = text.parse().ok().filter(|units| *units > 0);
        let help = format!("write a whole number from 1 to {}", Rate::MAX_QUOTA);
        let units = units.filter(|units| *units <= Rate::MAX_QUOTA);
        units.ok_or_else(|| invalid(format!("`{text}` is not a number of units"), help))
    };
    let example =
        "write for instance `4000`, `json max_tokens else 4000` or `header x-max else 4000`";
    match words.as_slice() {
        ["json", path, "else", otherwise] => Ok(Reserve {
            source: Some(ReserveSource::Json(json_path(
                path,
                ("json", &format!(" else {otherwise}")),
                example,
            )?)),
            otherwise: units(otherwise)?,
        }),
        ["header", name, "else", otherwise] => Ok(Reserve {
            source: Some(ReserveSource::Header(
                parse_header(name).map_err(|message| invalid(message, example))?,
            )),
            otherwise: units(otherwise)?,
        }),
        ["json" | "header", _] => Err(invalid(
            "a request need not say what it may cost",
            format!("add what is held then, for instance `{text} else 4000`"),
        )),
        [number] if number.starts_with(|first: char| first.is_ascii_digit()) => Ok(Reserve {
            source: None,
            otherwise: units(number)?,
        }),
        _ => Err(invalid(
            format!("`{text}` does not say what is held"),
            example,
        )),
    }
}

/// Names with dots between them. Other languages' ways to write them get the right words.
pub(super) fn json_path(
    path: &str,
    (before, behind): (&str, &str),
    help: &str,
) -> Result<cost::Path, ValueError> {
    let named = |path: &str| {
        let parts: Vec<String> = path.split('.').map(String::from).collect();
        let fits = parts.len() <= 16 && !parts.iter().any(String::is_empty);
        fits.then_some(parts)
    };
    let foreign = path.starts_with(['$', '/', '.']) || path.contains(['[', '*']);
    if let Some(parts) = named(path).filter(|_| !foreign) {
        return Ok(parts.into());
    }
    let message = format!("`{path}` is not a path into JSON");
    let names = path
        .trim_start_matches('$')
        .replace(['[', ']', '/', '"', '\''], ".");
    let names: Vec<&str> = names.split('.').filter(|name| !name.is_empty()).collect();
    if !foreign || names.is_empty() || names.contains(&"*") {
        return Err(invalid(message, help));
    }
    Err(invalid(
        message,
        format!("write `{before} {}{behind}`", names.join(".")),
    ))
}

fn status(range: &str) -> Result<CountMode, ValueError> {
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    let code = |text: &str| {
        text.parse::<u16>()
            .ok()
            .filter(|code| (100..=599).contains(code))
    };
    let help = "write a status from 100 to 599, or a range such as `status 400-499`";
    match (code(from), code(to)) {
        (Some(from), Some(to)) if from <= to => Ok(CountMode::Status { from, to }),
        (Some(from), Some(to)) => Err(invalid(
            format!("`{range}` runs backwards"),
            format!("write `status {to}-{from}`"),
        )),
        _ => match range.strip_suffix("xx").filter(|class| class.len() == 1) {
            Some(class) => Err(invalid(
                format!("`{range}` is not a status"),
                format!("write `status {class}00-{class}99`"),
            )),
            None => Err(invalid(format!("`{range}` is not a status"), help)),
        },
    }
}
