//! The control step: reads what requests left, moves each part by its law, publishes what requests read.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::baseline::Baseline;
use super::capacity::Capacity;
use super::class::Class;
use super::elastic::{Elastic, Seen};
use super::kinds::Offsets;
use super::latencies::Recent;
use super::level::{self, Level};
use super::reported::{Reported, Trust};
use super::shared::Pressure;
use super::step::{Around, Host};
use crate::base::clock::Nanos;

/// Samples that a quantile rests on, and fewer than which are no evidence.
const POOL: f32 = 192.0;
const FEW: f32 = 15.0;
/// What older samples count for after a step: 0.8 s of memory, or 3 s where few come.
const KEEP: f32 = 0.88;
const KEEP_FEW: f32 = 0.97;
const SCARCE: f32 = 24.0;
/// Without a sample for so long there is no signal; ten steps later nothing is lent, which makes two seconds.
const SILENCE: Nanos = Nanos::from_millis(900);
/// Of the way to a step's open requests; 2 s. A single step's are too much by chance to learn L from.
const SMOOTHING: f64 = 0.05;
/// How much slower than without a queue an upstream is that is full: r = 1.5 b.
const ROOM: f64 = 0.5;
/// Slower than this may be a queue.
const QUIET: f64 = 1.25;
/// Open requests of all gateways, and a load, up to which an upstream is nearly idle.
const IDLE_OPEN: f64 = 2.0;
const IDLE_LOAD: f64 = 0.5;
/// The gateway's share of its processors above which it is itself what takes time.
const BUSY: f64 = 0.9;
/// Of its bound, what a class that gives way has during a probe.
const SQUEEZE: f64 = 0.3;

/// What an upstream is steered by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Most open requests, at least 1, whatever their class and whatever latency says.
    pub most: u32,
    /// The highest elastic factor, at least 1: no limit's `at_most` is above it times its base.
    pub most_factor: f64,
    /// What the upstream's reports may do.
    pub trust: Trust,
}

/// Steers one [`Pressure`]; whoever owns it calls [`Controller::step`] every [`STEP`].
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    shared: Arc<Pressure>,
    offsets: Offsets,
    /// Latencies without what kinds differ by.
    recent: Recent,
    /// The same as clients see them.
    seen: Recent,
    baseline: Baseline,
    capacity: Capacity,
    elastic: Elastic,
    level: Level,
    reported: Reported,
    /// Open requests, smoothed.
    open: f64,
    /// Failures, fading as the pool of latencies does.
    failed: f64,
    /// The last step found no queue.
    quiet: bool,
    last_sample: Nanos,
}

/// What one step has found.
struct Found {
    load: f64,
    squeezed: bool,
    /// Without what kinds differ by.
    p50: Option<f64>,
    reported: Option<f64>,
    cpu: Option<f64>,
}

impl Controller {
    /// A controller and what it steers, of one of so many `gateways`.
    pub fn new(settings: Settings, gateways: u32, now: Nanos) -> (Arc<Pressure>, Controller) {
        let shared = Arc::new(Pressure::new());
        let most = f64::from(settings.most);
        let controller = Controller {
            settings,
            shared: Arc::clone(&shared),
            offsets: Offsets::default(),
            recent: Recent::new(POOL),
            seen: Recent::new(POOL),
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
        controller.publish(&Found {
            load: 0.0,
            squeezed: false,
            p50: None,
            reported: None,
            cpu: None,
        });
        (shared, controller)
    }

    /// From now on it is steered by these.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// One step. Called more often it learns from fewer samples, called late it reacts late.
    pub fn step(&mut self, now: Nanos, around: &Around) {
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
        // What a gateway measures that is itself busy says nothing of the upstream.
        let cpu = around.host.cpu.and_then(share);
        let busy = cpu.is_some_and(|cpu| cpu >= BUSY);
        let slowness = p50
            .filter(|_| !busy)
            .map(|median| self.baseline.slowness(median, now));
        let gateways = f64::from(around.gateways.max(1));
        if let Some(slowness) = slowness {
            self.capacity.step(slowness, self.open, gateways, most);
        }
        self.quiet = slowness.is_some_and(|slowness| slowness < QUIET);
        if busy {
            self.level.forget();
        }
        // A level sums up its steps, so that chance in one of them does no harm, and time lost does.
        let crowded = self.shared.traffic.drain_crowded();
        let here = mean / self.capacity.limit();
        self.level.step(here, crowded, slowness.unwrap_or(1.0), now);

        let reported = self.reported.step(&self.shared.reports, now);
        let trusted = self.settings.trust == Trust::Full && reported.is_some();
        let load = self.load(slowness, reported, trusted, around.host);
        let failures = self.failed / (self.failed + f64::from(self.recent.weight())).max(1.0);
        let seen = slowness.map(|slowness| Seen {
            load,
            calm: self.level.is_calm(),
            slowness,
            failures,
            fresh: 1.0 - keep,
        });
        match seen {
            // Too few to say anything are not silence.
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

        let at = (now, around.wall);
        let squeezed = self
            .baseline
            .probe(at, &fresh.level, (mean, usual), self.level.creep());
        self.publish(&Found {
            load,
            squeezed,
            p50,
            reported,
            cpu,
        });
        let hour = around.wall.0 / Nanos::from_secs(3_600).0;
        self.shared.published.hour.store(hour, Relaxed);
    }

    /// u. What latency says is left out where the upstream's own word is trusted instead.
    fn load(&self, slowness: Option<f64>, reported: Option<f64>, trusted: bool, host: Host) -> f64 {
        let here = if trusted {
            0.0
        } else {
            let queued = slowness.map_or(0.0, queue_load);
            queued.max(self.open / self.capacity.limit())
        };
        [
            reported,
            host.cpu.and_then(share),
            host.connections.and_then(share),
        ]
        .into_iter()
        .flatten()
        .fold(here, f64::max)
    }

    fn publish(&self, found: &Found) {
        let (limit, level) = (self.capacity.limit(), self.level.get());
        let most = f64::from(self.settings.most);
        let published = &self.shared.published;
        for class in Class::ALL {
            let bound = level::bound(class, limit, level);
            let bound = if found.squeezed && self.level.gives_way(class) {
                SQUEEZE * bound
            } else if self.level.bounds(class) {
                bound
            } else {
                most
            };
            published.bounds[class as usize].store(places(bound.min(most)), Relaxed);
        }
        let squeeze = if found.squeezed { SQUEEZE } else { 1.0 };
        let lending = squeeze * level::lending_bound(limit, level);
        published.lending.store(places(lending.min(most)), Relaxed);
        published.crowd.store(places(level::crowd(limit)), Relaxed);
        published.level.set(level);
        published.limit.set(limit);
        published.load.set(found.load);
        let lent = (self.elastic.factor() - 1.0) * level::lending(level);
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

/// A bound in whole requests, one at least.
fn places(bound: f64) -> u32 {
    bound.ceil().max(1.0) as u32
}

/// The load that a queue shows.
fn queue_load(slowness: f64) -> f64 {
    (slowness - 1.0) / ROOM
}

/// What is a share at all.
fn share(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}
