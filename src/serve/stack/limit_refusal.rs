//! Turns a request that the throttle has refused or shed into a [`Refusal`]. The response of a limit comes from a cache if
//! the same response is remembered; otherwise `throttle/reject.rs` builds it.

use std::rc::Rc;

use bytes::Bytes;

use super::refusal::{Refusal, RefusalCause};
use super::refusal_cache::RefusedRequest;
use super::stages::Identified;
use super::unserved::Unserved;
use crate::http::head::Response;
use crate::throttle::admission::Verdict;
use crate::throttle::{Denied, reject};

impl From<Denied<'_, Identified>> for Refusal {
    fn from(denied: Denied<'_, Identified>) -> Refusal {
        let Denied {
            request,
            verdict,
            shed,
        } = denied;
        let arrival = &request.routed.arrival;
        if let Some(shed) = shed {
            return Refusal::new(RefusalCause::Shed(shed), &arrival.head.fields);
        }
        let response = routed_response(&request, verdict);
        Refusal::limited(response)
    }
}

impl From<Denied<'_, Unserved>> for Refusal {
    fn from(denied: Denied<'_, Unserved>) -> Refusal {
        let Denied {
            request, verdict, ..
        } = denied;
        let mut response = unserved_response(&request, verdict);
        if request.cause.must_close() {
            let fields = &mut Rc::make_mut(&mut response).head.fields;
            fields.add("connection", b"close");
        }
        Refusal::limited(response)
    }
}

/// The response to a request that the limits of its route refuse. The connection's cache is searched first, then the cache
/// of the worker.
fn routed_response(request: &Identified, verdict: &Verdict) -> Rc<Response<Bytes>> {
    let decision = request.route_decision.as_ref();
    let remembered_response =
        decision.and_then(|decision| decision.refusal_response(verdict, request.routed.now));
    if let Some(response) = remembered_response {
        return response;
    }
    let arrival = &request.routed.arrival;
    let response = arrival.context.generation.refusal_cache.get_or_build(
        &RefusedRequest {
            limit_set_number: request.routed.matched_route.single_route_index(),
            rules: request.rules(),
            header_style: request.routed.route().headers,
            is_grpc: match &arrival.repeated_fields {
                Some(repeated_fields) => repeated_fields.features.is_grpc,
                None => reject::is_grpc(&arrival.head.fields),
            },
        },
        verdict,
    );
    if let Some(decision) = decision.filter(|_| verdict.is_repeated) {
        // After this time the response would state other seconds.
        let valid_for = verdict.seconds_unchanged_for(request.rules());
        decision.remember_refusal(response.clone(), request.routed.now.after(valid_for));
    }
    response
}

/// The response to an unserved request that the limits refuse.
fn unserved_response(request: &Unserved, verdict: &Verdict) -> Rc<Response<Bytes>> {
    let generation = &request.arrival.context.generation;
    let ruleset = &generation.ruleset;
    generation.refusal_cache.get_or_build(
        &RefusedRequest {
            limit_set_number: request.counting_limits.limit_set_number(ruleset),
            rules: request.rules(),
            header_style: request.counting_limits.header_style(ruleset),
            is_grpc: reject::is_grpc(&request.arrival.head.fields),
        },
        verdict,
    )
}
