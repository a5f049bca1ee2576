//! An upper bound for a server's replies. redis-rs keeps a reply until it is complete, whatever length it announces.
//! A server that is not what it seems must not fill the gateway's memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Largest size of a reply: its bytes, and [`ELEMENT`] for each element. The scripts return a few numbers for each limit of
/// a request, and some KiB for a thousand gateways. The longest reply is the list of a cluster's slots: some 10 MiB, where
/// each of the 16,384 slots is a range of its own with two servers.
const MOST: usize = 16 * 1024 * 1024;

/// The size of an element of an array, at least, because redis-rs keeps a value for each.
const ELEMENT: usize = 32;

/// Largest depth of nested arrays. The list of a cluster's slots has four.
const DEEPEST: usize = 8;

/// Most bytes of a line with a length or a number of elements.
const LENGTH: usize = 32;

/// A connection that fails when a reply passes the bounds.
pub(super) struct Bounded<S> {
    stream: S,
    reply: ReplySize,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S) -> Bounded<S> {
        Bounded {
            stream,
            reply: ReplySize::default(),
        }
    }
}

/// The progress of the reply that is read, in RESP2 or RESP3.
#[derive(Default)]
struct ReplySize {
    /// The size so far, with the announced parts.
    weight: usize,
    /// Missing elements of each array that has begun.
    open: Vec<usize>,
    position: Position,
}

#[derive(Default)]
enum Position {
    /// Before a value.
    #[default]
    Between,
    /// In a line of this kind; its text is kept where it is a length.
    Line { kind: u8, length: Vec<u8> },
    /// In a string, with this many bytes missing, including the end of its line.
    Text(usize),
}

impl ReplySize {
    /// Reads the next bytes.
    ///
    /// # Errors
    ///
    /// The bound that the reply exceeds.
    fn read(&mut self, mut input: &[u8]) -> Result<(), &'static str> {
        while let Some(first) = input.first() {
            match &mut self.position {
                Position::Between => {
                    let (kind, length) = (*first, Vec::new());
                    self.position = Position::Line { kind, length };
                    self.weigh(1)?;
                    input = &input[1..];
                }
                Position::Line { kind, length } => {
                    let end = memchr(b'\n', input);
                    let (line, rest) = input.split_at(end.map_or(input.len(), |end| end + 1));
                    let kind = *kind;
                    let has_length = b"$!=*~>%|".contains(&kind);
                    if has_length {
                        length.extend_from_slice(line);
                        if length.len() > LENGTH {
                            return Err("a length is too long");
                        }
                    }
                    let number = end.map(|_| number(length));
                    self.weigh(line.len())?;
                    input = rest;
                    match number {
                        Some(number) if has_length => self.begin(kind, number)?,
                        Some(_) => self.value(),
                        None => {}
                    }
                }
                Position::Text(missing) => {
                    let here = input.len().min(*missing);
                    *missing -= here;
                    input = &input[here..];
                    if *missing == 0 {
                        self.value();
                    }
                }
            }
        }
        Ok(())
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.weight = self.weight.saturating_add(bytes);
        match self.weight > MOST {
            true => Err("a reply is longer than 16 MiB"),
            false => Ok(()),
        }
    }

    /// A string or an array begins; the length is `None` for a null.
    fn begin(&mut self, kind: u8, length: Option<usize>) -> Result<(), &'static str> {
        let elements = match (kind, length) {
            (b'$' | b'!' | b'=', Some(length)) => {
                self.weigh(length)?;
                self.position = Position::Text(length + 2);
                return Ok(());
            }
            // Attributes come before the value that they belong to.
            (b'|', Some(pairs)) => pairs.saturating_mul(2).saturating_add(1),
            (b'%', Some(pairs)) => pairs.saturating_mul(2),
            (_, Some(elements)) => elements,
            (_, None) => 0,
        };
        if elements == 0 {
            self.value();
            return Ok(());
        }
        self.weigh(elements.saturating_mul(ELEMENT))?;
        if self.open.len() == DEEPEST {
            return Err("a reply is nested too deep");
        }
        self.open.push(elements);
        self.position = Position::Between;
        Ok(())
    }

    /// A value is complete.
    fn value(&mut self) {
        self.position = Position::Between;
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.open.pop();
        }
        self.weight = 0;
    }
}

/// The number in a line; `None` for -1, and for text that is no number, which redis-rs refuses.
fn number(line: &[u8]) -> Option<usize> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = self.reply.read(&buf.filled()[before..]);
        Poll::Ready(read.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads it whole and byte by byte; says why it fails, or whether a reply is whole at the end.
    #[track_caller]
    fn check(input: &[u8], expected: Result<bool, &'static str>) {
        let whole = |reply: &ReplySize| {
            reply.open.is_empty() && matches!(reply.position, Position::Between)
        };
        let mut at_once = ReplySize::default();
        let read = at_once.read(input);
        assert_eq!(read.map(|()| whole(&at_once)), expected);
        let mut slow = ReplySize::default();
        let read = input.chunks(1).try_for_each(|byte| slow.read(byte));
        assert_eq!(read.map(|()| whole(&slow)), expected, "byte by byte");
    }

    #[test]
    fn replies_end_where_they_end() {
        let replies = [
            "+OK\r\n",
            "-ERR a\r\n",
            ":1\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nbc\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n$1\r\n\n\r\n*1\r\n:1\r\n",
            "_\r\n",
            ",1.5\r\n",
            "#t\r\n",
            "(123\r\n",
            "=5\r\ntxt:a\r\n",
            "!3\r\nERR\r\n",
            "%1\r\n+a\r\n~1\r\n:1\r\n",
            "|1\r\n+a\r\n:1\r\n:2\r\n",
            ">2\r\n+a\r\n+b\r\n",
        ];
        for reply in replies {
            check(reply.as_bytes(), Ok(true));
            let part = &reply.as_bytes()[..reply.len() - 1];
            check(part, Ok(false));
        }
        check(replies.concat().as_bytes(), Ok(true));
        // Many that are small together are large.
        check("$5\r\nabcde\r\n".repeat(200_000).as_bytes(), Ok(true));
    }

    #[test]
    fn what_passes_the_bounds() {
        let long = Err("a reply is longer than 16 MiB");
        check(b"$1000000000\r\n", long);
        check(b"*1000000000\r\n", long);
        check(b"%18446744073709551615\r\n", long);
        check(b"*1\r\n*600000\r\n", long);
        check(&b"+".repeat(MOST + 1), long);
        check(
            format!(
                "*450\r\n{}",
                format!("$40000\r\n{}\r\n", "a".repeat(40_000)).repeat(450)
            )
            .as_bytes(),
            long,
        );
        check("*1\r\n".repeat(8).as_bytes(), Ok(false));
        check(
            "*1\r\n".repeat(9).as_bytes(),
            Err("a reply is nested too deep"),
        );
        check(
            "|1\r\n:1\r\n".repeat(9).as_bytes(),
            Err("a reply is nested too deep"),
        );
        check(
            &[b"$", &b"0".repeat(40)[..]].concat(),
            Err("a length is too long"),
        );
        let most = format!("${}\r\n{}\r\n", MOST - 100, "a".repeat(MOST - 100));
        check(most.as_bytes(), Ok(true));
    }
}
