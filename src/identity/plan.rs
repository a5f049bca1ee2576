//! Plans, and where the plan of a request comes from.

use http::HeaderName;

use crate::net::PeerNetwork;
use crate::route::Priority;

/// The plans, and where a request's plan comes from.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// All plans.
    pub plans: Vec<Plan>,
    /// Where a request's plan comes from.
    pub source: Option<PlanOrigin>,
    /// Index of the plan of requests without one.
    pub default: Option<usize>,
}

/// One plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// What limits with `plans: true` are multiplied by, 1 to 1000.
    pub multiply: u32,
    /// Which requests are shed last, on routes without a priority of their own.
    pub priority: Option<Priority>,
}

/// Where a request's plan comes from.
#[derive(Clone, Debug)]
pub enum PlanOrigin {
    /// A claim of the verified token.
    Claim(String),
    /// A request header, believed from these peers only.
    Header {
        /// Its name.
        name: HeaderName,
        /// Peers that may set it.
        from: Vec<PeerNetwork>,
    },
    /// The file of API keys.
    ApiKeys,
}

impl Settings {
    /// Index of the plan of this name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.plans.iter().position(|plan| plan.name == name)
    }

    /// What is shed last of requests on this plan, where it says so.
    pub fn priority(&self, plan: Option<usize>) -> Option<Priority> {
        self.plans.get(plan?)?.priority
    }

    /// What limits with `plans: true` are multiplied by for a request on this plan.
    pub fn multiply(&self, plan: Option<usize>) -> u32 {
        plan.and_then(|index| self.plans.get(index))
            .map_or(1, |plan| plan.multiply.max(1))
    }
}
