//! THE stack: what happens to a request, in order. Read this first.
//!
//! Each layer takes the type that the layer above gives it, so a wrong order does not compile.

use std::rc::Rc;

use http::Response;
use tower::ServiceBuilder;
use tower::util::MapResponse;

use super::access::Access;
use super::body::{Relay, ReplyBody};
use super::forward::Forward;
use super::identify::{Identify, IdentifyLayer};
use super::record::{Record, RecordLayer};
use super::routing::{RouteLayer, Routing};
use crate::throttle::{Settling, Throttle, ThrottleLayer};

type Relayed = fn(Response<Settling<Relay>>) -> Response<ReplyBody>;

/// The whole stack.
pub type Stack = Record<Routing<Identify<MapResponse<Throttle<Forward>, Relayed>>>>;

/// Builds the stack. It holds no state of its own: each request brings the policies it is served by.
pub fn stack(access: Rc<Access>) -> Stack {
    ServiceBuilder::new()
        // Fresh → Arrival: stamps the time once; whatever happens, one line and one count.
        .layer(RecordLayer { access })
        // Arrival → Routed, or 400 for what two readers could read differently, 404, 405.
        .layer(RouteLayer)
        // Routed → Identified, or 401: who asks, reading ahead in a body where a limit needs it.
        .layer(IdentifyLayer)
        // The answers below come from an upstream, those above from the gateway.
        .map_response(relayed as Relayed)
        // Identified → Admitted, or 429: before any connection to an upstream is touched.
        .layer(ThrottleLayer)
        // Admitted → Response, or 502, 504.
        .service(Forward)
}

fn relayed(response: Response<Settling<Relay>>) -> Response<ReplyBody> {
    response.map(ReplyBody::Relayed)
}
