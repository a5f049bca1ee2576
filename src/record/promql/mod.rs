//! PromQL: queries in the language of Prometheus, about samples of a [`SampleSource`].
//!
//! A query becomes a tree whose types are right (`lexer.rs`, `parser.rs`). Its series are read once for all its steps, and the
//! tree is evaluated step by step (`eval.rs`). The result is that of Prometheus 2.42 for the same samples, with rates that reach
//! to the edges of their span. The module does not know where samples come from, nor over which protocol queries come.
//!
//! Bounds, for each query: 16 KiB, 256 operands, brackets and matchers, [`SAMPLES`] samples read, 11,000 steps, [`POINTS`] points in
//! the result. `effort.rs` bounds the work and the bytes of labels that it writes. In memory are samples of 16 bytes
//! (read and of the result), the result as text, and the numbers of one step. Compiled patterns take 16 KiB each and
//! 64 bytes a letter. All of it is less than 128 MiB, with what a source holds while it reads.

mod aggregate;
mod binary;
mod effort;
mod error;
mod eval;
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
mod syntax;
mod times;
mod types;
mod value;
mod window;

#[cfg(test)]
mod tests;

pub use self::error::Error;
pub use self::histogram::BOUND;
pub use self::limits::{POINTS, SAMPLES};
pub use self::parser::selector;
pub use self::query::{QueryResult, check, instant, range};
pub use self::source::{SampleSource, SampledSeries, SelectedSeries};
pub use self::times::Times;
pub use self::window::Sample;
