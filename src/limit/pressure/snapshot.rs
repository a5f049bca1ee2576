//! One moment of an upstream's pressure, for metrics, `explain` and conditions.

use super::Class;
use super::Factor;
use crate::base::clock::Nanos;

/// See the module. Each figure is of the last step but for the counts, which are of now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// m, what is lent as elastic limits see it.
    pub factor: Factor,
    /// u, the load; 1 is full.
    pub load: f64,
    /// L, in requests.
    pub limit: f64,
    /// Open requests.
    pub open: u32,
    /// b: what the median would be without a queue. Nothing before the first samples.
    pub base: Option<Nanos>,
    /// Latency to the first byte, of the last seconds. Nothing while there are too few samples.
    pub p50: Option<Nanos>,
    /// The same that nine of ten requests do not exceed.
    pub p90: Option<Nanos>,
    /// x, from 4 (nobody is cut) to 0.
    pub level: f64,
    /// What the upstream reports, while it does.
    pub reported: Option<f64>,
    /// The gateway's CPU as a share, where it is known.
    pub cpu: Option<f64>,
    /// Borrowed requests admitted so far.
    pub lent: u64,
    /// Requests shed so far, by class as [`Class::ALL`] lists them.
    pub shed: [u64; Class::ALL.len()],
}
