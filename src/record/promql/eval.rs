//! The evaluation of a tree at one moment.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use regex_lite::Regex;

use super::effort::{Effort, POINT};
use super::error::Error;
use super::functions::{Behavior, Function, SpecialFunction};
use super::labels::{Labels, NAME, Test, is_label_name, pattern};
use super::limits::{LOOKBACK, POINTS, SAMPLES};
use super::quantile::by_value;
use super::source::{SampleSource, SampledSeries};
use super::syntax::{Expr, Selector};
use super::times::Times;
use super::value::{Point, Value};
use super::window::{self, RangeWindow, Sample};
use super::{aggregate, binary, histogram};

/// Evaluates the tree of one query, with all series that it reads.
pub struct Evaluator<'a> {
    /// By the selectors' positions in the query.
    selected: Vec<SelectorData>,
    effort: Effort<'a>,
    /// Compiled patterns of functions, by their texts.
    patterns: HashMap<String, Rc<Regex>>,
}

/// The series of a selector, for all steps.
struct SelectorData {
    series: Vec<LoadedSeries>,
    /// Milliseconds for which a sample counts as the newest.
    lookback: i64,
}

struct LoadedSeries {
    labels: Labels,
    nameless: Labels,
    samples: Vec<Sample>,
}

impl<'a> Evaluator<'a> {
    /// Reads all series that a query names, once for all its steps.
    pub fn load(
        expr: &Expr,
        times: Times,
        source: &'a dyn SampleSource,
    ) -> Result<Evaluator<'a>, Error> {
        let mut selectors = Vec::new();
        expr.selectors(&mut |selector| selectors.push(selector));
        selectors.sort_by_key(|selector| selector.place);
        let most = SAMPLES / selectors.len().max(1);
        let mut selected = Vec::with_capacity(selectors.len());
        for selector in selectors {
            let behind = selector.range.unwrap_or(LOOKBACK);
            let from = times.start - selector.offset - behind;
            let found = source.select(
                &selector.matchers,
                (from, times.end - selector.offset),
                most,
            )?;
            let series = found
                .series
                .into_iter()
                .map(|(labels, samples)| LoadedSeries {
                    nameless: labels.nameless(),
                    labels,
                    samples,
                });
            selected.push(SelectorData {
                series: series.collect(),
                // Steps of hours have one sample in each.
                lookback: LOOKBACK.max(found.step),
            });
        }
        Ok(Evaluator {
            selected,
            effort: Effort::new(source),
            patterns: HashMap::new(),
        })
    }

    /// Evaluates the query at a moment.
    pub fn step(&mut self, expr: &Expr, at: i64) -> Result<Value, Error> {
        self.effort.step()?;
        self.value(expr, at)
    }

    /// Evaluates an expression at a moment. Charges its numbers, for the operator above looks at each.
    fn value(&mut self, expr: &Expr, at: i64) -> Result<Value, Error> {
        let value = self.evaluate(expr, at)?;
        self.effort.work(POINT * value.points())?;
        Ok(value)
    }

    fn evaluate(&mut self, expr: &Expr, at: i64) -> Result<Value, Error> {
        Ok(match expr {
            Expr::Number(value) => Value::Scalar(*value),
            Expr::Text(text) => Value::Text(text.clone()),
            Expr::Selector(selector) => Value::Vector(self.newest(selector, at)?),
            Expr::Negative(inner) => match self.value(inner, at)? {
                Value::Scalar(value) => Value::Scalar(-value),
                Value::Vector(points) => Value::Vector(unique(each(points, |value| -value))?),
                text @ Value::Text(_) => text,
            },
            Expr::Binary(both) => {
                let left = self.value(&both.left, at)?;
                let right = self.value(&both.right, at)?;
                let names = both.matching.labels.len() + both.matching.include.len();
                self.effort.work((left.points() + right.points()) * names)?;
                match binary::apply(both, left, right)? {
                    Value::Vector(points) => Value::Vector(unique(points)?),
                    other => other,
                }
            }
            Expr::Aggregate(aggregate) => {
                let parameter = match &aggregate.parameter {
                    Some(parameter) => self.scalar(parameter, at)?,
                    None => f64::NAN,
                };
                let points = self.vector(&aggregate.of, at)?;
                self.effort.work(points.len() * aggregate.labels.len())?;
                Value::Vector(aggregate::apply(aggregate, parameter, points)?)
            }
            Expr::Call(function, arguments) => self.call(function, arguments, at)?,
        })
    }

    fn scalar(&mut self, expr: &Expr, at: i64) -> Result<f64, Error> {
        match self.value(expr, at)? {
            Value::Scalar(value) => Ok(value),
            _ => Ok(f64::NAN),
        }
    }

    fn vector(&mut self, expr: &Expr, at: i64) -> Result<Vec<Point>, Error> {
        match self.value(expr, at)? {
            Value::Vector(points) => Ok(points),
            _ => Ok(Vec::new()),
        }
    }

    /// The newest sample of each series of a selector.
    fn newest(&mut self, selector: &Selector, at: i64) -> Result<Vec<Point>, Error> {
        let at = at - selector.offset;
        let read = &self.selected[selector.place];
        self.effort.work(POINT * read.series.len())?;
        let newest = |series: &LoadedSeries| {
            let until = series.samples.partition_point(|(time, _)| *time <= at);
            let (time, value) = *series.samples[..until].last()?;
            (time >= at - read.lookback).then(|| Point {
                labels: series.labels.clone(),
                value,
            })
        };
        Ok(read.series.iter().filter_map(newest).collect())
    }

    /// All samples of a selector's range.
    pub fn matrix(&self, selector: &Selector, at: i64) -> Result<Vec<SampledSeries>, Error> {
        let (mut all, mut left) = (Vec::new(), POINTS);
        for (series, window) in self.windows(selector, at) {
            let rest = left.checked_sub(window.samples.len());
            left = rest.ok_or_else(Error::too_many_points)?;
            all.push((series.labels.clone(), window.samples.to_vec()));
        }
        Ok(all)
    }

    fn windows(
        &self,
        selector: &Selector,
        at: i64,
    ) -> impl Iterator<Item = (&LoadedSeries, RangeWindow<'_>)> {
        let to = at - selector.offset;
        let from = to - selector.range.unwrap_or(0);
        self.selected[selector.place]
            .series
            .iter()
            .filter_map(move |series| {
                let begin = series.samples.partition_point(|(time, _)| *time < from);
                let behind = &series.samples[begin..];
                let samples = &behind[..behind.partition_point(|(time, _)| *time <= to)];
                let window = RangeWindow { samples, from, to };
                (!samples.is_empty()).then_some((series, window))
            })
    }

    /// Applies a function to the samples of each series that has some in the range.
    fn over_time(
        &mut self,
        expr: &Expr,
        at: i64,
        named: bool,
        function: impl Fn(&RangeWindow) -> Option<f64>,
    ) -> Result<Vec<Point>, Error> {
        let Expr::Selector(selector) = expr else {
            return Ok(Vec::new());
        };
        let (mut points, mut looks) = (
            Vec::new(),
            POINT * self.selected[selector.place].series.len(),
        );
        for (series, window) in self.windows(selector, at) {
            looks += window.samples.len();
            let labels = if named {
                &series.labels
            } else {
                &series.nameless
            };
            points.extend(function(&window).map(|value| Point {
                labels: labels.clone(),
                value,
            }));
        }
        self.effort.work(looks)?;
        unique(points)
    }

    fn call(&mut self, function: &Function, arguments: &[Expr], at: i64) -> Result<Value, Error> {
        let points = match (&function.behavior, arguments) {
            (Behavior::Window(compute), [of]) => {
                self.over_time(of, at, function.name == "last_over_time", compute)?
            }
            (Behavior::Each(compute), [of]) => unique(each(self.vector(of, at)?, compute))?,
            (Behavior::Special(other), arguments) => return self.other(*other, arguments, at),
            _ => Vec::new(),
        };
        Ok(Value::Vector(points))
    }

    fn other(
        &mut self,
        other: SpecialFunction,
        arguments: &[Expr],
        at: i64,
    ) -> Result<Value, Error> {
        let points = match (other, arguments) {
            (SpecialFunction::Time, _) => return Ok(Value::Scalar(at as f64 / 1_000.0)),
            (SpecialFunction::Scalar, [of]) => {
                let points = self.vector(of, at)?;
                let [Point { value, .. }] = points[..] else {
                    return Ok(Value::Scalar(f64::NAN));
                };
                return Ok(Value::Scalar(value));
            }
            (SpecialFunction::Vector, [of]) => vec![Point {
                labels: Labels::default(),
                value: self.scalar(of, at)?,
            }],
            (SpecialFunction::Absent, [of]) => match self.vector(of, at)?.is_empty() {
                true => vec![Point {
                    labels: absent_labels(of),
                    value: 1.0,
                }],
                false => Vec::new(),
            },
            (SpecialFunction::QuantileOverTime, [share, of]) => {
                let share = self.scalar(share, at)?;
                self.over_time(of, at, false, |w| Some(window::quantile_of(share, w)))?
            }
            (SpecialFunction::HistogramQuantile, [share, of]) => {
                let share = self.scalar(share, at)?;
                histogram::quantiles(share, &self.vector(of, at)?)
            }
            (SpecialFunction::Sort | SpecialFunction::SortDescending, [of]) => sorted(
                self.vector(of, at)?,
                other == SpecialFunction::SortDescending,
            ),
            (SpecialFunction::LabelReplace, [of, texts @ ..]) => {
                let points = self.vector(of, at)?;
                unique(self.replaced(points, &texts_of(texts))?)?
            }
            (SpecialFunction::LabelJoin, [of, texts @ ..]) => {
                let points = self.vector(of, at)?;
                unique(self.joined(points, &texts_of(texts))?)?
            }
            (_, [of, bounds @ ..]) => {
                let mut numbers = [1.0; 2];
                for (number, bound) in numbers.iter_mut().zip(bounds) {
                    *number = self.scalar(bound, at)?;
                }
                unique(bounded(other, self.vector(of, at)?, numbers))?
            }
            _ => Vec::new(),
        };
        Ok(Value::Vector(points))
    }
}

/// The labels that `absent` gives: those that the selector compares with `=`, once each.
fn absent_labels(expr: &Expr) -> Labels {
    let Expr::Selector(selector) = expr else {
        return Labels::default();
    };
    let all = &selector.matchers;
    let once = |name: &str| all.iter().filter(|m| &*m.name == name).count() == 1;
    let pairs = all.iter().filter_map(|matcher| match &matcher.test {
        Test::Is(value) if &*matcher.name != NAME && once(&matcher.name) => {
            Some((matcher.name.clone(), value.as_str()))
        }
        _ => None,
    });
    Labels::new(pairs)
}

fn each(points: Vec<Point>, function: impl Fn(f64) -> f64) -> Vec<Point> {
    let points = points.into_iter().map(|point| Point {
        labels: point.labels.nameless(),
        value: function(point.value),
    });
    points.collect()
}

/// The greater or the lesser of two numbers; NaN if either is.
fn extreme(a: f64, b: f64, greater: bool) -> f64 {
    match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false if greater => a.max(b),
        false => a.min(b),
    }
}

fn bounded(other: SpecialFunction, points: Vec<Point>, [first, second]: [f64; 2]) -> Vec<Point> {
    match other {
        SpecialFunction::Clamp if second < first => Vec::new(),
        SpecialFunction::Clamp => each(points, |value| {
            extreme(first, extreme(value, second, false), true)
        }),
        SpecialFunction::ClampMost => each(points, |value| extreme(first, value, false)),
        SpecialFunction::ClampLeast => each(points, |value| extreme(first, value, true)),
        _ => {
            // Multiplied by the inverse, as Prometheus does: a tenth has no exact representation.
            let inverse = 1.0 / first;
            each(points, |value| (value * inverse + 0.5).floor() / inverse)
        }
    }
}

fn sorted(mut points: Vec<Point>, descending: bool) -> Vec<Point> {
    points.sort_by(|a, b| {
        let order = match descending {
            true => by_value(&b.value, &a.value),
            false => by_value(&a.value, &b.value),
        };
        a.value.is_nan().cmp(&b.value.is_nan()).then(order)
    });
    points
}

fn texts_of<'a>(arguments: &'a [Expr]) -> Vec<&'a str> {
    let text = |argument: &'a Expr| match argument {
        Expr::Text(text) => text.as_str(),
        _ => "",
    };
    arguments.iter().map(text).collect()
}

impl Evaluator<'_> {
    fn joined(&mut self, points: Vec<Point>, texts: &[&str]) -> Result<Vec<Point>, Error> {
        let [to, between, from @ ..] = texts else {
            return Ok(points);
        };
        if !is_label_name(to) {
            let why = format!("invalid destination label name in label_join(): {to}");
            return Err(Error::execution(why));
        }
        let mut joined = Vec::with_capacity(points.len());
        for point in points {
            let values: Vec<_> = from.iter().map(|name| point.labels.get(name)).collect();
            let letters: usize = values.iter().map(|value| value.len()).sum();
            let between_all = between.len() * values.len();
            self.effort.write(to.len() + letters + between_all)?;
            joined.push(Point {
                labels: point.labels.with(to, &values.join(between)),
                value: point.value,
            });
        }
        Ok(joined)
    }

    fn replaced(&mut self, points: Vec<Point>, texts: &[&str]) -> Result<Vec<Point>, Error> {
        let [to, replacement, from, pattern] = texts else {
            return Ok(points);
        };
        if !is_label_name(to) {
            let why = format!("invalid destination label name in label_replace(): {to}");
            return Err(Error::execution(why));
        }
        let compiled = self.pattern(pattern)?;
        let inserts = replacement.matches('$').count();
        let mut replaced = Vec::with_capacity(points.len());
        for mut point in points {
            let value = point.labels.get(from);
            self.effort.work(pattern.len() * value.len())?;
            if let Some(captures) = compiled.captures(value) {
                let most = replacement.len() + inserts * value.len();
                self.effort.write(to.len() + most)?;
                let mut written = String::new();
                captures.expand(replacement, &mut written);
                point.labels = point.labels.with(to, &written);
            }
            replaced.push(point);
        }
        Ok(replaced)
    }

    fn pattern(&mut self, text: &str) -> Result<Rc<Regex>, Error> {
        if let Some(known) = self.patterns.get(text) {
            return Ok(known.clone());
        }
        let compiled = pattern(text).map_err(|_| {
            let why = format!("invalid regular expression in label_replace(): {text}");
            Error::execution(why)
        })?;
        let compiled = Rc::new(compiled);
        self.patterns.insert(text.to_owned(), compiled.clone());
        Ok(compiled)
    }
}

/// Fails where two series have the same labels.
fn unique(points: Vec<Point>) -> Result<Vec<Point>, Error> {
    let mut seen = HashSet::with_capacity(points.len());
    if points.iter().all(|point| seen.insert(&point.labels)) {
        return Ok(points);
    }
    let why = "vector cannot contain metrics with the same labelset";
    Err(Error::execution(why))
}
