//! Requests that go on after their client has left, because a limit depends on their end. Limits on cost wait for the
//! response. Permits count the work of the server, which goes on whether or not anybody waits for it.
//!
//! The response of such a request is read to its end and discarded. Where only permits depend on it, the gateway
//! cancels the request and waits for the server to end it. The same happens to a request that was not sent whole, or
//! whose server was too slow.
//!
//! Bounds: [`MAX_TIME`] and [`MAX_BYTES`] for each request, [`MAX_REQUESTS`] for each worker. Beyond them the
//! connection to the server closes. The units that the request reserved are charged, or the cost read so far if that is
//! more. Where the end of a server's work cannot be observed, permits stay in use for [`UNOBSERVED_TIME`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};

use super::body::{Relay, RequestBody};
use crate::base::clock::Nanos;
use crate::http::head::Response;
use crate::serve::worker::deadlines::{DeadlineClock, Deadlines};
use crate::store::permits::PermitGuard;
use crate::throttle::{PendingSettlement, SettlingBody};
use crate::upstream::{Exchange, ReceivedHead, UpstreamBody};

/// How long a request goes on without its client.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Most bytes that are read of a response whose client has left.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Most requests of a worker that go on without their clients at the same time.
const MAX_REQUESTS: usize = 4096;

/// How long permits stay in use where the end of the server's work cannot be observed. Over HTTP/2 it cannot once the
/// request is cancelled.
const UNOBSERVED_TIME: Duration = Duration::from_secs(10);

/// Most requests of a worker that hold permits for [`UNOBSERVED_TIME`]; beyond it the oldest return theirs.
const MAX_UNOBSERVED: usize = 65_536;

/// The detached requests of one worker.
#[derive(Debug)]
pub struct DetachedRequests {
    deadline_clock: Rc<DeadlineClock>,
    /// How many are under way, of [`MAX_REQUESTS`].
    open: Cell<usize>,
    /// Permits of unobserved servers, oldest first, and when they are returned.
    unobserved: RefCell<VecDeque<(Nanos, Arc<PermitGuard>)>>,
    /// The worker is about to end.
    is_closed: Cell<bool>,
}

impl DetachedRequests {
    /// A worker without detached requests. `deadline_clock` wakes those whose servers are late.
    pub fn new(deadline_clock: Rc<DeadlineClock>) -> Rc<DetachedRequests> {
        Rc::new(DetachedRequests {
            deadline_clock,
            open: Cell::new(0),
            unobserved: RefCell::default(),
            is_closed: Cell::new(false),
        })
    }

    /// Detaches no more requests, and returns the permits of unobserved servers.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.unobserved.take();
    }

    /// Returns the permits whose time is over.
    pub fn tick(&self) {
        let now = self.deadline_clock.coarse_now();
        let unobserved = &mut *self.unobserved.borrow_mut();
        while unobserved
            .pop_front_if(|(until, _)| *until <= now)
            .is_some()
        {}
    }

    fn has_room(&self) -> bool {
        self.open.get() < MAX_REQUESTS && !self.is_closed.get()
    }

    /// Holds permits for [`UNOBSERVED_TIME`], because the end of the server's work cannot be observed.
    fn hold_permits(&self, permits: Option<Arc<PermitGuard>>) {
        let Some(permits) = permits.filter(|_| !self.is_closed.get()) else {
            return;
        };
        let unobserved = &mut *self.unobserved.borrow_mut();
        if unobserved.len() == MAX_UNOBSERVED {
            unobserved.pop_front();
        }
        let until = self
            .deadline_clock
            .coarse_now()
            .after(UNOBSERVED_TIME.into());
        unobserved.push_back((until, permits));
    }
}

/// One of [`MAX_REQUESTS`] detached requests; counted until it is dropped.
struct DetachedRequest {
    registry: Rc<DetachedRequests>,
    permits: Option<Arc<PermitGuard>>,
}

impl DetachedRequest {
    /// Counts one more request; none if there is no room. Its permits are held for a while then.
    fn new(
        registry: &Rc<DetachedRequests>,
        permits: Option<Arc<PermitGuard>>,
    ) -> Option<DetachedRequest> {
        if !registry.has_room() {
            registry.hold_permits(permits);
            return None;
        }
        registry.open.update(|open| open + 1);
        Some(DetachedRequest {
            registry: registry.clone(),
            permits,
        })
    }

    /// Reads an exchange to its end, within [`MAX_BYTES`].
    async fn drain(&mut self, mut exchange: PendingExchange) {
        let has_permits = self.permits.is_some();
        let now = self.registry.deadline_clock.coarse_now();
        let mut bytes = 0;
        while bytes <= MAX_BYTES {
            match poll_fn(|cx| exchange.poll_step(has_permits, now, cx)).await {
                DrainStep::Bytes(more) => bytes += more,
                DrainStep::Ended => return,
                DrainStep::Unobservable => break,
            }
        }
        self.registry.hold_permits(self.permits.take());
    }
}

impl Drop for DetachedRequest {
    fn drop(&mut self) {
        self.registry.open.update(|open| open - 1);
    }
}

/// Finishes a request whose response has not begun, in the task that calls it. `into_relayed` takes the upstream's body
/// out of the response.
pub async fn finish_response<F, B>(
    mut future: Pin<&mut F>,
    into_relayed: impl FnOnce(B) -> Option<SettlingBody<Relay>>,
    permits: Option<Arc<PermitGuard>>,
    deadlines: &Deadlines,
    registry: &Rc<DetachedRequests>,
) where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    let Some(mut detached) = DetachedRequest::new(registry, permits) else {
        return;
    };
    // The request no longer waits for the client to read.
    deadlines.write_progressed();
    let drained = async {
        let result = poll_fn(|cx| {
            let _ = deadlines.must_close(cx);
            future.as_mut().poll(cx)
        });
        let Ok(response) = result.await;
        if let Some(body) = into_relayed(response.body) {
            detached.drain(PendingExchange::from_body(body)).await;
        }
    };
    let _ = tokio::time::timeout(MAX_TIME, drained).await;
}

/// Reads an exchange to its end in a task of its own.
pub fn spawn_drain(
    exchange: PendingExchange,
    permits: Option<Arc<PermitGuard>>,
    registry: &Rc<DetachedRequests>,
) {
    let Some(mut detached) = DetachedRequest::new(registry, permits) else {
        return;
    };
    tokio::task::spawn_local(async move {
        let drained = detached.drain(exchange);
        let _ = tokio::time::timeout(MAX_TIME, drained).await;
    });
}

/// An exchange with a server, as far as it is still to come.
pub enum PendingExchange {
    /// The head of the response has not come.
    Head(Exchange<RequestBody>),
    /// The body has not ended, and only permits depend on its end.
    Body(UpstreamBody<RequestBody>),
    /// The body has not ended, and limits on cost wait for it.
    Settling(SettlingBody<Relay>),
}

/// The result of one step of draining an exchange.
enum DrainStep {
    /// This many bytes of the body were read.
    Bytes(u64),
    /// The server has ended its response, or its connection.
    Ended,
    /// The request was cancelled in such a way that the end of the server's work cannot be observed.
    Unobservable,
}

impl PendingExchange {
    /// The exchange whose response has this body.
    pub fn from_body(mut body: SettlingBody<Relay>) -> PendingExchange {
        match body.pending() {
            Some(PendingSettlement::Units) => PendingExchange::Settling(body),
            Some(PendingSettlement::Permits) | None => {
                PendingExchange::Body(body.inner_mut().take())
            }
        }
    }

    /// Polls for the next step. With permits, the end of the server's work is awaited even when nothing is left to
    /// settle.
    fn poll_step(
        &mut self,
        has_permits: bool,
        now: Nanos,
        cx: &mut Context<'_>,
    ) -> Poll<DrainStep> {
        loop {
            if !self.cancel(cx) {
                return Poll::Ready(DrainStep::Unobservable);
            }
            match self {
                PendingExchange::Head(exchange) => match ready!(exchange.poll_head(cx)) {
                    Ok(ReceivedHead::Interim(_)) => {}
                    Ok(ReceivedHead::Final(_)) => self.begin_body(now),
                    Err(_) => return Poll::Ready(DrainStep::Ended),
                },
                PendingExchange::Body(body) => {
                    let frame = ready!(Pin::new(body).poll_frame(cx));
                    return Poll::Ready(match frame {
                        Some(Ok(frame)) => DrainStep::Bytes(data_length(&frame)),
                        Some(Err(_)) | None => DrainStep::Ended,
                    });
                }
                PendingExchange::Settling(body) => {
                    match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                        Some(Ok(frame)) => {
                            return Poll::Ready(DrainStep::Bytes(data_length(&frame)));
                        }
                        // An error may be the gateway's own timeout, while the server works on.
                        Some(Err(_)) | None if has_permits => {
                            *self = PendingExchange::Body(body.inner_mut().take())
                        }
                        Some(Err(_)) | None => return Poll::Ready(DrainStep::Ended),
                    }
                }
            }
        }
    }

    /// Cancels the request, unless limits wait for its response and it was sent whole. Returns whether the end of the
    /// server's work can be observed.
    fn cancel(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            PendingExchange::Head(exchange) => {
                exchange.cancel(cx);
                exchange.is_observable()
            }
            PendingExchange::Body(body) => {
                body.cancel(cx);
                body.is_observable()
            }
            PendingExchange::Settling(body) => body.inner_mut().poll_detached(cx),
        }
    }

    fn begin_body(&mut self, now: Nanos) {
        if let PendingExchange::Head(exchange) =
            std::mem::replace(self, PendingExchange::Body(UpstreamBody::empty()))
        {
            *self = PendingExchange::Body(exchange.into_body(now));
        }
    }
}

fn data_length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use smallvec::SmallVec;

    use super::*;
    use crate::base::clock::Clock;
    use crate::store::permits::Permits;

    /// The detached requests of a worker whose time stands still.
    fn registry() -> (Rc<DetachedRequests>, Clock) {
        let clock = Clock::manual(Nanos::from_secs(5));
        (
            DetachedRequests::new(DeadlineClock::new(clock.clone())),
            clock,
        )
    }

    fn permits() -> (Option<Arc<PermitGuard>>, Weak<PermitGuard>) {
        let (_, permits) = Arc::new(Permits::default()).take(&[], &mut SmallVec::new(), |_| true);
        let permits = Arc::new(permits);
        let observer = Arc::downgrade(&permits);
        (Some(permits), observer)
    }

    fn are_held(permits: &Weak<PermitGuard>) -> bool {
        permits.strong_count() > 0
    }

    #[test]
    fn permits_stay_out_for_their_time_where_no_request_may_go_on() {
        let (registry, clock) = registry();
        let others: Vec<_> = (0..MAX_REQUESTS)
            .map(|_| DetachedRequest::new(&registry, None))
            .collect();
        assert!(others.iter().all(Option::is_some));
        let (held_permits, observer) = permits();
        assert!(DetachedRequest::new(&registry, held_permits).is_none());
        let pass = |span: Duration| {
            clock.advance(span.into());
            registry.deadline_clock.tick();
            registry.tick();
            are_held(&observer)
        };
        assert!(are_held(&observer));
        assert!(pass(UNOBSERVED_TIME - Duration::from_millis(1)));
        assert!(!pass(Duration::from_millis(1)));
        drop(others);
        let (held_permits, observer) = permits();
        let detached = DetachedRequest::new(&registry, held_permits);
        assert!(detached.is_some() && are_held(&observer));
        drop(detached);
        assert!(!are_held(&observer));
    }

    #[test]
    fn beyond_the_bound_the_oldest_permits_come_back() {
        let (registry, _) = registry();
        let (held_permits, oldest) = permits();
        registry.hold_permits(held_permits);
        for _ in 1..MAX_UNOBSERVED {
            registry.hold_permits(permits().0);
        }
        assert!(are_held(&oldest));
        registry.hold_permits(permits().0);
        assert!(!are_held(&oldest));
        assert_eq!(registry.unobserved.borrow().len(), MAX_UNOBSERVED);
    }

    #[test]
    fn a_worker_that_ends_keeps_none() {
        let (registry, _) = registry();
        let (held_permits, before) = permits();
        registry.hold_permits(held_permits);
        registry.close();
        let (held_permits, after) = permits();
        assert!(DetachedRequest::new(&registry, held_permits).is_none());
        assert!(!are_held(&before) && !are_held(&after));
    }
}
