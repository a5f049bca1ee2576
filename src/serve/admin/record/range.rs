//! Serves `/v1/record/series`, the list of all series, and `/v1/record/range`, the values of series in a span: as they
//! are, summed by labels, or as quantiles of histograms.
//!
//! As in the API, a point is one bucket of time in the record. The word bucket means those of histograms here.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::query::{ErrorResponse, bad_request, require_record, respond_with_query};
use super::span::parse_span;
use crate::base::telemetry::buckets;
use crate::record::promql;
use crate::record::promql::labels::{LabelTest, METRIC_NAME_LABEL, Matcher};
use crate::record::{Column, Grid, RangeResult, Record, Series, SeriesKind};
use crate::serve::admin::control::{Control, ControlState};

/// Maximum number of points of a series, as in Prometheus.
const MAX_SERIES_POINTS: usize = 11_000;

/// Maximum number of quantiles in a query.
const MAX_QUANTILES: usize = 10;

/// Maximum number of points of all selected series together, before they are summed or become quantiles. It bounds what
/// is read.
const MAX_SELECTED_POINTS: usize = 1_000_000;

/// The name, labels and kind of a series.
fn describe_series(series: &Series) -> Map<String, Value> {
    let labels = series.labels.iter();
    let labels: Map<String, Value> = labels
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let kind = match series.kind {
        SeriesKind::Counter => "counter",
        SeriesKind::Gauge => "gauge",
    };
    Map::from_iter([
        (String::from("name"), json!(series.name)),
        (String::from("labels"), Value::Object(labels)),
        (String::from("kind"), json!(kind)),
    ])
}

/// `GET /v1/record/series`: the name, labels and kind of every series.
pub async fn series(State(gateway): ControlState) -> Response {
    let record = match require_record(&*gateway) {
        Ok(record) => record,
        Err(response) => return *response,
    };
    let numbered_series = record.get().map(Record::series).unwrap_or_default();
    let descriptions = numbered_series
        .iter()
        .map(|(series, _)| describe_series(series));
    Json(json!({ "series": descriptions.collect::<Vec<_>>() })).into_response()
}

/// The parameters of a range query.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeParameters {
    /// A selector of PromQL that names a metric: `tollgate_requests_total{route="shop"}`.
    series: String,
    /// Seconds since 1970, or a span before now: `-1h`.
    from: String,
    /// As `from`, or `now`.
    #[serde(default = "super::span::default_end")]
    to: String,
    /// Maximum number of points of each series.
    #[serde(default = "default_points")]
    points: usize,
    /// Labels by which series are summed, separated by commas.
    by: Option<String>,
    /// Quantiles of a histogram, such as `0.5,0.99`.
    #[serde(default)]
    quantiles: String,
}

/// The maximum number of points of each series if the request names none.
fn default_points() -> usize {
    600
}

/// `GET /v1/record/range`: the values of the selected series.
pub async fn range(
    State(gateway): ControlState,
    parameters: Result<Query<RangeParameters>, QueryRejection>,
) -> Response {
    match parse_query(&*gateway, parameters) {
        Ok((selected, query)) => {
            respond_with_query(&*gateway, move |record| evaluate(record, &selected, &query)).await
        }
        Err(response) => *response,
    }
}

/// The parsed parameters of a range query, apart from the selector.
struct RangeQuery {
    /// Begin and end, in seconds since 1970.
    span: (u64, u64),
    /// Maximum number of points of each series.
    max_points: usize,
    /// The names of the labels by which series are grouped; `None` if the request names no labels.
    grouping_labels: Option<Vec<String>>,
    /// The quantiles of each histogram, each with its text in the request.
    quantiles: Vec<(String, f64)>,
}

/// A series and its number in the record.
type NumberedSeries = (Series, u32);

/// Parses the parameters, and finds the series that they select. The error is the response.
fn parse_query(
    gateway: &dyn Control,
    parameters: Result<Query<RangeParameters>, QueryRejection>,
) -> Result<(Vec<NumberedSeries>, RangeQuery), ErrorResponse> {
    let record = require_record(gateway)?;
    let Query(parameters) = parameters.map_err(|rejection| bad_request(&rejection.body_text()))?;
    let (name, matchers) = parse_selector(&parameters.series).ok_or_else(|| {
        bad_request(
            "`series` is a selector that names a metric, such as tollgate_requests_total{route=\"shop\"}",
        )
    })?;
    let query = RangeQuery {
        span: parse_span(gateway, &parameters.from, &parameters.to)?,
        max_points: parameters.points,
        grouping_labels: parameters.by.map(|list| {
            let names = list.split(',').map(str::trim);
            let names = names.filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        }),
        quantiles: parse_quantiles(&parameters.quantiles)?,
    };
    if !(2..=MAX_SERIES_POINTS).contains(&query.max_points) {
        return Err(bad_request(&format!(
            "`points` must be between 2 and {MAX_SERIES_POINTS}"
        )));
    }
    if !query.quantiles.is_empty() && !name.ends_with("_bucket") {
        return Err(bad_request(
            "`quantiles` need a histogram: name a series that ends in _bucket",
        ));
    }
    let mut selected = record.get().map(Record::series).unwrap_or_default();
    selected.retain(|(series, _)| matches_selector(&matchers, series));
    let point_count = selected.len() * query.max_points;
    if point_count > MAX_SELECTED_POINTS {
        return Err(bad_request(&format!(
            "{} series with {} points are {point_count} values, but the limit is {MAX_SELECTED_POINTS}: ask for fewer points, or name labels",
            selected.len(),
            query.max_points
        )));
    }
    Ok((selected, query))
}

/// Parses at most [`MAX_QUANTILES`] numbers from 0 to 1, separated by commas; each is returned with its text. The error is
/// the response.
fn parse_quantiles(text: &str) -> Result<Vec<(String, f64)>, ErrorResponse> {
    let numerals = text.split(',').filter(|numeral| !numeral.is_empty());
    let quantiles = numerals.map(|numeral| {
        let number = numeral.trim().parse().ok();
        let quantile = number.filter(|number| (0.0..=1.0).contains(number));
        quantile.map(|quantile| (numeral.trim().to_owned(), quantile))
    });
    let quantiles: Option<Vec<_>> = quantiles.collect();
    quantiles
        .filter(|quantiles| quantiles.len() <= MAX_QUANTILES)
        .ok_or_else(|| {
            bad_request("`quantiles` must be at most 10 numbers between 0 and 1, such as 0.5,0.99")
        })
}

/// Reads the selected series, and builds the response that the query asks for.
fn evaluate(
    record: &Record,
    selected: &[NumberedSeries],
    query: &RangeQuery,
) -> std::io::Result<Value> {
    let (from, to) = query.span;
    let grid: Grid = record.finest_grid(from, to, query.max_points)?;
    let series_numbers: Vec<u32> = selected.iter().map(|(_, number)| *number).collect();
    let range: RangeResult = record.read(&grid, &series_numbers)?;
    let series = if !query.quantiles.is_empty() {
        compute_quantiles(selected, &range, query)
    } else if let Some(grouping_labels) = &query.grouping_labels {
        sum_groups(selected, &range, grouping_labels)
    } else {
        list_series(selected, &range)
    };
    Ok(json!({
        "from": grid.from,
        "step": grid.step_seconds,
        "covered": range.covered_seconds,
        "series": series,
    }))
}

/// Each series by itself: the sum, the minimum and the maximum of each point. A series without values above zero is
/// left out.
fn list_series(selected: &[NumberedSeries], range: &RangeResult) -> Vec<Value> {
    let descriptions = selected.iter().filter_map(|(series, number)| {
        let column: &Column = range.columns.get(number)?;
        let mut description = describe_series(series);
        let value_lists = [
            ("sum", &column.sums),
            ("min", &column.minima),
            ("max", &column.maxima),
        ];
        for (name, values) in value_lists {
            description.insert(name.into(), decimals_to_json(values, series.decimals));
        }
        Some(Value::Object(description))
    });
    descriptions.collect()
}

/// Names and values of labels.
type LabelPairs = Vec<(String, String)>;

/// Groups series by the labels for whose names `is_kept` is true.
fn group_series(
    selected: &[NumberedSeries],
    is_kept: impl Fn(&str) -> bool,
) -> BTreeMap<LabelPairs, Vec<&NumberedSeries>> {
    let mut groups: BTreeMap<LabelPairs, Vec<_>> = BTreeMap::new();
    for numbered_series in selected {
        let (series, _) = numbered_series;
        let kept_labels = series.labels.iter().filter(|(name, _)| is_kept(name));
        groups
            .entry(kept_labels.cloned().collect())
            .or_default()
            .push(numbered_series);
    }
    groups
}

/// Describes a group by its labels, and by the name and the kind of one of its series.
fn describe_group(member: &Series, labels: LabelPairs) -> Map<String, Value> {
    describe_series(&Series {
        labels,
        ..member.clone()
    })
}

/// The sum of each group of series. The decimals of its first series are applied to the sum.
fn sum_groups(
    selected: &[NumberedSeries],
    range: &RangeResult,
    grouping_labels: &[String],
) -> Vec<Value> {
    let groups = group_series(selected, |name| {
        grouping_labels.iter().any(|label| label == name)
    });
    let descriptions = groups.into_iter().map(|(labels, members)| {
        let mut group_sums = vec![0_u64; range.covered_seconds.len()];
        for (_, number) in &members {
            let column = range.columns.get(number);
            let series_sums = column.iter().flat_map(|column| &column.sums);
            for (group_sum, series_sum) in group_sums.iter_mut().zip(series_sums) {
                *group_sum = group_sum.saturating_add(*series_sum);
            }
        }
        let (first_series, _) = members[0];
        let mut description = describe_group(first_series, labels);
        let sums = decimals_to_json(&group_sums, first_series.decimals);
        description.insert("sum".into(), sums);
        Value::Object(description)
    });
    descriptions.collect()
}

/// The quantiles of each histogram; null at points without values. The series of a histogram are its buckets; their
/// label `le` is the upper bound.
fn compute_quantiles(
    selected: &[NumberedSeries],
    range: &RangeResult,
    query: &RangeQuery,
) -> Vec<Value> {
    let is_kept = |name: &str| match &query.grouping_labels {
        Some(labels) => labels.iter().any(|label| label == name) && name != "le",
        None => name != "le",
    };
    let groups = group_series(selected, is_kept);
    let descriptions = groups.into_iter().map(|(labels, members)| {
        let buckets = members.iter().filter_map(|(series, number)| {
            let (_, bound) = series.labels.iter().find(|(name, _)| name == "le")?;
            let column = range.columns.get(number)?;
            Some((bound.parse::<f64>().ok()?, &column.sums))
        });
        let buckets: Vec<_> = buckets.collect();
        let mut curves = vec![Vec::new(); query.quantiles.len()];
        for point_index in 0..range.covered_seconds.len() {
            // The histogram at this point: each bound, and the count of its bucket.
            let mut counts: Vec<(f64, u64)> = buckets
                .iter()
                .map(|(bound, sums)| (*bound, sums.get(point_index).copied().unwrap_or(0)))
                .collect();
            for ((_, quantile), curve) in query.quantiles.iter().zip(&mut curves) {
                curve.push(buckets::estimate_quantile(*quantile, &mut counts));
            }
        }
        let (first_series, _) = members[0];
        let mut description = describe_group(first_series, labels);
        let texts = query.quantiles.iter().map(|(text, _)| text.clone());
        let curves = curves.into_iter().map(Value::from);
        let quantiles: Map<String, Value> = texts.zip(curves).collect();
        description.insert("quantiles".into(), Value::Object(quantiles));
        Value::Object(description)
    });
    descriptions.collect()
}

/// Recorded integers as numbers. The last `decimals` digits of each integer are decimal places.
fn decimals_to_json(integers: &[u64], decimals: u8) -> Value {
    match decimals {
        0 => json!(integers),
        decimals => {
            let divisor = 10_f64.powi(decimals.into());
            let numbers = integers.iter().map(|integer| *integer as f64 / divisor);
            Value::Array(numbers.map(Value::from).collect())
        }
    }
}

/// Whether all matchers of a selector accept the labels of a series, or their absence.
fn matches_selector(matchers: &[Matcher], series: &Series) -> bool {
    let mut matchers = matchers.iter();
    matchers.all(|matcher| matcher.accepts(label_value(series, &matcher.name)))
}

/// The metric's name and the matchers of a PromQL selector, such as `tollgate_requests_total{route="shop"}`.
///
/// `None` if it cannot be parsed, or if it does not name one metric.
fn parse_selector(text: &str) -> Option<(String, Vec<Matcher>)> {
    let matchers = promql::parse_selector(text).ok()?;
    let name = matchers.iter().find_map(|matcher| match &matcher.test {
        LabelTest::Equal(name) if &*matcher.name == METRIC_NAME_LABEL => Some(name.clone()),
        _ => None,
    });
    Some((name?, matchers))
}

/// The value of a label, or the metric's name; empty if the series has no such label, as in PromQL.
fn label_value<'a>(series: &'a Series, name: &str) -> &'a str {
    if name == METRIC_NAME_LABEL {
        return &series.name;
    }
    let mut labels = series.labels.iter();
    let label = labels.find(|(label_name, _)| label_name == name);
    label.map_or("", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors() {
        let series = |name: &str, labels: &[(&str, &str)]| Series {
            name: name.to_owned(),
            labels: labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            kind: SeriesKind::Counter,
            decimals: 0,
        };
        let series_list = [
            series("a", &[]),
            series("a", &[("b", "c")]),
            series("a", &[("b", "c,\"}"), ("d", "e")]),
            series("all:a", &[]),
        ];
        let check = |text: &str, expected: Option<&[usize]>| {
            let matching_indexes = parse_selector(text).map(|(_, matchers)| {
                let matching = series_list
                    .iter()
                    .enumerate()
                    .filter(|(_, series)| matches_selector(&matchers, series));
                matching.map(|(index, _)| index).collect::<Vec<_>>()
            });
            assert_eq!(matching_indexes.as_deref(), expected, "{text}");
        };
        check("a", Some(&[0, 1, 2]));
        check("a{}", Some(&[0, 1, 2]));
        check("a{b=\"c\"}", Some(&[1]));
        check("a{ b = \"c,\\\"}\" , d=\"e\",}", Some(&[2]));
        check("a{d=\"\"}", Some(&[0, 1]));
        check("a{b=~\"c.*\",d!=\"e\"}", Some(&[1]));
        check("all:a", Some(&[3]));
        check("none", Some(&[]));
        check("a{b=c}", None);
        check("a{b=\"c}", None);
        check("a{b=\"c\"", None);
        check("a{b=\"c\" d=\"e\"}", None);
        check("{b=\"c\"}", None);
        check("a b", None);
        check("", None);
    }
}
