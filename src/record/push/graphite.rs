//! Graphite's line protocol: `name;label=value 12.5 1700000000`, a line for each sample.
//!
//! A line says all that was counted before, as with the other engines, and not what was counted since the line before: carbon
//! keeps one line of each slot, the last, and drops lines of new series when many come at a time. Of a count that only grows
//! the next line has all that a lost one had.

use std::fmt::Write as _;

use super::row::{Part, TimedValue};
use crate::record::Series;

/// The lines. `labels` are added to every series; where it has one of that name, its own stays.
pub fn encode(part: Part<'_>, labels: &[(String, String)]) -> Vec<u8> {
    let mut out = String::new();
    for (series, samples) in part.rows() {
        let name = name(series, labels);
        for sample in samples {
            let _ = writeln!(out, "{name} {} {}", value(series, sample), sample.at);
        }
    }
    out.into_bytes()
}

/// A name with tags, which carbon has known since 1.1.
fn name(series: &Series, labels: &[(String, String)]) -> String {
    let mut name = plain(&series.name);
    let own = series.labels.iter();
    let added = labels
        .iter()
        .filter(|(label, _)| !series.labels.iter().any(|(other, _)| other == label));
    for (label, value) in own.chain(added).filter(|(_, value)| !value.is_empty()) {
        let _ = write!(name, ";{}={}", plain(label), plain(value));
    }
    name
}

/// Without what would end a name or a tag.
fn plain(text: &str) -> String {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, ';' | '=' | '~' | '!');
    text.replace(odd, "_")
}

/// Every digit of it.
fn value(series: &Series, sample: &TimedValue) -> String {
    let scale = 10_u64.saturating_pow(series.decimals.into());
    let (whole, behind) = (sample.value / scale, sample.value % scale);
    match series.decimals {
        0 => whole.to_string(),
        decimals => format!("{whole}.{behind:0width$}", width = decimals.into()),
    }
}
