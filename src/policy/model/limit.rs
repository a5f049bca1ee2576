//! A limit as it is written.

use ipnet::IpNet;

use super::super::tree::Located;
use crate::base::clock::Nanos;
use crate::limit::pressure::Condition;
use crate::limit::{
    Algorithm, CountMode, Disclose, Identity, LimitName, OnStoreError, Rate, Reserve, Sharing,
};

/// A limit as it is written.
#[derive(Clone, Debug)]
pub struct LimitConfig {
    /// Its name.
    pub name: Located<LimitName>,
    /// The identities that it counts by.
    pub key: Vec<Located<Identity>>,
    /// The quota of each window.
    pub rates: Vec<Located<Rate>>,
    /// The most open requests; then there are no rates.
    pub concurrent: Option<Located<u32>>,
    /// What happens above the rate.
    pub throttle: Option<Located<ThrottleConfig>>,
    /// The condition under which an elastic limit lends.
    pub condition: Option<Located<Condition>>,
    /// The rate up to which an elastic limit lends.
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
    /// Which requests use it up, and by how many units.
    pub count: Option<Located<CountMode>>,
    /// The units that a request holds until its cost is known.
    pub reserve: Option<Located<Reserve>>,
    /// Whether plans multiply it.
    pub plans: Option<Located<bool>>,
    /// It counts and refuses nothing.
    pub shadow: bool,
    /// The networks whose requests it does not count.
    pub exempt: Vec<IpNet>,
    /// What responses disclose about it.
    pub disclose: Disclose,
    /// How gateways with one store share it.
    pub sharing: Option<Located<Sharing>>,
    /// What holds while the store cannot be reached.
    pub on_store_error: OnStoreError,
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
    /// By at most this percentage.
    Soft(u16),
    /// By what the upstream can bear.
    Elastic,
}
