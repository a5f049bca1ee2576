//! Counters of requests by the values of those identities of which the gateway file says `metrics: true`. The values are
//! the configuration's, so clients cannot add series.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::base::telemetry::{Registry, WorkerCounter};
use crate::identity::ClientIdentity;
use crate::identity::custom_value::IdentityValue;
use crate::limit::Identity;
use crate::policy::Ruleset;
use crate::serve::stack::request_outcome::RequestOutcome;

/// The value of a label for all values that have no series of their own.
const OTHER: &str = "other";

/// A worker's counters of requests by all such identities.
pub struct IdentityCounters {
    identities: Vec<MeasuredCounters>,
    registry: Registry,
    worker_number: usize,
}

/// The counters of one identity.
struct MeasuredCounters {
    identity: Identity,
    /// The number of each configured value. Further values have none.
    numbers: HashMap<Arc<str>, usize>,
    /// Each counter is registered when it first counts. Bound: values and one more, times routes and one more, times
    /// outcomes.
    counters: RefCell<HashMap<CountedRequests, WorkerCounter>>,
}

/// The requests that one counter counts.
#[derive(PartialEq, Eq, Hash)]
struct CountedRequests {
    /// The number of the value; `None` for all further values.
    value_number: Option<usize>,
    /// The index of the route; `None` for requests without a route.
    route_index: Option<usize>,
    outcome: RequestOutcome,
}

impl IdentityCounters {
    /// The counters for these policies; `None` if no identity is counted.
    pub fn new(
        ruleset: &Ruleset,
        registry: &Registry,
        worker_number: usize,
    ) -> Option<IdentityCounters> {
        let measured = &ruleset.identity.measured;
        let identities = measured.iter().map(|measured| MeasuredCounters {
            identity: measured.identity,
            numbers: measured.values.iter().cloned().zip(0..).collect(),
            counters: RefCell::default(),
        });
        (!measured.is_empty()).then(|| IdentityCounters {
            identities: identities.collect(),
            registry: registry.clone(),
            worker_number,
        })
    }

    /// Counts a request of this client that has ended, once for each counted identity that the client has.
    pub fn count(
        &self,
        ruleset: &Ruleset,
        client: &ClientIdentity,
        route_index: Option<usize>,
        outcome: RequestOutcome,
    ) {
        for counted in &self.identities {
            let Some(value) = value_of(ruleset, client, counted.identity) else {
                continue;
            };
            let value_number = counted.numbers.get(value).copied();
            let requests = CountedRequests {
                value_number,
                route_index,
                outcome,
            };
            let mut counters = counted.counters.borrow_mut();
            let counter = counters.entry(requests).or_insert_with(|| {
                let label_value = value_number.map_or(OTHER, |_| value);
                let route = route_index.and_then(|index| ruleset.routes.get(index));
                let route_name = route.map_or("none", |route| &route.name);
                self.registry.identity_counter(
                    self.worker_number,
                    (counted.identity.as_str(), label_value),
                    (route_name, outcome.as_str()),
                )
            });
            counter.increment(1);
        }
    }
}

/// The value of an identity; `None` if the client lacks it, or if it is ambiguous or kept as a hash. Only a claim has
/// several names, and claims are not counted.
fn value_of<'c>(
    ruleset: &'c Ruleset,
    client: &'c ClientIdentity,
    identity: Identity,
) -> Option<&'c str> {
    match identity {
        Identity::Plan => Some(&ruleset.identity.plan.plans.get(client.plan?)?.name),
        Identity::Custom(custom) => match client.custom_value(custom)? {
            IdentityValue::Names(names) => names.first().map(|name| &**name),
            IdentityValue::Hash(_) | IdentityValue::Ambiguous => None,
        },
        Identity::Ip | Identity::User | Identity::Token | Identity::Email => None,
    }
}
