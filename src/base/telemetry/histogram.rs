//! Histograms of durations: one worker's counters of the buckets in `buckets.rs`.
//!
//! Bounds: a counter for each worker, label set and bucket. The counter of a bucket is made when a duration falls into it.

use std::cell::OnceCell;

use metrics::Counter;

use super::buckets::{BOUNDS, REST};
use super::names::{Label, Metric};
use super::registry::Registry;
use crate::base::clock::Nanos;

/// One worker's counters of one label set.
#[derive(Debug)]
pub struct Histogram {
    counters: [OnceCell<Counter>; BOUNDS.len() + 1],
    sum: Counter,
    registry: Registry,
    worker: usize,
    metric: Metric,
    label: (Label, Box<str>),
}

impl Histogram {
    /// Counts for one value of a label.
    pub fn new(
        registry: &Registry,
        worker: usize,
        (metric, sum): (Metric, Metric),
        label: (Label, &str),
    ) -> Histogram {
        Histogram {
            counters: [const { OnceCell::new() }; BOUNDS.len() + 1],
            sum: registry.worker_counter(worker, sum, &[label]),
            registry: registry.clone(),
            worker,
            metric,
            label: (label.0, label.1.into()),
        }
    }

    /// Counts something that took as long.
    pub fn observe(&self, took: Nanos) {
        let bucket = BOUNDS.partition_point(|(bound, _)| bound * 1_000 < took.0);
        let counter = self.counters[bucket].get_or_init(|| {
            let bound = BOUNDS.get(bucket).map_or(REST, |(_, text)| text);
            let labels = [(self.label.0, &*self.label.1), (Label::Le, bound)];
            self.registry
                .worker_counter(self.worker, self.metric, &labels)
        });
        counter.increment(1);
        self.sum.increment(took.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_below_their_bounds() {
        #[track_caller]
        fn check(nanos: u64, le: &str) {
            let registry = Registry::default();
            let metrics = (Metric::RequestDuration, Metric::RequestSeconds);
            let histogram = Histogram::new(&registry, 0, metrics, (Label::Route, "a"));
            histogram.observe(Nanos(nanos));
            let labels = [(Label::Route, "a"), (Label::Le, le)];
            assert_eq!(
                registry.total(Metric::RequestDuration, &labels),
                1,
                "{nanos}"
            );
        }
        check(0, "0.0001");
        check(100_000, "0.0001");
        check(100_001, "0.00015");
        check(60_000_000_000, "60");
        check(60_000_000_001, REST);
        check(u64::MAX, REST);
    }
}
