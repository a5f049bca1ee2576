//! b: the median latency without a queue, and the gentle probe that finds it.
//!
//! The lowest median of the last seconds, as Gradient2 and Envoy have it, climbs while a queue stands (their
//! issues 34 and 11579), and a long memory takes a slower server for a queue. So it falls with any lower
//! median, and rises only by a probe: for a short while all who give way find fewer places, the queue
//! drains, and what is then measured is the server. If there were not a quarter fewer open requests
//! meanwhile, it may have been the queue: then it stays, or creeps up where all are served, or only critical
//! requests are left.
//!
//! Probes begin at the same wall time on all gateways, for one alone drains no queue that all feed.

use super::latencies::{Counts, Recent};
use super::step::STEP;
use crate::base::clock::Nanos;

/// From probe to probe, how long a queue has to drain, and how long a probe takes, twice as long at most
/// where samples are few; all longer where latencies are: so many medians must fit into the time to drain.
const PERIOD: Nanos = Nanos::from_secs(4);
const DRAIN: Nanos = Nanos::from_millis(200);
const LENGTH: Nanos = Nanos::from_millis(600);
const MEDIANS: f64 = 5.0;
/// How many times as long at most, a power of two, so that long periods begin where short ones do.
const LONGEST: u64 = 16;

/// A probe's samples are pooled with those of probes before, unless they differ by this factor.
const DIFFERENT: f64 = 1.4;
const POOL: f32 = 64.0;
const KEEP: f32 = 0.8;
const FEW: f32 = 8.0;
/// Open requests of a probe, over those before, that say that a queue had its chance to drain.
const DRAINED: f64 = 0.75;
/// For how long at first the baseline is whatever the median is, in times of the first.
const SETTLED: f64 = 10.0;
/// Of the way to a lower median, in a step.
const DOWN: f64 = 0.05;

/// See the module.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// Until when it follows every median.
    settles: Option<Nanos>,
    /// In nanoseconds.
    base: Option<f64>,
    pool: Recent,
    probe: Option<Probe>,
}

/// A probe under way.
#[derive(Debug)]
struct Probe {
    began: Nanos,
    stretch: u64,
    /// Open requests before it, and in each of its steps that count.
    before: f64,
    within: f64,
    steps: f64,
    samples: Recent,
}

impl Baseline {
    pub(crate) fn new() -> Baseline {
        Baseline {
            settles: None,
            base: None,
            pool: Recent::new(POOL),
            probe: None,
        }
    }

    /// In nanoseconds, once there were samples.
    pub(crate) fn get(&self) -> Option<f64> {
        self.base
    }

    /// How many times the baseline `median` is.
    pub(crate) fn slowness(&mut self, median: f64, now: Nanos) -> f64 {
        let base = self.base.get_or_insert(median);
        let settles = || now.after(Nanos((SETTLED * median) as u64));
        if now < *self.settles.get_or_insert_with(settles) {
            // The first answers are those to what is quickly done.
            *base = median;
        }
        *base += DOWN * (median - *base).min(0.0);
        median / base.max(1.0)
    }

    /// Whether those who give way are to be held back until the next step. `mean` is the step's open
    /// requests, `usual` those of the last seconds; `creep` by what the baseline may
    /// rise if that did not fall.
    pub(crate) fn probe(
        &mut self,
        (now, wall): (Nanos, Nanos),
        fresh: &Counts,
        (mean, usual): (f64, f64),
        creep: f64,
    ) -> bool {
        let Some(probe) = &mut self.probe else {
            let stretch = self.base.map_or(1, stretch);
            let begins = wall.0 % (PERIOD.0 * stretch) < STEP.0;
            self.probe = begins.then(|| Probe {
                began: now,
                stretch,
                before: usual,
                within: 0.0,
                steps: 0.0,
                samples: Recent::new(f32::INFINITY),
            });
            return begins;
        };
        let passed = now.since(probe.began).0;
        if passed > DRAIN.0 * probe.stretch {
            probe.samples.blend(fresh, 1.0);
            probe.within += mean;
            probe.steps += 1.0;
        }
        let length = LENGTH.0 * probe.stretch;
        if passed < length || probe.samples.weight() < FEW && passed < 2 * length {
            return true;
        }
        let fell = probe.within <= DRAINED * probe.before * probe.steps;
        let rise = if fell { f64::INFINITY } else { creep };
        learn(&mut self.base, &mut self.pool, &probe.samples, rise);
        self.probe = None;
        false
    }
}

fn stretch(base: f64) -> u64 {
    let times = MEDIANS * base / DRAIN.0 as f64;
    (times.ceil() as u64).clamp(1, LONGEST).next_power_of_two()
}

/// Moves the baseline to what probes measured, up by no more than `rise`.
fn learn(base: &mut Option<f64>, pool: &mut Recent, samples: &Recent, rise: f64) {
    if samples.weight() < 1.0 {
        return;
    }
    let before = base.unwrap_or(f64::INFINITY);
    let median = samples.quantile(0.5);
    if median > before * rise.max(DIFFERENT) {
        // A queue, or too sudden to be told from one.
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
    use super::super::latencies::Recorder;
    use super::*;

    /// Begins with a baseline of 20 ms, then probes once while latencies are `millis` and `open` of the
    /// usual 20 requests are open. Says what the baseline is afterwards in milliseconds.
    fn after(millis: u64, open: f64, creep: f64) -> f64 {
        let mut baseline = Baseline::new();
        baseline.slowness(20e6, Nanos::ZERO);
        let recorder = Recorder::new();
        let mut now = PERIOD;
        loop {
            (0..20).for_each(|_| recorder.record(Nanos::from_millis(millis)));
            let held = baseline.probe((now, now), &recorder.drain().unwrap(), (open, 20.0), creep);
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
