//! Serves the kinds and descriptions of metrics, as the gateway's own `/metrics` has them. Metrics that only the record
//! has get a kind and no description.

use std::collections::BTreeMap;

use axum::extract::State;
use serde_json::{Value, json};

use super::catalog::ExposedSeries;
use super::parameters::QueryParameters;
use super::reader::{MAX_QUERY_TIMEOUT, RecordReader};
use super::response::{ApiResult, Truncated, success};
use super::samples::RecordSamples;
use crate::base::telemetry::MetricsFormat;
use crate::record::SeriesKind;
use crate::record::promql::labels::METRIC_NAME_LABEL;
use crate::serve::admin::control::ControlState;

/// `GET /api/v1/metadata`: the description of each metric, or of the one that `metric` names.
pub async fn metadata(State(gateway): ControlState, parameters: QueryParameters) -> ApiResult {
    let limit = parameters.limit()?;
    let metrics_text = gateway.metrics(MetricsFormat::Text);
    let query = move |samples: &RecordSamples| Ok(describe_metrics(&metrics_text, samples.exposed));
    let reader = RecordReader::open(&*gateway)?;
    let mut descriptions = reader.run(MAX_QUERY_TIMEOUT, query).await?;
    let metric_name = parameters.get("metric");
    if !metric_name.is_empty() {
        descriptions.retain(|name, _| name == metric_name);
    }
    let data: serde_json::Map<String, Value> = descriptions
        .into_iter()
        .take(limit)
        .map(|(name, MetricDescription { kind, help })| {
            let description = json!([{ "type": kind, "help": help, "unit": "" }]);
            (name, description)
        })
        .collect();
    Ok(success(&Value::Object(data).to_string(), Truncated::No))
}

/// The description of one metric.
#[derive(Debug, Default, PartialEq, Eq)]
struct MetricDescription {
    /// The kind in the words of Prometheus, such as `counter`.
    kind: String,
    /// A sentence; empty for metrics that only the record has.
    help: String,
}

/// The kinds and descriptions of the metrics in `metrics_text`, which is that of `/metrics`, and the kinds of metrics that
/// only the record has.
fn describe_metrics(
    metrics_text: &str,
    exposed: &[ExposedSeries],
) -> BTreeMap<String, MetricDescription> {
    let mut descriptions: BTreeMap<String, MetricDescription> = BTreeMap::new();
    for line in metrics_text.lines() {
        let mut words = line.splitn(4, ' ');
        let ("#", keyword @ ("HELP" | "TYPE"), Some(name)) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
            words.next(),
        ) else {
            continue;
        };
        let text = words.next().unwrap_or_default();
        let description = descriptions.entry(name.to_owned()).or_default();
        match keyword {
            "TYPE" => text.clone_into(&mut description.kind),
            _ => description.help = text.replace("\\n", "\n").replace("\\\\", "\\"),
        }
    }
    for series in exposed {
        let name = series.labels.get(METRIC_NAME_LABEL);
        let is_histogram_part = |suffix: &str| {
            let metric = name
                .strip_suffix(suffix)
                .and_then(|name| descriptions.get(name));
            metric.is_some_and(|metric| metric.kind == "histogram")
        };
        // A histogram is described as a whole, not by its parts.
        if ["_bucket", "_count", "_sum"]
            .into_iter()
            .any(is_histogram_part)
        {
            continue;
        }
        let kind = match series.kind {
            SeriesKind::Counter => "counter",
            SeriesKind::Gauge => "gauge",
        };
        descriptions
            .entry(name.to_owned())
            .or_insert_with(|| MetricDescription {
                kind: kind.to_owned(),
                help: String::new(),
            });
    }
    descriptions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::promql::labels::Labels;

    #[test]
    fn kinds_and_sentences() {
        let metrics = "# HELP a_total As \\\\ many.\n# TYPE a_total counter\na_total 5\n\
                       # HELP t Long.\n# TYPE t histogram\nt_bucket{le=\"1\"} 3\n";
        let exposed = [
            ("t_bucket", SeriesKind::Counter),
            ("gone", SeriesKind::Gauge),
        ];
        let exposed = exposed.map(|(name, kind)| ExposedSeries {
            labels: Labels::new([(METRIC_NAME_LABEL, name)]),
            kind,
            parts: Vec::new(),
        });
        let described: Vec<_> = describe_metrics(metrics, &exposed).into_iter().collect();
        let expected = [
            ("a_total", "counter", "As \\ many."),
            ("gone", "gauge", ""),
            ("t", "histogram", "Long."),
        ];
        let to_described = |(name, kind, help): (&str, &str, &str)| {
            let description = MetricDescription {
                kind: kind.to_owned(),
                help: help.to_owned(),
            };
            (name.to_owned(), description)
        };
        assert_eq!(described, expected.map(to_described));
    }
}
