//! OTLP over HTTP: `ExportMetricsServiceRequest` in protocol buffers. Counters are sums that are monotonic and cumulative.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>, with `metrics/v1/metrics.proto`.

use super::proto::Message;
use super::row::{Part, TimedValue, float};
use crate::base::varint::take;
use crate::record::{Kind, Series};

/// The field that says what is sent.
pub const FIELDS: [(&str, &str); 1] = [("content-type", "application/x-protobuf")];

const CUMULATIVE: u64 = 2;

/// A request's body. Counters count from the second `begun` on; `labels` are what is known of the gateway.
pub fn encode(part: Part<'_>, labels: &[(String, String)], begun: u64) -> Vec<u8> {
    let scope = Message::default().text(1, "tollgate");
    let scope = scope.text(2, env!("CARGO_PKG_VERSION"));
    let mut scope = Message::default().message(1, &scope);
    let rows: Vec<_> = part.rows().collect();
    for rows in rows.chunk_by(|(a, _), (b, _)| a.name == b.name && a.kind == b.kind) {
        scope = scope.message(2, &metric(rows, begun));
    }
    let named = labels.iter().any(|(label, _)| label == "service.name");
    let own = (!named).then(|| attribute("service.name", "tollgate"));
    let given = labels.iter().map(|(label, value)| attribute(label, value));
    let resource = own
        .into_iter()
        .chain(given)
        .fold(Message::default(), |all, one| all.message(1, &one));
    let all = Message::default().message(1, &resource).message(2, &scope);
    Message::default().message(1, &all).finish()
}

fn metric(rows: &[(&Series, &[TimedValue])], begun: u64) -> Message {
    let metric = Message::default();
    let Some((first, _)) = rows.first() else {
        return metric;
    };
    let sums = first.kind == Kind::Counter;
    let mut data = Message::default();
    for (series, samples) in rows {
        for sample in *samples {
            data = data.message(1, &point(series, sample, begun));
        }
    }
    let metric = metric.text(1, &first.name);
    if sums {
        metric.message(7, &data.number(2, CUMULATIVE).number(3, 1))
    } else {
        metric.message(5, &data)
    }
}

/// `NumberDataPoint`.
fn point(series: &Series, sample: &TimedValue, begun: u64) -> Message {
    let nanos = |second: u64| second.saturating_mul(1_000_000_000);
    let mut point = Message::default();
    if series.kind == Kind::Counter {
        point = point.fixed(2, nanos(begun.min(sample.at)));
    }
    point = point.fixed(3, nanos(sample.at));
    point = match series.decimals {
        0 => point.fixed(6, sample.value),
        _ => point.double(4, float(series, sample)),
    };
    let labels = series.labels.iter();
    labels.fold(point, |point, (label, value)| {
        point.message(7, &attribute(label, value))
    })
}

/// `KeyValue`.
fn attribute(key: &str, value: &str) -> Message {
    let value = Message::default().text(1, value);
    Message::default().text(1, key).message(2, &value)
}

/// How many points a collector says it has not taken, and why: the `partial_success` of its answer.
pub fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let partial = field(answer, 1)?;
    let ProtoValue::Bytes(partial) = partial else {
        return None;
    };
    let Some(ProtoValue::Number(count)) = field(partial, 1) else {
        return None;
    };
    let why = match field(partial, 2) {
        Some(ProtoValue::Bytes(text)) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    (count > 0).then_some((count, why))
}

enum ProtoValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The first field of this number.
fn field(mut message: &[u8], wanted: u64) -> Option<ProtoValue<'_>> {
    while !message.is_empty() {
        let key = take(&mut message)?;
        let value = match key & 7 {
            0 => ProtoValue::Number(take(&mut message)?),
            2 => {
                let length = usize::try_from(take(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                ProtoValue::Bytes(bytes)
            }
            form @ (1 | 5) => {
                let length = if form == 1 { 8 } else { 4 };
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                ProtoValue::Bytes(bytes)
            }
            _ => return None,
        };
        if key >> 3 == wanted {
            return Some(value);
        }
    }
    None
}
