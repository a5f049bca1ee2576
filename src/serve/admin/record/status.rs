//! Describes the size of the record and how far back it reaches, for `GET /v1/status`.

use std::io;

use serde_json::{Value, json};

use super::query::require_record;
use crate::record::{Record, Tier};
use crate::serve::admin::control::Control;

/// The record's folder, size, end and oldest seconds; null if the record is off or not open. If its folder cannot be
/// read, only the error.
pub async fn describe_record(gateway: &dyn Control) -> Value {
    let Ok(record) = require_record(gateway) else {
        return Value::Null;
    };
    let description = tokio::task::spawn_blocking(move || record.get().map(read_status));
    match description.await {
        Ok(Some(Ok(status))) => status,
        Ok(Some(Err(error))) => json!({ "trouble": error.to_string() }),
        _ => Value::Null,
    }
}

/// Reads the status from the record's folder, which may wait for the disk.
fn read_status(record: &Record) -> io::Result<Value> {
    let oldest_by_tier = Tier::ALL.into_iter().zip(record.oldest_by_tier()?);
    let tiers = oldest_by_tier.filter_map(|(tier, oldest_second)| {
        let oldest_second = oldest_second?;
        Some(json!({ "step": tier.name(), "oldest": oldest_second }))
    });
    let usage = record.disk_usage()?;
    let in_memory = || String::from("memory");
    Ok(json!({
        "where": record.folder().map_or_else(in_memory, |folder| folder.display().to_string()),
        "bytes": usage.map(|usage| usage.used_bytes),
        "most_bytes": usage.map(|usage| usage.max_bytes),
        "series": record.series().len(),
        "end": record.end(),
        "tiers": tiers.collect::<Vec<_>>(),
    }))
}
