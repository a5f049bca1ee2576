//! [`StateShape`]: what limits must have in common to share the states of keys.

use super::{Algorithm, Alignment, RateLimit};
use crate::base::clock::Nanos;

/// What must be equal for two limits to share states: the algorithm, the lengths and beginnings of windows, whether they reserve and
/// lend, and the intervals of arrival times. All else may differ, such as quotas of other algorithms, bursts and plans.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateShape {
    algorithm: std::mem::Discriminant<Algorithm>,
    windows: Vec<(Nanos, Alignment)>,
    reserves: bool,
    lends: bool,
    /// The intervals in ns, without a plan, of limits with arrival times; empty for other limits. Only with the same
    /// interval does an arrival time stand for the same units.
    intervals: Vec<u64>,
}

impl RateLimit {
    /// The shape of the limit's states: only limits of equal shapes may share them.
    pub fn shape(&self) -> StateShape {
        let rates = self.windows.iter();
        StateShape {
            algorithm: std::mem::discriminant(&self.algorithm),
            windows: rates
                .clone()
                .map(|rate| (rate.window(), rate.alignment()))
                .collect(),
            reserves: self.reserves,
            lends: self.throttle.is_elastic(),
            intervals: match self.algorithm.is_gcra() {
                true => rates.map(|rate| rate.interval(1).nanos()).collect(),
                false => Vec::new(),
            },
        }
    }
}
