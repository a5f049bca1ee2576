//! Reads frames from a stream of a client. Payloads are read as they are needed: bodies in pieces, blocks of fields whole,
//! and the rest is skipped.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use quinn::RecvStream;

use super::shared_state::SharedState;
use crate::http::http3::Code;
use crate::http::http3::frame::{FrameHead, MAX_FRAME_HEAD_BYTES, read_integer};

/// Maximum bytes that are taken from a stream at once.
const MAX_PIECE_BYTES: usize = 64 * 1024;

/// Why nothing more can be read from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The client has reset the stream, or the connection has ended.
    Gone,
    /// The client has broken a rule that ends the connection.
    Broken(Code),
    /// Blocks of fields that have not arrived whole hold [`MAX_PARTIAL_BYTES`] already.
    OutOfMemory,
}

/// Maximum bytes of all blocks of fields of a connection that have not arrived whole. Over HTTP/2 only one can be
/// incomplete.
const MAX_PARTIAL_BYTES: usize = 256 * 1024;

/// A stream of a client, from which frames are read.
pub struct FrameStream {
    stream: RecvStream,
    /// Bytes that were received and not used yet: a part of one packet.
    received: Bytes,
    /// The begin of the head of a frame, while that is incomplete.
    partial_head: Vec<u8>,
    /// Bytes that remain of the current frame's payload.
    payload_bytes: u64,
    /// A payload that is read whole, as far as it has arrived.
    block: Vec<u8>,
    /// Counts the bytes of `block`.
    connection: Rc<SharedState>,
    /// Whether the client has ended the stream, and all of it was received.
    is_finished: bool,
    /// Whether the client has reset the stream, or the connection has ended. QUIC tells that once.
    is_gone: bool,
}

impl FrameStream {
    /// Reads frames from the begin of `stream`.
    pub fn new(stream: RecvStream, connection: Rc<SharedState>) -> FrameStream {
        FrameStream {
            stream,
            received: Bytes::new(),
            partial_head: Vec::new(),
            payload_bytes: 0,
            block: Vec::new(),
            connection,
            is_finished: false,
            is_gone: false,
        }
    }

    /// Bytes that remain of the current frame's payload.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Whether the client has ended the stream, and all of it was used.
    pub fn is_over(&self) -> bool {
        self.is_finished && self.received.is_empty() && self.partial_head.is_empty()
    }

    /// Ready when bytes have been received that were not used yet: `false` at the end of the stream.
    pub fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, StreamEnd>> {
        if self.received.is_empty() && !self.is_finished && !self.is_gone {
            let reading = pin!(self.stream.read_chunk(MAX_PIECE_BYTES, true));
            match ready!(Future::poll(reading, cx)) {
                Ok(Some(chunk)) => self.received = chunk.bytes,
                Ok(None) => self.is_finished = true,
                Err(_) => self.is_gone = true,
            }
        }
        Poll::Ready(match self.is_gone {
            true => Err(StreamEnd::Gone),
            false => Ok(!self.received.is_empty()),
        })
    }

    /// Takes what was received, without reading frames.
    pub fn take_received(&mut self) -> Bytes {
        std::mem::take(&mut self.received)
    }

    /// Reads an integer; `None` at the end of the stream. Only at its begin, where no frame has been read.
    pub fn poll_integer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<u64>, StreamEnd>> {
        self.poll_parsed(cx, read_integer)
    }

    /// Reads the head of the next frame; `None` at the end of the stream. The payload of the last frame must have been
    /// read.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<FrameHead>, StreamEnd>> {
        let frame = ready!(self.poll_parsed(cx, FrameHead::read))?;
        self.payload_bytes = frame.map_or(0, |frame| frame.length);
        Poll::Ready(match frame {
            Some(frame) if frame.is_forbidden() => Err(StreamEnd::Broken(Code::FRAME_UNEXPECTED)),
            _ => Ok(frame),
        })
    }

    /// Reads what `parse` takes off the front of a text; `None` at the end of the stream.
    fn poll_parsed<T>(
        &mut self,
        cx: &mut Context<'_>,
        parse: fn(&mut &[u8]) -> Option<T>,
    ) -> Poll<Result<Option<T>, StreamEnd>> {
        while ready!(self.poll_received(cx))? {
            let known_bytes = self.partial_head.len();
            let missing_bytes = MAX_FRAME_HEAD_BYTES - known_bytes;
            let added_bytes = missing_bytes.min(self.received.len());
            self.partial_head
                .extend_from_slice(&self.received[..added_bytes]);
            let mut remaining = &*self.partial_head;
            let parsed = parse(&mut remaining);
            let used_bytes = self.partial_head.len() - remaining.len();
            match parsed {
                Some(value) => {
                    self.partial_head.clear();
                    self.received.advance(used_bytes - known_bytes);
                    return Poll::Ready(Ok(Some(value)));
                }
                None => self.received.advance(added_bytes),
            }
        }
        Poll::Ready(match self.partial_head.is_empty() {
            true => Ok(None),
            false => Err(StreamEnd::Broken(Code::FRAME_ERROR)),
        })
    }

    /// Reads the next piece of the current frame's payload, of which some must remain.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, StreamEnd>> {
        if !ready!(self.poll_received(cx))? {
            return Poll::Ready(Err(StreamEnd::Broken(Code::FRAME_ERROR)));
        }
        let payload_bytes = usize::try_from(self.payload_bytes).unwrap_or(usize::MAX);
        let piece = self
            .received
            .split_to(self.received.len().min(payload_bytes));
        self.payload_bytes -= piece.len() as u64;
        Poll::Ready(Ok(piece))
    }

    /// Reads the whole rest of the current frame's payload, which the caller has bounded.
    pub fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, StreamEnd>> {
        while self.payload_bytes > 0 {
            let piece = ready!(self.poll_piece(cx))?;
            let held_bytes = &self.connection.partial_block_bytes;
            held_bytes.update(|bytes| bytes + piece.len());
            self.block.extend_from_slice(&piece);
            if held_bytes.get() > MAX_PARTIAL_BYTES {
                return Poll::Ready(Err(StreamEnd::OutOfMemory));
            }
        }
        Poll::Ready(Ok(self.take_block()))
    }

    /// Takes out what has arrived of a block.
    fn take_block(&mut self) -> Vec<u8> {
        let block = std::mem::take(&mut self.block);
        let held_bytes = &self.connection.partial_block_bytes;
        held_bytes.update(|bytes| bytes - block.len());
        block
    }

    /// Skips the rest of the current frame's payload.
    pub fn poll_skip(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamEnd>> {
        while self.payload_bytes > 0 {
            ready!(self.poll_piece(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when the client has reset the stream, or the connection has ended. It may read one piece ahead, behind which
    /// a reset is not seen.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(self.poll_received(cx)) {
            Ok(_) => Poll::Pending,
            Err(_) => Poll::Ready(()),
        }
    }

    /// Tells the client that nothing more of the stream is read.
    pub fn stop(&mut self, Code(code): Code) {
        // An error means that the stream is closed already.
        let _ = self.stream.stop(code.into());
    }
}

impl Drop for FrameStream {
    fn drop(&mut self) {
        self.take_block();
    }
}
