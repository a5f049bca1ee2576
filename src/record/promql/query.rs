//! Evaluates whole queries: from the text to the result, at one time or at many. The admin listener calls these
//! functions. `evaluator.rs` evaluates the parsed query at each step.

use std::collections::HashMap;

use super::error::Error;
use super::evaluator::Evaluator;
use super::labels::Labels;
use super::limits::{MAX_LABEL_BYTES, MAX_RESULT_SAMPLES, MAX_STEPS};
use super::parser;
use super::source::{SampleSource, SampledSeries};
use super::step_times::StepTimes;
use super::syntax::Expr;
use super::value::Value;
use super::value_type::ValueType;

/// The result of a query at one time.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryResult {
    /// One number, without labels.
    Scalar(f64),
    /// A text: the query is a literal one.
    Text(String),
    /// The labels of each of several series, and its number.
    Vector(Vec<(Labels, f64)>),
    /// All samples in a range, for each of several series.
    Matrix(Vec<SampledSeries>),
}

/// Evaluates a query at one time, in milliseconds since 1970. A selector with a range results in all its samples.
///
/// # Errors
///
/// Fails if the query or the time is invalid, if a bound is exceeded, or if the source fails. Fails also if the
/// operations are not possible with these series.
pub fn query_instant(
    query: &str,
    time_ms: i64,
    source: &dyn SampleSource,
) -> Result<QueryResult, Error> {
    let expr = parser::parse_query(query)?;
    let times = StepTimes {
        start_ms: time_ms,
        end_ms: time_ms,
        step_ms: 1,
    };
    times.validate()?;
    let mut evaluator = Evaluator::load(&expr, times, source)?;
    if let Expr::Selector(selector) = &expr
        && selector.range_ms.is_some()
    {
        return Ok(QueryResult::Matrix(
            evaluator.range_samples(selector, time_ms)?,
        ));
    }
    Ok(match evaluator.evaluate_step(&expr, time_ms)? {
        Value::Scalar(value) => QueryResult::Scalar(value),
        Value::Text(text) => QueryResult::Text(text),
        Value::Vector(elements) => {
            let pairs = elements.into_iter();
            QueryResult::Vector(
                pairs
                    .map(|element| (element.labels, element.value))
                    .collect(),
            )
        }
    })
}

/// Checks that a query can be parsed, and that its types fit.
///
/// # Errors
///
/// Fails if the query is invalid.
pub fn validate(query: &str) -> Result<(), Error> {
    parser::parse_query(query).map(drop)
}

/// Evaluates a query at many times. The series of the result are sorted by labels. A series has samples only at the
/// times at which it is in the result.
///
/// # Errors
///
/// Fails if the query or the times are invalid, if a bound is exceeded, or if the source fails. Fails also if the
/// operations are not possible with these series.
pub fn query_range(
    query: &str,
    times: StepTimes,
    source: &dyn SampleSource,
) -> Result<Vec<SampledSeries>, Error> {
    times.validate()?;
    if (times.end_ms - times.start_ms) / times.step_ms > MAX_STEPS {
        let why = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)";
        return Err(Error::Invalid(why.into()));
    }
    let expr = parser::parse_query(query)?;
    if !matches!(expr.value_type(), ValueType::Scalar | ValueType::Vector) {
        let why = format!(
            "invalid expression type {:?} for range query, must be Scalar or instant Vector",
            expr.value_type().name()
        );
        return Err(Error::Invalid(why));
    }
    let mut evaluator = Evaluator::load(&expr, times, source)?;
    let mut series_indexes: HashMap<Labels, usize> = HashMap::new();
    let mut series_list: Vec<SampledSeries> = Vec::new();
    let mut remaining_samples = MAX_RESULT_SAMPLES;
    let mut remaining_label_bytes = MAX_LABEL_BYTES;
    let mut time_ms = times.start_ms;
    while time_ms <= times.end_ms {
        let step_values = match evaluator.evaluate_step(&expr, time_ms)? {
            Value::Scalar(value) => vec![(Labels::default(), value)],
            Value::Vector(elements) => {
                let pairs = elements.into_iter();
                pairs
                    .map(|element| (element.labels, element.value))
                    .collect()
            }
            Value::Text(_) => Vec::new(),
        };
        remaining_samples = remaining_samples
            .checked_sub(step_values.len())
            .ok_or_else(Error::too_many_samples)?;
        for (labels, value) in step_values {
            let series_index = match series_indexes.get(&labels) {
                Some(index) => *index,
                None => {
                    remaining_label_bytes = remaining_label_bytes
                        .checked_sub(labels.byte_len())
                        .ok_or_else(Error::too_many_labels)?;
                    series_indexes.insert(labels.clone(), series_list.len());
                    series_list.push((labels, Vec::new()));
                    series_list.len() - 1
                }
            };
            let (_, samples) = &mut series_list[series_index];
            samples.push((time_ms, value));
        }
        // A step may be so long that the next time would overflow.
        time_ms = time_ms.saturating_add(times.step_ms);
    }
    series_list.sort_by(|(a_labels, _), (b_labels, _)| a_labels.cmp(b_labels));
    Ok(series_list)
}
