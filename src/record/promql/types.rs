//! Types of expressions.

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// One number.
    Scalar,
    /// A number for each of some series.
    Vector,
    /// All samples of a span for each of some series.
    Matrix,
    /// A text.
    Text,
}

impl Type {
    /// The name in error messages, as Prometheus has it.
    pub fn name(self) -> &'static str {
        match self {
            Type::Scalar => "scalar",
            Type::Vector => "instant vector",
            Type::Matrix => "range vector",
            Type::Text => "string",
        }
    }
}
