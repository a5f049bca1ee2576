//! The chunked coding of RFC 9112 section 7.1, read strictly: a size is hexadecimal digits and
//! nothing else counts as one, lines end in CRLF, and neither lines nor trailers grow without bound.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::error::Malformed;
use super::syntax::ends_in_crlf;

/// Longest line with a chunk's size, extensions included.
const MAX_LINE: usize = 4 * 1024;

/// Most bytes of a message's trailers and of the extensions of all its chunks together.
const MAX_EXTRA: u32 = 16 * 1024;

/// Most trailer fields.
const MAX_FIELDS: usize = 64;

/// Chunks are joined while they are shorter than this together, for each piece costs more than a short chunk's bytes.
const MAX_JOINED: usize = 4 * 1024;

/// Where in a chunked body a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunked {
    /// Before a line with a size.
    Size(Extra),
    /// Inside a chunk, so many bytes before its end.
    Data(u64, Extra),
    /// Before the line end that closes a chunk.
    DataEnd(Extra),
    /// After the last chunk.
    Trailers(Extra),
    /// After everything.
    Done,
}

/// Bytes of extensions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra(u32);

impl Extra {
    /// Adds what stands behind a chunk's size.
    #[inline]
    fn add(&mut self, extension: usize) -> Result<(), Malformed> {
        // A line is short.
        self.0 += extension as u32;
        match self.0 <= MAX_EXTRA {
            true => Ok(()),
            false => Err(Malformed("its chunks have too many extensions")),
        }
    }
}

impl Default for Chunked {
    fn default() -> Chunked {
        Chunked::Size(Extra::default())
    }
}

/// What the next bytes are.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// Too few to tell.
    More,
    /// Content.
    Data(Bytes),
    /// The trailers; nothing follows.
    Trailers(HeaderMap),
    /// The end, without trailers.
    End,
}

impl Chunked {
    /// Takes the next piece off the front of `input`.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Piece, Malformed> {
        loop {
            match *self {
                Chunked::Size(mut extra) => match size(input, &mut extra)? {
                    None => return Ok(Piece::More),
                    Some((line, size)) => {
                        input.advance(line);
                        *self = match size {
                            0 => Chunked::Trailers(extra),
                            size => Chunked::Data(size, extra),
                        };
                    }
                },
                Chunked::Data(left, extra) => {
                    if input.is_empty() {
                        return Ok(Piece::More);
                    }
                    let here = usize::try_from(left).map_or(input.len(), |l| l.min(input.len()));
                    let left = left - here as u64;
                    if left > 0 {
                        *self = Chunked::Data(left, extra);
                        return Ok(Piece::Data(input.split_to(here).freeze()));
                    }
                    return Ok(Piece::Data(self.join(input, here, extra)));
                }
                Chunked::DataEnd(extra) => {
                    match (input.first(), input.get(1)) {
                        (Some(b'\r'), Some(b'\n')) => input.advance(2),
                        (None, _) | (Some(b'\r'), None) => return Ok(Piece::More),
                        _ => return Err(Malformed("a chunk is longer than it says")),
                    }
                    *self = Chunked::Size(extra);
                }
                Chunked::Trailers(extra) => return self.trailers(input, extra),
                Chunked::Done => return Ok(Piece::End),
            }
        }
    }

    /// Takes a chunk of `first` bytes off the front of `input`, and the short ones behind it that are there whole. What
    /// cannot be read is left to the next call.
    fn join(&mut self, input: &mut BytesMut, first: usize, mut extra: Extra) -> Bytes {
        let (mut content, mut read) = (first, first);
        while content < MAX_JOINED && input[read..].starts_with(b"\r\n") {
            let begin = read + 2;
            let mut more = extra;
            let Ok(Some((line, size @ 1..))) = size(&input[begin..], &mut more) else {
                break;
            };
            let begin = begin + line;
            let left = MAX_JOINED.min(input.len() - begin);
            let Some(size) = usize::try_from(size).ok().filter(|size| *size <= left) else {
                break;
            };
            input.copy_within(begin..begin + size, content);
            (content, read, extra) = (content + size, begin + size, more);
        }
        *self = Chunked::DataEnd(extra);
        let data = input.split_to(content).freeze();
        input.advance(read - content);
        data
    }

    fn trailers(&mut self, input: &mut BytesMut, extra: Extra) -> Result<Piece, Malformed> {
        let most = (MAX_EXTRA - extra.0) as usize;
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let (end, map) = match httparse::parse_headers(input, &mut fields) {
            Ok(httparse::Status::Complete((end, fields)))
                if end <= most.max(2) && ends_in_crlf(&input[..end]) =>
            {
                (end, map(fields)?)
            }
            Ok(httparse::Status::Partial) if input.len() <= most.max(2) => return Ok(Piece::More),
            _ => return Err(Malformed("the trailers cannot be read")),
        };
        input.advance(end);
        *self = Chunked::Done;
        Ok(if map.is_empty() {
            Piece::End
        } else {
            Piece::Trailers(map)
        })
    }
}

/// The length of the line at the front of `input` and the size in it, if the line is there whole.
#[inline]
fn size(input: &[u8], extra: &mut Extra) -> Result<Option<(usize, u64)>, Malformed> {
    let wrong = Malformed("a chunk's size cannot be read");
    let Some(end) = input.iter().take(MAX_LINE).position(|b| *b == b'\n') else {
        return if input.len() < MAX_LINE {
            Ok(None)
        } else {
            Err(wrong)
        };
    };
    let line = input[..end].strip_suffix(b"\r").ok_or(wrong)?;
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let rest = &line[digits..];
    let mut extension = rest.iter().skip_while(|byte| b" \t".contains(byte));
    let plain = rest
        .iter()
        .all(|byte| *byte == b'\t' || !byte.is_ascii_control());
    if digits == 0 || digits > 16 || !plain || !matches!(extension.next(), None | Some(b';')) {
        return Err(wrong);
    }
    extra.add(rest.len())?;
    let value = |byte: u8| char::from(byte).to_digit(16).map_or(0, u64::from);
    let size = line[..digits].iter().fold(0, |n, b| n << 4 | value(*b));
    Ok(Some((end + 1, size)))
}

fn map(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, Malformed> {
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
        let (mut chunked, mut input) = (Chunked::default(), BytesMut::new());
        let (mut content, mut trailers) = (Vec::new(), HeaderMap::new());
        let mut rest = text.chunks(cut);
        loop {
            match chunked.next(&mut input)? {
                Piece::More => match rest.next() {
                    Some(more) => input.extend_from_slice(more),
                    None => return Err(Malformed("too short")),
                },
                Piece::Data(data) => content.extend_from_slice(&data),
                Piece::Trailers(map) => trailers = map,
                Piece::End => break,
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
        let long = vec![b'c'; MAX_JOINED];
        let chunk =
            |text: &[u8]| [format!("{:x}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
        let chunks = [
            chunk(b"a"),
            chunk(b"bb"),
            chunk(&long),
            chunk(b"d"),
            b"0\r\n\r\n".into(),
        ];
        let (mut chunked, mut input) = (Chunked::default(), BytesMut::from(&chunks.concat()[..]));
        let mut next = || chunked.next(&mut input).unwrap();
        let joined = [b"abb", &long[..]].concat();
        assert_eq!(next(), Piece::Data(joined.into()));
        assert_eq!(next(), Piece::Data(Bytes::from_static(b"d")));
        assert_eq!(next(), Piece::End);
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
        let long = [b"1;".to_vec(), vec![b'a'; MAX_LINE]].concat();
        assert!(read(&long, 1000).is_err());
        let most = MAX_EXTRA as usize;
        let many = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(most / 5)].concat();
        assert!(read(&many, 1000).is_err());
        let large = [&b"0\r\na: "[..], &vec![b'b'; most], b"\r\n\r\n"].concat();
        for cut in [1000, large.len()] {
            assert!(read(&large, cut).is_err(), "in pieces of {cut}");
        }
    }

    #[test]
    fn extensions_and_trailers_have_a_bound_together() {
        let chunks = |number: usize| b"1;2345678\r\na\r\n".repeat(number);
        let most = MAX_EXTRA as usize / 8;
        let whole = |number: usize, trailers: &[u8]| {
            let body = [&chunks(number), &b"0\r\n"[..], trailers, b"\r\n"].concat();
            [1, 1000, body.len()].map(|cut| read(&body, cut).is_ok())
        };
        assert_eq!(whole(most, b""), [true; 3]);
        assert_eq!(whole(most + 1, b""), [false; 3]);
        // The line ends of 12 bytes of trailers, and theirs, are part of it.
        assert_eq!(whole(most - 2, b"a: 12345678\r\n"), [true; 3]);
        assert_eq!(whole(most - 1, b"a: 12345678\r\n"), [false; 3]);
        // What is not an extension is not counted.
        assert!(
            read(
                &[b"1\r\na\r\n".repeat(100_000), b"0\r\n\r\n".into()].concat(),
                5000
            )
            .is_ok()
        );
    }
}
