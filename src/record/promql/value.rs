//! What expressions evaluate to.

use super::labels::Labels;

/// The value of a series at a moment.
#[derive(Clone, Debug)]
pub struct Point {
    /// The labels of the series.
    pub labels: Labels,
    /// The value.
    pub value: f64,
}

/// The value of an expression at a moment.
#[derive(Clone, Debug)]
pub enum Value {
    /// One number.
    Scalar(f64),
    /// A number for each of some series.
    Vector(Vec<Point>),
    /// A text.
    Text(String),
}

impl Value {
    /// How many numbers or texts it has.
    pub fn points(&self) -> usize {
        match self {
            Value::Vector(points) => points.len(),
            Value::Scalar(_) | Value::Text(_) => 1,
        }
    }
}
