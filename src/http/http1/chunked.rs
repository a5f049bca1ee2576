//! Decodes the chunked coding of RFC 9112 section 7.1, for both sides of the gateway. `http1/outbox.rs` encodes it.
//!
//! It reads strictly, because two readers that find different ends of a body find different messages behind it. A size
//! is hexadecimal digits alone, and lines end in CRLF. Lines, extensions and trailers have bounds.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::error::Malformed;
use super::syntax::ends_in_crlf;

/// Maximum bytes of a line with a chunk's size, its extensions included.
const MAX_SIZE_LINE_BYTES: usize = 4 * 1024;

/// Maximum hexadecimal digits of a chunk's size, which has 64 bits.
const MAX_SIZE_DIGITS: usize = 16;

/// Maximum bytes of a message's trailers and of the extensions of all its chunks together.
const MAX_EXTRA_BYTES: u32 = 16 * 1024;

/// Maximum number of trailer fields.
const MAX_TRAILER_FIELDS: usize = 64;

/// Whole chunks of at most this many bytes are joined while the piece has fewer bytes than this. Each piece costs more
/// than copying a short chunk.
const MAX_JOINED_BYTES: usize = 4 * 1024;

/// A decoder of one chunked body. Its variants are the parts of the body that may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkedDecoder {
    /// The line with the size of the next chunk.
    Size(ExtensionBytes),
    /// The content of a chunk, of which this many bytes are still to come.
    Data(u64, ExtensionBytes),
    /// The CRLF that ends a chunk.
    DataEnd(ExtensionBytes),
    /// The trailers, behind the last chunk.
    Trailers(ExtensionBytes),
    /// Nothing: the body has ended.
    Done,
}

/// The number of bytes of extensions in all chunks so far; at most [`MAX_EXTRA_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtensionBytes(u32);

impl ExtensionBytes {
    /// Adds the number of bytes behind a chunk's size.
    #[inline]
    fn add(&mut self, byte_count: usize) -> Result<(), Malformed> {
        // The sum cannot overflow: a line has at most `MAX_SIZE_LINE_BYTES`.
        self.0 += byte_count as u32;
        match self.0 <= MAX_EXTRA_BYTES {
            true => Ok(()),
            false => Err(Malformed("its chunks have too many extensions")),
        }
    }
}

impl Default for ChunkedDecoder {
    fn default() -> ChunkedDecoder {
        ChunkedDecoder::Size(ExtensionBytes::default())
    }
}

/// A piece of a body.
#[derive(Debug, PartialEq)]
pub enum BodyPiece {
    /// There is no piece yet: more bytes must be received first.
    Incomplete,
    /// A part of the content.
    Data(Bytes),
    /// The trailers, which end the body.
    Trailers(HeaderMap),
    /// The end of a body without trailers.
    End,
}

impl ChunkedDecoder {
    /// Takes the next piece off the front of `input`. After the end of the body it returns [`BodyPiece::End`] and takes
    /// nothing.
    ///
    /// # Errors
    ///
    /// The coding is malformed, or one of its bounds is exceeded.
    pub fn next_piece(&mut self, input: &mut BytesMut) -> Result<BodyPiece, Malformed> {
        loop {
            match *self {
                ChunkedDecoder::Size(mut extensions) => {
                    match parse_size_line(input, &mut extensions)? {
                        None => return Ok(BodyPiece::Incomplete),
                        Some((line_length, size)) => {
                            input.advance(line_length);
                            *self = match size {
                                0 => ChunkedDecoder::Trailers(extensions),
                                size => ChunkedDecoder::Data(size, extensions),
                            };
                        }
                    }
                }
                ChunkedDecoder::Data(remaining, extensions) => {
                    if input.is_empty() {
                        return Ok(BodyPiece::Incomplete);
                    }
                    let available = usize::try_from(remaining)
                        .map_or(input.len(), |bytes| bytes.min(input.len()));
                    let remaining = remaining - available as u64;
                    if remaining > 0 {
                        *self = ChunkedDecoder::Data(remaining, extensions);
                        return Ok(BodyPiece::Data(input.split_to(available).freeze()));
                    }
                    let content = self.take_whole_chunks(input, available, extensions);
                    return Ok(BodyPiece::Data(content));
                }
                ChunkedDecoder::DataEnd(extensions) => {
                    match (input.first(), input.get(1)) {
                        (Some(b'\r'), Some(b'\n')) => input.advance(2),
                        (None, _) | (Some(b'\r'), None) => return Ok(BodyPiece::Incomplete),
                        _ => return Err(Malformed("a chunk is longer than it says")),
                    }
                    *self = ChunkedDecoder::Size(extensions);
                }
                ChunkedDecoder::Trailers(extensions) => {
                    return self.parse_trailers(input, extensions);
                }
                ChunkedDecoder::Done => return Ok(BodyPiece::End),
            }
        }
    }

    /// Takes the last `first_length` bytes of a chunk off the front of `input`, joined with short whole chunks behind
    /// them. A chunk that is malformed or incomplete is left to the next call of `next_piece`.
    fn take_whole_chunks(
        &mut self,
        input: &mut BytesMut,
        first_length: usize,
        mut extensions: ExtensionBytes,
    ) -> Bytes {
        // The end of the joined content, which is moved together at the front of `input`.
        let mut content_end = first_length;
        // The end of the last chunk whose content was moved.
        let mut read_end = first_length;
        while content_end < MAX_JOINED_BYTES && input[read_end..].starts_with(b"\r\n") {
            let line_start = read_end + b"\r\n".len();
            let mut extensions_with_next = extensions;
            let line = parse_size_line(&input[line_start..], &mut extensions_with_next);
            let Ok(Some((line_length, size @ 1..))) = line else {
                break;
            };
            let data_start = line_start + line_length;
            let max_size = MAX_JOINED_BYTES.min(input.len() - data_start);
            let Some(size) = usize::try_from(size).ok().filter(|size| *size <= max_size) else {
                break;
            };
            input.copy_within(data_start..data_start + size, content_end);
            content_end += size;
            read_end = data_start + size;
            extensions = extensions_with_next;
        }
        *self = ChunkedDecoder::DataEnd(extensions);
        let data = input.split_to(content_end).freeze();
        input.advance(read_end - content_end);
        data
    }

    /// Takes the trailers and the CRLF behind them off the front of `input`, once it has all of them.
    fn parse_trailers(
        &mut self,
        input: &mut BytesMut,
        extensions: ExtensionBytes,
    ) -> Result<BodyPiece, Malformed> {
        // The CRLF that ends the body is allowed even if extensions have used up the bound.
        let max_bytes = ((MAX_EXTRA_BYTES - extensions.0) as usize).max(2);
        let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
        let (end, map) = match httparse::parse_headers(input, &mut fields) {
            Ok(httparse::Status::Complete((end, fields)))
                if end <= max_bytes && ends_in_crlf(&input[..end]) =>
            {
                (end, to_header_map(fields)?)
            }
            Ok(httparse::Status::Partial) if input.len() <= max_bytes => {
                return Ok(BodyPiece::Incomplete);
            }
            _ => return Err(Malformed("the trailers cannot be read")),
        };
        input.advance(end);
        *self = ChunkedDecoder::Done;
        Ok(if map.is_empty() {
            BodyPiece::End
        } else {
            BodyPiece::Trailers(map)
        })
    }
}

/// Parses the line with a chunk's size at the front of `input`, and counts its extensions. Returns the line's length,
/// CRLF included, and the size; `None` if the line is incomplete.
#[inline]
fn parse_size_line(
    input: &[u8],
    extensions: &mut ExtensionBytes,
) -> Result<Option<(usize, u64)>, Malformed> {
    let invalid_size = Malformed("a chunk's size cannot be read");
    let Some(newline) = input
        .iter()
        .take(MAX_SIZE_LINE_BYTES)
        .position(|byte| *byte == b'\n')
    else {
        return if input.len() < MAX_SIZE_LINE_BYTES {
            Ok(None)
        } else {
            Err(invalid_size)
        };
    };
    let line = input[..newline].strip_suffix(b"\r").ok_or(invalid_size)?;
    let digit_count = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    let after_size = &line[digit_count..];
    let mut after_blanks = after_size.iter().skip_while(|byte| b" \t".contains(byte));
    let has_valid_bytes = after_size
        .iter()
        .all(|byte| *byte == b'\t' || !byte.is_ascii_control());
    let has_extension_or_end = matches!(after_blanks.next(), None | Some(b';'));
    if digit_count == 0
        || digit_count > MAX_SIZE_DIGITS
        || !has_valid_bytes
        || !has_extension_or_end
    {
        return Err(invalid_size);
    }
    extensions.add(after_size.len())?;
    let digit_value = |byte: u8| char::from(byte).to_digit(16).map_or(0, u64::from);
    let digits = line[..digit_count].iter();
    let size = digits.fold(0, |size, digit| size << 4 | digit_value(*digit));
    Ok(Some((newline + 1, size)))
}

/// The trailers as a map. They are few and rare, so a map costs little. An error if a name or value is invalid.
fn to_header_map(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, Malformed> {
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Malformed("the trailers cannot be read"));
        };
        map.append(name, value);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content, the trailers and what is left of `text`, however it is cut.
    fn read(text: &[u8], cut: usize) -> Result<(Vec<u8>, HeaderMap, usize), Malformed> {
        let (mut chunked, mut input) = (ChunkedDecoder::default(), BytesMut::new());
        let (mut content, mut trailers) = (Vec::new(), HeaderMap::new());
        let mut rest = text.chunks(cut);
        loop {
            match chunked.next_piece(&mut input)? {
                BodyPiece::Incomplete => match rest.next() {
                    Some(more) => input.extend_from_slice(more),
                    None => return Err(Malformed("too short")),
                },
                BodyPiece::Data(data) => content.extend_from_slice(&data),
                BodyPiece::Trailers(map) => trailers = map,
                BodyPiece::End => break,
            }
        }
        let left = input.len() + rest.map(<[u8]>::len).sum::<usize>();
        Ok((content, trailers, left))
    }

    #[test]
    fn bodies() {
        let cases: [(&[u8], &str, usize, usize); 5] = [
            (b"0\r\n\r\n", "", 0, 0),
            (b"3\r\nabc\r\n0\r\n\r\nHTTP/", "abc", 0, 5),
            (
                b"3;x=\"y\"\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\n",
                "abc0123456789",
                0,
                0,
            ),
            (b"1 ; a\r\na\r\n000\r\nx-a: 1\r\nx-b: 2\r\n\r\n", "a", 2, 0),
            (b"1\r\n\n\r\n0\r\n\r\n", "\n", 0, 0),
        ];
        for (text, content, trailers, left) in cases {
            for cut in 1..=text.len() {
                let read = read(text, cut).unwrap();
                assert_eq!(read.0, content.as_bytes());
                assert_eq!((read.1.len(), read.2), (trailers, left), "cut {cut}");
            }
        }
    }

    #[test]
    fn short_chunks_are_joined() {
        let long = vec![b'c'; MAX_JOINED_BYTES];
        let chunk =
            |text: &[u8]| [format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
        let chunks = [
            chunk(b"a"),
            chunk(b"bb"),
            chunk(&long),
            chunk(b"d"),
            b"0\r\n\r\n".into(),
        ];
        let (mut chunked, mut input) = (
            ChunkedDecoder::default(),
            BytesMut::from(&chunks.concat()[..]),
        );
        let mut next = || chunked.next_piece(&mut input).unwrap();
        let joined = [b"abb", &long[..]].concat();
        assert_eq!(next(), BodyPiece::Data(joined.into()));
        assert_eq!(next(), BodyPiece::Data(Bytes::from_static(b"d")));
        assert_eq!(next(), BodyPiece::End);
    }

    #[test]
    fn what_two_readers_could_read_differently() {
        let cases: [&[u8]; 16] = [
            b"\r\n",
            b"3\nabc\r\n0\r\n\r\n",
            b"+3\r\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b"3 3\r\nabc\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"-1\r\na\r\n",
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"00000000000000003\r\nabc\r\n0\r\n\r\n",
            b"g\r\n",
            b"0\r\nx y: 1\r\n\r\n",
            b"0\r\n\nGET / HTTP/1.1\r\n\r\n",
            b"0\r\nx: 1\n\r\n",
            b"3;\rx\0\r\nabc\r\n0\r\n\r\n",
            b"3\x0c\r\nabc\r\n0\r\n\r\n",
        ];
        for text in cases {
            for cut in 1..=text.len() {
                let result = read(text, cut);
                assert!(result.is_err(), "{:?}", String::from_utf8_lossy(text));
            }
        }
        let long = [b"1;".to_vec(), vec![b'a'; MAX_SIZE_LINE_BYTES]].concat();
        assert!(read(&long, 1000).is_err());
        let max_extra = MAX_EXTRA_BYTES as usize;
        let many = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(max_extra / 5)].concat();
        assert!(read(&many, 1000).is_err());
        let large = [&b"0\r\na: "[..], &vec![b'b'; max_extra], b"\r\n\r\n"].concat();
        for cut in [1000, large.len()] {
            assert!(read(&large, cut).is_err(), "in pieces of {cut}");
        }
    }

    #[test]
    fn extensions_and_trailers_have_a_bound_together() {
        let chunks = |number: usize| b"1;2345678\r\na\r\n".repeat(number);
        let max_extra = MAX_EXTRA_BYTES as usize / 8;
        let whole = |number: usize, trailers: &[u8]| {
            let body = [&chunks(number), &b"0\r\n"[..], trailers, b"\r\n"].concat();
            [1, 1000, body.len()].map(|cut| read(&body, cut).is_ok())
        };
        assert_eq!(whole(max_extra, b""), [true; 3]);
        assert_eq!(whole(max_extra + 1, b""), [false; 3]);
        // 15 bytes count: the field's line (13 bytes), and the CRLF that ends the body.
        assert_eq!(whole(max_extra - 2, b"a: 12345678\r\n"), [true; 3]);
        assert_eq!(whole(max_extra - 1, b"a: 12345678\r\n"), [false; 3]);
        // Only extensions are counted, not the sizes of chunks.
        assert!(
            read(
                &[b"1\r\na\r\n".repeat(100_000), b"0\r\n\r\n".into()].concat(),
                5000
            )
            .is_ok()
        );
    }
}
