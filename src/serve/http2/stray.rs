//! Frames on streams that are not open, or that break a rule of streams: RFC 9113 sections 5.1 and 5.1.1.

use super::connection_state::{ConnectionState, OpenStream};
use super::past::ClosedStream;
use crate::http::http2::{Fatal, Reason};

impl<S: OpenStream> ConnectionState<S> {
    /// A frame came on a stream that is not open.
    pub fn stray(&mut self, id: u32) -> Result<(), Fatal> {
        match self.past.closed_stream(id) {
            ClosedStream::Idle => return Err(Fatal(Reason::PROTOCOL_ERROR)),
            ClosedStream::Refused => {}
            ClosedStream::Skipped | ClosedStream::Ended | ClosedStream::Reset => {
                self.allowance.spend();
                self.reset(id, Reason::STREAM_CLOSED);
            }
        }
        Ok(())
    }

    /// A head came on a stream that is not open and cannot be opened: sections 5.1 and 5.1.1. It has been decoded.
    #[cold]
    pub fn stray_head(&mut self, id: u32) -> Result<(), Fatal> {
        self.allowance.spend_head();
        match self.past.closed_stream(id) {
            ClosedStream::Skipped => Err(Fatal(Reason::PROTOCOL_ERROR)),
            ClosedStream::Ended => Err(Fatal(Reason::STREAM_CLOSED)),
            ClosedStream::Idle | ClosedStream::Reset | ClosedStream::Refused => self.stray(id),
        }
    }

    /// A stream is said to depend on itself: RFC 7540 section 5.3.1.
    #[cold]
    pub fn circular(&mut self, id: u32) -> Result<(), Fatal> {
        match self.find(id) {
            Some(stream) => {
                self.fail(
                    &stream,
                    &mut stream.state().borrow_mut(),
                    Reason::PROTOCOL_ERROR,
                );
            }
            None if self.past.was_opened(id) => {
                self.allowance.spend();
                self.reset(id, Reason::PROTOCOL_ERROR);
            }
            // One that is idle cannot be reset: section 6.4.
            None => return Err(Fatal(Reason::PROTOCOL_ERROR)),
        }
        Ok(())
    }
}
