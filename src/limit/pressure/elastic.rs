//! m: the elastic factor, one for all elastic limits of an upstream.
//!
//! It rises slowly and falls fast (AIMD: Chiu and Jain 1989), with a band between in which it stays. It rises in
//! proportion to the share of the latency pool that is new: a gateway that sees a sixteenth of the traffic waits
//! longer for the same evidence, and would overshoot if it did not.

/// The rise of a step in which all latencies are new.
const RISE: f64 = 0.12;
const FALL: f64 = 0.92;
const HALVE: f64 = 0.5;
/// The least m - 1 while the upstream is nearly idle.
const IDLE: f64 = 1.0;
/// An m - 1 below this is 0.
const LEAST: f64 = 0.01;

/// The share of failed requests above which m falls.
const FAILING: f64 = 0.05;
/// The median over the baseline above which there is a queue, whatever the upstream reports.
const QUEUED: f64 = 2.0;
/// The load below which m may rise, and the one above which it falls.
const SPARE: f64 = 0.75;
const FULL: f64 = 0.95;

/// m, at least 1: elastic limits lend m - 1 times their rates.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Factor(f64);

impl Factor {
    /// Nothing is lent.
    pub const ONE: Factor = Factor(1.0);

    /// A factor below 1, or NaN, becomes 1.
    pub fn new(factor: f64) -> Factor {
        Factor(factor.max(1.0))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// What one step has observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    pub(crate) load: f64,
    /// Whether nothing is cut: neither requests nor much of the lending.
    pub(crate) calm: bool,
    /// The median latency over the baseline.
    pub(crate) slowness: f64,
    /// Share of requests that failed.
    pub(crate) failures: f64,
    /// Share of the pool of latencies that is new.
    pub(crate) fresh: f64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Elastic {
    /// m - 1.
    lent: f64,
}

impl Elastic {
    pub(crate) fn new() -> Elastic {
        Elastic { lent: 0.0 }
    }

    pub(crate) fn factor(&self) -> f64 {
        1.0 + self.lent
    }

    /// One control step. Without an observation there is no signal, and m is back at 1 within ten steps.
    pub(crate) fn step(&mut self, seen: Option<Observation>, most: f64) {
        let Some(seen) = seen else {
            self.lent -= (most - 1.0) / 10.0;
            return self.fall(HALVE);
        };
        if seen.slowness > QUEUED || seen.failures > FAILING {
            self.fall(HALVE);
        } else if seen.load > FULL {
            self.fall(FALL);
        } else if seen.load < SPARE && seen.calm {
            self.lent += RISE * seen.fresh;
        }
        self.lent = self.lent.min(most - 1.0).max(0.0);
    }

    /// The upstream is nearly idle. If it could not serve as much again, it would show.
    pub(crate) fn idle(&mut self, most: f64) {
        self.lent = self.lent.max(IDLE).min(most - 1.0).max(0.0);
    }

    fn fall(&mut self, to: f64) {
        self.lent *= to;
        if self.lent < LEAST {
            self.lent = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Observation = Observation {
        load: 0.1,
        calm: true,
        slowness: 1.0,
        failures: 0.0,
        fresh: 1.0,
    };

    fn risen() -> Elastic {
        let mut elastic = Elastic::new();
        (0..200).for_each(|_| elastic.step(Some(IDLE), 10.0));
        assert_eq!(elastic.factor(), 10.0);
        elastic
    }

    #[track_caller]
    fn check(seen: Observation, expected: f64) {
        let mut elastic = risen();
        elastic.step(Some(seen), 10.0);
        assert!((elastic.factor() - expected).abs() < 1e-9, "{elastic:?}");
    }

    #[test]
    fn rises_stands_and_falls() {
        check(IDLE, 10.0);
        check(Observation { load: 0.8, ..IDLE }, 10.0);
        check(Observation { load: 0.96, ..IDLE }, 9.28);
        check(
            Observation {
                slowness: 2.1,
                ..IDLE
            },
            5.5,
        );
        check(
            Observation {
                failures: 0.06,
                ..IDLE
            },
            5.5,
        );
        check(
            Observation {
                load: f64::INFINITY,
                ..IDLE
            },
            9.28,
        );
    }

    #[test]
    fn no_signal_ends_it_in_a_second() {
        let mut elastic = risen();
        (0..10).for_each(|_| elastic.step(None, 10.0));
        assert_eq!(elastic.factor(), 1.0);
    }
}
