//! The head of an answer and what it says of the body: RFC 9112 sections 4 and 6.3, read strictly.
//! What two readers could take for different messages is no answer.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use smallvec::SmallVec;

use super::chunked::Chunked;

/// Most bytes of an answer's head.
pub const MAX_HEAD: usize = 64 * 1024;

/// Most fields of an answer's head.
const MAX_FIELDS: usize = 100;

/// Most interim answers before the final one.
const MAX_INTERIM: u32 = 16;

/// Why bytes are not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// How far a body reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// To the last chunk.
    Chunked(Chunked),
    /// To the end of the connection.
    Close,
}

/// The head of a final answer.
#[derive(Debug)]
pub struct Head {
    /// Status and fields.
    pub parts: Parts,
    /// How far the body reaches.
    pub framing: Framing,
    /// The connection may carry another request.
    pub keep: bool,
}

/// Reads heads off the front of what came in; interim answers are passed over.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The request was a HEAD: whatever the answer says, it has no body.
    pub bodiless: bool,
    /// Interim answers so far.
    pub interim: u32,
}

impl Reader {
    /// The final answer's head, when all of it is there.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Head>, Malformed> {
        loop {
            let Some(raw) = parse(input)? else {
                return Ok(None);
            };
            match raw.status.as_u16() {
                101 => return Err(Malformed("it switches protocols unasked")),
                100..=199 => {
                    input.advance(raw.end);
                    self.interim += 1;
                    if self.interim > MAX_INTERIM {
                        return Err(Malformed("too many interim answers"));
                    }
                }
                _ => return raw.head(input, self.bodiless).map(Some),
            }
        }
    }
}

/// Where the parts of a head are, by offsets.
struct Raw {
    end: usize,
    version: Version,
    status: StatusCode,
    reason: (usize, usize),
    fields: SmallVec<[[u32; 4]; 24]>,
}

fn parse(input: &BytesMut) -> Result<Option<Raw>, Malformed> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let end = match config.parse_response_with_uninit_headers(&mut head, input, &mut fields) {
        Ok(httparse::Status::Complete(end)) if end <= MAX_HEAD => end,
        Ok(httparse::Status::Partial) if input.len() <= MAX_HEAD => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed("it has too many fields")),
        Err(_) => return Err(Malformed("it is not HTTP")),
        Ok(_) => return Err(Malformed("its head is too long")),
    };
    let start = input.as_ptr() as usize;
    let place = |bytes: &[u8]| [(bytes.as_ptr() as usize - start) as u32, bytes.len() as u32];
    let places = head.headers.iter().map(|field| {
        let ([name, name_len], [value, value_len]) =
            (place(field.name.as_bytes()), place(field.value));
        [name, name_len, value, value_len]
    });
    let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
    // An empty one is no part of the input.
    let reason = head.reason.filter(|reason| !reason.is_empty());
    let [reason, length] = reason.map_or([0, 0], |reason| place(reason.as_bytes()));
    Ok(Some(Raw {
        end,
        version: match head.version {
            Some(0) => Version::HTTP_10,
            _ => Version::HTTP_11,
        },
        status: status.ok_or(Malformed("its status is not one"))?,
        reason: (reason as usize, length as usize),
        fields: places.collect(),
    }))
}

impl Raw {
    fn head(self, input: &mut BytesMut, bodiless: bool) -> Result<Head, Malformed> {
        let bytes = input.split_to(self.end).freeze();
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        *response.version_mut() = self.version;
        self.keep_reason(&bytes, &mut response);
        let mut said = Said {
            keep: self.version == Version::HTTP_11,
            ..Said::default()
        };
        let headers = response.headers_mut();
        headers.reserve(self.fields.len() + 4);
        for [name, name_len, value, value_len] in self.fields {
            let piece = |start: u32, len: u32| start as usize..(start + len) as usize;
            let name = HeaderName::from_bytes(&bytes[piece(name, name_len)]);
            let value = HeaderValue::from_maybe_shared(bytes.slice(piece(value, value_len)));
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(Malformed("it has a field that is not one"));
            };
            said.note(&name, &value)?;
            headers.append(name, value);
        }
        let status = self.status;
        let bodiless = bodiless || matches!(status.as_u16(), 204 | 304);
        let framing = match (said.chunked, said.length) {
            _ if bodiless => Framing::Length(0),
            (true, length) => {
                if length.is_some() || self.version != Version::HTTP_11 {
                    return Err(Malformed("it says its length in two ways"));
                }
                Framing::Chunked(Chunked::Size)
            }
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::Close,
        };
        Ok(Head {
            parts: response.into_parts().0,
            framing,
            keep: said.keep && framing != Framing::Close,
        })
    }

    /// Keeps a reason phrase that is not the usual one.
    fn keep_reason(&self, bytes: &Bytes, response: &mut Response<()>) {
        let reason = bytes.slice(self.reason.0..self.reason.0 + self.reason.1);
        let usual = self.status.canonical_reason().unwrap_or_default();
        if reason != usual.as_bytes()
            && let Ok(reason) = ReasonPhrase::try_from(reason)
        {
            response.extensions_mut().insert(reason);
        }
    }
}

/// What the fields say of framing.
#[derive(Default)]
struct Said {
    length: Option<u64>,
    chunked: bool,
    keep: bool,
}

impl Said {
    fn note(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), Malformed> {
        if name == CONTENT_LENGTH {
            let length = length(value).ok_or(Malformed("its length is not a number"))?;
            if self.length.is_some() {
                return Err(Malformed("it says its length twice"));
            }
            self.length = Some(length);
        } else if name == TRANSFER_ENCODING {
            if self.chunked || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed("its transfer coding is not `chunked`"));
            }
            self.chunked = true;
        } else if name == CONNECTION {
            let has = |word: &[u8]| {
                let mut parts = value.as_bytes().split(|byte| *byte == b',');
                parts.any(|part| part.trim_ascii().eq_ignore_ascii_case(word))
            };
            self.keep = !has(b"close") && (self.keep || has(b"keep-alive"));
        }
        Ok(())
    }
}

fn length(value: &HeaderValue) -> Option<u64> {
    let digits = value.as_bytes();
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = value.to_str().ok().filter(|_| plain)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], bodiless: bool, cut: usize) -> Result<Option<Head>, Malformed> {
        let mut reader = Reader {
            bodiless,
            interim: 0,
        };
        let mut input = BytesMut::new();
        for piece in text.chunks(cut) {
            input.extend_from_slice(piece);
            if let Some(head) = reader.next(&mut input)? {
                return Ok(Some(head));
            }
        }
        Ok(None)
    }

    #[test]
    fn heads() {
        use Framing::{Close, Length};
        let chunked = Framing::Chunked(Chunked::Size);
        let cases = [
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
                false,
                Length(5),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
                true,
                Length(0),
                true,
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", false, Length(0), true),
            (
                "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
                false,
                Length(0),
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n",
                false,
                chunked,
                true,
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", false, Close, false),
            (
                "HTTP/1.1 200\r\nContent-Length: 0\r\nConnection: a, Close\r\n\r\n",
                false,
                Length(0),
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n",
                false,
                Length(1),
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\ncontent-length: 1\r\nconnection: keep-alive\r\n\r\n",
                false,
                Length(1),
                true,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
                false,
                Length(2),
                true,
            ),
        ];
        for (text, bodiless, framing, keep) in cases {
            for cut in [1, 7, text.len()] {
                let head = read(text.as_bytes(), bodiless, cut).unwrap().unwrap();
                assert_eq!((head.framing, head.keep), (framing, keep), "{text}");
            }
        }
        let head = read(b"HTTP/1.1 200 Fine\r\ncontent-length: 0\r\n\r\n", false, 9);
        let parts = head.unwrap().unwrap().parts;
        let reason = parts.extensions.get::<ReasonPhrase>().unwrap();
        assert_eq!(reason.as_bytes(), b"Fine");
    }

    #[test]
    fn what_two_readers_could_read_differently() {
        let cases = [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: b\r\n c: d\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            "HTTP/1.1 99 X\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
        ];
        for text in cases {
            let result = read(text.as_bytes(), false, 5);
            assert!(result.is_err(), "{text:?} {result:?}");
        }
        let interim = "HTTP/1.1 103 X\r\n\r\n".repeat(17);
        assert!(read(interim.as_bytes(), false, 100).is_err());
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(MAX_HEAD));
        assert!(read(long.as_bytes(), false, 4096).is_err());
    }
}
