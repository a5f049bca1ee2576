//! Parses the head of an HTTP/1.1 request strictly, by RFC 9112 section 3.
//!
//! A head that two readers could understand differently is an error. The body is not read here; only its framing is
//! decided.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, Uri, Version};

use super::repeat_cache::{MAX_CACHED_BYTES, RepeatCache, RepeatedFields, RequestedFeatures};
use crate::http::head::{Fields, Head, hop_by_hop};
use crate::http::http1::{
    Framing, FramingFields, MAX_FIELDS, MAX_HEAD_BYTES, MAX_TARGET_BYTES, Malformed, ends_in_crlf,
    fields, version_from_minor,
};
use crate::http::http2::frame_reader::PREFACE;
use crate::serve::stack::refusal::RefusalCause;
use crate::throttle::reject::is_grpc;

/// Bytes of the method in HTTP/2's preface. No request of HTTP/1 has this method.
const PREFACE_METHOD_LEN: usize = b"PRI".len();

/// Bytes of the part of HTTP/2's preface with which no request of HTTP/1 begins.
const PREFACE_PREFIX_LEN: usize = b"PRI * HTTP/2".len();

/// A request whose head has been parsed and whose body has not been read.
pub struct ParsedRequest {
    /// Method, target and fields.
    pub head: Rc<Head>,
    /// Where the body ends.
    pub framing: Framing,
    /// What the client expects of the response.
    pub expectations: ClientExpectations,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub awaits_continue: bool,
    /// What the connection remembers of earlier requests with the same header fields; `None` if there are none.
    pub repeated_fields: Option<Rc<RepeatedFields>>,
}

/// What the client expects of the response.
#[derive(Clone, Copy, Debug)]
pub struct ClientExpectations {
    /// Whether the request is a HEAD, so that the response has no body.
    pub is_head_request: bool,
    /// The version of the request: HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// Whether the client may send another request on the connection.
    pub is_persistent: bool,
    /// Whether the client accepts trailers.
    pub accepts_trailers: bool,
}

/// Why the head of a request cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// The head breaks a rule of RFC 9112, which the text names.
    Malformed(&'static str),
    /// The head has more than [`MAX_FIELDS`] fields or [`MAX_HEAD_BYTES`] bytes.
    TooLarge,
    /// The target has more than [`MAX_TARGET_BYTES`] bytes.
    LongTarget,
    /// The version of HTTP is neither 1.0 nor 1.1.
    Version,
    /// The bytes are the preface of HTTP/2.
    Http2,
    /// The bytes are neither a request of HTTP/1 nor the preface of HTTP/2.
    Preface,
}

impl From<Malformed> for HeadError {
    fn from(malformed: Malformed) -> HeadError {
        HeadError::Malformed(malformed.0)
    }
}

impl From<HeadError> for RefusalCause {
    fn from(error: HeadError) -> RefusalCause {
        match error {
            HeadError::Malformed(detail) => RefusalCause::Bad(detail),
            HeadError::Preface => {
                RefusalCause::Bad("it is neither HTTP/1 nor the preface of HTTP/2")
            }
            HeadError::TooLarge => RefusalCause::TooLarge,
            HeadError::LongTarget => RefusalCause::LongTarget,
            HeadError::Version | HeadError::Http2 => RefusalCause::Version,
        }
    }
}

/// Parses a head and takes it off the front of `input`; `None` while it is incomplete. `cache` holds the last request
/// of the connection, and is updated.
///
/// # Errors
///
/// The head cannot be parsed. Its bytes stay in `input`, for the record.
// Inlined for the one caller that every request takes; the others are rare.
#[inline(always)]
pub fn parse_request(
    input: &mut BytesMut,
    cache: &mut RepeatCache,
) -> Result<Option<ParsedRequest>, HeadError> {
    if input.starts_with(&PREFACE[..PREFACE_METHOD_LEN]) {
        let compared_len = input.len().min(PREFACE.len());
        match input[..compared_len] == PREFACE[..compared_len] {
            true if compared_len < PREFACE.len() => return Ok(None),
            true => return Err(HeadError::Http2),
            false if input.starts_with(&PREFACE[..PREFACE_PREFIX_LEN]) => {
                return Err(HeadError::Preface);
            }
            false => {}
        }
    }
    if let Some(request) = parse_repeated(input, cache)? {
        return Ok(Some(request));
    }
    let mut field_slots = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let head_end = match parsed.parse_with_uninit_headers(input, &mut field_slots) {
        Ok(httparse::Status::Complete(head_end)) if head_end <= MAX_HEAD_BYTES => head_end,
        Ok(httparse::Status::Partial) if input.len() <= MAX_HEAD_BYTES => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(httparse::Error::Version) => return Err(classify_bad_version(input)),
        Err(_) => return Err(HeadError::Malformed("its head is malformed")),
    };
    if !ends_in_crlf(&input[..head_end]) {
        return Err(HeadError::Malformed(
            "a line of its head does not end in CRLF",
        ));
    }
    let request_line = RequestLine::from_parsed(input, &parsed)?;
    let first_field = parsed.headers.first();
    let fields_start = first_field.map_or(head_end - b"\r\n".len(), |field| {
        fields::offset_in(input, field.name.as_bytes())
    });
    let (mut fields, framing_fields) = fields::read_fields(input, parsed.headers)?;
    let is_repeated = cache.remember_lines(&input[fields_start..head_end]);
    let head_bytes = input.split_to(head_end).freeze();
    fields.attach_text(head_bytes.clone());
    let features = RequestedFeatures::from_fields(&fields, framing_fields);
    if is_repeated {
        cache.remember_fields(&fields, framing_fields, &features, request_line.version);
    }
    match request_line.into_head(&head_bytes, fields, framing_fields, &features) {
        Ok((head, framing)) => {
            let request = ParsedRequest::new(head, framing, framing_fields, &features, None);
            Ok(Some(request))
        }
        Err(error) => {
            // The bytes are put back, for the record.
            let bytes_after_head = std::mem::take(input);
            input.extend_from_slice(&head_bytes);
            input.extend_from_slice(&bytes_after_head);
            Err(error)
        }
    }
}

/// Parses a request that differs from the last one at most in its first line; `None` if the whole head must be parsed,
/// because it differs in more, is too large or may be malformed.
#[inline(always)]
fn parse_repeated(
    input: &mut BytesMut,
    cache: &RepeatCache,
) -> Result<Option<ParsedRequest>, HeadError> {
    let Some((fields_start, repeated_fields)) = cache.find_fields(input) else {
        return Ok(None);
    };
    let (head, framing) = match repeated_fields.head(&input[..fields_start]) {
        Some(head) => {
            let framing = repeated_fields
                .framing_fields
                .body_framing(repeated_fields.version, Framing::Length(0))?;
            (head, framing)
        }
        None => {
            let mut parsed = httparse::Request::new(&mut []);
            let request_line = match parsed.parse(input) {
                // The parser gets no space for fields, because they are remembered.
                Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
                    RequestLine::from_parsed(input, &parsed)?
                }
                _ => return Ok(None),
            };
            // After empty lines, which may precede a request, its first line is not the first line of the input.
            let is_first_line = request_line.target_range.end < fields_start;
            let is_too_large = fields_start + cache.field_lines_len() > MAX_HEAD_BYTES;
            if !is_first_line || request_line.version != repeated_fields.version || is_too_large {
                return Ok(None);
            }
            // Copied, because a slice would keep the whole input in memory.
            let first_line = Bytes::copy_from_slice(&input[..fields_start]);
            let (head, framing) = request_line.into_head(
                &first_line,
                repeated_fields.fields.clone(),
                repeated_fields.framing_fields,
                &repeated_fields.features,
            )?;
            if fields_start <= MAX_CACHED_BYTES {
                repeated_fields.remember_head(first_line, head.clone());
            }
            (head, framing)
        }
    };
    input.advance(fields_start + cache.field_lines_len());
    let request = ParsedRequest::new(
        head,
        framing,
        repeated_fields.framing_fields,
        &repeated_fields.features,
        Some(repeated_fields.clone()),
    );
    Ok(Some(request))
}

/// The first line of a request.
struct RequestLine {
    method: Method,
    /// The range of the target in the input, in bytes from its start.
    target_range: Range<usize>,
    version: Version,
}

impl RequestLine {
    /// Checks the first line of a head that was parsed from `input`.
    ///
    /// # Errors
    ///
    /// The method is malformed, or the target is too long or has a fragment.
    fn from_parsed(
        input: &BytesMut,
        parsed: &httparse::Request<'_, '_>,
    ) -> Result<RequestLine, HeadError> {
        let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
        let target = parsed.path.unwrap_or_default();
        if target.len() > MAX_TARGET_BYTES {
            return Err(HeadError::LongTarget);
        }
        // Servers cut a fragment off, and disagree on what is left: CVE-2023-45539.
        if target.contains('#') {
            return Err(HeadError::Malformed("its target has a fragment"));
        }
        let start = fields::offset_in(input, target.as_bytes());
        Ok(RequestLine {
            method: method.map_err(|_| HeadError::Malformed("its method is malformed"))?,
            target_range: start..start + target.len(),
            version: version_from_minor(parsed.version),
        })
    }

    /// The head that begins with this line, and where the body ends. `text` begins with the text that the line was parsed
    /// from, so that the range of the target holds for it.
    ///
    /// # Errors
    ///
    /// The target is malformed, or the fields do not say clearly where the body ends.
    fn into_head(
        self,
        text: &Bytes,
        fields: Fields,
        framing_fields: FramingFields,
        features: &RequestedFeatures,
    ) -> Result<(Rc<Head>, Framing), HeadError> {
        let RequestLine {
            method, version, ..
        } = self;
        let uri = Uri::from_maybe_shared(text.slice(self.target_range));
        let framing = framing_fields.body_framing(version, Framing::Length(0))?;
        let upgrade = features.upgrade.as_ref();
        let head = Rc::new(Head {
            method,
            uri: uri.map_err(|_| HeadError::Malformed("its target is malformed"))?,
            version,
            // A request with a body opens no tunnel.
            upgrade: upgrade
                .filter(|_| version >= Version::HTTP_11 && framing.is_over())
                .cloned(),
            fields,
        });
        Ok((head, framing))
    }
}

impl ParsedRequest {
    fn new(
        head: Rc<Head>,
        framing: Framing,
        framing_fields: FramingFields,
        features: &RequestedFeatures,
        repeated_fields: Option<Rc<RepeatedFields>>,
    ) -> ParsedRequest {
        let version = head.version;
        ParsedRequest {
            framing,
            expectations: ClientExpectations {
                is_head_request: head.method == Method::HEAD,
                version,
                is_persistent: framing_fields.is_persistent(version),
                accepts_trailers: features.accepts_trailers,
            },
            awaits_continue: features.expects_continue
                && version >= Version::HTTP_11
                && !framing.is_over(),
            head,
            repeated_fields,
        }
    }
}

impl RequestedFeatures {
    fn from_fields(fields: &Fields, framing_fields: FramingFields) -> RequestedFeatures {
        let expect = fields.first("expect");
        RequestedFeatures {
            expects_continue: expect
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue")),
            accepts_trailers: fields.all("te").any(hop_by_hop::accepts_trailers),
            upgrade: framing_fields
                .has_upgrade
                .then(|| requested_upgrade(fields))
                .flatten(),
            is_grpc: is_grpc(fields),
        }
    }
}

/// The protocol that a request asks to change to, if it names exactly one that the gateway passes on.
fn requested_upgrade(fields: &Fields) -> Option<Bytes> {
    let mut protocols = fields.all("upgrade");
    let protocol = protocols.next().filter(|_| protocols.next().is_none())?;
    is_upgrade_allowed(protocol).then(|| Bytes::copy_from_slice(protocol))
}

/// Whether the gateway passes on a change to this protocol. With HTTP/2 or TLS a client could send requests to the server
/// that the gateway does not see.
pub fn is_upgrade_allowed(protocol: &[u8]) -> bool {
    // A protocol may have a version behind a slash: RFC 9110 section 7.8.
    let name = protocol.split(|byte| *byte == b'/').next();
    let name = name.unwrap_or_default();
    let refused_names: [&[u8]; 4] = [b"h2", b"h2c", b"http", b"tls"];
    let is_refused = |refused: &&[u8]| name.eq_ignore_ascii_case(refused);
    let is_token = !name.is_empty() && protocol.iter().all(|byte| is_token_or_slash(*byte));
    is_token && !refused_names.iter().any(is_refused)
}

fn is_token_or_slash(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte)
}

/// The error for a head whose first line does not end in a version of HTTP/1.
#[cold]
fn classify_bad_version(input: &[u8]) -> HeadError {
    let lines = input.split(|byte| *byte == b'\n');
    let first_line = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    let mut words = first_line.unwrap_or_default().split(|byte| *byte == b' ');
    let (_method, target, version) = (words.next(), words.next(), words.next());
    let is_target = |word: &[u8]| word == b"*" || word.contains(&b'/');
    match (target, version, words.next()) {
        (_, Some(version), None) if version.starts_with(b"HTTP/") => HeadError::Version,
        (Some(target), Some(_), None) if !is_target(target) && input.contains(&b'\n') => {
            HeadError::Preface
        }
        _ => HeadError::Malformed("its head is malformed"),
    }
}
