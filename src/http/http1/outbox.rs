//! What is on its way out: small pieces gathered in one buffer that the connection keeps, large ones as
//! they came. A plain write of one buffer is cheaper for the kernel than a gathering one of several, by
//! about a tenth of a short exchange.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use tokio::io::AsyncWrite;

use super::fields;

/// Most pieces that are written at once.
const GATHERED: usize = 8;

/// Most bytes of a piece that is copied.
const SMALL: usize = 2048;

/// From here on an outbox is full.
const FULL: usize = 16 * 1024;

/// Most room that is kept when nothing waits.
const KEPT: usize = 4096;

/// Bytes to be written. Who adds to it waits until it is short.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Comes before the queue.
    buffer: Vec<u8>,
    /// So much of the buffer has been written.
    written: usize,
    queue: VecDeque<Bytes>,
    broken: bool,
}

impl Outbox {
    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.queue.is_empty()
    }

    /// So many bytes wait.
    pub fn len(&self) -> usize {
        let buffered = self.buffer.len() - self.written;
        if self.queue.is_empty() {
            return buffered;
        }
        buffered + self.queue.iter().map(Bytes::len).sum::<usize>()
    }

    /// So much waits that more should wait until it has been written.
    pub fn is_full(&self) -> bool {
        self.len() >= FULL
    }

    /// Adds what `write` appends.
    pub fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.queue.is_empty() {
            self.make_room();
            write(&mut self.buffer);
        } else {
            let mut text = Vec::new();
            write(&mut text);
            self.queue.push_back(text.into());
        }
    }

    /// Adds bytes as they are.
    pub fn push(&mut self, bytes: Bytes) {
        if self.queue.is_empty() && bytes.len() <= SMALL {
            self.make_room();
            self.buffer.extend_from_slice(&bytes);
        } else if !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    /// Forgets what has been written, for a slow reader may never have taken all at once.
    fn make_room(&mut self) {
        if self.written > self.buffer.len() / 2 {
            self.buffer.drain(..self.written);
            self.written = 0;
        }
    }

    /// Adds content, as a chunk or as it is.
    pub fn push_data(&mut self, data: Bytes, chunked: bool) {
        if chunked && !data.is_empty() {
            let small = self.queue.is_empty() && data.len() <= SMALL;
            self.text(|out| {
                write_size(out, data.len());
                if small {
                    out.extend_from_slice(&data);
                    out.extend_from_slice(b"\r\n");
                }
            });
            if !small {
                self.push(data);
                self.push(Bytes::from_static(b"\r\n"));
            }
        } else {
            self.push(data);
        }
    }

    /// Adds the end of a chunked body.
    pub fn push_end(&mut self, trailers: Option<&HeaderMap>) {
        let Some(trailers) = trailers else {
            return self.push(Bytes::from_static(b"0\r\n\r\n"));
        };
        self.text(|out| {
            out.extend_from_slice(b"0\r\n");
            fields::write_map(out, trailers);
            out.extend_from_slice(b"\r\n");
        });
    }

    /// Nobody knows how much was sent: nothing more may be.
    pub fn break_off(&mut self) {
        self.broken = true;
    }

    /// See [`Outbox::break_off`].
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Gives up an empty buffer.
    pub fn give_up_room(&mut self) {
        if self.is_empty() && !self.broken {
            *self = Outbox::default();
        }
    }

    /// Writes some of what waits; ready when something was taken or nothing waits.
    pub fn poll_write<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        if self.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let text = &self.buffer[self.written..];
        let written = if self.queue.is_empty() {
            ready!(Pin::new(to).poll_write(cx, text))?
        } else {
            let mut slices = [IoSlice::new(&[]); GATHERED];
            let mut filled = 0;
            let pieces = self.queue.iter().map(|piece| &piece[..]);
            let all = std::iter::once(text).filter(|text| !text.is_empty());
            for (slice, piece) in slices.iter_mut().zip(all.chain(pieces)) {
                *slice = IoSlice::new(piece);
                filled += 1;
            }
            ready!(Pin::new(to).poll_write_vectored(cx, &slices[..filled]))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        let text = self.buffer.len() - self.written;
        if written < text {
            self.written += written;
            return;
        }
        written -= text;
        self.written = 0;
        if self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
        self.buffer.clear();
        while let Some(piece) = self.queue.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            self.queue.pop_front();
        }
    }

    /// Writes all of what waits and sees that it leaves.
    pub fn poll_empty<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        while self.broken || !self.is_empty() {
            ready!(self.poll_write(cx, to))?;
        }
        Pin::new(to).poll_flush(cx)
    }
}

/// The line that begins a chunk. Who sends bytes one by one has many of them.
fn write_size(out: &mut Vec<u8>, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4);
    let digit = |place| b"0123456789abcdef"[size >> (4 * place) & 15];
    out.extend((0..digits).rev().map(digit));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes at a time.
    struct Slow(usize, Vec<u8>);

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.1.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn nothing_follows_what_was_broken_off() {
        let (mut outbox, mut to) = (Outbox::default(), Slow(1, Vec::new()));
        outbox.push(Bytes::from_static(b"answer"));
        outbox.break_off();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let sent = outbox.poll_empty(&mut cx, &mut to);
        assert!(matches!(sent, Poll::Ready(Err(_))) && to.1.is_empty());
        let mut empty = Outbox::default();
        empty.break_off();
        empty.give_up_room();
        let sent = empty.poll_empty(&mut cx, &mut to);
        assert!(matches!(sent, Poll::Ready(Err(_))));
    }

    #[test]
    fn order_is_kept_however_much_is_taken_at_once() {
        let large = Bytes::from(vec![b'x'; SMALL + 1]);
        for step in [1, 3, 2000, 1 << 20] {
            let mut outbox = Outbox::default();
            let mut to = Slow(step, Vec::new());
            let mut cx = Context::from_waker(std::task::Waker::noop());
            for round in 0..2 {
                outbox.text(|out| out.extend_from_slice(b"head"));
                outbox.push_data(Bytes::from_static(b"small"), true);
                outbox.push_data(large.clone(), true);
                outbox.push_data(Bytes::from_static(b"tail"), true);
                outbox.push_end(None);
                let done = outbox.poll_empty(&mut cx, &mut to);
                assert!(matches!(done, Poll::Ready(Ok(()))) && outbox.is_empty());
                let mut whole = b"head5\r\nsmall\r\n801\r\n".to_vec();
                whole.extend_from_slice(&large);
                whole.extend_from_slice(b"\r\n4\r\ntail\r\n0\r\n\r\n");
                assert_eq!(to.1, whole, "{step} at once, round {round}");
                to.1.clear();
            }
        }
    }

    #[test]
    fn what_was_written_is_forgotten_though_something_always_waits() {
        let mut outbox = Outbox::default();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut to = Slow(1000, Vec::new());
        outbox.push(Bytes::from(vec![b'x'; 1500]));
        for _ in 0..1000 {
            outbox.push(Bytes::from(vec![b'x'; 1000]));
            assert!(outbox.poll_write(&mut cx, &mut to).is_ready());
            assert_eq!(outbox.len(), 1500);
            assert!(outbox.buffer.len() < 8000, "{}", outbox.buffer.len());
        }
    }
}
