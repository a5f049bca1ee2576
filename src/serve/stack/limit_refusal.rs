//! Turns a request that the throttle has denied into a [`Refusal`]. The response comes from a cache if the same one was
//! built before.

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
        let response = route_refusal(&request, verdict);
        Refusal::limited(response)
    }
}

impl From<Denied<'_, Unserved>> for Refusal {
    fn from(denied: Denied<'_, Unserved>) -> Refusal {
        let Denied {
            request, verdict, ..
        } = denied;
        let mut response = unserved_refusal(&request, verdict);
        if request.cause.must_close() {
            let fields = &mut Rc::make_mut(&mut response).head.fields;
            fields.add("connection", b"close");
        }
        Refusal::limited(response)
    }
}

/// The response to a request that the limits of its route refuse. The connection's cache is asked first, then the
/// worker's.
fn route_refusal(request: &Identified, verdict: &Verdict) -> Rc<Response<Bytes>> {
    let repeat = request.route_repeat.as_ref();
    if let Some(response) = repeat.and_then(|repeat| repeat.refusal(verdict, request.routed.now)) {
        return response;
    }
    let arrival = &request.routed.arrival;
    let response = arrival.context.generation.refusals.get_or_build(
        &RefusedRequest {
            set: request.routed.matched.single_index(),
            rules: request.rules(),
            headers: request.routed.route().headers,
            is_grpc: match &arrival.repeated {
                Some(repeated) => repeated.features.grpc,
                None => reject::is_grpc(&arrival.head.fields),
            },
        },
        verdict,
    );
    if let Some(repeat) = repeat.filter(|_| verdict.is_repeated) {
        let valid_for = verdict.seconds_unchanged_for(request.rules());
        repeat.remember_refusal(response.clone(), request.routed.now.after(valid_for));
    }
    response
}

/// The response to a request that no upstream would serve, where the limits that count it refuse it.
fn unserved_refusal(request: &Unserved, verdict: &Verdict) -> Rc<Response<Bytes>> {
    let generation = &request.arrival.context.generation;
    let ruleset = &generation.ruleset;
    generation.refusals.get_or_build(
        &RefusedRequest {
            set: request.counted.set_number(ruleset),
            rules: request.rules(),
            headers: request.counted.header_style(ruleset),
            is_grpc: reject::is_grpc(&request.arrival.head.fields),
        },
        verdict,
    )
}
