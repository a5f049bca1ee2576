//! An identified request as the throttle sees it: its limits, its priority, and the context that records its verdict.
//!
//! `identify.rs` makes an [`Identified`]; this file connects it to the throttle's traits. It admits and refuses nothing.

use std::rc::Rc;

use super::matched_route::MatchedRoute;
use super::record_verdict::record_verdict;
use super::stages::{Admitted, Identified};
use crate::base::clock::Clock;
use crate::identity::{ClientIdentity, Identifier};
use crate::limit::pressure::{RequestClass, Shed, UpstreamSlot};
use crate::limit::{Identity, Rules};
use crate::route::{HeaderStyle, Priority, Route};
use crate::serve::worker::generation::Generation;
use crate::throttle::admission::{
    Admission, AdmissionRequest, Holdings, PreparedDecision, Verdict,
};
use crate::throttle::{AppliedLimits, DecisionObserver, ThrottledRequest, exceeded_limits};

impl ThrottledRequest for Identified {
    type Admitted = Admitted;
    type Limits = RouteLimits;

    fn admission_request(&self) -> AdmissionRequest<'_> {
        let arrival = &self.routed.arrival;
        AdmissionRequest {
            rules: self.rules(),
            client: &self.client,
            identifier: &arrival.context.generation.identifier,
            now: self.routed.now,
            pressure: self.pressure().map(|pressure| &**pressure),
            reserved_units: self.reserved_units.as_deref().unwrap_or_default(),
        }
    }

    fn prepared(&self) -> Option<&PreparedDecision> {
        self.route_decision
            .as_ref()
            .map(|decision| &decision.prepared_decision)
    }

    fn take_slot(&self) -> Result<Option<UpstreamSlot>, Shed> {
        let Some(pressure) = self.pressure() else {
            return Ok(None);
        };
        let identifier = &self.routed.arrival.context.generation.identifier;
        let class = request_class(self.routed.route(), &self.client, identifier);
        let cohort = || shed_cohort(&self.client, identifier);
        pressure.admit(class, self.routed.now, cohort).map(Some)
    }

    fn admission(&self) -> &Admission {
        &self.routed.arrival.context.generation.admission
    }

    fn limits(&self) -> RouteLimits {
        RouteLimits {
            generation: self.routed.arrival.context.generation.clone(),
            matched_route: self.routed.matched_route.clone(),
        }
    }

    fn header_style(&self) -> HeaderStyle {
        self.routed.route().headers
    }

    fn into_admitted(self, verdict: &Verdict, slot: Option<UpstreamSlot>) -> Admitted {
        let exceeded_limits = exceeded_limits(verdict, self.rules());
        Admitted {
            identified: self,
            exceeded_limits,
            slot,
        }
    }
}

impl DecisionObserver for Identified {
    fn on_verdict(&self, verdict: &Verdict) {
        let context = &self.routed.arrival.context;
        record_verdict(
            context,
            verdict,
            self.rules(),
            &self.client,
            self.routed.now,
        );
    }

    fn on_holdings(&self, holdings: Holdings) {
        let arrival = &self.routed.arrival;
        let permits = holdings.permits.as_ref();
        if let Some(permits) = permits.filter(|permits| permits.may_be_lost()) {
            arrival.downstream.deadlines().watch_permits(permits);
        }
        arrival.context.holdings.replace(Some(holdings));
    }

    fn on_shed(&self, shed: &Shed) {
        if let Some(pressure) = self.pressure() {
            pressure.record_shed(shed);
        }
    }
}

/// The limits of a request's route. They keep the request's configuration alive.
pub struct RouteLimits {
    generation: Rc<Generation>,
    matched_route: MatchedRoute,
}

impl AppliedLimits for RouteLimits {
    fn rules(&self) -> &Rules {
        &self.matched_route.route(&self.generation.ruleset).rules
    }

    fn clock(&self) -> &Clock {
        &self.generation.clock
    }
}

/// The class of a request when the upstream is under pressure: the priority of the route, or else of the client's plan, or
/// else normal.
pub fn request_class(
    route: &Route,
    client: &ClientIdentity,
    identifier: &Identifier,
) -> RequestClass {
    let plan_priority = || identifier.settings().plan.priority(client.plan);
    match route.priority.or_else(plan_priority).unwrap_or_default() {
        Priority::Critical => RequestClass::Critical,
        Priority::Normal => RequestClass::Normal,
        Priority::Low => RequestClass::Low,
    }
}

/// The number that decides which clients of a class are shed first: the low 64 bits of the hash of the user, or else of
/// the address.
pub fn shed_cohort(client: &ClientIdentity, identifier: &Identifier) -> u64 {
    let hash_identity = |identity| {
        let key = identifier.single_identity_key(client, identity);
        key.map(|key| key.0 as u64)
    };
    hash_identity(Identity::User)
        .or_else(|| hash_identity(Identity::Ip))
        .unwrap_or_default()
}
