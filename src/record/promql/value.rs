//! The values of expressions at one time. The samples of a range are in `window.rs`.

use super::labels::Labels;

/// The value of a series at one time.
#[derive(Clone, Debug)]
pub struct VectorElement {
    /// The labels of the series.
    pub labels: Labels,
    /// The value.
    pub value: f64,
}

/// The value of an expression at one time.
#[derive(Clone, Debug)]
pub enum Value {
    /// One number.
    Scalar(f64),
    /// One number for each of several series.
    Vector(Vec<VectorElement>),
    /// A text.
    Text(String),
}

impl Value {
    /// How many numbers or texts the value has, for the budget.
    pub fn element_count(&self) -> usize {
        match self {
            Value::Vector(elements) => elements.len(),
            Value::Scalar(_) | Value::Text(_) => 1,
        }
    }
}
