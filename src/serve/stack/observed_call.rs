//! A call of a door that answers it without the layers below [`Observe`]. It is counted, sampled and logged as any request.

use std::rc::Rc;

use http::StatusCode;

use super::downstream::Downstream;
use super::observe::{Observe, RecordOnDrop};
use super::peer::Peer;
use super::request_context::{InitialFacts, RequestContext};
use super::request_outcome::RequestOutcome;
use super::traced_request::TracedRequest;
use crate::http::head::Head;
use crate::serve::worker::generation::Generation;

/// A call that is recorded when this value is dropped; as one whose caller has left, unless it was concluded before.
pub struct ObservedCall(RecordOnDrop);

impl<S> Observe<S> {
    /// Begins the record of a call with this head.
    #[cold]
    #[inline(never)]
    pub fn observe_call(
        &self,
        head: &Rc<Head>,
        downstream: &Downstream,
        peer: Rc<Peer>,
        generation: Rc<Generation>,
    ) -> ObservedCall {
        downstream.deadlines().report_request_begun();
        let traced = match (generation.ruleset.trace_sample, &peer.worker.tracer) {
            (Some(rate), Some(tracer)) => {
                TracedRequest::choose((tracer, rate), &head.fields, &peer, &generation)
            }
            _ => None,
        };
        let facts = InitialFacts {
            arrived_at: generation.clock.now(),
            method: Some(head.method.clone()),
            head: Some(head.clone()),
            unreadable_path: None,
            repeated_fields: None,
            extra: self.find_extra_facts(head, &peer, &generation, traced, None),
            peer,
            generation,
            access_log: self.access_log.clone(),
        };
        ObservedCall(RecordOnDrop(RequestContext::begin(None, facts)))
    }
}

impl ObservedCall {
    /// What is reported of the call at its end.
    pub fn context(&self) -> &Rc<RequestContext> {
        let ObservedCall(RecordOnDrop(context)) = self;
        context
    }

    /// Notes the response of the call: its status, its length in bytes, and what has become of the call.
    pub fn conclude(&self, status: StatusCode, sent_bytes: usize, outcome: RequestOutcome) {
        let context = self.context();
        context.outcome.set(outcome);
        context.status.set(status.as_u16());
        context.sent_bytes.set(sent_bytes as u64);
        let counters = context.generation.route_counters(context.route_index.get());
        counters.count_response(status.as_u16(), false);
    }

    /// Notes which route the call is counted for.
    pub fn set_route(&self, route_index: usize) {
        let context = self.context();
        context.route_index.set(Some(route_index));
        let counters = context.generation.route_counters(Some(route_index));
        counters.started_requests.increment(1);
    }
}
