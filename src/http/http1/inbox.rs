//! The buffer of received bytes that have not been parsed yet, for connections of HTTP/1.1 and HTTP/2.
//!
//! It grows with what a message needs. A buffer that has grown is freed between messages, and while more bytes of a
//! message are awaited, if it is empty then. So a thousand slow uploads hold no buffers. The buffer has no bound of its
//! own: callers must parse or stop reading.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::syntax::MAX_HEAD_BYTES;

/// Space for the first read of a message, in bytes. Most heads fit into it.
const MIN_READ_BYTES: usize = 4 * 1024;

/// Largest space for a read, in bytes.
const MAX_READ_BYTES: usize = 64 * 1024;

/// Space for the first read of a body that has not arrived with its head, in bytes.
const BODY_READ_BYTES: usize = 16 * 1024;

/// The factor by which the space for a read grows each time that a read fills it.
const READ_GROWTH: usize = 4;

/// The received bytes of one connection.
#[derive(Debug)]
pub struct Inbox {
    /// The bytes that have not been parsed.
    pub bytes: BytesMut,
    /// The space that the next read gets, in bytes.
    next_read_bytes: usize,
    /// The number of bytes at the front of `bytes` that were searched for the end of a head; 0 before the first search.
    searched_length: usize,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            bytes: BytesMut::new(),
            next_read_bytes: MIN_READ_BYTES,
            searched_length: 0,
        }
    }
}

impl Inbox {
    /// Prepares for a new message. An empty buffer that has grown is freed, because the wait may be long.
    pub fn begin_message(&mut self) {
        if self.next_read_bytes > MIN_READ_BYTES {
            self.free_buffer();
        }
        self.next_read_bytes = MIN_READ_BYTES;
        self.searched_length = 0;
    }

    /// Prepares for more of a body, or for a message that may come during one. The next reads get more space, and the buffer
    /// is freed while nothing arrives. Plain requests keep their buffer.
    #[inline]
    pub fn expect_body(&mut self) {
        self.next_read_bytes = self.next_read_bytes.max(BODY_READ_BYTES);
    }

    /// Frees the buffer if it is empty.
    pub fn free_buffer(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Whether parsing a head is worth trying: at the first bytes, which may be no HTTP at all; when the end of a head
    /// has arrived; and beyond [`MAX_HEAD_BYTES`], which is an error. Without this test a head that arrives byte by
    /// byte would be parsed again for each byte.
    pub fn is_head_worth_parsing(&mut self) -> bool {
        let searched_length = std::mem::replace(&mut self.searched_length, self.bytes.len());
        if searched_length == 0 || self.searched_length > MAX_HEAD_BYTES {
            return true;
        }
        // The end of a head has two or three bytes, which may have begun among those that were searched before.
        let unsearched = &self.bytes[searched_length.saturating_sub(3)..];
        unsearched
            .windows(3)
            .any(|end| end == b"\n\r\n" || end[1..] == *b"\n\n")
    }

    /// Reads more bytes; ready with their number, which is 0 at the end of the connection.
    pub fn poll_read<R>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<usize>>
    where
        R: AsyncRead + Unpin,
    {
        let spare_bytes = self.bytes.capacity() - self.bytes.len();
        // While parsed bytes of this buffer are held elsewhere, reserving allocates a new buffer. So more space is
        // reserved only when less than half of the space for a read is left.
        if spare_bytes < self.next_read_bytes / 2 {
            self.bytes.reserve(self.next_read_bytes);
        }
        let spare_bytes = self.bytes.capacity() - self.bytes.len();
        let Poll::Ready(result) = poll_read_buf(Pin::new(from), cx, &mut self.bytes) else {
            if self.next_read_bytes > MIN_READ_BYTES {
                self.free_buffer();
            }
            return Poll::Pending;
        };
        let read_bytes = result?;
        if read_bytes == spare_bytes {
            self.next_read_bytes = (self.next_read_bytes * READ_GROWTH).min(MAX_READ_BYTES);
        }
        Poll::Ready(Ok(read_bytes))
    }
}
