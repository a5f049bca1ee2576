//! What the streams of one connection share: windows, the table of those that are open, and the way out.
//! RFC 9113 sections 5 and 6.9.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use http::HeaderMap;

use super::allowance::Allowance;
use super::heads::Heads;
use super::offer::{self, CONNECTION_WINDOW, MAX_STREAMS, STREAM_WINDOW};
use super::past::PastStreams;
use super::stream_state::StreamState;
use crate::base::clock::Nanos;
use crate::http::http1::Outbox;
use crate::http::http2::frame;
use crate::http::http2::frame::{flag, kind, setting};
use crate::http::http2::hpack::Encoder;
use crate::http::http2::reader::Settings;
use crate::http::http2::{FIRST_WINDOW, Fatal, MAX_FRAME, MAX_WINDOW, Reason};

/// Bytes of a piece of a body that make up for a frame which asks for nothing.
const SUBSTANTIAL: usize = 1024;

/// Bytes that wait for the client. From [`FULL`] on no content is added; from [`OVERFULL`] on nothing is read and no response
/// begins.
const FULL: usize = 64 * 1024;
const OVERFULL: usize = 2 * FULL;

/// An open stream, as far as the connection must know it.
pub trait OpenStream {
    /// Its number.
    fn id(&self) -> u32;

    /// Where it is. To be borrowed after what the streams share, if that is.
    fn state(&self) -> &RefCell<StreamState>;

    /// The client has taken what was sent, if not of this stream.
    fn goes_on(&self, state: &mut StreamState);

    /// Some of its content has been taken over.
    fn progressed(&self, state: &mut StreamState);
}

/// See the module.
pub struct ConnectionState<S> {
    /// Bytes to send.
    pub outbox: Outbox,
    /// Encodes header fields.
    pub encoder: Encoder,
    /// What may come that asks for nothing.
    pub allowance: Allowance,
    /// Open streams, by number.
    open: Vec<Rc<S>>,
    /// Streams with content that can be sent, the next one first.
    ready: VecDeque<Rc<S>>,
    /// Streams that are no longer open.
    pub past: PastStreams,
    /// Bytes that may be sent, and with how many a stream begins.
    room: i64,
    first_room: i64,
    /// Bytes that the client may send, and those that were read since its last window update.
    window: u32,
    taken: u32,
    /// The window has come back.
    freed: bool,
    /// Some stream waits until less waits for the client.
    held_up: bool,
}

impl<S> Default for ConnectionState<S> {
    /// At the beginning of a connection: what the gateway wants is the first to be sent.
    fn default() -> ConnectionState<S> {
        let mut outbox = Outbox::default();
        outbox.text(offer::write);
        ConnectionState {
            outbox,
            encoder: Encoder::default(),
            allowance: Allowance::default(),
            open: Vec::new(),
            ready: VecDeque::new(),
            past: PastStreams::default(),
            room: FIRST_WINDOW.into(),
            first_room: FIRST_WINDOW.into(),
            window: CONNECTION_WINDOW,
            taken: 0,
            freed: false,
            held_up: false,
        }
    }
}

impl<S: OpenStream> ConnectionState<S> {
    /// Something is to be sent.
    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty() || (!self.ready.is_empty() && self.room > 0)
    }

    /// So much is to be sent that nothing more should be read.
    pub fn is_overfull(&self) -> bool {
        self.outbox.len() >= OVERFULL
    }

    /// A stream waits until [`ConnectionState::is_overfull`] is over.
    pub fn hold_up(&mut self, state: &mut StreamState) {
        self.held_up = true;
        state.held_up = true;
    }

    /// Wakes those that waited for it.
    pub fn wake_held_up(&mut self) {
        if std::mem::take(&mut self.held_up) {
            for stream in &self.open {
                let state = &mut *stream.state().borrow_mut();
                if std::mem::take(&mut state.held_up) {
                    stream.goes_on(state);
                }
            }
        }
    }

    /// As many streams are open as may be.
    pub fn has_most(&self) -> bool {
        self.open.len() >= MAX_STREAMS
    }

    /// Adds the stream of a request.
    pub fn add(&mut self, stream: Rc<S>) {
        self.open.push(stream);
    }

    /// With how many bytes a stream begins that may be sent.
    pub fn first_room(&self) -> i64 {
        self.first_room
    }

    fn index_of(&self, id: u32) -> Result<usize, usize> {
        // Most frames are about the newest.
        match self.open.last() {
            Some(newest) if newest.id() == id => Ok(self.open.len() - 1),
            _ => self.open.binary_search_by_key(&id, |stream| stream.id()),
        }
    }

    /// The stream of this number, while it is open.
    pub fn find(&self, id: u32) -> Option<Rc<S>> {
        self.index_of(id).ok().map(|at| self.open[at].clone())
    }

    /// Forgets a stream that is over for both sides.
    fn forget(&mut self, id: u32) {
        if let Ok(at) = self.index_of(id) {
            self.open.remove(at);
        }
        if !self.ready.is_empty() {
            self.ready.retain(|stream| stream.id() != id);
        }
    }

    /// Tells the client that a stream ends here.
    pub fn reset(&mut self, id: u32, reason: Reason) {
        self.outbox.text(|out| frame::reset(out, id, reason));
        self.past.record_reset(id, false);
    }

    /// Ends a stream on which the client has broken a rule.
    pub fn fail(&mut self, stream: &S, state: &mut StreamState, reason: Reason) {
        self.allowance.spend();
        self.reset(stream.id(), reason);
        state.failed = true;
        self.close(stream, state);
    }

    /// Ends a stream for both sides: nothing of it can be sent or will come, and what came is lost.
    pub fn close(&mut self, stream: &S, state: &mut StreamState) {
        self.return_window(state.received.len() as u32);
        state.close();
        self.forget(stream.id());
    }

    /// Ends all streams: the client hears and says nothing more.
    pub fn hang_up(&mut self) {
        self.ready.clear();
        for stream in std::mem::take(&mut self.open) {
            stream.state().borrow_mut().close();
        }
    }

    /// A piece of a body came.
    pub fn data(&mut self, id: u32, data: &[u8], weight: u32, end: bool) -> Result<(), Fatal> {
        let window = self.window.checked_sub(weight);
        self.window = window.ok_or(Fatal(Reason::FLOW_CONTROL_ERROR))?;
        let Some(stream) = self.find(id) else {
            self.return_window(weight);
            if data.is_empty() {
                self.allowance.spend();
            }
            return self.stray(id);
        };
        let state = &mut *stream.state().borrow_mut();
        match data.len() {
            0 if !end => self.allowance.spend(),
            SUBSTANTIAL.. => self.allowance.earn(),
            _ => {}
        }
        let window = state.window.checked_sub(weight);
        let left = match state.expected {
            None => Some(None),
            Some(expected) => expected
                .checked_sub(data.len() as u64)
                .filter(|left| !end || *left == 0)
                .map(Some),
        };
        let wrong = match (window, left) {
            _ if state.ended => Some(Reason::STREAM_CLOSED),
            (None, _) => Some(Reason::FLOW_CONTROL_ERROR),
            (_, None) => Some(Reason::PROTOCOL_ERROR),
            _ => None,
        };
        if let Some(reason) = wrong {
            self.return_window(weight);
            self.fail(&stream, state, reason);
            return Ok(());
        }
        state.window = window.unwrap_or_default();
        state.expected = left.flatten();
        state.received.extend_from_slice(data);
        state.ended = end;
        self.consume(id, state, weight - data.len() as u32);
        state.wake();
        self.settle(&stream, state);
        Ok(())
    }

    /// Takes the trailers of a request, and how many bytes they hold; nothing where they are malformed.
    pub fn trailers(
        &mut self,
        stream: &S,
        trailers: Option<(HeaderMap, usize)>,
        end: bool,
        heads: &Heads,
    ) {
        let state = &mut *stream.state().borrow_mut();
        let short = state.expected.is_some_and(|left| left > 0);
        let reason = match trailers {
            _ if state.ended => Reason::STREAM_CLOSED,
            Some((trailers, bytes)) if end && !short => match heads.charge(bytes) {
                Some(charge) => {
                    state.trailers_charge = charge;
                    state.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                    state.ended = true;
                    state.wake();
                    return self.settle(stream, state);
                }
                None => Reason::ENHANCE_YOUR_CALM,
            },
            _ => Reason::PROTOCOL_ERROR,
        };
        self.fail(stream, state, reason);
    }

    /// The client has reset a stream.
    pub fn client_reset(&mut self, id: u32) -> Result<(), Fatal> {
        self.allowance.spend();
        match self.find(id) {
            Some(stream) => {
                self.close(&stream, &mut stream.state().borrow_mut());
                self.past.record_reset(id, true);
                Ok(())
            }
            None if self.past.was_opened(id) => Ok(()),
            None => Err(Fatal(Reason::PROTOCOL_ERROR)),
        }
    }

    /// The client has opened the window of a stream, or with `id` 0 that of the connection: RFC 9113 section 6.9.
    pub fn window_update(&mut self, id: u32, bytes: u32) -> Result<(), Fatal> {
        let grown = |room: i64| {
            let room = room + i64::from(bytes);
            (bytes > 0 && room <= i64::from(MAX_WINDOW)).then_some(room)
        };
        let reason = match bytes {
            0 => Reason::PROTOCOL_ERROR,
            _ => Reason::FLOW_CONTROL_ERROR,
        };
        if id == 0 {
            self.room = grown(self.room).ok_or(Fatal(reason))?;
            return Ok(());
        }
        let Some(stream) = self.find(id) else {
            return match self.past.was_opened(id) {
                true => Ok(()),
                false => Err(Fatal(Reason::PROTOCOL_ERROR)),
            };
        };
        let state = &mut *stream.state().borrow_mut();
        match grown(state.room) {
            Some(room) => state.room = room,
            None => self.fail(&stream, state, reason),
        }
        self.enqueue(&stream, state);
        Ok(())
    }

    /// What the client wants: RFC 9113 section 6.5.
    pub fn settings(&mut self, settings: Settings<'_>) -> Result<(), Fatal> {
        let mut first_room = self.first_room;
        for (about, value) in settings.iter() {
            match about {
                setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                setting::ENABLE_PUSH if value > 1 => return Err(Fatal(Reason::PROTOCOL_ERROR)),
                setting::INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                    return Err(Fatal(Reason::FLOW_CONTROL_ERROR));
                }
                setting::INITIAL_WINDOW_SIZE => first_room = value.into(),
                setting::MAX_FRAME_SIZE if !(MAX_FRAME as u32..1 << 24).contains(&value) => {
                    return Err(Fatal(Reason::PROTOCOL_ERROR));
                }
                _ => {}
            }
        }
        self.outbox.text(frame::settings_taken);
        if first_room != self.first_room {
            // Once for all that a frame says of it, for it costs something for each stream.
            self.begin_with(first_room)?;
        }
        Ok(())
    }

    fn begin_with(&mut self, room: i64) -> Result<(), Fatal> {
        let more = room - std::mem::replace(&mut self.first_room, room);
        for at in 0..self.open.len() {
            let stream = self.open[at].clone();
            let state = &mut *stream.state().borrow_mut();
            state.room += more;
            if state.room > i64::from(MAX_WINDOW) {
                return Err(Fatal(Reason::FLOW_CONTROL_ERROR));
            }
            self.enqueue(&stream, state);
        }
        Ok(())
    }

    /// More came that asks for nothing than may.
    pub fn is_flooded(&mut self, now: Nanos) -> bool {
        self.allowance.is_spent(now)
    }

    /// Notes that this many received bytes of a stream were read, and opens its window again when there are enough.
    pub fn consume(&mut self, id: u32, state: &mut StreamState, bytes: u32) {
        self.return_window(bytes);
        state.taken += bytes;
        if state.taken >= STREAM_WINDOW / 2 && !state.ended {
            let more = std::mem::take(&mut state.taken);
            state.window += more;
            self.outbox.text(|out| frame::window_update(out, id, more));
        }
    }

    fn return_window(&mut self, bytes: u32) {
        self.taken += bytes;
        if self.taken >= CONNECTION_WINDOW / 2 {
            let more = std::mem::take(&mut self.taken);
            let held_back = self.holds_back();
            self.window += more;
            self.outbox.text(|out| frame::window_update(out, 0, more));
            if held_back {
                // From now on those that say nothing are late.
                self.freed = true;
            }
        }
    }

    /// The client can send next to nothing, whatever a stream has room for.
    pub fn holds_back(&self) -> bool {
        self.window < MAX_FRAME as u32
    }

    /// Wakes the streams of a client that could send nothing and can now.
    pub fn wake_freed(&mut self) {
        if std::mem::take(&mut self.freed) {
            for stream in &self.open {
                stream.state().borrow_mut().wake();
            }
        }
    }

    /// A stream has content to be sent: at once where no other waits.
    pub fn offer(&mut self, stream: &Rc<S>, state: &mut StreamState) {
        while self.ready.is_empty() && self.outbox.len() < FULL {
            if !self.write(stream, state) {
                break;
            }
        }
        self.enqueue(stream, state);
    }

    fn enqueue(&mut self, stream: &Rc<S>, state: &mut StreamState) {
        if !state.queued && !state.piece.is_empty() && state.room > 0 && !state.closed {
            state.queued = true;
            self.ready.push_back(stream.clone());
        }
    }

    /// Adds content to what is to be sent, of each stream in turn.
    pub fn send(&mut self) {
        while self.room > 0 && self.outbox.len() < FULL {
            let Some(stream) = self.ready.pop_front() else {
                return;
            };
            let state = &mut *stream.state().borrow_mut();
            state.queued = false;
            self.write(&stream, state);
            self.enqueue(&stream, state);
        }
    }

    /// Adds one frame of a stream's content; says whether there may be another.
    fn write(&mut self, stream: &S, state: &mut StreamState) -> bool {
        let room = self.room.min(state.room).min(MAX_FRAME as i64);
        let length = state.piece.len().min(room.max(0) as usize);
        if length == 0 {
            return false;
        }
        let part = state.piece.split_to(length);
        (self.room, state.room) = (self.room - length as i64, state.room - length as i64);
        let last = state.last && state.piece.is_empty();
        let flags = if last { flag::END_STREAM } else { 0 };
        let head = frame::head(length, kind::DATA, flags, stream.id());
        self.outbox.text(|out| out.extend_from_slice(&head));
        self.outbox.push(part);
        self.allowance.earn();
        stream.progressed(state);
        if last {
            state.sent = true;
            self.settle(stream, state);
        }
        !state.piece.is_empty()
    }

    /// Forgets a stream when both sides have said all.
    pub fn settle(&mut self, stream: &S, state: &mut StreamState) {
        if state.sent && state.ended {
            self.forget(stream.id());
        }
    }
}
