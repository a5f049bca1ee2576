//! Describes the size of the record and how far it reaches back.

use std::io;

use serde_json::{Value, json};

use super::query::opened_record;
use crate::record::{Record, Tier};
use crate::serve::admin::control::Control;

/// The record's folder, size and oldest seconds; null if nothing is recorded.
pub async fn status(gateway: &dyn Control) -> Value {
    let Ok(record) = opened_record(gateway) else {
        return Value::Null;
    };
    let description = tokio::task::spawn_blocking(move || record.get().map(describe));
    match description.await {
        Ok(Some(Ok(status))) => status,
        Ok(Some(Err(error))) => json!({ "trouble": error.to_string() }),
        _ => Value::Null,
    }
}

fn describe(record: &Record) -> io::Result<Value> {
    let oldest = Tier::ALL.into_iter().zip(record.oldest_by_tier()?);
    let tiers = oldest.filter_map(|(tier, oldest)| {
        let oldest = oldest?;
        Some(json!({ "step": tier.name(), "oldest": oldest }))
    });
    let bytes = record.disk_usage()?;
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
