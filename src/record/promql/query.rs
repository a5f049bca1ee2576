//! A query as a whole: from its text to its result.

use std::collections::HashMap;

use super::error::Error;
use super::eval::Evaluator;
use super::labels::Labels;
use super::limits::{LABELS, POINTS, STEPS};
use super::parser;
use super::source::{SampleSource, SampledSeries};
use super::syntax::Expr;
use super::times::Times;
use super::types::Type;
use super::value::Value;

/// The result of a query at one moment.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryResult {
    /// A number.
    Scalar(f64),
    /// A text.
    Text(String),
    /// A number for each of some series.
    Vector(Vec<(Labels, f64)>),
    /// All samples of a span.
    Matrix(Vec<SampledSeries>),
}

/// Evaluates a query at one moment.
pub fn instant(query: &str, at: i64, source: &dyn SampleSource) -> Result<QueryResult, Error> {
    let expr = parser::query(query)?;
    let times = Times {
        start: at,
        end: at,
        step: 1,
    };
    times.check()?;
    let mut evaluator = Evaluator::load(&expr, times, source)?;
    if let Expr::Selector(selector) = &expr
        && selector.range.is_some()
    {
        return Ok(QueryResult::Matrix(evaluator.matrix(selector, at)?));
    }
    Ok(match evaluator.step(&expr, at)? {
        Value::Scalar(value) => QueryResult::Scalar(value),
        Value::Text(text) => QueryResult::Text(text),
        Value::Vector(points) => {
            let points = points.into_iter();
            QueryResult::Vector(points.map(|point| (point.labels, point.value)).collect())
        }
    })
}

/// Whether a query can be parsed and its types are right.
pub fn check(query: &str) -> Result<(), Error> {
    parser::query(query).map(drop)
}

/// Evaluates a query at many moments; the series of the result are sorted by labels.
pub fn range(
    query: &str,
    times: Times,
    source: &dyn SampleSource,
) -> Result<Vec<SampledSeries>, Error> {
    times.check()?;
    if (times.end - times.start) / times.step > STEPS {
        let why = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)";
        return Err(Error::Invalid(why.into()));
    }
    let expr = parser::query(query)?;
    if !matches!(expr.kind(), Type::Scalar | Type::Vector) {
        let why = format!(
            "invalid expression type {:?} for range query, must be Scalar or instant Vector",
            expr.kind().name()
        );
        return Err(Error::Invalid(why));
    }
    let mut evaluator = Evaluator::load(&expr, times, source)?;
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut series: Vec<SampledSeries> = Vec::new();
    let (mut at, mut left, mut room) = (times.start, POINTS, LABELS);
    while at <= times.end {
        let points = match evaluator.step(&expr, at)? {
            Value::Scalar(value) => vec![(Labels::default(), value)],
            Value::Vector(points) => points.into_iter().map(|p| (p.labels, p.value)).collect(),
            Value::Text(_) => Vec::new(),
        };
        let rest = left.checked_sub(points.len());
        left = rest.ok_or_else(Error::too_many_points)?;
        for (labels, value) in points {
            let place = match places.get(&labels) {
                Some(place) => *place,
                None => {
                    let rest = room.checked_sub(labels.bytes());
                    room = rest.ok_or_else(Error::too_many_labels)?;
                    places.insert(labels.clone(), series.len());
                    series.push((labels, Vec::new()));
                    series.len() - 1
                }
            };
            series[place].1.push((at, value));
        }
        at = at.saturating_add(times.step);
    }
    series.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(series)
}
