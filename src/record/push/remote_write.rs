//! Encodes samples for Prometheus remote write 1.0: one `WriteRequest` in protocol buffers, compressed with snappy.
//!
//! Source: <https://prometheus.io/docs/specs/prw/remote_write_spec/>, with `prompb/remote.proto` and
//! `prompb/types.proto` of Prometheus.

use super::proto_message::ProtoMessage;
use super::row::{RowSlice, TimedValue, to_f64};
use crate::record::Series;

/// The header fields that the protocol requires, beside `User-Agent`, which `deliver.rs` adds.
pub const HEADER_FIELDS: [(&str, &str); 3] = [
    ("content-type", "application/x-protobuf"),
    ("content-encoding", "snappy"),
    ("x-prometheus-remote-write-version", "0.1.0"),
];

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
            request.with_message(1, &time_series(series, samples, extra_labels))
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
    let mut labels: Vec<_> = own_labels
        .chain([("__name__", series.name.as_str())])
        .collect();
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
            let label = ProtoMessage::default().with_string(1, label);
            message.with_message(1, &label.with_string(2, value))
        });
    samples.iter().fold(message, |message, sample| {
        let timestamp_ms = sample.at.saturating_mul(1_000);
        let value = ProtoMessage::default().with_double(1, to_f64(series, sample));
        message.with_message(2, &value.with_uint(2, timestamp_ms))
    })
}
