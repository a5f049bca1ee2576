//! The task of an HTTP/2 connection: reads frames, begins the requests that they carry, and sends the output.
//!
//! The task never waits for a request: a request that is not served at once continues in a task of its own.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use http::Version;
use tokio::io::AsyncWrite;

use super::connection_handle::ConnectionHandle;
use super::connection_state::ConnectionState;
use super::exchange::{OpenRequest, serve_request};
use super::grpc_exchange::serve_call;
use super::head::HeadDraft;
use super::head_memory::{HeadCharge, HeadMemory};
use super::initial_settings;
use super::stream::Http2Stream;
use super::trailers::Trailers;
use crate::http::head::Head;
use crate::http::http1::inbox::Inbox;
use crate::http::http2::frame_reader::{Frame, FrameReader};
use crate::http::http2::hpack::Decoder;
use crate::http::http2::{ConnectionError, Reason, frame};
use crate::policy::ListenerRole;
use crate::serve::decide::message_memory::MessageMemory;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::peer::Peer;
use crate::serve::stack::unreadable_request::UnreadableRequest;
use crate::serve::worker::client_socket::{ClientSocket, LINGER_TIMEOUT};
use crate::serve::worker::deadlines::Phase;

/// Serves a connection to its end. `received` are bytes that have been read from the connection already.
pub async fn serve(client: ClientSocket, received: BytesMut, peer: Rc<Peer>, stack: Stack) {
    // The preface may take as long as a request's head.
    peer.deadlines.report_bytes_received();
    let max_streams = initial_settings::max_streams(peer.role);
    let mut connection = Http2Connection {
        client,
        inbox: Inbox::default(),
        reader: FrameReader::default(),
        decoder: Decoder::default(),
        head_memory: HeadMemory::default(),
        close_stage: CloseStage::Open,
        last_stream_id: MAX_STREAM_ID,
        should_yield_to_others: true,
        message_memory: MessageMemory::of_connection(&peer.worker.message_memory),
        peer,
        stack,
        handle: ConnectionHandle::new(max_streams),
    };
    connection.inbox.bytes = received;
    poll_fn(|cx| connection.poll(cx)).await;
}

/// One HTTP/2 connection, as its own task sees it. The part that streams share is behind `handle`.
struct Http2Connection {
    client: ClientSocket,
    inbox: Inbox,
    reader: FrameReader,
    decoder: Decoder,
    head_memory: HeadMemory,
    close_stage: CloseStage,
    /// The highest identifier of a stream that will be processed, as GOAWAY has announced; [`MAX_STREAM_ID`] before.
    last_stream_id: u32,
    /// Whether the worker's other connections have a turn before the next output is sent.
    should_yield_to_others: bool,
    message_memory: Rc<MessageMemory>,
    peer: Rc<Peer>,
    stack: Stack,
    handle: Rc<ConnectionHandle<Http2Stream>>,
}

/// The highest identifier that a stream can have: RFC 9113 section 5.1.1. A GOAWAY that names this stream only
/// announces the end of the connection.
const MAX_STREAM_ID: u32 = (1 << 31) - 1;

/// The payload of the ping that is sent with the first GOAWAY. Any eight bytes would do.
const LAST_PING: [u8; 8] = *b"farewell";

/// How far the connection has been closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseStage {
    /// The connection serves requests.
    Open,
    /// The end has been announced, and new requests may still be under way from the client.
    Announced,
    /// New requests are refused, and open ones are finished.
    Refusing,
    /// Nothing is read any more.
    Closing,
}

/// Why nothing more is read.
enum ReadEnd {
    /// The client has closed the connection.
    Disconnected,
    /// The client has broken a rule.
    Error(ConnectionError),
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.handle.with_state(ConnectionState::close_all_streams);
    }
}

impl Http2Connection {
    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.handle.begin_task_turn(cx);
        let polled = self.poll_turn(cx);
        self.handle.end_task_turn();
        polled
    }

    /// Reads what has arrived, then sends the output.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.close_stage != CloseStage::Closing {
                match self.poll_read(cx) {
                    Poll::Ready(Err(ReadEnd::Error(ConnectionError(reason)))) => self.close(reason),
                    Poll::Ready(Err(ReadEnd::Disconnected)) => return Poll::Ready(()),
                    Poll::Ready(Ok(())) | Poll::Pending => self.check_flood_and_deadlines(),
                }
            }
            let has_output = self.handle.with_state(|state| state.has_output());
            if has_output && std::mem::take(&mut self.should_yield_to_others) {
                // The connections of a worker are all read before any is served, as in `serve/http1/wire.rs`.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let was_overfull = self.handle.with_state(|state| state.is_overfull());
            match self.handle.poll_flush(cx, &mut self.client) {
                Poll::Ready(Ok(())) => self.should_yield_to_others = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
            let is_finished =
                self.close_stage == CloseStage::Refusing && self.handle.open_request_count() == 0;
            if is_finished || self.close_stage == CloseStage::Closing {
                self.close_stage = CloseStage::Closing;
                return Pin::new(&mut self.client).poll_shutdown(cx).map(drop);
            }
            // Reading stopped because of too much output. There is space now, so the loop reads on.
            if !was_overfull {
                return Poll::Pending;
            }
        }
    }

    /// Reads and handles frames until nothing more has arrived, or there is too much output. Ready with `Ok` in the second
    /// case.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadEnd>> {
        let mut bytes = std::mem::take(&mut self.inbox.bytes);
        let result = loop {
            match self.handle_frames(cx, &bytes) {
                Ok(handled_bytes) => bytes.advance(handled_bytes),
                Err(error) => break Poll::Ready(Err(ReadEnd::Error(error))),
            }
            if self.handle.with_state(|state| state.is_overfull()) {
                break Poll::Ready(Ok(()));
            }
            if self.awaits_ended_calls() {
                cx.waker().wake_by_ref();
                break Poll::Pending;
            }
            self.inbox.bytes = bytes;
            let read_bytes = self.inbox.poll_read(cx, &mut self.client);
            bytes = std::mem::take(&mut self.inbox.bytes);
            match read_bytes {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => break Poll::Ready(Err(ReadEnd::Disconnected)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.inbox.bytes = bytes;
        if self.handle.open_request_count() == 0 {
            self.inbox.begin_message();
            self.reader.free_buffer();
            self.decoder.free_buffer();
            self.head_memory.forget_recent_heads();
        }
        result
    }

    /// Handles the whole frames at the front of `input`, unless calls that have ended must leave first. Returns the length of
    /// the handled frames in bytes.
    ///
    /// # Errors
    ///
    /// The client has broken a rule that ends the connection.
    fn handle_frames(
        &mut self,
        cx: &mut Context<'_>,
        input: &[u8],
    ) -> Result<usize, ConnectionError> {
        let mut handled_bytes = 0;
        // The reader is put back, except after an error, which ends the connection.
        let mut reader = std::mem::take(&mut self.reader);
        while !self.awaits_ended_calls()
            && let Some((frame_bytes, frame)) = reader.next_frame(&input[handled_bytes..])?
        {
            handled_bytes += frame_bytes;
            self.handle_frame(cx, frame)?;
        }
        self.reader = reader;
        Ok(handled_bytes)
    }

    /// Applies one frame of the client. Fails if the frame breaks a rule that ends the connection.
    fn handle_frame(
        &mut self,
        cx: &mut Context<'_>,
        frame: Frame<'_>,
    ) -> Result<(), ConnectionError> {
        let handle = self.handle.clone();
        match frame {
            Frame::Headers {
                stream_id,
                block,
                ends_stream,
                depends_on_itself,
            } => return self.handle_head(cx, stream_id, depends_on_itself, block, ends_stream),
            Frame::Data {
                stream_id,
                data,
                flow_bytes,
                ends_stream,
            } => {
                self.inbox.expect_body();
                return handle.with_state(|state| {
                    state.receive_data(stream_id, data, flow_bytes, ends_stream)
                });
            }
            Frame::Reset { stream_id } => {
                return handle.with_state(|state| state.receive_reset(stream_id));
            }
            Frame::SelfDependency { stream_id } => {
                return handle.with_state(|state| state.receive_self_dependency(stream_id));
            }
            Frame::WindowUpdate { stream_id, bytes } => {
                return handle.with_state(|state| state.receive_window_update(stream_id, bytes));
            }
            Frame::Settings(settings) => {
                return handle.with_state(|state| {
                    state.allowance.spend_frame();
                    state.receive_settings(settings)
                });
            }
            Frame::Ping(payload) => handle.with_state(|state| {
                state.allowance.spend_frame();
                state
                    .outbox
                    .push_with(|out| frame::write_ping_ack(out, payload));
            }),
            Frame::PingAck if self.close_stage == CloseStage::Announced => {
                self.close_stage = CloseStage::Refusing;
                self.announce_last_stream(Reason::NO_ERROR);
            }
            Frame::PartialBlock | Frame::Other => {
                handle.with_state(|state| state.allowance.spend_frame())
            }
            Frame::PingAck | Frame::SettingsAck => {}
        }
        Ok(())
    }

    /// Handles a block of fields: the head of a new request, or the trailers of an open one.
    ///
    /// # Errors
    ///
    /// The block cannot be decoded, or its stream must not get one.
    fn handle_head(
        &mut self,
        cx: &mut Context<'_>,
        stream_id: u32,
        depends_on_itself: bool,
        block: &[u8],
        ends_stream: bool,
    ) -> Result<(), ConnectionError> {
        let decoder = &mut self.decoder;
        self.head_memory.count_received_block(block.len());
        let (open_stream, last_opened_id) = self
            .handle
            .with_state(|state| (state.find_stream(stream_id), state.history.last_opened_id()));
        if let Some(stream) = open_stream {
            let mut trailers = Trailers::default();
            decoder.decode(block, |field| trailers.add(field))?;
            let trailers = trailers.finish().filter(|_| !depends_on_itself);
            self.handle.with_state(|state| {
                state.receive_trailers(&stream, trailers, ends_stream, &self.head_memory);
            });
            return Ok(());
        }
        let mut draft = HeadDraft::new(Version::HTTP_2);
        decoder.decode(block, |field| draft.add(field))?;
        // Clients open streams with odd identifiers, in ascending order (RFC 9113 section 5.1.1).
        if stream_id <= last_opened_id || stream_id.is_multiple_of(2) {
            return self
                .handle
                .with_state(|state| state.receive_stray_head(stream_id));
        }
        self.handle
            .with_state(|state| state.history.record_open(stream_id));
        if self.must_refuse_request() {
            self.refuse_stream(stream_id);
            return Ok(());
        }
        if depends_on_itself {
            draft.mark_malformed("its stream depends on itself");
        }
        match draft.finish(ends_stream, &mut self.head_memory) {
            Ok(Some((head, head_charge))) => {
                self.begin_request(cx, stream_id, head_charge, Ok(head), ends_stream);
            }
            // The memory for heads is used up. The client may send the request again.
            Ok(None) => self.refuse_stream(stream_id),
            Err(unreadable) => {
                let no_charge = HeadCharge::default();
                self.begin_request(cx, stream_id, no_charge, Err(unreadable), ends_stream);
            }
        }
        Ok(())
    }

    /// Whether a new request is refused: the connection ends, or the client has too many open requests.
    fn must_refuse_request(&self) -> bool {
        self.close_stage == CloseStage::Refusing
            || self.handle.with_state(|state| state.is_at_stream_limit())
            || self.has_max_open_requests()
    }

    /// Whether the tasks of calls that were reset must end before more is read. A proxy would otherwise get refusals for its
    /// other clients, although it has no more streams open than it may.
    #[inline]
    fn awaits_ended_calls(&self) -> bool {
        self.peer.role == ListenerRole::RateLimitService && self.has_max_open_requests()
    }

    /// Whether no more requests may be open. They may be twice as many as streams, because the task of a stream that has ended
    /// may not have noticed that yet.
    fn has_max_open_requests(&self) -> bool {
        let max_streams = self.handle.with_state(|state| state.max_streams);
        self.handle.open_request_count() >= 2 * max_streams
    }

    /// Refuses a request whose head has been decoded, before any of it is processed.
    fn refuse_stream(&self, stream_id: u32) {
        self.handle.with_state(|state| {
            state.allowance.spend_head();
            state.reset_stream(stream_id, Reason::REFUSED_STREAM);
        });
    }

    /// Begins a request. A request that is over at once gets no task of its own, as with most of the gateway's own
    /// responses.
    fn begin_request(
        &self,
        cx: &mut Context<'_>,
        stream_id: u32,
        head_charge: HeadCharge,
        head: Result<Head, UnreadableRequest>,
        ends_stream: bool,
    ) {
        let Peer {
            worker,
            idle_timeout,
            header_timeout,
            ..
        } = &*self.peer;
        if self.peer.deadlines.phase() != Phase::Linger {
            // This restarts the idle time, also if the request is over before the phase is computed again.
            self.peer.deadlines.report_request_begun();
        }
        // The request has deadlines of its own, for its body and its server. Its phase never ends by time.
        let deadlines = worker
            .deadline_clock
            .watch_connection(*idle_timeout, *header_timeout);
        deadlines.report_request_begun();
        if head.is_err() {
            self.handle.with_state(|state| state.allowance.spend_head());
        }
        let send_timeout = worker.generation().ruleset.timeouts.send;
        let stream = Http2Stream::new(
            stream_id,
            head_charge,
            self.handle.clone(),
            deadlines,
            send_timeout,
            head.as_ref().ok(),
            ends_stream,
        );
        let request = OpenRequest::new(stream, self.peer.clone());
        if self.peer.role == ListenerRole::RateLimitService {
            return self.begin_call(cx, request, head);
        }
        let mut exchange = Box::pin(serve_request(request, head, self.stack.clone()));
        if exchange.as_mut().poll(cx).is_pending() {
            tokio::task::spawn_local(exchange);
        }
    }

    /// Begins a call of gRPC, which passes by the stack.
    #[cold]
    #[inline(never)]
    fn begin_call(
        &self,
        cx: &mut Context<'_>,
        request: OpenRequest,
        head: Result<Head, UnreadableRequest>,
    ) {
        if head.is_ok() {
            // A proxy resets the calls of clients that leave, and all its clients share this connection. So each call pays
            // for its own reset: it costs no server anything, and its work is bounded.
            self.handle.with_state(|state| state.allowance.earn_frame());
        }
        let (stack, memory) = (self.stack.clone(), self.message_memory.clone());
        let mut call = serve_call(request, head, stack, memory);
        if call.as_mut().poll(cx).is_pending() {
            tokio::task::spawn_local(call);
        }
    }

    /// Ends a flooded connection, announces the end of an idle or draining one, and updates the deadlines.
    fn check_flood_and_deadlines(&mut self) {
        let Peer {
            deadlines, worker, ..
        } = &*self.peer;
        let now = worker.deadline_clock.coarse_now();
        if self.handle.with_state(|state| state.is_flooded(now)) {
            worker.count_flood();
            return self.close(Reason::ENHANCE_YOUR_CALM);
        }
        if self.close_stage == CloseStage::Open
            && (worker.is_draining() || deadlines.has_idle_timeout_passed())
        {
            self.close_stage = CloseStage::Announced;
            self.handle.with_state(|state| {
                state.outbox.push_with(|out| {
                    frame::write_go_away(out, MAX_STREAM_ID, Reason::NO_ERROR);
                    // The acknowledgement of this ping arrives after all requests that the client sent before it read
                    // the GOAWAY (RFC 9113 section 6.8).
                    frame::write_ping(out, LAST_PING);
                });
            });
        }
        self.update_phase();
    }

    /// Ends the connection with all open requests.
    fn close(&mut self, reason: Reason) {
        self.close_stage = CloseStage::Closing;
        self.handle.with_state(ConnectionState::close_all_streams);
        self.announce_last_stream(reason);
    }

    /// Sends GOAWAY with the last stream that was opened, or with the one of an earlier GOAWAY if that is lower.
    fn announce_last_stream(&mut self, reason: Reason) {
        self.handle.with_state(|state| {
            // A later GOAWAY must not name a higher stream: RFC 9113 section 6.8.
            let last_stream_id = self.last_stream_id.min(state.history.last_opened_id());
            self.last_stream_id = last_stream_id;
            state
                .outbox
                .push_with(|out| frame::write_go_away(out, last_stream_id, reason));
        });
    }

    /// Enters the phase of the connection's deadline that its state calls for.
    fn update_phase(&self) {
        let peer = &*self.peer;
        let deadlines = &peer.deadlines;
        // While there is too much output nothing is read, so a head cannot be late.
        let is_reading = !self.handle.with_state(|state| state.is_overfull());
        let is_in_head = is_reading && self.reader.is_in_head(&self.inbox.bytes);
        let open_request_count = self.handle.open_request_count();
        let phase = match (is_in_head, open_request_count, self.close_stage) {
            (true, ..) => Phase::Header,
            (_, 1.., _) => Phase::Request,
            (.., CloseStage::Open) => Phase::IdleMultiplexed,
            _ => Phase::Linger,
        };
        // The deadline of a closing connection is never extended.
        let is_closing = deadlines.phase() == Phase::Linger && open_request_count == 0;
        if deadlines.phase() != phase && !is_closing {
            match phase {
                Phase::Header => deadlines.enter_phase(phase, peer.header_timeout),
                Phase::Linger => deadlines.enter_phase(phase, LINGER_TIMEOUT),
                Phase::IdleMultiplexed | Phase::Idle => {
                    deadlines.enter_phase(phase, peer.idle_timeout)
                }
                Phase::Request => deadlines.report_request_begun(),
            }
        }
    }
}
