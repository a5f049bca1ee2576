//! The elastic factor, one for all elastic limits of an upstream, and the lent share: the factor less 1. Each elastic
//! limit lends this share of its rate. How the level cuts lending is in `shed_level.rs`.
//!
//! The factor rises slowly and falls fast (AIMD: Chiu and Jain 1989). Between the loads at which it rises and falls it
//! stays. It rises in proportion to the share of latencies in the pool that are new. A gateway with little of the
//! traffic gets few new latencies in a step. If its factor rose as fast as that of other gateways, it would overshoot
//! before the latencies show it.

/// The rise of the lent share in a step in which all latencies of the pool are new.
const RISE_PER_STEP: f64 = 0.12;
/// The part of the lent share that is kept in a step in which the upstream was full.
const FULL_KEPT_SHARE: f64 = 0.92;
/// The part of the lent share that is kept in a step with a long queue, with failures or without a signal. Without a
/// signal a tenth of the highest lent share is subtracted first.
const QUEUE_KEPT_SHARE: f64 = 0.5;
/// The least lent share while the upstream is nearly idle, unless limits allow less.
const IDLE_LENT_SHARE: f64 = 1.0;
/// A lent share that falls below this becomes 0. A rise may begin with less.
const MIN_LENT_SHARE: f64 = 0.01;

/// The share of failed requests above which the lent share is halved. A few requests fail without any overload.
const MAX_FAILED_SHARE: f64 = 0.05;
/// The ratio of the median to the baseline above which the lent share is halved, whatever the upstream reports. A
/// shorter queue counts as load only; in `shed_level.rs` a queue begins at 1.5. Above the ratio here critical requests
/// may be refused too.
const MAX_SLOWNESS: f64 = 2.0;
/// The load below which the factor may rise. It is above the share that must be open for the capacity to grow: see
/// `capacity.rs`.
const MAX_RISE_LOAD: f64 = 0.75;
/// The load above which the factor falls: the one that the level steers to. The gap to [`MAX_RISE_LOAD`] keeps the
/// factor from swinging.
const MIN_FALL_LOAD: f64 = 0.95;

/// A value of the elastic factor, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct ElasticFactor(f64);

impl ElasticFactor {
    /// The factor at which nothing is lent.
    pub const ONE: ElasticFactor = ElasticFactor(1.0);

    /// Makes a factor; a number below 1, or NaN, becomes 1.
    pub fn new(factor: f64) -> ElasticFactor {
        ElasticFactor(factor.max(1.0))
    }

    /// The factor as a number, at least 1.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// What one step has observed of an upstream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    /// The load; 1 is full.
    pub(crate) load: f64,
    /// Whether no request is shed, and the level cuts lending by less than half.
    pub(crate) is_calm: bool,
    /// The ratio of the median latency to the baseline.
    pub(crate) slowness: f64,
    /// The share of recent requests that failed.
    pub(crate) failed_share: f64,
    /// The share of the pool of latencies that is new.
    pub(crate) fresh_share: f64,
}

/// The elastic factor of one upstream, before the level cuts lending: see `shed_level.rs`.
#[derive(Debug)]
pub(crate) struct UncutFactor {
    /// The lent share, from 0 to the highest factor less 1.
    lent_share: f64,
}

impl UncutFactor {
    pub(crate) fn new() -> UncutFactor {
        UncutFactor { lent_share: 0.0 }
    }

    /// The factor, at least 1.
    pub(crate) fn factor(&self) -> f64 {
        1.0 + self.lent_share
    }

    /// Advances the factor by a control step. Without an observation there is no signal, and the factor is back at 1
    /// within ten steps. `max_factor` is at least 1.
    pub(crate) fn step(&mut self, observation: Option<Observation>, max_factor: f64) {
        let Some(observation) = observation else {
            self.lent_share -= (max_factor - 1.0) / 10.0;
            return self.scale_lent_share(QUEUE_KEPT_SHARE);
        };
        if observation.slowness > MAX_SLOWNESS || observation.failed_share > MAX_FAILED_SHARE {
            self.scale_lent_share(QUEUE_KEPT_SHARE);
        } else if observation.load > MIN_FALL_LOAD {
            self.scale_lent_share(FULL_KEPT_SHARE);
        } else if observation.load < MAX_RISE_LOAD && observation.is_calm {
            self.lent_share += RISE_PER_STEP * observation.fresh_share;
        }
        self.lent_share = self.lent_share.min(max_factor - 1.0).max(0.0);
    }

    /// Raises the factor to at least 1 + [`IDLE_LENT_SHARE`], or to `max_factor` if that is less. So limits may lend as
    /// much as their rates while the upstream is nearly idle. If it could not bear that, its latencies would rise, and
    /// it would not count as nearly idle.
    pub(crate) fn raise_while_idle(&mut self, max_factor: f64) {
        self.lent_share = self
            .lent_share
            .max(IDLE_LENT_SHARE)
            .min(max_factor - 1.0)
            .max(0.0);
    }

    /// Keeps `kept_share` of the lent share; what would be below [`MIN_LENT_SHARE`] becomes 0.
    fn scale_lent_share(&mut self, kept_share: f64) {
        self.lent_share *= kept_share;
        if self.lent_share < MIN_LENT_SHARE {
            self.lent_share = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Observation = Observation {
        load: 0.1,
        is_calm: true,
        slowness: 1.0,
        failed_share: 0.0,
        fresh_share: 1.0,
    };

    fn highest_factor() -> UncutFactor {
        let mut elastic = UncutFactor::new();
        (0..200).for_each(|_| elastic.step(Some(IDLE), 10.0));
        assert_eq!(elastic.factor(), 10.0);
        elastic
    }

    #[track_caller]
    fn check(observation: Observation, expected: f64) {
        let mut elastic = highest_factor();
        elastic.step(Some(observation), 10.0);
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
                failed_share: 0.06,
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
        let mut elastic = highest_factor();
        (0..10).for_each(|_| elastic.step(None, 10.0));
        assert_eq!(elastic.factor(), 1.0);
    }
}
