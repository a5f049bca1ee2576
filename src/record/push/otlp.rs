//! Encodes samples for OTLP over HTTP, and reads from the response how many data points the collector rejected.
//!
//! The body is an `ExportMetricsServiceRequest` in protocol buffers. Counters, also the buckets of histograms, become
//! sums that are monotonic and cumulative. Source: <https://opentelemetry.io/docs/specs/otlp/>, with
//! `metrics/v1/metrics.proto`.

use super::row::{RowSlice, TimedValue, to_f64};
use crate::base::proto_message::{ProtoMessage, ProtoValue, find_field};
use crate::record::{Series, SeriesKind};

/// The header field that the protocol requires.
pub const HEADER_FIELDS: [(&str, &str); 1] = [("content-type", "application/x-protobuf")];

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: each point of a sum counts from the same start.
const CUMULATIVE: u64 = 2;

// The numbers of the fields of each message.
const EXPORT_REQUEST_RESOURCE_METRICS: u32 = 1;
const RESOURCE_METRICS_RESOURCE: u32 = 1;
const RESOURCE_METRICS_SCOPE_METRICS: u32 = 2;
const SCOPE_METRICS_SCOPE: u32 = 1;
const SCOPE_METRICS_METRICS: u32 = 2;
const SCOPE_NAME: u32 = 1;
const SCOPE_VERSION: u32 = 2;
const RESOURCE_ATTRIBUTES: u32 = 1;
const METRIC_NAME: u32 = 1;
const METRIC_GAUGE: u32 = 5;
const METRIC_SUM: u32 = 7;
/// The number in both `Gauge` and `Sum`.
const DATA_POINTS: u32 = 1;
const SUM_TEMPORALITY: u32 = 2;
const SUM_IS_MONOTONIC: u32 = 3;
const POINT_START_TIME: u32 = 2;
const POINT_TIME: u32 = 3;
const POINT_AS_DOUBLE: u32 = 4;
const POINT_AS_INT: u32 = 6;
const POINT_ATTRIBUTES: u32 = 7;
const KEY_VALUE_KEY: u32 = 1;
const KEY_VALUE_VALUE: u32 = 2;
const ANY_VALUE_STRING: u32 = 1;
const EXPORT_RESPONSE_PARTIAL_SUCCESS: u64 = 1;
const PARTIAL_SUCCESS_REJECTED_ITEMS: u64 = 1;
const PARTIAL_SUCCESS_ERROR_MESSAGE: u64 = 2;

/// Encodes the body of a request. Counters count from the second `counted_since`, since 1970; `labels` become
/// attributes of the resource. Rows of one name and kind must follow each other, because they become one metric.
pub fn encode(slice: RowSlice<'_>, labels: &[(String, String)], counted_since: u64) -> Vec<u8> {
    let scope = ProtoMessage::default()
        .with_string(SCOPE_NAME, "tollgate")
        .with_string(SCOPE_VERSION, env!("CARGO_PKG_VERSION"));
    let mut scope_metrics = ProtoMessage::default().with_message(SCOPE_METRICS_SCOPE, &scope);
    let rows: Vec<_> = slice.rows().collect();
    for metric_rows in rows.chunk_by(|(a, _), (b, _)| a.name == b.name && a.kind == b.kind) {
        let metric = metric(metric_rows, counted_since);
        scope_metrics = scope_metrics.with_message(SCOPE_METRICS_METRICS, &metric);
    }
    let resource_metrics = ProtoMessage::default()
        .with_message(RESOURCE_METRICS_RESOURCE, &resource(labels))
        .with_message(RESOURCE_METRICS_SCOPE_METRICS, &scope_metrics);
    ProtoMessage::default()
        .with_message(EXPORT_REQUEST_RESOURCE_METRICS, &resource_metrics)
        .into_bytes()
}

/// Builds a `Resource` from the labels of the gateway. Its `service.name` is `tollgate`, unless a label has that name.
fn resource(labels: &[(String, String)]) -> ProtoMessage {
    let is_named = labels.iter().any(|(label, _)| label == "service.name");
    let default_name = (!is_named).then(|| key_value("service.name", "tollgate"));
    let label_attributes = labels.iter().map(|(label, value)| key_value(label, value));
    let attributes = default_name.into_iter().chain(label_attributes);
    attributes.fold(ProtoMessage::default(), |resource, attribute| {
        resource.with_message(RESOURCE_ATTRIBUTES, &attribute)
    })
}

/// Builds a `Metric` of series that have one name and one kind.
fn metric(rows: &[(&Series, &[TimedValue])], counted_since: u64) -> ProtoMessage {
    let metric = ProtoMessage::default();
    let Some((first_series, _)) = rows.first() else {
        return metric;
    };
    let mut points = ProtoMessage::default();
    for (series, samples) in rows {
        for sample in *samples {
            let point = number_data_point(series, sample, counted_since);
            points = points.with_message(DATA_POINTS, &point);
        }
    }
    let metric = metric.with_string(METRIC_NAME, &first_series.name);
    match first_series.kind {
        SeriesKind::Counter => {
            let is_monotonic = 1;
            let sum = points
                .with_uint(SUM_TEMPORALITY, CUMULATIVE)
                .with_uint(SUM_IS_MONOTONIC, is_monotonic);
            metric.with_message(METRIC_SUM, &sum)
        }
        SeriesKind::Gauge => metric.with_message(METRIC_GAUGE, &points),
    }
}

/// Builds a `NumberDataPoint` of one sample of a series.
fn number_data_point(series: &Series, sample: &TimedValue, counted_since: u64) -> ProtoMessage {
    let to_nanos = |seconds: u64| seconds.saturating_mul(1_000_000_000);
    let mut point = ProtoMessage::default();
    if series.kind == SeriesKind::Counter {
        // A point must not start after its own time.
        point = point.with_fixed64(POINT_START_TIME, to_nanos(counted_since.min(sample.second)));
    }
    point = point.with_fixed64(POINT_TIME, to_nanos(sample.second));
    point = match series.decimals {
        0 => point.with_fixed64(POINT_AS_INT, sample.value),
        _ => point.with_double(POINT_AS_DOUBLE, to_f64(series, sample)),
    };
    let labels = series.labels.iter();
    labels.fold(point, |point, (label, value)| {
        point.with_message(POINT_ATTRIBUTES, &key_value(label, value))
    })
}

/// Builds a `KeyValue` with a string.
pub fn key_value(key: &str, value: &str) -> ProtoMessage {
    let any_value = ProtoMessage::default().with_string(ANY_VALUE_STRING, value);
    ProtoMessage::default()
        .with_string(KEY_VALUE_KEY, key)
        .with_message(KEY_VALUE_VALUE, &any_value)
}

/// Reads from the response to an export how many data points or spans were rejected, and why. Returns `None` if all were
/// accepted, or if the response cannot be read. The reason may be empty.
pub fn rejected_items(response: &[u8]) -> Option<(u64, String)> {
    let Some(ProtoValue::Bytes(partial_success)) =
        find_field(response, EXPORT_RESPONSE_PARTIAL_SUCCESS)
    else {
        return None;
    };
    let Some(ProtoValue::Number(count)) =
        find_field(partial_success, PARTIAL_SUCCESS_REJECTED_ITEMS)
    else {
        return None;
    };
    let reason = match find_field(partial_success, PARTIAL_SUCCESS_ERROR_MESSAGE) {
        Some(ProtoValue::Bytes(text)) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    (count > 0).then_some((count, reason))
}
