//! The outermost layer: reads the time of arrival, counts and logs every request however it ends, and turns refusals into
//! responses. It never decides about a request.
//!
//! A request is recorded when its [`ObservedBody`] is dropped. Before there is a response, it is recorded when its future
//! is dropped, or by [`ObserveFuture::record_departure`].

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::body::{self, AdmittedBody, RequestBody, ResponseBody};
use super::detached::{self, PendingExchange};
use super::final_response::change_response_of;
use super::http_check;
use super::own_page;
use super::peer::Peer;
use super::refusal::Refusal;
use super::request_context::{AskedReply, ExtraFacts, InitialFacts, RequestContext};
use super::request_id::RequestId;
use super::request_outcome::RequestOutcome;
use super::sampling;
use super::span_facts::record_spans;
use super::stages::{Arrival, FreshRequest};
use super::traced_request::TracedRequest;
use super::unserved::Unserved;
use crate::base::telemetry::Metric;
use crate::http::head::{Head, Response};
use crate::serve::access::{self, WorkerLog};
use crate::serve::worker::generation::Generation;
use crate::throttle::SettlingBody;
use crate::throttle::admission::Holdings;

/// Counts, samples and logs a request when this value is dropped. The request's future holds it, and then the body of the
/// response.
pub(super) struct RecordOnDrop(pub(super) Rc<RequestContext>);

impl Drop for RecordOnDrop {
    fn drop(&mut self) {
        let context = &*self.0;
        if context.outcome() == RequestOutcome::Gone && context.has_lost_permits() {
            context.reason.set(Some(body::PERMITS_LOST));
        }
        let now = context.generation.clock.now();
        let counters = context.generation.route_counters(context.route_index.get());
        counters.requests_by_outcome[context.outcome() as usize].increment(1);
        if let Some(counters) = &context.generation.identity_counters
            && let Some(client) = context.client.get()
        {
            let ruleset = &context.generation.ruleset;
            counters.count(
                ruleset,
                client,
                context.route_index.get(),
                context.outcome(),
            );
        }
        counters
            .request_duration
            .observe(now.since(context.arrived_at));
        counters.response_bytes.increment(context.sent_bytes());
        if let Some(traced) = context.traced_request() {
            record_spans(context, traced, now);
        }
        sampling::record_sample(context, now);
        access::log_request(&context.access_log, context, now);
    }
}

/// The layer that wraps a service in [`Observe`].
#[derive(Clone)]
pub struct ObserveLayer {
    /// The worker's access log.
    pub access_log: Rc<WorkerLog>,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe {
            inner,
            access_log: self.access_log.clone(),
        }
    }
}

/// The service that records every request, and turns refusals into responses. It never fails.
#[derive(Clone)]
pub struct Observe<S> {
    inner: S,
    pub(super) access_log: Rc<WorkerLog>,
}

impl<S> Observe<S> {
    /// What the gateway file needs to know of the request besides; `None` if that is nothing.
    // Calls of Envoy's rate limit service need it too, which must cost other requests no call.
    #[inline(always)]
    pub(super) fn find_extra_facts(
        &self,
        head: &Head,
        peer: &Peer,
        generation: &Generation,
        traced: Option<Box<TracedRequest>>,
        asked_reply: Option<AskedReply>,
    ) -> Option<Box<ExtraFacts>> {
        let is_needed = generation.ruleset.needs_extra_facts
            || self.access_log.needs_extra_facts()
            || traced.is_some()
            || asked_reply.is_some();
        is_needed.then(|| {
            Box::new(ExtraFacts {
                request_id: RequestId::of_request(&head.fields, peer, generation),
                received_bytes: self.access_log.has_bytes_in().then(Rc::default),
                traced,
                asked_reply,
                ..ExtraFacts::default()
            })
        })
    }
}

impl<S> Service<FreshRequest> for Observe<S>
where
    S: Service<Arrival, Response = Response<SettlingBody<AdmittedBody>>, Error = Refusal>
        + Service<Unserved, Response = Response<SettlingBody<AdmittedBody>>, Error = Refusal>,
{
    type Response = Response<ObservedBody>;
    type Error = Infallible;
    type Future =
        ObserveFuture<Either<<S as Service<Arrival>>::Future, <S as Service<Unserved>>::Future>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: FreshRequest) -> Self::Future {
        let asked_reply = match request.peer.is_asking() {
            true => http_check::replace_by_asked(&mut request),
            false => None,
        };
        let FreshRequest {
            head,
            downstream,
            peer,
            generation,
            repeated_fields,
            spare_context,
        } = request;
        downstream.deadlines().report_request_begun();
        let arrived_at = generation.clock.now();
        let may_sample = || generation.insight.is_some() && generation.sampler.has_room(arrived_at);
        let (head, mut unreadable) = match head {
            Ok(head) => (head, None),
            Err(unreadable) => (Rc::default(), Some(unreadable)),
        };
        let (method, unreadable_path) = match &mut unreadable {
            None => (Some(head.method.clone()), None),
            Some(unreadable) => (
                unreadable.first_line.method.take(),
                unreadable.first_line.path.take(),
            ),
        };
        let traced = match (generation.ruleset.trace_sample, &peer.worker.tracer) {
            (Some(rate), Some(tracer)) => {
                TracedRequest::choose((tracer, rate), &head.fields, &peer, &generation)
            }
            _ => None,
        };
        let needs_head = self.access_log.may_log()
            || generation.ruleset.needs_heads_in_responses
            || traced.is_some()
            || may_sample();
        let facts = InitialFacts {
            arrived_at,
            method,
            head: (needs_head && unreadable.is_none()).then(|| head.clone()),
            unreadable_path,
            repeated_fields: repeated_fields.clone(),
            extra: self.find_extra_facts(&head, &peer, &generation, traced, asked_reply),
            peer,
            generation,
            access_log: self.access_log.clone(),
        };
        let context = RequestContext::begin(spare_context, facts);
        let record_on_drop = Some(RecordOnDrop(context.clone()));
        let arrival = Arrival {
            head,
            body: RequestBody::new(&downstream, &context.generation, context.received_bytes()),
            downstream,
            repeated_fields,
            context,
        };
        // Each future is built where it is returned, because it is large.
        match unreadable {
            None => ObserveFuture {
                future: Either::Left(self.inner.call(arrival)),
                record_on_drop,
            },
            Some(unreadable) => ObserveFuture {
                future: Either::Right(self.inner.call(Unserved::unrouted(
                    arrival,
                    unreadable.cause,
                    arrived_at,
                ))),
                record_on_drop,
            },
        }
    }
}

pin_project! {
    /// The future of [`Observe`].
    pub struct ObserveFuture<F> {
        #[pin]
        future: F,
        // `None` once the request was recorded, or its response holds the value.
        record_on_drop: Option<RecordOnDrop>,
    }
}

impl<F> ObserveFuture<F> {
    /// Records the request now, because its client has left or no longer gets a response, for this reason. Returns the
    /// permits and the reserved units that the request holds; `None` if it holds none, or was recorded already. With
    /// `Some`, the caller must let the exchange go on. A request that has lost its permits ends at once.
    pub fn record_departure(self: Pin<&mut Self>, reason: &'static str) -> Option<Holdings> {
        let RecordOnDrop(context) = &self.project().record_on_drop.take()?;
        context.has_client_left.set(true);
        if context.has_lost_permits() {
            context.reason.set(Some(body::PERMITS_LOST));
            return None;
        }
        context.reason.set(Some(reason));
        context.holdings.borrow().clone()
    }
}

impl<F> Future for ObserveFuture<F>
where
    F: Future<Output = Result<Response<SettlingBody<AdmittedBody>>, Refusal>>,
{
    type Output = Result<Response<ObservedBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let record_on_drop = this.record_on_drop.take();
        let context = record_on_drop.as_ref().map(|RecordOnDrop(context)| context);
        let mut response = match result {
            Ok(response) => {
                if let Some(context) = context {
                    context.outcome.set(RequestOutcome::Admitted);
                    context
                        .is_from_upstream
                        .set(!response.body.inner().is_own());
                }
                response.map(ResponseBody::Admitted)
            }
            Err(refusal) => {
                if let Some(context) = context {
                    context.outcome.set(refusal.outcome());
                    context.reason.set(refusal.reason());
                    // A refusal holds no permits, whether or not the client reads it.
                    if let Some(holdings) = &mut *context.holdings.borrow_mut() {
                        holdings.permits = None;
                    }
                }
                // To a proxy that asks, silence would be a failure, which it may take for an admission.
                let is_silent =
                    refusal.is_silent() && !context.is_some_and(|context| context.peer.is_asking());
                let mut response = refusal.into_response();
                if let Some(context) = context
                    && context.generation.ruleset.has_error_pages
                {
                    own_page::replace_body(context, &mut response);
                }
                if let Some(request_id) = context.and_then(|context| context.request_id()) {
                    request_id.add_to_problem(&mut response);
                }
                response.map(|body| match is_silent {
                    true => ResponseBody::Withheld,
                    false => ResponseBody::from_gateway(body),
                })
            }
        };
        if let Some(context) = context
            && !matches!(response.body, ResponseBody::Withheld)
        {
            let status = response.head.status.as_u16();
            context.status.set(status);
            let counters = context.generation.route_counters(context.route_index.get());
            counters.count_response(status, context.is_from_upstream());
            // A listener of `decide` outlives a reload that removes it.
            if context.generation.ruleset.changes_responses || context.peer.is_asking() {
                change_response_of(context, &mut response);
            }
        }
        Poll::Ready(Ok(response.map(|body| ObservedBody {
            body,
            record_on_drop,
        })))
    }
}

/// The body of a response. When the body is dropped, the request has ended and is recorded.
pub struct ObservedBody {
    body: ResponseBody,
    /// Records the request; `None` if the request is not observed, or was recorded already.
    record_on_drop: Option<RecordOnDrop>,
}

impl ObservedBody {
    /// The body of a response that is neither counted nor logged.
    pub fn unobserved(body: ResponseBody) -> ObservedBody {
        ObservedBody {
            body,
            record_on_drop: None,
        }
    }

    /// Ends the request, which is recorded. Returns its context for the next request of the connection; `None` if something
    /// still holds it.
    pub fn end(mut self) -> Option<Rc<RequestContext>> {
        self.end_unfinished();
        // What the body holds ends before the request is recorded.
        let spare_relay = self.body.take().into_spare_relay();
        let record_on_drop = self.record_on_drop.take()?;
        let mut context = record_on_drop.0.clone();
        drop(record_on_drop);
        Rc::get_mut(&mut context)?.clear(spare_relay);
        Some(context)
    }

    /// The body of the response to an admitted request, no longer observed; `None` if the request was refused.
    pub fn into_admitted(mut self) -> Option<SettlingBody<AdmittedBody>> {
        self.body.take().into_admitted()
    }

    /// Whether the client gets no response.
    pub fn is_withheld(&self) -> bool {
        matches!(self.body, ResponseBody::Withheld)
    }

    /// Whether the gateway itself responds. The request's body may be unread then.
    pub fn is_from_gateway(&self) -> bool {
        let body = self.body.admitted();
        body.is_none_or(|body| body.inner().is_own())
    }

    #[inline]
    fn end_unfinished(&mut self) {
        if self.record_on_drop.is_some() && !self.body.is_end_stream() {
            self.end_early();
        }
    }

    /// Records why the client does not get the whole body. The rest of a response that holds permits or reserved units is
    /// read without it.
    fn end_early(&mut self) {
        let Some(body) = self.body.admitted() else {
            return;
        };
        let Some(RecordOnDrop(context)) = &self.record_on_drop else {
            return;
        };
        if context.reason.get().is_none() && context.has_lost_permits() {
            context.reason.set(Some(body::PERMITS_LOST));
            return;
        }
        // A tunnel ends regularly when either side closes it.
        if context.reason.get().is_some() || context.status() == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        // A response to HEAD is whole without its body.
        if context.method != Some(Method::HEAD) {
            context.reason.set(Some(body::CLIENT_LEFT));
        }
        if body.pending().is_none() {
            return;
        }
        if let Some(mut body) = self.body.take().into_admitted() {
            let peer = &context.peer;
            let worker = &peer.worker;
            // The drained response gets deadlines of its own, because the connection goes on with those that it has.
            let deadlines = worker
                .deadline_clock
                .watch_connection(peer.idle_timeout, peer.header_timeout);
            deadlines.report_request_begun();
            body.inner_mut().detach(deadlines);
            let exchange = PendingExchange::from_body(body);
            detached::spawn_drain(exchange, context.permits(), &worker.detached_requests);
        }
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        self.end_unfinished();
    }
}

impl Body for ObservedBody {
    type Data = Bytes;
    type Error = body::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, body::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(RecordOnDrop(context)) = &this.record_on_drop {
            match &frame {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    context.sent_bytes.set(context.sent_bytes.get() + bytes);
                }
                Some(Err(error)) => record_broken_response(context, &mut this.body, error),
                None => {}
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Records that a response broke off. Unless the server itself has ended it, the server may still work on the request. So
/// the request's permits stay in use until the exchange ends.
#[cold]
fn record_broken_response(context: &RequestContext, body: &mut ResponseBody, error: &body::Error) {
    let reason = error.reason();
    context.reason.set(Some(reason));
    if !error.is_client_gone() {
        context.outcome.set(RequestOutcome::Failed);
    }
    let route_index = context
        .route_index
        .get()
        .filter(|_| error.is_upstream_failure());
    let routes = &context.generation.ruleset.routes;
    if let Some(upstream_index) = route_index.and_then(|index| routes[index].upstream_index()) {
        let upstream_name = &context.generation.pools[upstream_index].settings().name;
        let counter = context
            .peer
            .failure_counter(Metric::UpstreamErrors, upstream_name, reason);
        counter.increment(1);
    }
    if matches!(error, body::Error::Upstream(_)) {
        return;
    }
    if let Some(permits) = context.permits()
        && let Some(mut body) = body.take().into_admitted()
    {
        let exchange = PendingExchange::Body(body.inner_mut().take_upstream_body());
        detached::spawn_drain(
            exchange,
            Some(permits),
            &context.peer.worker.detached_requests,
        );
    }
}
