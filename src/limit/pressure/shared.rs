//! What requests touch: counters that they write and bounds that they read. Never waits; a request costs a few atomic
//! operations.

use std::array;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::class::RequestClass;
use super::elastic::Factor;
use super::kinds::{Kinds, RequestKind};
use super::level;
use super::report::Utilisation;
use super::reported::ReportInbox;
use super::snapshot::Snapshot;
use crate::base::clock::Nanos;

/// The `Retry-After` of a request that met a bound: the shortest that the field can express.
const SOON: Nanos = Nanos::from_secs(1);

/// The time between two samples of the open requests.
const SAMPLE: Nanos = Nanos::from_millis(1);

/// The count of samples is in the upper bits, the sum of open requests in the lower ones.
const ONE: u64 = 1 << 40;

/// The pressure on one upstream, shared by all workers. See [`pressure`](super).
#[derive(Debug)]
pub struct Pressure {
    pub(crate) traffic: TrafficCounters,
    pub(crate) published: Published,
    pub(crate) kinds: Kinds,
    pub(crate) reports: ReportInbox,
}

/// The counters that all requests write, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct TrafficCounters {
    open: AtomicU32,
    samples: AtomicU64,
    /// When the last sample was taken, in [`SAMPLE`]s.
    sampled: AtomicU32,
    failed: AtomicU32,
    lent: AtomicU64,
    shed: [AtomicU64; RequestClass::ALL.len()],
    crowded: AtomicBool,
}

/// The bounds that requests read and each control step writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Published {
    pub(crate) bounds: [AtomicU32; RequestClass::ALL.len()],
    /// Open requests up to which anything is lent.
    pub(crate) lending: AtomicU32,
    pub(crate) crowd: AtomicU32,
    pub(crate) hour: AtomicU64,
    pub(crate) factor: Figure,
    pub(crate) level: Figure,
    pub(crate) load: Figure,
    pub(crate) limit: Figure,
    pub(crate) base: Figure,
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

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    fn value(&self) -> Option<f64> {
        Some(self.get()).filter(|value| !value.is_nan())
    }

    fn span(&self) -> Option<Nanos> {
        self.value().map(|nanos| Nanos(nanos as u64))
    }
}

/// A request was refused although its limits may admit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The class of the request.
    pub class: RequestClass,
    /// A guess when it may be admitted, 1 to 6 seconds from now.
    pub retry_after: Nanos,
    /// Open requests at that time.
    met: u32,
}

/// The slot of one request among the open requests of an upstream. Dropping it frees the slot.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free again"]
pub struct UpstreamSlot {
    pressure: Arc<Pressure>,
    class: RequestClass,
    /// Open requests when the slot was taken.
    met: u32,
    /// Whether the slot is not counted for now.
    aside: Cell<bool>,
}

impl Pressure {
    pub(crate) fn new() -> Pressure {
        Pressure {
            traffic: TrafficCounters::default(),
            published: Published::default(),
            kinds: Kinds::new(),
            reports: ReportInbox::default(),
        }
    }

    /// m: elastic limits lend m - 1 times their rates now.
    pub fn factor(&self) -> Factor {
        Factor::new(self.published.factor.get())
    }

    /// The kind of this name; see [`RequestKind`].
    pub fn kind(&self, name: &str) -> RequestKind {
        self.kinds.find(name)
    }

    /// Takes a slot for one request, unless the request is to be shed. `key` is called where the cohort matters: it
    /// returns the identity of the client as a keyed hash that all gateways share.
    ///
    /// No class gets more slots than it may have, even if many requests come at the same time. A request that is shed
    /// holds a slot for a moment, which another one may then not get. A slot that was set aside for its client comes
    /// back without another check; see [`UpstreamSlot::wait_for_client`].
    pub fn admit(
        self: &Arc<Self>,
        class: RequestClass,
        now: Nanos,
        key: impl FnOnce() -> u64,
    ) -> Result<UpstreamSlot, Shed> {
        let met = self.traffic.open.fetch_add(1, Relaxed);
        self.traffic.sample(met, now);
        match self.check(class, met, key) {
            Some(shed) => {
                self.traffic.open.fetch_sub(1, Relaxed);
                Err(shed)
            }
            None => Ok(UpstreamSlot {
                pressure: Arc::clone(self),
                class,
                met,
                aside: Cell::new(false),
            }),
        }
    }

    /// What [`Pressure::admit`] would say, without taking a slot.
    pub fn would_shed(&self, class: RequestClass, key: impl FnOnce() -> u64) -> Option<Shed> {
        self.check(class, self.traffic.open.load(Relaxed), key)
    }

    /// The refusal of a request that met so many open ones, if it is to be shed.
    fn check(&self, class: RequestClass, met: u32, key: impl FnOnce() -> u64) -> Option<Shed> {
        let published = &self.published;
        let wait = if met >= published.bounds[class as usize].load(Relaxed) {
            SOON
        } else {
            let hour = published.hour.load(Relaxed);
            level::cohort_wait(class, published.level.get(), key, hour)?.max(SOON)
        };
        Some(Shed {
            class,
            retry_after: wait,
            met,
        })
    }

    /// Counts a request that was shed. To be called only if its limits admit it: else it would have been no load.
    pub fn record_shed(&self, shed: &Shed) {
        self.record_crowd(shed.class, shed.met);
        self.traffic.shed[shed.class as usize].fetch_add(1, Relaxed);
    }

    fn record_crowd(&self, class: RequestClass, met: u32) {
        if class == RequestClass::Critical && met >= self.published.crowd.load(Relaxed) {
            self.traffic.crowded.store(true, Relaxed);
        }
    }

    /// The factor for one more open request: [`Factor::ONE`] where so many are open that nothing is lent.
    pub fn lending_factor(&self) -> Factor {
        let bound = self.published.lending.load(Relaxed);
        match self.traffic.open.load(Relaxed) <= bound {
            true => self.factor(),
            false => Factor::ONE,
        }
    }

    /// All figures as of now.
    pub fn snapshot(&self) -> Snapshot {
        let (traffic, published) = (&self.traffic, &self.published);
        Snapshot {
            factor: self.factor(),
            load: published.load.get(),
            limit: published.limit.get(),
            open: traffic.open.load(Relaxed),
            base: published.base.span(),
            p50: published.p50.span(),
            p90: published.p90.span(),
            level: published.level.get(),
            reported: published.reported.value(),
            cpu: published.cpu.value(),
            lent: traffic.lent.load(Relaxed),
            shed: array::from_fn(|class| traffic.shed[class].load(Relaxed)),
        }
    }
}

impl TrafficCounters {
    /// Samples the open requests, at most once in [`SAMPLE`]. Poisson arrivals see time averages, so the mean of samples
    /// is the mean over time; and a burst counts once, not with each of its requests.
    fn sample(&self, open: u32, now: Nanos) {
        let moment = (now.0 / SAMPLE.0) as u32;
        if self.sampled.load(Relaxed) != moment {
            self.sampled.store(moment, Relaxed);
            self.samples.fetch_add(ONE | u64::from(open), Relaxed);
        }
    }

    /// The mean of open requests since the last call. Without samples, the number that is open now.
    pub(crate) fn drain_open(&self) -> f64 {
        let samples = self.samples.swap(0, Relaxed);
        match samples / ONE {
            0 => f64::from(self.open.load(Relaxed)),
            count => (samples % ONE) as f64 / count as f64,
        }
    }

    /// Requests that failed since the last call.
    pub(crate) fn drain_failed(&self) -> u32 {
        self.failed.swap(0, Relaxed)
    }

    /// Whether a critical request met a crowd since the last call.
    pub(crate) fn drain_crowded(&self) -> bool {
        self.crowded.swap(false, Relaxed)
    }
}

impl UpstreamSlot {
    /// While the upstream waits for the rest of the client's request the slot is not counted, or slow clients would look
    /// like a slow upstream. `false` when the whole request is sent.
    pub fn wait_for_client(&self, for_client: bool) {
        let open = &self.pressure.traffic.open;
        match (self.aside.replace(for_client), for_client) {
            (false, true) => drop(open.fetch_sub(1, Relaxed)),
            (true, false) => drop(open.fetch_add(1, Relaxed)),
            _ => {}
        }
    }

    /// Records the load that a response reports.
    pub fn record_load(&self, load: Utilisation) {
        self.pressure.reports.put(load);
    }

    /// Records that all limits admit the request; `borrows` if an elastic limit lends what it takes.
    pub fn record_admission(&self, borrows: bool) {
        self.pressure.record_crowd(self.class, self.met);
        if borrows {
            self.pressure.traffic.lent.fetch_add(1, Relaxed);
        }
    }

    /// Records the time from the last byte of the request to the first byte of the response.
    pub fn record_latency(&self, kind: RequestKind, waited: Nanos) {
        self.pressure.kinds.record(kind, waited);
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
