//! Encodes samples for OTLP over HTTP. `base/otlp.rs` has the messages that traces need too.
//!
//! The body is an `ExportMetricsServiceRequest` in protocol buffers. Counters, also the buckets of histograms, become
//! sums that are monotonic and cumulative. Source: <https://opentelemetry.io/docs/specs/otlp/>, with
//! `metrics/v1/metrics.proto`.

use super::row::{RowSlice, TimedValue, to_f64};
use crate::base::otlp;
use crate::base::proto_message::ProtoMessage;
use crate::record::{Series, SeriesKind};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: each point of a sum counts from the same start.
const CUMULATIVE: u64 = 2;

// The numbers of the fields of each message.
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

/// Encodes the body of a request. Counters count from the second `counted_since`, since 1970; `labels` become
/// attributes of the resource. Rows of one name and kind must follow each other, because they become one metric.
pub fn encode(slice: RowSlice<'_>, labels: &[(String, String)], counted_since: u64) -> Vec<u8> {
    let rows: Vec<_> = slice.rows().collect();
    let metrics = rows.chunk_by(|(a, _), (b, _)| a.name == b.name && a.kind == b.kind);
    let encoded_metrics = metrics.fold(ProtoMessage::default(), |encoded, metric_rows| {
        encoded.with_message(otlp::SCOPE_ITEM, &metric(metric_rows, counted_since))
    });
    // The name of the service is `tollgate`, unless a label has that name.
    let is_named = labels.iter().any(|(label, _)| label == "service.name");
    let default_name = (!is_named).then(|| otlp::string_attribute("service.name", "tollgate"));
    let label_attributes = labels
        .iter()
        .map(|(label, value)| otlp::string_attribute(label, value));
    let attributes = default_name.into_iter().chain(label_attributes);
    otlp::export_request(attributes, &encoded_metrics.into_bytes())
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
        point.with_message(POINT_ATTRIBUTES, &otlp::string_attribute(label, value))
    })
}
