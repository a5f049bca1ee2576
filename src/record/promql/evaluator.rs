//! Evaluates the syntax tree of a query, one step at a time, on series that were read once for all steps.
//!
//! Operators (`binary_operation.rs`), aggregations (`aggregation.rs`), functions on ranges (`window.rs`) and functions
//! that write labels (`evaluator/label_functions.rs`) have files of their own. The work of each step is charged to the
//! [`QueryBudget`]. All times are in milliseconds since 1970.

mod label_functions;

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use regex_lite::Regex;

use super::budget::{ELEMENT_WORK, QueryBudget};
use super::error::Error;
use super::functions::{Function, FunctionBehavior, SpecialFunction};
use super::labels::{LabelTest, Labels, METRIC_NAME_LABEL};
use super::limits::{LOOKBACK_MS, MAX_READ_SAMPLES, MAX_RESULT_SAMPLES};
use super::quantile::{compare_values, max_or_nan, min_or_nan};
use super::source::{SampleSource, SampledSeries};
use super::step_times::StepTimes;
use super::syntax::{Expr, Selector};
use super::value::{Value, VectorElement};
use super::window::{self, RangeWindow, Sample};
use super::{aggregation, binary_operation, histogram};

/// The series and the remaining budget of one query, with which its tree is evaluated step by step.
pub struct Evaluator<'a> {
    /// The series of each selector, by [`Selector::index`].
    selector_data: Vec<SelectorData>,
    /// The remaining budget of the query.
    budget: QueryBudget<'a>,
    /// The compiled patterns of `label_replace`, by their texts.
    patterns: HashMap<String, Rc<Regex>>,
}

/// The series of a selector, with their samples for all steps.
struct SelectorData {
    series: Vec<LoadedSeries>,
    /// Milliseconds for which a sample counts as the newest of its series.
    lookback_ms: i64,
}

/// A series that a selector has selected.
struct LoadedSeries {
    labels: Labels,
    /// The labels without the name of the metric.
    nameless: Labels,
    /// The samples in the order of time.
    samples: Vec<Sample>,
}

impl<'a> Evaluator<'a> {
    /// Reads the series of all selectors for all steps.
    ///
    /// # Errors
    ///
    /// Fails if the source does, or if a selector has more than its share of [`MAX_READ_SAMPLES`].
    pub fn load(
        expr: &Expr,
        times: StepTimes,
        source: &'a dyn SampleSource,
    ) -> Result<Evaluator<'a>, Error> {
        let mut selectors = Vec::new();
        expr.visit_selectors(&mut |selector| selectors.push(selector));
        selectors.sort_by_key(|selector| selector.index);
        let max_samples = MAX_READ_SAMPLES / selectors.len().max(1);
        let mut selector_data = Vec::with_capacity(selectors.len());
        for selector in selectors {
            let select = |range_ms| {
                let from_ms = times.start_ms - selector.offset_ms - range_ms;
                let to_ms = times.end_ms - selector.offset_ms;
                source.select(&selector.matchers, (from_ms, to_ms), max_samples)
            };
            let mut selected_series = select(selector.range_ms.unwrap_or(LOOKBACK_MS))?;
            // Of samples that are further apart than the lookback, the newest one may be before the range.
            if selector.range_ms.is_none() && selected_series.step_ms > LOOKBACK_MS {
                selected_series = select(selected_series.step_ms)?;
            }
            let loaded_series =
                selected_series
                    .series
                    .into_iter()
                    .map(|(labels, samples)| LoadedSeries {
                        nameless: labels.nameless(),
                        labels,
                        samples,
                    });
            selector_data.push(SelectorData {
                series: loaded_series.collect(),
                // Where samples are an hour apart, the newest one counts for an hour.
                lookback_ms: LOOKBACK_MS.max(selected_series.step_ms),
            });
        }
        Ok(Evaluator {
            selector_data,
            budget: QueryBudget::new(source),
            patterns: HashMap::new(),
        })
    }

    /// Evaluates the query at one time.
    ///
    /// # Errors
    ///
    /// Fails if a bound is exceeded, if the deadline has passed, or if the operation is not possible with these series.
    pub fn evaluate_step(&mut self, expr: &Expr, time_ms: i64) -> Result<Value, Error> {
        self.budget.begin_step()?;
        self.evaluate(expr, time_ms)
    }

    /// Evaluates an expression at one time, and charges its elements, because the operator above reads each of them.
    fn evaluate(&mut self, expr: &Expr, time_ms: i64) -> Result<Value, Error> {
        let value = self.evaluate_uncharged(expr, time_ms)?;
        self.budget
            .charge_work(ELEMENT_WORK * value.element_count())?;
        Ok(value)
    }

    /// Evaluates an expression at one time, without charging the elements of its own value.
    fn evaluate_uncharged(&mut self, expr: &Expr, time_ms: i64) -> Result<Value, Error> {
        Ok(match expr {
            Expr::Number(value) => Value::Scalar(*value),
            Expr::Text(text) => Value::Text(text.clone()),
            Expr::Selector(selector) => Value::Vector(self.newest_samples(selector, time_ms)?),
            Expr::Negative(inner) => match self.evaluate(inner, time_ms)? {
                Value::Scalar(value) => Value::Scalar(-value),
                Value::Vector(elements) => {
                    Value::Vector(require_unique(map_values(elements, |value| -value))?)
                }
                text @ Value::Text(_) => text,
            },
            Expr::Binary(operation) => {
                let left = self.evaluate(&operation.left, time_ms)?;
                let right = self.evaluate(&operation.right, time_ms)?;
                let matching = &operation.matching;
                let label_count = matching.labels.len() + matching.included_labels.len();
                let element_count = left.element_count() + right.element_count();
                self.budget.charge_work(element_count * label_count)?;
                match binary_operation::apply_operator(operation, left, right)? {
                    Value::Vector(elements) => Value::Vector(require_unique(elements)?),
                    scalar => scalar,
                }
            }
            Expr::Aggregate(aggregate) => {
                let parameter = match &aggregate.parameter {
                    Some(parameter) => self.evaluate_scalar(parameter, time_ms)?,
                    None => f64::NAN,
                };
                let elements = self.evaluate_vector(&aggregate.operand, time_ms)?;
                let label_count = aggregate.grouping.labels().len();
                self.budget.charge_work(elements.len() * label_count)?;
                Value::Vector(aggregation::apply_aggregation(
                    aggregate, parameter, elements,
                )?)
            }
            Expr::Call(function, arguments) => self.evaluate_call(function, arguments, time_ms)?,
        })
    }

    /// Evaluates an expression that the parser has checked to be a scalar.
    fn evaluate_scalar(&mut self, expr: &Expr, time_ms: i64) -> Result<f64, Error> {
        match self.evaluate(expr, time_ms)? {
            Value::Scalar(value) => Ok(value),
            _ => Ok(f64::NAN),
        }
    }

    /// Evaluates an expression that the parser has checked to be a vector.
    fn evaluate_vector(&mut self, expr: &Expr, time_ms: i64) -> Result<Vec<VectorElement>, Error> {
        match self.evaluate(expr, time_ms)? {
            Value::Vector(elements) => Ok(elements),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the newest sample of each series of a selector. Series whose newest sample is older than the lookback
    /// are left out.
    fn newest_samples(
        &mut self,
        selector: &Selector,
        time_ms: i64,
    ) -> Result<Vec<VectorElement>, Error> {
        let time_ms = time_ms - selector.offset_ms;
        let data = &self.selector_data[selector.index];
        self.budget.charge_work(ELEMENT_WORK * data.series.len())?;
        let newest_sample = |series: &LoadedSeries| {
            let sample_count = series
                .samples
                .partition_point(|(at_ms, _)| *at_ms <= time_ms);
            let (at_ms, value) = *series.samples[..sample_count].last()?;
            (at_ms >= time_ms - data.lookback_ms).then(|| VectorElement {
                labels: series.labels.clone(),
                value,
            })
        };
        Ok(data.series.iter().filter_map(newest_sample).collect())
    }

    /// Returns all samples in the range of a selector, by series. Series without samples in it are left out.
    ///
    /// # Errors
    ///
    /// Fails if they are more than [`MAX_RESULT_SAMPLES`].
    pub fn range_samples(
        &self,
        selector: &Selector,
        time_ms: i64,
    ) -> Result<Vec<SampledSeries>, Error> {
        let mut sampled_series = Vec::new();
        let mut remaining_samples = MAX_RESULT_SAMPLES;
        for (series, window) in self.windows(selector, time_ms) {
            remaining_samples = remaining_samples
                .checked_sub(window.samples.len())
                .ok_or_else(Error::too_many_samples)?;
            sampled_series.push((series.labels.clone(), window.samples.to_vec()));
        }
        Ok(sampled_series)
    }

    /// Iterates over the series of a selector that have samples in its range, with those samples. Both ends of the
    /// range belong to it.
    fn windows(
        &self,
        selector: &Selector,
        time_ms: i64,
    ) -> impl Iterator<Item = (&LoadedSeries, RangeWindow<'_>)> {
        let to_ms = time_ms - selector.offset_ms;
        let from_ms = to_ms - selector.range_ms.unwrap_or(0);
        self.selector_data[selector.index]
            .series
            .iter()
            .filter_map(move |series| {
                let start = series
                    .samples
                    .partition_point(|(at_ms, _)| *at_ms < from_ms);
                let end = series.samples.partition_point(|(at_ms, _)| *at_ms <= to_ms);
                let samples = series.samples.get(start..end).unwrap_or_default();
                let window = RangeWindow {
                    samples,
                    from_ms,
                    to_ms,
                };
                (!samples.is_empty()).then_some((series, window))
            })
    }

    /// Applies a function to the range of each series. Series for which it returns `None` are left out. `keeps_name`
    /// says whether results keep the name of the metric. The parser has checked that `expr` is a selector.
    fn apply_to_windows(
        &mut self,
        expr: &Expr,
        time_ms: i64,
        keeps_name: bool,
        function: impl Fn(&RangeWindow) -> Option<f64>,
    ) -> Result<Vec<VectorElement>, Error> {
        let Expr::Selector(selector) = expr else {
            return Ok(Vec::new());
        };
        let mut elements = Vec::new();
        let mut work = ELEMENT_WORK * self.selector_data[selector.index].series.len();
        for (series, window) in self.windows(selector, time_ms) {
            work += window.samples.len();
            let labels = if keeps_name {
                &series.labels
            } else {
                &series.nameless
            };
            elements.extend(function(&window).map(|value| VectorElement {
                labels: labels.clone(),
                value,
            }));
        }
        self.budget.charge_work(work)?;
        require_unique(elements)
    }

    /// Evaluates a call of any function.
    fn evaluate_call(
        &mut self,
        function: &Function,
        arguments: &[Expr],
        time_ms: i64,
    ) -> Result<Value, Error> {
        let elements = match (&function.behavior, arguments) {
            (FunctionBehavior::Window(compute), [range]) => {
                let keeps_name = function.name == "last_over_time";
                self.apply_to_windows(range, time_ms, keeps_name, compute)?
            }
            (FunctionBehavior::Number(compute), [vector]) => {
                let elements = self.evaluate_vector(vector, time_ms)?;
                require_unique(map_values(elements, compute))?
            }
            (FunctionBehavior::Special(special), arguments) => {
                return self.evaluate_special_call(*special, arguments, time_ms);
            }
            _ => Vec::new(),
        };
        Ok(Value::Vector(elements))
    }

    /// Evaluates a call of a function that needs more than the samples or the number of one series: other arguments,
    /// the time, or the other series.
    fn evaluate_special_call(
        &mut self,
        function: SpecialFunction,
        arguments: &[Expr],
        time_ms: i64,
    ) -> Result<Value, Error> {
        let elements = match (function, arguments) {
            (SpecialFunction::Time, _) => return Ok(Value::Scalar(time_ms as f64 / 1_000.0)),
            (SpecialFunction::Scalar, [vector]) => {
                let elements = self.evaluate_vector(vector, time_ms)?;
                let [VectorElement { value, .. }] = elements[..] else {
                    return Ok(Value::Scalar(f64::NAN));
                };
                return Ok(Value::Scalar(value));
            }
            (SpecialFunction::Vector, [scalar]) => vec![VectorElement {
                labels: Labels::default(),
                value: self.evaluate_scalar(scalar, time_ms)?,
            }],
            (SpecialFunction::Absent, [vector]) => {
                match self.evaluate_vector(vector, time_ms)?.is_empty() {
                    true => vec![VectorElement {
                        labels: absent_labels(vector),
                        value: 1.0,
                    }],
                    false => Vec::new(),
                }
            }
            (SpecialFunction::QuantileOverTime, [q, range]) => {
                let q = self.evaluate_scalar(q, time_ms)?;
                let quantile = |window: &RangeWindow| Some(window::quantile_over_time(q, window));
                self.apply_to_windows(range, time_ms, false, quantile)?
            }
            (SpecialFunction::HistogramQuantile, [q, vector]) => {
                let q = self.evaluate_scalar(q, time_ms)?;
                histogram::histogram_quantiles(q, &self.evaluate_vector(vector, time_ms)?)
            }
            (SpecialFunction::Sort, [vector]) => {
                let elements = self.evaluate_vector(vector, time_ms)?;
                sort_elements(elements, compare_values)
            }
            (SpecialFunction::SortDescending, [vector]) => {
                let elements = self.evaluate_vector(vector, time_ms)?;
                sort_elements(elements, |a, b| compare_values(b, a))
            }
            (SpecialFunction::LabelReplace, [vector, texts @ ..]) => {
                let elements = self.evaluate_vector(vector, time_ms)?;
                require_unique(self.replace_labels(elements, &argument_texts(texts))?)?
            }
            (SpecialFunction::LabelJoin, [vector, texts @ ..]) => {
                let elements = self.evaluate_vector(vector, time_ms)?;
                require_unique(self.join_labels(elements, &argument_texts(texts))?)?
            }
            (_, [vector, scalars @ ..]) => {
                // Without a second argument, `round` rounds to multiples of 1.
                let mut numbers = [1.0; 2];
                for (number, scalar) in numbers.iter_mut().zip(scalars) {
                    *number = self.evaluate_scalar(scalar, time_ms)?;
                }
                let elements = self.evaluate_vector(vector, time_ms)?;
                require_unique(clamp_or_round(function, elements, numbers))?
            }
            _ => Vec::new(),
        };
        Ok(Value::Vector(elements))
    }
}

/// Returns the labels of the result of `absent`: those that the selector compares with `=`, without the name of the
/// metric and labels that it names twice. There are none for other expressions.
fn absent_labels(expr: &Expr) -> Labels {
    let Expr::Selector(selector) = expr else {
        return Labels::default();
    };
    let matchers = &selector.matchers;
    let is_named_once = |name: &str| {
        let same_name = matchers.iter().filter(|matcher| &*matcher.name == name);
        same_name.count() == 1
    };
    let pairs = matchers.iter().filter_map(|matcher| match &matcher.test {
        LabelTest::Equal(value)
            if &*matcher.name != METRIC_NAME_LABEL && is_named_once(&matcher.name) =>
        {
            Some((matcher.name.clone(), value.as_str()))
        }
        _ => None,
    });
    Labels::new(pairs)
}

/// Applies a function to each value. The results have no metric name.
fn map_values(elements: Vec<VectorElement>, function: impl Fn(f64) -> f64) -> Vec<VectorElement> {
    let elements = elements.into_iter().map(|element| VectorElement {
        labels: element.labels.nameless(),
        value: function(element.value),
    });
    elements.collect()
}

/// Applies `clamp` with its minimum and maximum, `clamp_max` or `clamp_min` with one of them, or `round` with the
/// number to whose multiples it rounds.
fn clamp_or_round(
    function: SpecialFunction,
    elements: Vec<VectorElement>,
    numbers: [f64; 2],
) -> Vec<VectorElement> {
    match (function, numbers) {
        (SpecialFunction::Clamp, [min, max]) if max < min => Vec::new(),
        (SpecialFunction::Clamp, [min, max]) => {
            map_values(elements, |value| max_or_nan(min, min_or_nan(value, max)))
        }
        (SpecialFunction::ClampMax, [max, _]) => {
            map_values(elements, |value| min_or_nan(max, value))
        }
        (SpecialFunction::ClampMin, [min, _]) => {
            map_values(elements, |value| max_or_nan(min, value))
        }
        (_, [multiple, _]) => {
            // Prometheus multiplies by the inverse. Dividing by `multiple` would round differently, for instance if it
            // is 0.1.
            let inverse = 1.0 / multiple;
            map_values(elements, |value| (value * inverse + 0.5).floor() / inverse)
        }
    }
}

/// Sorts elements by their values in the order of `compare`, with NaN last.
fn sort_elements(
    mut elements: Vec<VectorElement>,
    compare: impl Fn(&f64, &f64) -> Ordering,
) -> Vec<VectorElement> {
    elements.sort_by(|a, b| {
        let order = compare(&a.value, &b.value);
        a.value.is_nan().cmp(&b.value.is_nan()).then(order)
    });
    elements
}

/// Returns the contents of arguments, which the parser has checked to be texts.
fn argument_texts<'a>(arguments: &'a [Expr]) -> Vec<&'a str> {
    let text = |argument: &'a Expr| match argument {
        Expr::Text(text) => text.as_str(),
        _ => "",
    };
    arguments.iter().map(text).collect()
}

/// Returns the elements; fails if two of them have the same labels.
fn require_unique(elements: Vec<VectorElement>) -> Result<Vec<VectorElement>, Error> {
    let mut labels_so_far = HashSet::with_capacity(elements.len());
    let mut unchecked = elements.iter();
    if unchecked.all(|element| labels_so_far.insert(&element.labels)) {
        return Ok(elements);
    }
    let why = "vector cannot contain metrics with the same labelset";
    Err(Error::execution(why))
}
