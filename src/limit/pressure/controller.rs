//! The control step: reads what requests have counted, applies the law of each part, and publishes the bounds that
//! requests read. The laws themselves are in the files of the parts; see the table in `mod.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::baseline::{Baseline, ProbeStep};
use super::capacity::Capacity;
use super::control_step::{GatewayLoad, StepContext};
use super::elastic_factor::{Observation, UncutFactor};
use super::latencies::LatencyPool;
use super::reported_load::{ReportedLoad, Trust};
use super::request_class::RequestClass;
use super::request_kinds::{KindOffsets, StepSamples};
use super::shed_level::{self, ShedLevel};
use super::upstream_pressure::Pressure;
use crate::base::clock::Nanos;

/// The weight that a pool of latencies holds, unless a single step brings more. Quantiles are read from it.
const POOL_SAMPLES: f32 = 192.0;
/// A median of fewer samples is no evidence.
const MIN_SAMPLES: f32 = 15.0;
/// The largest share of their weight that older samples keep after a step: a memory of 0.8 s.
const STEP_DECAY: f32 = 0.88;
/// The same share while a pool has fewer than [`SCARCE_SAMPLES`] samples: a memory of 3 s.
const SCARCE_DECAY: f32 = 0.97;
/// Below this many samples a pool keeps older ones for longer.
const SCARCE_SAMPLES: f32 = 24.0;
/// Without a sample for this long there is no signal. Ten steps later nothing is lent, two seconds in all after the
/// last sample.
const MAX_SILENCE: Nanos = Nanos::from_millis(900);
/// The share of a step's open requests in the smoothed ones, over 2 s. Those of a single step are too random to learn
/// the capacity from.
const OPEN_SMOOTHING: f64 = 0.05;
/// How much slower a full upstream is than one without a queue: its slowness is 1.5.
const FULL_SLOWNESS_EXCESS: f64 = 0.5;
/// A median of this many baselines or more may come from a queue, so kinds are not compared then.
const MAX_QUIET_SLOWNESS: f64 = 1.25;
/// Up to this many open requests of all gateways together, an upstream may be nearly idle.
const MAX_IDLE_OPEN: f64 = 2.0;
/// The load below which an upstream may be nearly idle.
const MAX_IDLE_LOAD: f64 = 0.5;
/// The share of its processors' time from which on the gateway itself may be what is slow.
const MIN_BUSY_CPU: f64 = 0.9;
/// The share of its bound that a class or lending keeps while it yields to a probe.
const SQUEEZED_SHARE: f64 = 0.3;

/// The settings by which an upstream is steered.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The largest number of open requests, whatever their class and whatever latency says. At least 1.
    pub max_open: u32,
    /// The highest elastic factor, at least 1: the largest ratio of a limit's `at_most` to its base rate.
    pub max_factor: f64,
    /// What the upstream's reports of its load may do.
    pub trust: Trust,
}

/// Steers one [`Pressure`]. Its owner calls [`Controller::step`] every [`CONTROL_STEP`](super::CONTROL_STEP).
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    pressure: Arc<Pressure>,
    offsets: KindOffsets,
    /// Latencies without the differences between kinds.
    adjusted: LatencyPool,
    /// Latencies as clients see them.
    measured: LatencyPool,
    baseline: Baseline,
    capacity: Capacity,
    elastic: UncutFactor,
    level: ShedLevel,
    reported: ReportedLoad,
    /// The number of open requests, smoothed over 2 s.
    usual_open: f64,
    /// The number of failed requests; old ones fade as the pool of latencies does.
    failed: f64,
    /// Whether the last step had a median below [`MAX_QUIET_SLOWNESS`] baselines.
    is_quiet: bool,
    /// The time of the last step with latencies, or of the start.
    last_sample: Nanos,
}

/// What the traffic since the last step has shown.
struct TrafficMeasures {
    /// The mean of open requests in the step.
    mean_open: f64,
    /// Whether latencies were recorded in the last [`MAX_SILENCE`].
    has_signal: bool,
    /// The share of their weight that older samples keep.
    kept_share: f64,
    /// The ratio of the median to the baseline; `None` with too few samples, without a signal, or while the gateway
    /// itself is busy.
    slowness: Option<f64>,
}

/// What a step publishes beside the state of the controller's parts.
struct StepResult {
    /// The load of the upstream; 1 is full.
    load: f64,
    /// Whether a probe is under way.
    is_probing: bool,
    /// The median without the differences between kinds, in nanoseconds; `None` with too few samples.
    p50: Option<f64>,
    /// The load that the upstream reports; `None` while it reports nothing.
    reported: Option<f64>,
    /// The share of its processors' time that the gateway uses; `None` if it was not measured.
    cpu: Option<f64>,
}

impl Controller {
    /// A controller and the pressure that it steers, on one of `gateways` gateways.
    pub fn new(settings: Settings, gateways: u32, now: Nanos) -> (Arc<Pressure>, Controller) {
        let pressure = Arc::new(Pressure::new());
        let max_open = f64::from(settings.max_open);
        let controller = Controller {
            settings,
            pressure: Arc::clone(&pressure),
            offsets: KindOffsets::default(),
            adjusted: LatencyPool::new(POOL_SAMPLES),
            measured: LatencyPool::new(POOL_SAMPLES),
            baseline: Baseline::new(),
            capacity: Capacity::new(f64::from(gateways.max(1)), max_open),
            elastic: UncutFactor::new(),
            level: ShedLevel::new(),
            reported: ReportedLoad::default(),
            usual_open: 0.0,
            failed: 0.0,
            is_quiet: false,
            last_sample: now,
        };
        controller.publish(&StepResult {
            load: 0.0,
            is_probing: false,
            p50: None,
            reported: None,
            cpu: None,
        });
        (pressure, controller)
    }

    /// Replaces the settings. Requests see them from the next step on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Advances the control by one step. If it is called more often than every
    /// [`CONTROL_STEP`](super::CONTROL_STEP), it learns from fewer samples; if it is called late, it reacts late.
    pub fn step(&mut self, now: Nanos, context: &StepContext) {
        let (samples, kept_share) = self.collect_samples(now);
        let mean_open = self.pressure.traffic.drain_open();
        let usual_open = self.usual_open;
        self.usual_open += OPEN_SMOOTHING * (mean_open - self.usual_open);

        let has_signal = now.since(self.last_sample) <= MAX_SILENCE;
        let has_median = has_signal && self.adjusted.weight() >= MIN_SAMPLES;
        let p50 = has_median.then(|| self.adjusted.quantile(0.5));
        // The measurements of a busy gateway say nothing about the upstream.
        let cpu = context.gateway_load.cpu.and_then(valid_share);
        let is_gateway_busy = cpu.is_some_and(|cpu| cpu >= MIN_BUSY_CPU);
        let slowness = p50
            .filter(|_| !is_gateway_busy)
            .map(|median| self.baseline.slowness(median, now));
        let measures = TrafficMeasures {
            mean_open,
            has_signal,
            kept_share,
            slowness,
        };
        let gateways = f64::from(context.gateways.max(1));
        if is_gateway_busy {
            self.level.forget_queues();
        }
        self.step_capacity_and_level(&measures, gateways, now);

        let reported = self.reported.step(&self.pressure.reports, now);
        let load = self.load(slowness, reported, context.gateway_load);
        self.step_factor(&measures, load, gateways);

        let is_probing = self.baseline.probe(&ProbeStep {
            now,
            wall: context.wall,
            latencies: &samples.adjusted,
            open: mean_open,
            usual_open,
            max_creep: self.level.max_creep(),
        });
        self.publish(&StepResult {
            load,
            is_probing,
            p50,
            reported,
            cpu,
        });
        let hour = context.wall.0 / Nanos::from_secs(3_600).0;
        self.pressure.published.hour.store(hour, Relaxed);
    }

    /// Moves the samples and failures since the last step into the pools. Returns those samples, and the share of their
    /// weight that older ones keep.
    fn collect_samples(&mut self, now: Nanos) -> (StepSamples, f64) {
        let samples = self.offsets.drain(&self.pressure.kinds, self.is_quiet);
        let max_kept = if self.adjusted.weight() < SCARCE_SAMPLES {
            SCARCE_DECAY
        } else {
            STEP_DECAY
        };
        let kept_share = f64::from(self.adjusted.blend(&samples.adjusted, max_kept));
        self.measured.blend(&samples.measured, max_kept);
        let failed = self.pressure.traffic.drain_failed();
        self.failed = self.failed * kept_share + f64::from(failed);
        if samples.measured.iter().any(|count| *count > 0.0) {
            self.last_sample = now;
        }
        (samples, kept_share)
    }

    /// Steps the capacity, and then the level by it.
    fn step_capacity_and_level(&mut self, measures: &TrafficMeasures, gateways: f64, now: Nanos) {
        let slowness = measures.slowness;
        if let Some(slowness) = slowness {
            let max_open = f64::from(self.settings.max_open);
            self.capacity
                .step(slowness, self.usual_open, gateways, max_open);
        }
        self.is_quiet = slowness.is_some_and(|slowness| slowness < MAX_QUIET_SLOWNESS);
        // The level integrates over steps, so noise in one of them does no harm, but a delay would.
        let crowded = self.pressure.traffic.drain_crowded();
        let open_load = measures.mean_open / self.capacity.get();
        self.level
            .step(open_load, crowded, slowness.unwrap_or(1.0), now);
    }

    /// Steps the elastic factor, and raises it where the upstream is nearly idle.
    fn step_factor(&mut self, measures: &TrafficMeasures, load: f64, gateways: f64) {
        let failed_share = self.failed / (self.failed + f64::from(self.adjusted.weight())).max(1.0);
        let observation = measures.slowness.map(|slowness| Observation {
            load,
            is_calm: self.level.is_calm(),
            slowness,
            failed_share,
            fresh_share: 1.0 - measures.kept_share,
        });
        // Too few samples are no evidence, but no silence either.
        let is_undecided = observation.is_none() && measures.has_signal && load <= 1.0;
        if !is_undecided {
            self.elastic.step(observation, self.settings.max_factor);
        }
        // Means and fading sums rarely become zero, so less than half a request counts as none below.
        let open = measures.mean_open.max(self.usual_open);
        let latency_load = measures.slowness.map_or(0.0, queue_load);
        if open <= MAX_IDLE_OPEN / gateways
            && (measures.has_signal || measures.mean_open < 0.5)
            && load.max(latency_load) < MAX_IDLE_LOAD
            && self.failed < 0.5
        {
            self.elastic.raise_while_idle(self.settings.max_factor);
        }
    }

    /// The load of the upstream. Reports that the policy trusts in full replace what latency and open requests show.
    fn load(&self, slowness: Option<f64>, reported: Option<f64>, own: GatewayLoad) -> f64 {
        let observed = if self.settings.trust == Trust::Full && reported.is_some() {
            0.0
        } else {
            let queued = slowness.map_or(0.0, queue_load);
            queued.max(self.usual_open / self.capacity.get())
        };
        [
            reported,
            own.cpu.and_then(valid_share),
            own.connections.and_then(valid_share),
        ]
        .into_iter()
        .flatten()
        .fold(observed, f64::max)
    }

    /// Publishes the figures and bounds of a step.
    fn publish(&self, result: &StepResult) {
        let (capacity, level) = (self.capacity.get(), self.level.get());
        let published = &self.pressure.published;
        self.publish_bounds(result.is_probing);
        published.level.set(level);
        published.capacity.set(capacity);
        published.load.set(result.load);
        let lent_share = (self.elastic.factor() - 1.0) * shed_level::lending_share(level);
        published.factor.set(1.0 + lent_share);
        let measured_quantile = |share| result.p50.map(|_| self.measured.quantile(share));
        published.p50.set(measured_quantile(0.5));
        published.p90.set(measured_quantile(0.9));
        // Clients see the baseline with the present mixture of kinds.
        let mixture = measured_quantile(0.5).zip(result.p50);
        let mixture = mixture.map_or(1.0, |(measured, adjusted)| measured / adjusted.max(1.0));
        published
            .baseline
            .set(self.baseline.get().map(|base| mixture * base));
        published.reported.set(result.reported);
        published.cpu.set(result.cpu);
    }

    /// Publishes the numbers of open requests at which requests are refused, nothing is lent, or a crowd begins.
    fn publish_bounds(&self, is_probing: bool) {
        let (capacity, level) = (self.capacity.get(), self.level.get());
        let max_open = f64::from(self.settings.max_open);
        let published = &self.pressure.published;
        for class in RequestClass::ALL {
            let bound = shed_level::class_bound(class, capacity, level);
            let bound = if is_probing && self.level.may_yield_to_probe(class) {
                SQUEEZED_SHARE * bound
            } else if self.level.enforces_bound(class) {
                bound
            } else {
                max_open
            };
            published.class_bounds[class as usize]
                .store(whole_requests(bound.min(max_open)), Relaxed);
        }
        let squeeze = if is_probing { SQUEEZED_SHARE } else { 1.0 };
        let lending = squeeze * shed_level::lending_bound(capacity, level);
        published
            .lending_bound
            .store(whole_requests(lending.min(max_open)), Relaxed);
        published
            .crowd_size
            .store(whole_requests(shed_level::crowd_size(capacity)), Relaxed);
    }
}

/// Rounds a bound up to whole requests, at least one.
fn whole_requests(bound: f64) -> u32 {
    bound.ceil().max(1.0) as u32
}

/// The load that a slowness stands for: 0 at the baseline, 1 where the upstream is full.
fn queue_load(slowness: f64) -> f64 {
    (slowness - 1.0) / FULL_SLOWNESS_EXCESS
}

/// `None` for what cannot be a share: a negative number, infinity or NaN.
fn valid_share(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}
