//! Functions by name: what they take and give, and what the simple ones do.

use super::syntax::Type;
use super::window::{self, Window};

/// A function.
#[derive(Debug)]
pub struct Function {
    /// How it is written.
    pub name: &'static str,
    /// What it takes.
    pub arguments: &'static [Type],
    /// How many of the last arguments may be left out.
    pub optional: usize,
    /// What it gives.
    pub returns: Type,
    /// What it does.
    pub does: Does,
}

/// What a function does.
#[derive(Debug)]
pub enum Does {
    /// Makes one number of the samples of a span; nothing of too few.
    Window(fn(&Window) -> Option<f64>),
    /// Changes each number.
    Each(fn(f64) -> f64),
    /// Anything else; the evaluator knows.
    Other(Other),
}

/// What is neither about spans nor about single numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
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

const fn over(name: &'static str, does: fn(&Window) -> Option<f64>) -> Function {
    Function {
        name,
        arguments: &[Type::Matrix],
        optional: 0,
        returns: Type::Vector,
        does: Does::Window(does),
    }
}

const fn each(name: &'static str, does: fn(f64) -> f64) -> Function {
    Function {
        name,
        arguments: &[Type::Vector],
        optional: 0,
        returns: Type::Vector,
        does: Does::Each(does),
    }
}

const fn other(name: &'static str, arguments: &'static [Type], does: Other) -> Function {
    let returns = match does {
        Other::Scalar | Other::Time => Type::Scalar,
        _ => Type::Vector,
    };
    Function {
        name,
        arguments,
        optional: matches!(does, Other::Round) as usize,
        returns,
        does: Does::Other(does),
    }
}

const V: Type = Type::Vector;
const S: Type = Type::Scalar;
const T: Type = Type::Text;

/// Most texts that `label_join` takes.
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
    other("absent", &[V], Other::Absent),
    other("clamp", &[V, S, S], Other::Clamp),
    other("clamp_max", &[V, S], Other::ClampMost),
    other("clamp_min", &[V, S], Other::ClampLeast),
    other("histogram_quantile", &[S, V], Other::HistogramQuantile),
    Function {
        name: "label_join",
        arguments: &[V, T, T, T, T, T, T, T, T, T, T, T, T, T, T],
        optional: JOINED,
        returns: Type::Vector,
        does: Does::Other(Other::LabelJoin),
    },
    other("label_replace", &[V, T, T, T, T], Other::LabelReplace),
    Function {
        name: "quantile_over_time",
        arguments: &[S, Type::Matrix],
        optional: 0,
        returns: Type::Vector,
        does: Does::Other(Other::QuantileOverTime),
    },
    other("round", &[V, S], Other::Round),
    other("scalar", &[V], Other::Scalar),
    other("sort", &[V], Other::Sort),
    other("sort_desc", &[V], Other::SortDescending),
    other("time", &[], Other::Time),
    other("vector", &[S], Other::Vector),
    each("deg", f64::to_degrees),
    each("rad", f64::to_radians),
    each("sin", f64::sin),
    each("cos", f64::cos),
];

/// By how it is written.
pub fn named(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// All of them, for errors.
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

/// A quantile of sorted values, between neighbours in proportion.
pub fn quantile(share: f64, sorted: &[f64]) -> f64 {
    let Some(last) = sorted.len().checked_sub(1).filter(|_| !share.is_nan()) else {
        return f64::NAN;
    };
    if share < 0.0 {
        return f64::NEG_INFINITY;
    }
    if share > 1.0 {
        return f64::INFINITY;
    }
    let rank = share * last as f64;
    let lower = (rank.floor() as usize).min(last);
    let upper = (lower + 1).min(last);
    let weight = rank - rank.floor();
    sorted[lower] * (1.0 - weight) + sorted[upper] * weight
}

/// By value, what is no number first.
pub fn by_value(a: &f64, b: &f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal),
        (a, b) => b.cmp(&a),
    }
}
