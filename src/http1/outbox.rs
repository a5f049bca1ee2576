//! Pieces on their way out, written together.

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

/// A queue of bytes. Who fills it waits until it is empty, so that it stays short.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Bytes>,
}

impl Outbox {
    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// Adds bytes as they are.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    /// Adds content, as a chunk or as it is.
    pub fn push_data(&mut self, data: Bytes, chunked: bool) {
        if chunked && !data.is_empty() {
            let size = format!("{:x}\r\n", data.len());
            self.queue.push_back(size.into());
            self.queue.push_back(data);
            self.queue.push_back(Bytes::from_static(b"\r\n"));
        } else {
            self.push(data);
        }
    }

    /// Adds the end of a chunked body.
    pub fn push_end(&mut self, trailers: Option<&HeaderMap>) {
        let Some(trailers) = trailers else {
            return self.push(Bytes::from_static(b"0\r\n\r\n"));
        };
        let mut end = b"0\r\n".to_vec();
        fields::write(&mut end, trailers);
        end.extend_from_slice(b"\r\n");
        self.push(end.into());
    }

    /// Writes some of what waits; ready when something was taken or nothing waits.
    pub fn poll_write<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        if self.queue.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut slices = [IoSlice::new(&[]); GATHERED];
        let mut filled = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        let mut written = ready!(Pin::new(to).poll_write_vectored(cx, &slices[..filled]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        while let Some(piece) = self.queue.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            self.queue.pop_front();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes all of what waits.
    pub fn poll_empty<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        while !self.queue.is_empty() {
            ready!(self.poll_write(cx, to))?;
        }
        Poll::Ready(Ok(()))
    }
}
