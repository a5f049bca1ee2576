//! The types of PromQL expressions. The parser checks them, so that the evaluator need not.

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// One number.
    Scalar,
    /// One number for each of several series.
    Vector,
    /// All samples in a range, for each of several series.
    Matrix,
    /// A text.
    Text,
}

impl ValueType {
    /// The name in error messages, the same as in Prometheus.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::Scalar => "scalar",
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
            ValueType::Text => "string",
        }
    }
}
