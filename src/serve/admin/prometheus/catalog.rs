//! Lists the record's series in the form in which Prometheus has them.
//!
//! Most series are exposed unchanged. In the record, a bucket of a histogram counts only the values between two bounds.
//! Here a bucket is cumulative. If the record has no bucket `+Inf`, the bucket is added. If it has no `*_count`, a
//! count is added that equals that bucket.

use std::collections::BTreeMap;

use crate::record::promql::labels::{Labels, METRIC_NAME_LABEL};
use crate::record::promql::{BUCKET_BOUND_LABEL, number};
use crate::record::{Series, SeriesKind};

/// Suffix of the names of a histogram's buckets.
const BUCKET_SUFFIX: &str = "_bucket";

/// The upper bound of a histogram's last bucket.
const INFINITE_BOUND: &str = "+Inf";

/// A series that queries can select.
#[derive(Clone, Debug, PartialEq)]
pub struct ExposedSeries {
    /// Labels, with the metric's name among them.
    pub labels: Labels,
    /// Whether the series is a counter or a gauge.
    pub kind: SeriesKind,
    /// The series of the record that add up to the exposed series, each divided by its unit.
    pub parts: Vec<SeriesPart>,
}

/// A series of the record that is a part of an exposed series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesPart {
    /// The number of the series in the record.
    pub number: u32,
    /// The recorded integer that stands for 1: a power of ten.
    pub unit: f64,
}

/// The exposed form of all recorded series, sorted by labels.
pub fn expose_series(recorded: &[(Series, u32)]) -> Vec<ExposedSeries> {
    let mut exposed: BTreeMap<Labels, ExposedSeries> = BTreeMap::new();
    let mut histograms: BTreeMap<Labels, Vec<CatalogBucket>> = BTreeMap::new();
    for (series, number) in recorded {
        let part = SeriesPart {
            number: *number,
            unit: 10_f64.powi(series.decimals.into()),
        };
        let labels = labels_of(series);
        match bucket_bound(series) {
            Some(upper_bound) => {
                let histogram_labels = labels.filtered(|name| name != BUCKET_BOUND_LABEL);
                histograms
                    .entry(histogram_labels)
                    .or_default()
                    .push(CatalogBucket {
                        upper_bound,
                        labels,
                        part,
                    });
            }
            None => add_parts(&mut exposed, labels, series.kind, &[part]),
        }
    }
    for (labels, buckets) in histograms {
        add_histogram(&labels, buckets, &mut exposed);
    }
    exposed.into_values().collect()
}

/// One bucket of a histogram in the record.
struct CatalogBucket {
    upper_bound: f64,
    /// The labels of the bucket's series.
    labels: Labels,
    part: SeriesPart,
}

/// Adds parts to the series with these labels. A series has several parts if it is cumulative, or if its number of
/// decimals has changed.
fn add_parts(
    exposed: &mut BTreeMap<Labels, ExposedSeries>,
    labels: Labels,
    kind: SeriesKind,
    parts: &[SeriesPart],
) {
    let new_series = || ExposedSeries {
        labels: labels.clone(),
        kind,
        parts: Vec::new(),
    };
    let series = exposed.entry(labels.clone()).or_insert_with(new_series);
    series.parts.extend(parts);
}

/// The labels of a recorded series, with the metric's name among them.
fn labels_of(series: &Series) -> Labels {
    let own_labels = series.labels.iter();
    let own_labels = own_labels.map(|(name, value)| (name.as_str(), value.as_str()));
    Labels::new(own_labels.chain([(METRIC_NAME_LABEL, series.name.as_str())]))
}

/// The upper bound of a series that is a bucket of a histogram; `None` for other series.
fn bucket_bound(series: &Series) -> Option<f64> {
    let mut labels = series.labels.iter();
    let (_, bound) = labels.find(|(name, _)| name == BUCKET_BOUND_LABEL)?;
    let is_bucket = series.kind == SeriesKind::Counter && series.name.ends_with(BUCKET_SUFFIX);
    number::parse_float(bound).filter(|bound| is_bucket && !bound.is_nan())
}

/// Adds the cumulative buckets of a histogram, and its count. `labels` are those of its buckets, without the bound.
fn add_histogram(
    labels: &Labels,
    mut buckets: Vec<CatalogBucket>,
    exposed: &mut BTreeMap<Labels, ExposedSeries>,
) {
    buckets.sort_by(|a, b| a.upper_bound.total_cmp(&b.upper_bound));
    let mut parts = Vec::with_capacity(buckets.len());
    let mut lacks_infinite_bucket = true;
    for bucket in buckets {
        parts.push(bucket.part);
        // The last bucket has the highest bound, so it decides.
        lacks_infinite_bucket = bucket.upper_bound < f64::INFINITY;
        add_parts(exposed, bucket.labels, SeriesKind::Counter, &parts);
    }
    if lacks_infinite_bucket {
        let infinite_bucket = labels.with(BUCKET_BOUND_LABEL, INFINITE_BOUND);
        add_parts(exposed, infinite_bucket, SeriesKind::Counter, &parts);
    }
    let bucket_name = labels.get(METRIC_NAME_LABEL);
    let name = bucket_name
        .strip_suffix(BUCKET_SUFFIX)
        .unwrap_or(bucket_name);
    let count_series = labels.with(METRIC_NAME_LABEL, &format!("{name}_count"));
    if !exposed.contains_key(&count_series) {
        add_parts(exposed, count_series, SeriesKind::Counter, &parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, labels: &[(&str, &str)], kind: SeriesKind) -> Series {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Series {
            name: name.to_owned(),
            labels: labels.iter().map(owned).collect(),
            kind,
            decimals: 0,
        }
    }

    fn check(recorded: &[Series], expected: &[(&str, &[u32])]) {
        let numbered: Vec<_> = recorded.iter().cloned().zip(0..).collect();
        let exposed: Vec<(String, Vec<u32>)> = expose_series(&numbered)
            .into_iter()
            .map(|series| {
                let parts = series.parts.iter().map(|part| part.number);
                (series.labels.to_string(), parts.collect())
            })
            .collect();
        let expected = expected.iter();
        let expected: Vec<_> = expected
            .map(|(labels, parts)| ((*labels).to_owned(), parts.to_vec()))
            .collect();
        assert_eq!(exposed, expected);
    }

    #[test]
    fn series_that_are_exposed_unchanged() {
        check(
            &[
                series("b", &[("y", "1"), ("x", "2"), ("z", "")], SeriesKind::Gauge),
                series("a_total", &[], SeriesKind::Counter),
                // Only a counter has buckets.
                series("c_bucket", &[("le", "1")], SeriesKind::Gauge),
                series("d_bucket", &[], SeriesKind::Counter),
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
    fn a_changed_number_of_decimals() {
        let changed = Series {
            decimals: 3,
            ..series("a", &[], SeriesKind::Gauge)
        };
        check(
            &[series("a", &[], SeriesKind::Gauge), changed],
            &[(r#"{__name__="a"}"#, &[0, 1])],
        );
    }

    #[test]
    fn histograms() {
        let bucket = |bound| {
            series(
                "t_bucket",
                &[("le", bound), ("r", "x")],
                SeriesKind::Counter,
            )
        };
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
                series("t_count", &[("r", "x")], SeriesKind::Counter),
            ],
            &[
                (r#"{__name__="t_bucket", le="+Inf", r="x"}"#, &[1, 0]),
                (r#"{__name__="t_bucket", le="1", r="x"}"#, &[1]),
                (r#"{__name__="t_count", r="x"}"#, &[2]),
            ],
        );
    }
}
