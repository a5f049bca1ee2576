//! The state that the streams of one connection share: flow-control windows, the table of open streams, and the output.
//!
//! This file applies received frames to streams and decides which stream sends next, by RFC 9113 sections 5 and 6.9. It
//! reads and writes no socket. `request_data.rs` extends the state for the bodies of requests, and `stray_frames.rs` for
//! streams that are not open.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::allowance::Allowance;
use super::initial_settings::{self, CONNECTION_WINDOW, STREAM_WINDOW};
use super::stream_history::{ResetSender, StreamHistory};
use super::stream_state::StreamState;
use crate::base::clock::Nanos;
use crate::http::http1::Outbox;
use crate::http::http2::frame::{self, flag, kind, setting};
use crate::http::http2::frame_reader::SettingsPayload;
use crate::http::http2::hpack::Encoder;
use crate::http::http2::{ConnectionError, DEFAULT_WINDOW, MAX_FRAME_PAYLOAD, MAX_WINDOW, Reason};

/// With this many bytes of output, no content of responses is added to it.
const FULL_OUTPUT_BYTES: usize = 64 * 1024;

/// With this many bytes of output, nothing is read from the client and no response begins. Frames that need no window, such
/// as acknowledgements, can make the output longer than [`FULL_OUTPUT_BYTES`].
const OVERFULL_OUTPUT_BYTES: usize = 2 * FULL_OUTPUT_BYTES;

/// An open stream, as far as the connection must know it.
pub trait OpenStream {
    /// The identifier of the stream.
    fn id(&self) -> u32;

    /// The state of the stream. If the state of the connection is borrowed too, it must be borrowed first.
    fn state(&self) -> &RefCell<StreamState>;

    /// Tells a stream that has waited for space that the connection has less output now.
    fn on_output_drained(&self, state: &mut StreamState);

    /// Tells the stream that some of its pending data was added to the output.
    fn on_data_sent(&self, state: &mut StreamState);
}

/// The shared state of one connection.
pub struct ConnectionState<S> {
    /// The output: frames that wait to be sent.
    pub outbox: Outbox,
    /// Encodes the header fields of responses with HPACK.
    pub encoder: Encoder,
    /// Bounds frames without use.
    pub allowance: Allowance,
    /// Maximum number of open streams.
    pub max_streams: usize,
    /// Open streams, in ascending order of identifiers.
    open_streams: Vec<Rc<S>>,
    /// Streams with data that their windows allow to send, the next one first.
    sendable_streams: VecDeque<Rc<S>>,
    /// Which identifiers the client has used, and how their streams ended.
    pub history: StreamHistory,
    /// Bytes that the gateway may send on the connection: its flow-control window.
    send_window: i64,
    /// The send window that a stream begins with, as the client's settings have it.
    initial_send_window: i64,
    /// Bytes that the client may send on the connection.
    pub receive_window: u32,
    /// Bytes that were read since the last window update of the connection.
    consumed_bytes: u32,
    /// Whether the client could send less than a full frame, and gets a window update in the next flush.
    has_window_reopened: bool,
    /// Whether some stream waits until the connection has less output.
    has_waiting_streams: bool,
}

impl<S> ConnectionState<S> {
    /// The state of a new connection, with the gateway's first frames as output.
    pub fn new(max_streams: usize) -> ConnectionState<S> {
        let mut outbox = Outbox::default();
        outbox.push_with(|out| initial_settings::write_initial_frames(out, max_streams));
        ConnectionState {
            outbox,
            encoder: Encoder::default(),
            allowance: Allowance::of_connection(max_streams),
            max_streams,
            open_streams: Vec::new(),
            sendable_streams: VecDeque::new(),
            history: StreamHistory::default(),
            send_window: DEFAULT_WINDOW.into(),
            initial_send_window: DEFAULT_WINDOW.into(),
            receive_window: CONNECTION_WINDOW,
            consumed_bytes: 0,
            has_window_reopened: false,
            has_waiting_streams: false,
        }
    }
}

impl<S: OpenStream> ConnectionState<S> {
    /// Whether frames or data can be sent.
    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty() || (!self.sendable_streams.is_empty() && self.send_window > 0)
    }

    /// Whether there is so much output that nothing should be read.
    pub fn is_overfull(&self) -> bool {
        self.outbox.len() >= OVERFULL_OUTPUT_BYTES
    }

    /// Lets a stream wait for space: it is woken once the connection has less output.
    pub fn await_output_space(&mut self, state: &mut StreamState) {
        self.has_waiting_streams = true;
        state.awaits_output = true;
    }

    /// Wakes the streams that wait until the connection has less output.
    pub fn wake_waiting_streams(&mut self) {
        if std::mem::take(&mut self.has_waiting_streams) {
            for stream in &self.open_streams {
                let state = &mut *stream.state().borrow_mut();
                if std::mem::take(&mut state.awaits_output) {
                    stream.on_output_drained(state);
                }
            }
        }
    }

    /// Whether as many streams are open as the client may open.
    pub fn is_at_stream_limit(&self) -> bool {
        self.open_streams.len() >= self.max_streams
    }

    /// Adds the stream of a new request, whose identifier is the highest so far.
    pub fn add_stream(&mut self, stream: Rc<S>) {
        self.open_streams.push(stream);
    }

    /// The send window that a stream begins with.
    pub fn initial_send_window(&self) -> i64 {
        self.initial_send_window
    }

    /// The index of an open stream; `Err` with the index where the stream would stand.
    fn index_of(&self, id: u32) -> Result<usize, usize> {
        // Most frames are about the newest stream.
        match self.open_streams.last() {
            Some(newest) if newest.id() == id => Ok(self.open_streams.len() - 1),
            _ => self
                .open_streams
                .binary_search_by_key(&id, |stream| stream.id()),
        }
    }

    /// The stream with this identifier, if it is open.
    pub fn find_stream(&self, id: u32) -> Option<Rc<S>> {
        let index = self.index_of(id).ok()?;
        Some(self.open_streams[index].clone())
    }

    /// Removes a stream from the open streams and from the queue of those that can send.
    fn remove_stream(&mut self, id: u32) {
        if let Ok(index) = self.index_of(id) {
            self.open_streams.remove(index);
        }
        if !self.sendable_streams.is_empty() {
            self.sendable_streams.retain(|stream| stream.id() != id);
        }
    }

    /// Sends RST_STREAM. The caller closes the stream if it is open.
    pub fn reset_stream(&mut self, id: u32, reason: Reason) {
        self.outbox
            .push_with(|out| frame::write_reset(out, id, reason));
        self.history.record_reset(id, ResetSender::Gateway);
    }

    /// Resets and closes a stream on which the client has broken a rule.
    pub fn fail_stream(&mut self, stream: &S, state: &mut StreamState, reason: Reason) {
        self.allowance.spend_frame();
        self.reset_stream(stream.id(), reason);
        state.has_failed = true;
        self.close_stream(stream, state);
    }

    /// Closes a stream for both sides, and drops what was received and not read.
    pub fn close_stream(&mut self, stream: &S, state: &mut StreamState) {
        self.consume_connection_bytes(state.received_body.len() as u32);
        state.close();
        self.remove_stream(stream.id());
    }

    /// Closes all streams, at the end of the connection.
    pub fn close_all_streams(&mut self) {
        self.sendable_streams.clear();
        for stream in std::mem::take(&mut self.open_streams) {
            stream.state().borrow_mut().close();
        }
    }

    /// Receives RST_STREAM: the client gives a request up.
    ///
    /// # Errors
    ///
    /// The stream was never opened.
    pub fn receive_reset(&mut self, id: u32) -> Result<(), ConnectionError> {
        self.allowance.spend_frame();
        match self.find_stream(id) {
            Some(stream) => {
                self.close_stream(&stream, &mut stream.state().borrow_mut());
                self.history.record_reset(id, ResetSender::Client);
                Ok(())
            }
            None if self.history.has_left_idle(id) => Ok(()),
            None => Err(ConnectionError(Reason::PROTOCOL_ERROR)),
        }
    }

    /// Receives WINDOW_UPDATE for a stream, or with `id` 0 for the connection: RFC 9113 section 6.9.
    ///
    /// # Errors
    ///
    /// The window of the connection would be too large or is enlarged by 0, or the stream was never opened.
    pub fn receive_window_update(&mut self, id: u32, bytes: u32) -> Result<(), ConnectionError> {
        let enlarge_window = |window: i64| {
            let enlarged_window = window + i64::from(bytes);
            (bytes > 0 && enlarged_window <= i64::from(MAX_WINDOW)).then_some(enlarged_window)
        };
        let reason = match bytes {
            0 => Reason::PROTOCOL_ERROR,
            _ => Reason::FLOW_CONTROL_ERROR,
        };
        if id == 0 {
            self.send_window = enlarge_window(self.send_window).ok_or(ConnectionError(reason))?;
            return Ok(());
        }
        let Some(stream) = self.find_stream(id) else {
            return match self.history.has_left_idle(id) {
                true => Ok(()),
                false => Err(ConnectionError(Reason::PROTOCOL_ERROR)),
            };
        };
        let state = &mut *stream.state().borrow_mut();
        match enlarge_window(state.send_window) {
            Some(window) => state.send_window = window,
            None => self.fail_stream(&stream, state, reason),
        }
        self.queue_if_sendable(&stream, state);
        Ok(())
    }

    /// Applies and acknowledges the client's settings: RFC 9113 section 6.5.
    ///
    /// # Errors
    ///
    /// A value is invalid, or makes the window of a stream too large.
    pub fn receive_settings(
        &mut self,
        settings: SettingsPayload<'_>,
    ) -> Result<(), ConnectionError> {
        let mut initial_window = self.initial_send_window;
        for (identifier, value) in settings.iter() {
            match identifier {
                setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                setting::ENABLE_PUSH if value > 1 => {
                    return Err(ConnectionError(Reason::PROTOCOL_ERROR));
                }
                setting::INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                    return Err(ConnectionError(Reason::FLOW_CONTROL_ERROR));
                }
                setting::INITIAL_WINDOW_SIZE => initial_window = value.into(),
                setting::MAX_FRAME_SIZE
                    if !(MAX_FRAME_PAYLOAD as u32..1 << 24).contains(&value) =>
                {
                    return Err(ConnectionError(Reason::PROTOCOL_ERROR));
                }
                _ => {}
            }
        }
        self.outbox.push_with(frame::write_settings_ack);
        if initial_window != self.initial_send_window {
            // Only the last value counts: a frame may list thousands, and each would change the window of every stream.
            self.change_initial_window(initial_window)?;
        }
        Ok(())
    }

    /// Changes the initial send window, and the windows of open streams by the same difference: RFC 9113 section 6.9.2.
    fn change_initial_window(&mut self, window: i64) -> Result<(), ConnectionError> {
        let difference = window - std::mem::replace(&mut self.initial_send_window, window);
        for index in 0..self.open_streams.len() {
            let stream = self.open_streams[index].clone();
            let state = &mut *stream.state().borrow_mut();
            state.send_window += difference;
            if state.send_window > i64::from(MAX_WINDOW) {
                return Err(ConnectionError(Reason::FLOW_CONTROL_ERROR));
            }
            self.queue_if_sendable(&stream, state);
        }
        Ok(())
    }

    /// Whether the client has sent too many frames without use.
    pub fn is_flooded(&mut self, now: Nanos) -> bool {
        self.allowance.renew_and_check_spent(now)
    }

    /// Counts received bytes of a stream as read. Once the read bytes are half of a window, sends a window update for them.
    pub fn consume_stream_bytes(&mut self, id: u32, state: &mut StreamState, bytes: u32) {
        self.consume_connection_bytes(bytes);
        state.consumed_bytes += bytes;
        if state.consumed_bytes >= STREAM_WINDOW / 2 && !state.is_request_ended {
            let increment = std::mem::take(&mut state.consumed_bytes);
            state.receive_window += increment;
            self.outbox
                .push_with(|out| frame::write_window_update(out, id, increment));
        }
    }

    /// Counts received bytes as read for the window of the connection.
    pub fn consume_connection_bytes(&mut self, bytes: u32) {
        self.consumed_bytes += bytes;
        if self.consumed_bytes >= CONNECTION_WINDOW / 2 {
            let increment = std::mem::take(&mut self.consumed_bytes);
            let was_blocked = self.is_client_blocked();
            self.receive_window += increment;
            self.outbox
                .push_with(|out| frame::write_window_update(out, 0, increment));
            if was_blocked {
                // The client can send again, so the deadlines of its bodies start again when their streams are woken.
                self.has_window_reopened = true;
            }
        }
    }

    /// Whether less than a full frame is left of the connection's window, so that the client may be unable to send.
    pub fn is_client_blocked(&self) -> bool {
        self.receive_window < MAX_FRAME_PAYLOAD as u32
    }

    /// Wakes all streams if the connection's window was closed to the client and has reopened.
    pub fn wake_streams_if_reopened(&mut self) {
        if std::mem::take(&mut self.has_window_reopened) {
            for stream in &self.open_streams {
                stream.state().borrow_mut().wake();
            }
        }
    }

    /// Sends pending data of a stream at once if no other stream waits, and queues the stream for the rest.
    pub fn send_or_queue(&mut self, stream: &Rc<S>, state: &mut StreamState) {
        while self.sendable_streams.is_empty() && self.outbox.len() < FULL_OUTPUT_BYTES {
            if !self.write_data(stream, state) {
                break;
            }
        }
        self.queue_if_sendable(stream, state);
    }

    /// Queues a stream if it has data that its window allows to send.
    fn queue_if_sendable(&mut self, stream: &Rc<S>, state: &mut StreamState) {
        if !state.is_queued
            && !state.pending_data.is_empty()
            && state.send_window > 0
            && !state.is_closed
        {
            state.is_queued = true;
            self.sendable_streams.push_back(stream.clone());
        }
    }

    /// Sends one DATA frame of each queued stream in turn, while windows and output allow.
    pub fn send_queued(&mut self) {
        while self.send_window > 0 && self.outbox.len() < FULL_OUTPUT_BYTES {
            let Some(stream) = self.sendable_streams.pop_front() else {
                return;
            };
            let state = &mut *stream.state().borrow_mut();
            state.is_queued = false;
            self.write_data(&stream, state);
            self.queue_if_sendable(&stream, state);
        }
    }

    /// Adds one DATA frame of a stream to the output, if windows allow. True if a frame was added and more data remains.
    fn write_data(&mut self, stream: &S, state: &mut StreamState) -> bool {
        let window = self.send_window.min(state.send_window);
        let allowed_bytes = window.clamp(0, MAX_FRAME_PAYLOAD as i64) as usize;
        let sent_bytes = state.pending_data.len().min(allowed_bytes);
        if sent_bytes == 0 {
            return false;
        }
        let data = state.pending_data.split_to(sent_bytes);
        self.send_window -= sent_bytes as i64;
        state.send_window -= sent_bytes as i64;
        let ends_stream = state.is_last_data && state.pending_data.is_empty();
        let flags = if ends_stream { flag::END_STREAM } else { 0 };
        let head = frame::frame_head(sent_bytes, kind::DATA, flags, stream.id());
        self.outbox.push_with(|out| out.extend_from_slice(&head));
        self.outbox.push(data);
        self.allowance.earn_frame();
        stream.on_data_sent(state);
        if ends_stream {
            state.is_response_sent = true;
            self.remove_if_over(stream, state);
        }
        !state.pending_data.is_empty()
    }

    /// Removes a stream from the open ones once both sides have ended it.
    pub fn remove_if_over(&mut self, stream: &S, state: &mut StreamState) {
        if state.is_response_sent && state.is_request_ended {
            self.remove_stream(stream.id());
        }
    }
}
