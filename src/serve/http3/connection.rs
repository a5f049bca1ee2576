//! The task of an HTTP/3 connection: begins the requests of its streams, and announces its end. It reads no stream itself.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use quinn::{RecvStream, SendStream, VarInt};

use super::control::read_one_way_stream;
use super::exchange::serve_request;
use super::shared_state::SharedState;
use crate::http::http3::Code;
use crate::http::http3::frame;
use crate::serve::stack::layers::Stack;
use crate::serve::stack::peer::Peer;
use crate::serve::worker::client_socket::LINGER_TIMEOUT;
use crate::serve::worker::deadlines::Phase;

/// Maximum number of open requests of a connection. It is twice the number of streams, because the task of a stream that
/// has ended may not have noticed that yet.
const MAX_OPEN_REQUESTS: usize = 2 * crate::net::quic::MAX_CONCURRENT_STREAMS as usize;

/// The difference between the identifiers of two requests in a row: RFC 9000 section 2.1.
const STREAM_ID_STEP: u64 = 4;

/// Serves a connection to its end. The caller ends it when its deadline passes.
pub async fn serve(quic: quinn::Connection, peer: Rc<Peer>, stack: Stack) {
    // The client allows the stream in its first packet, or breaks RFC 9114 section 6.2.
    let Ok(mut control) = quic.open_uni().await else {
        return;
    };
    let mut start = Vec::new();
    frame::write_control_start(&mut start);
    if control.write_all(&start).await.is_err() {
        return;
    }
    let mut connection = Http3Connection {
        state: SharedState::new(quic),
        control,
        next_stream_id: 0,
        is_refusing: false,
        peer,
        stack,
    };
    let code = connection.serve().await;
    connection.state.close(code);
}

/// A stream that the client has opened, or the end of the connection.
enum Event {
    Request(SendStream, RecvStream),
    OneWay(RecvStream),
    End(Code),
}

/// One HTTP/3 connection, as its own task sees it.
struct Http3Connection {
    state: Rc<SharedState>,
    /// The gateway's control stream.
    control: SendStream,
    /// The lowest identifier of a request that has not begun.
    next_stream_id: u64,
    /// Whether the end was announced, so that new requests are refused.
    is_refusing: bool,
    peer: Rc<Peer>,
    stack: Stack,
}

impl Drop for Http3Connection {
    fn drop(&mut self) {
        // The tasks of requests would keep the connection open.
        self.state.close(Code::NO_ERROR);
    }
}

impl Http3Connection {
    /// Serves the connection to its end, and returns the code for the client.
    async fn serve(&mut self) -> Code {
        let quic = self.state.quic.clone();
        loop {
            // These futures must live until one of them is ready, or nothing would wake the task.
            let mut request = pin!(quic.accept_bi());
            let mut one_way = pin!(quic.accept_uni());
            let event = poll_fn(|cx| {
                if let Poll::Ready(code) = self.poll_end(cx) {
                    return Poll::Ready(Event::End(code));
                }
                let opened = match request.as_mut().poll(cx) {
                    Poll::Pending => {
                        let opened = one_way.as_mut().poll(cx);
                        opened.map_ok(Event::OneWay)
                    }
                    opened => opened.map_ok(|(sender, receiver)| Event::Request(sender, receiver)),
                };
                // An error means that the client has closed the connection, or is gone.
                opened.map(|opened| opened.unwrap_or(Event::End(Code::NO_ERROR)))
            });
            match event.await {
                Event::Request(sender, receiver) => self.begin_request((sender, receiver)),
                Event::OneWay(stream) => {
                    tokio::task::spawn_local(read_one_way_stream(stream, self.state.clone()));
                }
                Event::End(code) => return code,
            }
        }
    }

    /// Ends a flooded connection, announces the end of an idle or draining one, and updates the deadlines. Ready with the
    /// code for the client when the connection must be closed at once.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Code> {
        self.state.register_waker(cx);
        if self.is_flooded() {
            self.peer.worker.count_flood();
            return Poll::Ready(Code::EXCESSIVE_LOAD);
        }
        if !self.is_refusing && self.must_end() {
            self.announce_end(cx);
        }
        self.update_phase();
        Poll::Pending
    }

    /// Whether the client has sent too much that is without use.
    fn is_flooded(&self) -> bool {
        let now = self.peer.coarse_now();
        self.state.allowance.borrow_mut().renew_and_check_spent(now)
    }

    /// Whether the worker drains, or the connection was idle for too long.
    fn must_end(&self) -> bool {
        self.peer.worker.is_draining() || self.peer.deadlines.has_idle_timeout_passed()
    }

    /// Sends GOAWAY with the first request that is not served. A client may send that again elsewhere.
    fn announce_end(&mut self, cx: &mut Context<'_>) {
        self.is_refusing = true;
        let mut go_away = Vec::new();
        frame::write_go_away(&mut go_away, self.next_stream_id);
        // A client that leaves no room for a few bytes sees only the end of the connection.
        let _ = pin!(self.control.write_all(&go_away)).poll(cx);
    }

    /// Begins a request, or refuses it: the connection ends, or the client has too many open requests.
    fn begin_request(&mut self, (mut sender, mut receiver): (SendStream, RecvStream)) {
        let is_full = self.state.open_request_count() >= MAX_OPEN_REQUESTS;
        if self.is_refusing || is_full {
            self.state.allowance.borrow_mut().spend_head();
            let Code(number) = Code::REQUEST_REJECTED;
            let code = VarInt::from_u32(number);
            // An error means that the client has left.
            let _ = (sender.reset(code), receiver.stop(code));
            return;
        }
        let stream_id = u64::from(VarInt::from(sender.id()));
        self.next_stream_id = self.next_stream_id.max(stream_id + STREAM_ID_STEP);
        // This restarts the idle time, also if the request is over before the phase is computed again.
        self.peer.deadlines.report_request_begun();
        let open_request = self.state.open_request();
        tokio::task::spawn_local(serve_request(
            (sender, receiver),
            self.state.clone(),
            open_request,
            self.peer.clone(),
            self.stack.clone(),
        ));
    }

    /// Enters the phase of the connection's deadline that its state calls for.
    fn update_phase(&self) {
        let deadlines = &self.peer.deadlines;
        let phase = match self.state.open_request_count() {
            0 if self.is_refusing => Phase::Linger,
            0 => Phase::IdleMultiplexed,
            _ => Phase::Request,
        };
        if deadlines.phase() != phase {
            match phase {
                Phase::Request => deadlines.report_request_begun(),
                // The client learns of the end, and which of its requests were not served, before the connection closes.
                Phase::Linger => deadlines.enter_phase(phase, LINGER_TIMEOUT),
                phase => {
                    self.state.head_memory.borrow_mut().forget_recent_heads();
                    deadlines.enter_phase(phase, self.peer.idle_timeout);
                }
            }
        }
    }
}
