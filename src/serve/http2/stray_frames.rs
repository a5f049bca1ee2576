//! Extends [`ConnectionState`]: handles frames on streams that are not open, and streams that depend on themselves (RFC
//! 9113 sections 5.1 and 5.1.1).
//!
//! Some of these frames were sent before the client knew that its stream had ended. They cost at most a part of the
//! client's allowance (`allowance.rs`). Others end the connection.

use super::connection_state::{ConnectionState, OpenStream};
use super::stream_history::PastStream;
use crate::http::http2::{ConnectionError, Reason};

impl<S: OpenStream> ConnectionState<S> {
    /// Handles a frame on a stream that is not open: resets the stream, unless the gateway has reset it before.
    ///
    /// # Errors
    ///
    /// The client has opened neither this stream nor a higher one.
    pub fn receive_stray_frame(&mut self, id: u32) -> Result<(), ConnectionError> {
        match self.history.past_stream(id) {
            PastStream::NotOpened => return Err(ConnectionError(Reason::PROTOCOL_ERROR)),
            PastStream::ResetByGateway => {}
            PastStream::Skipped | PastStream::Ended | PastStream::ResetByClient => {
                self.allowance.spend_frame();
                self.reset_stream(id, Reason::STREAM_CLOSED);
            }
        }
        Ok(())
    }

    /// Handles a head, already decoded, on a stream that is not open and cannot be opened.
    ///
    /// # Errors
    ///
    /// The client never opened the stream, or both sides had ended it.
    #[cold]
    pub fn receive_stray_head(&mut self, id: u32) -> Result<(), ConnectionError> {
        self.allowance.spend_head();
        match self.history.past_stream(id) {
            PastStream::Skipped => Err(ConnectionError(Reason::PROTOCOL_ERROR)),
            PastStream::Ended => Err(ConnectionError(Reason::STREAM_CLOSED)),
            PastStream::NotOpened | PastStream::ResetByClient | PastStream::ResetByGateway => {
                self.receive_stray_frame(id)
            }
        }
    }

    /// Resets a stream that a PRIORITY frame makes dependent on itself: RFC 7540 section 5.3.1.
    ///
    /// # Errors
    ///
    /// The stream is idle, so it cannot be reset.
    #[cold]
    pub fn receive_self_dependency(&mut self, id: u32) -> Result<(), ConnectionError> {
        match self.find_stream(id) {
            Some(stream) => {
                self.fail_stream(
                    &stream,
                    &mut stream.state().borrow_mut(),
                    Reason::PROTOCOL_ERROR,
                );
            }
            None if self.history.has_left_idle(id) => {
                self.allowance.spend_frame();
                self.reset_stream(id, Reason::PROTOCOL_ERROR);
            }
            // RFC 9113 section 6.4 forbids to reset an idle stream.
            None => return Err(ConnectionError(Reason::PROTOCOL_ERROR)),
        }
        Ok(())
    }
}
