//! Questions in the language of Prometheus, about samples that a [`Source`] has.
//!
//! A query becomes a tree (`lexer.rs`, `parser.rs`) whose types are right; its series are read once for all its steps, and
//! the tree is evaluated step by step (`eval.rs`). What comes out is what Prometheus 2.42 says of the same samples, with
//! rates that reach to the edges of their span. It knows nothing of where samples come from or how they are asked for.
//!
//! Bounds, for each query: 16 KiB, 256 operands, brackets and matchers, [`SAMPLES`] samples read, 11,000 steps, [`POINTS`] points in
//! the answer; work, and bytes of labels that it writes, are those of `effort.rs`. In memory are samples of 16 bytes, of those
//! read and of the answer, the answer as text, the numbers of one step, and compiled patterns of 64 bytes for each of their
//! letters and 16 KiB each: with what a source holds while it reads, less than 128 MiB.

mod aggregate;
mod binary;
mod effort;
mod eval;
mod functions;
mod histogram;
pub mod labels;
mod lexer;
pub mod number;
mod parser;
mod syntax;
mod window;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;

use self::eval::{Evaluator, Value};
use self::labels::{Labels, Matcher};
use self::syntax::{Expr, Type};

pub use self::histogram::BOUND;
pub use self::parser::selector;
pub use self::window::Sample;

/// Most samples that are read for a query.
pub const SAMPLES: usize = 2_000_000;
/// Most points of an answer, of all its series.
pub const POINTS: usize = 500_000;
/// Most bytes of the labels of an answer.
const LABELS: usize = 16 << 20;
/// Most steps of a query.
const STEPS: i64 = 11_000;
/// For how many milliseconds a sample counts as the newest.
const LOOKBACK: i64 = 300_000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The question makes no sense.
    #[error("{0}")]
    Unclear(String),
    /// It makes sense, but not for these series.
    #[error("{0}")]
    Execution(String),
    /// Nobody waits for it any more.
    #[error("query timed out in expression evaluation")]
    Late,
    /// The samples cannot be read.
    #[error("the samples cannot be read: {0}")]
    Source(#[from] io::Error),
}

impl Error {
    /// About a place of a query.
    fn parse(query: &str, at: usize, why: &str) -> Error {
        let before = query.get(..at).unwrap_or(query);
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        Error::Unclear(format!("{line}:{column}: parse error: {why}"))
    }

    fn execution(why: impl Into<String>) -> Error {
        Error::Execution(why.into())
    }

    fn too_many_points() -> Error {
        Error::execution(format!(
            "the answer has more than {POINTS} points: ask for fewer series or a longer step"
        ))
    }

    fn too_many_labels() -> Error {
        Error::execution(format!(
            "the labels of the answer have more than {LABELS} bytes: ask for fewer series, or write shorter labels"
        ))
    }
}

/// Where samples come from.
pub trait Source {
    /// Samples of all series that have such labels, of a span in milliseconds, both ends included; `most` in all.
    fn select(&self, matchers: &[Matcher], span: (i64, i64), most: usize) -> Result<Found, Error>;

    /// Whether an answer is still wanted: asked again and again while it is made, and an error ends it.
    fn wanted(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Series with their samples.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Sorted by labels; samples in order.
    pub series: Vec<Series>,
    /// Milliseconds from one sample to the next where none is missing.
    pub step: i64,
}

/// A series and its samples.
pub type Series = (Labels, Vec<Sample>);

/// What a query gives at one moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A number.
    Scalar(f64),
    /// A text.
    Text(String),
    /// A number for each of some series.
    Vector(Vec<(Labels, f64)>),
    /// All samples of a span.
    Matrix(Vec<Series>),
}

/// Moments in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The first.
    pub start: i64,
    /// The last, unless steps do not meet it.
    pub end: i64,
    /// From each to the next; at least one.
    pub step: i64,
}

impl Times {
    /// Earliest and latest moments: with spans and offsets they stay far from where numbers end.
    const MOST: i64 = 1 << 53;

    fn check(self) -> Result<(), Error> {
        let near = |at: i64| (-Times::MOST..=Times::MOST).contains(&at);
        let why = "times must be within 285,000 years of 1970";
        let fine = near(self.start) && near(self.end) && self.step > 0;
        fine.then_some(()).ok_or_else(|| Error::Unclear(why.into()))
    }
}

/// Answers a query at one moment.
pub fn instant(query: &str, at: i64, source: &dyn Source) -> Result<Answer, Error> {
    let expr = parser::query(query)?;
    let times = Times {
        start: at,
        end: at,
        step: 1,
    };
    times.check()?;
    let mut evaluator = Evaluator::read(&expr, times, source)?;
    if let Expr::Selector(selector) = &expr
        && selector.range.is_some()
    {
        return Ok(Answer::Matrix(evaluator.matrix(selector, at)?));
    }
    Ok(match evaluator.step(&expr, at)? {
        Value::Scalar(value) => Answer::Scalar(value),
        Value::Text(text) => Answer::Text(text),
        Value::Vector(points) => {
            let points = points.into_iter();
            Answer::Vector(points.map(|point| (point.labels, point.value)).collect())
        }
    })
}

/// Whether a query makes sense.
pub fn check(query: &str) -> Result<(), Error> {
    parser::query(query).map(drop)
}

/// Answers a query at many moments; series are sorted by labels.
pub fn range(query: &str, times: Times, source: &dyn Source) -> Result<Vec<Series>, Error> {
    times.check()?;
    if (times.end - times.start) / times.step > STEPS {
        let why = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)";
        return Err(Error::Unclear(why.into()));
    }
    let expr = parser::query(query)?;
    if !matches!(expr.kind(), Type::Scalar | Type::Vector) {
        let why = format!(
            "invalid expression type {:?} for range query, must be Scalar or instant Vector",
            expr.kind().name()
        );
        return Err(Error::Unclear(why));
    }
    let mut evaluator = Evaluator::read(&expr, times, source)?;
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut series: Vec<Series> = Vec::new();
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
