//! What is asked of the record.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::{Control, problem};
use crate::record::{Column, Found, Grid, Kind, Record, Series};

/// Most buckets of an answer.
const POINTS: usize = 11_000;
/// Most buckets of all series of an answer.
const VALUES: usize = 1_000_000;

/// Questions that are answered at a time, of all kinds: each may take some tens of megabytes.
pub(super) static ANSWERING: Semaphore = Semaphore::const_new(2);

type Opened = Arc<OnceLock<Record>>;

/// The record, or why there is none.
fn opened(gateway: &dyn Control) -> Result<Opened, Box<Response>> {
    let Some(record) = gateway.record() else {
        let detail = "nothing is recorded: the gateway file says `record: off`";
        return Err(problem(StatusCode::NOT_FOUND, detail).into());
    };
    if record.get().is_none() {
        let detail = "another process still writes the record; it is taken over when that ends";
        return Err(problem(StatusCode::SERVICE_UNAVAILABLE, detail).into());
    }
    Ok(record)
}

fn described(series: &Series) -> Map<String, Value> {
    let labels = series.labels.iter();
    let labels: Map<String, Value> = labels
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let kind = match series.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    };
    Map::from_iter([
        (String::from("name"), json!(series.name)),
        (String::from("labels"), Value::Object(labels)),
        (String::from("kind"), json!(kind)),
    ])
}

/// `GET /v1/record/series`.
pub async fn series(State(gateway): State<Arc<dyn Control>>) -> Response {
    let record = match opened(&*gateway) {
        Ok(record) => record,
        Err(answer) => return *answer,
    };
    let all = record.get().map(Record::series).unwrap_or_default();
    let all: Vec<_> = all.iter().map(|(series, _)| described(series)).collect();
    Json(json!({ "series": all })).into_response()
}

/// A span of some series.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// A name, and labels if not all: `tollgate_requests_total{route="shop"}`.
    series: String,
    /// Seconds since 1970, or before now: `-1h`.
    from: String,
    /// The same, or `now`.
    #[serde(default = "now")]
    to: String,
    /// Most buckets.
    #[serde(default = "usual")]
    points: usize,
}

fn now() -> String {
    String::from("now")
}

fn usual() -> usize {
    600
}

/// `GET /v1/record/range`.
pub async fn range(
    State(gateway): State<Arc<dyn Control>>,
    span: Result<Query<Span>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let record = match opened(&*gateway) {
        Ok(record) => record,
        Err(answer) => return *answer,
    };
    let wrong = |detail: &str| problem(StatusCode::BAD_REQUEST, detail);
    let span = match span {
        Ok(Query(span)) => span,
        Err(unclear) => return wrong(&unclear.body_text()),
    };
    let Some((name, labels)) = selector(&span.series) else {
        return wrong(
            "`series` is a name with labels, such as tollgate_requests_total{route=\"shop\"}",
        );
    };
    let now = gateway.clock().wall().as_secs();
    let (Some(from), Some(to)) = (moment(&span.from, now), moment(&span.to, now)) else {
        return wrong(
            "`from` and `to` are seconds since 1970, a time before now such as -1h, or now",
        );
    };
    if from >= to {
        return wrong("`from` must be before `to`");
    }
    if !(2..=POINTS).contains(&span.points) {
        return wrong(&format!("`points` is between 2 and {POINTS}"));
    }
    let mut asked = record.get().map(Record::series).unwrap_or_default();
    asked.retain(|(series, _)| {
        series.name == name && labels.iter().all(|label| series.labels.contains(label))
    });
    let values = asked.len() * span.points;
    if values > VALUES {
        let detail = format!(
            "{} series with {} points are {values} values, of {VALUES} at most: ask for fewer points, or name labels",
            asked.len(),
            span.points
        );
        return wrong(&detail);
    }
    let turn = ANSWERING.acquire().await;
    // The disk is waited for elsewhere than where operators are served.
    let read = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let record = record.get()?;
        Some(answer(record, &asked, (from, to), span.points))
    });
    match read.await {
        Ok(Some(Ok(answer))) => Json(answer).into_response(),
        Ok(Some(Err(error))) => {
            let detail = format!("the record cannot be read: {error}");
            problem(StatusCode::INTERNAL_SERVER_ERROR, &detail)
        }
        _ => problem(StatusCode::INTERNAL_SERVER_ERROR, "the record was not read"),
    }
}

fn answer(
    record: &Record,
    asked: &[(Series, u32)],
    (from, to): (u64, u64),
    points: usize,
) -> std::io::Result<Value> {
    let grid: Grid = record.grid(from, to, points)?;
    let numbers: Vec<u32> = asked.iter().map(|(_, number)| *number).collect();
    let found: Found = record.read(&grid, &numbers)?;
    let each = asked.iter().filter_map(|(series, number)| {
        let column: &Column = found.columns.get(number)?;
        let mut value = described(series);
        let lists = [
            ("sum", &column.sums),
            ("min", &column.least),
            ("max", &column.most),
        ];
        for (name, list) in lists {
            value.insert(name.into(), numbers_of(list, series.decimals));
        }
        Some(Value::Object(value))
    });
    Ok(json!({
        "from": grid.from,
        "step": grid.step,
        "covered": found.covered,
        "series": each.collect::<Vec<_>>(),
    }))
}

fn numbers_of(list: &[u64], decimals: u8) -> Value {
    match decimals {
        0 => json!(list),
        decimals => {
            let unit = 10_f64.powi(decimals.into());
            let list = list.iter().map(|value| *value as f64 / unit);
            Value::Array(list.map(Value::from).collect())
        }
    }
}

type Labels = Vec<(String, String)>;

/// A name and labels, as `/metrics` writes them.
fn selector(text: &str) -> Option<(String, Labels)> {
    let word = |text: &str| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        (!text.is_empty() && text.chars().all(plain)).then(|| text.to_owned())
    };
    let Some((name, rest)) = text.trim().split_once('{') else {
        return Some((word(text.trim())?, Vec::new()));
    };
    let mut rest = rest.strip_suffix('}')?.trim();
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once('=')?;
        let mut letters = after.trim_start().strip_prefix('"')?.char_indices();
        let inside = after.trim_start().get(1..)?;
        let mut value = String::new();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    letter => letter,
                }),
                (_, letter) => value.push(letter),
            }
        };
        labels.push((word(label.trim())?, value));
        rest = inside.get(end + 1..)?.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some((word(name.trim())?, labels))
}

/// Seconds since 1970.
fn moment(text: &str, now: u64) -> Option<u64> {
    if text == "now" {
        return Some(now + 1);
    }
    let Some(back) = text.strip_prefix('-') else {
        return text.parse().ok().filter(|at| *at < 1 << 40);
    };
    let (digits, unit) = back.split_at_checked(back.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "y" => 365 * 86_400,
        _ => return None,
    };
    let span = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    Some(now.saturating_sub(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors() {
        let check = |text: &str, expected: Option<(&str, &[(&str, &str)])>| {
            let expected = expected.map(|(name, labels)| {
                let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
                (name.to_owned(), labels.iter().map(own).collect())
            });
            assert_eq!(selector(text), expected, "{text}");
        };
        check("a_total", Some(("a_total", &[])));
        check("a{}", Some(("a", &[])));
        check("a{b=\"c\"}", Some(("a", &[("b", "c")])));
        check(
            "a{ b = \"c,\\\"}\" , d=\"\",}",
            Some(("a", &[("b", "c,\"}"), ("d", "")])),
        );
        check("a{b=c}", None);
        check("a{b=\"c}", None);
        check("a{b=\"c\"", None);
        check("a{b=\"c\" d=\"e\"}", None);
        check("{b=\"c\"}", None);
        check("a b", None);
        check("", None);
    }

    #[test]
    fn moments() {
        let check = |text, expected| assert_eq!(moment(text, 100_000), expected, "{text}");
        check("now", Some(100_001));
        check("77", Some(77));
        check("-90s", Some(99_910));
        check("-1h", Some(96_400));
        check("-20y", Some(0));
        check("-99999999999999999999y", None);
        check("-1", None);
        check("-", None);
        check("-h", None);
        check("-1é", None);
        check("yesterday", None);
        check("99999999999999", None);
    }
}
