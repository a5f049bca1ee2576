//! The head of a request, from its fields: RFC 9113 section 8.3. What RFC 9113 calls malformed ends its stream; what is
//! only refused here is answered.

use std::cell::Cell;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri, Version};

use super::heads::{HeadCharge, Heads};
use crate::http::head::hop::accepts_trailers;
use crate::http::head::{Fields, Head};
use crate::http::http1::{MAX_FIELDS, MAX_HEAD, MAX_TARGET, without_zeros};
use crate::http::http2::hpack::{DecodedField, FieldKind};
use crate::route::host;
use crate::serve::http1::request::passes;
use crate::serve::stack::refusal::RefusalCause;
use crate::serve::stack::unreadable::{FirstLine, Unreadable};

/// Bytes that are made room for at first.
const USUAL: usize = 512;

/// What a field counts beyond its bytes: RFC 9113 section 6.5.2.
const FIELD: usize = 32;

thread_local! {
    /// What heads are written to, one after the other: a large one that turns out to be shared would leave a hole in
    /// memory. Bound: twice [`MAX_HEAD`] for each thread.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What a trailer field takes in a map beyond what it counts.
const MAPPED: usize = 128;

/// Bytes of a head, as its receiver counts them.
#[derive(Debug, Default)]
struct Size {
    fields: usize,
    bytes: usize,
}

impl Size {
    /// Adds a field, `more` if it belongs to one that is there; says whether there is room for it.
    fn add(&mut self, field: &DecodedField<'_>, more: bool) -> bool {
        self.fields += usize::from(!more && !field.name.starts_with(b":"));
        self.bytes += field.name.len() + field.value.len() + FIELD;
        self.bytes <= MAX_HEAD
    }
}

/// A head of which more may come. Fields are written as lines of HTTP/1.1, which most servers are sent.
#[derive(Debug, Default)]
pub struct Draft {
    size: Size,
    text: Vec<u8>,
    fields: Fields,
    method: Option<Method>,
    scheme: Option<Scheme>,
    path: Option<(usize, usize)>,
    protocol: Option<Bytes>,
    authority: Option<Bytes>,
    cookie: Option<Vec<u8>>,
    length: Option<u64>,
    regular: bool,
    wrong: Option<HeadFault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    Other,
}

#[derive(Debug)]
enum HeadFault {
    TooLarge,
    LongTarget,
    /// The gateway does not serve it.
    Bad(&'static str),
    /// See RFC 9113 section 8.1.1.
    Malformed(&'static str),
}

impl From<HeadFault> for RefusalCause {
    fn from(wrong: HeadFault) -> RefusalCause {
        match wrong {
            HeadFault::TooLarge => RefusalCause::TooLarge,
            HeadFault::LongTarget => RefusalCause::LongTarget,
            HeadFault::Bad(why) | HeadFault::Malformed(why) => RefusalCause::Bad(why),
        }
    }
}

const TWICE: HeadFault = HeadFault::Malformed("a field of which there is one comes twice");

impl Draft {
    /// Nothing yet.
    pub fn new() -> Draft {
        Draft {
            text: SCRATCH.take(),
            ..Draft::default()
        }
    }

    /// Adds a field.
    pub fn add(&mut self, field: DecodedField<'_>) {
        if self.wrong.is_some() {
            return;
        }
        // Crumbs are one field: RFC 9113 section 8.2.3.
        let crumb = field.kind == FieldKind::Cookie && self.cookie.is_some();
        if !self.size.add(&field, crumb) {
            self.wrong = Some(HeadFault::TooLarge);
            return;
        }
        if let Err(wrong) = self.take(field) {
            self.wrong = Some(wrong);
        }
    }

    fn take(&mut self, field: DecodedField<'_>) -> Result<(), HeadFault> {
        let DecodedField { kind, name, value } = field;
        match kind {
            FieldKind::Method
            | FieldKind::Scheme
            | FieldKind::Authority
            | FieldKind::Path
            | FieldKind::Protocol => {
                if self.regular {
                    return Err(HeadFault::Malformed(
                        "a pseudo-header field comes after other fields",
                    ));
                }
                if value.is_empty() {
                    return Err(HeadFault::Malformed("a pseudo-header field is empty"));
                }
            }
            _ => self.regular = true,
        }
        let twice = |known: bool| if known { Err(TWICE) } else { Ok(()) };
        match kind {
            FieldKind::Method => {
                twice(self.method.is_some())?;
                let method = Method::from_bytes(value);
                self.method =
                    Some(method.map_err(|_| HeadFault::Malformed("its method is malformed"))?);
            }
            FieldKind::Scheme => {
                twice(self.scheme.is_some())?;
                self.scheme = Some(match value {
                    b"http" => Scheme::Http,
                    b"https" => Scheme::Https,
                    _ if is_scheme(value) => Scheme::Other,
                    _ => return Err(HeadFault::Malformed("its scheme is not one")),
                });
            }
            FieldKind::Path => {
                twice(self.path.is_some())?;
                self.make_room();
                // As much of it as can be recorded.
                let kept = &value[..value.len().min(MAX_TARGET)];
                self.path = Some((self.text.len(), kept.len()));
                self.text.extend_from_slice(kept);
                if kept.len() < value.len() {
                    return Err(HeadFault::LongTarget);
                }
            }
            FieldKind::Authority => {
                twice(self.authority.is_some())?;
                self.authority = Some(Bytes::copy_from_slice(value));
                self.line(b"host", value);
            }
            FieldKind::Protocol => {
                twice(self.protocol.is_some())?;
                self.protocol = Some(Bytes::copy_from_slice(value));
            }
            FieldKind::Host => match &self.authority {
                Some(authority) if is_same_host(authority, value, self.scheme) => {}
                Some(_) => {
                    return Err(HeadFault::Malformed(
                        "its authority and its Host field differ",
                    ));
                }
                // Whether there are two is looked at where those of HTTP/1.1 are.
                None => self.line(name, value),
            },
            FieldKind::Cookie => match &mut self.cookie {
                // One field, as HTTP/1.1 wants it: RFC 9113 section 8.2.3.
                Some(cookie) => {
                    cookie.extend_from_slice(b"; ");
                    cookie.extend_from_slice(value);
                }
                None => self.cookie = Some(value.to_vec()),
            },
            FieldKind::Length => {
                twice(self.length.is_some())?;
                let number =
                    number(value).ok_or(HeadFault::Malformed("its length is not a number"))?;
                self.length = Some(number);
                self.line(name, without_zeros(value));
            }
            FieldKind::Te if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(HeadFault::Malformed(
                    "it asks for a coding that HTTP/2 does not have",
                ));
            }
            FieldKind::Te | FieldKind::Regular => self.line(name, value),
            FieldKind::Connection => {
                return Err(HeadFault::Malformed(
                    "it has a field of HTTP/1.1 connections",
                ));
            }
            FieldKind::Status | FieldKind::Malformed => {
                return Err(HeadFault::Malformed(
                    "it has a field that HTTP/2 does not have",
                ));
            }
        }
        Ok(())
    }

    /// It is malformed, whatever its fields are.
    #[cold]
    pub fn refuse(&mut self, why: &'static str) {
        self.wrong = Some(HeadFault::Malformed(why));
    }

    fn make_room(&mut self) {
        if self.text.is_empty() {
            self.text.reserve(USUAL);
            self.fields = Fields::with_capacity(16);
        }
    }

    fn line(&mut self, name: &[u8], value: &[u8]) {
        self.make_room();
        let start = self.text.len();
        for part in [name, b": ", value, b"\r\n"] {
            self.text.extend_from_slice(part);
        }
        let value_at = start + name.len() + 2;
        self.fields.place(name, start, value_at, value.len());
    }

    /// The head, its authority as its `Host`, and the charge for what it holds alone; nothing when `heads` have no room
    /// for it. `bodiless` when nothing follows it.
    ///
    /// # Errors
    ///
    /// Why it cannot be read, and what is there of its first line.
    pub fn finish(
        mut self,
        bodiless: bool,
        heads: &mut Heads,
    ) -> Result<Option<(Head, HeadCharge)>, Unreadable> {
        self.head(bodiless, heads).map_err(|wrong| {
            let method = self.method.as_ref().map_or("", Method::as_str);
            let path = self
                .path
                .map(|(start, length)| &self.text[start..start + length]);
            Unreadable {
                line: FirstLine::new(method.as_bytes(), path.unwrap_or_default()),
                unanswered: matches!(wrong, HeadFault::Malformed(_)),
                why: wrong.into(),
            }
        })
    }

    fn head(
        &mut self,
        bodiless: bool,
        heads: &mut Heads,
    ) -> Result<Option<(Head, HeadCharge)>, HeadFault> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if self.size.fields > MAX_FIELDS {
            return Err(HeadFault::TooLarge);
        }
        let Some(mut method) = self.method.clone() else {
            return Err(HeadFault::Malformed("it has no method"));
        };
        if let Some(cookie) = self.cookie.take() {
            self.line(b"cookie", &cookie);
        }
        if bodiless && self.length.is_some_and(|length| length > 0) {
            return Err(HeadFault::Malformed("its body is not as long as it says"));
        }
        let has_content = matches!(method, Method::POST | Method::PUT | Method::PATCH);
        if has_content && bodiless && self.length.is_none() {
            // Servers of HTTP/1.1 expect a length: RFC 9110 section 8.6.
            self.line(b"content-length", b"0");
        }
        let upgrade = self.protocol.take();
        if let Some(protocol) = &upgrade {
            if method != Method::CONNECT {
                return Err(HeadFault::Malformed(
                    "it names a protocol and does not connect",
                ));
            }
            if !passes(protocol) {
                return Err(HeadFault::Bad(
                    "it asks for a protocol that is not passed on",
                ));
            }
            // What follows is that protocol, and belongs to no request of HTTP.
            if self.length.is_some() {
                return Err(HeadFault::Bad(
                    "it asks for another protocol and has a length",
                ));
            }
            // As HTTP/1.1 asks for it: RFC 8441 section 5.
            method = Method::GET;
        }
        let Some((path, charge)) = self.settle(heads) else {
            return Ok(None);
        };
        match self.target(&method, &path) {
            Ok(uri) => {
                let head = Head {
                    method,
                    uri,
                    version: Version::HTTP_2,
                    upgrade,
                    fields: std::mem::take(&mut self.fields),
                };
                Ok(Some((head, charge)))
            }
            Err(wrong) => {
                // For the record.
                self.text = path.into();
                Err(wrong)
            }
        }
    }

    /// Settles the fields in what was written; returns the path, which is all that is left of that.
    fn settle(&mut self, heads: &mut Heads) -> Option<(Bytes, HeadCharge)> {
        let mut written = std::mem::take(&mut self.text);
        let (start, length) = self.path.unwrap_or_default();
        let settled = heads.settle(&mut self.fields, &written, start..start + length);
        self.path = self.path.map(|_| (0, length));
        written.clear();
        SCRATCH.set(written);
        settled
    }

    fn target(&mut self, method: &Method, path: &Bytes) -> Result<Uri, HeadFault> {
        const NOT_ONE: HeadFault = HeadFault::Malformed("its target is malformed");
        let target = match (method, &self.scheme, self.path) {
            // It has no path, and is refused.
            (&Method::CONNECT, None, None) => self.authority.take().unwrap_or_default(),
            (&Method::CONNECT, ..) => {
                return Err(HeadFault::Malformed(
                    "it connects and has a scheme or a path",
                ));
            }
            (_, Some(Scheme::Http | Scheme::Https), Some(_)) => path.clone(),
            (_, Some(Scheme::Other), Some(_)) => {
                return Err(HeadFault::Bad("the target is not an HTTP URL"));
            }
            _ => return Err(HeadFault::Malformed("it has no scheme or no path")),
        };
        let of_path = target.starts_with(b"/") || (method == Method::OPTIONS && target == "*");
        // A fragment would be cut off, and no two servers agree on what is left: CVE-2023-45539.
        if (method != Method::CONNECT && !of_path) || target.contains(&b'#') {
            return Err(NOT_ONE);
        }
        Uri::from_maybe_shared(target).map_err(|_| NOT_ONE)
    }
}

/// Whether both name the same host and port under this scheme.
fn is_same_host(one: &[u8], other: &[u8], scheme: Option<Scheme>) -> bool {
    one == other || named(one, scheme).is_some_and(|name| named(other, scheme) == Some(name))
}

/// A host in its canonical form, without the port that its scheme has by default: RFC 9110 section 4.2.
fn named(host: &[u8], scheme: Option<Scheme>) -> Option<String> {
    let mut name = host::canonical(std::str::from_utf8(host).ok()?)?.into_owned();
    let default = match scheme {
        Some(Scheme::Http) => ":80",
        Some(Scheme::Https) => ":443",
        Some(Scheme::Other) | None => "",
    };
    let length = name.strip_suffix(default).map(str::len);
    name.truncate(length.unwrap_or(name.len()));
    Some(name)
}

/// RFC 3986 section 3.1.
fn is_scheme(value: &[u8]) -> bool {
    let sound = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    value.first().is_some_and(u8::is_ascii_alphabetic) && value.iter().all(sound)
}

/// Digits and nothing else: RFC 9110 section 8.6.
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits)?;
    text.parse().ok()
}

/// Fields after a body, of which more may come.
#[derive(Debug, Default)]
pub struct Trailers {
    size: Size,
    map: HeaderMap,
    wrong: bool,
}

impl Trailers {
    /// Adds a field.
    pub fn add(&mut self, field: DecodedField<'_>) {
        let DecodedField { kind, name, value } = field;
        let fits = self.size.add(&field, false) && self.size.fields <= MAX_FIELDS;
        // Those that are not to stand in trailers are left out where they are passed on.
        let sound = match kind {
            FieldKind::Host | FieldKind::Cookie | FieldKind::Length | FieldKind::Regular => true,
            FieldKind::Te => accepts_trailers(value),
            _ => false,
        };
        self.wrong |= !fits || !sound;
        if self.wrong {
            return;
        }
        match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            (Ok(name), Ok(value)) => {
                self.map.append(name, value);
            }
            _ => self.wrong = true,
        }
    }

    /// All of them and how many bytes they hold, unless they are malformed or too large.
    pub fn finish(self) -> Option<(HeaderMap, usize)> {
        let held = self.size.bytes + self.size.fields * MAPPED;
        (!self.wrong).then_some((self.map, held))
    }
}
