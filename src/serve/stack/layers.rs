//! The layers of the stack, in the order in which a request passes them. Read this file first.
//!
//! Each layer takes the type that the layer above hands on, so a wrong order does not compile. Every request enters the
//! stack, except the proof of an ACME challenge: see `serve/http1/exchanges.rs`.

use std::rc::Rc;

use tower::ServiceBuilder;

use super::forward::Forward;
use super::identify::{Identify, IdentifyLayer};
use super::observe::{Observe, ObserveLayer};
use super::routing::{Routing, RoutingLayer};
use crate::serve::access::WorkerLog;
use crate::throttle::{ThrottleLayer, ThrottleService};

/// The whole stack, as connections call it.
pub type Stack = Observe<Routing<Identify<ThrottleService<Forward>>>>;

/// Builds the stack of one worker. It holds no configuration: each request brings the generation that serves it.
pub fn build_stack(access_log: Rc<WorkerLog>) -> Stack {
    ServiceBuilder::new()
        // FreshRequest → Arrival: reads the time of arrival. However a request ends, it is counted and logged once.
        .layer(ObserveLayer { access_log })
        // Arrival → Routed, or 400 where the request has no safe reading, 404, 405, 421, or 408 for a late body.
        .layer(RoutingLayer)
        // Routed → Identified, or 400, 401, 408, 429: reads ahead in a body where a limit depends on it. A request that is
        // refused here or above is Unserved from then on, and limits count it too.
        .layer(IdentifyLayer)
        // Identified → Admitted, or 429, or 503 under pressure: before any connection to an upstream is touched. Unserved
        // stays Unserved, or 429.
        .layer(ThrottleLayer)
        // Admitted → Response, or 502, 503, 504, or 400, 408 for the client's body. Unserved → its own status.
        .service(Forward::default())
}
