//! Reads the heads of a response over HTTP/1.1, strictly: bytes that two readers could understand differently are an
//! error. Lines that end in LF alone are accepted: some old servers send them, and no client can make a server do so.
//! `http1_exchange` reads the body by the framing that the head states.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, StatusCode, Version};

use crate::http::head::{Fields, Head, ResponseHead, hop_by_hop};
use crate::http::http1::{
    Framing, FramingFields, MAX_FIELDS, MAX_HEAD_BYTES, Malformed, fields, version_from_minor,
};

/// Maximum number of interim responses before the final one, so that a server cannot send them without end.
const MAX_INTERIM_RESPONSES: u32 = 16;

/// Maximum bytes of a head that is kept for reuse. Each connection keeps one, also while it is idle, and beside it the
/// parsed head with a copy of the texts.
const MAX_KEPT_HEAD_BYTES: usize = 4 * 1024;

/// The head of a final response.
#[derive(Clone, Debug)]
pub struct FinalHead {
    /// The status and the fields. Hop-by-hop fields are removed, unless the server switches to another protocol.
    pub response: ResponseHead,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the connection may carry another request.
    pub keeps_alive: bool,
}

/// The last final head of a connection, except one that switches protocols. Servers often send the same bytes again; then
/// the parsed head is reused.
#[derive(Debug, Default)]
pub struct LastHead {
    /// The bytes of the head; empty before the first head, and after one that was too large.
    bytes: Vec<u8>,
    /// The parsed head; `None` until the bytes come a second time.
    head: Option<FinalHead>,
    /// Whether the head was parsed as one to HEAD, without a body.
    has_no_body: bool,
}

impl LastHead {
    /// Takes the head off the input if the input begins with the same bytes again. `None` if not, or if only one of the
    /// two responses is to HEAD.
    fn take_if_repeated(&self, input: &mut BytesMut, has_no_body: bool) -> Option<FinalHead> {
        let head = self.head.as_ref()?;
        if has_no_body != self.has_no_body || !input.starts_with(&self.bytes) {
            return None;
        }
        input.advance(self.bytes.len());
        Some(head.clone())
    }

    /// Keeps the bytes of a head. If the same bytes came last time, keeps the head itself, with copies of its texts.
    fn remember_head(&mut self, bytes: &[u8], head: &mut FinalHead, has_no_body: bool) {
        if self.bytes == bytes {
            // Copied, because a slice of the input would keep the whole input in memory.
            let ResponseHead { reason, fields, .. } = &mut head.response;
            *reason = reason.take().map(|reason| Bytes::copy_from_slice(&reason));
            *fields = fields.to_shared();
            self.head = Some(head.clone());
            self.has_no_body = has_no_body;
            return;
        }
        self.head = None;
        self.bytes.clear();
        if bytes.len() <= MAX_KEPT_HEAD_BYTES {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// Reads the heads of one response: interim ones, then the final one. By default the response is that to a plain GET.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadReader {
    /// Whether the request was a HEAD, whose response has no body whatever its fields say.
    pub has_no_body: bool,
    /// Whether the request asked for a switch to another protocol.
    pub may_switch_protocols: bool,
    /// The number of interim responses so far.
    pub interim_count: u32,
    /// Whether some of the response has come.
    pub has_received: bool,
}

impl HeadReader {
    /// The reader of the response to this request.
    pub fn for_request(head: &Head) -> HeadReader {
        HeadReader {
            has_no_body: head.method == Method::HEAD,
            may_switch_protocols: head.upgrade.is_some(),
            ..HeadReader::default()
        }
    }

    /// Takes the next head off the front of `input`; `None` if the head is incomplete.
    ///
    /// # Errors
    ///
    /// The head is malformed, is too large, has too many fields, or switches protocols although the request did not ask
    /// for it. Or there are more than [`MAX_INTERIM_RESPONSES`] interim ones.
    pub fn next_head(
        &mut self,
        input: &mut BytesMut,
        last_head: &mut LastHead,
    ) -> Result<Option<ParsedHead>, Malformed> {
        self.has_received |= !input.is_empty();
        if let Some(head) = last_head.take_if_repeated(input, self.has_no_body) {
            return Ok(Some(ParsedHead::Final(head)));
        }
        let Some(raw_head) = parse_head(input)? else {
            return Ok(None);
        };
        match raw_head.status.as_u16() {
            101 if self.may_switch_protocols => raw_head
                .take_switch_head(input)
                .map(ParsedHead::Final)
                .map(Some),
            101 => Err(Malformed("it switches protocols unasked")),
            100..=199 => {
                self.interim_count += 1;
                if self.interim_count > MAX_INTERIM_RESPONSES {
                    return Err(Malformed("too many interim responses"));
                }
                let (mut head, _) = raw_head.take_head(input, true)?;
                head.response.fields.remove("content-length");
                hop_by_hop::strip_connection_fields(&mut head.response.fields);
                Ok(Some(ParsedHead::Interim(head.response)))
            }
            _ => {
                let (mut head, bytes) = raw_head.take_head(input, self.has_no_body)?;
                hop_by_hop::strip_connection_fields(&mut head.response.fields);
                last_head.remember_head(&bytes, &mut head, self.has_no_body);
                Ok(Some(ParsedHead::Final(head)))
            }
        }
    }
}

/// A head that was read from a connection.
#[derive(Debug)]
pub enum ParsedHead {
    /// The head of an interim response; another head follows.
    Interim(ResponseHead),
    /// The head of the final response.
    Final(FinalHead),
}

/// A parsed head whose bytes are still in the input.
struct RawHead {
    /// The length of the head in bytes.
    length: usize,
    version: Version,
    status: StatusCode,
    /// The range of the reason phrase in the input; empty if there is none.
    reason: Range<usize>,
    fields: Fields,
    framing_fields: FramingFields,
}

/// Parses the head at the front of `input`, which stays there; `None` if the head is incomplete.
fn parse_head(input: &BytesMut) -> Result<Option<RawHead>, Malformed> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut field_slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsing = config.parse_response_with_uninit_headers(&mut parsed, input, &mut field_slots);
    let length = match parsing {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD_BYTES => length,
        Ok(httparse::Status::Partial) if input.len() <= MAX_HEAD_BYTES => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Malformed("it has too many fields")),
        Err(_) => return Err(Malformed("its head cannot be read")),
        Ok(_) => return Err(Malformed("its head is too long")),
    };
    let reason = parsed.reason.unwrap_or_default().as_bytes();
    let reason_start = fields::offset_in(input, reason);
    let (fields, framing_fields) = fields::read_fields(input, parsed.headers)?;
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    Ok(Some(RawHead {
        length,
        version: version_from_minor(parsed.version),
        status: status.ok_or(Malformed("its status is not one"))?,
        reason: reason_start..reason_start + reason.len(),
        fields,
        framing_fields,
    }))
}

impl RawHead {
    /// Takes off the input the head of a response that switches to another protocol.
    fn take_switch_head(mut self, input: &mut BytesMut) -> Result<FinalHead, Malformed> {
        // Such a response has no body, so its framing fields mean nothing: RFC 9110 section 8.6.
        self.framing_fields.content_length = None;
        self.framing_fields.is_chunked = false;
        let (mut head, _) = self.take_head(input, false)?;
        head.response.fields.remove("content-length");
        head.response.fields.remove("transfer-encoding");
        head.framing = Framing::Close;
        head.keeps_alive = false;
        Ok(head)
    }

    /// Takes the head off the input, and returns both the head and its bytes. Fails if the framing of a body is ambiguous.
    fn take_head(
        mut self,
        input: &mut BytesMut,
        has_no_body: bool,
    ) -> Result<(FinalHead, Bytes), Malformed> {
        let bytes = input.split_to(self.length).freeze();
        // The usual reason phrase is not kept, because it follows from the status.
        let default_reason = self.status.canonical_reason().unwrap_or_default();
        let reason =
            Some(bytes.slice(self.reason)).filter(|reason| reason != default_reason.as_bytes());
        self.fields.attach_text(bytes.clone());
        let framing_fields = &self.framing_fields;
        let mut keeps_alive = framing_fields.is_persistent(self.version);
        if self.status == StatusCode::NO_CONTENT {
            // A 204 must not give a length (RFC 9110 section 8.6). If it does, the bytes that follow may be a body or
            // the next response, so the connection is not used again.
            self.fields.remove("content-length");
            let is_empty = framing_fields
                .content_length
                .is_none_or(|length| length == 0);
            keeps_alive &= !framing_fields.is_chunked && is_empty;
        }
        let has_no_body = has_no_body || matches!(self.status.as_u16(), 204 | 304);
        let framing = if has_no_body {
            Framing::Length(0)
        } else {
            framing_fields.body_framing(self.version, Framing::Close)?
        };
        let head = FinalHead {
            response: ResponseHead {
                status: self.status,
                reason,
                fields: self.fields,
            },
            framing,
            keeps_alive: keeps_alive && framing != Framing::Close,
        };
        Ok((head, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::http1::chunked::ChunkedDecoder;

    /// Reads the final head of a response that comes in pieces of `piece_bytes`.
    fn read_final_head(
        text: &[u8],
        has_no_body: bool,
        piece_bytes: usize,
    ) -> Result<Option<FinalHead>, Malformed> {
        let mut reader = HeadReader {
            has_no_body,
            ..HeadReader::default()
        };
        let mut input = BytesMut::new();
        let mut last_head = LastHead::default();
        for piece in text.chunks(piece_bytes) {
            input.extend_from_slice(piece);
            while let Some(head) = reader.next_head(&mut input, &mut last_head)? {
                if let ParsedHead::Final(head) = head {
                    return Ok(Some(head));
                }
            }
        }
        Ok(None)
    }

    #[test]
    fn heads() {
        use Framing::{Close, Length};
        let chunked = Framing::Chunked(ChunkedDecoder::default());
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
        for (text, has_no_body, framing, keeps_alive) in cases {
            for piece_bytes in [1, 7, text.len()] {
                let head = read_final_head(text.as_bytes(), has_no_body, piece_bytes);
                let head = head.unwrap().unwrap();
                let read = (head.framing, head.keeps_alive);
                assert_eq!(read, (framing, keeps_alive), "{text}");
            }
        }
        let head = read_final_head(b"HTTP/1.1 200 Fine\r\ncontent-length: 0\r\n\r\n", false, 9);
        let reason = head.unwrap().unwrap().response.reason;
        assert_eq!(reason.as_deref(), Some(&b"Fine"[..]));
    }

    /// Whatever a server has sent before over a connection, a head is read as on a new connection.
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
        let read = |text: &str, has_no_body: bool, piece_bytes: usize, last_head: &mut LastHead| {
            let mut reader = HeadReader {
                has_no_body,
                ..HeadReader::default()
            };
            let mut input = BytesMut::new();
            for piece in [text, "and more"].concat().into_bytes().chunks(piece_bytes) {
                input.extend_from_slice(piece);
                let result = reader.next_head(&mut input, last_head).map(|head| {
                    let (head, connection_use) = match head? {
                        ParsedHead::Interim(response) => (response, None),
                        ParsedHead::Final(head) => {
                            (head.response, Some((head.framing, head.keeps_alive)))
                        }
                    };
                    let mut lines = Vec::new();
                    head.fields.write_lines(&mut lines);
                    Some((head.status, head.reason, lines, connection_use))
                });
                if !matches!(result, Ok(None)) {
                    return result.map(|head| (head, reader.has_received, input.len()));
                }
            }
            Ok((None, false, 0))
        };
        let mut last_head = LastHead::default();
        // A linear congruential generator, so that each run draws the same numbers.
        let mut generator_state = 1_u64;
        let mut draw_below = |end: usize| {
            generator_state = generator_state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (generator_state >> 33) as usize % end
        };
        let mut head = heads[0];
        for _ in 0..2000 {
            // Mostly the same head comes again.
            if draw_below(4) == 0 {
                head = heads[draw_below(heads.len())];
            }
            let has_no_body = draw_below(8) == 0;
            let piece_bytes = [1, 7, 200][draw_below(3)];
            let on_used = read(head, has_no_body, piece_bytes, &mut last_head);
            let on_new = read(head, has_no_body, piece_bytes, &mut LastHead::default());
            assert_eq!(format!("{on_used:?}"), format!("{on_new:?}"), "{head:?}");
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
            let result = read_final_head(text.as_bytes(), false, 5);
            assert!(result.is_err(), "{text:?} {result:?}");
        }
        let interim = "HTTP/1.1 103 X\r\n\r\n".repeat(17);
        assert!(read_final_head(interim.as_bytes(), false, 100).is_err());
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(MAX_HEAD_BYTES));
        assert!(read_final_head(long.as_bytes(), false, 4096).is_err());
    }
}
