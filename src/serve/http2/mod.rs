//! An HTTP/2 connection: its streams through the stack, those that must wait each in a task of its own. The `h2`
//! crate speaks the protocol; what a client may make the gateway hold or do is bounded here.
//!
//! | file | what it is |
//! |---|---|
//! | `stream` | a request: head and body |
//! | `reply` | the answer to it |
//! | `traffic` | the connection's frames, counted |

mod reply;
mod stream;
pub mod traffic;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Method, Request};
use tower::Service;

use super::connection::{Client, DRAIN_FOR, LINGER, refuse};
use super::gateway::Stack;
use super::guard::Phase;
use super::peer::Peer;
use super::record::Fresh;
use super::source::Source;
use crate::http1::MAX_HEAD;
use traffic::{Traffic, Watched};

pub use stream::Stream;

/// Requests under way on one connection.
const MAX_STREAMS: u32 = 128;

/// Bytes of one request's body, and of all of a connection's, that a client may send before somebody
/// asks for them.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Streams that clients have taken back and that are kept to recognise what is still under way on them.
const KEPT_RESETS: usize = 32;

/// Bytes of an answer's body that wait in a stream to be sent.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection to its end; `begun` has been read from it.
pub async fn serve(client: Client, begun: BytesMut, peer: Rc<Peer>, stack: Stack) {
    // The preface may take as long as a request's head.
    peer.guard.received();
    let traffic = Traffic::new();
    let watched = Watched::new(client, begun, traffic.clone());
    let shaken = Builder::new()
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_reset_streams(KEPT_RESETS)
        .max_send_buffer_size(SEND_BUFFER)
        .enable_connect_protocol()
        .handshake(watched)
        .await;
    let Ok(connection) = shaken else { return };
    let streams = Streams {
        peer,
        stack,
        traffic,
        open: Rc::default(),
    };
    streams.serve(connection).await;
}

/// The streams of one connection.
struct Streams {
    peer: Rc<Peer>,
    stack: Stack,
    traffic: Rc<Traffic>,
    open: Rc<Cell<usize>>,
}

impl Streams {
    async fn serve(self, mut connection: Connection<Watched, Bytes>) {
        let Peer { guard, worker, .. } = &*self.peer;
        let (mut ending, mut flooded) = (false, false);
        // The connection sends when it is asked for the next request, so all that have come are answered
        // before it is asked again.
        let mut came = Vec::new();
        poll_fn(|cx| {
            loop {
                match connection.poll_accept(cx) {
                    Poll::Ready(Some(Ok(accepted))) => {
                        came.push(accepted);
                        continue;
                    }
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                    Poll::Pending if !came.is_empty() => {
                        for (request, respond) in came.drain(..) {
                            self.begin(cx, request, respond);
                        }
                        if guard.phase() == Phase::Rest {
                            // Those that are answered already were requests too.
                            guard.request();
                        }
                        continue;
                    }
                    Poll::Pending if flooded => {}
                    Poll::Pending if self.traffic.is_flooded(worker.guards.coarse()) => {
                        worker.flooded();
                        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                        (ending, flooded) = (true, true);
                        continue;
                    }
                    Poll::Pending if ending => {}
                    Poll::Pending if worker.draining() || guard.has_rested() => {
                        connection.graceful_shutdown();
                        ending = true;
                        continue;
                    }
                    Poll::Pending => {}
                }
                self.enter_phase(ending);
                return Poll::Pending;
            }
        })
        .await;
    }

    fn enter_phase(&self, ending: bool) {
        let Peer {
            guard,
            idle,
            header,
            ..
        } = &*self.peer;
        let phase = match (self.traffic.is_in_head(), self.open.get(), ending) {
            (true, ..) => Phase::Header,
            (_, 1.., _) => Phase::Request,
            (.., true) => Phase::Linger,
            (.., false) => Phase::Rest,
        };
        // Once it is closing it does so by its deadline.
        let closing = guard.phase() == Phase::Linger && self.open.get() == 0;
        if guard.phase() != phase && !closing {
            match phase {
                Phase::Header => guard.enter(phase, *header),
                Phase::Linger => guard.enter(phase, LINGER),
                Phase::Rest | Phase::Idle => guard.enter(phase, *idle),
                Phase::Request => guard.request(),
            }
        }
    }

    /// What the gateway answers by itself needs no task of its own.
    fn begin(
        &self,
        cx: &mut Context<'_>,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
    ) {
        self.open.update(|open| open + 1);
        let open = Open(self.open.clone(), self.peer.clone());
        let (peer, stack) = (self.peer.clone(), self.stack.clone());
        let traffic = self.traffic.clone();
        let mut answering = Box::pin(async move {
            let _open = open;
            answer(request, respond, peer, stack, &traffic).await;
        });
        if answering.as_mut().poll(cx).is_pending() {
            tokio::task::spawn_local(answering);
        }
    }
}

/// Counts a stream as over, however it ends.
struct Open(Rc<Cell<usize>>, Rc<Peer>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.update(|open| open - 1);
        if self.0.get() == 0 {
            self.1.guard.wake();
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    peer: Rc<Peer>,
    mut stack: Stack,
    traffic: &Traffic,
) {
    let worker = peer.worker.clone();
    let generation = worker.generation();
    let send = generation.ruleset.timeouts.send;
    let (parts, body) = request.into_parts();
    let head_only = parts.method == Method::HEAD;
    let (head, why) = match stream::head(parts, body.is_end_stream()) {
        Ok(head) => (head, None),
        Err(why) => (Default::default(), Some(why)),
    };
    let guard = worker.guards.watch(peer.idle, peer.header);
    guard.request();
    let stream = Stream::new(guard, respond, body, &head);
    let answer = match why {
        Some(why) => Some(refuse(why, &peer)),
        None => {
            let future = stack.call(Fresh {
                head,
                source: Source::Stream(stream.clone()),
                peer: peer.clone(),
                generation,
            });
            let mut future = pin!(future);
            let unless_gone = poll_fn(|cx| match future.as_mut().poll(cx) {
                Poll::Ready(Ok(answer)) => Poll::Ready(Some(answer)),
                Poll::Pending => stream.poll_gone(cx).map(|()| None),
            });
            unless_late(&stream, unless_gone).await.flatten()
        }
    };
    let Some(answer) = answer else {
        return stream.respond(|respond| respond.send_reset(Reason::CANCEL));
    };
    let date = worker.date();
    let manner = reply::Manner {
        head_only,
        date: &date,
        send,
    };
    let own = answer.body.is_own();
    let sending = reply::send(&stream, traffic, manner, answer);
    // Dropping what could not be sent takes the stream back.
    unless_late(&stream, sending).await;
    if own && !stream.body_is_over() {
        // Some clients look at the answer only when they have sent their body.
        let mut drained = 0;
        let draining = poll_fn(|cx| stream.poll_drain(cx, &mut drained));
        let _ = tokio::time::timeout(DRAIN_FOR, draining).await;
    }
}

/// What `future` comes to; nothing when the client is late.
async fn unless_late<F: Future>(stream: &Stream, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if stream.guard().must_close(cx) {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
