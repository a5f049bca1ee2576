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

/// A request as its connection has read it.
pub struct FreshRequest {
    /// The head, or why it could not be read.
    pub head: Result<Rc<Head>, Box<Unreadable>>,
    /// The HTTP/1.1 connection or the HTTP/2 stream that it comes from.
    pub downstream: Downstream,
    /// The other end of the connection.
    pub peer: Rc<Peer>,
    /// The configuration that it is served by to its end, whatever is reloaded meanwhile.
    pub generation: Rc<Generation>,
    /// What the connection remembers of earlier requests with the same header fields.
    pub repeated: Option<Rc<RepeatedFields>>,
}

/// A request that is being observed. Small, because every layer moves it.
pub struct Arrival {
    /// Its head.
    pub head: Rc<Head>,
    /// Its body.
    pub body: RequestBody,
    /// The HTTP/1.1 connection or the HTTP/2 stream that it comes from.
    pub downstream: Downstream,
    /// What the connection remembers of earlier requests with the same header fields.
    pub repeated: Option<Rc<RepeatedFields>>,
    /// What the log, the counters and the samples will say of it.
    pub note: Rc<RequestNote>,
}

/// A request that has a route.
pub struct Routed {
    /// The request.
    pub arrival: Arrival,
    /// The route, or several whose limits count together.
    pub matched: MatchedRoute,
    /// The time for its limits: after any reading ahead, because limits must not be asked about the past.
    pub now: Nanos,
}

impl Routed {
    /// The route that it is held to.
    pub fn route(&self) -> &Route {
        self.matched.route(&self.arrival.note.generation.ruleset)
    }
}

/// A request whose client is identified.
pub struct Identified {
    /// The request with its route.
    pub routed: Routed,
    /// The identities of the client.
    pub who: Rc<ClientIdentity>,
    /// What the connection remembers of earlier requests with the same header fields on this route.
    pub route_repeat: Option<Rc<RouteRepeat>>,
    /// Units that it reserves of each limit on cost.
    pub reserved: Reserved,
}

impl Identified {
    /// The pressure on its upstream, if that has elastic limits or priorities.
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
    /// The identified request.
    pub identified: Identified,
    /// The soft and elastic limits it exceeds.
    pub over: Option<Box<str>>,
    /// Its place among the open requests of the upstream, where those are bounded by what it bears.
    pub slot: Option<UpstreamSlot>,
}
