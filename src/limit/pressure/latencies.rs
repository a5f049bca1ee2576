//! Histograms of latencies by logarithm. Requests write to a [`LatencyRecorder`]. The control step moves its samples
//! into [`LatencyPool`]s and reads quantiles from them.
//!
//! Each doubling has 16 buckets, as in HdrHistogram, so that a quantile is off by less than 3 % once it
//! is interpolated. The range is 16 microseconds to 137 seconds; latencies outside of it count at its edges.

use std::array;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::base::clock::Nanos;

/// Each doubling has two to this power of buckets.
const BITS_PER_DOUBLING: u32 = 4;
/// Latencies below two to this power, in nanoseconds, are in the first bucket: below 16.4 microseconds.
const MIN_POWER: u32 = 14;
/// The doublings between the shortest and the longest latency that are told apart.
const DOUBLINGS: u32 = 23;
/// The number of buckets of all doublings.
pub(crate) const BUCKETS: usize = (DOUBLINGS << BITS_PER_DOUBLING) as usize;

/// The number of samples in each bucket.
pub(crate) type LatencyCounts = [f32; BUCKETS];

/// The index of the bucket for a latency, below [`BUCKETS`].
fn bucket_index(latency: Nanos) -> usize {
    let power = latency.0.max(1).ilog2();
    if power < MIN_POWER {
        return 0;
    }
    let sub_bucket =
        (latency.0 >> (power - BITS_PER_DOUBLING)) as u32 & ((1 << BITS_PER_DOUBLING) - 1);
    (((power - MIN_POWER) << BITS_PER_DOUBLING | sub_bucket) as usize).min(BUCKETS - 1)
}

/// The lower edge of a bucket, in nanoseconds.
fn lower_edge(bucket: usize) -> f64 {
    let doubling = bucket as u32 >> BITS_PER_DOUBLING;
    let sub_bucket = bucket as u64 & ((1 << BITS_PER_DOUBLING) - 1);
    (((1 << BITS_PER_DOUBLING) + sub_bucket) << (doubling + MIN_POWER - BITS_PER_DOUBLING)) as f64
}

/// Latencies since the last step, in 1.5 KB. Many threads write to it, with one atomic addition for each sample.
#[derive(Debug)]
pub(crate) struct LatencyRecorder {
    counts: [AtomicU32; BUCKETS],
    /// Whether anything was recorded since the last [`LatencyRecorder::drain`].
    has_samples: AtomicBool,
}

impl LatencyRecorder {
    pub(crate) fn new() -> LatencyRecorder {
        LatencyRecorder {
            counts: array::from_fn(|_| AtomicU32::new(0)),
            has_samples: AtomicBool::new(false),
        }
    }

    pub(crate) fn record(&self, latency: Nanos) {
        self.counts[bucket_index(latency)].fetch_add(1, Relaxed);
        if !self.has_samples.load(Relaxed) {
            self.has_samples.store(true, Relaxed);
        }
    }

    /// Takes the samples since the last call; `None` if there are none. Samples that come meanwhile may be left for a
    /// later call.
    pub(crate) fn drain(&self) -> Option<LatencyCounts> {
        if !self.has_samples.swap(false, Relaxed) {
            return None;
        }
        // Most counts are zero, and a load leaves the cache line with the writers.
        Some(
            self.counts
                .each_ref()
                .map(|count| match count.load(Relaxed) {
                    0 => 0.0,
                    _ => count.swap(0, Relaxed) as f32,
                }),
        )
    }
}

/// A pool of samples in which older ones count less. It is not a mean of medians: where half of the requests take ten
/// times as long as the others, medians of small windows jump between the two.
#[derive(Debug)]
pub(crate) struct LatencyPool {
    counts: LatencyCounts,
    /// The sum of the counts.
    weight: f32,
    /// The weight of all samples to which [`LatencyPool::blend`] fades older ones.
    target_weight: f32,
}

impl LatencyPool {
    /// Makes an empty pool. Older samples fade so far that all weigh at most `target_weight`. Fresh ones never fade, so
    /// they alone may weigh more.
    pub(crate) fn new(target_weight: f32) -> LatencyPool {
        LatencyPool {
            counts: [0.0; BUCKETS],
            weight: 0.0,
            target_weight,
        }
    }

    /// Adds new samples; older ones keep at most the share `max_kept` of their weight. Returns the share that they
    /// keep, from 0 to `max_kept`.
    pub(crate) fn blend(&mut self, fresh: &LatencyCounts, max_kept: f32) -> f32 {
        let fresh_weight: f32 = fresh.iter().sum();
        let free_share = (self.target_weight - fresh_weight) / self.weight.max(1.0);
        let kept_share = free_share.clamp(0.0, max_kept);
        self.weight = 0.0;
        for (count, fresh) in self.counts.iter_mut().zip(fresh) {
            *count = *count * kept_share + fresh;
            self.weight += *count;
        }
        kept_share
    }

    /// The weight of the samples in each bucket.
    pub(crate) fn counts(&self) -> &LatencyCounts {
        &self.counts
    }

    pub(crate) fn clear(&mut self) {
        *self = LatencyPool::new(self.target_weight);
    }

    /// The weight of all samples.
    pub(crate) fn weight(&self) -> f32 {
        self.weight
    }

    /// The quantile `share` of the latencies, in nanoseconds. `share` is from 0 to 1; without samples the quantile is
    /// 0.
    pub(crate) fn quantile(&self, share: f32) -> f64 {
        let rank = self.weight * share;
        let mut weight_below = 0.0;
        let mut last_edge = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            if *count <= 0.0 {
                continue;
            }
            if weight_below + count >= rank {
                let bucket_share = f64::from(((rank - weight_below) / count).clamp(0.0, 1.0));
                return lower_edge(bucket)
                    + bucket_share * (lower_edge(bucket + 1) - lower_edge(bucket));
            }
            weight_below += count;
            last_edge = lower_edge(bucket + 1);
        }
        // By rounding, the sum of the counts may fall short of the weight.
        last_edge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(recorder: &LatencyRecorder) -> LatencyCounts {
        recorder.drain().unwrap_or([0.0; BUCKETS])
    }

    fn pool(samples: impl IntoIterator<Item = u64>) -> LatencyPool {
        let recorder = LatencyRecorder::new();
        samples.into_iter().for_each(|s| recorder.record(Nanos(s)));
        let mut recent = LatencyPool::new(192.0);
        recent.blend(&drain(&recorder), 0.9);
        recent
    }

    #[test]
    fn quantiles_are_near() {
        for scale in [20_000, 1_000_000, 250_000_000, 9_000_000_000] {
            let recent = pool((1..=1_000).map(|i| scale + scale * i / 1_000));
            for share in [0.5_f32, 0.9, 1.0] {
                let exact = scale as f64 * (1.0 + f64::from(share));
                let off = recent.quantile(share) / exact;
                assert!((0.97..1.03).contains(&off), "{scale} {share} {off}");
            }
        }
        assert_eq!(pool([]).quantile(0.5), 0.0);
    }

    #[test]
    fn extremes_count_at_the_edges() {
        let recent = pool([0, 1, 16_383]);
        assert!(recent.quantile(1.0) <= lower_edge(1));
        let recent = pool([u64::MAX, 1 << 60]);
        assert!(recent.quantile(0.5) >= lower_edge(BUCKETS - 1));
        assert_eq!(recent.weight(), 2.0);
    }

    #[test]
    fn old_samples_fade() {
        let recorder = LatencyRecorder::new();
        let mut recent = LatencyPool::new(100.0);
        let mut add = |count: u32, span: u64| {
            (0..count).for_each(|_| recorder.record(Nanos(span)));
            let keep = recent.blend(&drain(&recorder), 0.9);
            (keep, recent.weight(), recent.quantile(0.5) as u64)
        };
        add(80, 1_000_000);
        // There is room for 40 of the 80 old ones.
        let (keep, weight, median) = add(60, 4_000_000);
        assert_eq!((keep, weight), (0.5, 100.0));
        assert!(median >= 3_900_000, "{median}");
        assert_eq!(add(300, 4_000_000).0, 0.0);
        assert!(
            (0..60)
                .map(|_| add(0, 0))
                .last()
                .is_some_and(|(_, w, _)| w < 1.0)
        );
    }
}
