//! Encodes samples in Graphite's line protocol: `name;label=value 12.5 1700000000`, one line per sample.
//!
//! Counters are cumulative, so the next line makes up for a lost one. Carbon does lose lines: it keeps only the last
//! line of each interval that it stores, and drops lines of new series when many arrive at once.

use std::fmt::Write as _;

use super::row::{RowSlice, TimedValue};
use crate::record::Series;

/// Encodes the lines. `extra_labels` are added to every series that has no label of the same name.
pub fn encode(slice: RowSlice<'_>, extra_labels: &[(String, String)]) -> Vec<u8> {
    let mut lines = String::new();
    for (series, samples) in slice.rows() {
        let name = tagged_name(series, extra_labels);
        for sample in samples {
            let value = format_decimal(series, sample);
            let _ = writeln!(lines, "{name} {value} {}", sample.second);
        }
    }
    lines.into_bytes()
}

/// Returns `name;label=value;…`. Carbon understands such tags since 1.1. Labels with empty values are left out, because
/// carbon allows no empty tag.
fn tagged_name(series: &Series, extra_labels: &[(String, String)]) -> String {
    let mut name = sanitize(&series.name);
    let own_labels = series.labels.iter();
    let added_labels = extra_labels.iter().filter(|(label, _)| {
        !series
            .labels
            .iter()
            .any(|(own_label, _)| own_label == label)
    });
    for (label, value) in own_labels
        .chain(added_labels)
        .filter(|(_, value)| !value.is_empty())
    {
        let _ = write!(name, ";{}={}", sanitize(label), sanitize(value));
    }
    name
}

/// Replaces the characters that end a name or a tag, and `!` and `~`, which carbon forbids in some places.
fn sanitize(text: &str) -> String {
    let is_reserved =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, ';' | '=' | '~' | '!');
    text.replace(is_reserved, "_")
}

/// Writes a value with all of its digits, which a float would round above 2^53.
fn format_decimal(series: &Series, sample: &TimedValue) -> String {
    let scale = 10_u64.saturating_pow(series.decimals.into());
    let (whole, fraction) = (sample.value / scale, sample.value % scale);
    match series.decimals {
        0 => whole.to_string(),
        decimals => format!("{whole}.{fraction:0width$}", width = decimals.into()),
    }
}
