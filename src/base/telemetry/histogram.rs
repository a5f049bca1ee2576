//! Histograms of durations, with the buckets of `buckets.rs`. Workers count the durations of requests in them.
//!
//! There is one counter per worker, label value and bucket. It is created when the first duration falls into the
//! bucket.

use std::cell::OnceCell;
use std::sync::Arc;

use super::buckets::{BUCKET_BOUNDS, BUCKET_COUNT, INFINITE_BOUND};
use super::exemplar::{BucketExemplars, Exemplar};
use super::names::{Label, Metric};
use super::registry::{Registry, WorkerCounter};
use crate::base::clock::Nanos;

/// The histogram of one worker, for one value of one label.
#[derive(Debug)]
pub struct Histogram {
    /// One counter per bucket. The last bucket is that of durations above all bounds.
    counters: [OnceCell<WorkerCounter>; BUCKET_COUNT],
    /// The sum of all durations, in nanoseconds.
    sum: WorkerCounter,
    /// The exemplars of the buckets, once there is one.
    exemplars: OnceCell<Arc<BucketExemplars>>,
    /// The registry in which the counters of the buckets are created.
    registry: Registry,
    /// The worker that alone may count in this histogram.
    worker_number: usize,
    /// The metric of the buckets.
    metric: Metric,
    /// The label of all series of the histogram, and its value.
    label: (Label, Box<str>),
}

impl Histogram {
    /// Creates the histogram for one value of a label, with its sum and without any bucket. `metric` is that of the
    /// buckets, and `sum_metric` that of the sum.
    pub fn new(
        registry: &Registry,
        worker_number: usize,
        (metric, sum_metric): (Metric, Metric),
        label: (Label, &str),
    ) -> Histogram {
        Histogram {
            counters: [const { OnceCell::new() }; BUCKET_COUNT],
            exemplars: OnceCell::new(),
            sum: registry.worker_counter(worker_number, sum_metric, &[label]),
            registry: registry.clone(),
            worker_number,
            metric,
            label: (label.0, label.1.into()),
        }
    }

    /// Counts one duration, in the first bucket whose bound it does not exceed, and adds it to the sum.
    pub fn observe(&self, duration: Nanos) {
        let bucket_index = bucket_index(duration);
        let counter = self.counters[bucket_index].get_or_init(|| {
            self.registry.worker_counter(
                self.worker_number,
                self.metric,
                &self.bucket_labels(bucket_index),
            )
        });
        counter.increment(1);
        self.sum.increment(duration.0);
    }

    /// Keeps an exemplar for the bucket of a duration.
    pub fn set_exemplar(&self, duration: Nanos, exemplar: Exemplar) {
        let exemplars = self.exemplars.get_or_init(|| {
            let label = (self.label.0, &*self.label.1);
            self.registry
                .bucket_exemplars(self.worker_number, self.metric, &[label])
        });
        exemplars.set(bucket_index(duration), exemplar);
    }

    /// The labels of a bucket.
    fn bucket_labels(&self, bucket_index: usize) -> [(Label, &str); 2] {
        let bound = BUCKET_BOUNDS
            .get(bucket_index)
            .map_or(INFINITE_BOUND, |(_, text)| text);
        [(self.label.0, &*self.label.1), (Label::BucketBound, bound)]
    }
}

/// The index of the first bucket whose bound this duration does not exceed.
fn bucket_index(duration: Nanos) -> usize {
    BUCKET_BOUNDS.partition_point(|(micros, _)| micros * 1_000 < duration.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_below_their_bounds() {
        #[track_caller]
        fn check(nanos: u64, le: &str) {
            let registry = Registry::default();
            let metrics = (Metric::RequestDuration, Metric::RequestDurationSum);
            let histogram = Histogram::new(&registry, 0, metrics, (Label::Route, "a"));
            histogram.observe(Nanos(nanos));
            let labels = [(Label::Route, "a"), (Label::BucketBound, le)];
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
        check(60_000_000_001, INFINITE_BOUND);
        check(u64::MAX, INFINITE_BOUND);
    }
}
