//! Requests that go on after their client has left, because a limit depends on their end: limits on cost wait for the
//! response, and permits count the work of the server, however patient the client or the gateway is.
//!
//! The response of such a request is read to its end and discarded. Where only permits depend on it, the gateway cancels
//! the request and waits for the server to end it. So it does for a request that was not sent whole, or whose server was
//! too slow.
//!
//! Bounds: [`LONGEST`] and [`MOST_BYTES`] for each, [`MOST`] for each worker. Beyond them the connection to the server
//! ends and what was reserved is charged, or what was found if that is more. Permits whose server is not watched to its
//! end stay out for [`UNWATCHED`], of at most [`MOST_UNWATCHED`] requests of a worker.

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
use crate::serve::worker::guard::{Guard, Guards};
use crate::store::permits::PermitGuard;
use crate::throttle::{PendingSettlement, Settling};
use crate::upstream::{Exchange, ReceivedHead, UpstreamBody};

/// How long a request goes on without its client.
const LONGEST: Duration = Duration::from_secs(60);

/// How long permits stay out whose server is not watched: over HTTP/2 a request that was taken back does not show when
/// its work has ended.
const UNWATCHED: Duration = Duration::from_secs(10);

/// Most bytes of a body that nobody waits for.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Most requests of a worker that go on without their clients.
const MOST: usize = 4096;

/// Most requests of a worker whose permits stay out unwatched; beyond it the oldest come back.
const MOST_UNWATCHED: usize = 65_536;

/// The detached requests of one worker.
#[derive(Debug)]
pub struct DetachedRequests {
    guards: Rc<Guards>,
    open: Cell<usize>,
    /// Permits whose server is not watched, and when they come back.
    unwatched: RefCell<VecDeque<(Nanos, Arc<PermitGuard>)>>,
    /// The worker is about to end.
    over: Cell<bool>,
}

impl DetachedRequests {
    /// None yet.
    pub fn new(guards: Rc<Guards>) -> Rc<DetachedRequests> {
        Rc::new(DetachedRequests {
            guards,
            open: Cell::new(0),
            unwatched: RefCell::default(),
            over: Cell::new(false),
        })
    }

    /// Detaches no more requests, and returns the permits that are not watched.
    pub fn close(&self) {
        self.over.set(true);
        self.unwatched.take();
    }

    /// Returns the permits whose time has come.
    pub fn tick(&self) {
        let now = self.guards.coarse_now();
        let unwatched = &mut *self.unwatched.borrow_mut();
        while unwatched.pop_front_if(|(until, _)| *until <= now).is_some() {}
    }

    fn has_room(&self) -> bool {
        self.open.get() < MOST && !self.over.get()
    }

    /// Keeps permits out for [`UNWATCHED`], because the end of the server's work is not seen.
    fn hold(&self, permits: Option<Arc<PermitGuard>>) {
        let Some(permits) = permits.filter(|_| !self.over.get()) else {
            return;
        };
        let unwatched = &mut *self.unwatched.borrow_mut();
        if unwatched.len() == MOST_UNWATCHED {
            unwatched.pop_front();
        }
        let until = self.guards.coarse_now().after(UNWATCHED.into());
        unwatched.push_back((until, permits));
    }
}

/// One of [`MOST`] detached requests; counted until it is dropped.
struct DetachedRequest {
    left: Rc<DetachedRequests>,
    permits: Option<Arc<PermitGuard>>,
}

impl DetachedRequest {
    /// None if there is no room for one more; its permits stay out all the same.
    fn new(
        left: &Rc<DetachedRequests>,
        permits: Option<Arc<PermitGuard>>,
    ) -> Option<DetachedRequest> {
        if !left.has_room() {
            left.hold(permits);
            return None;
        }
        left.open.update(|open| open + 1);
        Some(DetachedRequest {
            left: left.clone(),
            permits,
        })
    }

    /// Reads what is left of an exchange to its end, within the bound.
    async fn drain(&mut self, mut rest: PendingExchange) {
        let waits = self.permits.is_some();
        let now = self.left.guards.coarse_now();
        let mut bytes = 0;
        while bytes <= MOST_BYTES {
            match poll_fn(|cx| rest.poll_step(waits, now, cx)).await {
                DrainStep::Bytes(more) => bytes += more,
                DrainStep::Ended => return,
                DrainStep::TakenBack => break,
            }
        }
        self.left.hold(self.permits.take());
    }
}

impl Drop for DetachedRequest {
    fn drop(&mut self) {
        self.left.open.update(|open| open - 1);
    }
}

/// Finishes a request whose response has not begun. `relayed` returns the body that its upstream sends.
pub async fn finish<F, B>(
    mut future: Pin<&mut F>,
    relayed: impl FnOnce(B) -> Option<Settling<Relay>>,
    permits: Option<Arc<PermitGuard>>,
    (guard, left): (&Guard, &Rc<DetachedRequests>),
) where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    let Some(mut detached) = DetachedRequest::new(left, permits) else {
        return;
    };
    // It does not wait for the client any more.
    guard.write_progressed();
    let whole = async {
        let answered = poll_fn(|cx| {
            let _ = guard.must_close(cx);
            future.as_mut().poll(cx)
        });
        let Ok(response) = answered.await;
        if let Some(body) = relayed(response.body) {
            detached.drain(PendingExchange::of(body)).await;
        }
    };
    let _ = tokio::time::timeout(LONGEST, whole).await;
}

/// Finishes an exchange in a task of its own.
pub fn go_on(
    rest: PendingExchange,
    permits: Option<Arc<PermitGuard>>,
    left: &Rc<DetachedRequests>,
) {
    let Some(mut detached) = DetachedRequest::new(left, permits) else {
        return;
    };
    tokio::task::spawn_local(async move {
        let whole = detached.drain(rest);
        let _ = tokio::time::timeout(LONGEST, whole).await;
    });
}

/// The part of an exchange with a server that is still to come.
pub enum PendingExchange {
    /// The head of its response, and the body.
    Head(Exchange<RequestBody>),
    /// The body.
    Body(UpstreamBody<RequestBody>),
    /// The body, which limits wait for.
    Settling(Settling<Relay>),
}

/// What came of one step of draining an exchange.
enum DrainStep {
    /// This many bytes of the body were read.
    Bytes(u64),
    /// The server has ended its side.
    Ended,
    /// The request was cancelled, and the end of the server's work is not seen.
    TakenBack,
}

impl PendingExchange {
    /// Of a body.
    pub fn of(mut body: Settling<Relay>) -> PendingExchange {
        match body.pending() {
            Some(PendingSettlement::Units) => PendingExchange::Settling(body),
            Some(PendingSettlement::Permits) | None => {
                PendingExchange::Body(body.inner_mut().take())
            }
        }
    }

    /// The next step. `waits`: for the end of the server too, when nothing is left to settle.
    fn poll_step(&mut self, waits: bool, now: Nanos, cx: &mut Context<'_>) -> Poll<DrainStep> {
        loop {
            if !self.hang_up(cx) {
                return Poll::Ready(DrainStep::TakenBack);
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
                        Some(Ok(frame)) => DrainStep::Bytes(length(&frame)),
                        Some(Err(_)) | None => DrainStep::Ended,
                    });
                }
                PendingExchange::Settling(body) => {
                    match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                        Some(Ok(frame)) => return Poll::Ready(DrainStep::Bytes(length(&frame))),
                        // It may be the gateway that waits no longer.
                        Some(Err(_)) | None if waits => {
                            *self = PendingExchange::Body(body.inner_mut().take())
                        }
                        Some(Err(_)) | None => return Poll::Ready(DrainStep::Ended),
                    }
                }
            }
        }
    }

    /// Cancels the request, unless limits wait for a response that the server may still give. True if the end of the server's
    /// work can be seen.
    fn hang_up(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            PendingExchange::Head(exchange) => {
                exchange.hang_up(cx);
                exchange.is_seen()
            }
            PendingExchange::Body(body) => {
                body.hang_up(cx);
                body.is_seen()
            }
            PendingExchange::Settling(body) => body.inner_mut().go_on_alone(cx),
        }
    }

    fn begin_body(&mut self, now: Nanos) {
        if let PendingExchange::Head(exchange) =
            std::mem::replace(self, PendingExchange::Body(UpstreamBody::over()))
        {
            *self = PendingExchange::Body(exchange.into_body(now));
        }
    }
}

fn length(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use smallvec::SmallVec;

    use super::*;
    use crate::base::clock::Clock;
    use crate::store::permits::Permits;

    /// The left requests of a worker whose time stands still.
    fn left() -> (Rc<DetachedRequests>, Clock) {
        let clock = Clock::manual(Nanos::from_secs(5));
        (DetachedRequests::new(Guards::new(clock.clone())), clock)
    }

    fn permits() -> (Option<Arc<PermitGuard>>, Weak<PermitGuard>) {
        let (_, taken) = Arc::new(Permits::default()).take(&[], &mut SmallVec::new(), |_| true);
        let taken = Arc::new(taken);
        let seen = Arc::downgrade(&taken);
        (Some(taken), seen)
    }

    fn is_out(permits: &Weak<PermitGuard>) -> bool {
        permits.strong_count() > 0
    }

    #[test]
    fn permits_stay_out_for_their_time_where_no_request_may_go_on() {
        let (left, clock) = left();
        let others: Vec<_> = (0..MOST)
            .map(|_| DetachedRequest::new(&left, None))
            .collect();
        assert!(others.iter().all(Option::is_some));
        let (taken, seen) = permits();
        assert!(DetachedRequest::new(&left, taken).is_none());
        let pass = |span: Duration| {
            clock.advance(span.into());
            left.guards.tick();
            left.tick();
            is_out(&seen)
        };
        assert!(is_out(&seen));
        assert!(pass(UNWATCHED - Duration::from_millis(1)));
        assert!(!pass(Duration::from_millis(1)));
        drop(others);
        let (taken, seen) = permits();
        let detached = DetachedRequest::new(&left, taken);
        assert!(detached.is_some() && is_out(&seen));
        drop(detached);
        assert!(!is_out(&seen));
    }

    #[test]
    fn beyond_the_bound_the_oldest_permits_come_back() {
        let (left, _) = left();
        let (taken, oldest) = permits();
        left.hold(taken);
        for _ in 1..MOST_UNWATCHED {
            left.hold(permits().0);
        }
        assert!(is_out(&oldest));
        left.hold(permits().0);
        assert!(!is_out(&oldest));
        assert_eq!(left.unwatched.borrow().len(), MOST_UNWATCHED);
    }

    #[test]
    fn a_worker_that_ends_keeps_none() {
        let (left, _) = left();
        let (taken, before) = permits();
        left.hold(taken);
        left.close();
        let (taken, after) = permits();
        assert!(DetachedRequest::new(&left, taken).is_none());
        assert!(!is_out(&before) && !is_out(&after));
    }
}
