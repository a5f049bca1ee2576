//! The throttle's tower layer, its service and its future. They take a slot of the upstream, decide about the request, and
//! wait if a shared store or a leaky bucket makes them. Then they call the inner service, and settle what the response
//! states. They never touch a counter themselves.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::admission::{AdmissionOutcome, PendingDecision, RequestProgress, Ticket, Verdict};
use super::headers::RateLimitHeaders;
use super::request::{AppliedLimits, Denied, FailedRequest, RequestEnd, ThrottledRequest};
use super::settle::Settle;
use crate::http::head::Fields;
use crate::limit::pressure::{Shed, UpstreamSlot};

/// Puts [`ThrottleService`] around a service.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThrottleLayer;

impl<S> Layer<S> for ThrottleLayer {
    type Service = ThrottleService<S>;

    fn layer(&self, inner: S) -> ThrottleService<S> {
        ThrottleService { inner }
    }
}

/// Decides about each request and calls the inner service with admitted requests. Adds the rate-limit headers to
/// responses and settles what requests have reserved.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleService<S> {
    inner: S,
}

impl<R, S> Service<R> for ThrottleService<S>
where
    R: ThrottledRequest,
    S: Service<R::Admitted, Response: Settle> + Clone,
    S::Error: for<'v> From<Denied<'v, R>> + FailedRequest,
{
    type Response = <S::Response as Settle>::Settling;
    type Error = S::Error;
    type Future = ThrottleFuture<R, S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> ThrottleFuture<R, S> {
        let slot = match request.take_slot() {
            Ok(slot) => slot,
            Err(shed) => return ThrottleFuture::shed(request, shed),
        };
        let mut outcome = AdmissionOutcome::default();
        let admission = request.admission();
        match admission.decide(
            &request.admission_request(),
            request.prepared(),
            &mut outcome,
        ) {
            None => self.conclude(request, slot, &outcome.verdict, outcome.ticket),
            Some(decision) => {
                if let Some(slot) = &slot {
                    // A request that waits for the store is no load for the upstream.
                    slot.wait_for_client(true);
                }
                // tower wants the service called that `poll_ready` was called on, so its clone stays behind.
                let clone_for_later = self.inner.clone();
                let ready_service = ThrottleService {
                    inner: std::mem::replace(&mut self.inner, clone_for_later),
                };
                // This is boxed because only shared limits need it: else the future of every request would be as large.
                let undecided = Some(Box::new(UndecidedRequest {
                    request,
                    slot,
                    ready_service,
                }));
                ThrottleFuture::WaitingForStore {
                    decision,
                    undecided,
                }
            }
        }
    }
}

impl<S> ThrottleService<S> {
    /// Acts on the decision about a request: forwards the request, holds it back first, or ends it with an error.
    fn conclude<R>(
        &mut self,
        request: R,
        slot: Option<UpstreamSlot>,
        verdict: &Verdict,
        mut ticket: Ticket,
    ) -> ThrottleFuture<R, S>
    where
        R: ThrottledRequest,
        S: Service<R::Admitted, Response: Settle> + Clone,
        S::Error: for<'v> From<Denied<'v, R>> + FailedRequest,
    {
        request.on_verdict(verdict);
        if !verdict.is_admitted {
            if !ticket.is_settled() {
                // Shadow limits have reserved units; a request that other limits refuse uses none of them.
                ticket.settle(RequestProgress::Unsent, request.admission_request().now);
            }
            return ThrottleFuture::denied(request, verdict, None);
        }
        if let Some(holdings) = ticket.holdings() {
            request.on_holdings(holdings);
        }
        if let Some(slot) = &slot {
            slot.record_admission(verdict.borrows(request.admission_request().rules));
            // A delayed request is no load for the upstream before it is sent.
            slot.wait_for_client(verdict.delay.0 > 0);
        }
        let style = request.header_style();
        let pending = PendingResponse {
            rate_limit_headers: RateLimitHeaders::new(
                verdict,
                request.admission_request().rules,
                style,
            ),
            ticket,
            limits: request.limits(),
        };
        let delay = verdict.delay;
        let admitted = request.into_admitted(verdict, slot);
        if delay.0 > 0 {
            let sleep = Box::pin(tokio::time::sleep(delay.into()));
            // tower wants the service called that `poll_ready` was called on, so its clone stays behind.
            let clone_for_later = self.inner.clone();
            let ready_service = std::mem::replace(&mut self.inner, clone_for_later);
            // This is boxed because it is rare: else the future of every request would be as large.
            let delayed = Some(Box::new(DelayedRequest {
                admitted,
                ready_service,
                pending,
            }));
            return ThrottleFuture::Delayed { sleep, delayed };
        }
        ThrottleFuture::Forwarding {
            future: self.inner.call(admitted),
            pending: Some(pending),
        }
    }
}

/// A request that waits for the decision of a shared store.
pub struct UndecidedRequest<R, S> {
    request: R,
    slot: Option<UpstreamSlot>,
    /// The service that `poll_ready` was called on.
    ready_service: ThrottleService<S>,
}

/// An admitted request that a leaky bucket holds back.
pub struct DelayedRequest<A, S, L> {
    admitted: A,
    /// The inner service that `poll_ready` was called on.
    ready_service: S,
    pending: PendingResponse<L>,
}

/// What the layer keeps of an admitted request until its response is there.
pub struct PendingResponse<L> {
    rate_limit_headers: RateLimitHeaders,
    ticket: Ticket,
    limits: L,
}

pin_project! {
    /// The future of [`ThrottleService`]. `Denied` ends it with an error. A request passes through the other states in this
    /// order, and skips those that it does not need.
    #[project = ThrottleFutureProject]
    #[allow(missing_docs)]
    pub enum ThrottleFuture<R: ThrottledRequest, S: Service<R::Admitted>> {
        Denied { error: Option<S::Error> },
        WaitingForStore { decision: PendingDecision, undecided: Option<Box<UndecidedRequest<R, S>>> },
        Delayed { sleep: Pin<Box<tokio::time::Sleep>>, delayed: Option<Box<DelayedRequest<R::Admitted, S, R::Limits>>> },
        Forwarding { #[pin] future: S::Future, pending: Option<PendingResponse<R::Limits>> },
    }
}

impl<R, S> ThrottleFuture<R, S>
where
    R: ThrottledRequest,
    S: Service<R::Admitted>,
    S::Error: for<'v> From<Denied<'v, R>>,
{
    fn denied(request: R, verdict: &Verdict, shed: Option<Shed>) -> ThrottleFuture<R, S> {
        let denied = Denied {
            request,
            verdict,
            shed,
        };
        ThrottleFuture::Denied {
            error: Some(S::Error::from(denied)),
        }
    }

    /// Ends a request that its upstream has no room for. The request takes nothing of any limit. If a limit refuses it
    /// too, the client gets that limit's refusal. Otherwise the client might come back too early, and be refused again.
    #[cold]
    fn shed(request: R, shed: Shed) -> ThrottleFuture<R, S> {
        let verdict = request.admission().peek(&request.admission_request());
        if verdict.is_admitted {
            request.on_shed(&shed);
            return ThrottleFuture::denied(request, &verdict, Some(shed));
        }
        request.on_verdict(&verdict);
        ThrottleFuture::denied(request, &verdict, None)
    }
}

impl<R, S> Future for ThrottleFuture<R, S>
where
    R: ThrottledRequest,
    S: Service<R::Admitted, Response: Settle> + Clone,
    S::Error: for<'v> From<Denied<'v, R>> + FailedRequest,
{
    type Output = Result<<S::Response as Settle>::Settling, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.as_mut().project() {
                ThrottleFutureProject::Denied { error } => {
                    // A future that is polled after its end stays pending, in this state and in the others.
                    return error.take().map_or(Poll::Pending, |e| Poll::Ready(Err(e)));
                }
                ThrottleFutureProject::WaitingForStore {
                    decision,
                    undecided,
                } => {
                    let (verdict, ticket) = ready!(decision.as_mut().poll(cx));
                    let Some(undecided) = undecided.take() else {
                        return Poll::Pending;
                    };
                    let UndecidedRequest {
                        request,
                        slot,
                        mut ready_service,
                    } = *undecided;
                    let next_state = ready_service.conclude(request, slot, &verdict, ticket);
                    self.set(next_state);
                }
                ThrottleFutureProject::Delayed { sleep, delayed } => {
                    ready!(sleep.as_mut().poll(cx));
                    let Some(mut delayed) = delayed.take() else {
                        return Poll::Pending;
                    };
                    let future = delayed.ready_service.call(delayed.admitted);
                    self.set(ThrottleFuture::Forwarding {
                        future,
                        pending: Some(delayed.pending),
                    });
                }
                ThrottleFutureProject::Forwarding { future, pending } => {
                    let result = ready!(future.poll(cx));
                    return match pending.take() {
                        Some(pending) => Poll::Ready(pending.finish(result)),
                        None => Poll::Pending,
                    };
                }
            }
        }
    }
}

impl<L: AppliedLimits> PendingResponse<L> {
    /// Settles the reservations that the result decides, and adds the rate-limit headers to a response.
    fn finish<A: Settle, E: FailedRequest>(
        mut self,
        result: Result<A, E>,
    ) -> Result<A::Settling, E> {
        let mut response = match result {
            Ok(response) => response,
            Err(error) => {
                let fields = &Fields::default();
                let progress = match error.end() {
                    RequestEnd::Unsent => Some(RequestProgress::Unsent),
                    // A response of the gateway states no cost, so its fields and its body do not matter.
                    RequestEnd::Status(status) => Some(RequestProgress::Head {
                        status,
                        fields,
                        is_bodiless: true,
                    }),
                    // The ticket settles itself when it is dropped.
                    RequestEnd::Unknown => None,
                };
                if let Some(progress) = progress.filter(|_| !self.ticket.is_settled()) {
                    self.ticket.settle(progress, self.limits.clock().now());
                }
                return Err(error);
            }
        };
        if !self.ticket.is_settled() && response.tells_outcome() {
            let progress = RequestProgress::Head {
                status: response.status(),
                fields: response.fields(),
                is_bodiless: response.is_bodiless(),
            };
            self.ticket.settle(progress, self.limits.clock().now());
        }
        response.set_rate_limit_headers(&self.rate_limit_headers, self.limits.rules());
        let clock = self.limits.clock();
        let open_ticket = (!self.ticket.is_empty()).then(|| (self.ticket, clock.clone()));
        Ok(response.into_settling(open_ticket))
    }
}
