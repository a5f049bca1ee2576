//! Encodes samples for OTLP over HTTP, and reads from the response how many data points the collector rejected.
//!
//! The body is an `ExportMetricsServiceRequest` in protocol buffers. Counters, also the buckets of histograms, become
//! sums that are monotonic and cumulative. Source: <https://opentelemetry.io/docs/specs/otlp/>, with
//! `metrics/v1/metrics.proto`.

use super::proto_message::ProtoMessage;
use super::row::{RowSlice, TimedValue, to_f64};
use crate::base::varint::take_varint;
use crate::record::{Series, SeriesKind};

/// The header field that the protocol requires.
pub const HEADER_FIELDS: [(&str, &str); 1] = [("content-type", "application/x-protobuf")];

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: each point of a sum counts from the same start.
const CUMULATIVE: u64 = 2;

/// Encodes the body of a request. Counters count from the second `counted_since`; `labels` become attributes of the
/// resource.
pub fn encode(slice: RowSlice<'_>, labels: &[(String, String)], counted_since: u64) -> Vec<u8> {
    let scope = ProtoMessage::default().with_string(1, "tollgate");
    let scope = scope.with_string(2, env!("CARGO_PKG_VERSION"));
    let mut scope_metrics = ProtoMessage::default().with_message(1, &scope);
    let rows: Vec<_> = slice.rows().collect();
    for rows in rows.chunk_by(|(a, _), (b, _)| a.name == b.name && a.kind == b.kind) {
        scope_metrics = scope_metrics.with_message(2, &metric(rows, counted_since));
    }
    let resource_metrics = ProtoMessage::default()
        .with_message(1, &resource(labels))
        .with_message(2, &scope_metrics);
    ProtoMessage::default()
        .with_message(1, &resource_metrics)
        .into_bytes()
}

/// Builds a `Resource` from the labels of the gateway. Its `service.name` is `tollgate`, unless a label has that name.
fn resource(labels: &[(String, String)]) -> ProtoMessage {
    let is_named = labels.iter().any(|(label, _)| label == "service.name");
    let default_name = (!is_named).then(|| key_value("service.name", "tollgate"));
    let label_attributes = labels.iter().map(|(label, value)| key_value(label, value));
    let attributes = default_name.into_iter().chain(label_attributes);
    attributes.fold(ProtoMessage::default(), |resource, attribute| {
        resource.with_message(1, &attribute)
    })
}

/// Builds a `Metric` of series that have one name and one kind.
fn metric(rows: &[(&Series, &[TimedValue])], counted_since: u64) -> ProtoMessage {
    let metric = ProtoMessage::default();
    let Some((first, _)) = rows.first() else {
        return metric;
    };
    let mut points = ProtoMessage::default();
    for (series, samples) in rows {
        for sample in *samples {
            points = points.with_message(1, &number_data_point(series, sample, counted_since));
        }
    }
    let metric = metric.with_string(1, &first.name);
    match first.kind {
        SeriesKind::Counter => {
            let is_monotonic = 1;
            let sum = points.with_uint(2, CUMULATIVE).with_uint(3, is_monotonic);
            metric.with_message(7, &sum)
        }
        SeriesKind::Gauge => metric.with_message(5, &points),
    }
}

/// Builds a `NumberDataPoint` of one sample of a series.
fn number_data_point(series: &Series, sample: &TimedValue, counted_since: u64) -> ProtoMessage {
    let to_nanos = |second: u64| second.saturating_mul(1_000_000_000);
    let mut point = ProtoMessage::default();
    if series.kind == SeriesKind::Counter {
        point = point.with_fixed64(2, to_nanos(counted_since.min(sample.at)));
    }
    point = point.with_fixed64(3, to_nanos(sample.at));
    point = match series.decimals {
        0 => point.with_fixed64(6, sample.value),
        _ => point.with_double(4, to_f64(series, sample)),
    };
    let labels = series.labels.iter();
    labels.fold(point, |point, (label, value)| {
        point.with_message(7, &key_value(label, value))
    })
}

/// Builds a `KeyValue` with a string.
fn key_value(key: &str, value: &str) -> ProtoMessage {
    let value = ProtoMessage::default().with_string(1, value);
    let key = ProtoMessage::default().with_string(1, key);
    key.with_message(2, &value)
}

/// Reads from an `ExportMetricsServiceResponse` how many data points were rejected, and why. Returns `None` if all were
/// accepted, or if the response cannot be read. The reason may be empty.
pub fn rejected_points(response: &[u8]) -> Option<(u64, String)> {
    let Some(ProtoValue::Bytes(partial_success)) = find_field(response, 1) else {
        return None;
    };
    let Some(ProtoValue::Number(count)) = find_field(partial_success, 1) else {
        return None;
    };
    let reason = match find_field(partial_success, 2) {
        Some(ProtoValue::Bytes(text)) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    (count > 0).then_some((count, reason))
}

/// A value of a field, by its wire type.
enum ProtoValue<'a> {
    /// The value of a varint.
    Number(u64),
    /// The bytes of a value of any other wire type, without its length.
    Bytes(&'a [u8]),
}

/// Finds the first field with the number `field_number`. Returns `None` if the message has no such field, or is
/// malformed before the end of that field.
fn find_field(mut message: &[u8], field_number: u64) -> Option<ProtoValue<'_>> {
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        let value = match key & 7 {
            0 => ProtoValue::Number(take_varint(&mut message)?),
            2 => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                let (bytes, later_fields) = message.split_at_checked(length)?;
                message = later_fields;
                ProtoValue::Bytes(bytes)
            }
            wire_type @ (1 | 5) => {
                let length = if wire_type == 1 { 8 } else { 4 };
                let (bytes, later_fields) = message.split_at_checked(length)?;
                message = later_fields;
                ProtoValue::Bytes(bytes)
            }
            _ => return None,
        };
        if key >> 3 == field_number {
            return Some(value);
        }
    }
    None
}
