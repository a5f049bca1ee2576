//! The metrics of the gateway by name, the registry that adds them up, and the process's own log.

pub mod buckets;
pub mod histogram;
mod log;
pub mod names;
pub mod registry;

pub use histogram::Histogram;
pub use log::log_to_stderr;
pub use names::{Label, Metric};
pub use registry::Registry;
