//! Extends [`ConnectionState`]: receives the bodies of requests and their trailers (RFC 9113 section 8.1).
//!
//! A body waits in its stream until it is read. Once it is larger than its route allows, or nobody reads it any more,
//! nothing of it is kept. So a thousand refused uploads hold no bodies, however fast they arrive.

use http::HeaderMap;

use super::connection_state::{ConnectionState, OpenStream};
use super::head_memory::HeadMemory;
use super::stream_state::{BodyUse, StreamState};
use crate::http::http2::{ConnectionError, Reason};
use crate::serve::worker::client_socket::MAX_DRAINED_BYTES;

/// Minimum bytes of content with which a received DATA frame earns the client another frame without use.
const SUBSTANTIAL_DATA_BYTES: usize = 1024;

impl<S: OpenStream> ConnectionState<S> {
    /// Receives a piece of a request's body. `flow_bytes` count for flow control: the data and its padding.
    ///
    /// # Errors
    ///
    /// The client has exceeded the window of the connection, or the stream was never opened.
    pub fn receive_data(
        &mut self,
        id: u32,
        data: &[u8],
        flow_bytes: u32,
        ends_stream: bool,
    ) -> Result<(), ConnectionError> {
        let new_window = self.receive_window.checked_sub(flow_bytes);
        self.receive_window = new_window.ok_or(ConnectionError(Reason::FLOW_CONTROL_ERROR))?;
        let Some(stream) = self.find_stream(id) else {
            self.consume_connection_bytes(flow_bytes);
            if data.is_empty() {
                self.allowance.spend_frame();
            }
            return self.receive_stray_frame(id);
        };
        let state = &mut *stream.state().borrow_mut();
        match data.len() {
            0 if !ends_stream => self.allowance.spend_frame(),
            SUBSTANTIAL_DATA_BYTES.. => self.allowance.earn_frame(),
            _ => {}
        }
        let stream_window = state.receive_window.checked_sub(flow_bytes);
        // The outer `None` is an error: the body is longer or shorter than its stated length.
        let remaining_bytes = match state.remaining_body_bytes {
            None => Some(None),
            Some(bytes_before) => bytes_before
                .checked_sub(data.len() as u64)
                .filter(|remaining| !ends_stream || *remaining == 0)
                .map(Some),
        };
        let error_reason = match (stream_window, remaining_bytes) {
            _ if state.is_request_ended => Some(Reason::STREAM_CLOSED),
            (None, _) => Some(Reason::FLOW_CONTROL_ERROR),
            (_, None) => Some(Reason::PROTOCOL_ERROR),
            _ => None,
        };
        if let Some(reason) = error_reason {
            self.consume_connection_bytes(flow_bytes);
            self.fail_stream(&stream, state, reason);
            return Ok(());
        }
        state.receive_window = stream_window.unwrap_or_default();
        state.remaining_body_bytes = remaining_bytes.flatten();
        state.is_request_ended = ends_stream;
        if state.body_use == BodyUse::Kept && !state.admit_bytes(data.len() as u64) {
            self.drop_body(id, state, BodyUse::TooLarge);
        }
        if state.body_use == BodyUse::Kept {
            state.received_body.extend_from_slice(data);
            // Nobody reads the padding, so its window is returned at once.
            self.consume_stream_bytes(id, state, flow_bytes - data.len() as u32);
        } else {
            self.count_dropped_bytes(id, state, flow_bytes);
        }
        state.wake();
        self.remove_if_over(&stream, state);
        Ok(())
    }

    /// Lets at most this many bytes of a body wait or come from now on. If more come, the body counts as too large.
    pub fn bound_body(&mut self, id: u32, state: &mut StreamState, max_bytes: u64) {
        state.allowed_body_bytes = Some(max_bytes);
        if !state.admit_bytes(state.received_body.len() as u64) {
            self.drop_body(id, state, BodyUse::TooLarge);
        }
    }

    /// Drops what has been received of a body and not read, and whatever still comes.
    pub fn drop_body(&mut self, id: u32, state: &mut StreamState, body_use: BodyUse) {
        if state.body_use == BodyUse::Kept && !state.is_closed {
            state.body_use = body_use;
            state.trailers = None;
            let unread_bytes = std::mem::take(&mut state.received_body).len();
            self.count_dropped_bytes(id, state, unread_bytes as u32);
        }
    }

    /// Returns the window of bytes that nobody reads. A stream gets it for [`MAX_DRAINED_BYTES`], the connection always.
    fn count_dropped_bytes(&mut self, id: u32, state: &mut StreamState, bytes: u32) {
        state.dropped_bytes = state.dropped_bytes.saturating_add(bytes as usize);
        match state.dropped_bytes <= MAX_DRAINED_BYTES {
            true => self.consume_stream_bytes(id, state, bytes),
            false => self.consume_connection_bytes(bytes),
        }
    }

    /// Receives the trailers of a request, with the bytes of memory that they hold; `None` if they are not acceptable.
    pub fn receive_trailers(
        &mut self,
        stream: &S,
        trailers: Option<(HeaderMap, usize)>,
        ends_stream: bool,
        memory: &HeadMemory,
    ) {
        let state = &mut *stream.state().borrow_mut();
        let is_partial = state.remaining_body_bytes.is_some_and(|bytes| bytes > 0);
        let reason = match trailers {
            _ if state.is_request_ended => Reason::STREAM_CLOSED,
            Some((trailers, bytes)) if ends_stream && !is_partial => match memory.charge(bytes) {
                Some(charge) => {
                    if state.body_use == BodyUse::Kept && !trailers.is_empty() {
                        state.trailers_charge = charge;
                        state.trailers = Some(trailers);
                    }
                    state.is_request_ended = true;
                    state.wake();
                    return self.remove_if_over(stream, state);
                }
                None => Reason::ENHANCE_YOUR_CALM,
            },
            _ => Reason::PROTOCOL_ERROR,
        };
        self.fail_stream(stream, state, reason);
    }
}
