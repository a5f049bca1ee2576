//! Decides where the body of an HTTP/1.1 message ends, by RFC 9112 section 6, and splits it off the received bytes.
//!
//! A message that states its length twice is an error, even if both statements agree: the next reader may choose the
//! other one.

use bytes::BytesMut;
use http::Version;

use super::chunked::{BodyPiece, ChunkedDecoder};
use super::error::Malformed;

/// The part of a body that is still to come, and so where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes are still to come.
    Length(u64),
    /// The body ends with its last chunk.
    Chunked(ChunkedDecoder),
    /// The body ends with the connection.
    Close,
}

impl Framing {
    /// Whether the body has ended; never for [`Framing::Close`], where only the connection shows it.
    pub fn is_over(&self) -> bool {
        matches!(
            self,
            Framing::Length(0) | Framing::Chunked(ChunkedDecoder::Done)
        )
    }

    /// Takes the next piece of the body off the front of `input`. After the end it returns [`BodyPiece::End`] and takes
    /// nothing.
    ///
    /// # Errors
    ///
    /// The chunked coding is malformed, or exceeds one of its bounds.
    pub fn next_piece(&mut self, input: &mut BytesMut) -> Result<BodyPiece, Malformed> {
        Ok(match self {
            Framing::Chunked(chunked) => return chunked.next_piece(input),
            Framing::Length(0) => BodyPiece::End,
            _ if input.is_empty() => BodyPiece::Incomplete,
            Framing::Length(remaining) => {
                let available =
                    usize::try_from(*remaining).map_or(input.len(), |bytes| bytes.min(input.len()));
                *remaining -= available as u64;
                BodyPiece::Data(input.split_to(available).freeze())
            }
            Framing::Close => BodyPiece::Data(input.split().freeze()),
        })
    }
}

/// Largest number of options that the `Connection` fields of a message may list together. It is small, because each
/// option is compared with the name of each field.
const MAX_CONNECTION_OPTIONS: u8 = 32;

/// What the fields of a head say about the framing of the body and about the connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramingFields {
    /// The value of `Content-Length`, in bytes; `None` if there is no such field.
    pub content_length: Option<u64>,
    /// Whether there is `Transfer-Encoding: chunked`.
    pub is_chunked: bool,
    /// Whether there is `Connection: close`.
    pub has_close: bool,
    /// Whether there is `Connection: keep-alive`.
    pub has_keep_alive: bool,
    /// Whether there is `Connection: upgrade`.
    pub has_upgrade: bool,
    /// The number of options in all `Connection` fields, empty ones included.
    connection_option_count: u8,
}

impl FramingFields {
    /// Records a field if it is about framing or the connection. Returns the value to forward: a length without leading
    /// zeros, and any other value as it is.
    ///
    /// # Errors
    ///
    /// A length is no number, or a transfer coding is not `chunked` alone. A field about framing comes twice, or
    /// `Connection` lists more than [`MAX_CONNECTION_OPTIONS`].
    #[inline]
    pub(crate) fn record_field<'v>(
        &mut self,
        name: &[u8],
        value: &'v [u8],
    ) -> Result<&'v [u8], Malformed> {
        // The lengths of `Connection`, `Content-Length` and `Transfer-Encoding`.
        match name.len() {
            10 | 14 | 17 => self.record_framing_field(name, value),
            _ => Ok(value),
        }
    }

    /// Does the work of [`FramingFields::record_field`], for names that have the length of one of the three.
    fn record_framing_field<'v>(
        &mut self,
        name: &[u8],
        value: &'v [u8],
    ) -> Result<&'v [u8], Malformed> {
        let is_field = |field_name: &[u8]| name.eq_ignore_ascii_case(field_name);
        if is_field(b"content-length") {
            let length = parse_length(value).ok_or(Malformed("its length is not a number"))?;
            if self.content_length.is_some() {
                return Err(Malformed("it says its length twice"));
            }
            self.content_length = Some(length);
            return Ok(without_leading_zeros(value));
        } else if is_field(b"transfer-encoding") {
            if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed("its transfer coding is not `chunked`"));
            }
            self.is_chunked = true;
        } else if is_field(b"connection") {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.connection_option_count += 1;
                if self.connection_option_count > MAX_CONNECTION_OPTIONS {
                    return Err(Malformed(
                        "its `Connection` fields list more than 32 options",
                    ));
                }
                self.has_close |= option.eq_ignore_ascii_case(b"close");
                self.has_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                self.has_upgrade |= option.eq_ignore_ascii_case(b"upgrade");
            }
        }
        Ok(value)
    }

    /// Whether the connection can carry another message after this one. In HTTP/1.0 it can only if there is
    /// `Connection: keep-alive`.
    pub fn is_persistent(&self, version: Version) -> bool {
        !self.has_close && (version >= Version::HTTP_11 || self.has_keep_alive)
    }

    /// The framing of the body; `default` if no field states one.
    ///
    /// # Errors
    ///
    /// The message has both a length and a transfer coding, or it has a transfer coding in HTTP/1.0.
    pub fn body_framing(&self, version: Version, default: Framing) -> Result<Framing, Malformed> {
        match (self.is_chunked, self.content_length) {
            (true, None) if version >= Version::HTTP_11 => {
                Ok(Framing::Chunked(ChunkedDecoder::default()))
            }
            (true, _) => Err(Malformed("it says its length in two ways")),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(default),
        }
    }
}

/// The digits of a length without leading zeros, because some readers understand `010` as eight. One zero of `00`
/// stays.
pub fn without_leading_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros.min(digits.len().saturating_sub(1))..]
}

/// Parses a length; `None` if it is empty, has other bytes than digits, or does not fit into 64 bits.
fn parse_length(digits: &[u8]) -> Option<u64> {
    // `parse` alone would accept a sign.
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
    text.parse().ok()
}
