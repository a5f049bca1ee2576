//! The buffer of received bytes that have not been parsed yet. It grows with what a message needs, and never holds a
//! large buffer while the connection waits for the next message.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::syntax::MAX_HEAD;

/// Space for the first read of a message, in bytes. Most heads fit.
const MIN_READ_SPACE: usize = 4 * 1024;

/// Most space for a read, in bytes. The space grows fourfold each time that a read fills it.
const MAX_READ_SPACE: usize = 64 * 1024;

/// The buffer of received bytes.
#[derive(Debug)]
pub struct Inbox {
    /// The bytes that have not been parsed.
    pub bytes: BytesMut,
    /// The space that the next read gets.
    read_space: usize,
    /// The length of `bytes` that was searched for the end of a head.
    searched: usize,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            bytes: BytesMut::new(),
            read_space: MIN_READ_SPACE,
            searched: 0,
        }
    }
}

impl Inbox {
    /// Prepares for a new message. An empty buffer that has grown is freed, because the wait may be long.
    pub fn begin_message(&mut self) {
        if self.read_space > MIN_READ_SPACE {
            self.free_buffer();
        }
        self.read_space = MIN_READ_SPACE;
        self.searched = 0;
    }

    /// Frees the buffer if it is empty.
    pub fn free_buffer(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Whether it is worth to parse a head: at the first bytes, which may be no HTTP at all, and when its end has arrived.
    /// A head that arrives byte by byte must not be parsed for each of them.
    pub fn may_hold_whole_head(&mut self) -> bool {
        let searched = std::mem::replace(&mut self.searched, self.bytes.len());
        if searched == 0 || self.searched > MAX_HEAD {
            return true;
        }
        let new = &self.bytes[searched.saturating_sub(3)..];
        new.windows(3)
            .any(|end| end == b"\n\r\n" || end[1..] == *b"\n\n")
    }

    /// Reads more bytes; ready with their number, 0 at the end of the connection.
    pub fn poll_read<R>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<usize>>
    where
        R: AsyncRead + Unpin,
    {
        let spare = self.bytes.capacity() - self.bytes.len();
        // Only once half of the space is used: while parsed bytes are still held elsewhere, this allocates a new buffer.
        if spare < self.read_space / 2 {
            self.bytes.reserve(self.read_space);
        }
        let spare = self.bytes.capacity() - self.bytes.len();
        let read = ready!(poll_read_buf(Pin::new(from), cx, &mut self.bytes))?;
        if read == spare {
            self.read_space = (self.read_space * 4).min(MAX_READ_SPACE);
        }
        Poll::Ready(Ok(read))
    }
}
