//! The load that an upstream reports in its responses, over all workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::report::Utilisation;
use crate::base::clock::Nanos;

/// Older reports are ignored.
const STALE: Nanos = Nanos::from_secs(3);
/// Smoothing of the means of steps; ten steps are a second.
const SMOOTHING: f64 = 0.1;
/// The count of reports is in the upper bits, the sum of loads, in thousandths, in the lower ones.
const ONE: u64 = 1 << 40;
const FINE: f64 = 1_000.0;

/// What reports may do. The caller decides which responses may report at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Lower what is lent below what latency allows.
    Lower,
    /// Replace the load that latency shows, up and down. A median above twice the baseline still ends lending.
    Full,
}

/// The reports since the last step. Written by many threads, one atomic addition a report.
#[derive(Debug, Default)]
pub(crate) struct ReportInbox(AtomicU64);

impl ReportInbox {
    pub(crate) fn put(&self, load: Utilisation) {
        let load = (load.get() * FINE) as u64;
        self.0.fetch_add(ONE | load, Relaxed);
    }

    /// The mean load since the last call.
    fn drain(&self) -> Option<f64> {
        let sum = self.0.swap(0, Relaxed);
        let count = sum / ONE;
        (count > 0).then(|| (sum % ONE) as f64 / FINE / count as f64)
    }
}

/// The reported load, smoothed over a second.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    last: Option<(Nanos, f64)>,
}

impl Reported {
    /// The load, unless the last report is stale.
    pub(crate) fn step(&mut self, inbox: &ReportInbox, now: Nanos) -> Option<f64> {
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
        let (inbox, mut reported) = (ReportInbox::default(), Reported::default());
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
