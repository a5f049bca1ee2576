//! Builds the head of a request from its HTTP/2 fields: RFC 9113 sections 8.1 to 8.3. The rules of HTTP/3
//! are the same: RFC 9114 sections 4.2 and 4.3.
//!
//! A head that RFC 9113 calls malformed resets its stream. A head that only the gateway refuses gets a response. The
//! fields of a head are written as lines of HTTP/1.1, because most servers are reached by HTTP/1.1.

use std::cell::Cell;
use std::ops::Range;

use bytes::Bytes;
use http::{Method, Uri, Version};

use super::head_memory::{HeadCharge, HeadMemory};
use crate::http::head::{Fields, Head};
use crate::http::http1::{MAX_FIELDS, MAX_HEAD_BYTES, MAX_TARGET_BYTES, without_leading_zeros};
use crate::http::http2::hpack::{DecodedField, FieldKind};
use crate::route::canonical_host;
use crate::serve::http1::request::is_upgrade_allowed;
use crate::serve::stack::refusal::RefusalCause;
use crate::serve::stack::unreadable_request::{FirstLine, UnreadableRequest};

/// Initial capacity for the text of a head, in bytes. Most heads fit.
const INITIAL_TEXT_CAPACITY: usize = 512;

/// Initial capacity for the fields of a head. Most heads have fewer.
const INITIAL_FIELD_CAPACITY: usize = 16;

/// Bytes that each field counts beyond its name and value: RFC 9113 section 6.5.2.
const FIELD_OVERHEAD_BYTES: usize = 32;

thread_local! {
    /// The buffer that heads are written to, one after the other. A buffer for each large head would fragment memory,
    /// because it is freed if the head turns out to share its bytes. Bound: twice [`MAX_HEAD_BYTES`] for each thread.
    static SCRATCH_TEXT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The size of a head or of trailers, as RFC 9113 section 6.5.2 counts it.
#[derive(Debug, Default)]
pub struct HeadSize {
    /// The number of fields, without pseudo-header fields.
    pub field_count: usize,
    /// Bytes of all fields, with those that each counts beyond its text.
    pub bytes: usize,
}

impl HeadSize {
    /// Counts a field; only its bytes if it continues an earlier field. False if the head exceeds [`MAX_HEAD_BYTES`] now.
    pub fn add(&mut self, field: &DecodedField<'_>, is_continuation: bool) -> bool {
        self.field_count += usize::from(!is_continuation && !field.name.starts_with(b":"));
        self.bytes += field.name.len() + field.value.len() + FIELD_OVERHEAD_BYTES;
        self.bytes <= MAX_HEAD_BYTES
    }
}

/// The head of a request whose fields are added one after the other.
#[derive(Debug, Default)]
pub struct HeadDraft {
    version: Version,
    size: HeadSize,
    /// The path, and the fields as lines of HTTP/1.1.
    text: Vec<u8>,
    /// The positions of the fields in `text`.
    fields: Fields,
    method: Option<Method>,
    scheme: Option<Scheme>,
    /// Where the path stands in `text`.
    path_range: Option<Range<usize>>,
    /// The value of `:protocol`: RFC 8441 section 4.
    protocol: Option<Bytes>,
    authority: Option<Bytes>,
    /// The values of all `cookie` fields, joined.
    cookie: Option<Vec<u8>>,
    content_length: Option<u64>,
    /// Whether a field that is no pseudo-header field has come, so that no pseudo-header field may follow.
    has_regular_fields: bool,
    /// Why the head cannot be served; `None` as long as it can. Fields after the first fault are ignored.
    fault: Option<HeadFault>,
}

/// The value of `:scheme`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    Other,
}

/// Why a head cannot be served.
#[derive(Debug)]
enum HeadFault {
    /// The head has too many fields or bytes.
    TooLarge,
    /// The target has more than [`MAX_TARGET_BYTES`] bytes.
    LongTarget,
    /// The gateway does not serve such a request.
    Bad(&'static str),
    /// The request is malformed by RFC 9113 section 8.1.1.
    Malformed(&'static str),
}

impl From<HeadFault> for RefusalCause {
    fn from(fault: HeadFault) -> RefusalCause {
        match fault {
            HeadFault::TooLarge => RefusalCause::TooLarge,
            HeadFault::LongTarget => RefusalCause::LongTarget,
            HeadFault::Bad(detail) | HeadFault::Malformed(detail) => RefusalCause::Bad(detail),
        }
    }
}

impl HeadDraft {
    /// A head without fields of this version of HTTP. It has the thread's scratch buffer until it is finished, so its caller
    /// must not wait until then.
    pub fn new(version: Version) -> HeadDraft {
        HeadDraft {
            version,
            text: SCRATCH_TEXT.take(),
            ..HeadDraft::default()
        }
    }

    /// Adds a field, unless an earlier field was at fault.
    pub fn add(&mut self, field: DecodedField<'_>) {
        if self.fault.is_some() {
            return;
        }
        // All cookie fields count as one: RFC 9113 section 8.2.3.
        let is_continuation = field.kind == FieldKind::Cookie && self.cookie.is_some();
        if !self.size.add(&field, is_continuation) {
            self.fault = Some(HeadFault::TooLarge);
            return;
        }
        let result = match field.kind {
            FieldKind::Method
            | FieldKind::Scheme
            | FieldKind::Authority
            | FieldKind::Path
            | FieldKind::Protocol => self.add_pseudo_field(field),
            _ => {
                self.has_regular_fields = true;
                self.add_regular_field(field)
            }
        };
        if let Err(fault) = result {
            self.fault = Some(fault);
        }
    }

    fn add_pseudo_field(&mut self, field: DecodedField<'_>) -> Result<(), HeadFault> {
        let DecodedField { kind, value, .. } = field;
        if self.has_regular_fields {
            return Err(HeadFault::Malformed(
                "a pseudo-header field comes after other fields",
            ));
        }
        if value.is_empty() {
            return Err(HeadFault::Malformed("a pseudo-header field is empty"));
        }
        match kind {
            FieldKind::Method => {
                check_absent(&self.method)?;
                let method = Method::from_bytes(value);
                self.method =
                    Some(method.map_err(|_| HeadFault::Malformed("its method is malformed"))?);
            }
            FieldKind::Scheme => {
                check_absent(&self.scheme)?;
                self.scheme = Some(match value {
                    b"http" => Scheme::Http,
                    b"https" => Scheme::Https,
                    _ if is_scheme(value) => Scheme::Other,
                    _ => return Err(HeadFault::Malformed("its scheme is not one")),
                });
            }
            FieldKind::Path => {
                check_absent(&self.path_range)?;
                self.reserve_text();
                // The beginning of a path that is too long is kept for the record.
                let kept_path = &value[..value.len().min(MAX_TARGET_BYTES)];
                let path_start = self.text.len();
                self.path_range = Some(path_start..path_start + kept_path.len());
                self.text.extend_from_slice(kept_path);
                if kept_path.len() < value.len() {
                    return Err(HeadFault::LongTarget);
                }
            }
            FieldKind::Authority => {
                check_absent(&self.authority)?;
                self.authority = Some(Bytes::copy_from_slice(value));
                self.write_line(b"host", value);
            }
            _ => {
                check_absent(&self.protocol)?;
                self.protocol = Some(Bytes::copy_from_slice(value));
            }
        }
        Ok(())
    }

    fn add_regular_field(&mut self, field: DecodedField<'_>) -> Result<(), HeadFault> {
        let DecodedField { kind, name, value } = field;
        match kind {
            FieldKind::Host => match &self.authority {
                // The authority is written as `Host` already.
                Some(authority) if is_same_host(authority, value, self.scheme) => {}
                Some(_) => {
                    return Err(HeadFault::Malformed(
                        "its authority and its Host field differ",
                    ));
                }
                // Routing refuses a second `Host`, for both versions of HTTP.
                None => self.write_line(name, value),
            },
            FieldKind::Cookie => match &mut self.cookie {
                // The values are joined, because HTTP/1.1 allows only one such field: RFC 9113 section 8.2.3.
                Some(cookie) => {
                    cookie.extend_from_slice(b"; ");
                    cookie.extend_from_slice(value);
                }
                None => self.cookie = Some(value.to_vec()),
            },
            FieldKind::Length => {
                check_absent(&self.content_length)?;
                let length = parse_length(value)
                    .ok_or(HeadFault::Malformed("its length is not a number"))?;
                self.content_length = Some(length);
                self.write_line(name, without_leading_zeros(value));
            }
            FieldKind::Te if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(HeadFault::Malformed(
                    "it asks for a coding that this version of HTTP does not have",
                ));
            }
            FieldKind::Te | FieldKind::Regular => self.write_line(name, value),
            FieldKind::Connection => {
                return Err(HeadFault::Malformed(
                    "it has a field of HTTP/1.1 connections",
                ));
            }
            // The other kinds are `:status`, which no request has, and malformed fields.
            _ => {
                return Err(HeadFault::Malformed(
                    "it has a field that this version of HTTP does not have",
                ));
            }
        }
        Ok(())
    }

    /// Marks the head as malformed for a reason outside of its fields, which replaces a fault of its fields.
    #[cold]
    pub fn mark_malformed(&mut self, detail: &'static str) {
        self.fault = Some(HeadFault::Malformed(detail));
    }

    /// Marks a head as too large whose fields were not read.
    #[cold]
    pub fn mark_too_large(&mut self) {
        self.fault = Some(HeadFault::TooLarge);
    }

    /// Reserves space for the text and the fields of an ordinary head when the first text is written.
    fn reserve_text(&mut self) {
        if self.text.is_empty() {
            self.text.reserve(INITIAL_TEXT_CAPACITY);
            self.fields = Fields::with_capacity(INITIAL_FIELD_CAPACITY);
        }
    }

    /// Writes a field as a line of HTTP/1.1.
    fn write_line(&mut self, name: &[u8], value: &[u8]) {
        self.reserve_text();
        let line_start = self.text.len();
        for piece in [name, b": ", value, b"\r\n"] {
            self.text.extend_from_slice(piece);
        }
        let value_start = line_start + name.len() + b": ".len();
        self.fields
            .add_span(name, line_start, value_start, value.len());
    }

    /// The head, with its authority as `Host`, and a charge for its memory; `None` if its memory exceeds the budget.
    /// `is_bodiless` says that the request ends with the head.
    ///
    /// # Errors
    ///
    /// Why the head cannot be served, with the readable parts of its first line.
    pub fn finish(
        mut self,
        is_bodiless: bool,
        memory: &mut HeadMemory,
    ) -> Result<Option<(Head, HeadCharge)>, UnreadableRequest> {
        self.build_head(is_bodiless, memory).map_err(|fault| {
            let method = self.method.as_ref().map_or("", Method::as_str);
            let path_range = self.path_range.clone();
            let path = path_range.map(|range| &self.text[range]);
            UnreadableRequest {
                first_line: FirstLine::new(method.as_bytes(), path.unwrap_or_default()),
                gets_no_response: matches!(fault, HeadFault::Malformed(_)),
                cause: fault.into(),
            }
        })
    }

    /// Does the work of [`HeadDraft::finish`], and leaves method and path in place if it fails.
    fn build_head(
        &mut self,
        is_bodiless: bool,
        memory: &mut HeadMemory,
    ) -> Result<Option<(Head, HeadCharge)>, HeadFault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if self.size.field_count > MAX_FIELDS {
            return Err(HeadFault::TooLarge);
        }
        let Some(mut method) = self.method.clone() else {
            return Err(HeadFault::Malformed("it has no method"));
        };
        if let Some(cookie) = self.cookie.take() {
            self.write_line(b"cookie", &cookie);
        }
        if is_bodiless && self.content_length.is_some_and(|length| length > 0) {
            return Err(HeadFault::Malformed("its body is not as long as it says"));
        }
        let is_content_expected = matches!(method, Method::POST | Method::PUT | Method::PATCH);
        if is_content_expected && is_bodiless && self.content_length.is_none() {
            // Servers of HTTP/1.1 expect a length: RFC 9110 section 8.6.
            self.write_line(b"content-length", b"0");
        }
        let upgrade = self.protocol.take();
        if let Some(protocol) = &upgrade {
            self.check_upgrade(&method, protocol)?;
            // In HTTP/1.1 a client asks for another protocol with GET: RFC 8441 section 5.
            method = Method::GET;
        }
        let Some((path, charge)) = self.store_text(memory) else {
            return Ok(None);
        };
        match self.parse_target(&method, &path) {
            Ok(uri) => {
                let head = Head {
                    method,
                    uri,
                    version: self.version,
                    upgrade,
                    fields: std::mem::take(&mut self.fields),
                };
                Ok(Some((head, charge)))
            }
            Err(fault) => {
                // The path is kept for the record.
                self.text = path.into();
                Err(fault)
            }
        }
    }

    /// Checks a request that names a protocol. Only an extended CONNECT may do so: RFC 8441 section 4.
    fn check_upgrade(&self, method: &Method, protocol: &[u8]) -> Result<(), HeadFault> {
        if method != Method::CONNECT {
            return Err(HeadFault::Malformed(
                "it names a protocol and does not connect",
            ));
        }
        if self.version == Version::HTTP_3 {
            return Err(HeadFault::Bad(
                "it asks for another protocol, which is not served over HTTP/3",
            ));
        }
        if !is_upgrade_allowed(protocol) {
            return Err(HeadFault::Bad(
                "it asks for a protocol that is not passed on",
            ));
        }
        // The data that follows belongs to that protocol and is no body of a request.
        if self.content_length.is_some() {
            return Err(HeadFault::Bad(
                "it asks for another protocol and has a length",
            ));
        }
        Ok(())
    }

    /// Moves the head out of the scratch buffer. Returns its path and the charge; `None` if the budget is exceeded.
    fn store_text(&mut self, memory: &mut HeadMemory) -> Option<(Bytes, HeadCharge)> {
        let mut text = std::mem::take(&mut self.text);
        let path_range = self.path_range.take();
        // From now on the path is a text of its own.
        self.path_range = path_range.clone().map(|range| 0..range.len());
        let path_and_charge =
            memory.store_head(&mut self.fields, &text, path_range.unwrap_or_default());
        text.clear();
        SCRATCH_TEXT.set(text);
        path_and_charge
    }

    /// The target of the request, from its method, scheme, authority and path: RFC 9113 section 8.3.1.
    fn parse_target(&mut self, method: &Method, path: &Bytes) -> Result<Uri, HeadFault> {
        const MALFORMED: HeadFault = HeadFault::Malformed("its target is malformed");
        let target = match (method, self.scheme, &self.path_range) {
            // A plain CONNECT has no path. Routing refuses it.
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
        let is_path = target.starts_with(b"/") || (method == Method::OPTIONS && target == "*");
        // Servers cut a fragment off, and disagree on what is left: CVE-2023-45539.
        if (method != Method::CONNECT && !is_path) || target.contains(&b'#') {
            return Err(MALFORMED);
        }
        Uri::from_maybe_shared(target).map_err(|_| MALFORMED)
    }
}

/// Fails if a field that may come only once has come already.
fn check_absent<T>(field: &Option<T>) -> Result<(), HeadFault> {
    match field {
        Some(_) => Err(HeadFault::Malformed(
            "a field of which there is one comes twice",
        )),
        None => Ok(()),
    }
}

/// Whether two authorities name the same host and port under this scheme.
fn is_same_host(authority: &[u8], host: &[u8], scheme: Option<Scheme>) -> bool {
    authority == host
        || canonical_host(authority, scheme)
            .is_some_and(|canonical| canonical_host(host, scheme) == Some(canonical))
}

/// A host in its canonical form, without the default port of its scheme (RFC 9110 section 4.2); `None` if it is malformed.
fn canonical_host(host: &[u8], scheme: Option<Scheme>) -> Option<String> {
    let host = std::str::from_utf8(host).ok()?;
    let mut canonical = canonical_host::canonical_host(host)?.into_owned();
    let default_port = match scheme {
        Some(Scheme::Http) => ":80",
        Some(Scheme::Https) => ":443",
        Some(Scheme::Other) | None => "",
    };
    let length_without_port = canonical.strip_suffix(default_port).map(str::len);
    canonical.truncate(length_without_port.unwrap_or(canonical.len()));
    Some(canonical)
}

/// Whether the value has the syntax of a scheme: RFC 3986 section 3.1.
fn is_scheme(value: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    value.first().is_some_and(u8::is_ascii_alphabetic) && value.iter().all(is_valid)
}

/// Parses a length: RFC 9110 section 8.6. `None` if it is empty, has anything but digits, or exceeds 64 bits.
fn parse_length(value: &[u8]) -> Option<u64> {
    let has_only_digits = value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value)
        .ok()
        .filter(|_| has_only_digits)?;
    text.parse().ok()
}
