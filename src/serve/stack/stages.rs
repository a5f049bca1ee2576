//! The stages of a request on its way down the stack. Each layer takes one of these types and hands on the next. The types
//! hold the results of earlier layers and decide nothing.
//!
//! `FreshRequest` → `Arrival` → `Routed` → `Identified` → `Admitted`. A request that is refused before the throttle
//! becomes [`Unserved`](super::unserved::Unserved) instead.

use std::rc::Rc;
use std::sync::Arc;

use super::body::RequestBody;
use super::downstream::Downstream;
use super::matched_route::MatchedRoute;
use super::peer::Peer;
use super::request_context::RequestContext;
use super::reserved_units::ReservedUnits;
use super::unreadable_request::UnreadableRequest;
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::identity::ClientIdentity;
use crate::limit::Rules;
use crate::limit::pressure::{Pressure, UpstreamSlot};
use crate::route::Route;
use crate::serve::http1::repeat_cache::{RepeatedFields, RouteDecision};
use crate::serve::worker::generation::Generation;

/// A request as its connection has read it.
pub struct FreshRequest {
    /// The head, or why it could not be read.
    pub head: Result<Rc<Head>, Box<UnreadableRequest>>,
    /// The HTTP/1.1 connection or the HTTP/2 stream that the request comes from.
    pub downstream: Downstream,
    /// The client's end of the connection.
    pub peer: Rc<Peer>,
    /// The configuration that serves the request to its end, whatever is reloaded meanwhile.
    pub generation: Rc<Generation>,
    /// What the connection remembers of earlier requests with the same header fields.
    pub repeated_fields: Option<Rc<RepeatedFields>>,
    /// The context of the connection's last request, to be used again; `None` if there is none.
    pub spare_context: Option<Rc<RequestContext>>,
}

/// A request that is observed from now on. The type is small, because every layer moves it.
pub struct Arrival {
    /// Method, target and fields.
    pub head: Rc<Head>,
    /// The body. A layer that reads ahead in it puts the bytes back.
    pub body: RequestBody,
    /// The HTTP/1.1 connection or the HTTP/2 stream that the request comes from.
    pub downstream: Downstream,
    /// What the connection remembers of earlier requests with the same header fields.
    pub repeated_fields: Option<Rc<RepeatedFields>>,
    /// What the access log, the metrics and the samples will report.
    pub context: Rc<RequestContext>,
}

/// A request that has a route.
pub struct Routed {
    /// The request as it arrived.
    pub arrival: Arrival,
    /// The route, or several whose limits count together.
    pub matched_route: MatchedRoute,
    /// Whether the request is a preflight that gets its response here. Its route is that of the request it asks about.
    pub is_preflight: bool,
    /// The time at which limits count the request: of its arrival, or after the last read ahead in its body. Limits decide
    /// about the present only.
    pub now: Nanos,
}

impl Routed {
    /// The route with all limits that count the request.
    pub fn route(&self) -> &Route {
        self.matched_route
            .route(&self.arrival.context.generation.ruleset)
    }
}

/// A request whose client is identified.
pub struct Identified {
    /// The request with its route.
    pub routed: Routed,
    /// The identities of the client.
    pub client: Rc<ClientIdentity>,
    /// What the connection remembers of earlier requests with the same header fields on this route.
    pub route_decision: Option<Rc<RouteDecision>>,
    /// The units that the request takes of limits on cost at its admission.
    pub reserved_units: ReservedUnits,
}

impl Identified {
    /// The pressure on the upstream; `None` if no elastic limit and no priority depends on it, or if there is no upstream.
    pub(super) fn pressure(&self) -> Option<&Arc<Pressure>> {
        let generation = &self.routed.arrival.context.generation;
        generation.pressure_on(self.routed.route())
    }

    /// The limits of the route.
    pub fn rules(&self) -> &Rules {
        &self.routed.route().rules
    }
}

/// A request that all its limits admit, and that was not shed.
pub struct Admitted {
    /// The identified request.
    pub identified: Identified,
    /// The names of the soft and elastic limits that the request exceeds, separated by `, `; `None` if there are none.
    pub exceeded_limits: Option<Box<str>>,
    /// The request's slot among the open requests of the upstream; `None` if the pressure on the upstream is not measured.
    pub slot: Option<UpstreamSlot>,
}
