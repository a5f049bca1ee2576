//! What a limit's refusal becomes: the response to a request that the throttle has turned away, from the caches where it
//! was made before.

use std::rc::Rc;

use bytes::Bytes;

use super::ending::Ending;
use super::refusal::{Refusal, RefusalCause};
use super::refusal_cache::RefusedRequest;
use super::stages::Identified;
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
        Refusal::with_grpc(RefusalCause::Limited(response), false)
    }
}

impl From<Denied<'_, Ending>> for Refusal {
    fn from(denied: Denied<'_, Ending>) -> Refusal {
        let Denied {
            request, verdict, ..
        } = denied;
        let mut response = ending_refusal(&request, verdict);
        if request.why.closes() {
            let fields = &mut Rc::make_mut(&mut response).head.fields;
            fields.add("connection", b"close");
        }
        Refusal::with_grpc(RefusalCause::Limited(response), false)
    }
}

/// The response to a request that the limits of its route refuse.
fn route_refusal(request: &Identified, verdict: &Verdict) -> Rc<Response<Bytes>> {
    let repeat = request.route_repeat.as_ref();
    if let Some(response) = repeat.and_then(|repeat| repeat.refusal(verdict, request.routed.now)) {
        return response;
    }
    let arrival = &request.routed.arrival;
    let response = arrival.note.generation.refusals.response(
        &RefusedRequest {
            set: request.routed.matched.alone(),
            rules: request.rules(),
            headers: request.routed.route().headers,
            grpc: match &arrival.repeated {
                Some(repeated) => repeated.features.grpc,
                None => reject::is_grpc(&arrival.head.fields),
            },
        },
        verdict,
    );
    if let Some(repeat) = repeat.filter(|_| verdict.repeated) {
        let same = verdict.seconds_unchanged_for(request.rules());
        repeat.remember_refusal(response.clone(), request.routed.now.after(same));
    }
    response
}

/// The response to a request that would end at the gateway anyway, and that the limits which count it refuse.
fn ending_refusal(request: &Ending, verdict: &Verdict) -> Rc<Response<Bytes>> {
    let generation = &request.arrival.note.generation;
    let ruleset = &generation.ruleset;
    generation.refusals.response(
        &RefusedRequest {
            set: request.counted.number(ruleset),
            rules: request.rules(),
            headers: request.counted.header_style(ruleset),
            grpc: reject::is_grpc(&request.arrival.head.fields),
        },
        verdict,
    )
}
