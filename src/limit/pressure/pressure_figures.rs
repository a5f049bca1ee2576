//! The figures of an upstream's pressure at one moment, for metrics, `explain` and the conditions of elastic limits.
//! They admit and shed no request: [`Pressure`](super::Pressure) does that by its bounds.

use super::ElasticFactor;
use super::RequestClass;
use crate::base::clock::Nanos;

/// The figures of one upstream. Counts are as of now, all other figures as of the last control step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureFigures {
    /// The elastic factor, as the level cuts it: elastic limits lend this factor less 1 times their rates.
    pub factor: ElasticFactor,
    /// The load of the upstream; 1 is full.
    pub load: f64,
    /// The number of open requests that the upstream serves without a queue: this gateway's share.
    pub capacity: f64,
    /// The number of open requests now, without those that wait for their client, a store or a delay.
    pub open: u32,
    /// The median latency that there would be without a queue; `None` before the first median.
    pub baseline: Option<Nanos>,
    /// The median latency to the first byte over the last seconds; `None` while there are too few or no recent samples.
    pub p50: Option<Nanos>,
    /// The 90th percentile of the same latencies; `None` where `p50` is.
    pub p90: Option<Nanos>,
    /// The shed level, from 4 (nothing is cut) down to 0.
    pub level: f64,
    /// The load that the upstream reports, smoothed over a second; `None` while it reports nothing.
    pub reported: Option<f64>,
    /// The share of its processors' time that the gateway itself uses; `None` if it was not measured.
    pub cpu: Option<f64>,
    /// The number of requests so far that were admitted with lent units.
    pub lent: u64,
    /// The number of requests shed so far, by class as [`RequestClass::ALL`] lists them.
    pub shed: [u64; RequestClass::ALL.len()],
}
