//! Functions by name: the types of their arguments and results, and what the simple ones do.

use super::types::Type;
use super::window::{self, RangeWindow};

/// A function.
#[derive(Debug)]
pub struct Function {
    /// The name in queries.
    pub name: &'static str,
    /// The types of its arguments.
    pub arguments: &'static [Type],
    /// How many of the last arguments are optional.
    pub optional: usize,
    /// The type of its result.
    pub returns: Type,
    /// What it does.
    pub behavior: Behavior,
}

/// What a function does.
#[derive(Debug)]
pub enum Behavior {
    /// Makes a number of the samples of a range; none where they are too few.
    Window(fn(&RangeWindow) -> Option<f64>),
    /// Changes each number.
    Each(fn(f64) -> f64),
    /// Anything else, which the evaluator implements.
    Special(SpecialFunction),
}

/// Functions that take neither a range nor single numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFunction {
    /// `absent`
    Absent,
    /// `clamp`
    Clamp,
    /// `clamp_max`
    ClampMost,
    /// `clamp_min`
    ClampLeast,
    /// `histogram_quantile`
    HistogramQuantile,
    /// `label_join`
    LabelJoin,
    /// `label_replace`
    LabelReplace,
    /// `quantile_over_time`
    QuantileOverTime,
    /// `round`
    Round,
    /// `scalar`
    Scalar,
    /// `sort`
    Sort,
    /// `sort_desc`
    SortDescending,
    /// `time`
    Time,
    /// `vector`
    Vector,
}

const fn over(name: &'static str, function: fn(&RangeWindow) -> Option<f64>) -> Function {
    Function {
        name,
        arguments: &[Type::Matrix],
        optional: 0,
        returns: Type::Vector,
        behavior: Behavior::Window(function),
    }
}

const fn each(name: &'static str, function: fn(f64) -> f64) -> Function {
    Function {
        name,
        arguments: &[Type::Vector],
        optional: 0,
        returns: Type::Vector,
        behavior: Behavior::Each(function),
    }
}

const fn other(
    name: &'static str,
    arguments: &'static [Type],
    behavior: SpecialFunction,
) -> Function {
    let returns = match behavior {
        SpecialFunction::Scalar | SpecialFunction::Time => Type::Scalar,
        _ => Type::Vector,
    };
    Function {
        name,
        arguments,
        optional: matches!(behavior, SpecialFunction::Round) as usize,
        returns,
        behavior: Behavior::Special(behavior),
    }
}

const V: Type = Type::Vector;
const S: Type = Type::Scalar;
const T: Type = Type::Text;

/// Most labels that `label_join` joins.
const JOINED: usize = 12;

static FUNCTIONS: [Function; 43] = [
    over("avg_over_time", window::average),
    over("changes", window::changes),
    over("count_over_time", window::count),
    over("delta", window::delta),
    over("idelta", window::last_delta),
    over("increase", window::increase),
    over("irate", window::last_rate),
    over("last_over_time", window::last),
    over("max_over_time", window::most),
    over("min_over_time", window::least),
    over("present_over_time", window::present),
    over("rate", window::rate),
    over("resets", window::resets),
    over("stddev_over_time", window::deviation),
    over("stdvar_over_time", window::variance),
    over("sum_over_time", window::sum),
    each("abs", f64::abs),
    each("ceil", f64::ceil),
    each("exp", f64::exp),
    each("floor", f64::floor),
    each("ln", f64::ln),
    each("log10", f64::log10),
    each("log2", f64::log2),
    each("sgn", sign),
    each("sqrt", f64::sqrt),
    other("absent", &[V], SpecialFunction::Absent),
    other("clamp", &[V, S, S], SpecialFunction::Clamp),
    other("clamp_max", &[V, S], SpecialFunction::ClampMost),
    other("clamp_min", &[V, S], SpecialFunction::ClampLeast),
    other(
        "histogram_quantile",
        &[S, V],
        SpecialFunction::HistogramQuantile,
    ),
    Function {
        name: "label_join",
        arguments: &[V, T, T, T, T, T, T, T, T, T, T, T, T, T, T],
        optional: JOINED,
        returns: Type::Vector,
        behavior: Behavior::Special(SpecialFunction::LabelJoin),
    },
    other(
        "label_replace",
        &[V, T, T, T, T],
        SpecialFunction::LabelReplace,
    ),
    Function {
        name: "quantile_over_time",
        arguments: &[S, Type::Matrix],
        optional: 0,
        returns: Type::Vector,
        behavior: Behavior::Special(SpecialFunction::QuantileOverTime),
    },
    other("round", &[V, S], SpecialFunction::Round),
    other("scalar", &[V], SpecialFunction::Scalar),
    other("sort", &[V], SpecialFunction::Sort),
    other("sort_desc", &[V], SpecialFunction::SortDescending),
    other("time", &[], SpecialFunction::Time),
    other("vector", &[S], SpecialFunction::Vector),
    each("deg", f64::to_degrees),
    each("rad", f64::to_radians),
    each("sin", f64::sin),
    each("cos", f64::cos),
];

/// The function of this name.
pub fn named(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// The names of all functions, for error messages.
pub fn names() -> String {
    let names: Vec<_> = FUNCTIONS.iter().map(|function| function.name).collect();
    names.join(", ")
}

fn sign(value: f64) -> f64 {
    match value {
        value if value > 0.0 => 1.0,
        value if value < 0.0 => -1.0,
        value => value,
    }
}
