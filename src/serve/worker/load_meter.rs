//! Measures how busy the gateway itself is, for elastic limits: which share of its processors is in use, and which share
//! of its connections is open.
//!
//! It reads the CPU time of the process, so load that other processes put on the machine is not counted.

use std::thread::available_parallelism;

use super::occupancy::Occupancy;
use crate::base::clock::{Clock, Nanos};
use crate::limit::pressure::GatewayLoad;

/// Weight of the newest sample in the moving average of CPU use. With ten samples a second the average follows a change
/// within about a fifth of a second.
const CPU_SMOOTHING: f64 = 0.5;

/// Turns the CPU time and the open connections of the process into a [`GatewayLoad`].
#[derive(Debug)]
pub struct LoadMeter {
    clock: Clock,
    /// The number of processors that the workers can use.
    processor_count: f64,
    last_sample: CpuSample,
    /// Moving average of the share of processors in use, from 0 to 1. `None` before the second sample, and under a
    /// manual clock.
    cpu_share: Option<f64>,
}

/// CPU time of the process at one moment.
#[derive(Clone, Copy, Debug)]
struct CpuSample {
    /// When the sample was read.
    taken_at: Nanos,
    /// CPU time since the process started; `None` under a manual clock.
    cpu_time: Option<Nanos>,
}

impl CpuSample {
    /// The CPU time of the process now.
    fn read(clock: &Clock) -> CpuSample {
        CpuSample {
            taken_at: clock.now(),
            cpu_time: clock.cpu_time(),
        }
    }
}

impl LoadMeter {
    /// A meter that measures from now on. The workers use at most one processor each.
    pub fn new(clock: &Clock, worker_count: usize) -> LoadMeter {
        let available_count = available_parallelism().map_or(1, |count| count.get());
        LoadMeter {
            processor_count: available_count.min(worker_count.max(1)) as f64,
            last_sample: CpuSample::read(clock),
            cpu_share: None,
            clock: clock.clone(),
        }
    }

    /// The load now. CPU use is a moving average, whose newest sample is the time since the last call. Connections are
    /// the share of `max_connections` that is open now.
    pub fn measure(&mut self, occupancy: &Occupancy, max_connections: usize) -> GatewayLoad {
        let sample = CpuSample::read(&self.clock);
        let previous_sample = std::mem::replace(&mut self.last_sample, sample);
        let elapsed = sample.taken_at.since(previous_sample.taken_at);
        let available_nanos = elapsed.0 as f64 * self.processor_count;
        if let Some((cpu_time, previous_cpu_time)) = sample.cpu_time.zip(previous_sample.cpu_time)
            && available_nanos > 0.0
        {
            let used_nanos = cpu_time.since(previous_cpu_time).0 as f64;
            let sample_share = (used_nanos / available_nanos).min(1.0);
            let new_average = self.cpu_share.map_or(sample_share, |average| {
                average + CPU_SMOOTHING * (sample_share - average)
            });
            self.cpu_share = Some(new_average);
        }
        GatewayLoad {
            cpu: self.cpu_share,
            connections: Some(occupancy.open_count() as f64 / max_connections.max(1) as f64),
        }
    }
}
