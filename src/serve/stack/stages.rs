//! A request on its way down the stack: each layer takes one of these types and hands on the next.
//!
//! `FreshRequest` → `Arrival` → `Routed` → `Identified` → `Admitted`. One that the gateway answers itself is an
//! [`Ending`](super::ending::Ending) from then on.

use std::rc::Rc;
use std::sync::Arc;

use super::body::RequestBody;
use super::downstream::Downstream;
use super::matched::MatchedRoute;
use super::note::RequestNote;
use super::peer::Peer;
use super::reserve::Reserved;
use super::unreadable::Unreadable;
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::identity::ClientIdentity;
use crate::limit::Rules;
use crate::limit::pressure::{Pressure, UpstreamSlot};
use crate::route::Route;
use crate::serve::http1::repeat::{RepeatedFields, RouteRepeat};
use crate::serve::worker::generation::Generation;

/// A request before it is stamped.
pub struct FreshRequest {
    /// Its head.
    pub head: Result<Rc<Head>, Box<Unreadable>>,
    /// Where it comes from.
    pub downstream: Downstream,
    /// The connection it came over.
    pub peer: Rc<Peer>,
    /// The policies it is served by.
    pub generation: Rc<Generation>,
    /// What was made of the same fields before.
    pub repeated: Option<Rc<RepeatedFields>>,
}

/// A request as it came in; small, for every layer hands it on.
pub struct Arrival {
    /// Its head.
    pub head: Rc<Head>,
    /// Its body.
    pub body: RequestBody,
    /// Where it comes from.
    pub downstream: Downstream,
    /// What was made of the same fields before.
    pub repeated: Option<Rc<RepeatedFields>>,
    /// What the record will say of it.
    pub note: Rc<RequestNote>,
}

/// A request and the route it takes.
pub struct Routed {
    /// The request.
    pub arrival: Arrival,
    /// What counts it.
    pub matched: MatchedRoute,
    /// When: after what had to be read ahead, for limits must not be asked about the past.
    pub now: Nanos,
}

impl Routed {
    /// The route.
    pub fn route(&self) -> &Route {
        self.matched.route(&self.arrival.note.generation.ruleset)
    }
}

/// A request, its route and who asks.
pub struct Identified {
    /// The request and its route.
    pub routed: Routed,
    /// Who asks.
    pub who: Rc<ClientIdentity>,
    /// What was made of the same fields before.
    pub route_repeat: Option<Rc<RouteRepeat>>,
    /// What it holds of limits on cost.
    pub reserved: Reserved,
}

impl Identified {
    /// The pressure on its upstream, where something gives way to that.
    pub(super) fn pressure(&self) -> Option<&Arc<Pressure>> {
        let pools = &self.routed.arrival.note.generation.pools;
        pools[self.routed.route().upstream].servers().pressure()
    }

    /// The limits of its route.
    pub fn rules(&self) -> &Rules {
        &self.routed.route().rules
    }
}

/// A request that all its limits admit.
pub struct Admitted {
    /// The request, its route and who asks.
    pub identified: Identified,
    /// The soft and elastic limits it exceeds.
    pub over: Option<Box<str>>,
    /// Its place among the open requests of the upstream, where those are bounded by what it bears.
    pub slot: Option<UpstreamSlot>,
}
