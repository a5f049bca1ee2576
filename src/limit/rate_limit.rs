//! A limit on a rate: so many units in each of its windows.

use super::algorithm::Algorithm;
use super::rate::Rate;
use super::reading::{LimitReading, LimitStanding};
use super::throttle::ThrottleMode;

/// Most windows that one limit may have.
pub const MAX_WINDOWS: usize = 8;

/// A limit on a rate, as a store enforces it: all of its windows must admit a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// 1 to [`MAX_WINDOWS`] rates, shortest window first, no two with the same window.
    pub windows: Vec<Rate>,
    /// How use is counted.
    pub algorithm: Algorithm,
    /// What the limit does above the rate.
    pub throttle: ThrottleMode,
    /// Whether use is known only from the response: admission then reserves units, and the response settles them.
    pub reserves: bool,
    /// The largest plan multiplier of a request; the state has room for it.
    pub max_multiply: u32,
}

impl Limit {
    /// A hard limit with the default algorithm.
    pub fn hard(rate: Rate) -> Limit {
        Limit {
            windows: vec![rate],
            algorithm: Algorithm::default_for(rate.quota(), rate.quota()),
            throttle: ThrottleMode::Hard,
            reserves: false,
            max_multiply: 1,
        }
    }

    /// Whether the units of this reading are lent.
    pub fn lent(&self, reading: &LimitReading) -> bool {
        self.throttle.lends() && reading.standing == LimitStanding::Over
    }
}
