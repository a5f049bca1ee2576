//! Renders responses about the record for terminals.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cli::terminal::{bars, numbers, printable, rates, short};

/// The name and labels of a series, as a selector has them.
fn name(series: &Value) -> String {
    let labels = series["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let name = printable(series["name"].as_str().unwrap_or_default());
    match labels.is_empty() {
        true => name,
        false => format!("{name}{{{}}}", labels.join(",")),
    }
}

/// `log query`.
pub(super) fn curves(answer: &Value) -> String {
    let covered = numbers(&answer["covered"]);
    let seconds: f64 = covered.iter().sum();
    let mut text = format!("{} s to a step, {seconds} s recorded\n", answer["step"]);
    for series in answer["series"].as_array().into_iter().flatten() {
        let total: f64 = numbers(&series["sum"]).iter().sum();
        let most = numbers(&series["max"]).into_iter().reduce(f64::max);
        let rate = short(total / seconds.max(1.0));
        let _ = write!(
            text,
            "{}\n  {}\n  ",
            name(series),
            bars(&rates(series, &covered))
        );
        let _ = match series["kind"].as_str() {
            Some("gauge") => write!(text, "mean {rate}"),
            _ => write!(text, "{total} in all, {rate}/s"),
        };
        if let Some(most) = most {
            let _ = write!(text, ", at most {} in a second", short(most));
        }
        text.push('\n');
    }
    text
}

/// `log top`.
pub(super) fn top(answer: &Value) -> String {
    let total = answer["total"].as_u64().unwrap_or(0);
    let mut text = format!("{total} {}", answer["of"].as_str().unwrap_or_default());
    if let Some(distinct) = answer["distinct"].as_u64() {
        let _ = write!(text, ", {}{distinct} different keys", at_least(answer));
    }
    text.push('\n');
    for listed in answer["keys"].as_array().into_iter().flatten() {
        let part = |name: &str| printable(listed[name].as_str().unwrap_or_default());
        let count = listed["count"].as_u64().unwrap_or(0);
        let share = count as f64 / total.max(1) as f64 * 100.0;
        let _ = writeln!(
            text,
            "{count:>12} {share:>5.1} %  {}  {}",
            part("limit"),
            part("key")
        );
    }
    match answer["rest"].as_u64() {
        Some(rest) if rest > 0 => text + &format!("{rest:>12}          others\n"),
        _ => text,
    }
}

/// Goes before a number of keys that is a lower bound.
fn at_least(answer: &Value) -> &'static str {
    let unsure = answer["at_least"].as_bool() == Some(true);
    if unsure { "at least " } else { "" }
}

/// `log explain`.
pub(super) fn explanation(answer: &Value) -> String {
    let part = |value: &Value| printable(value.as_str().unwrap_or_default());
    let mut text = format!(
        "{}\n\n{} of {} requests were refused in {} s; {} of {} in {} s before.\n",
        part(&answer["text"]),
        answer["refused"],
        answer["requests"],
        answer["seconds"],
        answer["before"]["refused"],
        answer["before"]["requests"],
        answer["before"]["seconds"],
    );
    let percent = |value: &Value| value.as_f64().unwrap_or(0.0) * 100.0;
    for limit in answer["limits"].as_array().into_iter().flatten() {
        let places = limit["places"].as_array().into_iter().flatten();
        let place =
            |place: &Value| format!("{}, {}", part(&place["guarantee"]), part(&place["at"]));
        let places: Vec<String> = places.map(place).collect();
        let _ = writeln!(
            text,
            "  {:>5.1} %  {}  {}",
            percent(&limit["share"]),
            part(&limit["limit"]),
            places.join("; ")
        );
    }
    let distinct = &answer["distinct"];
    let _ = writeln!(text, "who ({}{distinct} different keys):", at_least(answer));
    for key in answer["keys"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "  {:>5.1} %  {}  {}",
            percent(&key["share"]),
            part(&key["key"]),
            part(&key["limit"])
        );
    }
    for event in answer["events"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "at {}: {}, {}",
            event["at"],
            part(&event["event"]),
            part(&event["detail"])
        );
        for change in event["changes"].as_array().into_iter().flatten() {
            let side = |name: &str| match change[name].as_str() {
                Some(text) => printable(text),
                None => String::from("nothing"),
            };
            let _ = writeln!(
                text,
                "  {} was {}, is {}",
                part(&change["limit"]),
                side("before"),
                side("after")
            );
        }
    }
    text
}

/// `log export`: JSON lines.
pub(super) fn lines(answer: &Value, summed: bool) -> String {
    let mut text = String::new();
    let (from, step) = (&answer["from"], &answer["step"]);
    let (from, step) = (from.as_u64().unwrap_or(0), step.as_u64().unwrap_or(0));
    let covered = answer["covered"].as_array().map_or(&[][..], Vec::as_slice);
    for series in answer["series"].as_array().into_iter().flatten() {
        for (place, seconds) in covered.iter().enumerate() {
            // A step without recorded seconds is unknown, not zero.
            if seconds == 0 {
                continue;
            }
            let mut line = json!({
                "at": from + place as u64 * step,
                "step": step,
                "seconds": seconds,
                "name": series["name"],
                "labels": series["labels"],
                "sum": series["sum"][place],
            });
            if !summed {
                line["min"] = series["min"][place].clone();
                line["max"] = series["max"][place].clone();
            }
            let _ = writeln!(text, "{line}");
        }
    }
    text
}
