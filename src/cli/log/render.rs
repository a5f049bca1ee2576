//! Renders responses about the record as text for terminals, and as JSON lines. Texts from the record are foreign, so
//! their control characters are replaced. Values of labels and JSON lines are written as JSON, which escapes those
//! below U+0020.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cli::terminal::{
    format_short, format_time, parse_numbers, rates_per_second, replace_control_chars, sparkline,
};

/// Returns the name and the labels of a series, in the syntax of a selector.
fn series_selector(series: &Value) -> String {
    let labels = series["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let name = replace_control_chars(series["name"].as_str().unwrap_or_default());
    match labels.is_empty() {
        true => name,
        false => format!("{name}{{{}}}", labels.join(",")),
    }
}

/// Renders the response for `log query`.
pub(super) fn render_curves(response: &Value) -> String {
    let covered_seconds = parse_numbers(&response["covered"]);
    let recorded_seconds: f64 = covered_seconds.iter().sum();
    let mut text = format!(
        "{} s to a step, {recorded_seconds} s recorded\n",
        response["step"]
    );
    for series in response["series"].as_array().into_iter().flatten() {
        let total: f64 = parse_numbers(&series["sum"]).iter().sum();
        let peak = parse_numbers(&series["max"]).into_iter().reduce(f64::max);
        let rate = format_short(total / recorded_seconds.max(1.0));
        let _ = write!(
            text,
            "{}\n  {}\n  ",
            series_selector(series),
            sparkline(&rates_per_second(series, &covered_seconds))
        );
        let _ = match series["kind"].as_str() {
            Some("gauge") => write!(text, "mean {rate}"),
            _ => write!(text, "{total} in all, {rate}/s"),
        };
        if let Some(peak) = peak {
            let _ = write!(text, ", at most {} in a second", format_short(peak));
        }
        text.push('\n');
    }
    text
}

/// Renders the response for `log top`.
pub(super) fn render_top(response: &Value) -> String {
    let total = response["total"].as_u64().unwrap_or(0);
    let mut text = format!("{total} {}", response["of"].as_str().unwrap_or_default());
    if let Some(distinct) = response["distinct"].as_u64() {
        let _ = write!(
            text,
            ", {}{distinct} different keys",
            lower_bound_words(response)
        );
    }
    text.push('\n');
    for listed_key in response["keys"].as_array().into_iter().flatten() {
        let text_of =
            |name: &str| replace_control_chars(listed_key[name].as_str().unwrap_or_default());
        let count = listed_key["count"].as_u64().unwrap_or(0);
        let share = count as f64 / total.max(1) as f64 * 100.0;
        let _ = writeln!(
            text,
            "{count:>12} {share:>5.1} %  {}  {}",
            text_of("limit"),
            text_of("key")
        );
    }
    match response["rest"].as_u64() {
        Some(rest) if rest > 0 => text + &format!("{rest:>12}          others\n"),
        _ => text,
    }
}

/// The words before the number of different keys: "at least" if the number is a lower bound, and none otherwise.
fn lower_bound_words(response: &Value) -> &'static str {
    let is_lower_bound = response["at_least"].as_bool() == Some(true);
    if is_lower_bound { "at least " } else { "" }
}

/// Renders the response for `log explain`.
pub(super) fn render_explanation(response: &Value) -> String {
    let text_of = |value: &Value| replace_control_chars(value.as_str().unwrap_or_default());
    let mut text = format!(
        "{}\n\n{} of {} requests were refused in {} s",
        text_of(&response["text"]),
        response["refused"],
        response["requests"],
        response["seconds"],
    );
    let before = &response["before"];
    text += &match before["seconds"].as_u64() {
        None | Some(0) => String::from("; the record has nothing of the time before.\n"),
        Some(seconds) => {
            format!(
                "; {} of {} in {seconds} s before.\n",
                before["refused"], before["requests"]
            )
        }
    };
    let percent = |value: &Value| value.as_f64().unwrap_or(0.0) * 100.0;
    for limit in response["limits"].as_array().into_iter().flatten() {
        let definitions = limit["places"].as_array().into_iter().flatten();
        let definitions: Vec<String> = definitions
            .map(|rule| format!("{}, {}", text_of(&rule["guarantee"]), text_of(&rule["at"])))
            .collect();
        let _ = writeln!(
            text,
            "  {:>5.1} %  {}  {}",
            percent(&limit["share"]),
            text_of(&limit["limit"]),
            definitions.join("; ")
        );
    }
    let distinct = &response["distinct"];
    let _ = writeln!(
        text,
        "who ({}{distinct} different keys):",
        lower_bound_words(response)
    );
    for key in response["keys"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "  {:>5.1} %  {}  {}",
            percent(&key["share"]),
            text_of(&key["key"]),
            text_of(&key["limit"])
        );
    }
    for event in response["events"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "at {}: {}, {}",
            format_time(&event["at"]),
            text_of(&event["event"]),
            text_of(&event["detail"])
        );
        for change in event["changes"].as_array().into_iter().flatten() {
            let limit_text = |version: &str| match change[version].as_str() {
                Some(text) => replace_control_chars(text),
                None => String::from("nothing"),
            };
            let _ = writeln!(
                text,
                "  {} was {}, is {}",
                text_of(&change["limit"]),
                limit_text("before"),
                limit_text("after")
            );
        }
    }
    text
}

/// Renders the response for `log export` as JSON lines, one for each series and step. If series were summed by labels,
/// the lines have no `min` and no `max`, which cannot be summed.
pub(super) fn render_lines(response: &Value, is_summed: bool) -> String {
    let mut text = String::new();
    let first_second = response["from"].as_u64().unwrap_or(0);
    let step_seconds = response["step"].as_u64().unwrap_or(0);
    let covered_seconds = response["covered"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    for series in response["series"].as_array().into_iter().flatten() {
        for (index, seconds) in covered_seconds.iter().enumerate() {
            // The values of a step without recorded seconds are missing, not zero.
            if seconds == 0 {
                continue;
            }
            let mut line = json!({
                "at": first_second + index as u64 * step_seconds,
                "step": step_seconds,
                "seconds": seconds,
                "name": series["name"],
                "labels": series["labels"],
                "sum": series["sum"][index],
            });
            if !is_summed {
                line["min"] = series["min"][index].clone();
                line["max"] = series["max"][index].clone();
            }
            let _ = writeln!(text, "{line}");
        }
    }
    text
}
