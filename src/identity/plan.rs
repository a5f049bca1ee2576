//! The settings of plans: which plans there are, what they multiply, and where a request's plan comes from.

use http::HeaderName;

use crate::net::PeerNetwork;
use crate::route::Priority;

/// All plans, and the source of a request's plan.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// All plans, in the order of the gateway file.
    pub plans: Vec<Plan>,
    /// The part of a request that names its plan; with `None` every request has the default plan, if there is one.
    pub source: Option<PlanSource>,
    /// Index into `plans` of the plan of requests that name none of them; `None` if these requests have no plan.
    pub default_index: Option<usize>,
}

/// A plan that clients may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The plan's name.
    pub name: String,
    /// The factor for limits with `plans: true`, 1 to 1000.
    pub plan_factor: u32,
    /// The priority of the plan's requests under pressure, on routes without one of their own; `None` for the normal
    /// one.
    pub priority: Option<Priority>,
}

/// The part of a request that names its plan.
#[derive(Clone, Debug)]
pub enum PlanSource {
    /// A claim of the verified token.
    Claim(String),
    /// A header field that only some peers may set.
    Header {
        /// The field's name.
        name: HeaderName,
        /// Peers that may set the field; the gateway removes it from requests of all others.
        allowed_peers: Vec<PeerNetwork>,
    },
    /// The entry of the request's key in the file of API keys.
    ApiKeys,
}

impl Settings {
    /// Index of the plan of this name; `None` if there is none.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.plans.iter().position(|plan| plan.name == name)
    }

    /// The priority that the plan with this index gives to its requests; `None` without a plan, and for the normal one.
    pub fn priority(&self, plan: Option<usize>) -> Option<Priority> {
        self.plans.get(plan?)?.priority
    }

    /// The factor for limits with `plans: true` on the plan with this index; 1 without a plan.
    pub fn plan_factor(&self, plan: Option<usize>) -> u32 {
        plan.and_then(|index| self.plans.get(index))
            .map_or(1, |plan| plan.plan_factor.max(1))
    }
}
