//! The load that an upstream reports in its responses, collected over all workers and smoothed. Reports are parsed in
//! `orca_report.rs`; what they may change is the caller's choice of [`Trust`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::orca_report::Utilisation;
use crate::base::clock::Nanos;

/// Without a report for this long the upstream counts as one that reports nothing.
const MAX_REPORT_AGE: Nanos = Nanos::from_secs(3);
/// The share of a step's mean in the smoothed load; ten steps are a second.
const REPORT_SMOOTHING: f64 = 0.1;
/// One report in a [`ReportInbox`]. The bits from this one on count the reports; those below it hold the sum of loads.
/// There is room for 16 million reports in a step.
const REPORT_COUNT_UNIT: u64 = 1 << 40;
/// The sum of loads is in thousandths.
const LOAD_SCALE: f64 = 1_000.0;

/// What reports may change. The caller decides which responses may report at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Reports may raise the load above what latency and open requests show, so that less is lent.
    Lower,
    /// Reports replace the load that latency and open requests show, up and down. A median above twice the baseline, or
    /// failures, still end lending.
    Full,
}

/// The reports since the last step. Many threads write to it, with one atomic addition for each report.
#[derive(Debug, Default)]
pub(crate) struct ReportInbox(AtomicU64);

impl ReportInbox {
    pub(crate) fn record(&self, load: Utilisation) {
        let load = (load.get() * LOAD_SCALE) as u64;
        self.0.fetch_add(REPORT_COUNT_UNIT | load, Relaxed);
    }

    /// Takes the mean of the loads that were reported since the last call; `None` without reports.
    fn drain(&self) -> Option<f64> {
        let packed_reports = self.0.swap(0, Relaxed);
        let count = packed_reports / REPORT_COUNT_UNIT;
        (count > 0).then(|| (packed_reports % REPORT_COUNT_UNIT) as f64 / LOAD_SCALE / count as f64)
    }
}

/// The reported load, smoothed over a second.
#[derive(Debug, Default)]
pub(crate) struct ReportedLoad {
    /// The time of the last step with a report, and the smoothed load; `None` without a recent report.
    smoothed: Option<(Nanos, f64)>,
}

impl ReportedLoad {
    /// Adds the reports since the last step. Returns the smoothed load; `None` if the last report is older than
    /// [`MAX_REPORT_AGE`], or if there was none.
    pub(crate) fn step(&mut self, inbox: &ReportInbox, now: Nanos) -> Option<f64> {
        self.smoothed = self
            .smoothed
            .filter(|(reported_at, _)| now.since(*reported_at) <= MAX_REPORT_AGE);
        if let Some(mean) = inbox.drain() {
            let former_load = self.smoothed.map_or(mean, |(_, load)| load);
            let new_load = former_load + REPORT_SMOOTHING * (mean - former_load);
            self.smoothed = Some((now, new_load));
        }
        self.smoothed.map(|(_, load)| load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smooths_and_goes_stale() {
        let (inbox, mut reported) = (ReportInbox::default(), ReportedLoad::default());
        let put = |load| inbox.record(Utilisation::new(load).unwrap());
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
