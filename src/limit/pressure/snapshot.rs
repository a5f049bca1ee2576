//! One moment of an upstream's pressure, for metrics, `explain` and conditions.

use super::Factor;
use super::RequestClass;
use crate::base::clock::Nanos;

/// One moment of an upstream's pressure. Counts are as of now, all other figures as of the last step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Snapshot {
    /// m: elastic limits lend m - 1 times their rates.
    pub factor: Factor,
    /// u: the load; 1 is full.
    pub load: f64,
    /// L: open requests that are served without a queue.
    pub limit: f64,
    /// Open requests.
    pub open: u32,
    /// b: what the median would be without a queue. None before the first samples.
    pub base: Option<Nanos>,
    /// The median latency to the first byte over the last seconds. None while there are too few samples.
    pub p50: Option<Nanos>,
    /// The 90th percentile of it.
    pub p90: Option<Nanos>,
    /// x: the level, from 4 (nothing is cut) to 0.
    pub level: f64,
    /// The load that the upstream reports, while it does.
    pub reported: Option<f64>,
    /// The gateway's own use of its processors, as a share; none where it is not known.
    pub cpu: Option<f64>,
    /// Borrowed requests admitted so far.
    pub lent: u64,
    /// Requests shed so far, by class as [`RequestClass::ALL`] lists them.
    pub shed: [u64; RequestClass::ALL.len()],
}
