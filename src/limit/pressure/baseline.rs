//! The baseline: the median latency without a queue, and the gentle probe that finds it. What follows from a median
//! above it is decided by `capacity.rs`, `elastic_factor.rs` and `shed_level.rs`.
//!
//! Gradient2 and Envoy take the lowest median of the last seconds, which climbs while a queue stands (their issues 34
//! and 11579). A long memory takes a slower server for a queue. So the baseline falls with any lower median, and after
//! its first moments rises only by a probe. During a probe the classes that may be cut get fewer slots, the queue drains,
//! and the probe measures the server alone.
//!
//! Unless open requests fall by a quarter meanwhile, the probe may have measured the queue. Then the baseline rises by at
//! most 5 %, and only where no request is shed or only critical ones are left.
//!
//! Probes begin at the same wall time on all gateways, because one alone cannot drain a queue that all feed.

use super::control_step::CONTROL_STEP;
use super::latencies::{LatencyCounts, LatencyPool};
use crate::base::clock::Nanos;

/// The time from the beginning of a probe to that of the next.
const PROBE_PERIOD: Nanos = Nanos::from_secs(4);
/// The time that a queue has to drain before the probe measures.
const DRAIN_TIME: Nanos = Nanos::from_millis(200);
/// The length of a probe, draining included; up to twice as long where samples are few.
const PROBE_LENGTH: Nanos = Nanos::from_millis(600);
/// Period, draining and length are stretched until this many baselines fit into [`DRAIN_TIME`].
const BASELINES_PER_DRAIN: f64 = 5.0;
/// The largest factor of that stretch. Factors are powers of two, so that long periods begin where short ones do.
const MAX_STRETCH: u64 = 16;

/// A probe's samples are pooled with those of earlier probes, unless the medians differ by more than this factor.
const MAX_POOLED_RATIO: f64 = 1.4;
/// The weight of the pool of probes. Samples of earlier probes fade so far that all fit into it.
const POOL_SAMPLES: f32 = 64.0;
/// The largest share of their weight that the samples of earlier probes keep after a probe.
const PROBE_DECAY: f32 = 0.8;
/// A median of fewer samples is no evidence.
const MIN_SAMPLES: f32 = 8.0;
/// A queue has drained if open requests fell to this share of those before the probe.
const DRAINED_SHARE: f64 = 0.75;
/// At first the baseline follows every median, for as long as this many times the first one.
const FOLLOWED_MEDIANS: f64 = 10.0;
/// The share of its distance to a lower median that the baseline moves in a step.
const DOWNWARD_GAIN: f64 = 0.05;

/// The baseline and the probe that measures it.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// The time until which the baseline follows every median; `None` before the first median.
    follows_until: Option<Nanos>,
    /// The baseline in nanoseconds; `None` before the first median.
    base: Option<f64>,
    /// The samples of recent probes.
    pool: LatencyPool,
    probe: Option<Probe>,
}

/// A probe under way.
#[derive(Debug)]
struct Probe {
    began_at: Nanos,
    /// The factor by which this probe is longer: see [`probe_stretch`].
    stretch: u64,
    /// The mean of open requests before the probe.
    open_before: f64,
    /// The sum of open requests over the steps after draining.
    open_sum: f64,
    /// The number of steps after draining.
    measured_steps: f64,
    /// The latencies after draining.
    samples: LatencyPool,
}

/// What a control step measured, for the probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeStep<'a> {
    pub(crate) now: Nanos,
    /// The time since the Unix epoch, by which all gateways begin their probes together.
    pub(crate) wall: Nanos,
    /// Latencies of the step, without the differences between kinds.
    pub(crate) latencies: &'a LatencyCounts,
    /// The mean of open requests in the step.
    pub(crate) open: f64,
    /// The mean of open requests in the last seconds.
    pub(crate) usual_open: f64,
    /// The factor by which the baseline may rise at the end of the probe if open requests did not fall by a quarter.
    pub(crate) max_creep: f64,
}

impl Baseline {
    pub(crate) fn new() -> Baseline {
        Baseline {
            follows_until: None,
            base: None,
            pool: LatencyPool::new(POOL_SAMPLES),
            probe: None,
        }
    }

    /// The baseline in nanoseconds; `None` before the first median.
    pub(crate) fn get(&self) -> Option<f64> {
        self.base
    }

    /// Moves the baseline towards a lower `median`, in nanoseconds; in its first moments it follows every median. Returns
    /// the ratio of the median to the new baseline.
    pub(crate) fn slowness(&mut self, median: f64, now: Nanos) -> f64 {
        let base = self.base.get_or_insert(median);
        let first_follows_until = || now.after(Nanos((FOLLOWED_MEDIANS * median) as u64));
        if now < *self.follows_until.get_or_insert_with(first_follows_until) {
            // The first responses are those of the fastest requests.
            *base = median;
        }
        *base += DOWNWARD_GAIN * (median - *base).min(0.0);
        median / base.max(1.0)
    }

    /// Advances the probe by a step, or begins one where it is due. Returns whether a probe is under way after the step;
    /// then the classes that yield to it are held back.
    pub(crate) fn probe(&mut self, step: &ProbeStep<'_>) -> bool {
        let Some(probe) = &mut self.probe else {
            let stretch = self.base.map_or(1, probe_stretch);
            let is_due = step.wall.0 % (PROBE_PERIOD.0 * stretch) < CONTROL_STEP.0;
            self.probe = is_due.then(|| Probe {
                began_at: step.now,
                stretch,
                open_before: step.usual_open,
                open_sum: 0.0,
                measured_steps: 0.0,
                // Without a bound on its weight, the pool keeps all samples of the probe.
                samples: LatencyPool::new(f32::INFINITY),
            });
            return is_due;
        };
        let elapsed_nanos = step.now.since(probe.began_at).0;
        if elapsed_nanos > DRAIN_TIME.0 * probe.stretch {
            probe.samples.blend(step.latencies, 1.0);
            probe.open_sum += step.open;
            probe.measured_steps += 1.0;
        }
        let length_nanos = PROBE_LENGTH.0 * probe.stretch;
        if elapsed_nanos < length_nanos
            || probe.samples.weight() < MIN_SAMPLES && elapsed_nanos < 2 * length_nanos
        {
            return true;
        }
        let has_drained =
            probe.open_sum <= DRAINED_SHARE * probe.open_before * probe.measured_steps;
        let max_rise = if has_drained {
            f64::INFINITY
        } else {
            step.max_creep
        };
        update_baseline(&mut self.base, &mut self.pool, &probe.samples, max_rise);
        self.probe = None;
        false
    }
}

/// The factor by which probes are longer where the baseline is `base`, in nanoseconds.
fn probe_stretch(base: f64) -> u64 {
    let stretch = BASELINES_PER_DRAIN * base / DRAIN_TIME.0 as f64;
    (stretch.ceil() as u64)
        .clamp(1, MAX_STRETCH)
        .next_power_of_two()
}

/// Moves the baseline to the median of recent probes, up by no more than the factor `max_rise`. `samples` are those of
/// the last probe. The baseline stays if there are none. It also stays if recent probes have fewer than [`MIN_SAMPLES`],
/// unless the last one has a median far above it.
fn update_baseline(
    base: &mut Option<f64>,
    pool: &mut LatencyPool,
    samples: &LatencyPool,
    max_rise: f64,
) {
    if samples.weight() < 1.0 {
        return;
    }
    let former_base = base.unwrap_or(f64::INFINITY);
    let median = samples.quantile(0.5);
    if median > former_base * max_rise.max(MAX_POOLED_RATIO) {
        // Either a queue stands, or the server has slowed down so suddenly that it looks like one.
        *base = base.map(|base| base * max_rise);
        return;
    }
    if samples.weight() >= MIN_SAMPLES
        && !(1.0 / MAX_POOLED_RATIO..=MAX_POOLED_RATIO).contains(&(median / former_base))
    {
        pool.clear();
    }
    pool.blend(samples.counts(), PROBE_DECAY);
    if pool.weight() >= MIN_SAMPLES {
        *base = Some(pool.quantile(0.5).min(former_base * max_rise));
    }
}

#[cfg(test)]
mod tests {
    use super::super::latencies::LatencyRecorder;
    use super::*;

    /// Begins with a baseline of 20 ms, then probes once while latencies are `millis` and `open` of the
    /// usual 20 requests are open. Returns the baseline afterwards, in milliseconds.
    fn after(millis: u64, open: f64, max_creep: f64) -> f64 {
        let mut baseline = Baseline::new();
        baseline.slowness(20e6, Nanos::ZERO);
        let recorder = LatencyRecorder::new();
        let mut now = PROBE_PERIOD;
        loop {
            (0..20).for_each(|_| recorder.record(Nanos::from_millis(millis)));
            let held = baseline.probe(&ProbeStep {
                now,
                wall: now,
                latencies: &recorder.drain().unwrap(),
                open,
                usual_open: 20.0,
                max_creep,
            });
            if !held {
                break;
            }
            now = now.after(CONTROL_STEP);
        }
        assert_eq!(now, PROBE_PERIOD.after(PROBE_LENGTH));
        baseline.get().unwrap_or_default() / 1e6
    }

    #[track_caller]
    fn check(actual: f64, expected: f64) {
        assert!(
            (actual / expected - 1.0).abs() < 0.05,
            "{actual} {expected}"
        );
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
            assert_eq!(probe_stretch(millis * 1e6), times, "{millis}");
        }
    }
}
