//! The layers of the stack, in the order in which a request passes them. Read this file first.
//!
//! Each layer takes the type that the layer above hands on, so a wrong order does not compile. Nothing happens to a
//! request outside of these layers.

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
        // FreshRequest → Arrival: reads the time once. However a request ends, it is counted once and logged once.
        .layer(ObserveLayer { access_log })
        // Arrival → Routed, or 400 where two servers could read the request differently, 404, 405, 421.
        .layer(RoutingLayer)
        // Routed → Identified, or 401: reads ahead in a body where a limit counts by it.
        // A request that ends here or above is Unserved from then on, and limits count it too.
        .layer(IdentifyLayer)
        // Identified → Admitted, or 429: before any connection to an upstream is touched.
        .layer(ThrottleLayer)
        // Admitted → Response, or 502, 503, 504. An Unserved request gets its own status here.
        .service(Forward::default())
}
