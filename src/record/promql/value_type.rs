//! The types of PromQL expressions. The parser checks the types, so the evaluator does not report wrong ones.

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// One number, without labels.
    Scalar,
    /// One number for each of any number of series.
    Vector,
    /// All samples in a range, for each of any number of series.
    Matrix,
    /// A text, which only literals have.
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
