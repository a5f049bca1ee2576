//! The buffer of bytes that wait to be sent on an HTTP/1.1 or HTTP/2 connection.
//!
//! Small pieces are copied into one buffer that the connection keeps, and large ones are queued without a copy. The
//! kernel writes one buffer with less work than several, which saves about a tenth of a short exchange. Adding never
//! blocks and has no bound of its own: callers must check [`Outbox::is_full`].

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use tokio::io::AsyncWrite;

use super::fields;

/// Largest number of pieces in one vectored write, so that the slices fit on the stack.
const MAX_SLICES_PER_WRITE: usize = 8;

/// Largest piece that is copied into the buffer, in bytes. Larger ones are queued.
const MAX_COPIED_BYTES: usize = 2048;

/// An outbox with this many bytes is full. So a slow reader makes the gateway hold at most this and the piece that was
/// added last.
const FULL_BYTES: usize = 16 * 1024;

/// Largest capacity of a buffer that is kept once all of its bytes are written.
const MAX_KEPT_BUFFER_BYTES: usize = 4096;

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The bytes before those of the queue.
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that have been written to the connection.
    written_bytes: usize,
    /// Large pieces, and all pieces behind the first large one.
    queue: VecDeque<Bytes>,
    /// Set by [`Outbox::mark_broken`], and never unset.
    is_broken: bool,
}

impl Outbox {
    /// Whether no bytes wait.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.queue.is_empty()
    }

    /// The number of bytes that wait.
    pub fn len(&self) -> usize {
        let buffered_bytes = self.buffer.len() - self.written_bytes;
        if self.queue.is_empty() {
            return buffered_bytes;
        }
        buffered_bytes + self.queue.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether so many bytes wait that nothing should be added until some have been written.
    pub fn is_full(&self) -> bool {
        self.len() >= FULL_BYTES
    }

    /// Adds the bytes that `write` appends to its argument, which may have other bytes already.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.queue.is_empty() {
            self.discard_written();
            write(&mut self.buffer);
        } else {
            let mut piece = Vec::new();
            write(&mut piece);
            self.queue.push_back(piece.into());
        }
    }

    /// Adds bytes as they are.
    pub fn push(&mut self, bytes: Bytes) {
        if self.queue.is_empty() && bytes.len() <= MAX_COPIED_BYTES {
            self.discard_written();
            self.buffer.extend_from_slice(&bytes);
        } else if !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    /// Discards written bytes once they are most of the buffer, which may never become empty with a slow reader.
    fn discard_written(&mut self) {
        if self.written_bytes > self.buffer.len() / 2 {
            self.buffer.drain(..self.written_bytes);
            self.written_bytes = 0;
        }
    }

    /// Adds content of a body, as one chunk if the body `is_chunked`.
    pub fn push_data(&mut self, data: Bytes, is_chunked: bool) {
        // An empty chunk would end the body.
        if is_chunked && !data.is_empty() {
            let is_copied = self.queue.is_empty() && data.len() <= MAX_COPIED_BYTES;
            self.push_with(|out| {
                write_chunk_size(out, data.len());
                if is_copied {
                    out.extend_from_slice(&data);
                    out.extend_from_slice(b"\r\n");
                }
            });
            if !is_copied {
                self.push(data);
                self.push(Bytes::from_static(b"\r\n"));
            }
        } else {
            self.push(data);
        }
    }

    /// Adds the end of a chunked body, with its trailers.
    pub fn push_chunked_end(&mut self, trailers: Option<&HeaderMap>) {
        let Some(trailers) = trailers else {
            return self.push(Bytes::from_static(b"0\r\n\r\n"));
        };
        self.push_with(|out| {
            out.extend_from_slice(b"0\r\n");
            fields::write_fields(out, trailers);
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Makes every further write fail. For callers that cannot tell how much was sent, so that nothing may follow.
    pub fn mark_broken(&mut self) {
        self.is_broken = true;
    }

    /// Whether [`Outbox::mark_broken`] was called.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Frees the buffer if no bytes wait and the outbox is not broken.
    pub fn free_buffer(&mut self) {
        if self.is_empty() && !self.is_broken {
            *self = Outbox::default();
        }
    }

    /// Writes some of the waiting bytes; ready once some were written, or if none wait.
    ///
    /// # Errors
    ///
    /// The connection failed or accepts no more bytes, or the outbox is broken.
    pub fn poll_write<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        if self.is_broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let buffered = &self.buffer[self.written_bytes..];
        let newly_written_bytes = if self.queue.is_empty() {
            ready!(Pin::new(to).poll_write(cx, buffered))?
        } else {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES_PER_WRITE];
            let mut slice_count = 0;
            let queued = self.queue.iter().map(|piece| &piece[..]);
            let buffered = std::iter::once(buffered).filter(|bytes| !bytes.is_empty());
            for (slice, piece) in slices.iter_mut().zip(buffered.chain(queued)) {
                *slice = IoSlice::new(piece);
                slice_count += 1;
            }
            ready!(Pin::new(to).poll_write_vectored(cx, &slices[..slice_count]))?
        };
        if newly_written_bytes == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(newly_written_bytes);
        Poll::Ready(Ok(()))
    }

    /// Removes this many bytes from the front.
    fn advance(&mut self, mut byte_count: usize) {
        let buffered_bytes = self.buffer.len() - self.written_bytes;
        if byte_count < buffered_bytes {
            self.written_bytes += byte_count;
            return;
        }
        byte_count -= buffered_bytes;
        self.written_bytes = 0;
        if self.buffer.capacity() > MAX_KEPT_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        while let Some(piece) = self.queue.front_mut() {
            if piece.len() > byte_count {
                piece.advance(byte_count);
                break;
            }
            byte_count -= piece.len();
            self.queue.pop_front();
        }
    }

    /// Writes all waiting bytes, then flushes the connection.
    ///
    /// # Errors
    ///
    /// The same as of [`Outbox::poll_write`].
    pub fn poll_flush<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        while self.is_broken || !self.is_empty() {
            ready!(self.poll_write(cx, to))?;
        }
        Pin::new(to).poll_flush(cx)
    }
}

/// Appends the line that begins a chunk, whose `size` must not be 0. It formats the number by hand, which is faster
/// than `write!` and matters for peers that send many tiny chunks.
fn write_chunk_size(out: &mut Vec<u8>, size: usize) {
    let digit_count = (usize::BITS - size.leading_zeros()).div_ceil(4);
    let digit = |position| b"0123456789abcdef"[size >> (4 * position) & 15];
    out.extend((0..digit_count).rev().map(digit));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that accepts at most `max_bytes` in each write.
    struct SlowWriter {
        max_bytes: usize,
        received: Vec<u8>,
    }

    impl SlowWriter {
        fn new(max_bytes: usize) -> SlowWriter {
            SlowWriter {
                max_bytes,
                received: Vec::new(),
            }
        }
    }

    impl AsyncWrite for SlowWriter {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let accepted_bytes = bytes.len().min(self.max_bytes);
            self.received.extend_from_slice(&bytes[..accepted_bytes]);
            Poll::Ready(Ok(accepted_bytes))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn nothing_follows_after_a_broken_write() {
        let (mut outbox, mut to) = (Outbox::default(), SlowWriter::new(1));
        outbox.push(Bytes::from_static(b"answer"));
        outbox.mark_broken();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let sent = outbox.poll_flush(&mut cx, &mut to);
        assert!(matches!(sent, Poll::Ready(Err(_))) && to.received.is_empty());
        let mut empty = Outbox::default();
        empty.mark_broken();
        empty.free_buffer();
        let sent = empty.poll_flush(&mut cx, &mut to);
        assert!(matches!(sent, Poll::Ready(Err(_))));
    }

    #[test]
    fn order_is_kept_however_much_is_taken_at_once() {
        let large = Bytes::from(vec![b'x'; MAX_COPIED_BYTES + 1]);
        for step in [1, 3, 2000, 1 << 20] {
            let mut outbox = Outbox::default();
            let mut to = SlowWriter::new(step);
            let mut cx = Context::from_waker(std::task::Waker::noop());
            for round in 0..2 {
                outbox.push_with(|out| out.extend_from_slice(b"head"));
                outbox.push_data(Bytes::from_static(b"small"), true);
                outbox.push_data(large.clone(), true);
                outbox.push_data(Bytes::from_static(b"tail"), true);
                outbox.push_chunked_end(None);
                let done = outbox.poll_flush(&mut cx, &mut to);
                assert!(matches!(done, Poll::Ready(Ok(()))) && outbox.is_empty());
                let mut whole = b"head5\r\nsmall\r\n801\r\n".to_vec();
                whole.extend_from_slice(&large);
                whole.extend_from_slice(b"\r\n4\r\ntail\r\n0\r\n\r\n");
                assert_eq!(to.received, whole, "{step} at once, round {round}");
                to.received.clear();
            }
        }
    }

    #[test]
    fn written_bytes_are_discarded_though_some_always_wait() {
        let mut outbox = Outbox::default();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut to = SlowWriter::new(1000);
        outbox.push(Bytes::from(vec![b'x'; 1500]));
        for _ in 0..1000 {
            outbox.push(Bytes::from(vec![b'x'; 1000]));
            assert!(outbox.poll_write(&mut cx, &mut to).is_ready());
            assert_eq!(outbox.len(), 1500);
            assert!(outbox.buffer.len() < 8000, "{}", outbox.buffer.len());
        }
    }
}
