//! An HTTP/2 connection's bytes, watched from the outside: whether a head is under way, and how much comes
//! that asks for nothing. Each such frame costs its sender nothing and the receiver a little; what the
//! library bounds of them it bounds by memory, this by number (CVE-2019-9512, -9514, -9515, CVE-2023-44487).

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::Nanos;
use crate::serve::connection::Client;

/// Frames that ask for nothing, as many as may come at once.
const ALLOWANCE: u32 = 1000;

/// And in each second, on average; each one beyond must come with one that carries something.
const A_SECOND: u32 = 100;

const HEAD: usize = 9;
const PREFACE: usize = 24;

/// What is known of a connection's traffic.
#[derive(Debug)]
pub struct Traffic {
    scan: RefCell<Scan>,
    allowance: Cell<u32>,
    /// The second up to which the allowance was renewed.
    renewed: Cell<u64>,
}

/// Where in the stream of frames a reader is.
#[derive(Debug)]
struct Scan {
    head: [u8; HEAD],
    filled: usize,
    /// Bytes to pass over before the next frame.
    skip: usize,
    in_head: bool,
}

impl Traffic {
    /// Before the preface.
    pub fn new() -> Rc<Traffic> {
        Rc::new(Traffic {
            scan: RefCell::new(Scan {
                head: [0; HEAD],
                filled: 0,
                skip: PREFACE,
                in_head: false,
            }),
            allowance: Cell::new(ALLOWANCE),
            renewed: Cell::new(0),
        })
    }

    /// A frame went out or came in that carries something.
    pub fn useful(&self) {
        self.allowance.update(|left| (left + 1).min(ALLOWANCE));
    }

    /// The beginning of a request is there and its end is not.
    pub fn is_in_head(&self) -> bool {
        self.scan.borrow().in_head
    }

    /// Whether more came that asks for nothing than may.
    pub fn is_flooded(&self, now: Nanos) -> bool {
        let second = now.0 / Nanos::from_secs(1).0;
        let before = self.renewed.replace(second);
        if second > before && self.allowance.get() > 0 {
            let more = u32::try_from(second - before).unwrap_or(u32::MAX);
            let more = more.saturating_mul(A_SECOND);
            self.allowance
                .update(|left| left.saturating_add(more).min(ALLOWANCE));
        }
        self.allowance.get() == 0
    }

    /// These bytes came in, after those before.
    pub fn came(&self, mut bytes: &[u8]) {
        let scan = &mut *self.scan.borrow_mut();
        while !bytes.is_empty() {
            let skipped = scan.skip.min(bytes.len());
            scan.skip -= skipped;
            bytes.advance(skipped);
            let taken = (HEAD - scan.filled).min(bytes.len());
            scan.head[scan.filled..scan.filled + taken].copy_from_slice(&bytes[..taken]);
            scan.filled += taken;
            bytes.advance(taken);
            if scan.filled == HEAD {
                scan.filled = 0;
                self.frame(scan);
            }
        }
    }

    /// RFC 9113 section 4.1.
    fn frame(&self, scan: &mut Scan) {
        let [a, b, c, kind, flags, ..] = scan.head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        scan.skip = length;
        let (end_stream_or_ack, end_headers) = (flags & 1 != 0, flags & 4 != 0);
        let carries = match kind {
            DATA => length > 0 || end_stream_or_ack,
            HEADERS | CONTINUATION => {
                scan.in_head = !end_headers;
                end_headers
            }
            PING | SETTINGS => end_stream_or_ack,
            RST_STREAM | PRIORITY => false,
            // They come with what is sent, and the library drops what it does not know.
            WINDOW_UPDATE => true,
            _ => false,
        };
        match (carries, kind) {
            (false, _) => self.allowance.update(|left| left.saturating_sub(1)),
            (true, DATA) => self.useful(),
            // A request that is taken back at once has carried nothing.
            (true, _) => {}
        }
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// The client's socket with what was read from it already, watched.
pub struct Watched {
    client: Client,
    begun: BytesMut,
    traffic: Rc<Traffic>,
}

impl Watched {
    /// `begun` comes before what is still to be read.
    pub fn new(client: Client, begun: BytesMut, traffic: Rc<Traffic>) -> Watched {
        Watched {
            client,
            begun,
            traffic,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        if this.begun.is_empty() {
            ready!(Pin::new(&mut this.client).poll_read(cx, buf))?;
        } else {
            let taken = this.begun.len().min(buf.remaining());
            buf.put_slice(&this.begun.split_to(taken));
        }
        this.traffic.came(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.client).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.client).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: u32, kind: u8, flags: u8) -> Vec<u8> {
        let [_, a, b, c] = length.to_be_bytes();
        let mut frame = vec![a, b, c, kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD + length as usize, 7);
        frame
    }

    fn watched(frames: &[Vec<u8>], cut: usize) -> Rc<Traffic> {
        let traffic = Traffic::new();
        let bytes = [vec![9; PREFACE], frames.concat()].concat();
        for piece in bytes.chunks(cut) {
            traffic.came(piece);
        }
        traffic
    }

    #[test]
    fn heads_under_way_are_seen_however_the_bytes_are_cut() {
        for cut in [1, 2, 7, 10, 1000] {
            let begun = [frame(4, SETTINGS, 0), frame(20, HEADERS, 1)];
            assert!(watched(&begun, cut).is_in_head());
            let more = [begun.concat(), frame(3, CONTINUATION, 0)];
            assert!(watched(&more, cut).is_in_head());
            let whole = [more.concat(), frame(3, CONTINUATION, 4)];
            assert!(!watched(&whole, cut).is_in_head());
        }
    }

    #[test]
    fn what_asks_for_nothing_is_allowed_within_bounds() {
        let floods = [
            frame(8, PING, 0),
            frame(0, SETTINGS, 0),
            frame(5, PRIORITY, 0),
            [frame(9, HEADERS, 5), frame(4, RST_STREAM, 0)].concat(),
            frame(0, CONTINUATION, 0),
            frame(0, DATA, 0),
            frame(0, 0xfb, 0),
        ];
        for flood in floods {
            let many = vec![flood; ALLOWANCE as usize - 1];
            let traffic = watched(&many, 1000);
            assert!(!traffic.is_flooded(Nanos::ZERO));
            let once_more = [many, vec![frame(8, PING, 0)]].concat();
            let traffic = watched(&once_more, 1000);
            assert!(traffic.is_flooded(Nanos::ZERO));
            assert!(traffic.is_flooded(Nanos::from_secs(100)), "it is over");
        }
    }

    #[test]
    fn honest_connections_go_on() {
        let acknowledged = [
            frame(8, PING, 1),
            frame(0, SETTINGS, 1),
            frame(4, WINDOW_UPDATE, 0),
            frame(9, HEADERS, 5),
            frame(0, DATA, 1),
            [frame(8, PING, 0), frame(5, DATA, 0)].concat(),
        ];
        for frame in acknowledged {
            let traffic = watched(&vec![frame; 3000], 1000);
            assert!(!traffic.is_flooded(Nanos::ZERO));
        }
        let traffic = Traffic::new();
        traffic.came(&[9; PREFACE]);
        for second in 0..100 {
            assert!(!traffic.is_flooded(Nanos::from_secs(second)));
            traffic.came(&frame(8, PING, 0).repeat(A_SECOND as usize));
        }
    }
}
