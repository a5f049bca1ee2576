//! The task of an HTTP/2 connection: reads frames, begins the requests that they ask for, and sends what is ready.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use http::Method;
use tokio::io::AsyncWrite;
use tower::Service;

use super::connection_handle::ConnectionHandle;
use super::connection_state::ConnectionState;
use super::head::{Draft, Trailers};
use super::heads::{HeadCharge, Heads};
use super::offer::MAX_STREAMS;
use super::reply;
use super::stream::Http2Stream;
use crate::http::head::Head;
use crate::http::http1::inbox::Inbox;
use crate::http::http2::hpack::Decoder;
use crate::http::http2::reader::{Frame, Reader};
use crate::http::http2::{Fatal, MAX_WINDOW, Reason, frame};
use crate::serve::stack::detached;
use crate::serve::stack::downstream::Downstream;
use crate::serve::stack::gateway::Stack;
use crate::serve::stack::observe::ObservedBody;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::stages::FreshRequest;
use crate::serve::stack::unreadable::Unreadable;
use crate::serve::worker::client_socket::{ClientSocket, DRAIN_FOR, LINGER};
use crate::serve::worker::guard::Phase;

/// Serves a connection to its end; `begun` has been read from it.
pub async fn serve(client: ClientSocket, begun: BytesMut, peer: Rc<Peer>, stack: Stack) {
    // The preface may take as long as a request's head.
    peer.guard.received();
    let mut connection = Http2Connection {
        client,
        inbox: Inbox::default(),
        reader: Reader::default(),
        decoder: Decoder::default(),
        heads: Heads::default(),
        end: CloseStage::Open,
        last: MAX_WINDOW,
        others_first: true,
        peer,
        stack,
        handle: ConnectionHandle::new(),
    };
    connection.inbox.bytes = begun;
    poll_fn(|cx| connection.poll(cx)).await;
}

struct Http2Connection {
    client: ClientSocket,
    inbox: Inbox,
    reader: Reader,
    decoder: Decoder,
    heads: Heads,
    end: CloseStage,
    /// The last stream that GOAWAY has named.
    last: u32,
    /// The worker's other connections have their turn before anything is sent.
    others_first: bool,
    peer: Rc<Peer>,
    stack: Stack,
    handle: Rc<ConnectionHandle<Http2Stream>>,
}

/// How far the connection is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseStage {
    /// It serves requests.
    Open,
    /// GOAWAY was sent, and the client may not have received it yet.
    Announced,
    /// No request is taken any more.
    Last,
    /// Nothing is read any more.
    Closing,
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.handle.with(ConnectionState::hang_up);
    }
}

impl Http2Connection {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.handle.attend(Some(cx));
        let polled = self.turn(cx);
        self.handle.attend(None);
        polled
    }

    /// Reads what there is, then sends what came of it.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.end != CloseStage::Closing {
                match self.read(cx) {
                    Poll::Ready(Err(ReadEnd::Broken(Fatal(reason)))) => self.close(reason),
                    Poll::Ready(Err(ReadEnd::Away)) => return Poll::Ready(()),
                    Poll::Ready(Ok(())) | Poll::Pending => self.look_around(),
                }
            }
            let waits = self.handle.with(|shared| shared.has_output());
            if waits && std::mem::take(&mut self.others_first) {
                // See `net::flush::OthersFirst`.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let held_back = self.handle.with(|shared| shared.is_overfull());
            match self.handle.poll_flush(cx, &mut self.client) {
                Poll::Ready(Ok(())) => self.others_first = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
            let over = self.end == CloseStage::Last && self.handle.open_requests() == 0;
            if over || self.end == CloseStage::Closing {
                self.end = CloseStage::Closing;
                return Pin::new(&mut self.client).poll_shutdown(cx).map(drop);
            }
            if !held_back {
                return Poll::Pending;
            }
        }
    }

    /// Reads and answers until nothing more is there, or too much waits to be sent.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadEnd>> {
        let mut bytes = std::mem::take(&mut self.inbox.bytes);
        let result = loop {
            match self.frames(cx, &bytes) {
                Ok(done) => bytes.advance(done),
                Err(fatal) => break Poll::Ready(Err(ReadEnd::Broken(fatal))),
            }
            if self.handle.with(|shared| shared.is_overfull()) {
                break Poll::Ready(Ok(()));
            }
            self.inbox.bytes = bytes;
            let more = self.inbox.poll_read(cx, &mut self.client);
            bytes = std::mem::take(&mut self.inbox.bytes);
            match more {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => break Poll::Ready(Err(ReadEnd::Away)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.inbox.bytes = bytes;
        if self.handle.open_requests() == 0 {
            self.inbox.begin();
            self.reader.rest();
            self.decoder.rest();
            self.heads.rest();
        }
        result
    }

    /// Takes all whole frames off the front of `input`; says how many bytes they have.
    fn frames(&mut self, cx: &mut Context<'_>, input: &[u8]) -> Result<usize, Fatal> {
        let mut done = 0;
        // It is put back unless the connection is over.
        let mut reader = std::mem::take(&mut self.reader);
        while let Some((length, frame)) = reader.next(&input[done..])? {
            done += length;
            self.frame(cx, frame)?;
        }
        self.reader = reader;
        Ok(done)
    }

    fn frame(&mut self, cx: &mut Context<'_>, frame: Frame<'_>) -> Result<(), Fatal> {
        let handle = self.handle.clone();
        match frame {
            Frame::Headers {
                stream,
                block,
                end,
                circular,
            } => return self.headers(cx, (stream, circular), block, end),
            Frame::Data {
                stream,
                data,
                weight,
                end,
            } => return handle.with(|shared| shared.data(stream, data, weight, end)),
            Frame::Reset { stream } => return handle.with(|shared| shared.client_reset(stream)),
            Frame::Circular { stream } => return handle.with(|shared| shared.circular(stream)),
            Frame::Window { stream, bytes } => {
                return handle.with(|shared| shared.window_update(stream, bytes));
            }
            Frame::Settings(settings) => {
                return handle.with(|shared| {
                    shared.allowance.spend();
                    shared.settings(settings)
                });
            }
            Frame::Ping(payload) => handle.with(|shared| {
                shared.allowance.spend();
                shared.outbox.text(|out| frame::pong(out, payload));
            }),
            Frame::Pong if self.end == CloseStage::Announced => self.refuse_more(),
            Frame::Begun | Frame::Other => handle.with(|shared| shared.allowance.spend()),
            Frame::Pong | Frame::SettingsTaken => {}
        }
        Ok(())
    }

    fn headers(
        &mut self,
        cx: &mut Context<'_>,
        (id, circular): (u32, bool),
        block: &[u8],
        end: bool,
    ) -> Result<(), Fatal> {
        let decoder = &mut self.decoder;
        self.heads.received(block.len());
        let (open, last) = self
            .handle
            .with(|shared| (shared.find(id), shared.past.last()));
        if let Some(stream) = open {
            let mut trailers = Trailers::default();
            decoder.decode(block, |field| trailers.add(field))?;
            let trailers = trailers.finish().filter(|_| !circular);
            self.handle
                .with(|shared| shared.trailers(&stream, trailers, end, &self.heads));
            return Ok(());
        }
        let mut draft = Draft::new();
        decoder.decode(block, |field| draft.add(field))?;
        if id <= last || id.is_multiple_of(2) {
            return self.handle.with(|shared| shared.stray_head(id));
        }
        self.handle.with(|shared| shared.past.record_open(id));
        // Tasks of streams that are over may still have to see it.
        let full = self.handle.with(|shared| shared.has_most());
        if self.end == CloseStage::Last || full || self.handle.open_requests() >= 2 * MAX_STREAMS {
            self.refuse(id);
            return Ok(());
        }
        if circular {
            draft.refuse("its stream depends on itself");
        }
        match draft.finish(end, &mut self.heads) {
            Ok(Some((head, charge))) => self.begin(cx, (id, charge), Ok(head), end),
            Ok(None) => self.refuse(id),
            Err(unreadable) => self.begin(cx, (id, HeadCharge::default()), Err(unreadable), end),
        }
        Ok(())
    }

    /// Begins no request for a head that has been decoded.
    fn refuse(&self, id: u32) {
        self.handle.with(|shared| {
            shared.allowance.spend_head();
            shared.reset(id, Reason::REFUSED_STREAM);
        });
    }

    /// Begins a request. If it is over at once, as the gateway's own responses are, it needs no task of its own.
    fn begin(
        &self,
        cx: &mut Context<'_>,
        (id, charge): (u32, HeadCharge),
        head: Result<Head, Unreadable>,
        end: bool,
    ) {
        let Peer {
            worker,
            idle,
            header,
            ..
        } = &*self.peer;
        if self.peer.guard.phase() != Phase::Linger {
            // One that is answered at once was a request too.
            self.peer.guard.request();
        }
        let guard = worker.guards.watch(*idle, *header);
        guard.request();
        if head.is_err() {
            self.handle.with(|shared| shared.allowance.spend_head());
        }
        let send = worker.generation().ruleset.timeouts.send;
        let (handle, known) = (self.handle.clone(), head.as_ref().ok());
        let stream = Http2Stream::new((id, charge), handle, guard, send, known, end);
        let answering = OpenRequest::new(stream, self.peer.clone());
        let stack = self.stack.clone();
        let mut response = Box::pin(respond(answering, head, stack));
        if response.as_mut().poll(cx).is_pending() {
            tokio::task::spawn_local(response);
        }
    }

    /// Handles what has changed with time: floods, drains and deadlines.
    fn look_around(&mut self) {
        let Peer { guard, worker, .. } = &*self.peer;
        let now = worker.guards.coarse();
        if self.handle.with(|shared| shared.is_flooded(now)) {
            worker.count_flood();
            return self.close(Reason::ENHANCE_YOUR_CALM);
        }
        if self.end == CloseStage::Open && (worker.draining() || guard.has_rested()) {
            self.end = CloseStage::Announced;
            self.handle.with(|shared| {
                shared.outbox.text(|out| {
                    frame::go_away(out, MAX_WINDOW, Reason::NO_ERROR);
                    // Its answer comes after all that was under way to the gateway.
                    frame::ping(out, *b"farewell");
                });
            });
        }
        self.enter_phase();
    }

    /// Tells the client which request was the last.
    fn refuse_more(&mut self) {
        self.end = CloseStage::Last;
        self.say_last(Reason::NO_ERROR);
    }

    /// Ends the connection, whatever is under way.
    fn close(&mut self, reason: Reason) {
        self.end = CloseStage::Closing;
        self.handle.with(ConnectionState::hang_up);
        self.say_last(reason);
    }

    fn say_last(&mut self, reason: Reason) {
        self.handle.with(|shared| {
            // It never becomes more: RFC 9113 section 6.8.
            self.last = self.last.min(shared.past.last());
            let last = self.last;
            shared.outbox.text(|out| frame::go_away(out, last, reason));
        });
    }

    fn enter_phase(&self) {
        let Peer {
            guard,
            idle,
            header,
            ..
        } = &*self.peer;
        // What is not read because the client does not read is not late.
        let reads = !self.handle.with(|shared| shared.is_overfull());
        let in_head = reads && self.reader.is_in_head(&self.inbox.bytes);
        let answering = self.handle.open_requests();
        let phase = match (in_head, answering, self.end) {
            (true, ..) => Phase::Header,
            (_, 1.., _) => Phase::Request,
            (.., CloseStage::Open) => Phase::Rest,
            _ => Phase::Linger,
        };
        // Once it is closing it does so by its deadline.
        let closing = guard.phase() == Phase::Linger && answering == 0;
        if guard.phase() != phase && !closing {
            match phase {
                Phase::Header => guard.enter(phase, *header),
                Phase::Linger => guard.enter(phase, LINGER),
                Phase::Rest | Phase::Idle => guard.enter(phase, *idle),
                Phase::Request => guard.request(),
            }
        }
    }
}

/// Why nothing more is read.
enum ReadEnd {
    /// The client has closed the connection.
    Away,
    /// It broke a rule.
    Broken(Fatal),
}

/// An open request. It is over, however it ends, when this is dropped.
struct OpenRequest {
    stream: Rc<Http2Stream>,
    peer: Rc<Peer>,
}

impl OpenRequest {
    fn new(stream: Rc<Http2Stream>, peer: Rc<Peer>) -> OpenRequest {
        stream.handle.change_open_requests(1);
        OpenRequest { stream, peer }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.stream.end_request();
        let handle = &self.stream.handle;
        handle.change_open_requests(-1);
        if handle.open_requests() == 0 {
            handle.notify();
        }
    }
}

async fn respond(answering: OpenRequest, head: Result<Head, Unreadable>, mut stack: Stack) {
    // Its charge stands until nothing refers to the head any more, also where the client has left before.
    let stream = &answering.stream.clone();
    let peer = answering.peer.clone();
    let worker = &peer.worker;
    let head_only = head.as_ref().is_ok_and(|head| head.method == Method::HEAD);
    let unanswered = head.as_ref().is_err_and(|head| head.unanswered);
    let future = stack.call(FreshRequest {
        head: head.map(Rc::new).map_err(Box::new),
        downstream: Downstream::Http2(stream.clone()),
        peer: peer.clone(),
        generation: worker.generation(),
        repeated: None,
    });
    let mut future = pin!(future);
    // Asked first, for what came of a request that was taken back is lost.
    let unless_gone = poll_fn(|cx| match stream.poll_gone(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        // No answer is asked for that the client has no room for.
        Poll::Pending if stream.poll_room(cx).is_pending() => Poll::Pending,
        Poll::Pending => future.as_mut().poll(cx).map(Result::ok),
    });
    let response = unless_late(stream, unless_gone).await.flatten();
    let Some(response) = response else {
        if let Some(holdings) = future.as_mut().leave(stream.reason()) {
            drop(answering);
            let place = (&**stream.guard(), &worker.detached);
            detached::finish(future, ObservedBody::into_relayed, holdings.permits, place).await;
        }
        return;
    };
    if unanswered {
        // On record before the client sees the end.
        drop(response);
        return stream.fail(Reason::PROTOCOL_ERROR);
    }
    let own = response.body.is_own();
    let date = worker.date();
    // Dropping what could not be sent takes the stream back.
    unless_late(stream, reply::send(stream, head_only, &date, response)).await;
    if own && !stream.body_is_over() {
        // Some clients look at the response only when they have sent their body.
        let mut drained = 0;
        let draining = poll_fn(|cx| stream.poll_drain(cx, &mut drained));
        let _ = tokio::time::timeout(DRAIN_FOR, draining).await;
    }
}

/// The output of `future`; none if the client is late.
async fn unless_late<F: Future>(stream: &Http2Stream, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if stream.guard().must_close(cx) {
            return Poll::Ready(None);
        }
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
