//! How often pressure is controlled, and what a step gets to know besides the traffic.

use crate::base::clock::Nanos;

/// From step to step.
pub const STEP: Nanos = Nanos::from_millis(100);

/// What a step is told of the world.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// Since the Unix epoch, nearly the same on all gateways: probes meet by it, and cohorts change by its
    /// hours.
    pub wall: Nanos,
    /// Live gateways in front of the upstream, this one included.
    pub gateways: u32,
    /// The gateway's own load.
    pub host: Host,
}

/// How busy the gateway itself is, as shares of what it can do; nothing where it is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Of its processors.
    pub cpu: Option<f64>,
    /// Of its connections.
    pub connections: Option<f64>,
}
