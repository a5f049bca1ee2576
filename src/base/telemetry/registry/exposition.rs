//! Renders the metrics for scrapers: in the text format of Prometheus, and in OpenMetrics with exemplars.
//!
//! Source: <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::buckets::{BUCKET_BOUNDS, BUCKET_COUNT, INFINITE_BOUND};
use super::super::exemplar::Exemplar;
use super::super::metrics_format::MetricsFormat;
use super::super::names::{Label, Metric, MetricKind};
use super::{Cell, Exemplars, Registry, sum_of_counter};

impl Registry {
    /// Renders all series in this format.
    pub fn render(&self, format: MetricsFormat) -> String {
        let mut text = String::new();
        let exemplars = match format {
            MetricsFormat::Text => BTreeMap::new(),
            MetricsFormat::OpenMetrics => self.exemplars.lock().clone(),
        };
        let series = self.series.lock();
        let mut last_metric = None;
        // The histogram whose buckets are being added up. Its series follow each other, because the bound is the last
        // label.
        let mut open_histogram: Option<RenderedHistogram<'_>> = None;
        for ((metric, labels), cells) in series.iter() {
            let kind = metric.kind();
            // A sum is rendered with its histogram.
            if kind == MetricKind::Sum {
                continue;
            }
            let histogram_labels: &[_] = match labels.split_last() {
                Some((_bucket_bound, others)) if kind == MetricKind::Histogram => others,
                _ => &[],
            };
            let is_complete = |open_histogram: &mut RenderedHistogram<'_>| {
                last_metric != Some(*metric) || open_histogram.labels != histogram_labels
            };
            if let Some(complete) = open_histogram.take_if(is_complete) {
                complete.render(&mut text, format, &exemplars);
            }
            if last_metric != Some(*metric) {
                render_family(&mut text, *metric, format);
                last_metric = Some(*metric);
            }
            if kind == MetricKind::Histogram {
                let histogram = open_histogram.get_or_insert_with(|| {
                    let sum_key = metric
                        .sum_metric()
                        .map(|sum| (sum, histogram_labels.to_vec()));
                    let sum_cells = sum_key.and_then(|key| series.get(&key));
                    RenderedHistogram::new(*metric, histogram_labels, sum_cells)
                });
                histogram.add_bucket(&labels[histogram_labels.len()].1, sum_of_counter(cells));
            } else {
                render_value(&mut text, *metric, labels, cells);
            }
        }
        if let Some(complete) = open_histogram {
            complete.render(&mut text, format, &exemplars);
        }
        if format == MetricsFormat::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

/// Renders the help and the type of a metric, which stand before its first series.
fn render_family(text: &mut String, metric: Metric, format: MetricsFormat) {
    let name = metric.name();
    let (family, kind) = match metric.kind() {
        MetricKind::Gauge => (name, "gauge"),
        MetricKind::Histogram => (name.trim_end_matches("_bucket"), "histogram"),
        // In OpenMetrics only the samples of a counter have the suffix.
        MetricKind::Counter | MetricKind::Sum => match format {
            MetricsFormat::Text => (name, "counter"),
            MetricsFormat::OpenMetrics => (name.trim_end_matches("_total"), "counter"),
        },
    };
    let help = metric.help();
    let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
}

/// Renders the value of a counter or a gauge, added up over its cells.
fn render_value(
    text: &mut String,
    metric: Metric,
    labels: &[(Label, String)],
    cells: &[Arc<Cell>],
) {
    let name = metric.name();
    match metric.kind() {
        MetricKind::Gauge => {
            let levels = cells
                .iter()
                .map(|cell| f64::from_bits(cell.bits.load(Ordering::Relaxed)));
            render_line(text, name, labels, None, levels.sum::<f64>());
        }
        _ if metric.decimal_places() > 0 => {
            let value = sum_of_counter(cells) as f64 / 10_f64.powi(metric.decimal_places().into());
            render_line(text, name, labels, None, value);
        }
        _ => render_line(text, name, labels, None, sum_of_counter(cells)),
    }
}

/// The buckets of one histogram, added up over all workers.
struct RenderedHistogram<'s> {
    /// The metric of the buckets.
    metric: Metric,
    /// The labels of the histogram, without the bound of a bucket.
    labels: &'s [(Label, String)],
    /// The durations in each bucket, without those in lower buckets.
    counts: [u64; BUCKET_COUNT],
    /// The sum of all durations, in seconds.
    sum_seconds: f64,
}

impl<'s> RenderedHistogram<'s> {
    fn new(
        metric: Metric,
        labels: &'s [(Label, String)],
        sum_cells: Option<&Vec<Arc<Cell>>>,
    ) -> RenderedHistogram<'s> {
        let nanos = sum_cells.map_or(0, |cells| sum_of_counter(cells));
        RenderedHistogram {
            metric,
            labels,
            counts: [0; BUCKET_COUNT],
            sum_seconds: nanos as f64 / 1e9,
        }
    }

    /// Adds a count to the bucket whose bound labels write as `bound`.
    fn add_bucket(&mut self, bound: &str, count: u64) {
        let bucket_index = BUCKET_BOUNDS.iter().position(|(_, text)| *text == bound);
        self.counts[bucket_index.unwrap_or(BUCKET_BOUNDS.len())] += count;
    }

    /// Renders all buckets, also empty ones: a bucket that appears later would look as if it had counted from the
    /// start. In OpenMetrics a bucket has its latest exemplar behind it.
    fn render(&self, text: &mut String, format: MetricsFormat, exemplars: &Exemplars) {
        let bucket_name = self.metric.name();
        let name = bucket_name.trim_end_matches("_bucket");
        let mut count_below = 0;
        let bounds = BUCKET_BOUNDS.iter().map(|(_, bound)| *bound);
        let exemplars = self.latest_exemplars(exemplars);
        let buckets = bounds.chain([INFINITE_BOUND]).zip(self.counts);
        for ((bound, count), exemplar) in buckets.zip(exemplars) {
            count_below += count;
            if format == MetricsFormat::Text {
                render_line(text, bucket_name, self.labels, Some(bound), count_below);
                continue;
            }
            // OpenMetrics writes whole numbers with a point.
            let is_whole = bound.bytes().all(|byte| byte.is_ascii_digit());
            let point = if is_whole { ".0" } else { "" };
            let shown_bound = format!("{bound}{point}");
            let exemplar = exemplar.map_or_else(String::new, |exemplar| exemplar.to_string());
            let value = format_args!("{count_below}{exemplar}");
            render_line(text, bucket_name, self.labels, Some(&shown_bound), value);
        }
        let (sum_name, count_name) = (format!("{name}_sum"), format!("{name}_count"));
        render_line(text, &sum_name, self.labels, None, self.sum_seconds);
        render_line(text, &count_name, self.labels, None, count_below);
    }

    /// The latest exemplar of each bucket, of all workers.
    fn latest_exemplars(&self, exemplars: &Exemplars) -> [Option<Exemplar>; BUCKET_COUNT] {
        let mut latest = [None; BUCKET_COUNT];
        let of_workers = exemplars.get(&(self.metric, self.labels.to_vec()));
        for (_, of_worker) in of_workers.into_iter().flatten() {
            for (latest, own) in latest.iter_mut().zip(of_worker.all()) {
                let at = |exemplar: Option<Exemplar>| exemplar.map(|exemplar| exemplar.at);
                if at(own) > at(*latest) {
                    *latest = own;
                }
            }
        }
        latest
    }
}

/// Renders one sample. The bound of its bucket, if it has one, is the last label.
fn render_line(
    text: &mut String,
    name: &str,
    labels: &[(Label, String)],
    bucket_bound: Option<&str>,
    value: impl std::fmt::Display,
) {
    text.push_str(name);
    let labels = labels.iter().map(|(label, value)| (*label, value.as_str()));
    let bucket_bound = bucket_bound.map(|bound| (Label::BucketBound, bound));
    let mut separator = '{';
    for (label, value) in labels.chain(bucket_bound) {
        let _ = write!(
            text,
            "{separator}{}=\"{}\"",
            label.as_str(),
            escape_label_value(value)
        );
        separator = ',';
    }
    if separator == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

/// Escapes what the text format does not allow in the value of a label.
fn escape_label_value(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::clock::Nanos;
    use crate::base::telemetry::Histogram;

    #[test]
    fn open_metrics_has_exemplars_and_an_end() {
        let registry = Registry::default();
        let metrics = (Metric::RequestDuration, Metric::RequestDurationSum);
        let histogram = Histogram::new(&registry, 0, metrics, (Label::Route, "a"));
        registry.counter(Metric::Spans, &[]).increment(2);
        let exemplar = Exemplar {
            trace_id: 0xab,
            span_id: 0xc,
            seconds: 0.9,
            at: Duration::ZERO,
        };
        histogram.observe(Nanos(900_000_000));
        // The latest counts, whichever worker has it.
        for (worker, millis) in [(1, 1_400), (0, 1_300), (0, 1_500), (2, 1_499)] {
            let histogram = Histogram::new(&registry, worker, metrics, (Label::Route, "a"));
            let at = Duration::from_millis(millis);
            histogram.set_exemplar(Nanos(900_000_000), Exemplar { at, ..exemplar });
        }
        let text = registry.render(MetricsFormat::OpenMetrics);
        let ids = format!("{{trace_id=\"{:032x}\",span_id=\"{:016x}\"}}", 0xab, 0xc);
        let name = "tollgate_request_duration_seconds";
        for line in [
            "# TYPE tollgate_spans counter".to_owned(),
            "tollgate_spans_total 2".to_owned(),
            format!("{name}_bucket{{route=\"a\",le=\"1.0\"}} 1 # {ids} 0.9 1.500"),
            format!("{name}_bucket{{route=\"a\",le=\"1.5\"}} 1"),
            format!("{name}_bucket{{route=\"a\",le=\"+Inf\"}} 1"),
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
        let text = registry.render(MetricsFormat::Text);
        assert!(!text.contains(" # {") && !text.contains("EOF"), "{text}");
        assert!(text.contains("le=\"1\"} 1\n") && text.contains("spans_total counter\n"));
    }
}
