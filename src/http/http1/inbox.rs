//! Bytes that came in and were not looked at yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::syntax::MAX_HEAD;

/// Least and most bytes that are made room for before a read; more while a message fills all of it.
const LEAST_ROOM: usize = 4 * 1024;
const MOST_ROOM: usize = 64 * 1024;

/// See the module.
#[derive(Debug)]
pub struct Inbox {
    /// The bytes.
    pub bytes: BytesMut,
    room: usize,
    /// So many of the bytes hold no end of a head.
    looked: usize,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            bytes: BytesMut::new(),
            room: LEAST_ROOM,
            looked: 0,
        }
    }
}

impl Inbox {
    /// Before a new message. An empty buffer that has grown is given up, for the wait may be long.
    pub fn begin(&mut self) {
        if self.room > LEAST_ROOM {
            self.give_up_room();
        }
        self.room = LEAST_ROOM;
        self.looked = 0;
    }

    /// Gives up an empty buffer.
    pub fn give_up_room(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }

    /// Whether a head is worth parsing: at first, where it may turn out to be none, and when it seems to
    /// be whole. One that comes in byte by byte must not be parsed for each of them.
    pub fn seems_whole(&mut self) -> bool {
        let before = std::mem::replace(&mut self.looked, self.bytes.len());
        if before == 0 || self.looked > MAX_HEAD {
            return true;
        }
        let new = &self.bytes[before.saturating_sub(3)..];
        new.windows(3)
            .any(|end| end == b"\n\r\n" || end[1..] == *b"\n\n")
    }

    /// Reads more; 0 at the end.
    pub fn poll_read<R>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<usize>>
    where
        R: AsyncRead + Unpin,
    {
        let spare = self.bytes.capacity() - self.bytes.len();
        // Not before half of it is used, for what was read may still be held, and then the room is new.
        if spare < self.room / 2 {
            self.bytes.reserve(self.room);
        }
        let spare = self.bytes.capacity() - self.bytes.len();
        let read = ready!(poll_read_buf(Pin::new(from), cx, &mut self.bytes))?;
        if read == spare {
            self.room = (self.room * 4).min(MOST_ROOM);
        }
        Poll::Ready(Ok(read))
    }
}
