//! The innermost service: sends an admitted request to its upstream and streams the response back. A request whose route
//! has a response in place of an upstream gets that one. An unserved request gets its own response too.
//!
//! This file is the service, and builds the head that the server gets. `forwarding.rs` sends that head to a server and
//! waits for the response. Whether the request is admitted was decided before.

use std::cell::Cell;
use std::future::{Future, Ready, ready};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, Method};
use http_body::Body;
use tower::Service;

use super::added_fields::{UpstreamClaims, add_proxy_fields};
use super::body::{AdmittedBody, RequestBody};
use super::changed_fields::{NamedValues, change_request};
use super::forwarding::{Forwarding, continue_trace};
use super::future_pool::{FuturePool, PooledFuture};
use super::message_gate::MessageLimits;
use super::own_response;
use super::proxy_fields;
use super::refusal::Refusal;
use super::request_id::RequestId;
use super::stages::{Admitted, Arrival, Identified, Routed};
use super::unserved::Unserved;
use super::upstream_load::LoadMeasurement;
use crate::http::head::{Fields, Head, Response, hop_by_hop};
use crate::identity::custom::Source;
use crate::identity::custom_value::IdentityValue;
use crate::identity::{ClientIdentity, Settings};
use crate::route::{FieldChanges, Route};
use crate::upstream::websocket;

/// The service that forwards admitted requests. Clones share the boxes of their futures.
#[derive(Clone)]
pub struct Forward {
    forwarded: AdmittedPool,
    /// For routes with a response of their own, and for proxies that ask.
    answered: AdmittedPool,
}

/// A pool of futures that serve admitted requests.
type AdmittedPool = FuturePool<Admitted, Result<Response<AdmittedBody>, Refusal>>;

impl Default for Forward {
    fn default() -> Forward {
        Forward {
            forwarded: FuturePool::new(forward_request),
            answered: FuturePool::new(|admitted: Admitted| {
                ready(own_response::respond(&admitted.identified))
            }),
        }
    }
}

impl Service<Admitted> for Forward {
    type Response = Response<AdmittedBody>;
    type Error = Refusal;
    type Future = PooledFuture<Admitted, Result<Response<AdmittedBody>, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, admitted: Admitted) -> Self::Future {
        let Routed { arrival, .. } = &admitted.identified.routed;
        let pool = match admitted.identified.routed.route().upstream_index() {
            Some(_) if !arrival.context.peer.is_check() => &self.forwarded,
            _ => &self.answered,
        };
        pool.run(admitted)
    }
}

/// Refuses an unserved request, which its limits have admitted, for the cause that made it unserved.
impl Service<Unserved> for Forward {
    type Response = Response<AdmittedBody>;
    type Error = Refusal;
    type Future = Ready<Result<Response<AdmittedBody>, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, unserved: Unserved) -> Self::Future {
        let fields = &unserved.arrival.head.fields;
        ready(Err(Refusal::unsent(unserved.cause, fields)))
    }
}

/// Forwards a request whose route has an upstream. An `async fn` would keep the whole `Admitted` in its future, beside the
/// parts that it uses.
fn forward_request(
    admitted: Admitted,
) -> impl Future<Output = Result<Response<AdmittedBody>, Refusal>> {
    let Admitted {
        identified,
        exceeded_limits,
        slot,
    } = admitted;
    let route = identified.routed.route();
    // `call` hands on no other routes.
    let upstream_index = route.upstream_index().unwrap_or_default();
    let route_index = identified.routed.matched_route.route_index;
    let is_cost_in_body = route.reads.cost_in_body;
    let context = &identified.routed.arrival.context;
    let placement_hash = |identities| {
        context
            .generation
            .identifier
            .placement_hash(&identified.client, identities)
    };
    let balance_key = context.generation.pools[upstream_index]
        .hashed_identities()
        .and_then(placement_hash);
    let head = build_or_reuse_head(&identified, upstream_index, exceeded_limits);
    let head = match context.request_id() {
        Some(request_id) => request_id.copy_to_head(&head),
        None => head,
    };
    let head = continue_trace(context, head);
    let is_websocket = |protocol: &Bytes| websocket::is_websocket(protocol);
    let opens_websocket = || head.upgrade.as_ref().is_some_and(is_websocket);
    let message_limits = (route.reads.messages && opens_websocket()).then(|| {
        Box::new(MessageLimits::new(
            &route.rules,
            &identified.client,
            context,
            upstream_index,
        ))
    });
    let counts_bytes_in = route.reads.bytes_in;
    let request_changes = route.request_changes.clone();
    let Arrival {
        mut body,
        downstream,
        context,
        ..
    } = identified.routed.arrival;
    if let Some(passed_bytes) = counts_bytes_in.then(|| context.passed_bytes()).flatten() {
        body.count_bytes(passed_bytes);
    }
    if let Some(changes) = request_changes {
        body.guard_trailers(&changes);
    }
    async move {
        let generation = &context.generation;
        let pool = &generation.pools[upstream_index];
        let start_measurement = |slot| {
            let kind = generation.request_kinds[route_index];
            LoadMeasurement::new(slot, kind, generation.clock.clone())
        };
        let forwarding = Forwarding {
            pool,
            balance_key,
            downstream: &downstream,
            context: &context,
            load_measurement: slot.map(start_measurement),
            message_limits: Cell::new(message_limits),
        };
        match forwarding.run(&head, body).await {
            Ok(mut response) => {
                forwarding.adapt_response(&mut response.head, &head, is_cost_in_body);
                Ok(response.map(AdmittedBody::Relayed))
            }
            Err(cause) => {
                forwarding.record_failure(&cause);
                Err(Refusal::new(cause, &head.fields))
            }
        }
    }
}

/// The name and the value of the header field of each custom identity that is forwarded. Hashes and ambiguous values are
/// left out, because an upstream could not use them.
fn forwarded_custom_identities<'s>(
    client: &ClientIdentity,
    settings: &'s Settings,
) -> Vec<(&'s HeaderName, String)> {
    let fields = settings.custom.iter().filter_map(|custom| {
        let name = custom.forwarded_as.as_ref()?;
        match client.custom_value(custom.identity)? {
            // A claim may be a list, so a comma in one of its names would look like two names.
            IdentityValue::Names(names)
                if matches!(custom.source, Source::Claim(_))
                    && names.iter().any(|name| name.contains(',')) =>
            {
                None
            }
            IdentityValue::Names(names) => Some((name, names.join(", "))),
            IdentityValue::Hash(_) | IdentityValue::Ambiguous => None,
        }
    });
    fields.collect()
}

/// Builds the head that the upstream gets, or takes it from the connection if it was built for the same fields before.
/// The fields of the request's id and its trace are still missing.
fn build_or_reuse_head(
    identified: &Identified,
    upstream_index: usize,
    exceeded_limits: Option<Box<str>>,
) -> Rc<Head> {
    let Identified {
        routed,
        client,
        route_decision,
        ..
    } = identified;
    let Arrival {
        head: received_head,
        body,
        downstream,
        context,
        ..
    } = &routed.arrival;
    let route = routed.route();
    let request_changes = route.request_changes.as_deref();
    let differs_each_time = request_changes.is_some_and(FieldChanges::differ_each_time);
    let reusable_decision = route_decision
        .as_ref()
        .filter(|_| exceeded_limits.is_none() && !differs_each_time);
    let reused_head = reusable_decision.and_then(|decision| {
        decision.forwarded_head(received_head, || forwarded_line(received_head, route))
    });
    if let Some(head) = reused_head {
        return head;
    }
    let peer = &context.peer;
    let generation = &context.generation;
    let plans = &generation.ruleset.identity.plan.plans;
    let claims = UpstreamClaims {
        user: client.user.as_deref(),
        plan: client.plan.map(|index| &*plans[index].name),
        custom_identities: forwarded_custom_identities(client, &generation.ruleset.identity),
        exceeded_limits,
    };
    let mut fields = received_head.fields.clone();
    // Fields that the client lists in `Connection` are removed before the gateway adds its own fields, so that the client
    // cannot have those removed. Nor can it have a field removed by which it was counted.
    hop_by_hop::strip_connection_fields_except(&mut fields, |name| {
        generation.identifier.is_identity_field(name)
    });
    // A trusted proxy's fields may name a host or a path, which must not lead the upstream to another route.
    let has_proxy_fields = generation.identifier.strip(peer.remote, &mut fields);
    let keeps_path_field =
        has_proxy_fields && proxy_fields::retain_fields_of_route(&mut fields, routed);
    claims.add_to(&mut fields);
    add_proxy_fields(
        &mut fields,
        peer,
        downstream.via_element(received_head.version),
    );
    let pool = &generation.pools[upstream_index];
    if let Some(host) = &pool.settings().host {
        fields.set("host", host.as_bytes());
    } else if !fields.contains("host") {
        fields.add("host", pool.host().as_bytes());
    }
    if let Some(changes) = request_changes {
        let values = NamedValues {
            client: Some(client),
            host: received_head.fields.text("host"),
            route_name: &route.name,
            ruleset: &context.generation.ruleset,
            request_id: context.request_id().map(RequestId::as_str),
            peer: Some(&context.peer),
        };
        change_request(&mut fields, changes, &values);
    }
    adapt_request_fields(&mut fields, route, body);
    if reusable_decision.is_some() {
        // Heads of later requests share these bytes.
        fields = fields.to_shared();
    }
    let head = Rc::new(Head {
        fields,
        ..forwarded_line(received_head, route)
    });
    // A kept field that names a path may be wrong for the next request, which may have another method.
    if let Some(decision) = reusable_decision.filter(|_| !keeps_path_field) {
        decision.remember_forwarded_head(received_head.clone(), head.clone());
    }
    head
}

/// The head that the upstream gets, without its fields: the method, and the target as the policy changes it.
fn forwarded_line(received: &Head, route: &Route) -> Head {
    let mut head = received.without_fields();
    if head.method == Method::HEAD && route.reads.cost_in_body {
        // The response to GET states its cost in the body. The client gets only the head of that response.
        head.method = Method::GET;
    }
    if let Some(path_change) = &route.path_change {
        // The route has refused every path that cannot be changed. The default is the root.
        head.uri = path_change
            .forwarded_target(&received.uri)
            .unwrap_or_default();
    }
    head
}

/// Changes the fields of a request that would hide the cost in its response, or would be wrong for the body as it is sent.
fn adapt_request_fields(fields: &mut Fields, route: &Route, body: &RequestBody) {
    if route.reads.cost_in_body || route.reads.cost_by_length {
        // Decompression costs time, and a response that is compressed on the fly has no length in its head.
        fields.set("accept-encoding", b"identity");
    }
    if route.reads.cost_in_body {
        // A part of a body may lack the cost.
        fields.remove("range");
        // Apache reads Request-Range where there is no Range.
        fields.remove("request-range");
    }
    if body.size_hint().exact().is_none() {
        // Such a body is sent in chunks, even if an HTTP/2 client gave a length before its trailers.
        fields.remove("content-length");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum bytes of the future of one request. A worker keeps the empty boxes of many: see `future_pool.rs`.
    const MAX_FUTURE_BYTES: usize = 800;

    fn future_bytes<F>(_: fn(Admitted) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_is_small() {
        let bytes = future_bytes(forward_request);
        assert!(bytes <= MAX_FUTURE_BYTES, "{bytes}");
    }
}
