//! The metrics of the gateway, and the log of the process.
//!
//! | module | what it is |
//! |---|---|
//! | `names` | all metrics and labels by name |
//! | `registry` | the values of all metrics |
//! | `histogram` | histograms of durations |
//! | `buckets` | the bounds of their buckets, and estimates of quantiles |
//! | `exemplar` | a request as an example of a bucket |
//! | `metrics_format` | the formats of `/metrics` |
//! | `log` | sets up the process's log |
//! | `outage_log` | limits log lines about an outage |

pub mod buckets;
mod exemplar;
pub mod histogram;
mod log;
mod metrics_format;
pub mod names;
mod outage_log;
pub mod registry;

pub use exemplar::Exemplar;
pub use histogram::Histogram;
pub use log::log_to_stderr;
pub use metrics_format::MetricsFormat;
pub use names::{Label, Metric};
pub use outage_log::OutageLog;
pub use registry::{MAX_VALUES_PER_IDENTITY, Registry, WorkerCounter};
