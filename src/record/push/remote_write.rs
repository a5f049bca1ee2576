//! Prometheus remote write 1.0: one message of protocol buffers, packed by snappy.
//!
//! Source: <https://prometheus.io/docs/specs/prw/remote_write_spec/>, with `prompb/types.proto`.

use super::proto::Message;
use super::row::{Part, float};

/// The fields that say what is sent.
pub const FIELDS: [(&str, &str); 3] = [
    ("content-type", "application/x-protobuf"),
    ("content-encoding", "snappy"),
    ("x-prometheus-remote-write-version", "0.1.0"),
];

/// A request's body. `labels` are added to every series; where it has one of that name, its own stays.
pub fn encode(part: Part<'_>, labels: &[(String, String)]) -> Result<Vec<u8>, snap::Error> {
    snap::raw::Encoder::new().compress_vec(&message(part, labels).finish())
}

/// `WriteRequest`.
fn message(part: Part<'_>, labels: &[(String, String)]) -> Message {
    part.rows()
        .fold(Message::default(), |request, (series, samples)| {
            let own = series.labels.iter();
            let own = own.map(|(label, value)| (label.as_str(), value.as_str()));
            let mut all: Vec<_> = own.chain([("__name__", series.name.as_str())]).collect();
            for (label, value) in labels {
                if !all.iter().any(|(other, _)| other == label) {
                    all.push((label, value));
                }
            }
            // An empty value is the same as none; receivers want labels in order.
            all.retain(|(_, value)| !value.is_empty());
            all.sort_unstable();
            let row = all
                .into_iter()
                .fold(Message::default(), |row, (label, value)| {
                    row.message(1, &Message::default().text(1, label).text(2, value))
                });
            let row = samples.iter().fold(row, |row, sample| {
                let value = float(series, sample);
                let milliseconds = sample.at.saturating_mul(1_000);
                row.message(
                    2,
                    &Message::default().double(1, value).number(2, milliseconds),
                )
            });
            request.message(1, &row)
        })
}
