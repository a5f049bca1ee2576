//! The pressure on one upstream as requests see it: slots among its open requests, the counters that requests write,
//! and the bounds that they read. A request costs a few atomic operations and never waits. The bounds themselves are
//! computed by the [`Controller`](super::Controller).

use std::array;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::elastic_factor::ElasticFactor;
use super::orca_report::Utilisation;
use super::pressure_figures::PressureFigures;
use super::reported_load::ReportInbox;
use super::request_class::RequestClass;
use super::request_kinds::{RequestKind, RequestKinds};
use super::shed_level;
use crate::base::clock::Nanos;

/// The `Retry-After` of a request that met a bound, and the least of any. The field counts whole seconds.
const MIN_RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// The least time between two samples of the open requests.
const SAMPLE_INTERVAL: Nanos = Nanos::from_millis(1);

/// One sample in [`TrafficCounters::samples`]. The bits from this one on count the samples; those below it hold the sum
/// of open requests.
const SAMPLE_COUNT_UNIT: u64 = 1 << 40;

/// The pressure on one upstream, shared by all workers. See [`pressure`](super).
#[derive(Debug)]
pub struct Pressure {
    /// What requests write, for the next control step.
    pub(crate) traffic: TrafficCounters,
    /// What requests read, from the last control step.
    pub(crate) published: PublishedBounds,
    /// The kinds of requests, with the latencies since the last control step.
    pub(crate) kinds: RequestKinds,
    /// The loads that responses report.
    pub(crate) reports: ReportInbox,
}

/// The counters that all requests write. They are on cache lines of their own, which processors fetch in pairs of 64
/// bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct TrafficCounters {
    /// The number of open requests, without those of [`UpstreamSlot::wait_for_client`].
    open: AtomicU32,
    /// The samples of open requests since the last step; see [`SAMPLE_COUNT_UNIT`].
    samples: AtomicU64,
    /// The time of the last sample, in [`SAMPLE_INTERVAL`]s. It wraps around.
    last_sample: AtomicU32,
    /// The number of requests that failed since the last step.
    failed: AtomicU32,
    /// The number of requests that were admitted with lent units, since the start.
    lent: AtomicU64,
    /// The number of requests that were shed since the start, by class.
    shed: [AtomicU64; RequestClass::ALL.len()],
    /// Whether a critical request met a crowd since the last step.
    met_crowd: AtomicBool,
}

/// The bounds that requests read, and the figures for metrics. Each control step writes all of them. They share no cache
/// line with the counters.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PublishedBounds {
    /// The number of open requests from which on each class is refused.
    pub(crate) class_bounds: [AtomicU32; RequestClass::ALL.len()],
    /// The number of open requests up to which anything is lent.
    pub(crate) lending_bound: AtomicU32,
    /// The number of open requests that are a crowd to a critical request.
    pub(crate) crowd_size: AtomicU32,
    /// The hour since the Unix epoch; it chooses the cohorts.
    pub(crate) hour: AtomicU64,
    // `PressureFigures` documents the figures below.
    pub(crate) factor: Figure,
    pub(crate) level: Figure,
    pub(crate) load: Figure,
    pub(crate) capacity: Figure,
    pub(crate) baseline: Figure,
    pub(crate) p50: Figure,
    pub(crate) p90: Figure,
    pub(crate) reported: Figure,
    pub(crate) cpu: Figure,
}

/// A number that one thread writes and others read; NaN stands for none.
#[derive(Debug, Default)]
pub(crate) struct Figure(AtomicU64);

impl Figure {
    pub(crate) fn set(&self, value: impl Into<Option<f64>>) {
        let value = value.into().unwrap_or(f64::NAN);
        self.0.store(value.to_bits(), Relaxed);
    }

    /// The figure; NaN where it is not known.
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    /// The figure; `None` where it is not known.
    fn value(&self) -> Option<f64> {
        Some(self.get()).filter(|value| !value.is_nan())
    }

    /// The figure, which is in nanoseconds, as a duration; `None` where it is not known.
    fn duration(&self) -> Option<Nanos> {
        self.value().map(|nanos| Nanos(nanos as u64))
    }
}

/// The refusal of a request because of its upstream's pressure, whatever its limits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The class of the request.
    pub class: RequestClass,
    /// A guess at the time after which the request may be admitted: 1 to 6 seconds.
    pub retry_after: Nanos,
    /// The number of open requests just before this one.
    open_before: u32,
}

/// The slot of one request among the open requests of an upstream. Dropping it frees the slot.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free again"]
pub struct UpstreamSlot {
    pressure: Arc<Pressure>,
    class: RequestClass,
    /// The number of open requests just before this one.
    open_before: u32,
    /// Whether the slot is not counted now: see [`UpstreamSlot::wait_for_client`].
    is_uncounted: Cell<bool>,
}

impl Pressure {
    pub(crate) fn new() -> Pressure {
        Pressure {
            traffic: TrafficCounters::default(),
            published: PublishedBounds::default(),
            kinds: RequestKinds::new(),
            reports: ReportInbox::default(),
        }
    }

    /// The elastic factor, as the level cuts it: elastic limits lend this factor less 1 times their rates now.
    pub fn factor(&self) -> ElasticFactor {
        ElasticFactor::new(self.published.factor.get())
    }

    /// Returns the kind of this name, and adds it if it is new; see [`RequestKind`].
    pub fn kind(&self, name: &str) -> RequestKind {
        self.kinds.find_or_add(name)
    }

    /// Takes a slot for one request. `key` is called where the cohort matters: it returns the identity of the client as
    /// a keyed hash that all gateways share.
    ///
    /// No class gets a slot beyond its bound, even if many requests come at the same time. A request that is shed holds
    /// a slot for a moment, which another request may then not get. An uncounted slot is counted again without another
    /// check; see [`UpstreamSlot::wait_for_client`].
    ///
    /// # Errors
    ///
    /// The request is to be shed.
    pub fn admit(
        self: &Arc<Self>,
        class: RequestClass,
        now: Nanos,
        key: impl FnOnce() -> u64,
    ) -> Result<UpstreamSlot, Shed> {
        let open_before = self.traffic.open.fetch_add(1, Relaxed);
        self.traffic.sample_open(open_before, now);
        match self.shed_unless_room(class, open_before, key) {
            Some(shed) => {
                self.traffic.open.fetch_sub(1, Relaxed);
                Err(shed)
            }
            None => Ok(UpstreamSlot {
                pressure: Arc::clone(self),
                class,
                open_before,
                is_uncounted: Cell::new(false),
            }),
        }
    }

    /// The refusal that [`Pressure::admit`] would return; `None` if it would admit. Takes no slot.
    pub fn would_shed(&self, class: RequestClass, key: impl FnOnce() -> u64) -> Option<Shed> {
        self.shed_unless_room(class, self.traffic.open.load(Relaxed), key)
    }

    /// The refusal of a request that met `open_before` open ones; `None` if there is room for it.
    fn shed_unless_room(
        &self,
        class: RequestClass,
        open_before: u32,
        key: impl FnOnce() -> u64,
    ) -> Option<Shed> {
        let published = &self.published;
        let retry_after = if open_before >= published.class_bounds[class as usize].load(Relaxed) {
            MIN_RETRY_AFTER
        } else {
            let hour = published.hour.load(Relaxed);
            shed_level::cohort_wait(class, published.level.get(), key, hour)?.max(MIN_RETRY_AFTER)
        };
        Some(Shed {
            class,
            retry_after,
            open_before,
        })
    }

    /// Counts a request that was shed. The caller must have checked that the request's limits admit it. Otherwise it
    /// would never have reached the upstream.
    pub fn record_shed(&self, shed: &Shed) {
        self.record_if_crowded(shed.class, shed.open_before);
        self.traffic.shed[shed.class as usize].fetch_add(1, Relaxed);
    }

    /// Records that a critical request met at least [`PublishedBounds::crowd_size`] open ones.
    fn record_if_crowded(&self, class: RequestClass, open_before: u32) {
        if class == RequestClass::Critical && open_before >= self.published.crowd_size.load(Relaxed)
        {
            self.traffic.met_crowd.store(true, Relaxed);
        }
    }

    /// The factor for one more request: [`ElasticFactor::ONE`] where so many are open that nothing is lent.
    pub fn lending_factor(&self) -> ElasticFactor {
        let bound = self.published.lending_bound.load(Relaxed);
        match self.traffic.open.load(Relaxed) <= bound {
            true => self.factor(),
            false => ElasticFactor::ONE,
        }
    }

    /// All figures for metrics, `explain` and conditions.
    pub fn figures(&self) -> PressureFigures {
        let (traffic, published) = (&self.traffic, &self.published);
        PressureFigures {
            factor: self.factor(),
            load: published.load.get(),
            capacity: published.capacity.get(),
            open: traffic.open.load(Relaxed),
            baseline: published.baseline.duration(),
            p50: published.p50.duration(),
            p90: published.p90.duration(),
            level: published.level.get(),
            reported: published.reported.value(),
            cpu: published.cpu.value(),
            lent: traffic.lent.load(Relaxed),
            shed: array::from_fn(|class| traffic.shed[class].load(Relaxed)),
        }
    }
}

impl TrafficCounters {
    /// Samples the open requests, about once in [`SAMPLE_INTERVAL`]: two threads may do so at the same time. Poisson
    /// arrivals see time averages, so the mean of samples is the mean over time. A burst counts once, not with each of
    /// its requests.
    fn sample_open(&self, open: u32, now: Nanos) {
        let interval_number = (now.0 / SAMPLE_INTERVAL.0) as u32;
        if self.last_sample.load(Relaxed) != interval_number {
            self.last_sample.store(interval_number, Relaxed);
            self.samples
                .fetch_add(SAMPLE_COUNT_UNIT | u64::from(open), Relaxed);
        }
    }

    /// Takes the mean of open requests since the last call. Without samples it is the number that is open now.
    pub(crate) fn drain_open(&self) -> f64 {
        let samples = self.samples.swap(0, Relaxed);
        match samples / SAMPLE_COUNT_UNIT {
            0 => f64::from(self.open.load(Relaxed)),
            count => (samples % SAMPLE_COUNT_UNIT) as f64 / count as f64,
        }
    }

    /// Takes the number of requests that failed since the last call.
    pub(crate) fn drain_failed(&self) -> u32 {
        self.failed.swap(0, Relaxed)
    }

    /// Takes whether a critical request met a crowd since the last call.
    pub(crate) fn drain_crowded(&self) -> bool {
        self.met_crowd.swap(false, Relaxed)
    }
}

impl UpstreamSlot {
    /// With `true`, stops counting the slot: the upstream has nothing to do until the client sends the remainder of its
    /// request. Otherwise slow clients would look like a slow upstream. With `false`, counts the slot again.
    ///
    /// A request that waits for a store, or for the delay of a limit, is not counted either.
    pub fn wait_for_client(&self, is_waiting: bool) {
        let open = &self.pressure.traffic.open;
        match (self.is_uncounted.replace(is_waiting), is_waiting) {
            (false, true) => drop(open.fetch_sub(1, Relaxed)),
            (true, false) => drop(open.fetch_add(1, Relaxed)),
            _ => {}
        }
    }

    /// Records the load that the response reports.
    pub fn record_load(&self, load: Utilisation) {
        self.pressure.reports.record(load);
    }

    /// Records that all limits admit the request. `has_borrowed` says that an elastic limit lends units to it.
    pub fn record_admission(&self, has_borrowed: bool) {
        self.pressure
            .record_if_crowded(self.class, self.open_before);
        if has_borrowed {
            self.pressure.traffic.lent.fetch_add(1, Relaxed);
        }
    }

    /// Records the time from the last byte of the request to the head of the response.
    pub fn record_latency(&self, kind: RequestKind, latency: Nanos) {
        self.pressure.kinds.record(kind, latency);
    }

    /// Records that the upstream gave no response, or a server error.
    pub fn record_failure(&self) {
        self.pressure.traffic.failed.fetch_add(1, Relaxed);
    }
}

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        self.wait_for_client(true);
    }
}

#[cfg(test)]
mod tests;
