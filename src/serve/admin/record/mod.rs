//! What is asked of the record.

mod explain;
mod live;
mod notes;
mod range;

pub use explain::explain;
pub use live::live;
pub use notes::{events, key, samples, top};
pub use range::{range, series};

use std::io;
use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Control, problem};
use crate::record::{Record, Tier};

/// Questions that are answered at a time: each may take some tens of megabytes.
static ANSWERING: Semaphore = Semaphore::const_new(2);

type Opened = Arc<OnceLock<Record>>;

/// An answer that says what is wrong with a question.
type Wrong = Box<Response>;

fn wrong(detail: &str) -> Wrong {
    problem(StatusCode::BAD_REQUEST, detail).into()
}

/// The record, or why there is none.
fn opened(gateway: &dyn Control) -> Result<Opened, Wrong> {
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

/// Answers where the disk may be waited for: elsewhere than where operators are served.
async fn read(
    gateway: &dyn Control,
    answer: impl FnOnce(&Record) -> io::Result<Value> + Send + 'static,
) -> Response {
    let record = match opened(gateway) {
        Ok(record) => record,
        Err(answer) => return *answer,
    };
    let turn = ANSWERING.acquire().await;
    let read = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let told = |record: &Record, error| match record.folder() {
            Some(folder) => format!(
                "the record in `{}` cannot be read: {error}",
                folder.display()
            ),
            None => format!("the record cannot be read: {error}"),
        };
        let read = |record| answer(record).map_err(|error| told(record, error));
        record.get().map(read)
    });
    match read.await {
        Ok(Some(Ok(answer))) => Json(answer).into_response(),
        Ok(Some(Err(detail))) => problem(StatusCode::INTERNAL_SERVER_ERROR, &detail),
        _ => problem(StatusCode::INTERNAL_SERVER_ERROR, "the record was not read"),
    }
}

/// What there is of it; nothing when nothing is recorded.
pub async fn status(gateway: &dyn Control) -> Value {
    let Ok(record) = opened(gateway) else {
        return Value::Null;
    };
    let read = tokio::task::spawn_blocking(move || record.get().map(described));
    match read.await {
        Ok(Some(Ok(status))) => status,
        Ok(Some(Err(error))) => json!({ "trouble": error.to_string() }),
        _ => Value::Null,
    }
}

fn described(record: &Record) -> io::Result<Value> {
    let oldest = Tier::ALL.into_iter().zip(record.oldest_of_each()?);
    let tiers = oldest.filter_map(|(tier, oldest)| {
        let oldest = oldest?;
        Some(json!({ "step": tier.name(), "oldest": oldest }))
    });
    let bytes = record.bytes()?;
    let memory = || String::from("memory");
    Ok(json!({
        "where": record.folder().map_or_else(memory, |folder| folder.display().to_string()),
        "bytes": bytes.map(|(bytes, _)| bytes),
        "most_bytes": bytes.map(|(_, most)| most),
        "series": record.series().len(),
        "end": record.end(),
        "tiers": tiers.collect::<Vec<_>>(),
    }))
}

fn now() -> String {
    String::from("now")
}

/// A span that was asked for.
fn between(gateway: &dyn Control, from: &str, to: &str) -> Result<(u64, u64), Wrong> {
    let now = gateway.clock().wall().as_secs();
    let (Some(from), Some(to)) = (moment(from, now), moment(to, now)) else {
        return Err(wrong(
            "`from` and `to` are seconds since 1970, a time before now such as -1h, or now",
        ));
    };
    if from >= to {
        return Err(wrong("`from` must be before `to`"));
    }
    Ok((from, to))
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
