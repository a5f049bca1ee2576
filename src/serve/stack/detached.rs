//! Requests that go on after their client has left, because a limit depends on their end. Limits on cost wait for the
//! response. Permits count the work of the server, which goes on whether or not a client waits for it.
//!
//! The response of such a request is read to its end and discarded. Where only permits depend on it, the gateway
//! cancels the request and waits for the server to end it. The same happens to a request that was not sent whole, or
//! whose server was too slow.
//!
//! Bounds: [`MAX_DETACHED_TIME`] and [`MAX_DISCARDED_BYTES`] for each request, [`MAX_DETACHED_REQUESTS`] for each worker.
//! Beyond them the exchange is dropped: over HTTP/1.1 the connection to the server closes, over HTTP/2 the stream is
//! reset. The units that the request reserved are charged, or the cost read so far if that is more.
//!
//! The server may then still work on the request, unobserved. So its permits stay in use for [`UNOBSERVED_PERMIT_TIME`].
//! Beyond [`MAX_DETACHED_TIME`] they return at once, because they have been in use for a minute already.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select;
use http_body::{Body, Frame};

use super::body::{AdmittedBody, RequestBody};
use crate::base::clock::Nanos;
use crate::http::head::Response;
use crate::serve::worker::deadlines::{DeadlineClock, Deadlines, TICK};
use crate::store::permits::PermitGuard;
use crate::throttle::{PendingSettlement, SettlingBody};
use crate::upstream::{Exchange, ReceivedHead, UpstreamBody};

/// Longest time for which a request goes on without its client.
const MAX_DETACHED_TIME: Duration = Duration::from_secs(60);

/// Maximum bytes that are read of a response whose client has left.
const MAX_DISCARDED_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum number of a worker's requests that go on without their clients at the same time.
const MAX_DETACHED_REQUESTS: usize = 4096;

/// How long permits stay in use where the end of the server's work cannot be observed: over HTTP/2 once the request is
/// cancelled, and beyond [`MAX_DETACHED_REQUESTS`] or [`MAX_DISCARDED_BYTES`].
const UNOBSERVED_PERMIT_TIME: Duration = Duration::from_secs(10);

/// Maximum number of a worker's requests that hold permits for [`UNOBSERVED_PERMIT_TIME`]. Beyond it the permits of the
/// oldest request return.
const MAX_UNOBSERVED_PERMITS: usize = 65_536;

/// The detached requests of one worker.
#[derive(Debug)]
pub struct DetachedRequests {
    deadline_clock: Rc<DeadlineClock>,
    /// The number of detached requests that are under way; at most [`MAX_DETACHED_REQUESTS`].
    open_count: Cell<usize>,
    /// The permits of requests whose servers cannot be observed, oldest first.
    unobserved_permits: RefCell<VecDeque<UnobservedPermits>>,
    /// Whether the worker is about to end.
    is_closed: Cell<bool>,
}

/// The permits of one request whose server cannot be observed.
#[derive(Debug)]
struct UnobservedPermits {
    /// When the permits are returned, by the coarse clock of the worker.
    return_at: Nanos,
    /// Returns the permits when dropped.
    _permits: Arc<PermitGuard>,
}

impl DetachedRequests {
    /// A worker without detached requests. `deadline_clock` wakes the requests whose servers are late.
    pub fn new(deadline_clock: Rc<DeadlineClock>) -> Rc<DetachedRequests> {
        Rc::new(DetachedRequests {
            deadline_clock,
            open_count: Cell::new(0),
            unobserved_permits: RefCell::default(),
            is_closed: Cell::new(false),
        })
    }

    /// Lets no more requests be detached, and returns the permits of unobserved servers. Detached requests go on.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.unobserved_permits.take();
    }

    /// Returns the permits whose time is over.
    pub fn return_due_permits(&self) {
        let now = self.deadline_clock.coarse_now();
        let unobserved_permits = &mut *self.unobserved_permits.borrow_mut();
        while unobserved_permits
            .pop_front_if(|oldest| oldest.return_at <= now)
            .is_some()
        {}
    }

    /// Whether one more request may be detached.
    fn has_room(&self) -> bool {
        self.open_count.get() < MAX_DETACHED_REQUESTS && !self.is_closed.get()
    }

    /// Holds permits for [`UNOBSERVED_PERMIT_TIME`], because the end of the server's work cannot be observed.
    fn hold_permits(&self, permits: Option<Arc<PermitGuard>>) {
        let Some(permits) = permits.filter(|_| !self.is_closed.get()) else {
            return;
        };
        let unobserved_permits = &mut *self.unobserved_permits.borrow_mut();
        if unobserved_permits.len() == MAX_UNOBSERVED_PERMITS {
            unobserved_permits.pop_front();
        }
        let now = self.deadline_clock.coarse_now();
        unobserved_permits.push_back(UnobservedPermits {
            return_at: now.after(UNOBSERVED_PERMIT_TIME.into()),
            _permits: permits,
        });
    }
}

/// Counts a request as detached until this value is dropped, and holds the request's permits.
struct DetachedGuard {
    detached_requests: Rc<DetachedRequests>,
    permits: Option<Arc<PermitGuard>>,
}

impl DetachedGuard {
    /// Counts one more request. `None` if there is no room; then the permits are held for [`UNOBSERVED_PERMIT_TIME`].
    fn new(
        detached_requests: &Rc<DetachedRequests>,
        permits: Option<Arc<PermitGuard>>,
    ) -> Option<DetachedGuard> {
        if !detached_requests.has_room() {
            detached_requests.hold_permits(permits);
            return None;
        }
        detached_requests.open_count.update(|count| count + 1);
        Some(DetachedGuard {
            detached_requests: detached_requests.clone(),
            permits,
        })
    }

    /// Resolves when the request must end, because it has lost its permits. Pending for ever where they cannot be lost.
    fn until_revoked(&self) -> impl Future<Output = ()> + use<> {
        let permits = self.permits.clone().filter(|permits| permits.may_be_lost());
        async move {
            let Some(permits) = permits else {
                return std::future::pending().await;
            };
            while !permits.is_revoked() {
                tokio::time::sleep(TICK).await;
            }
        }
    }

    /// Reads an exchange to its end, within [`MAX_DISCARDED_BYTES`]. Permits are held for [`UNOBSERVED_PERMIT_TIME`] if
    /// the exchange has more bytes, or its end cannot be observed.
    async fn drain(&mut self, mut exchange: PendingExchange) {
        let has_permits = self.permits.is_some();
        let now = self.detached_requests.deadline_clock.coarse_now();
        let mut discarded_bytes = 0;
        while discarded_bytes <= MAX_DISCARDED_BYTES {
            match poll_fn(|cx| exchange.poll_step(has_permits, now, cx)).await {
                DrainStep::Bytes(bytes) => discarded_bytes += bytes,
                DrainStep::Ended => return,
                DrainStep::Unobservable => break,
            }
        }
        self.detached_requests.hold_permits(self.permits.take());
    }
}

impl Drop for DetachedGuard {
    fn drop(&mut self) {
        self.detached_requests.open_count.update(|count| count - 1);
    }
}

/// Finishes a request whose response has not begun, in the task that calls it, within [`MAX_DETACHED_TIME`]. Returns at
/// once if no more requests may be detached.
///
/// `into_admitted` takes the upstream's body out of the response; `None` if the gateway itself responds.
pub async fn finish_response<F, B>(
    mut response_future: Pin<&mut F>,
    into_admitted: impl FnOnce(B) -> Option<SettlingBody<AdmittedBody>>,
    permits: Option<Arc<PermitGuard>>,
    deadlines: &Deadlines,
    detached_requests: &Rc<DetachedRequests>,
) where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    let Some(mut guard) = DetachedGuard::new(detached_requests, permits) else {
        return;
    };
    let revoked = guard.until_revoked();
    // The request no longer waits for the client to read.
    deadlines.report_write_progress();
    let draining = async {
        let result = poll_fn(|cx| {
            // This call only registers the task to be woken at a deadline. `response_future` checks the deadline of the
            // server itself.
            let _ = deadlines.must_close(cx);
            response_future.as_mut().poll(cx)
        });
        let Ok(response) = result.await;
        if let Some(body) = into_admitted(response.body) {
            guard.drain(PendingExchange::from_body(body)).await;
        }
    };
    let draining = tokio::time::timeout(MAX_DETACHED_TIME, draining);
    let _ = select(pin!(draining), pin!(revoked)).await;
}

/// Reads an exchange to its end in a task of its own, within [`MAX_DETACHED_TIME`]. Drops the exchange if no more requests
/// may be detached.
pub fn spawn_drain(
    exchange: PendingExchange,
    permits: Option<Arc<PermitGuard>>,
    detached_requests: &Rc<DetachedRequests>,
) {
    let Some(mut guard) = DetachedGuard::new(detached_requests, permits) else {
        return;
    };
    tokio::task::spawn_local(async move {
        let revoked = guard.until_revoked();
        let draining = tokio::time::timeout(MAX_DETACHED_TIME, guard.drain(exchange));
        let _ = select(pin!(draining), pin!(revoked)).await;
    });
}

/// The part of an exchange with a server that is still to come.
pub enum PendingExchange {
    /// The head of the response has not come.
    Head(Exchange<RequestBody>),
    /// The body has not ended, and only permits depend on its end.
    Body(UpstreamBody<RequestBody>),
    /// The body has not ended, and limits on cost wait for it.
    Settling(SettlingBody<AdmittedBody>),
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
    pub fn from_body(mut body: SettlingBody<AdmittedBody>) -> PendingExchange {
        match body.pending() {
            Some(PendingSettlement::Units) => {
                body.begin_drain();
                PendingExchange::Settling(body)
            }
            Some(PendingSettlement::Permits) | None => {
                PendingExchange::Body(body.inner_mut().take_upstream_body())
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
            if !self.cancel_unless_needed(cx) {
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
                            *self = PendingExchange::Body(body.inner_mut().take_upstream_body())
                        }
                        Some(Err(_)) | None => return Poll::Ready(DrainStep::Ended),
                    }
                }
            }
        }
    }

    /// Cancels the request, unless limits wait for its response and the request was sent whole. Returns whether the end of
    /// the server's work can be observed.
    fn cancel_unless_needed(&mut self, cx: &mut Context<'_>) -> bool {
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

    /// Goes on with the body, after the head of the response has come.
    fn begin_body(&mut self, now: Nanos) {
        // An empty body stands in while the exchange is moved out.
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

    /// The detached requests of a worker, and the clock that moves its time.
    fn detached_requests() -> (Rc<DetachedRequests>, Clock) {
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
    fn permits_are_held_for_a_while_if_there_is_no_room() {
        let (detached_requests, clock) = detached_requests();
        let other_guards: Vec<_> = (0..MAX_DETACHED_REQUESTS)
            .map(|_| DetachedGuard::new(&detached_requests, None))
            .collect();
        assert!(other_guards.iter().all(Option::is_some));
        let (held_permits, observer) = permits();
        assert!(DetachedGuard::new(&detached_requests, held_permits).is_none());
        let are_held_after = |duration: Duration| {
            clock.advance(duration.into());
            detached_requests.deadline_clock.tick();
            detached_requests.return_due_permits();
            are_held(&observer)
        };
        assert!(are_held(&observer));
        assert!(are_held_after(
            UNOBSERVED_PERMIT_TIME - Duration::from_millis(1)
        ));
        assert!(!are_held_after(Duration::from_millis(1)));
        drop(other_guards);
        let (held_permits, observer) = permits();
        let guard = DetachedGuard::new(&detached_requests, held_permits);
        assert!(guard.is_some() && are_held(&observer));
        drop(guard);
        assert!(!are_held(&observer));
    }

    #[test]
    fn beyond_the_bound_the_oldest_permits_are_returned() {
        let (detached_requests, _) = detached_requests();
        let (held_permits, oldest) = permits();
        detached_requests.hold_permits(held_permits);
        for _ in 1..MAX_UNOBSERVED_PERMITS {
            detached_requests.hold_permits(permits().0);
        }
        assert!(are_held(&oldest));
        detached_requests.hold_permits(permits().0);
        assert!(!are_held(&oldest));
        let held_count = detached_requests.unobserved_permits.borrow().len();
        assert_eq!(held_count, MAX_UNOBSERVED_PERMITS);
    }

    #[test]
    fn a_worker_that_ends_holds_no_permits() {
        let (detached_requests, _) = detached_requests();
        let (held_permits, before) = permits();
        detached_requests.hold_permits(held_permits);
        detached_requests.close();
        let (held_permits, after) = permits();
        assert!(DetachedGuard::new(&detached_requests, held_permits).is_none());
        assert!(!are_held(&before) && !are_held(&after));
    }
}
