//! Kinds of requests, one for each route: their latencies are made comparable before they are pooled. If reports
//! take ten times as long as look-ups, a larger share of reports raises the median, but is no queue.
//!
//! Kinds count as alike until their means over the last seconds differ by more than chance or a queue explains. A
//! kind that differs gets an offset: how far the logarithm of its latencies is above what the kinds have in common.
//! That is the median over the kinds, each weighted by its requests. A queue adds the same time to each kind, which
//! brings their logarithms together: so nothing is learned while there may be one.

use std::sync::OnceLock;

use super::latencies::{BUCKETS, LatencyCounts, LatencyRecorder};
use crate::base::clock::Nanos;

/// Kinds that are told apart; all later ones count as one kind.
const MOST: usize = 256;
/// The weight of older samples after a step: 10 s of memory.
const KEEP: f32 = 0.99;
/// Fewer samples are no evidence.
const FEW: f32 = 8.0;
/// How far an offset moves to what its samples show in a step, as a share.
const FOLLOW: f32 = 0.02;
/// Kinds are alike up to this difference in buckets, which is two fifths: they may meet queues of different length.
const ALIKE: f32 = 8.0;
/// Divided by the root of the number of samples, the difference in buckets that chance explains.
const CHANCE: f32 = 40.0;

/// A kind of requests of one upstream, usually those of one route.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestKind(u16);

/// The kinds of one upstream, and the latencies that requests record.
#[derive(Debug)]
pub(crate) struct Kinds(Box<[OnceLock<Box<NamedKind>>]>);

#[derive(Debug)]
struct NamedKind {
    name: Box<str>,
    recorder: LatencyRecorder,
}

impl Kinds {
    pub(crate) fn new() -> Kinds {
        Kinds((0..MOST).map(|_| OnceLock::new()).collect())
    }

    /// The kind of this name. It is valid for the life of the upstream.
    pub(crate) fn find(&self, name: &str) -> RequestKind {
        let new = || {
            let name = name.into();
            let recorder = LatencyRecorder::new();
            Box::new(NamedKind { name, recorder })
        };
        let is_it = |place: &OnceLock<Box<NamedKind>>| *place.get_or_init(new).name == *name;
        let place = self.0.iter().position(is_it).unwrap_or(MOST - 1);
        RequestKind(place as u16)
    }

    pub(crate) fn record(&self, kind: RequestKind, span: Nanos) {
        if let Some(named) = self.0[usize::from(kind.0)].get() {
            named.recorder.record(span);
        }
    }
}

/// The samples of one step.
#[derive(Debug)]
pub(crate) struct StepSamples {
    /// As clients see them.
    pub(crate) seen: LatencyCounts,
    /// Adjusted for the differences between kinds.
    pub(crate) level: LatencyCounts,
}

/// How kinds differ. All figures are in buckets, which are logarithms.
#[derive(Debug, Default)]
pub(crate) struct Offsets(Vec<Offset>);

#[derive(Clone, Copy, Debug, Default)]
struct Offset {
    /// None while the kind is like the others.
    offset: Option<f32>,
    sum: f32,
    weight: f32,
}

impl Offset {
    fn get(&self) -> f32 {
        self.offset.unwrap_or(0.0)
    }

    fn mean(&self) -> f32 {
        self.sum / self.weight
    }

    fn learn(&mut self, common: f32) {
        let above = self.mean() - common;
        self.offset = match self.offset {
            None => Some(above).filter(|above| above.abs() > ALIKE + CHANCE / self.weight.sqrt()),
            Some(offset) => {
                Some(offset + FOLLOW * (above - offset)).filter(|offset| offset.abs() > ALIKE / 2.0)
            }
        };
    }
}

impl Offsets {
    /// Takes the samples since the last call. Learns from them if there is no queue (`calm`).
    pub(crate) fn drain(&mut self, kinds: &Kinds, calm: bool) -> StepSamples {
        let mut fresh = StepSamples {
            seen: [0.0; BUCKETS],
            level: [0.0; BUCKETS],
        };
        let common = self.common();
        for (place, named) in kinds.0.iter().map_while(OnceLock::get).enumerate() {
            if place == self.0.len() {
                self.0.push(Offset::default());
            }
            let kind = &mut self.0[place];
            if calm {
                kind.sum *= KEEP;
                kind.weight *= KEEP;
            }
            let Some(counts) = named.recorder.drain() else {
                continue;
            };
            for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
                if calm {
                    kind.sum += count * bucket as f32;
                    kind.weight += count;
                }
                fresh.seen[bucket] += count;
                add(&mut fresh.level, bucket as f32 - kind.get(), *count);
            }
            if let Some(common) = common.filter(|_| calm && kind.weight >= FEW) {
                kind.learn(common);
            }
        }
        fresh
    }

    /// What the kinds have in common: the weighted median of their means without their offsets.
    fn common(&self) -> Option<f32> {
        let shown = |kind: &Offset| (kind.mean() - kind.get(), kind.weight);
        let mut all: Vec<(f32, f32)> = self
            .0
            .iter()
            .filter(|kind| kind.weight >= 1.0)
            .map(shown)
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut half = all.iter().map(|(_, weight)| weight).sum::<f32>() / 2.0;
        let middle = all.iter().find(|(_, weight)| {
            half -= weight;
            half <= 0.0
        });
        middle.map(|(shown, _)| *shown)
    }
}

/// Adds samples that lie between two buckets, to each its share.
fn add(counts: &mut LatencyCounts, at: f32, count: f32) {
    let at = at.clamp(0.0, (BUCKETS - 1) as f32);
    let below = at as usize;
    let part = at - below as f32;
    counts[below] += count * (1.0 - part);
    if part > 0.0 {
        counts[below + 1] += count * part;
    }
}

#[cfg(test)]
mod tests {
    use super::super::latencies::LatencyPool;
    use super::*;

    struct Mix {
        kinds: Kinds,
        names: [RequestKind; 2],
        offsets: Offsets,
    }

    impl Mix {
        fn new() -> Mix {
            let kinds = Kinds::new();
            Mix {
                names: ["look-up", "report"].map(|name| kinds.find(name)),
                kinds,
                offsets: Offsets::default(),
            }
        }

        /// Medians in milliseconds, as clients see them and without the differences between kinds. Arguments: the
        /// steps, the look-ups of each, and how long reports take.
        fn run(&mut self, steps: u32, counts: [u32; 2], millis: [u64; 2], calm: bool) -> [f64; 2] {
            let mut pools = [LatencyPool::new(192.0), LatencyPool::new(192.0)];
            for _ in 0..steps {
                for ((kind, count), millis) in self.names.into_iter().zip(counts).zip(millis) {
                    (0..count).for_each(|_| self.kinds.record(kind, Nanos::from_millis(millis)));
                }
                let fresh = self.offsets.drain(&self.kinds, calm);
                pools[0].blend(&fresh.seen, 0.9);
                pools[1].blend(&fresh.level, 0.9);
            }
            pools.map(|pool| pool.quantile(0.5) / 1e6)
        }
    }

    #[track_caller]
    fn check(found: [f64; 2], seen: f64, level: f64) {
        assert!((found[0] / seen - 1.0).abs() < 0.07, "{found:?} {seen}");
        assert!((found[1] / level - 1.0).abs() < 0.07, "{found:?} {level}");
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
        let kinds = Kinds::new();
        let mut offsets = Offsets::default();
        for number in 0..2 * MOST {
            let kind = kinds.find(&number.to_string());
            assert_eq!(usize::from(kind.0), number.min(MOST - 1));
            assert_eq!(kinds.find(&number.to_string()).0, kind.0);
            kinds.record(kind, Nanos::from_millis(3));
        }
        let fresh = offsets.drain(&kinds, true);
        assert_eq!(fresh.seen.iter().sum::<f32>(), 2.0 * MOST as f32);
        assert_eq!(offsets.drain(&kinds, true).seen.iter().sum::<f32>(), 0.0);
    }
}
