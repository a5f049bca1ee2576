//! How busy the gateway itself is: its share of the processors, and of its connections.

use std::thread::available_parallelism;

use super::occupancy::Occupancy;
use crate::base::clock::{Clock, Nanos};
use crate::limit::pressure;

/// Of the way to what the last step has used; a fifth of a second.
const SMOOTHING: f64 = 0.5;

/// See the module.
#[derive(Debug)]
pub struct HostLoad {
    clock: Clock,
    processors: f64,
    /// When it was looked at, and what had been used.
    last: (Nanos, Option<Nanos>),
    cpu: Option<f64>,
}

impl HostLoad {
    /// Measures from now on. The workers use at most one processor each.
    pub fn new(clock: &Clock, workers: usize) -> HostLoad {
        let processors = available_parallelism().map_or(1, |many| many.get());
        HostLoad {
            processors: processors.min(workers.max(1)) as f64,
            last: (clock.now(), clock.cpu()),
            cpu: None,
            clock: clock.clone(),
        }
    }

    /// Since the last look, smoothed; of `most` connections those that are open.
    pub fn measure(&mut self, occupancy: &Occupancy, most: usize) -> pressure::GatewayLoad {
        let (now, used) = (self.clock.now(), self.clock.cpu());
        let (then, before) = std::mem::replace(&mut self.last, (now, used));
        let wall = now.since(then).0 as f64 * self.processors;
        if let Some((used, before)) = used.zip(before).filter(|_| wall > 0.0) {
            let share = (used.since(before).0 as f64 / wall).min(1.0);
            let smooth = self
                .cpu
                .map_or(share, |cpu| cpu + SMOOTHING * (share - cpu));
            self.cpu = Some(smooth);
        }
        pressure::GatewayLoad {
            cpu: self.cpu,
            connections: Some(occupancy.open() as f64 / most.max(1) as f64),
        }
    }
}
