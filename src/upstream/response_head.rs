//! The strict reader of a response's head. It accepts lines that end in LF alone: some old servers send them, and no
//! client can make a server do so.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use http::{StatusCode, Version};

use crate::http::head::{Fields, ResponseHead, hop};
use crate::http::http1::{
    Framing, FramingFields, MAX_FIELDS, MAX_HEAD, Malformed, fields, version_of,
};

/// Most interim responses before the final one.
const MAX_INTERIM: u32 = 16;

/// Most bytes of a head that is remembered.
const MOST: usize = 4 * 1024;

/// The head of a final response.
#[derive(Clone, Debug)]
pub struct FinalHead {
    /// Status and fields; without those of the connection, unless that changes to another protocol.
    pub answer: ResponseHead,
    /// How far the body reaches.
    pub framing: Framing,
    /// The connection may carry another request.
    pub keep: bool,
}

/// The last final head of a connection. Servers often send the same bytes again; then the parsed head is reused.
#[derive(Debug, Default)]
pub struct LastHead {
    bytes: Vec<u8>,
    /// Made when the bytes have come a second time.
    head: Option<FinalHead>,
    /// It was that of an answer without a body, because of what was asked.
    bodiless: bool,
}

impl LastHead {
    /// The head, if it comes again.
    fn again(&self, input: &mut BytesMut, bodiless: bool) -> Option<FinalHead> {
        let head = self.head.as_ref()?;
        if bodiless != self.bodiless || !input.starts_with(&self.bytes) {
            return None;
        }
        input.advance(self.bytes.len());
        Some(head.clone())
    }

    /// Remembers a head that stood in these bytes.
    fn learn(&mut self, bytes: &[u8], head: &mut FinalHead, bodiless: bool) {
        if self.bytes == bytes {
            // Copies, for a part of the input would keep all of it.
            let ResponseHead { reason, fields, .. } = &mut head.answer;
            *reason = reason.take().map(|reason| Bytes::copy_from_slice(&reason));
            *fields = fields.to_shared();
            self.head = Some(head.clone());
            self.bodiless = bodiless;
            return;
        }
        self.head = None;
        self.bytes.clear();
        if bytes.len() <= MOST {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// Reads heads from the start of the input.
#[derive(Clone, Copy, Debug)]
pub struct HeadReader {
    /// The request was a HEAD: whatever the answer says, it has no body.
    pub bodiless: bool,
    /// The request asked for a change of protocol.
    pub upgrade: bool,
    /// Interim answers so far.
    pub interim: u32,
    /// Something has come in.
    pub heard: bool,
}

impl HeadReader {
    /// The next head, when all of it is there.
    pub fn next(
        &mut self,
        input: &mut BytesMut,
        last: &mut LastHead,
    ) -> Result<Option<ParsedHead>, Malformed> {
        self.heard |= !input.is_empty();
        if let Some(head) = last.again(input, self.bodiless) {
            return Ok(Some(ParsedHead::Final(head)));
        }
        let Some(raw) = parse(input)? else {
            return Ok(None);
        };
        match raw.status.as_u16() {
            101 if self.upgrade => raw.switched(input).map(ParsedHead::Final).map(Some),
            101 => Err(Malformed("it switches protocols unasked")),
            100..=199 => {
                self.interim += 1;
                if self.interim > MAX_INTERIM {
                    return Err(Malformed("too many interim answers"));
                }
                let (mut head, _) = raw.head(input, true)?;
                head.answer.fields.remove("content-length");
                hop::strip_connection_fields(&mut head.answer.fields);
                Ok(Some(ParsedHead::Interim(head.answer)))
            }
            _ => {
                let (mut head, bytes) = raw.head(input, self.bodiless)?;
                hop::strip_connection_fields(&mut head.answer.fields);
                last.learn(&bytes, &mut head, self.bodiless);
                Ok(Some(ParsedHead::Final(head)))
            }
        }
    }
}

/// A head that was read.
#[derive(Debug)]
pub enum ParsedHead {
    /// The head of an interim response.
    Interim(ResponseHead),
    /// The final one.
    Final(FinalHead),
}

struct RawHead {
    end: usize,
    version: Version,
    status: StatusCode,
    reason: Range<usize>,
    fields: Fields,
    said: FramingFields,
}

fn parse(input: &BytesMut) -> Result<Option<RawHead>, Malformed> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut parsed = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let end = match config.parse_response_with_uninit_headers(&mut head, input, &mut parsed) {
        Ok(httparse::Status::Complete(end)) if end <= MAX_HEAD => end,
        Ok(httparse::Status::Partial) if input.len() <= MAX_HEAD => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed("it has too many fields")),
        Err(_) => return Err(Malformed("its head cannot be read")),
        Ok(_) => return Err(Malformed("its head is too long")),
    };
    let reason = head.reason.unwrap_or_default().as_bytes();
    let start = fields::offset_in(input, reason);
    let (fields, said) = fields::read_fields(input, head.headers)?;
    let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
    Ok(Some(RawHead {
        end,
        version: version_of(head.version),
        status: status.ok_or(Malformed("its status is not one"))?,
        reason: start..start + reason.len(),
        fields,
        said,
    }))
}

impl RawHead {
    /// What follows is another protocol.
    fn switched(mut self, input: &mut BytesMut) -> Result<FinalHead, Malformed> {
        // It has no body: RFC 9110 section 8.6.
        (self.said.length, self.said.chunked) = (None, false);
        let (mut head, _) = self.head(input, false)?;
        head.answer.fields.remove("content-length");
        head.answer.fields.remove("transfer-encoding");
        (head.framing, head.keep) = (Framing::Close, false);
        Ok(head)
    }

    /// The head, and what it stood in.
    fn head(
        mut self,
        input: &mut BytesMut,
        bodiless: bool,
    ) -> Result<(FinalHead, Bytes), Malformed> {
        let bytes = input.split_to(self.end).freeze();
        let usual = self.status.canonical_reason().unwrap_or_default();
        let reason = Some(bytes.slice(self.reason)).filter(|reason| reason != usual.as_bytes());
        self.fields.attach_text(bytes.clone());
        let mut keep = self.said.is_persistent(self.version);
        if self.status == StatusCode::NO_CONTENT {
            // It may not say so: RFC 9110 section 8.6. What follows may be a body or an answer.
            self.fields.remove("content-length");
            keep &= !self.said.chunked && self.said.length.is_none_or(|length| length == 0);
        }
        let bodiless = bodiless || matches!(self.status.as_u16(), 204 | 304);
        let framing = if bodiless {
            Framing::Length(0)
        } else {
            self.said.body_framing(self.version, Framing::Close)?
        };
        let head = FinalHead {
            answer: ResponseHead {
                status: self.status,
                reason,
                fields: self.fields,
            },
            framing,
            keep: keep && framing != Framing::Close,
        };
        Ok((head, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::http1::chunked::Chunked;

    fn read(text: &[u8], bodiless: bool, cut: usize) -> Result<Option<FinalHead>, Malformed> {
        let mut reader = HeadReader {
            bodiless,
            upgrade: false,
            interim: 0,
            heard: false,
        };
        let (mut input, mut last) = (BytesMut::new(), LastHead::default());
        for piece in text.chunks(cut) {
            input.extend_from_slice(piece);
            while let Some(read) = reader.next(&mut input, &mut last)? {
                if let ParsedHead::Final(head) = read {
                    return Ok(Some(head));
                }
            }
        }
        Ok(None)
    }

    #[test]
    fn heads() {
        use Framing::{Close, Length};
        let chunked = Framing::Chunked(Chunked::default());
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
        let reason = head.unwrap().unwrap().answer.reason;
        assert_eq!(reason.as_deref(), Some(&b"Fine"[..]));
    }

    /// Whatever a connection has said before, a head is read as on a new one.
    #[test]
    fn heads_that_come_again() {
        let heads = [
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
            "HTTP/1.1 200 Fine\r\nContent-Length:5\r\nConnection: x-a, keep-alive\r\nX-A: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-a: 1\r\n\r\n",
            "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.1 103 Hints\r\nlink: a\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\n",
        ];
        let read = |text: &str, bodiless: bool, cut: usize, last: &mut LastHead| {
            let mut reader = HeadReader {
                bodiless,
                upgrade: false,
                interim: 0,
                heard: false,
            };
            let mut input = BytesMut::new();
            for piece in [text, "and more"].concat().into_bytes().chunks(cut) {
                input.extend_from_slice(piece);
                let read = reader.next(&mut input, last).map(|read| {
                    let (head, rest) = match read? {
                        ParsedHead::Interim(answer) => (answer, None),
                        ParsedHead::Final(head) => (head.answer, Some((head.framing, head.keep))),
                    };
                    let mut lines = Vec::new();
                    head.fields.write_lines(&mut lines);
                    Some((head.status, head.reason, lines, rest))
                });
                if !matches!(read, Ok(None)) {
                    return read.map(|read| (read, reader.heard, input.len()));
                }
            }
            Ok((None, false, 0))
        };
        let mut last = LastHead::default();
        let mut chosen = 1_u64;
        let mut next = |many: usize| {
            chosen = chosen
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (chosen >> 33) as usize % many
        };
        let mut head = heads[0];
        for _ in 0..2000 {
            // The same one most of the time.
            if next(4) == 0 {
                head = heads[next(heads.len())];
            }
            let (bodiless, cut) = (next(8) == 0, [1, 7, 200][next(3)]);
            let busy = read(head, bodiless, cut, &mut last);
            let new = read(head, bodiless, cut, &mut LastHead::default());
            assert_eq!(format!("{busy:?}"), format!("{new:?}"), "{head:?}");
        }
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
