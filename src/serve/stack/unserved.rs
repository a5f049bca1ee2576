//! A request that no upstream serves, because the gateway itself responds, such as with 401 or 404. Limits count such a
//! request first, so that scans for paths and guesses of credentials end in 429.
//!
//! Below the layer that finds the cause, only the throttle still decides about the request. It never reaches an upstream.

use std::rc::Rc;

use super::cors;
use super::matched_route::MatchedRoute;
use super::record_verdict::record_verdict;
use super::refusal::RefusalCause;
use super::stages::{Arrival, Identified, Routed};
use crate::base::clock::{Clock, Nanos};
use crate::http::head::Head;
use crate::identity::{CheckCondition, ClientIdentity, ConnectionPeer, Identifier, Unverified};
use crate::limit::Rules;
use crate::limit::pressure::UpstreamSlot;
use crate::policy::Ruleset;
use crate::route::{HeaderStyle, Route};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{Admission, AdmissionRequest, Verdict};
use crate::throttle::{AppliedLimits, DecisionObserver, ThrottledRequest};

/// Which limits count an unserved request. Of a route's limits, only those count it that count the gateway's own
/// responses: [`Rule::counts_own_responses`](crate::limit::Rule::counts_own_responses).
#[derive(Clone, Debug)]
pub enum CountingLimits {
    /// The limits for requests without a route.
    Unrouted,
    /// All such limits of the request's route.
    Routed(MatchedRoute),
    /// Those limits of the route that are for preflights.
    Preflight(MatchedRoute),
    /// Such limits of the route that depend on the ip only, because the credential was not checked.
    ByIp(MatchedRoute),
    /// Such limits of the route, without those whose keys need the first required identity that the request lacks.
    Without {
        /// The route of the request.
        matched_route: MatchedRoute,
        /// The index of the first missing identity in the route's `require`.
        required_index: usize,
    },
}

impl CountingLimits {
    /// The limits that count an unserved request of this client on this route.
    pub fn for_route(
        matched_route: &MatchedRoute,
        ruleset: &Ruleset,
        client: &ClientIdentity,
    ) -> CountingLimits {
        let matched_route = matched_route.clone();
        if client.unverified == Some(Unverified::Unchecked) {
            return CountingLimits::ByIp(matched_route);
        }
        let mut required_identities = matched_route.route(ruleset).require.iter();
        match required_identities.position(|identity| !client.has(*identity)) {
            Some(required_index) => CountingLimits::Without {
                matched_route,
                required_index,
            },
            None => CountingLimits::Routed(matched_route),
        }
    }

    /// The rules of these limits.
    pub fn rules<'r>(&'r self, ruleset: &'r Ruleset) -> &'r Rules {
        match self {
            CountingLimits::Unrouted => &ruleset.unrouted.rules,
            CountingLimits::Routed(matched_route) => {
                &matched_route.route(ruleset).own_response_rules.all
            }
            CountingLimits::Preflight(matched_route) => {
                &matched_route
                    .route(ruleset)
                    .own_response_rules
                    .for_preflights
            }
            CountingLimits::ByIp(matched_route) => {
                &matched_route.route(ruleset).own_response_rules.by_ip
            }
            CountingLimits::Without {
                matched_route,
                required_index,
            } => &matched_route.route(ruleset).own_response_rules.without[*required_index],
        }
    }

    /// The route of the request; `None` if it has no route.
    fn matched_route(&self) -> Option<&MatchedRoute> {
        match self {
            CountingLimits::Unrouted => None,
            CountingLimits::Routed(matched_route)
            | CountingLimits::Preflight(matched_route)
            | CountingLimits::ByIp(matched_route)
            | CountingLimits::Without { matched_route, .. } => Some(matched_route),
        }
    }

    /// The route of the request with its settings; `None` if it has no route.
    pub fn route<'r>(&'r self, ruleset: &'r Ruleset) -> Option<&'r Route> {
        self.matched_route()
            .map(|matched_route| matched_route.route(ruleset))
    }

    /// A number that only this set of limits has, to cache its refusals by. `None` for a combination of several routes.
    ///
    /// Numbers below the number of routes belong to [`Identified`] requests, whose set has the index of their route.
    /// Each kind of set here adds a multiple of the number of routes to that index.
    pub fn limit_set_number(&self, ruleset: &Ruleset) -> Option<usize> {
        let route_count = ruleset.routes.len();
        let Some(matched_route) = self.matched_route() else {
            // No other set has this number: theirs are of the order of routes times required identities.
            return Some(usize::MAX);
        };
        let set_kind = match self {
            CountingLimits::Unrouted | CountingLimits::Routed(_) => 1,
            CountingLimits::ByIp(_) => 2,
            CountingLimits::Preflight(_) => 3,
            CountingLimits::Without { required_index, .. } => required_index + 4,
        };
        Some(route_count * set_kind + matched_route.single_route_index()?)
    }

    /// The style of the rate-limit header fields in a refusal.
    pub fn header_style(&self, ruleset: &Ruleset) -> HeaderStyle {
        let route = self.route(ruleset);
        route.map_or(ruleset.unrouted.header_style, |route| route.headers)
    }
}

/// Identifies the client of a request without a route: by its address, and by its credentials if a limit counts by
/// those. Otherwise no signature is verified, because it would cost more than the whole response.
pub fn identify_unrouted(
    ruleset: &Ruleset,
    identifier: &Identifier,
    connection: ConnectionPeer<'_>,
    head: &Head,
    now: Nanos,
    clock: &Clock,
) -> ClientIdentity {
    // Unlike where a request has a route, no limit by ip decides whether the credential is checked. The identifier bounds
    // the failed signatures of an address even so, and no upstream receives the request.
    let check = CheckCondition {
        now,
        may_check: &|_| true,
    };
    let wall_time = || clock.wall();
    match ruleset.unrouted.needs_credential {
        true => identifier.identify_with_check(connection, head.into(), wall_time, Some(&check)),
        false => identifier.identify_by_address(connection, &head.fields),
    }
}

/// Why a preflight to this route gets its response here, with what the route says of the page's origin.
pub fn preflight_cause(route: &Route, head: &Head) -> RefusalCause {
    let cors = route.cors.as_ref();
    RefusalCause::Preflight {
        is_allowed: cors.is_some_and(|cors| cors::allows_preflight(cors, head)),
    }
}

/// A request that no upstream serves.
pub struct Unserved {
    /// The request as it arrived.
    pub arrival: Arrival,
    /// The identities of the client.
    pub client: Rc<ClientIdentity>,
    /// The time at which limits count the request.
    pub now: Nanos,
    /// The limits that count the request.
    pub counting_limits: CountingLimits,
    /// Why the request is not served. If the limits admit it, the response follows from this cause.
    pub cause: RefusalCause,
}

impl Unserved {
    /// A request that gets no route. Identifies its client and records that in the context.
    pub fn unrouted(arrival: Arrival, cause: RefusalCause, now: Nanos) -> Unserved {
        let context = &arrival.context;
        let generation = &context.generation;
        let client = Rc::new(identify_unrouted(
            &generation.ruleset,
            &generation.identifier,
            context.peer.connection_peer(),
            &arrival.head,
            now,
            &generation.clock,
        ));
        let _ = context.client.set(client.clone());
        Unserved {
            client,
            now,
            counting_limits: CountingLimits::Unrouted,
            cause,
            arrival,
        }
    }

    /// A request that its route does not serve.
    pub fn routed(identified: Identified, cause: RefusalCause) -> Unserved {
        let Identified { routed, client, .. } = identified;
        Unserved::routed_to(routed, client, cause)
    }

    /// A request that its route does not serve to this client.
    pub fn routed_to(routed: Routed, client: Rc<ClientIdentity>, cause: RefusalCause) -> Unserved {
        let ruleset = &routed.arrival.context.generation.ruleset;
        let counting_limits = CountingLimits::for_route(&routed.matched_route, ruleset, &client);
        Unserved {
            arrival: routed.arrival,
            client,
            now: routed.now,
            counting_limits,
            cause,
        }
    }

    /// A preflight that gets its response here.
    pub fn preflight(routed: Routed, client: Rc<ClientIdentity>) -> Unserved {
        let cause = preflight_cause(routed.route(), &routed.arrival.head);
        Unserved {
            arrival: routed.arrival,
            client,
            now: routed.now,
            counting_limits: CountingLimits::Preflight(routed.matched_route),
            cause,
        }
    }

    /// The rules of the limits that count the request.
    pub fn rules(&self) -> &Rules {
        self.counting_limits.rules(&self.generation().ruleset)
    }

    fn generation(&self) -> &Rc<Generation> {
        &self.arrival.context.generation
    }
}

impl ThrottledRequest for Unserved {
    type Admitted = Unserved;
    type Limits = UnservedLimits;

    fn admission_request(&self) -> AdmissionRequest<'_> {
        let generation = self.generation();
        let route = self.counting_limits.route(&generation.ruleset);
        let pressure = route.and_then(|route| generation.pressure_on(route));
        AdmissionRequest {
            rules: self.rules(),
            client: &self.client,
            identifier: &generation.identifier,
            now: self.now,
            pressure: pressure.map(|pressure| &**pressure),
            reserved_units: &[],
        }
    }

    fn admission(&self) -> &Admission {
        &self.generation().admission
    }

    fn limits(&self) -> UnservedLimits {
        UnservedLimits {
            generation: self.generation().clone(),
            counting_limits: self.counting_limits.clone(),
        }
    }

    fn header_style(&self) -> HeaderStyle {
        let ruleset = &self.generation().ruleset;
        self.counting_limits.header_style(ruleset)
    }

    fn into_admitted(self, _: &Verdict, _: Option<UpstreamSlot>) -> Unserved {
        self
    }
}

impl DecisionObserver for Unserved {
    fn on_verdict(&self, verdict: &Verdict) {
        let context = &self.arrival.context;
        record_verdict(context, verdict, self.rules(), &self.client, self.now);
    }
}

/// The limits that count an unserved request. They keep the request's configuration alive.
pub struct UnservedLimits {
    generation: Rc<Generation>,
    counting_limits: CountingLimits,
}

impl AppliedLimits for UnservedLimits {
    fn rules(&self) -> &Rules {
        self.counting_limits.rules(&self.generation.ruleset)
    }

    fn clock(&self) -> &Clock {
        &self.generation.clock
    }
}
