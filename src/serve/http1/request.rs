//! The head of a request: RFC 9112 section 3, read strictly.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use http::{Method, Uri, Version};

use super::repeat::{MOST, RepeatCache, RepeatedFields, RequestedFeatures};
use crate::http::head::{Fields, Head, hop};
use crate::http::http1::{
    Framing, FramingFields, MAX_FIELDS, MAX_HEAD, MAX_TARGET, Malformed, ends_in_crlf, fields,
    version_of,
};
use crate::http::http2::reader::PREFACE;
use crate::serve::stack::refusal::RefusalCause;
use crate::throttle::reject::is_grpc;

/// A request that begins.
pub struct Request {
    /// Method, target and fields.
    pub head: Rc<Head>,
    /// How far the body reaches.
    pub framing: Framing,
    /// What the client expects of the response.
    pub expectations: ClientExpectations,
    /// The client waits for `100 Continue` before it sends the body.
    pub waits: bool,
    /// What the connection remembers of earlier requests with the same header fields.
    pub repeated: Option<Rc<RepeatedFields>>,
}

/// What the client expects of the response.
#[derive(Clone, Copy, Debug)]
pub struct ClientExpectations {
    /// The request is a HEAD, so the response has no body.
    pub head_only: bool,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// The connection stays open.
    pub keep: bool,
    /// The client accepts trailers.
    pub trailers: bool,
}

/// Why a head cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// It breaks a rule of RFC 9112.
    Malformed(&'static str),
    /// It has too many fields or bytes.
    TooLarge,
    /// Its target has too many bytes.
    LongTarget,
    /// It is of another version of HTTP.
    Version,
    /// It is the preface of HTTP/2.
    Http2,
    /// It is neither HTTP/1 nor the preface of HTTP/2.
    Preface,
}

impl From<Malformed> for HeadError {
    fn from(malformed: Malformed) -> HeadError {
        HeadError::Malformed(malformed.0)
    }
}

impl From<HeadError> for RefusalCause {
    fn from(bad: HeadError) -> RefusalCause {
        match bad {
            HeadError::Malformed(why) => RefusalCause::Bad(why),
            HeadError::Preface => {
                RefusalCause::Bad("it is neither HTTP/1 nor the preface of HTTP/2")
            }
            HeadError::TooLarge => RefusalCause::TooLarge,
            HeadError::LongTarget => RefusalCause::LongTarget,
            HeadError::Version | HeadError::Http2 => RefusalCause::Version,
        }
    }
}

/// Takes a head off the front of `input` once all of it is there. A head that cannot be read stays. `cache` remembers the
/// request before.
// In one piece with what every request takes; the other caller is rare.
#[inline(always)]
pub fn next(input: &mut BytesMut, cache: &mut RepeatCache) -> Result<Option<Request>, HeadError> {
    if input.starts_with(&PREFACE[..3]) {
        let known = input.len().min(PREFACE.len());
        match input[..known] == PREFACE[..known] {
            true if known < PREFACE.len() => return Ok(None),
            true => return Err(HeadError::Http2),
            false if input.starts_with(&PREFACE[..BEGINNING]) => return Err(HeadError::Preface),
            false => {}
        }
    }
    if let Some(request) = next_repeated(input, cache)? {
        return Ok(Some(request));
    }
    let mut parsed = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut []);
    let end = match head.parse_with_uninit_headers(input, &mut parsed) {
        Ok(httparse::Status::Complete(end)) if end <= MAX_HEAD => end,
        Ok(httparse::Status::Partial) if input.len() <= MAX_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(httparse::Error::Version) => return Err(other_version(input)),
        Err(_) => return Err(HeadError::Malformed("its head is malformed")),
    };
    if !ends_in_crlf(&input[..end]) {
        return Err(HeadError::Malformed(
            "a line of its head does not end in CRLF",
        ));
    }
    let line = RequestLine::of(input, &head)?;
    let first = head.headers.first();
    let lines = first.map_or(end - 2, |field| {
        fields::offset(input, field.name.as_bytes())
    });
    let (mut fields, said) = fields::read(input, head.headers)?;
    let is_repeated = cache.remember_lines(&input[lines..end]);
    let bytes = input.split_to(end).freeze();
    fields.settle(bytes.clone());
    let features = RequestedFeatures::of(&fields, said);
    if is_repeated {
        cache.remember_fields(&fields, said, &features, line.version);
    }
    match line.head(&bytes, fields, said, &features) {
        Ok((head, framing)) => Ok(Some(Request::new(head, framing, said, &features, None))),
        Err(bad) => {
            // For the record.
            let rest = std::mem::take(input);
            input.extend_from_slice(&bytes);
            input.extend_from_slice(&rest);
            Err(bad)
        }
    }
}

/// The same for a request that differs from the last one at most in its first line.
#[inline(always)]
fn next_repeated(input: &mut BytesMut, cache: &RepeatCache) -> Result<Option<Request>, HeadError> {
    let Some((start, repeated)) = cache.find(input) else {
        return Ok(None);
    };
    let (head, framing) = match repeated.head(&input[..start]) {
        Some(head) => {
            let framing = repeated
                .said
                .framing(repeated.version, Framing::Length(0))?;
            (head, framing)
        }
        None => {
            let mut head = httparse::Request::new(&mut []);
            let line = match head.parse(input) {
                // There is no room for the fields, which are known.
                Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
                    RequestLine::of(input, &head)?
                }
                _ => return Ok(None),
            };
            // Empty lines may have come before the first one.
            let first = line.target.end < start;
            if !first || line.version != repeated.version || start + cache.len() > MAX_HEAD {
                return Ok(None);
            }
            // A copy, for a part of the input would keep all of it.
            let bytes = Bytes::copy_from_slice(&input[..start]);
            let (head, framing) = line.head(
                &bytes,
                repeated.fields.clone(),
                repeated.said,
                &repeated.features,
            )?;
            if start <= MOST {
                repeated.remember_head(bytes, head.clone());
            }
            (head, framing)
        }
    };
    input.advance(start + cache.len());
    let fields = Some(repeated.clone());
    let request = Request::new(head, framing, repeated.said, &repeated.features, fields);
    Ok(Some(request))
}

/// The first line of a request.
struct RequestLine {
    method: Method,
    target: Range<usize>,
    version: Version,
}

impl RequestLine {
    fn of(input: &BytesMut, head: &httparse::Request<'_, '_>) -> Result<RequestLine, HeadError> {
        let method = head.method.unwrap_or_default();
        let method = Method::from_bytes(method.as_bytes());
        let target = head.path.unwrap_or_default();
        if target.len() > MAX_TARGET {
            return Err(HeadError::LongTarget);
        }
        // It would be cut off, and no two servers agree on what is left: CVE-2023-45539.
        if target.contains('#') {
            return Err(HeadError::Malformed("its target has a fragment"));
        }
        let start = fields::offset(input, target.as_bytes());
        Ok(RequestLine {
            method: method.map_err(|_| HeadError::Malformed("its method is malformed"))?,
            target: start..start + target.len(),
            version: version_of(head.version),
        })
    }

    /// The head that begins with it, and how far the body reaches. `bytes` are those that it stands in.
    fn head(
        self,
        bytes: &Bytes,
        fields: Fields,
        said: FramingFields,
        features: &RequestedFeatures,
    ) -> Result<(Rc<Head>, Framing), HeadError> {
        let RequestLine {
            method, version, ..
        } = self;
        let uri = Uri::from_maybe_shared(bytes.slice(self.target));
        let framing = said.framing(version, Framing::Length(0))?;
        let upgrade = features.upgrade.as_ref();
        let head = Rc::new(Head {
            method,
            uri: uri.map_err(|_| HeadError::Malformed("its target is malformed"))?,
            version,
            upgrade: upgrade
                .filter(|_| version >= Version::HTTP_11 && framing.is_over())
                .cloned(),
            fields,
        });
        Ok((head, framing))
    }
}

impl Request {
    fn new(
        head: Rc<Head>,
        framing: Framing,
        said: FramingFields,
        features: &RequestedFeatures,
        repeated: Option<Rc<RepeatedFields>>,
    ) -> Request {
        let version = head.version;
        Request {
            framing,
            expectations: ClientExpectations {
                head_only: head.method == Method::HEAD,
                version,
                keep: said.keeps(version),
                trailers: features.trailers,
            },
            waits: features.expects_continue && version >= Version::HTTP_11 && !framing.is_over(),
            head,
            repeated,
        }
    }
}

impl RequestedFeatures {
    fn of(fields: &Fields, said: FramingFields) -> RequestedFeatures {
        let expects = fields.first("expect");
        RequestedFeatures {
            expects_continue: expects
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue")),
            trailers: fields.all("te").any(hop::accepts_trailers),
            upgrade: said.upgrade.then(|| upgrade(fields)).flatten(),
            grpc: is_grpc(fields),
        }
    }
}

/// The one protocol that a request names, if the gateway passes it on.
fn upgrade(fields: &Fields) -> Option<Bytes> {
    let mut all = fields.all("upgrade");
    let only = all.next().filter(|_| all.next().is_none())?;
    passes(only).then(|| Bytes::copy_from_slice(only))
}

/// Whether the gateway passes on a change to this protocol. A server that took up HTTP/2 or TLS would be spoken
/// to behind the gateway's back.
pub fn passes(protocol: &[u8]) -> bool {
    let name = protocol.split(|byte| *byte == b'/').next();
    let name = name.unwrap_or_default();
    let refused: [&[u8]; 4] = [b"h2", b"h2c", b"http", b"tls"];
    let is_token = !name.is_empty() && protocol.iter().all(|byte| is_token_or_slash(*byte));
    is_token && !refused.iter().any(|other| name.eq_ignore_ascii_case(other))
}

fn is_token_or_slash(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte)
}

/// Bytes of the preface that no request of HTTP/1 begins with.
const BEGINNING: usize = b"PRI * HTTP/2".len();

/// What a head is whose first line does not end in a version of HTTP/1.
#[cold]
fn other_version(input: &[u8]) -> HeadError {
    let lines = input.split(|byte| *byte == b'\n');
    let line = lines.map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
    let mut words = line.unwrap_or_default().split(|byte| *byte == b' ');
    let (_, target, version) = (words.next(), words.next(), words.next());
    let is_target = |word: &[u8]| word == b"*" || word.contains(&b'/');
    match (target, version, words.next()) {
        (_, Some(version), None) if version.starts_with(b"HTTP/") => HeadError::Version,
        (Some(target), Some(_), None) if !is_target(target) && input.contains(&b'\n') => {
            HeadError::Preface
        }
        _ => HeadError::Malformed("its head is malformed"),
    }
}
