//! The metrics of the gateway, and the log of the process.
//!
//! `names.rs` has all metrics and labels, `registry.rs` their values, and `histogram.rs` histograms with the buckets of
//! `buckets.rs`. `log.rs` sets up the log.

pub mod buckets;
pub mod histogram;
mod log;
pub mod names;
pub mod registry;

pub use histogram::Histogram;
pub use log::log_to_stderr;
pub use names::{Label, Metric};
pub use registry::Registry;
