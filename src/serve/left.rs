//! Requests whose client has left while something hangs on their end: limits on cost wait for what the response says,
//! and permits count the work of the server, not the patience of the client.
//!
//! Such a request is read on to its end, and thrown away. Where only permits hang on it, the server is told that
//! nobody waits, and its end is waited for. A request that was not sent whole is given up in the same way.
//!
//! Bounds: [`LONGEST`] and [`MOST_BYTES`] for each, [`MOST`] for each worker. Beyond them the connection to the server
//! ends, what was reserved is charged and the permits come back.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body, Frame};

use super::body::{Relay, RequestBody};
use super::guard::Guard;
use super::peer::Peer;
use super::record::{Note, Recorded};
use super::worker::Worker;
use crate::admission::Stake;
use crate::head::Answer;
use crate::store::permits::Taken;
use crate::throttle::{Open, Settling};
use crate::upstream::{AnswerBody, Exchange, Lead};

/// How long a request goes on without its client. Shorter where the upstream's own timeouts are.
const LONGEST: Duration = Duration::from_secs(60);

/// How long the permits of a request stay out that was taken back from a server of HTTP/2, which does not show when it
/// has ended its work.
const TAKEN_BACK: Duration = Duration::from_secs(10);

/// Most bytes of a body that nobody waits for.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Most requests of a worker that go on without their clients.
const MOST: usize = 4096;

/// Those of one worker.
#[derive(Debug, Default)]
pub struct Left {
    open: Cell<usize>,
    /// The worker ends.
    over: Cell<bool>,
}

impl Left {
    /// No request begins to go on any more.
    pub fn close(&self) {
        self.over.set(true);
    }

    fn has_room(&self) -> bool {
        self.open.get() < MOST && !self.over.get()
    }
}

/// A request that goes on without its client: one of [`MOST`].
struct Detached(Rc<Worker>);

impl Detached {
    fn new(worker: &Rc<Worker>) -> Option<Detached> {
        let left = &worker.left;
        left.has_room().then(|| {
            left.open.update(|open| open + 1);
            Detached(worker.clone())
        })
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.0.left.open.update(|open| open - 1);
    }
}

/// Goes on with a request whose response has not begun.
pub async fn finish<F>(mut future: Pin<&mut F>, guard: &Guard, worker: &Rc<Worker>)
where
    F: Future<Output = Result<Answer<Recorded>, Infallible>>,
{
    let Some(_detached) = Detached::new(worker) else {
        return;
    };
    // It does not wait for the client any more.
    guard.wrote();
    let whole = async {
        let answered = poll_fn(|cx| {
            let _ = guard.must_close(cx);
            future.as_mut().poll(cx)
        });
        let Ok(answer) = answered.await;
        if let Some(body) = answer.body.into_relayed() {
            drain(body).await;
        }
    };
    let _ = tokio::time::timeout(LONGEST, whole).await;
}

/// Goes on with the body of a response in a task of its own.
pub fn read_on(mut body: Settling<Relay>, stake: Option<Stake>, peer: &Peer) {
    let Some(detached) = Detached::new(&peer.worker) else {
        return;
    };
    let guard = peer.worker.guards.watch(peer.idle, peer.header);
    guard.request();
    body.inner_mut().detach(guard);
    tokio::task::spawn_local(async move {
        let _held = (detached, stake);
        let _ = tokio::time::timeout(LONGEST, drain(body)).await;
    });
}

/// Reads a body to its end, or to what nothing hangs on.
async fn drain(mut body: Settling<Relay>) {
    let mut bytes = 0;
    while let Some(open) = body.open()
        && bytes <= MOST_BYTES
    {
        let frame = poll_fn(|cx| {
            let relay = body.inner_mut();
            relay.watch(cx);
            if open == Open::Permits || !relay.is_sent() {
                relay.hang_up(cx);
            }
            Pin::new(&mut body).poll_frame(cx)
        });
        match frame.await {
            Some(Ok(frame)) => bytes += data(&frame),
            _ if !body.inner_mut().is_seen() => return tokio::time::sleep(TAKEN_BACK).await,
            Some(Err(_)) | None => return,
        }
    }
}

fn data(frame: &Frame<bytes::Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

/// What is left of an exchange with a server.
pub enum Rest {
    /// The head of its response, and the body.
    Head(Exchange<RequestBody>),
    /// The body.
    Body(AnswerBody<RequestBody>),
}

/// The request was not sent whole, and the server may work on it all the same.
pub fn give_up(exchange: Exchange<RequestBody>, note: &Note) {
    let unsent = exchange.has_begun() && !exchange.is_sent();
    if let Some(permits) = note.permits().filter(|_| unsent) {
        linger(Rest::Head(exchange), permits, &note.peer);
    }
}

/// Waits for the end of a server that got a request in part, in a task of its own.
pub fn linger(rest: Rest, permits: Arc<Taken>, peer: &Peer) {
    let Some(detached) = Detached::new(&peer.worker) else {
        return;
    };
    let now = peer.coarse();
    tokio::task::spawn_local(async move {
        let _held = (detached, permits);
        let whole = async {
            let mut body = match rest {
                Rest::Body(body) => Some(body),
                Rest::Head(mut exchange) => {
                    let has_body = poll_fn(|cx| poll_head(&mut exchange, cx)).await;
                    if !exchange.is_seen() {
                        return tokio::time::sleep(TAKEN_BACK).await;
                    }
                    has_body.then(|| exchange.into_body(now))
                }
            };
            let mut bytes = 0;
            while let Some(body) = &mut body
                && bytes <= MOST_BYTES
            {
                let frame = poll_fn(|cx| {
                    body.hang_up(cx);
                    Pin::new(&mut *body).poll_frame(cx)
                });
                match frame.await {
                    Some(Ok(frame)) => bytes += data(&frame),
                    _ if !body.is_seen() => return tokio::time::sleep(TAKEN_BACK).await,
                    Some(Err(_)) | None => return,
                }
            }
        };
        let _ = tokio::time::timeout(LONGEST, whole).await;
    });
}

/// Whether there is a final head.
fn poll_head(exchange: &mut Exchange<RequestBody>, cx: &mut Context<'_>) -> Poll<bool> {
    exchange.hang_up(cx);
    loop {
        match ready!(exchange.poll_head(cx)) {
            Ok(Lead::Interim(_)) => {}
            Ok(Lead::Final(_)) => return Poll::Ready(true),
            Err(_) => return Poll::Ready(false),
        }
    }
}
