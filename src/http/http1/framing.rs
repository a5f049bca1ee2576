//! How far a body reaches: RFC 9112 section 6.

use bytes::BytesMut;
use http::Version;

use super::chunked::{Chunked, Piece};
use super::error::Malformed;

/// What of a body is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// To the last chunk.
    Chunked(Chunked),
    /// To the end of the connection.
    Close,
}

impl Framing {
    /// Nothing is left.
    pub fn is_over(&self) -> bool {
        matches!(self, Framing::Length(0) | Framing::Chunked(Chunked::Done))
    }

    /// Takes the next piece off the front of `input`.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Piece, Malformed> {
        Ok(match self {
            Framing::Chunked(chunked) => return chunked.next(input),
            Framing::Length(0) => Piece::End,
            _ if input.is_empty() => Piece::More,
            Framing::Length(left) => {
                let here = usize::try_from(*left).map_or(input.len(), |l| l.min(input.len()));
                *left -= here as u64;
                Piece::Data(input.split_to(here).freeze())
            }
            Framing::Close => Piece::Data(input.split().freeze()),
        })
    }
}

/// Most options that the `Connection` fields of a message list together: each is compared with the name of each field.
const MAX_OPTIONS: u8 = 32;

/// What the fields of a head say of its body and its connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramingFields {
    /// The body's length.
    pub length: Option<u64>,
    /// The body is chunked.
    pub chunked: bool,
    /// The connection ends with this message.
    pub close: bool,
    /// The connection goes on.
    pub keep_alive: bool,
    /// It may change to another protocol.
    pub upgrade: bool,
    /// Options of `Connection`, empty ones included.
    options: u8,
}

impl FramingFields {
    /// Takes note of one field; gives the value that goes on.
    #[inline]
    pub(crate) fn note<'v>(&mut self, name: &[u8], value: &'v [u8]) -> Result<&'v [u8], Malformed> {
        match name.len() {
            10 | 14 | 17 => self.weigh(name, value),
            _ => Ok(value),
        }
    }

    /// The same for one whose name is as long as one of those that matter.
    fn weigh<'v>(&mut self, name: &[u8], value: &'v [u8]) -> Result<&'v [u8], Malformed> {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if is(b"content-length") {
            let length = length(value).ok_or(Malformed("its length is not a number"))?;
            if self.length.is_some() {
                return Err(Malformed("it says its length twice"));
            }
            self.length = Some(length);
            return Ok(without_zeros(value));
        } else if is(b"transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed("its transfer coding is not `chunked`"));
            }
            self.chunked = true;
        } else if is(b"connection") {
            for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.options += 1;
                if self.options > MAX_OPTIONS {
                    return Err(Malformed(
                        "its `Connection` fields list more than 32 options",
                    ));
                }
                self.close |= word.eq_ignore_ascii_case(b"close");
                self.keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
                self.upgrade |= word.eq_ignore_ascii_case(b"upgrade");
            }
        }
        Ok(value)
    }

    /// Whether the connection may carry another message after one of this version. HTTP/1.0 has to ask for it.
    pub fn keeps(&self, version: Version) -> bool {
        !self.close && (version >= Version::HTTP_11 || self.keep_alive)
    }

    /// How far the body reaches; `otherwise` where no field says.
    pub fn framing(&self, version: Version, otherwise: Framing) -> Result<Framing, Malformed> {
        match (self.chunked, self.length) {
            (true, None) if version >= Version::HTTP_11 => Ok(Framing::Chunked(Chunked::default())),
            (true, _) => Err(Malformed("it says its length in two ways")),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(otherwise),
        }
    }
}

/// A length without zeros in front. There are readers that take `010` for eight.
pub fn without_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros.min(digits.len().saturating_sub(1))..]
}

fn length(digits: &[u8]) -> Option<u64> {
    // `parse` would take a sign.
    let plain = digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| plain)?;
    text.parse().ok()
}
