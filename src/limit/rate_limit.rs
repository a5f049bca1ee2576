//! A limit on a rate: so many units in each of its windows.

use super::algorithm::Algorithm;
use super::rate::Rate;
use super::reading::{Reading, Standing};
use super::throttle::ThrottleMode;

/// Most windows that one limit may have.
pub const MAX_WINDOWS: usize = 8;

/// One limit on a rate as a store enforces it: all its windows must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// 1 to [`MAX_WINDOWS`] rates, shortest window first, no two with the same window.
    pub windows: Vec<Rate>,
    /// How use is remembered.
    pub algorithm: Algorithm,
    /// What happens above the rate.
    pub throttle: ThrottleMode,
    /// Use is known only from the response, so admission reserves and the answer settles.
    pub reserves: bool,
    /// The largest plan multiplier that a request may bring; the state has room for it.
    pub max_multiply: u32,
}

impl Limit {
    /// Never more than `rate`, remembered as policies do where they do not say how.
    pub fn hard(rate: Rate) -> Limit {
        Limit {
            windows: vec![rate],
            algorithm: Algorithm::default_for(rate.quota(), rate.quota()),
            throttle: ThrottleMode::Hard,
            reserves: false,
            max_multiply: 1,
        }
    }

    /// Whether what this reading says was admitted is lent.
    pub fn lent(&self, reading: &Reading) -> bool {
        self.throttle.lends() && reading.standing == Standing::Over
    }
}
