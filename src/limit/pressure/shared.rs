//! What requests touch: counts that they leave and bounds that they read. Never waits; a request costs a
//! few atomic operations.

use std::array;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::class::Class;
use super::elastic::Factor;
use super::kinds::{Kind, Kinds};
use super::level;
use super::report::Utilisation;
use super::reported::Inbox;
use super::snapshot::Snapshot;
use crate::base::clock::Nanos;

/// What a request that met a bound is told to wait: the least that the field can say.
const SOON: Nanos = Nanos::from_secs(1);

/// From sample to sample of the open requests.
const SAMPLE: Nanos = Nanos::from_millis(1);

/// One sample in the upper bits, the open requests in the lower ones.
const ONE: u64 = 1 << 40;

/// The pressure on one upstream, shared by all workers. See the module above.
#[derive(Debug)]
pub struct Pressure {
    pub(crate) traffic: Traffic,
    pub(crate) published: Published,
    pub(crate) kinds: Kinds,
    pub(crate) reports: Inbox,
}

/// What all requests write, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Traffic {
    open: AtomicU32,
    samples: AtomicU64,
    /// When the last was taken.
    sampled: AtomicU32,
    failed: AtomicU32,
    lent: AtomicU64,
    shed: [AtomicU64; Class::ALL.len()],
    crowded: AtomicBool,
}

/// What requests read and each step writes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Published {
    pub(crate) bounds: [AtomicU32; Class::ALL.len()],
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

/// A number that one thread writes and others read; no number stands for nothing.
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

    fn known(&self) -> Option<f64> {
        Some(self.get()).filter(|value| !value.is_nan())
    }

    fn span(&self) -> Option<Nanos> {
        self.known().map(|nanos| Nanos(nanos as u64))
    }
}

/// A request that is within its limits is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// What it was.
    pub class: Class,
    /// Until it might pass, 1 to 6 seconds. A guess.
    pub retry_after: Nanos,
    /// Open requests that it met.
    met: u32,
}

/// A place among the open requests. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "a place that is dropped is free again"]
pub struct Permit {
    pressure: Arc<Pressure>,
    class: Class,
    /// Open requests that it met.
    met: u32,
    /// It is not counted for now.
    aside: Cell<bool>,
}

impl Pressure {
    pub(crate) fn new() -> Pressure {
        Pressure {
            traffic: Traffic::default(),
            published: Published::default(),
            kinds: Kinds::new(),
            reports: Inbox::default(),
        }
    }

    /// m: elastic limits lend m - 1 times their rates now.
    pub fn factor(&self) -> Factor {
        Factor::new(self.published.factor.get())
    }

    /// The kind that requests of this name are.
    pub fn kind(&self, name: &str) -> Kind {
        self.kinds.find(name)
    }

    /// A place for one request among those that are open, unless it is to be shed. `key` says which cohort it
    /// belongs to, where that matters: who asks, as a keyed hash that all gateways share.
    ///
    /// Of those who come here no more are let in than a class may have open, whoever asks at the same time; who
    /// is turned away may have taken a place for a moment that another would have got. Those who come back
    /// after they have waited for their client are not asked again.
    pub fn admit(
        self: &Arc<Self>,
        class: Class,
        now: Nanos,
        key: impl FnOnce() -> u64,
    ) -> Result<Permit, Shed> {
        let met = self.traffic.open.fetch_add(1, Relaxed);
        self.traffic.sample(met, now);
        match self.turns_away(class, met, key) {
            Some(shed) => {
                self.traffic.open.fetch_sub(1, Relaxed);
                Err(shed)
            }
            None => Ok(Permit {
                pressure: Arc::clone(self),
                class,
                met,
                aside: Cell::new(false),
            }),
        }
    }

    /// What [`Pressure::admit`] would say.
    pub fn would_shed(&self, class: Class, key: impl FnOnce() -> u64) -> Option<Shed> {
        self.turns_away(class, self.traffic.open.load(Relaxed), key)
    }

    fn turns_away(&self, class: Class, met: u32, key: impl FnOnce() -> u64) -> Option<Shed> {
        let published = &self.published;
        let wait = if met >= published.bounds[class as usize].load(Relaxed) {
            SOON
        } else {
            let hour = published.hour.load(Relaxed);
            level::cut(class, published.level.get(), key, hour)?.max(SOON)
        };
        Some(Shed {
            class,
            retry_after: wait,
            met,
        })
    }

    /// A request that its limits admit is told that it is shed. Those that they refuse would be no load.
    pub fn sheds(&self, shed: &Shed) {
        self.meets(shed.class, shed.met);
        self.traffic.shed[shed.class as usize].fetch_add(1, Relaxed);
    }

    fn meets(&self, class: Class, met: u32) {
        if class == Class::Critical && met >= self.published.crowd.load(Relaxed) {
            self.traffic.crowded.store(true, Relaxed);
        }
    }

    /// What elastic limits may lend to a request more that is open, if anything.
    pub fn lends(&self) -> Factor {
        let bound = self.published.lending.load(Relaxed);
        match self.traffic.open.load(Relaxed) <= bound {
            true => self.factor(),
            false => Factor::ONE,
        }
    }

    /// The moment as it is.
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
            reported: published.reported.known(),
            cpu: published.cpu.known(),
            lent: traffic.lent.load(Relaxed),
            shed: array::from_fn(|class| traffic.shed[class].load(Relaxed)),
        }
    }
}

impl Traffic {
    /// Takes note of open requests, once in [`SAMPLE`]: as Poisson arrivals see time averages the mean is that
    /// over time, and who asks in bursts does not see their peaks only.
    fn sample(&self, open: u32, now: Nanos) {
        let moment = (now.0 / SAMPLE.0) as u32;
        if self.sampled.load(Relaxed) != moment {
            self.sampled.store(moment, Relaxed);
            self.samples.fetch_add(ONE | u64::from(open), Relaxed);
        }
    }

    /// The mean of open requests since the last time; what is open now when nobody has asked.
    pub(crate) fn drain_open(&self) -> f64 {
        let samples = self.samples.swap(0, Relaxed);
        match samples / ONE {
            0 => f64::from(self.open.load(Relaxed)),
            count => (samples % ONE) as f64 / count as f64,
        }
    }

    /// Requests that failed since the last time.
    pub(crate) fn drain_failed(&self) -> u32 {
        self.failed.swap(0, Relaxed)
    }

    /// Whether a critical request met a crowd since the last time.
    pub(crate) fn drain_crowded(&self) -> bool {
        self.crowded.swap(false, Relaxed)
    }
}

impl Permit {
    /// The upstream waits for the client: until it has the whole request the place is not counted, or slow
    /// clients would look like a slow upstream.
    pub fn waits(&self, for_client: bool) {
        let open = &self.pressure.traffic.open;
        match (self.aside.replace(for_client), for_client) {
            (false, true) => drop(open.fetch_sub(1, Relaxed)),
            (true, false) => drop(open.fetch_add(1, Relaxed)),
            _ => {}
        }
    }

    /// Takes note of what an answer says of the upstream's load.
    pub fn report(&self, load: Utilisation) {
        self.pressure.reports.put(load);
    }

    /// All its limits admit the request, and it `borrows` if an elastic one lends what it takes.
    pub fn enters(&self, borrows: bool) {
        self.pressure.meets(self.class, self.met);
        if borrows {
            self.pressure.traffic.lent.fetch_add(1, Relaxed);
        }
    }

    /// The first byte of the answer is there, `waited` after the last byte of the request.
    pub fn answered(&self, kind: Kind, waited: Nanos) {
        self.pressure.kinds.record(kind, waited);
    }

    /// The upstream gave no answer, or one that says it cannot.
    pub fn failed(&self) {
        self.pressure.traffic.failed.fetch_add(1, Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.waits(true);
    }
}

#[cfg(test)]
mod tests;
