//! PromQL: evaluates queries in the language of Prometheus on samples of a [`SampleSource`].
//!
//! A query is parsed into a tree (`syntax.rs`) whose types are checked (`lexer.rs`, `parser.rs`). Its series are read
//! once for all its steps (`source.rs`), and the tree is evaluated step by step (`evaluator.rs`). The result is that of
//! Prometheus 2.42 for the same samples, with rates that reach to the edges of their range. The module knows neither
//! where samples come from nor over which protocol queries come.
//!
//! Bounds of a query: 16 KiB, 256 operands, brackets and matchers, [`MAX_RESULT_SAMPLES`] samples read, 11,000 steps,
//! [`MAX_READ_SAMPLES`] points in the result. `budget.rs` bounds its work and the labels that it writes. Memory holds 16
//! bytes for each sample that was read or returned, the result as text, and the numbers of one step. Compiled patterns
//! take 16 KiB each and 64 bytes a letter. All of it is less than 128 MiB, with what a source holds while it reads.

mod aggregation;
mod binary_operation;
mod budget;
mod error;
mod evaluator;
mod functions;
mod histogram;
pub mod labels;
mod lexer;
mod limits;
pub mod number;
mod parser;
mod quantile;
mod query;
mod source;
mod step_times;
mod syntax;
mod value;
mod value_type;
mod window;

#[cfg(test)]
mod tests;

pub use self::error::Error;
pub use self::histogram::BUCKET_BOUND_LABEL;
pub use self::limits::{MAX_READ_SAMPLES, MAX_RESULT_SAMPLES};
pub use self::parser::parse_selector;
pub use self::query::{QueryResult, query_instant, query_range, validate};
pub use self::source::{SampleSource, SampledSeries, SelectedSeries};
pub use self::step_times::StepTimes;
pub use self::window::Sample;
