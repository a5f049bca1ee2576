//! The outermost layer: reads the time once, counts and logs every request however it ends, and turns refusals into
//! responses.

use std::cell::{Cell, OnceCell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::Either;
use http::Method;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::body::{self, Relay, ReplyBody, RequestBody};
use super::detached::{self, PendingExchange};
use super::ending::Ending;
use super::note::RequestNote;
use super::outcome::RequestOutcome;
use super::refusal::Refusal;
use super::sampling;
use super::stages::{Arrival, FreshRequest};
use crate::base::telemetry::Metric;
use crate::http::head::Response;
use crate::serve::access::{self, WorkerLog};
use crate::throttle::Settling;
use crate::throttle::admission::Holdings;

/// Counts and logs the request when the last part of it is gone.
struct Recording(Rc<RequestNote>);

impl Drop for Recording {
    fn drop(&mut self) {
        let note = &*self.0;
        let now = note.generation.clock.now();
        let counters = note.generation.route_counters(note.route.get());
        counters.outcomes[note.outcome() as usize].increment(1);
        counters.duration.observe(now.since(note.at));
        counters.response_bytes.increment(note.sent());
        sampling::tell(note, now);
        access::log_request(&note.access, note, now);
    }
}

/// Puts [`Observe`] around the stack.
#[derive(Clone)]
pub struct ObserveLayer {
    /// Where requests are logged.
    pub access: Rc<WorkerLog>,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe {
            inner,
            access: self.access.clone(),
        }
    }
}

/// See [`ObserveLayer`].
#[derive(Clone)]
pub struct Observe<S> {
    inner: S,
    access: Rc<WorkerLog>,
}

impl<S> Service<FreshRequest> for Observe<S>
where
    S: Service<Arrival, Response = Response<Settling<Relay>>, Error = Refusal>
        + Service<Ending, Response = Response<Settling<Relay>>, Error = Refusal>,
{
    type Response = Response<ObservedBody>;
    type Error = Infallible;
    type Future =
        ObserveFuture<Either<<S as Service<Arrival>>::Future, <S as Service<Ending>>::Future>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, fresh: FreshRequest) -> Self::Future {
        let FreshRequest {
            head,
            downstream,
            peer,
            generation,
            repeated,
        } = fresh;
        downstream.guard().request_began();
        let at = generation.clock.now();
        let example = || generation.insight.is_some() && generation.sampler.has_room(at);
        let wanted = self.access.wants_targets() || example();
        let (head, mut unreadable) = match head {
            Ok(head) => (head, None),
            Err(unreadable) => (Rc::default(), Some(unreadable)),
        };
        let (method, path) = match &mut unreadable {
            None => (Some(head.method.clone()), None),
            Some(unreadable) => (unreadable.line.method.take(), unreadable.line.path.take()),
        };
        let note = Rc::new(RequestNote {
            at,
            method,
            head: (wanted && unreadable.is_none()).then(|| head.clone()),
            path,
            repeated: repeated.clone(),
            who: OnceCell::new(),
            route: Cell::new(None),
            limit: Cell::new(None),
            decision: Cell::new(None),
            alone: Cell::new(false),
            server: RefCell::new(None),
            reason: Cell::new(None),
            status: Cell::new(0),
            by_upstream: Cell::new(false),
            outcome: Cell::new(RequestOutcome::Gone),
            sent: Cell::new(0),
            holdings: RefCell::new(None),
            client_left: Cell::new(false),
            peer,
            generation,
            access: self.access.clone(),
        });
        let recording = Some(Recording(note.clone()));
        let arrival = Arrival {
            head,
            body: RequestBody::new(&downstream, &note.generation),
            downstream,
            repeated,
            note,
        };
        // Each is made where it is returned, because it is large.
        match unreadable {
            None => ObserveFuture {
                future: Either::Left(self.inner.call(arrival)),
                recording,
            },
            Some(unreadable) => ObserveFuture {
                future: Either::Right(self.inner.call(Ending::unrouted(
                    arrival,
                    unreadable.why,
                    at,
                ))),
                recording,
            },
        }
    }
}

pin_project! {
    /// The future of [`Observe`].
    pub struct ObserveFuture<F> {
        #[pin]
        future: F,
        recording: Option<Recording>,
    }
}

impl<F> ObserveFuture<F> {
    /// Counts and logs the request now: its client has left, or is taken to have for this reason. Returns what its limits
    /// hold until it ends; if there is something, the request must go on.
    pub fn leave(self: Pin<&mut Self>, reason: &'static str) -> Option<Holdings> {
        let recording = self.project().recording.take()?;
        let note = &recording.0;
        note.client_left.set(true);
        note.reason.set(Some(reason));
        note.holdings.borrow().clone()
    }
}

impl<F> Future for ObserveFuture<F>
where
    F: Future<Output = Result<Response<Settling<Relay>>, Refusal>>,
{
    type Output = Result<Response<ObservedBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let recording = this.recording.take();
        let note = recording.as_ref().map(|recording| &recording.0);
        let response = match result {
            Ok(response) => {
                if let Some(note) = note {
                    note.outcome.set(RequestOutcome::Admitted);
                    note.by_upstream.set(true);
                }
                response.map(ReplyBody::Relayed)
            }
            Err(refusal) => {
                if let Some(note) = note {
                    note.outcome.set(refusal.outcome());
                    note.reason.set(refusal.reason());
                    // A refusal holds no permits, whether or not the client reads it.
                    if let Some(holdings) = &mut *note.holdings.borrow_mut() {
                        holdings.permits = None;
                    }
                }
                refusal.into_response().map(ReplyBody::own)
            }
        };
        if let Some(note) = note {
            let status = response.head.status.as_u16();
            note.status.set(status);
            let counters = note.generation.route_counters(note.route.get());
            counters.count_response(status, note.by_upstream());
        }
        Poll::Ready(Ok(response.map(|inner| ObservedBody { inner, recording })))
    }
}

/// The body of a response. When it is dropped the request is over.
pub struct ObservedBody {
    inner: ReplyBody,
    recording: Option<Recording>,
}

impl ObservedBody {
    /// The body of a response that is neither counted nor logged.
    pub fn unobserved(inner: ReplyBody) -> ObservedBody {
        ObservedBody {
            inner,
            recording: None,
        }
    }

    /// The body that an upstream sends, no longer observed.
    pub fn into_relayed(mut self) -> Option<Settling<Relay>> {
        match self.inner.take() {
            ReplyBody::Relayed(body) => Some(body),
            ReplyBody::Own(_) => None,
        }
    }

    /// Whether the gateway itself responds, so that the request's body may be unread.
    pub fn is_own(&self) -> bool {
        matches!(self.inner, ReplyBody::Own(_))
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        let ReplyBody::Relayed(body) = &self.inner else {
            return;
        };
        let Some(Recording(note)) = self.recording.as_ref().filter(|_| !body.is_end_stream())
        else {
            return;
        };
        // A tunnel ends with either side.
        if note.reason.get().is_some() || note.status() == 101 {
            return;
        }
        // To HEAD the body is not sent.
        if note.method != Some(Method::HEAD) {
            note.reason.set(Some(body::CLIENT_LEFT));
        }
        if body.pending().is_none() {
            return;
        }
        if let ReplyBody::Relayed(mut body) = self.inner.take() {
            let (peer, worker) = (&note.peer, &note.peer.worker);
            let guard = worker.guards.watch_connection(peer.idle, peer.header);
            guard.request_began();
            body.inner_mut().detach(guard);
            detached::go_on(PendingExchange::of(body), note.permits(), &worker.detached);
        }
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
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(Recording(note)) = &this.recording {
            match &frame {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    note.sent.set(note.sent.get() + bytes);
                }
                Some(Err(error)) => note_broken_response(note, &mut this.inner, error),
                None => {}
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Notes that a response broke off. Where the gateway has given up, the server may work on, so permits stay out.
#[cold]
fn note_broken_response(note: &RequestNote, body: &mut ReplyBody, error: &body::Error) {
    let reason = error.reason();
    note.reason.set(Some(reason));
    if !error.is_client_gone() {
        note.outcome.set(RequestOutcome::Failed);
    }
    if let (true, Some(route)) = (error.is_upstream_failure(), note.route.get()) {
        let upstream = note.generation.ruleset.routes[route].upstream;
        let name = &note.generation.pools[upstream].settings().name;
        let counter = note.peer.failures(Metric::UpstreamErrors, name, reason);
        counter.increment(1);
    }
    if matches!(error, body::Error::Upstream(_)) {
        return;
    }
    if let Some(permits) = note.permits()
        && let ReplyBody::Relayed(mut body) = body.take()
    {
        let rest = PendingExchange::Body(body.inner_mut().take());
        detached::go_on(rest, Some(permits), &note.peer.worker.detached);
    }
}
