//! Latencies by logarithm: requests write a [`LatencyRecorder`], the control step reads a [`LatencyPool`].
//!
//! Each doubling has 16 buckets, as in HdrHistogram, so that a quantile is off by less than 3 % once it
//! is interpolated. The range is 16 microseconds to 137 seconds; latencies outside of it count at its edges.

use std::array;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::base::clock::Nanos;

/// The buckets of a doubling, as a power of two.
const FINE: u32 = 4;
/// Latencies below this power of two, in nanoseconds, are in the first bucket.
const LOWEST: u32 = 14;
const DOUBLINGS: u32 = 23;
pub(crate) const BUCKETS: usize = (DOUBLINGS << FINE) as usize;

/// The number of samples in each bucket.
pub(crate) type LatencyCounts = [f32; BUCKETS];

fn bucket(span: Nanos) -> usize {
    let power = span.0.max(1).ilog2();
    if power < LOWEST {
        return 0;
    }
    let part = (span.0 >> (power - FINE)) as u32 & ((1 << FINE) - 1);
    (((power - LOWEST) << FINE | part) as usize).min(BUCKETS - 1)
}

/// The lower edge of a bucket, in nanoseconds.
fn edge(bucket: usize) -> f64 {
    let power = bucket as u32 >> FINE;
    let part = bucket as u64 & ((1 << FINE) - 1);
    (((1 << FINE) + part) << (power + LOWEST - FINE)) as f64
}

/// Latencies since the last step. Written by many threads, one atomic addition a sample. 1.5 KB.
#[derive(Debug)]
pub(crate) struct LatencyRecorder {
    counts: [AtomicU32; BUCKETS],
    /// Whether anything was recorded since the last [`LatencyRecorder::drain`].
    any: AtomicBool,
}

impl LatencyRecorder {
    pub(crate) fn new() -> LatencyRecorder {
        LatencyRecorder {
            counts: array::from_fn(|_| AtomicU32::new(0)),
            any: AtomicBool::new(false),
        }
    }

    pub(crate) fn record(&self, span: Nanos) {
        self.counts[bucket(span)].fetch_add(1, Relaxed);
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
    }

    /// The samples since the last call, if any. Samples that come meanwhile may be left for the next call.
    pub(crate) fn drain(&self) -> Option<LatencyCounts> {
        if !self.any.swap(false, Relaxed) {
            return None;
        }
        // Most are zero, and a load leaves the cache line with the writers.
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
    weight: f32,
    enough: f32,
}

impl LatencyPool {
    /// A pool in which older samples fade once there are `enough`.
    pub(crate) fn new(enough: f32) -> LatencyPool {
        LatencyPool {
            counts: [0.0; BUCKETS],
            weight: 0.0,
            enough,
        }
    }

    /// Adds new samples; older ones keep at most the share `keep` of their weight. Returns the share that they keep.
    pub(crate) fn blend(&mut self, fresh: &LatencyCounts, keep: f32) -> f32 {
        let new: f32 = fresh.iter().sum();
        let room = (self.enough - new) / self.weight.max(1.0);
        let keep = room.clamp(0.0, keep);
        self.weight = 0.0;
        for (count, fresh) in self.counts.iter_mut().zip(fresh) {
            *count = *count * keep + fresh;
            self.weight += *count;
        }
        keep
    }

    /// The weight of the samples in each bucket.
    pub(crate) fn counts(&self) -> &LatencyCounts {
        &self.counts
    }

    pub(crate) fn clear(&mut self) {
        *self = LatencyPool::new(self.enough);
    }

    /// The weight of all samples.
    pub(crate) fn weight(&self) -> f32 {
        self.weight
    }

    /// The quantile `share` of the latencies, in nanoseconds; 0 without samples.
    pub(crate) fn quantile(&self, share: f32) -> f64 {
        let rank = self.weight * share;
        let mut below = 0.0;
        let mut last = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            if *count <= 0.0 {
                continue;
            }
            if below + count >= rank {
                let part = f64::from(((rank - below) / count).clamp(0.0, 1.0));
                return edge(bucket) + part * (edge(bucket + 1) - edge(bucket));
            }
            below += count;
            last = edge(bucket + 1);
        }
        // Sums of parts may fall short of the whole by rounding.
        last
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
        assert!(recent.quantile(1.0) <= edge(1));
        let recent = pool([u64::MAX, 1 << 60]);
        assert!(recent.quantile(0.5) >= edge(BUCKETS - 1));
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
