//! [`BoundedSocket`]: a socket that bounds the size and the depth of replies. redis-rs keeps a reply until it is complete,
//! whatever length it announces, and a faulty server must not fill the gateway's memory. The socket never changes replies;
//! it measures them, and a read fails when one exceeds a bound.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Largest size of a reply: its bytes, and [`ELEMENT_BYTES`] for each element.
///
/// The scripts return a few numbers for each limit of a request, and some KiB for a thousand gateways. The longest reply is
/// the list of a cluster's slots: some 10 MiB, where each of the 16,384 slots is a range of its own with two servers.
const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// What an element of an array counts beside its bytes, because redis-rs keeps a value for each.
const ELEMENT_BYTES: usize = 32;

/// Largest depth of nested arrays. The list of a cluster's slots has four.
const MAX_ARRAY_DEPTH: usize = 8;

/// Most bytes of a line with a length or a number of elements. The longest number of 64 bits has 20 digits.
const MAX_LENGTH_LINE_BYTES: usize = 32;

/// The type bytes of values that begin with a length or a number of elements: strings, errors and verbatim strings, then
/// arrays, sets, pushes, maps and attributes.
const TYPES_WITH_LENGTH: &[u8] = b"$!=*~>%|";

/// A socket whose reads fail when a reply exceeds a bound.
pub(super) struct BoundedSocket<S> {
    stream: S,
    meter: ReplyMeter,
}

impl<S> BoundedSocket<S> {
    pub(super) fn new(stream: S) -> BoundedSocket<S> {
        BoundedSocket {
            stream,
            meter: ReplyMeter::default(),
        }
    }
}

/// Measures the reply that is being read, in RESP2 or RESP3.
#[derive(Default)]
struct ReplyMeter {
    /// The size so far in bytes, as [`MAX_REPLY_BYTES`] counts it. A string or an array counts in full once its length is
    /// read.
    byte_count: usize,
    /// The number of missing elements of each array that has begun, the innermost array last. Has at most
    /// [`MAX_ARRAY_DEPTH`] numbers.
    open_arrays: Vec<usize>,
    /// Where in the reply the next byte is.
    position: ReplyPosition,
}

/// Where in a reply the next byte is.
#[derive(Default)]
enum ReplyPosition {
    /// Before the type byte of a value.
    #[default]
    BeforeValue,
    /// In a line, behind its type byte. If the line is a length, its text so far is kept.
    InLine { type_byte: u8, length: Vec<u8> },
    /// In a string, of which this many bytes are missing, with the CRLF behind it.
    InString(usize),
}

impl ReplyMeter {
    /// Measures the next bytes.
    ///
    /// # Errors
    ///
    /// The bound that the reply exceeds.
    fn measure(&mut self, mut input: &[u8]) -> Result<(), &'static str> {
        while let Some(first) = input.first() {
            match &mut self.position {
                ReplyPosition::BeforeValue => {
                    let (type_byte, length) = (*first, Vec::new());
                    self.position = ReplyPosition::InLine { type_byte, length };
                    self.add_bytes(1)?;
                    input = &input[1..];
                }
                ReplyPosition::InLine { type_byte, length } => {
                    let end = memchr(b'\n', input);
                    let (line, after_line) = input.split_at(end.map_or(input.len(), |end| end + 1));
                    let type_byte = *type_byte;
                    let has_length = TYPES_WITH_LENGTH.contains(&type_byte);
                    if has_length {
                        length.extend_from_slice(line);
                        if length.len() > MAX_LENGTH_LINE_BYTES {
                            return Err("a length is too long");
                        }
                    }
                    let parsed_length = end.map(|_| parse_length(length));
                    self.add_bytes(line.len())?;
                    input = after_line;
                    match parsed_length {
                        Some(length) if has_length => self.begin_value(type_byte, length)?,
                        Some(_) => self.end_value(),
                        None => {}
                    }
                }
                ReplyPosition::InString(missing_bytes) => {
                    let available = input.len().min(*missing_bytes);
                    *missing_bytes -= available;
                    input = &input[available..];
                    if *missing_bytes == 0 {
                        self.end_value();
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds to the size of the reply. Fails once it is larger than [`MAX_REPLY_BYTES`].
    fn add_bytes(&mut self, count: usize) -> Result<(), &'static str> {
        self.byte_count = self.byte_count.saturating_add(count);
        match self.byte_count > MAX_REPLY_BYTES {
            true => Err("a reply is longer than 16 MiB"),
            false => Ok(()),
        }
    }

    /// Begins a string or an array; the length is `None` for a null, and for a length that is not a number.
    fn begin_value(&mut self, type_byte: u8, length: Option<usize>) -> Result<(), &'static str> {
        let element_count = match (type_byte, length) {
            (b'$' | b'!' | b'=', Some(length)) => {
                self.add_bytes(length)?;
                self.position = ReplyPosition::InString(length + 2);
                return Ok(());
            }
            // Attributes come before the value that they belong to.
            (b'|', Some(pairs)) => pairs.saturating_mul(2).saturating_add(1),
            (b'%', Some(pairs)) => pairs.saturating_mul(2),
            (_, Some(count)) => count,
            (_, None) => 0,
        };
        if element_count == 0 {
            self.end_value();
            return Ok(());
        }
        self.add_bytes(element_count.saturating_mul(ELEMENT_BYTES))?;
        if self.open_arrays.len() == MAX_ARRAY_DEPTH {
            return Err("a reply is nested too deep");
        }
        self.open_arrays.push(element_count);
        self.position = ReplyPosition::BeforeValue;
        Ok(())
    }

    /// Ends a value, and the arrays of which it is the last element.
    fn end_value(&mut self) {
        self.position = ReplyPosition::BeforeValue;
        while let Some(missing_elements) = self.open_arrays.last_mut() {
            *missing_elements -= 1;
            if *missing_elements > 0 {
                return;
            }
            self.open_arrays.pop();
        }
        self.byte_count = 0;
    }
}

/// The length in a line; `None` for -1, and for text that is no number, which redis-rs refuses.
fn parse_length(line: &[u8]) -> Option<usize> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled_before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let measured = self.meter.measure(&buf.filled()[filled_before..]);
        Poll::Ready(measured.map_err(|bound| io::Error::new(io::ErrorKind::InvalidData, bound)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedSocket<S> {
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

    /// Measures the input at once and byte by byte. The result says whether a reply is complete at its end, or why it
    /// fails.
    #[track_caller]
    fn check(input: &[u8], expected: Result<bool, &'static str>) {
        let is_complete = |meter: &ReplyMeter| {
            meter.open_arrays.is_empty() && matches!(meter.position, ReplyPosition::BeforeValue)
        };
        let mut at_once = ReplyMeter::default();
        let measured = at_once.measure(input);
        assert_eq!(measured.map(|()| is_complete(&at_once)), expected);
        let mut byte_by_byte = ReplyMeter::default();
        let measured = input
            .chunks(1)
            .try_for_each(|byte| byte_by_byte.measure(byte));
        assert_eq!(
            measured.map(|()| is_complete(&byte_by_byte)),
            expected,
            "byte by byte"
        );
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
            let all_but_last_byte = &reply.as_bytes()[..reply.len() - 1];
            check(all_but_last_byte, Ok(false));
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
        check(&b"+".repeat(MAX_REPLY_BYTES + 1), long);
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
        let most = format!(
            "${}\r\n{}\r\n",
            MAX_REPLY_BYTES - 100,
            "a".repeat(MAX_REPLY_BYTES - 100)
        );
        check(most.as_bytes(), Ok(true));
    }
}
