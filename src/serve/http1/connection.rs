//! One client connection: its deadlines, its requests through the stack, and a close that lets the
//! client read the last answer.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::Service;

use super::reply;
use super::request::{Bad, Wants};
use super::wire::Wire;
use crate::http::head::{Fields, Head, Response, ResponseHead};
use crate::net::flush::OthersFirst;
use crate::net::proxy::{self, Ends};
use crate::net::tls::config::Offer;
use crate::net::{PeerNetwork, Socket, Stream};
use crate::policy::HalfClose;
use crate::serve::http2;
use crate::serve::stack::body::{CLIENT_LEFT, ReplyBody};
use crate::serve::stack::gateway::Stack;
use crate::serve::stack::left;
use crate::serve::stack::observe::Recorded;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::refusal::Why;
use crate::serve::stack::source::Source;
use crate::serve::stack::stages::Fresh;
use crate::serve::worker::guard::{Guard, Phase};
use crate::serve::worker::listen::Placed;
use crate::serve::worker::run::{Refused, Worker};

/// How long the rest of a refused request's body is read.
pub const DRAIN_FOR: Duration = Duration::from_millis(500);

/// How long a client may take to close after the gateway has.
pub const LINGER: Duration = Duration::from_secs(2);

/// How long a connection without a request goes on when the worker is about to end: a request may be
/// under way to it, and is answered as the last one.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves one connection to its end.
pub async fn serve(placed: Placed, worker: Rc<Worker>, stack: Stack) {
    let timeouts = worker.generation().ruleset.timeouts.clone();
    let guard = worker.guards.watch(timeouts.idle, timeouts.header);
    let mut whole = pin!(whole(placed, guard.clone(), worker, stack));
    poll_fn(|cx| {
        if guard.must_close(cx) {
            return Poll::Ready(());
        }
        whole.as_mut().poll(cx)
    })
    .await;
}

async fn whole(placed: Placed, guard: Rc<Guard>, worker: Rc<Worker>, stack: Stack) {
    let generation = worker.generation();
    let Some(entrance) = generation.entrances.get(placed.entrance) else {
        return;
    };
    let Placed {
        mut stream,
        from,
        mut seat,
        ..
    } = placed;
    let Ok(local) = stream.local_addr() else {
        return;
    };
    let mut ends = Ends {
        client: from,
        local,
    };
    let mut remote = stream.peer(from);
    let believed = entrance.proxies.iter().any(|net| net.contains(remote));
    if believed {
        match at_the_beginning(&worker, &guard, proxy::read(&mut stream)).await {
            Ok(Some(said)) => (ends, remote) = (said, said.client.ip().into()),
            Ok(None) => {}
            Err(_) => return worker.refused(Refused::ProxyHeader),
        }
    }
    let sources = &generation.ruleset.identity.ip;
    let trusted = |net: &PeerNetwork| net.contains(remote);
    if let Some(most) = generation.ruleset.connections.per_ip
        && !sources.trusted_proxies.iter().any(trusted)
        && !seat.of(sources.group(remote.ip()).network(), most)
    {
        return worker.refused(Refused::PerIp);
    }
    let stream = match &entrance.offer {
        // Boxed, so that it takes no room in a connection that goes on.
        Some(offer) => Box::pin(shake_hands(stream, offer.clone(), &worker, &guard)).await,
        None => Some(Socket::plain(stream)),
    };
    let Some(stream) = stream else { return };
    if stream.is_proof() {
        return worker.proved();
    }
    let http2 = stream.speaks_http2();
    let over = (&stream, entrance.offer.as_ref());
    let peer = Peer::new((remote, ends), over, guard.clone(), &worker);
    let client = Client {
        stream,
        guard,
        send: generation.ruleset.timeouts.send,
        half_close: generation.ruleset.timeouts.half_close,
        closing: false,
    };
    drop(generation);
    if http2 {
        return http2::serve(client, BytesMut::new(), peer, stack).await;
    }
    let wire = Wire::new(client);
    if !exchanges(&wire, &peer, stack.clone()).await {
        return;
    }
    if let Some((client, begun)) = Rc::into_inner(wire).map(Wire::into_parts) {
        http2::serve(client, begun, peer, stack).await;
    }
}

/// What `future` comes to, before the first request and for as long as a request's head may take.
async fn at_the_beginning<F: Future>(worker: &Worker, guard: &Guard, future: F) -> F::Output {
    guard.received();
    let mut future = pin!(future);
    let output = poll_fn(|cx| {
        let output = future.as_mut().poll(cx);
        if output.is_pending() && worker.draining() {
            guard.hurry(FAREWELL);
        }
        output
    });
    let output = output.await;
    guard.enter(Phase::Idle, worker.generation().ruleset.timeouts.idle);
    output
}

/// Nothing when it fails. A client that is late ends the connection.
async fn shake_hands(
    stream: Stream,
    offer: Offer,
    worker: &Worker,
    guard: &Guard,
) -> Option<Socket> {
    let mut counted = Counted {
        worker,
        well: false,
    };
    let accept = Socket::accept(stream, offer);
    let shaken = at_the_beginning(worker, guard, accept).await.ok();
    counted.well = shaken.is_some();
    shaken
}

/// Counts a handshake, however it ends.
struct Counted<'a> {
    worker: &'a Worker,
    well: bool,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.worker.shook_hands(self.well);
    }
}

/// One request after the other, until one side has had enough. Says whether the client began to speak
/// HTTP/2 instead.
async fn exchanges(wire: &Rc<Wire>, peer: &Rc<Peer>, mut stack: Stack) -> bool {
    let worker = &peer.worker;
    let mut first = true;
    loop {
        wire.begin();
        let next = poll_fn(|cx| {
            if wire.is_late() {
                if ready!(wire.poll_late(cx)).is_err() {
                    return Poll::Ready(Ok(None));
                }
                peer.answered();
            }
            let head = wire.poll_head(cx);
            if head.is_pending() && worker.draining() && wire.is_idle() {
                peer.guard.hurry(FAREWELL);
            }
            if head.is_pending() && peer.guard.rests() {
                wire.give_up_room();
            }
            head
        });
        let (head, known, wants) = match next.await {
            Ok(None) => break,
            Ok(Some(request)) => (Ok(request.head), request.known, request.wants),
            Err(Bad::Http2) if first && !peer.secure => return true,
            Err(bad) => {
                let unreadable = wire.unreadable(bad, first && !peer.secure);
                (Err(Box::new(unreadable)), None, LAST)
            }
        };
        first = false;
        let unanswered = head.as_ref().is_err_and(|head| head.unanswered);
        let answer = match head.as_ref().ok().and_then(|head| proof(head, peer)) {
            Some(proof) => proof,
            None => {
                let mut future = pin!(stack.call(Fresh {
                    head,
                    source: Source::Wire(wire.clone()),
                    peer: peer.clone(),
                    generation: worker.generation(),
                    known,
                }));
                match unless_gone(wire, future.as_mut()).await {
                    Some(Ok(answer)) => answer,
                    None => {
                        if let Some(stake) = future.as_mut().leave(CLIENT_LEFT) {
                            wire.hang_up();
                            let place = (&**wire.guard(), &worker.left);
                            left::finish(future, Recorded::into_relayed, stake.permits, place)
                                .await;
                        }
                        return false;
                    }
                }
            }
        };
        if unanswered {
            break;
        }
        match reply::send(wire, wants, answer, worker).await {
            Ok(true) if wire.body_is_over() || drained(wire).await => {
                peer.answered();
                if !wire.is_idle() {
                    // The next request is here already.
                    OthersFirst::default().await;
                }
            }
            Ok(_) => break,
            // The client must not take what it got for a whole answer.
            Err(_) => return false,
        }
    }
    let _ = poll_fn(|cx| wire.poll_shutdown(cx)).await;
    false
}

/// What is promised to a client whose request cannot be read.
const LAST: Wants = Wants {
    head_only: false,
    version: Version::HTTP_11,
    keep: false,
    trailers: false,
};

impl From<Bad> for Why {
    fn from(bad: Bad) -> Why {
        match bad {
            Bad::Malformed(why) => Why::Bad(why),
            Bad::Preface => Why::Bad("it is neither HTTP/1 nor the preface of HTTP/2"),
            Bad::TooLarge => Why::TooLarge,
            Bad::LongTarget => Why::LongTarget,
            Bad::Version | Bad::Http2 => Why::Version,
        }
    }
}

/// The answer to an ACME directory that looks for a proof, counted as the gateway's own.
fn proof(head: &Head, peer: &Peer) -> Option<Response<Recorded>> {
    if peer.secure {
        return None;
    }
    let text = peer.worker.generation().tokens.answer(head.uri.path())?;
    peer.worker.proved();
    peer.guard.request();
    let mut fields = Fields::default();
    fields.add("content-type", b"application/octet-stream");
    let body = Recorded::unrecorded(ReplyBody::own(text.into()));
    let head = ResponseHead {
        fields,
        ..ResponseHead::default()
    };
    Some(Response { head, body })
}

/// What `future` comes to; nothing when the client goes away first.
async fn unless_gone<F: Future>(wire: &Wire, mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        // The client of the answer before may read only now. Nothing may follow one that never came whole.
        if wire.is_late() && matches!(wire.poll_flush(cx), Poll::Ready(Err(_))) {
            return Poll::Ready(None);
        }
        wire.poll_gone(cx).map(|()| None)
    })
    .await
}

/// Reads the rest of a body that nobody wanted, for a while, so that a client that is still sending
/// gets to see the answer; says whether the connection may go on.
async fn drained(wire: &Wire) -> bool {
    let mut bytes = 0;
    let draining = poll_fn(|cx| wire.poll_drain(cx, &mut bytes));
    tokio::time::timeout(DRAIN_FOR, draining)
        .await
        .unwrap_or(false)
}

/// The client's socket, telling the guard what happens on it.
pub struct Client {
    stream: Socket,
    /// The connection's deadlines.
    pub guard: Rc<Guard>,
    send: Duration,
    /// See [`HalfClose`].
    half_close: HalfClose,
    closing: bool,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Client {
    /// Whether it may be waiting for an answer though it has closed its sending side.
    #[cold]
    pub fn may_wait(&self) -> bool {
        self.half_close == HalfClose::Answered && self.stream.closes_by_halves()
    }

    /// See [`Socket::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.stream.is_broken()
    }

    /// See [`Wire::reset_on_close`].
    pub fn reset_on_close(&self, reset: bool) {
        self.stream.reset_on_close(reset);
    }

    /// See [`Socket::hang_up`].
    pub fn hang_up(&self) {
        self.stream.hang_up();
    }

    /// See [`Socket::hold_back`].
    pub fn hold_back(&mut self) {
        self.stream.hold_back();
    }

    fn wrote<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &result {
            Poll::Pending => self.guard.write_waits(self.send),
            Poll::Ready(_) => self.guard.wrote(),
        }
        result
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.wrote(result)
    }

    /// Closes the sending side, then reads until the client has closed too: a close with unread
    /// bytes would make the kernel reset the connection and destroy an answer not yet read.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.closing {
            // Under TLS the end is a message that must find room.
            let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.wrote(shut))?;
            this.closing = true;
            this.guard.enter(Phase::Linger, LINGER);
        }
        let mut scratch = [MaybeUninit::uninit(); 16 * 1024];
        loop {
            let mut buf = ReadBuf::uninit(&mut scratch);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
