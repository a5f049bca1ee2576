//! Encodes samples for Prometheus remote write 1.0: one `WriteRequest` in protocol buffers, compressed with snappy.
//!
//! Source: <https://prometheus.io/docs/specs/prw/remote_write_spec/>, with `prompb/remote.proto` and
//! `prompb/types.proto` of Prometheus.

use super::row::{RowSlice, TimedValue, to_f64};
use crate::base::proto_message::ProtoMessage;
use crate::record::Series;

/// The header fields that the protocol requires, beside `User-Agent`, which `deliver.rs` adds.
pub const HEADER_FIELDS: [(&str, &str); 3] = [
    ("content-type", "application/x-protobuf"),
    ("content-encoding", "snappy"),
    ("x-prometheus-remote-write-version", "0.1.0"),
];

// The numbers of the fields of each message.
const WRITE_REQUEST_TIMESERIES: u32 = 1;
const TIME_SERIES_LABELS: u32 = 1;
const TIME_SERIES_SAMPLES: u32 = 2;
const LABEL_NAME: u32 = 1;
const LABEL_VALUE: u32 = 2;
const SAMPLE_VALUE: u32 = 1;
const SAMPLE_TIMESTAMP: u32 = 2;

/// Encodes the body of a request. `extra_labels` are added to every series that has no label of the
/// same name.
///
/// # Errors
///
/// Fails when the message is longer than the 4 GiB that snappy can compress.
pub fn encode(
    slice: RowSlice<'_>,
    extra_labels: &[(String, String)],
) -> Result<Vec<u8>, snap::Error> {
    let write_request = slice
        .rows()
        .fold(ProtoMessage::default(), |request, (series, samples)| {
            let time_series = time_series(series, samples, extra_labels);
            request.with_message(WRITE_REQUEST_TIMESERIES, &time_series)
        });
    snap::raw::Encoder::new().compress_vec(&write_request.into_bytes())
}

/// Builds a `TimeSeries` message: the labels, the name among them, and the samples.
fn time_series(
    series: &Series,
    samples: &[TimedValue],
    extra_labels: &[(String, String)],
) -> ProtoMessage {
    let own_labels = series.labels.iter();
    let own_labels = own_labels.map(|(label, value)| (label.as_str(), value.as_str()));
    let name_label = ("__name__", series.name.as_str());
    let mut labels: Vec<_> = own_labels.chain([name_label]).collect();
    for (label, value) in extra_labels {
        if !labels.iter().any(|(own_label, _)| own_label == label) {
            labels.push((label, value));
        }
    }
    // An empty value means that the label is absent, and the protocol wants labels sorted by name.
    labels.retain(|(_, value)| !value.is_empty());
    labels.sort_unstable();
    let message = labels
        .into_iter()
        .fold(ProtoMessage::default(), |message, (label, value)| {
            let label = ProtoMessage::default()
                .with_string(LABEL_NAME, label)
                .with_string(LABEL_VALUE, value);
            message.with_message(TIME_SERIES_LABELS, &label)
        });
    samples.iter().fold(message, |message, sample| {
        let timestamp_ms = sample.second.saturating_mul(1_000);
        let sample = ProtoMessage::default()
            .with_double(SAMPLE_VALUE, to_f64(series, sample))
            .with_uint(SAMPLE_TIMESTAMP, timestamp_ms);
        message.with_message(TIME_SERIES_SAMPLES, &sample)
    })
}
