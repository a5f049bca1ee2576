//! The values of expressions at one time. The samples of a range are in `window.rs`.

use super::labels::Labels;

/// An element of an instant vector: the value of one series at one time.
#[derive(Clone, Debug)]
pub struct VectorElement {
    /// The labels of the series.
    pub labels: Labels,
    /// The value of the newest sample, or the result of an operator, an aggregation or a function.
    pub value: f64,
}

/// The value of an expression at one time.
#[derive(Clone, Debug)]
pub enum Value {
    /// One number, without labels.
    Scalar(f64),
    /// One number for each of any number of series.
    Vector(Vec<VectorElement>),
    /// A text, which only literals have.
    Text(String),
}

impl Value {
    /// The number of elements of a vector; 1 for a number or a text. The evaluator charges work for each element.
    pub fn element_count(&self) -> usize {
        match self {
            Value::Vector(elements) => elements.len(),
            Value::Scalar(_) | Value::Text(_) => 1,
        }
    }
}
