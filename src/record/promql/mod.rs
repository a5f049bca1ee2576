//! PromQL: evaluates queries in the language of Prometheus on samples of a [`SampleSource`].
//!
//! A query is parsed into a tree whose types are checked. Its series are read once for all its steps, and the tree is
//! evaluated step by step. The result is that of Prometheus 2.42 for the same samples, with rates that reach to the
//! edges of their range. Subqueries, the modifier `@` and some functions are not supported. The module knows neither
//! where samples come from nor over which protocol queries come.
//!
//! | module | content |
//! |---|---|
//! | `query` | evaluates whole queries, from the text to the result |
//! | `lexer`, `parser` | the text as tokens; the tokens as a checked tree |
//! | `syntax`, `value_type` | the tree; the types of its expressions |
//! | `source` | the interface to a store of samples |
//! | `evaluator` | evaluates the tree at one step, and the functions that write labels |
//! | `binary_operation`, `aggregation` | operators; `sum`, `topk` and the like |
//! | `functions` | the table of functions |
//! | `window`, `histogram`, `quantile` | functions on ranges; on buckets; quantiles |
//! | [`labels`], `value`, [`number`] | labels and matchers; values; numbers as text |
//! | `step_times`, `limits`, `budget` | the steps of a query; its bounds; the bound of its work |
//! | `error` | why a query has no result |
//!
//! Bounds of a query: 16 KiB of text, 256 parts (operands, signs, parentheses and matchers), [`MAX_READ_SAMPLES`]
//! samples read, 11,000 steps, [`MAX_RESULT_SAMPLES`] samples in the result. `budget.rs` bounds its work and the labels
//! that it writes. Memory holds 16 bytes for each sample that was read or returned, the result as text, and the numbers
//! of one step. Compiled patterns take 16 KiB each and 64 bytes a letter. All of it is less than 128 MiB, with what a
//! source holds while it reads.

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
