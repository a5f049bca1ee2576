//! A limit as it is written.

use ipnet::IpNet;

use super::super::tree::Located;
use crate::base::clock::Nanos;
use crate::limit::pressure::Condition;
use crate::limit::{
    Algorithm, Count, Disclose, Identity, LimitName, OnError, Rate, Reserve, Sharing,
};

/// A limit as it is written.
#[derive(Clone, Debug)]
pub struct LimitConfig {
    /// What it is called.
    pub name: Located<LimitName>,
    /// What it is counted by.
    pub key: Vec<Located<Identity>>,
    /// How many in how long.
    pub rates: Vec<Located<Rate>>,
    /// How many open at once; then there are no rates.
    pub concurrent: Option<Located<u32>>,
    /// What happens above the rate.
    pub throttle: Option<Located<ThrottleConfig>>,
    /// While what an elastic limit lends.
    pub condition: Option<Located<Condition>>,
    /// How much an elastic limit lends.
    pub at_most: Option<Located<Rate>>,
    /// `while` is there, right or wrong.
    pub has_while: bool,
    /// `at_most` is there, right or wrong.
    pub has_at_most: bool,
    /// `delay` is there, right or wrong.
    pub has_delay: bool,
    /// How use is remembered, without what `burst` and `delay` say.
    pub algorithm: Option<Located<Algorithm>>,
    /// Units that may come at once; for gcra.
    pub burst: Option<Located<u32>>,
    /// The longest delay; for leaky-bucket.
    pub delay: Option<Located<Nanos>>,
    /// What uses it up.
    pub count: Option<Located<Count>>,
    /// What is held until a cost is known.
    pub reserve: Option<Located<Reserve>>,
    /// Whether plans multiply it.
    pub plans: Option<Located<bool>>,
    /// Counts without refusing.
    pub shadow: bool,
    /// Whom it spares.
    pub exempt: Vec<IpNet>,
    /// What clients are told.
    pub disclose: Disclose,
    /// How gateways share it.
    pub sharing: Option<Located<Sharing>>,
    /// What holds without the store.
    pub on_store_error: OnError,
    /// Which routes have it, and whether they share its counts.
    pub routes: LimitRoutes,
}

impl LimitConfig {
    /// The rate that `at_most` lets grow, the one with its window, and `at_most`.
    pub fn growth(&self) -> Option<(Rate, Rate)> {
        let most = self.at_most?.value;
        let mut rates = self.rates.iter().map(|rate| rate.value);
        let rate = rates.find(|rate| rate.window() == most.window())?;
        Some((rate, most))
    }
}

/// Which routes have a limit of the gateway file, and whether they share its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitRoutes {
    /// Every route; all count together.
    #[default]
    All,
    /// Every route; each counts for itself.
    Each,
    /// Those that list it; all count together.
    Listed,
    /// Those that list it; each counts for itself.
    EachListed,
}

impl LimitRoutes {
    /// Whether each route counts for itself.
    pub fn counts_each_route(self) -> bool {
        matches!(self, LimitRoutes::Each | LimitRoutes::EachListed)
    }

    /// Whether only routes that list the limit have it.
    pub fn is_only_listed(self) -> bool {
        matches!(self, LimitRoutes::Listed | LimitRoutes::EachListed)
    }
}

/// What happens above the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleConfig {
    /// Never above.
    Hard,
    /// This many per cent above.
    Soft(u16),
    /// As much above as the servers bear.
    Elastic,
}
