//! The early end of a WebSocket: why it comes, and the close frame that the client gets behind the server's frames.
//!
//! `message_gate.rs` decides on the end, and `response_body.rs` passes the close frame on.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;

use crate::http::websocket_frames::{FrameCursor, close_frame};

/// The status code for a server that is overloaded: IANA's registry of WebSocket close codes.
const TRY_AGAIN_LATER: u16 = 1013;

/// The status code for a broken rule of the protocol: RFC 6455 section 7.4.1.
const PROTOCOL_ERROR: u16 = 1002;

/// Why a WebSocket ends before either side has closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyClose {
    /// A limit refuses a message.
    Refused,
    /// The client sent a frame that cannot be counted.
    InvalidFrame,
}

impl EarlyClose {
    /// The close frame for the client.
    fn frame(self) -> Vec<u8> {
        match self {
            EarlyClose::Refused => close_frame(TRY_AGAIN_LATER, "Try again later"),
            EarlyClose::InvalidFrame => close_frame(PROTOCOL_ERROR, "Invalid frame"),
        }
    }

    /// The `reason` in the access log.
    pub fn log_reason(self) -> &'static str {
        match self {
            EarlyClose::Refused => "message refused",
            EarlyClose::InvalidFrame => "invalid frame",
        }
    }
}

/// What both directions of a WebSocket share: whether it ends early. Both are polled by the same task.
pub type SharedClose = Rc<Cell<Option<EarlyClose>>>;

/// Follows the server's frames on their way to the client, so that a close frame can be put behind one of them.
pub struct CloseInsertion {
    shared_close: SharedClose,
    /// Where the server's current frame ends.
    frame_cursor: FrameCursor,
}

/// What follows for the client when a WebSocket ends early.
pub enum ClientEnd {
    /// This many bytes of the server, which belong to its current frame. 0 if none have come and the frame is incomplete.
    After(usize),
    /// This close frame, and nothing else.
    Close(Bytes),
    /// The end of the connection, because the server has sent its own close frame, or bytes that are no frames.
    Nothing,
}

impl CloseInsertion {
    /// Follows the server's frames from the first on.
    pub fn new(shared_close: SharedClose) -> CloseInsertion {
        CloseInsertion {
            shared_close,
            frame_cursor: FrameCursor::default(),
        }
    }

    /// What passes to the client next if the WebSocket ends early; `None` if it does not, so that all of `data` passes.
    /// `data` are the bytes that the server has sent since the last call.
    pub fn end_early(&mut self, data: &[u8]) -> Option<ClientEnd> {
        let early_close = self.shared_close.get();
        let cursor = &mut self.frame_cursor;
        let passed_bytes = cursor.advance(data, early_close.is_some());
        let early_close = early_close?;
        Some(match passed_bytes {
            Ok(0) if cursor.is_between_frames() && !cursor.has_closed => {
                ClientEnd::Close(early_close.frame().into())
            }
            Ok(0) if cursor.is_between_frames() => ClientEnd::Nothing,
            Ok(bytes) => ClientEnd::After(bytes),
            Err(_) => ClientEnd::Nothing,
        })
    }
}
