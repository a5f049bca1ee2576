//! The table of functions: their names, the types of their arguments and results, and how each is computed. The
//! evaluator implements those that need more than the samples or the number of one series.

use super::value_type::ValueType;
use super::window::{self, RangeWindow};

/// A function of PromQL.
#[derive(Debug)]
pub struct Function {
    /// The name in queries.
    pub name: &'static str,
    /// The types of the arguments.
    pub arguments: &'static [ValueType],
    /// How many of the last arguments are optional.
    pub optional_count: usize,
    /// The type of the result.
    pub result_type: ValueType,
    /// How the result is computed.
    pub behavior: FunctionBehavior,
}

/// How the result of a function is computed.
#[derive(Debug)]
pub enum FunctionBehavior {
    /// The result is computed from the samples of a range. `None` means too few samples; the series is then left out.
    Window(fn(&RangeWindow) -> Option<f64>),
    /// Each number of a vector is replaced by another one.
    Number(fn(f64) -> f64),
    /// The evaluator computes the result.
    Special(SpecialFunction),
}

/// The functions that the evaluator implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialFunction {
    /// `absent`: 1 if the vector has no series.
    Absent,
    /// `clamp`: values within a minimum and a maximum.
    Clamp,
    /// `clamp_max`: values up to a maximum.
    ClampMax,
    /// `clamp_min`: values from a minimum on.
    ClampMin,
    /// `histogram_quantile`: quantiles of histograms, as `histogram.rs` estimates them.
    HistogramQuantile,
    /// `label_join`: writes a label from the values of others.
    LabelJoin,
    /// `label_replace`: writes a label from what a pattern matches in another.
    LabelReplace,
    /// `quantile_over_time`: a quantile of the samples of a range.
    QuantileOverTime,
    /// `round`: the nearest multiple of a number, or of 1.
    Round,
    /// `scalar`: the value of the only series, or NaN.
    Scalar,
    /// `sort`: the series by ascending values.
    Sort,
    /// `sort_desc`: the series by descending values.
    SortDescending,
    /// `time`: the time of the step, in seconds since 1970.
    Time,
    /// `vector`: one series without labels.
    Vector,
}

/// A function of the samples of a range.
const fn window_function(
    name: &'static str,
    function: fn(&RangeWindow) -> Option<f64>,
) -> Function {
    Function {
        name,
        arguments: &[ValueType::Matrix],
        optional_count: 0,
        result_type: ValueType::Vector,
        behavior: FunctionBehavior::Window(function),
    }
}

/// A function of each number of a vector.
const fn number_function(name: &'static str, function: fn(f64) -> f64) -> Function {
    Function {
        name,
        arguments: &[ValueType::Vector],
        optional_count: 0,
        result_type: ValueType::Vector,
        behavior: FunctionBehavior::Number(function),
    }
}

/// A function that the evaluator implements.
const fn special_function(
    name: &'static str,
    arguments: &'static [ValueType],
    special: SpecialFunction,
) -> Function {
    let result_type = match special {
        SpecialFunction::Scalar | SpecialFunction::Time => ValueType::Scalar,
        _ => ValueType::Vector,
    };
    Function {
        name,
        arguments,
        // Only `round` has an argument that may be left out.
        optional_count: matches!(special, SpecialFunction::Round) as usize,
        result_type,
        behavior: FunctionBehavior::Special(special),
    }
}

// The types of arguments, in one letter so that each signature below fits in one line.
const V: ValueType = ValueType::Vector;
const S: ValueType = ValueType::Scalar;
const T: ValueType = ValueType::Text;

/// The most labels that `label_join` joins. Prometheus has no such bound; here the signature lists each argument.
const MAX_JOINED_LABELS: usize = 12;

/// All functions that queries may call.
static FUNCTIONS: [Function; 43] = [
    window_function("avg_over_time", window::average),
    window_function("changes", window::changes),
    window_function("count_over_time", window::count),
    window_function("delta", window::delta),
    window_function("idelta", window::last_delta),
    window_function("increase", window::increase),
    window_function("irate", window::last_rate),
    window_function("last_over_time", window::last),
    window_function("max_over_time", window::maximum),
    window_function("min_over_time", window::minimum),
    window_function("present_over_time", window::present),
    window_function("rate", window::rate),
    window_function("resets", window::resets),
    window_function("stddev_over_time", window::standard_deviation),
    window_function("stdvar_over_time", window::variance),
    window_function("sum_over_time", window::sum),
    number_function("abs", f64::abs),
    number_function("ceil", f64::ceil),
    number_function("exp", f64::exp),
    number_function("floor", f64::floor),
    number_function("ln", f64::ln),
    number_function("log10", f64::log10),
    number_function("log2", f64::log2),
    number_function("sgn", sign),
    number_function("sqrt", f64::sqrt),
    special_function("absent", &[V], SpecialFunction::Absent),
    special_function("clamp", &[V, S, S], SpecialFunction::Clamp),
    special_function("clamp_max", &[V, S], SpecialFunction::ClampMax),
    special_function("clamp_min", &[V, S], SpecialFunction::ClampMin),
    special_function(
        "histogram_quantile",
        &[S, V],
        SpecialFunction::HistogramQuantile,
    ),
    Function {
        name: "label_join",
        arguments: &[V, T, T, T, T, T, T, T, T, T, T, T, T, T, T],
        optional_count: MAX_JOINED_LABELS,
        result_type: ValueType::Vector,
        behavior: FunctionBehavior::Special(SpecialFunction::LabelJoin),
    },
    special_function(
        "label_replace",
        &[V, T, T, T, T],
        SpecialFunction::LabelReplace,
    ),
    Function {
        name: "quantile_over_time",
        arguments: &[S, ValueType::Matrix],
        optional_count: 0,
        result_type: ValueType::Vector,
        behavior: FunctionBehavior::Special(SpecialFunction::QuantileOverTime),
    },
    special_function("round", &[V, S], SpecialFunction::Round),
    special_function("scalar", &[V], SpecialFunction::Scalar),
    special_function("sort", &[V], SpecialFunction::Sort),
    special_function("sort_desc", &[V], SpecialFunction::SortDescending),
    special_function("time", &[], SpecialFunction::Time),
    special_function("vector", &[S], SpecialFunction::Vector),
    number_function("deg", f64::to_degrees),
    number_function("rad", f64::to_radians),
    number_function("sin", f64::sin),
    number_function("cos", f64::cos),
];

/// Returns the function with this name, in lower case as in the table; `None` if there is none.
pub fn find_function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Lists the names of all functions with commas between them, for error messages.
pub fn list_function_names() -> String {
    let names: Vec<_> = FUNCTIONS.iter().map(|function| function.name).collect();
    names.join(", ")
}

/// Returns 1, -1, or the value itself if it is zero or NaN.
fn sign(value: f64) -> f64 {
    match value {
        value if value > 0.0 => 1.0,
        value if value < 0.0 => -1.0,
        value => value,
    }
}
