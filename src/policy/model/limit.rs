//! The model of a limit, as a gateway or policy file writes it. `check` compares its fields with each other; nothing
//! here is checked yet.

use ipnet::IpNet;

use super::super::tree::Located;
use crate::base::clock::Nanos;
use crate::limit::pressure::Condition;
use crate::limit::{
    Algorithm, CountMode, Disclose, Identity, LimitName, OnStoreError, Rate, Reserve, Sharing,
};

/// A limit of the gateway file or of a policy.
#[derive(Clone, Debug)]
pub struct LimitConfig {
    /// The name of the limit.
    pub name: Located<LimitName>,
    /// The identities by which the limit counts.
    pub key: Vec<Located<Identity>>,
    /// The quota of each window.
    pub rates: Vec<Located<Rate>>,
    /// The maximum number of open requests; a limit with it has no rates.
    pub concurrent: Option<Located<u32>>,
    /// How far the limit may be exceeded.
    pub throttle: Option<Located<ThrottleConfig>>,
    /// The condition under which an elastic limit lends.
    pub condition: Option<Located<Condition>>,
    /// The rate up to which an elastic limit lends.
    pub at_most: Option<Located<Rate>>,
    /// Whether the field `while` is present, with a valid or an invalid value.
    pub has_while: bool,
    /// Whether the field `at_most` is present, with a valid or an invalid value.
    pub has_at_most: bool,
    /// Whether the field `delay` is present, with a valid or an invalid value.
    pub has_delay: bool,
    /// The algorithm, without the values of `burst` and `delay`.
    pub algorithm: Option<Located<Algorithm>>,
    /// The number of units that may come at once, for gcra.
    pub burst: Option<Located<u32>>,
    /// The maximum delay of a request, for leaky-bucket.
    pub delay: Option<Located<Nanos>>,
    /// The requests that use the limit up, and by how many units.
    pub count: Option<Located<CountMode>>,
    /// The units that a request holds until its cost is known.
    pub reserve: Option<Located<Reserve>>,
    /// Whether plans multiply the quota.
    pub plans: Option<Located<bool>>,
    /// Whether the limit only counts and refuses nothing.
    pub shadow: bool,
    /// The networks whose requests the limit does not count.
    pub exempt: Vec<IpNet>,
    /// How much responses disclose about the limit.
    pub disclose: Disclose,
    /// How gateways with one store share the limit.
    pub sharing: Option<Located<Sharing>>,
    /// The decision while the store cannot be reached.
    pub on_store_error: OnStoreError,
    /// The routes that have the limit, and whether they share its counts.
    pub routes: LimitRoutes,
}

impl LimitConfig {
    /// The rate that an elastic limit raises, and `at_most`, up to which it raises it. Both have the same window.
    pub fn elastic_rates(&self) -> Option<(Rate, Rate)> {
        let at_most = self.at_most?.value;
        let mut rates = self.rates.iter().map(|rate| rate.value);
        let rate = rates.find(|rate| rate.window() == at_most.window())?;
        Some((rate, at_most))
    }
}

/// The routes that have a limit of the gateway file, and whether they share its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitRoutes {
    /// Every route has the limit, and all routes count together.
    #[default]
    All,
    /// Every route has the limit, and each route counts for itself.
    Each,
    /// Routes that list the limit have it, and they count together.
    Listed,
    /// Routes that list the limit have it, and each route counts for itself.
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

/// How far a limit may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleConfig {
    /// The limit refuses every request above the rate.
    Hard,
    /// The limit admits requests up to this percentage above the rate.
    Soft(u16),
    /// The limit admits requests above the rate as long as the upstream can bear them.
    Elastic,
}
