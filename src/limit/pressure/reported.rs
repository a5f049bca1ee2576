//! What an upstream says of its own load, from the answers of all workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::report::Utilisation;
use crate::base::clock::Nanos;

/// A report older than this is none.
const STALE: Nanos = Nanos::from_secs(3);
/// Of the way to a step's mean; ten steps are a second.
const SMOOTHING: f64 = 0.1;
/// One report in the upper bits, thousandths of load in the lower ones.
const ONE: u64 = 1 << 40;
const FINE: f64 = 1_000.0;

/// What a report may do. Whose reports are heard at all is for the caller to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Lower what is lent below what latency allows.
    Lower,
    /// Take the place of what latency says of load, both ways. A median above twice the baseline still ends
    /// lending.
    Full,
}

/// Written by many threads, one atomic addition a report.
#[derive(Debug, Default)]
pub(crate) struct Inbox(AtomicU64);

impl Inbox {
    pub(crate) fn put(&self, load: Utilisation) {
        let load = (load.get() * FINE) as u64;
        self.0.fetch_add(ONE | load, Relaxed);
    }

    /// The mean since the last time.
    fn drain(&self) -> Option<f64> {
        let sum = self.0.swap(0, Relaxed);
        let count = sum / ONE;
        (count > 0).then(|| (sum % ONE) as f64 / FINE / count as f64)
    }
}

/// Smoothed over a second.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    last: Option<(Nanos, f64)>,
}

impl Reported {
    /// The load, unless there was no report lately.
    pub(crate) fn step(&mut self, inbox: &Inbox, now: Nanos) -> Option<f64> {
        self.last = self.last.filter(|(at, _)| now.since(*at) <= STALE);
        if let Some(mean) = inbox.drain() {
            let before = self.last.map_or(mean, |(_, load)| load);
            self.last = Some((now, before + SMOOTHING * (mean - before)));
        }
        self.last.map(|(_, load)| load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smooths_and_goes_stale() {
        let (inbox, mut reported) = (Inbox::default(), Reported::default());
        let put = |load| inbox.put(Utilisation::new(load).unwrap());
        let at = Nanos::from_millis;
        assert_eq!(reported.step(&inbox, at(0)), None);
        put(0.2);
        put(0.4);
        assert_eq!(reported.step(&inbox, at(100)), Some(0.3));
        put(1.3);
        assert_eq!(reported.step(&inbox, at(200)), Some(0.4));
        assert_eq!(reported.step(&inbox, at(3_200)), Some(0.4));
        assert_eq!(reported.step(&inbox, at(3_201)), None);
        put(0.9);
        assert_eq!(reported.step(&inbox, at(9_000)), Some(0.9));
    }
}
