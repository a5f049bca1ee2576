//! Lists the record's series in the form in which Prometheus has them.
//!
//! Most series are exposed unchanged. In the record a bucket of a histogram counts only what fell between two bounds. Here
//! a bucket is cumulative, `+Inf` is added, and `*_count` equals it.

use std::collections::BTreeMap;

use crate::record::promql::labels::{Labels, METRIC_NAME_LABEL};
use crate::record::promql::{BUCKET_BOUND_LABEL, number};
use crate::record::{Kind, Series};

/// Suffix of the names of a histogram's buckets.
const BUCKET_SUFFIX: &str = "_bucket";

/// The bound of the last bucket.
const INFINITE: &str = "+Inf";

/// A series that queries can select.
#[derive(Clone, Debug, PartialEq)]
pub struct ExposedSeries {
    /// Labels, with the metric's name among them.
    pub labels: Labels,
    /// Counter or gauge.
    pub kind: Kind,
    /// The series of the record whose sum this is: their numbers, and how many units of the record make 1.
    pub parts: Vec<(u32, f64)>,
}

/// The exposed form of all recorded series, sorted by labels.
pub fn expose_series(recorded: &[(Series, u32)]) -> Vec<ExposedSeries> {
    let mut all: BTreeMap<Labels, ExposedSeries> = BTreeMap::new();
    let mut histograms: BTreeMap<Labels, Vec<HistogramBucket>> = BTreeMap::new();
    for (series, number) in recorded {
        let part = (*number, 10_f64.powi(series.decimals.into()));
        let labels = labels_of(series);
        match bucket_bound(series) {
            Some(bound) => {
                let histogram = labels.filtered(|name| name != BUCKET_BOUND_LABEL);
                let bucket = (bound, labels, part);
                histograms.entry(histogram).or_default().push(bucket);
            }
            None => add_parts(&mut all, labels, series.kind, &[part]),
        }
    }
    for (labels, buckets) in histograms {
        add_histogram(&labels, buckets, &mut all);
    }
    all.into_values().collect()
}

/// An upper bound, the bucket's labels, and its series.
type HistogramBucket = (f64, Labels, (u32, f64));

/// Adds parts to the series with these labels. A series has several if its number of decimals has changed.
fn add_parts(
    all: &mut BTreeMap<Labels, ExposedSeries>,
    labels: Labels,
    kind: Kind,
    parts: &[(u32, f64)],
) {
    let new = || ExposedSeries {
        labels: labels.clone(),
        kind,
        parts: Vec::new(),
    };
    let exposed = all.entry(labels.clone()).or_insert_with(new);
    exposed.parts.extend(parts);
}

/// The labels of a recorded series, with its name among them.
fn labels_of(series: &Series) -> Labels {
    let labels = series.labels.iter().map(|(n, v)| (n.as_str(), v.as_str()));
    Labels::new(labels.chain([(METRIC_NAME_LABEL, series.name.as_str())]))
}

/// The upper bound, if the series is a bucket of a histogram.
fn bucket_bound(series: &Series) -> Option<f64> {
    let mut labels = series.labels.iter();
    let (_, bound) = labels.find(|(name, _)| name == BUCKET_BOUND_LABEL)?;
    let is_bucket = series.kind == Kind::Counter && series.name.ends_with(BUCKET_SUFFIX);
    number::parse_float(bound).filter(|bound| is_bucket && !bound.is_nan())
}

/// Adds the cumulative buckets of a histogram, and its count.
fn add_histogram(
    labels: &Labels,
    mut buckets: Vec<HistogramBucket>,
    all: &mut BTreeMap<Labels, ExposedSeries>,
) {
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut parts = Vec::with_capacity(buckets.len());
    let mut lacks_infinite = true;
    for (bound, labels, part) in buckets {
        parts.push(part);
        lacks_infinite = bound < f64::INFINITY;
        add_parts(all, labels, Kind::Counter, &parts);
    }
    if lacks_infinite {
        add_parts(
            all,
            labels.with(BUCKET_BOUND_LABEL, INFINITE),
            Kind::Counter,
            &parts,
        );
    }
    let name = labels.get(METRIC_NAME_LABEL);
    let name = name.strip_suffix(BUCKET_SUFFIX).unwrap_or(name);
    let count = labels.with(METRIC_NAME_LABEL, &format!("{name}_count"));
    if !all.contains_key(&count) {
        add_parts(all, count, Kind::Counter, &parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, labels: &[(&str, &str)], kind: Kind) -> Series {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Series {
            name: name.to_owned(),
            labels: labels.iter().map(own).collect(),
            kind,
            decimals: 0,
        }
    }

    fn check(recorded: &[Series], expected: &[(&str, &[u32])]) {
        let numbered: Vec<_> = recorded.iter().cloned().zip(0..).collect();
        let found: Vec<(String, Vec<u32>)> = expose_series(&numbered)
            .into_iter()
            .map(|series| {
                let parts = series.parts.iter().map(|(number, _)| *number);
                (series.labels.to_string(), parts.collect())
            })
            .collect();
        let expected = expected.iter();
        let expected: Vec<_> = expected
            .map(|(labels, parts)| ((*labels).to_owned(), parts.to_vec()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn series_as_they_are() {
        check(
            &[
                series("b", &[("y", "1"), ("x", "2"), ("z", "")], Kind::Gauge),
                series("a_total", &[], Kind::Counter),
                // Only a counter has buckets.
                series("c_bucket", &[("le", "1")], Kind::Gauge),
                series("d_bucket", &[], Kind::Counter),
            ],
            &[
                (r#"{__name__="a_total"}"#, &[1]),
                (r#"{__name__="b", x="2", y="1"}"#, &[0]),
                (r#"{__name__="c_bucket", le="1"}"#, &[2]),
                (r#"{__name__="d_bucket"}"#, &[3]),
            ],
        );
    }

    #[test]
    fn digits_that_changed() {
        let new = Series {
            decimals: 3,
            ..series("a", &[], Kind::Gauge)
        };
        check(
            &[series("a", &[], Kind::Gauge), new],
            &[(r#"{__name__="a"}"#, &[0, 1])],
        );
    }

    #[test]
    fn histograms() {
        let bucket = |bound| series("t_bucket", &[("le", bound), ("r", "x")], Kind::Counter);
        check(
            &[bucket("10"), bucket("0.5"), bucket("2")],
            &[
                (r#"{__name__="t_bucket", le="+Inf", r="x"}"#, &[1, 2, 0]),
                (r#"{__name__="t_bucket", le="0.5", r="x"}"#, &[1]),
                (r#"{__name__="t_bucket", le="10", r="x"}"#, &[1, 2, 0]),
                (r#"{__name__="t_bucket", le="2", r="x"}"#, &[1, 2]),
                (r#"{__name__="t_count", r="x"}"#, &[1, 2, 0]),
            ],
        );
        check(
            &[
                bucket("+Inf"),
                bucket("1"),
                series("t_count", &[("r", "x")], Kind::Counter),
            ],
            &[
                (r#"{__name__="t_bucket", le="+Inf", r="x"}"#, &[1, 0]),
                (r#"{__name__="t_bucket", le="1", r="x"}"#, &[1]),
                (r#"{__name__="t_count", r="x"}"#, &[2]),
            ],
        );
    }
}
