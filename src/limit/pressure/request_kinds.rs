//! Kinds of requests, one for each route. The latencies of kinds are made comparable before they are pooled. If reports
//! take ten times as long as lookups, a larger share of reports raises the median, but is no queue.
//!
//! Kinds count as alike until their means over the last seconds differ by more than chance or a queue explains. A
//! kind that differs gets an offset: how far its mean is above the mean that the kinds have in common. The common
//! mean is the median over the kinds, each weighted by its requests. All means are of logarithms.
//!
//! A queue adds the same time to each kind, which brings their logarithms together. So offsets never change while
//! there may be a queue.

use std::sync::OnceLock;

use super::latencies::{BUCKETS, LatencyCounts, LatencyRecorder};
use crate::base::clock::Nanos;

/// The largest number of kinds that are told apart; all later kinds count as the last of them.
const MAX_KINDS: usize = 256;
/// The share of their weight that older samples keep after a step: a memory of 10 s.
const STEP_DECAY: f32 = 0.99;
/// A mean of fewer samples neither gives a kind an offset nor moves one.
const MIN_SAMPLES: f32 = 8.0;
/// The share of its distance to the present difference that an offset moves in a step.
const OFFSET_GAIN: f32 = 0.02;
/// Kinds are alike up to this difference in buckets, a factor of 1.4: they may meet queues of different length.
const MAX_ALIKE_DIFFERENCE: f32 = 8.0;
/// The difference in buckets that chance explains is this, divided by the root of the number of samples.
const CHANCE_SPREAD: f32 = 40.0;

/// The index of a kind among those of its upstream. Each route is one kind, up to [`MAX_KINDS`] routes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestKind(u16);

/// The kinds of one upstream in the order of their first use, with the latencies that requests record.
#[derive(Debug)]
pub(crate) struct RequestKinds(Box<[OnceLock<Box<NamedKind>>]>);

/// A kind, and the latencies of its requests since the last step.
#[derive(Debug)]
struct NamedKind {
    /// The name of the route.
    name: Box<str>,
    recorder: LatencyRecorder,
}

impl RequestKinds {
    pub(crate) fn new() -> RequestKinds {
        RequestKinds((0..MAX_KINDS).map(|_| OnceLock::new()).collect())
    }

    /// Returns the kind of this name, and adds it if it is new. Once there are [`MAX_KINDS`], new names get the last
    /// kind. A kind is never removed, so its index stays valid.
    pub(crate) fn find_or_add(&self, name: &str) -> RequestKind {
        let new_kind = || {
            let name = name.into();
            let recorder = LatencyRecorder::new();
            Box::new(NamedKind { name, recorder })
        };
        let has_name = |kind: &OnceLock<Box<NamedKind>>| *kind.get_or_init(new_kind).name == *name;
        let index = self.0.iter().position(has_name).unwrap_or(MAX_KINDS - 1);
        RequestKind(index as u16)
    }

    /// Records the latency of one request.
    pub(crate) fn record(&self, kind: RequestKind, latency: Nanos) {
        if let Some(named) = self.0[usize::from(kind.0)].get() {
            named.recorder.record(latency);
        }
    }
}

/// The latencies of one step, of all kinds together.
#[derive(Debug)]
pub(crate) struct StepSamples {
    /// Latencies as clients see them.
    pub(crate) measured: LatencyCounts,
    /// The same without the differences between kinds.
    pub(crate) adjusted: LatencyCounts,
}

/// How the kinds differ, in the order of [`RequestKinds`]. Differences are in buckets, which are logarithms of latencies.
#[derive(Debug, Default)]
pub(crate) struct KindOffsets(Vec<KindOffset>);

/// How one kind differs from the others.
#[derive(Clone, Copy, Debug, Default)]
struct KindOffset {
    /// The distance of the kind above the common mean; `None` while the kind is like the others.
    offset: Option<f32>,
    /// The weighted sum of the buckets of recent samples.
    sum: f32,
    /// The weight of these samples. Old ones fade only while there is no queue.
    weight: f32,
}

impl KindOffset {
    /// The offset in buckets; 0 while the kind is like the others.
    fn offset_or_zero(&self) -> f32 {
        self.offset.unwrap_or(0.0)
    }

    /// The mean bucket of recent samples. NaN without samples.
    fn mean(&self) -> f32 {
        self.sum / self.weight
    }

    /// Moves the offset towards the present difference from the common mean. An offset begins once the difference is
    /// more than chance and queues explain. It ends once it is small.
    fn update_offset(&mut self, common_mean: f32) {
        let difference = self.mean() - common_mean;
        self.offset = match self.offset {
            None => {
                let explained_difference =
                    MAX_ALIKE_DIFFERENCE + CHANCE_SPREAD / self.weight.sqrt();
                Some(difference).filter(|difference| difference.abs() > explained_difference)
            }
            Some(offset) => {
                let new_offset = offset + OFFSET_GAIN * (difference - offset);
                Some(new_offset).filter(|offset| offset.abs() > MAX_ALIKE_DIFFERENCE / 2.0)
            }
        };
    }
}

impl KindOffsets {
    /// Takes the samples since the last call. Updates the offsets by them if `is_quiet`: if the last step measured that
    /// there was no queue.
    pub(crate) fn drain(&mut self, kinds: &RequestKinds, is_quiet: bool) -> StepSamples {
        let mut fresh = StepSamples {
            measured: [0.0; BUCKETS],
            adjusted: [0.0; BUCKETS],
        };
        let common_mean = self.common_mean();
        for (index, named) in kinds.0.iter().map_while(OnceLock::get).enumerate() {
            if index == self.0.len() {
                self.0.push(KindOffset::default());
            }
            let kind = &mut self.0[index];
            if is_quiet {
                kind.sum *= STEP_DECAY;
                kind.weight *= STEP_DECAY;
            }
            let Some(counts) = named.recorder.drain() else {
                continue;
            };
            for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
                if is_quiet {
                    kind.sum += count * bucket as f32;
                    kind.weight += count;
                }
                fresh.measured[bucket] += count;
                add_between_buckets(
                    &mut fresh.adjusted,
                    bucket as f32 - kind.offset_or_zero(),
                    *count,
                );
            }
            if let Some(common_mean) =
                common_mean.filter(|_| is_quiet && kind.weight >= MIN_SAMPLES)
            {
                kind.update_offset(common_mean);
            }
        }
        fresh
    }

    /// The weighted median of the kinds' means without their offsets; `None` while each kind has less than one sample.
    fn common_mean(&self) -> Option<f32> {
        let without_offset = |kind: &KindOffset| (kind.mean() - kind.offset_or_zero(), kind.weight);
        let mut means: Vec<(f32, f32)> = self
            .0
            .iter()
            .filter(|kind| kind.weight >= 1.0)
            .map(without_offset)
            .collect();
        means.sort_by(|(mean, _), (other_mean, _)| mean.total_cmp(other_mean));
        let mut remaining_half = means.iter().map(|(_, weight)| weight).sum::<f32>() / 2.0;
        let middle = means.iter().find(|(_, weight)| {
            remaining_half -= weight;
            remaining_half <= 0.0
        });
        middle.map(|(mean, _)| *mean)
    }
}

/// Adds `count` samples at a position between two buckets, and gives each bucket its share. Positions outside of the
/// buckets count at their edges.
fn add_between_buckets(counts: &mut LatencyCounts, position: f32, count: f32) {
    let position = position.clamp(0.0, (BUCKETS - 1) as f32);
    let lower_bucket = position as usize;
    let upper_share = position - lower_bucket as f32;
    counts[lower_bucket] += count * (1.0 - upper_share);
    if upper_share > 0.0 {
        counts[lower_bucket + 1] += count * upper_share;
    }
}

#[cfg(test)]
mod tests {
    use super::super::latencies::LatencyPool;
    use super::*;

    struct Mix {
        kinds: RequestKinds,
        names: [RequestKind; 2],
        offsets: KindOffsets,
    }

    impl Mix {
        fn new() -> Mix {
            let kinds = RequestKinds::new();
            Mix {
                names: ["look-up", "report"].map(|name| kinds.find_or_add(name)),
                kinds,
                offsets: KindOffsets::default(),
            }
        }

        /// Medians in milliseconds, as clients see them and without the differences between kinds. In each step,
        /// `counts` requests of the two kinds take `millis` each.
        fn run(
            &mut self,
            steps: u32,
            counts: [u32; 2],
            millis: [u64; 2],
            is_quiet: bool,
        ) -> [f64; 2] {
            let mut pools = [LatencyPool::new(192.0), LatencyPool::new(192.0)];
            for _ in 0..steps {
                for ((kind, count), millis) in self.names.into_iter().zip(counts).zip(millis) {
                    (0..count).for_each(|_| self.kinds.record(kind, Nanos::from_millis(millis)));
                }
                let fresh = self.offsets.drain(&self.kinds, is_quiet);
                pools[0].blend(&fresh.measured, 0.9);
                pools[1].blend(&fresh.adjusted, 0.9);
            }
            pools.map(|pool| pool.quantile(0.5) / 1e6)
        }
    }

    #[track_caller]
    fn check(medians: [f64; 2], measured: f64, adjusted: f64) {
        assert!(
            (medians[0] / measured - 1.0).abs() < 0.07,
            "{medians:?} {measured}"
        );
        assert!(
            (medians[1] / adjusted - 1.0).abs() < 0.07,
            "{medians:?} {adjusted}"
        );
    }

    #[test]
    fn a_mixture_that_shifts_is_no_queue() {
        let mut mix = Mix::new();
        check(mix.run(100, [20, 5], [10, 100], true), 10.0, 10.0);
        check(mix.run(100, [5, 20], [10, 100], true), 100.0, 10.0);
        check(mix.run(100, [0, 20], [10, 100], true), 100.0, 10.0);
        check(mix.run(100, [20, 0], [10, 100], true), 10.0, 10.0);
        // What all have in common stays, however long it lasts.
        check(mix.run(1_000, [12, 9], [20, 200], true), 20.0, 20.0);
        check(mix.run(1_000, [9, 12], [30, 300], false), 300.0, 30.0);
    }

    #[test]
    fn a_queue_does_not_bring_kinds_together() {
        let mut mix = Mix::new();
        check(mix.run(100, [20, 5], [10, 100], true), 10.0, 10.0);
        check(mix.run(500, [20, 5], [60, 150], false), 60.0, 60.0);
        check(mix.run(10, [5, 20], [10, 100], true), 100.0, 10.0);
    }

    #[test]
    fn a_kind_that_is_new_in_a_queue_shows_it() {
        let mut mix = Mix::new();
        check(mix.run(100, [20, 0], [10, 100], true), 10.0, 10.0);
        check(mix.run(100, [0, 20], [10, 60], false), 60.0, 60.0);
    }

    #[test]
    fn kinds_that_differ_little_are_alike() {
        let mut mix = Mix::new();
        check(mix.run(500, [20, 5], [10, 13], true), 10.0, 10.0);
        check(mix.run(100, [0, 20], [10, 13], true), 13.0, 13.0);
    }

    #[test]
    fn what_was_learnt_of_a_kind_outlasts_its_silence() {
        let mut mix = Mix::new();
        check(mix.run(500, [20, 5], [10, 25], true), 10.0, 10.0);
        check(mix.run(5_000, [20, 0], [10, 25], true), 10.0, 10.0);
        check(mix.run(100, [1, 20], [10, 25], true), 25.0, 10.0);
    }

    #[test]
    fn rare_kinds_count_all_the_same() {
        let mut mix = Mix::new();
        check(mix.run(100, [3, 0], [10, 10], true), 10.0, 10.0);
        for _ in 0..100 {
            check(mix.run(1, [0, 1], [10, 40], true), 40.0, 40.0);
            mix.run(20, [0, 0], [10, 40], true);
        }
    }

    #[test]
    fn a_kind_that_grows_slow_alone_is_followed() {
        let mut mix = Mix::new();
        check(mix.run(100, [20, 5], [10, 100], true), 10.0, 10.0);
        mix.run(400, [20, 5], [10, 400], true);
        check(mix.run(10, [0, 20], [10, 400], true), 400.0, 10.0);
        // And one that is like the others again.
        mix.run(1_000, [20, 5], [10, 10], true);
        check(mix.run(10, [0, 20], [10, 10], true), 10.0, 10.0);
    }

    #[test]
    fn there_is_room_for_many_and_more() {
        let kinds = RequestKinds::new();
        let mut offsets = KindOffsets::default();
        for number in 0..2 * MAX_KINDS {
            let kind = kinds.find_or_add(&number.to_string());
            assert_eq!(usize::from(kind.0), number.min(MAX_KINDS - 1));
            assert_eq!(kinds.find_or_add(&number.to_string()).0, kind.0);
            kinds.record(kind, Nanos::from_millis(3));
        }
        let fresh = offsets.drain(&kinds, true);
        assert_eq!(fresh.measured.iter().sum::<f32>(), 2.0 * MAX_KINDS as f32);
        assert_eq!(
            offsets.drain(&kinds, true).measured.iter().sum::<f32>(),
            0.0
        );
    }
}
