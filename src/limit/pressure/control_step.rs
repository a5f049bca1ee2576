//! The length of a control step, and the figures that the caller measures for it. The step itself is in
//! `controller.rs`.

use crate::base::clock::Nanos;

/// The time from one control step to the next.
pub const CONTROL_STEP: Nanos = Nanos::from_millis(100);

/// The surroundings of an upstream, as of one control step.
#[derive(Clone, Copy, Debug)]
pub struct StepContext {
    /// The time since the Unix epoch, nearly the same on all gateways: probes begin by it, and cohorts change with its
    /// hours.
    pub wall: Nanos,
    /// The number of live gateways in front of the upstream, this one included. 0 counts as 1.
    pub gateways: u32,
    /// The gateway's own load.
    pub gateway_load: GatewayLoad,
}

/// The load of the gateway itself, as shares of what it may use: 1 is full. `None` where a share was not measured. The
/// controller ignores shares that are negative, infinite or NaN.
#[derive(Clone, Copy, Debug, Default)]
pub struct GatewayLoad {
    /// The share of its processors' time that it uses.
    pub cpu: Option<f64>,
    /// The share of the connections it may have that are open.
    pub connections: Option<f64>,
}
