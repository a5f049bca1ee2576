//! The metrics of the gateway, and the log of the process.
//!
//! | module | what it is |
//! |---|---|
//! | `names` | all metrics and labels by name |
//! | `registry` | the values of all metrics |
//! | `histogram` | histograms of durations |
//! | `buckets` | the bounds of their buckets, and estimates of quantiles |
//! | `log` | sets up the process's log |

pub mod buckets;
pub mod histogram;
mod log;
pub mod names;
pub mod registry;

pub use histogram::Histogram;
pub use log::log_to_stderr;
pub use names::{Label, Metric};
pub use registry::{Exemplar, MAX_VALUES_PER_IDENTITY, MetricsFormat, Registry};
