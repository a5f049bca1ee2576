//! How often pressure is controlled, and what a control step knows besides the traffic.

use crate::base::clock::Nanos;

/// The time from one control step to the next.
pub const STEP: Nanos = Nanos::from_millis(100);

/// The surroundings of an upstream, as of one control step.
#[derive(Clone, Copy, Debug)]
pub struct StepContext {
    /// Time since the Unix epoch, nearly the same on all gateways: probes begin by it, and cohorts change with its
    /// hours.
    pub wall: Nanos,
    /// Live gateways in front of the upstream, this one included.
    pub gateways: u32,
    /// The gateway's own load.
    pub gateway_load: GatewayLoad,
}

/// How busy the gateway itself is, as shares of its capacity; none where that is not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct GatewayLoad {
    /// Of its processors' time.
    pub cpu: Option<f64>,
    /// Of the connections that it may have.
    pub connections: Option<f64>,
}
