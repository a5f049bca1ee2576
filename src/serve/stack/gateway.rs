//! THE stack: what happens to a request, in order. Read this first.
//!
//! Each layer takes the type that the layer above gives it, so a wrong order does not compile.

use std::rc::Rc;

use tower::ServiceBuilder;

use super::forward::Forward;
use super::identify::{Identify, IdentifyLayer};
use super::observe::{Observe, ObserveLayer};
use super::routing::{RouteLayer, Routing};
use crate::serve::access::WorkerLog;
use crate::throttle::{Throttle, ThrottleLayer};

/// The whole stack.
pub type Stack = Observe<Routing<Identify<Throttle<Forward>>>>;

/// Builds the stack. It holds nothing that is decided by: each request brings the policies it is served by.
pub fn stack(access: Rc<WorkerLog>) -> Stack {
    ServiceBuilder::new()
        // FreshRequest → Arrival: stamps the time once; whatever happens, one line and one count.
        .layer(ObserveLayer { access })
        // Arrival → Routed, or 400 for what two readers could read differently, 404, 405.
        .layer(RouteLayer)
        // Routed → Identified, or 401: who asks, reading ahead in a body where a limit needs it.
        // What ends here or above is an Ending from then on, which limits count too.
        .layer(IdentifyLayer)
        // Identified → Admitted, or 429: before any connection to an upstream is touched. An Ending ends behind it.
        .layer(ThrottleLayer)
        // Admitted → Response, or 502, 503, 504.
        .service(Forward::default())
}
