//! b: the median latency without a queue, and the gentle probe that finds it.
//!
//! Gradient2 and Envoy take the lowest median of the last seconds, which climbs while a queue stands (their issues 34
//! and 11579). A long memory takes a slower server for a queue. So it falls with any lower
//! median, and rises only by a probe: for a short while the classes that may be cut get fewer slots, the queue
//! drains, and the probe measures the server alone. Unless open requests fall by a quarter meanwhile, the probe may
//! have measured the queue: then b stays, or creeps up where no request is shed or only critical ones are left.
//!
//! Probes begin at the same wall time on all gateways, because one alone cannot drain a queue that all feed.

use super::latencies::{LatencyCounts, LatencyPool};
use super::step::STEP;
use crate::base::clock::Nanos;

/// The time from the beginning of a probe to that of the next.
const PERIOD: Nanos = Nanos::from_secs(4);
/// How long a queue has to drain before the probe measures.
const DRAIN: Nanos = Nanos::from_millis(200);
/// The length of a probe; up to twice as long where samples are few.
const LENGTH: Nanos = Nanos::from_millis(600);
/// All three are stretched until this many baselines fit into [`DRAIN`].
const MEDIANS: f64 = 5.0;
/// The longest stretch. Stretches are powers of two, so that long periods begin where short ones do.
const LONGEST: u64 = 16;

/// A probe's samples are pooled with those of earlier probes, unless medians differ by this factor.
const DIFFERENT: f64 = 1.4;
/// Samples in that pool.
const POOL: f32 = 64.0;
/// The weight of earlier probes' samples after a probe.
const KEEP: f32 = 0.8;
/// Fewer samples are no evidence.
const FEW: f32 = 8.0;
/// A queue could drain if open requests fell to this share of those before.
const DRAINED: f64 = 0.75;
/// At first the baseline follows every median, for this many times the first one.
const SETTLED: f64 = 10.0;
/// How far the baseline moves to a lower median in a step, as a share.
const DOWN: f64 = 0.05;

/// b and the probe that measures it.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// Until when the baseline follows every median.
    settles: Option<Nanos>,
    /// The baseline in nanoseconds.
    base: Option<f64>,
    pool: LatencyPool,
    probe: Option<Probe>,
}

/// A probe under way.
#[derive(Debug)]
struct Probe {
    began: Nanos,
    stretch: u64,
    /// Open requests before the probe.
    before: f64,
    /// The sum of open requests over the steps that count.
    within: f64,
    /// The number of these steps.
    steps: f64,
    samples: LatencyPool,
}

/// What a control step measured, for the probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeStep<'a> {
    pub(crate) now: Nanos,
    /// Time since the Unix epoch.
    pub(crate) wall: Nanos,
    /// Latencies of the step.
    pub(crate) latencies: &'a LatencyCounts,
    /// The mean of open requests in the step.
    pub(crate) open: f64,
    /// The mean of open requests in the last seconds.
    pub(crate) usual_open: f64,
    /// The factor by which the baseline may rise if open requests did not fall.
    pub(crate) creep: f64,
}

impl Baseline {
    pub(crate) fn new() -> Baseline {
        Baseline {
            settles: None,
            base: None,
            pool: LatencyPool::new(POOL),
            probe: None,
        }
    }

    /// The baseline in nanoseconds; none before the first samples.
    pub(crate) fn get(&self) -> Option<f64> {
        self.base
    }

    /// The ratio of `median`, in nanoseconds, to the baseline.
    pub(crate) fn slowness(&mut self, median: f64, now: Nanos) -> f64 {
        let base = self.base.get_or_insert(median);
        let settles = || now.after(Nanos((SETTLED * median) as u64));
        if now < *self.settles.get_or_insert_with(settles) {
            // The first responses are those of the fastest requests.
            *base = median;
        }
        *base += DOWN * (median - *base).min(0.0);
        median / base.max(1.0)
    }

    /// Advances the probe by a step. True while the classes that yield to probes are to be held back.
    pub(crate) fn probe(&mut self, step: &ProbeStep<'_>) -> bool {
        let Some(probe) = &mut self.probe else {
            let stretch = self.base.map_or(1, stretch);
            let begins = step.wall.0 % (PERIOD.0 * stretch) < STEP.0;
            self.probe = begins.then(|| Probe {
                began: step.now,
                stretch,
                before: step.usual_open,
                within: 0.0,
                steps: 0.0,
                samples: LatencyPool::new(f32::INFINITY),
            });
            return begins;
        };
        let passed = step.now.since(probe.began).0;
        if passed > DRAIN.0 * probe.stretch {
            probe.samples.blend(step.latencies, 1.0);
            probe.within += step.open;
            probe.steps += 1.0;
        }
        let length = LENGTH.0 * probe.stretch;
        if passed < length || probe.samples.weight() < FEW && passed < 2 * length {
            return true;
        }
        let fell = probe.within <= DRAINED * probe.before * probe.steps;
        let rise = if fell { f64::INFINITY } else { step.creep };
        learn(&mut self.base, &mut self.pool, &probe.samples, rise);
        self.probe = None;
        false
    }
}

/// How many times longer probes are where the baseline is `base` ns.
fn stretch(base: f64) -> u64 {
    let times = MEDIANS * base / DRAIN.0 as f64;
    (times.ceil() as u64).clamp(1, LONGEST).next_power_of_two()
}

/// Moves the baseline to the median of probes, up by no more than the factor `rise`.
fn learn(base: &mut Option<f64>, pool: &mut LatencyPool, samples: &LatencyPool, rise: f64) {
    if samples.weight() < 1.0 {
        return;
    }
    let before = base.unwrap_or(f64::INFINITY);
    let median = samples.quantile(0.5);
    if median > before * rise.max(DIFFERENT) {
        // Either a queue, or too sudden a change to be told from one.
        *base = base.map(|base| base * rise);
        return;
    }
    if samples.weight() >= FEW && !(1.0 / DIFFERENT..=DIFFERENT).contains(&(median / before)) {
        pool.clear();
    }
    pool.blend(samples.counts(), KEEP);
    if pool.weight() >= FEW {
        *base = Some(pool.quantile(0.5).min(before * rise));
    }
}

#[cfg(test)]
mod tests {
    use super::super::latencies::LatencyRecorder;
    use super::*;

    /// Begins with a baseline of 20 ms, then probes once while latencies are `millis` and `open` of the
    /// usual 20 requests are open. Returns the baseline afterwards, in milliseconds.
    fn after(millis: u64, open: f64, creep: f64) -> f64 {
        let mut baseline = Baseline::new();
        baseline.slowness(20e6, Nanos::ZERO);
        let recorder = LatencyRecorder::new();
        let mut now = PERIOD;
        loop {
            (0..20).for_each(|_| recorder.record(Nanos::from_millis(millis)));
            let held = baseline.probe(&ProbeStep {
                now,
                wall: now,
                latencies: &recorder.drain().unwrap(),
                open,
                usual_open: 20.0,
                creep,
            });
            if !held {
                break;
            }
            now = now.after(STEP);
        }
        assert_eq!(now, PERIOD.after(LENGTH));
        baseline.get().unwrap_or_default() / 1e6
    }

    #[track_caller]
    fn check(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.05, "{found} {expected}");
    }

    #[test]
    fn rises_only_when_a_queue_could_drain() {
        check(after(40, 14.0, 1.0), 40.0);
        check(after(40, 14.0, 1.05), 40.0);
        assert_eq!(after(40, 16.0, 1.0), 20.0);
        assert_eq!(after(40, 16.0, 1.05), 21.0);
        check(after(26, 16.0, 1.05), 21.0);
        assert_eq!(after(26, 16.0, 1.0), 20.0);
    }

    #[test]
    fn falls_with_any_lower_median() {
        check(after(10, 25.0, 1.0), 10.0);
        let mut baseline = Baseline::new();
        let later = Nanos::from_secs(9);
        assert_eq!(baseline.slowness(20e6, Nanos::ZERO), 1.0);
        assert!(baseline.slowness(40e6, later) >= 2.0);
        for _ in 0..100 {
            baseline.slowness(10e6, later);
        }
        check(baseline.get().unwrap_or_default(), 10e6);
    }

    #[test]
    fn slow_services_are_given_time() {
        for (millis, times) in [(1.0, 1), (40.0, 1), (41.0, 2), (200.0, 8), (9_000.0, 16)] {
            assert_eq!(stretch(millis * 1e6), times, "{millis}");
        }
    }
}
