//! The control step: reads what requests have counted, applies the law of each part, and publishes the bounds that
//! requests read.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::baseline::{Baseline, ProbeStep};
use super::capacity::Capacity;
use super::class::RequestClass;
use super::elastic::{Elastic, Observation};
use super::kinds::Offsets;
use super::latencies::LatencyPool;
use super::level::{self, Level};
use super::reported::{Reported, Trust};
use super::shared::Pressure;
use super::step::{GatewayLoad, StepContext};
use crate::base::clock::Nanos;

/// Samples that a quantile is read from at most.
const POOL: f32 = 192.0;
/// Fewer samples are no evidence.
const FEW: f32 = 15.0;
/// The weight of older samples after a step: 0.8 s of memory, or 3 s below [`SCARCE`] samples.
const KEEP: f32 = 0.88;
const KEEP_FEW: f32 = 0.97;
const SCARCE: f32 = 24.0;
/// Without a sample for this long there is no signal. Ten steps later nothing is lent, two seconds in all.
const SILENCE: Nanos = Nanos::from_millis(900);
/// Smoothing of open requests, over 2 s: those of a single step are too random to learn L from.
const SMOOTHING: f64 = 0.05;
/// A full upstream is this much slower than one without a queue: r = 1.5 b.
const ROOM: f64 = 0.5;
/// A slowness above this may be a queue.
const QUIET: f64 = 1.25;
/// Open requests of all gateways, and a load, up to which an upstream is nearly idle.
const IDLE_OPEN: f64 = 2.0;
const IDLE_LOAD: f64 = 0.5;
/// The share of its processors above which the gateway itself is what is slow.
const BUSY: f64 = 0.9;
/// The part of its bound that a class keeps while it yields to a probe.
const SQUEEZE: f64 = 0.3;

/// How an upstream is steered.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Open requests at most, whatever their class and whatever latency says. At least 1.
    pub most: u32,
    /// The highest elastic factor, at least 1: the largest ratio of a limit's `at_most` to its base rate.
    pub most_factor: f64,
    /// What the upstream's reports of its load may do.
    pub trust: Trust,
}

/// Steers one [`Pressure`]. Its owner calls [`Controller::step`] every [`STEP`](super::STEP).
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    shared: Arc<Pressure>,
    offsets: Offsets,
    /// Latencies, adjusted for the differences between kinds.
    recent: LatencyPool,
    /// Latencies as clients see them.
    seen: LatencyPool,
    baseline: Baseline,
    capacity: Capacity,
    elastic: Elastic,
    level: Level,
    reported: Reported,
    /// Open requests, smoothed.
    open: f64,
    /// Failures; old ones fade as the pool of latencies does.
    failed: f64,
    /// Whether the last step found no queue.
    quiet: bool,
    last_sample: Nanos,
}

/// What a step publishes beside the state of the parts.
struct StepResult {
    load: f64,
    /// Whether a probe is under way.
    squeezed: bool,
    /// Adjusted for the differences between kinds, in nanoseconds.
    p50: Option<f64>,
    reported: Option<f64>,
    cpu: Option<f64>,
}

impl Controller {
    /// A controller and the pressure that it steers, on one of `gateways` gateways.
    pub fn new(settings: Settings, gateways: u32, now: Nanos) -> (Arc<Pressure>, Controller) {
        let shared = Arc::new(Pressure::new());
        let most = f64::from(settings.most);
        let controller = Controller {
            settings,
            shared: Arc::clone(&shared),
            offsets: Offsets::default(),
            recent: LatencyPool::new(POOL),
            seen: LatencyPool::new(POOL),
            baseline: Baseline::new(),
            capacity: Capacity::new(f64::from(gateways.max(1)), most),
            elastic: Elastic::new(),
            level: Level::new(),
            reported: Reported::default(),
            open: 0.0,
            failed: 0.0,
            quiet: false,
            last_sample: now,
        };
        controller.publish(&StepResult {
            load: 0.0,
            squeezed: false,
            p50: None,
            reported: None,
            cpu: None,
        });
        (shared, controller)
    }

    /// Replaces the settings from the next step on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// One step. If it is called more often, it learns from fewer samples; if it is called late, it reacts late.
    pub fn step(&mut self, now: Nanos, context: &StepContext) {
        let most = f64::from(self.settings.most);
        let fresh = self.offsets.drain(&self.shared.kinds, self.quiet);
        let keep_most = if self.recent.weight() < SCARCE {
            KEEP_FEW
        } else {
            KEEP
        };
        let keep = f64::from(self.recent.blend(&fresh.level, keep_most));
        self.seen.blend(&fresh.seen, keep_most);
        let failed = self.shared.traffic.drain_failed();
        self.failed = self.failed * keep + f64::from(failed);
        if fresh.seen.iter().any(|count| *count > 0.0) {
            self.last_sample = now;
        }
        let mean = self.shared.traffic.drain_open();
        let usual = self.open;
        self.open += SMOOTHING * (mean - self.open);

        let heard = now.since(self.last_sample) <= SILENCE;
        let p50 = (heard && self.recent.weight() >= FEW).then(|| self.recent.quantile(0.5));
        // The measurements of a busy gateway say nothing about the upstream.
        let cpu = context.gateway_load.cpu.and_then(share);
        let busy = cpu.is_some_and(|cpu| cpu >= BUSY);
        let slowness = p50
            .filter(|_| !busy)
            .map(|median| self.baseline.slowness(median, now));
        let gateways = f64::from(context.gateways.max(1));
        if let Some(slowness) = slowness {
            self.capacity.step(slowness, self.open, gateways, most);
        }
        self.quiet = slowness.is_some_and(|slowness| slowness < QUIET);
        if busy {
            self.level.forget();
        }
        // The level integrates over steps, so noise in one of them does no harm, but a delay would.
        let crowded = self.shared.traffic.drain_crowded();
        let here = mean / self.capacity.limit();
        self.level.step(here, crowded, slowness.unwrap_or(1.0), now);

        let reported = self.reported.step(&self.shared.reports, now);
        let trusted = self.settings.trust == Trust::Full && reported.is_some();
        let load = self.load(slowness, reported, trusted, context.gateway_load);
        let failures = self.failed / (self.failed + f64::from(self.recent.weight())).max(1.0);
        let seen = slowness.map(|slowness| Observation {
            load,
            calm: self.level.is_calm(),
            slowness,
            failures,
            fresh: 1.0 - keep,
        });
        match seen {
            // Few samples are no evidence, but no silence either.
            None if heard && load <= 1.0 => {}
            seen => self.elastic.step(seen, self.settings.most_factor),
        }
        let waiting = mean.max(self.open);
        if waiting <= IDLE_OPEN / gateways
            && (heard || mean < 0.5)
            && load.max(slowness.map_or(0.0, queue_load)) < IDLE_LOAD
            && self.failed < 0.5
        {
            self.elastic.idle(self.settings.most_factor);
        }

        let squeezed = self.baseline.probe(&ProbeStep {
            now,
            wall: context.wall,
            latencies: &fresh.level,
            open: mean,
            usual_open: usual,
            creep: self.level.creep(),
        });
        self.publish(&StepResult {
            load,
            squeezed,
            p50,
            reported,
            cpu,
        });
        let hour = context.wall.0 / Nanos::from_secs(3_600).0;
        self.shared.published.hour.store(hour, Relaxed);
    }

    /// u. Latency is left out where the upstream's reports are trusted instead.
    fn load(
        &self,
        slowness: Option<f64>,
        reported: Option<f64>,
        trusted: bool,
        own: GatewayLoad,
    ) -> f64 {
        let here = if trusted {
            0.0
        } else {
            let queued = slowness.map_or(0.0, queue_load);
            queued.max(self.open / self.capacity.limit())
        };
        [
            reported,
            own.cpu.and_then(share),
            own.connections.and_then(share),
        ]
        .into_iter()
        .flatten()
        .fold(here, f64::max)
    }

    fn publish(&self, found: &StepResult) {
        let (limit, level) = (self.capacity.limit(), self.level.get());
        let most = f64::from(self.settings.most);
        let published = &self.shared.published;
        for class in RequestClass::ALL {
            let bound = level::class_bound(class, limit, level);
            let bound = if found.squeezed && self.level.yields_to_probe(class) {
                SQUEEZE * bound
            } else if self.level.may_refuse(class) {
                bound
            } else {
                most
            };
            published.bounds[class as usize].store(whole_requests(bound.min(most)), Relaxed);
        }
        let squeeze = if found.squeezed { SQUEEZE } else { 1.0 };
        let lending = squeeze * level::lending_bound(limit, level);
        published
            .lending
            .store(whole_requests(lending.min(most)), Relaxed);
        published
            .crowd
            .store(whole_requests(level::crowd_size(limit)), Relaxed);
        published.level.set(level);
        published.limit.set(limit);
        published.load.set(found.load);
        let lent = (self.elastic.factor() - 1.0) * level::lending_share(level);
        published.factor.set(1.0 + lent);
        let seen = |share| found.p50.map(|_| self.seen.quantile(share));
        published.p50.set(seen(0.5));
        published.p90.set(seen(0.9));
        let mixture = seen(0.5).zip(found.p50);
        let mixture = mixture.map_or(1.0, |(seen, level)| seen / level.max(1.0));
        published
            .base
            .set(self.baseline.get().map(|base| mixture * base));
        published.reported.set(found.reported);
        published.cpu.set(found.cpu);
    }
}

/// A bound in whole requests, at least one.
fn whole_requests(bound: f64) -> u32 {
    bound.ceil().max(1.0) as u32
}

/// The load that a slowness stands for.
fn queue_load(slowness: f64) -> f64 {
    (slowness - 1.0) / ROOM
}

/// None for what cannot be a share.
fn share(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}
