//! The heads of requests and responses, for all versions of HTTP. `http1` and `http2` parse them from bytes.
//!
//! Fields stay in the bytes that were received. A filter shows most absent names at once, and other lookups search all
//! fields. A request has about a dozen, so a hash map would cost more to build than its lookups save.

pub mod hop_by_hop;
mod layout;
mod own_fields;
mod share;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Uri, Version};
use layout::{FieldSpan, NameTag, Text};
use own_fields::OwnFields;

/// A request without its body.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The method of the request line, or of `:method`.
    pub method: Method,
    /// The request target of the request line, or of the pseudo-header fields.
    pub uri: Uri,
    /// The version of HTTP in which the request was received.
    pub version: Version,
    /// The protocol to which the client wants to change the connection or stream; `None` for most requests.
    pub upgrade: Option<Bytes>,
    /// The header fields, in order.
    pub fields: Fields,
}

impl Head {
    /// A copy of all parts but the fields.
    pub fn without_fields(&self) -> Head {
        Head {
            method: self.method.clone(),
            uri: self.uri.clone(),
            version: self.version,
            upgrade: self.upgrade.clone(),
            fields: Fields::default(),
        }
    }
}

impl From<&Parts> for Head {
    fn from(parts: &Parts) -> Head {
        Head {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            version: parts.version,
            upgrade: None,
            fields: Fields::from(&parts.headers),
        }
    }
}

/// The status and the fields of a response.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// The status, without its reason phrase.
    pub status: StatusCode,
    /// The reason phrase of HTTP/1.1; `None` if it is the default one of the status, and over HTTP/2.
    pub reason: Option<Bytes>,
    /// The header fields, in order.
    pub fields: Fields,
}

/// A response like [`http::Response`], with [`Fields`] in place of a map.
#[derive(Clone, Debug)]
pub struct Response<B> {
    /// The response without its body.
    pub head: ResponseHead,
    /// The body, of any type.
    pub body: B,
}

impl<B> Response<B> {
    /// Converts the body with `convert`.
    pub fn map<C>(self, convert: impl FnOnce(B) -> C) -> Response<C> {
        Response {
            head: self.head,
            body: convert(self.body),
        }
    }
}

impl<B> From<Response<B>> for http::Response<B> {
    fn from(response: Response<B>) -> http::Response<B> {
        let Response { head, body } = response;
        let mut converted = http::Response::new(body);
        *converted.status_mut() = head.status;
        *converted.headers_mut() = HeaderMap::from(head.fields);
        converted
    }
}

/// Fields that can be looked up: [`Fields`], or the [`HeaderMap`] of a service that uses this crate as a library.
pub trait Lookup {
    /// The value of the first field of this name; `None` if there is none.
    fn lookup(&self, name: &str) -> Option<&[u8]>;

    /// Calls `visitor` with the value of each field of this name.
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&[u8]));
}

impl Lookup for Fields {
    fn lookup(&self, name: &str) -> Option<&[u8]> {
        self.first(name)
    }

    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&[u8])) {
        self.all(name).for_each(visitor);
    }
}

impl Lookup for HeaderMap {
    fn lookup(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(HeaderValue::as_bytes)
    }

    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&[u8])) {
        self.get_all(name)
            .iter()
            .for_each(|value| visitor(value.as_bytes()));
    }
}

/// Header fields in their order. Names are compared without regard to case.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// Fields that other heads share; they come first. If there are some, `own` has only added fields.
    shared: Option<Arc<SharedFields>>,
    /// Fields of this head alone. They are boxed, because heads are moved often.
    own: Option<Box<OwnFields>>,
}

impl Drop for Fields {
    #[inline]
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            own.recycle();
        }
    }
}

/// Fields that several heads share, as lines of HTTP/1.1.
#[derive(Debug)]
struct SharedFields {
    /// The lines of all fields, each with its CRLF.
    lines: Bytes,
    /// The positions of the fields in `lines`.
    spans: Box<[FieldSpan]>,
    present: PresentFields,
    /// The filter bits of all names: see [`NameTag::filter_bit`].
    filter: u64,
}

/// Which fields a head has of those that its sender may have to add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresentFields {
    /// Whether it has `Content-Length`.
    pub has_length: bool,
    /// Whether it has `Connection`.
    pub has_connection: bool,
    /// Whether it has `Date`.
    pub has_date: bool,
}

impl Fields {
    /// Creates an empty list, with capacity for `field_count` fields.
    pub fn with_capacity(field_count: usize) -> Fields {
        let mut own = OwnFields::recycled_or_new();
        own.spans.reserve(field_count);
        Fields {
            shared: None,
            own: Some(own),
        }
    }

    /// The fields of this head alone. Creates the box if there is none.
    #[inline]
    fn own_mut(&mut self) -> &mut OwnFields {
        self.own.get_or_insert_with(OwnFields::recycled_or_new)
    }

    /// Adds a field by the offsets of its name and value in the bytes that [`Fields::attach_text`] gets later.
    pub fn add_span(
        &mut self,
        name: &[u8],
        name_start: usize,
        value_start: usize,
        value_length: usize,
    ) {
        self.own_mut()
            .add_span(name, name_start, value_start, value_length);
    }

    /// Sets the bytes of all fields that [`Fields::add_span`] added. Must precede [`Fields::add`] and every lookup.
    pub fn attach_text(&mut self, received: Bytes) {
        self.own_mut().received = received;
    }

    /// Adds a field after the others.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        self.add_with(name, |text| text.extend_from_slice(value));
    }

    /// Adds a field whose value is what `write` appends.
    #[inline]
    pub fn add_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let own = self.own_mut();
        own.reserve_added_bytes();
        let name_start = own.received.len() + own.added.len();
        // In the form of HTTP/1.1, so that `write_lines` can copy it.
        own.added.extend_from_slice(name.as_bytes());
        own.added.extend_from_slice(b": ");
        let length_before_value = own.added.len();
        write(&mut own.added);
        let value_length = own.added.len() - length_before_value;
        own.added.extend_from_slice(b"\r\n");
        let value_start = name_start + name.len() + b": ".len();
        own.add_span(name.as_bytes(), name_start, value_start, value_length);
    }

    /// Adds a field called `name` with the value of the first field called `source`, if there is one.
    pub fn add_copy(&mut self, name: &str, source: &str) {
        if let Some(value) = self.first(source).map(<[u8]>::to_vec) {
            self.add(name, &value);
        }
    }

    /// Replaces all fields of this name by one.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.set_with(name, |text| text.extend_from_slice(value));
    }

    /// Replaces all fields of this name by one whose value is what `write` appends.
    #[inline]
    pub fn set_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.remove(name);
        self.add_with(name, write);
    }

    /// A copy of all fields whose clones share one buffer.
    pub fn to_shared(&self) -> Fields {
        let mut lines = Vec::new();
        self.write_lines(&mut lines);
        let shared = SharedFields {
            lines: lines.into(),
            spans: self.spans_in_lines().collect(),
            present: self.present_fields(),
            filter: self
                .spans()
                .fold(0, |filter, (span, _)| filter | span.tag.filter_bit()),
        };
        Fields {
            shared: Some(Arc::new(shared)),
            own: None,
        }
    }

    /// Turns shared fields into own ones, so that they can be removed.
    fn convert_to_own(&mut self) -> &mut OwnFields {
        let shared = self.shared.take();
        let own = self.own_mut();
        if let Some(shared) = shared {
            own.received = shared.lines.clone();
            own.filter |= shared.filter;
            let shift = own.received.len() as u32;
            let added = own.spans.iter().map(|span| FieldSpan {
                name_start: span.name_start + shift,
                value_start: span.value_start + shift,
                ..*span
            });
            own.spans = shared.spans.iter().copied().chain(added).collect();
        }
        own
    }

    /// The positions of all fields in what [`Fields::write_lines`] writes.
    fn spans_in_lines(&self) -> impl Iterator<Item = FieldSpan> {
        let mut line_start = 0;
        self.spans().map(move |(span, _)| {
            let name_start = line_start;
            // Two bytes for `: `, and two for CRLF.
            let value_start = name_start + span.tag.name_length() + 2;
            line_start = value_start + span.value_length + 2;
            FieldSpan {
                name_start,
                value_start,
                ..*span
            }
        })
    }

    /// Removes every field of this name.
    #[inline]
    pub fn remove(&mut self, name: &str) {
        if self.contains(name) {
            self.retain(|field| !field.eq_ignore_ascii_case(name.as_bytes()));
        }
    }

    /// Removes each field for whose name `is_kept` is false.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&[u8]) -> bool) {
        let own = self.convert_to_own();
        let mut spans = std::mem::take(&mut own.spans);
        let text = own.text();
        spans.retain(|span| is_kept(text.name(span)));
        own.spans = spans;
        own.has_removals = true;
    }

    /// The values of all fields of this name, in order.
    #[inline]
    pub fn all<'f, 'n>(
        &'f self,
        name: &'n str,
    ) -> impl DoubleEndedIterator<Item = &'f [u8]> + Clone + use<'f, 'n> {
        let tag = NameTag::of(name.as_bytes());
        self.spans()
            .filter(move |(span, text)| {
                span.tag == tag && text.name(span).eq_ignore_ascii_case(name.as_bytes())
            })
            .map(|(span, text)| text.value(span))
    }

    /// The position of each field, in order, with the text that it refers to.
    #[inline]
    fn spans(&self) -> impl DoubleEndedIterator<Item = (&FieldSpan, Text<'_>)> + Clone {
        let (lines, spans) = match &self.shared {
            Some(shared) => (&shared.lines[..], &shared.spans[..]),
            None => (&[][..], &[][..]),
        };
        let text = Text::received(lines);
        let shared = spans.iter().map(move |span| (span, text));
        let own = self.own.iter();
        shared.chain(own.flat_map(|own| own.spans.iter().map(|span| (span, own.text()))))
    }

    /// The value of the first field of this name; `None` if there is none.
    #[inline(always)]
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        let (shared, own) = (self.shared.as_ref(), self.own.as_ref());
        let filter = shared.map_or(0, |shared| shared.filter) | own.map_or(0, |own| own.filter);
        // For constant names the compiler computes the bit. Most lookups end here.
        let bit = NameTag::of(name.as_bytes()).filter_bit();
        if filter & bit == 0 {
            return None;
        }
        self.search_spans(name)
    }

    /// Does the search of [`Fields::first`] after the filter. It is not inlined, so that `first` stays small.
    #[inline(never)]
    fn search_spans(&self, name: &str) -> Option<&[u8]> {
        let shared = self.shared.as_ref();
        let value = shared
            .and_then(|shared| Text::received(&shared.lines).first_value(&shared.spans, name));
        value.or_else(|| {
            let own = self.own.as_ref()?;
            own.text().first_value(&own.spans, name)
        })
    }

    /// The value of the first field of this name; `None` if there is none or it is not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.first(name)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Whether there is a field of this name.
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// Which of the fields in [`PresentFields`] there are.
    #[inline]
    pub fn present_fields(&self) -> PresentFields {
        let shared = self.shared.as_ref();
        let mut present = shared.map_or_else(PresentFields::default, |shared| shared.present);
        let Some(own) = &self.own else { return present };
        let has_own = |name: &str| {
            let bit = NameTag::of(name.as_bytes()).filter_bit();
            own.filter & bit != 0 && own.text().first_value(&own.spans, name).is_some()
        };
        present.has_length |= has_own("content-length");
        present.has_connection |= has_own("connection");
        present.has_date |= has_own("date");
        present
    }

    /// The name and value of each field, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let spans = self.spans();
        spans.map(|(span, text)| (text.name(span), text.value(span)))
    }

    /// The name of each field, in order and as it is spelled.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.spans().map(|(span, text)| text.name(span))
    }

    /// Appends all fields as lines of HTTP/1.1. Consecutive lines that have that form already are copied in one piece.
    pub fn write_lines(&self, out: &mut Vec<u8>) {
        if let Some(shared) = &self.shared {
            out.extend_from_slice(&shared.lines);
        }
        let Some(own) = &self.own else {
            return;
        };
        if own.received.is_empty() && !own.has_removals {
            out.extend_from_slice(&own.added);
            return;
        }
        let text = own.text();
        // The range of consecutive lines that are not copied yet. It must not reach from received into added bytes.
        let mut uncopied_range = 0..0;
        for span in &own.spans {
            let Some(end) = text.line_end(span) else {
                out.extend_from_slice(text.bytes(&uncopied_range));
                uncopied_range = 0..0;
                for part in [text.name(span), b": ", text.value(span), b"\r\n"] {
                    out.extend_from_slice(part);
                }
                continue;
            };
            let start = span.name_start as usize;
            if start == uncopied_range.end && start != own.received.len() {
                uncopied_range.end = end;
            } else {
                out.extend_from_slice(text.bytes(&uncopied_range));
                uncopied_range = start..end;
            }
        }
        out.extend_from_slice(text.bytes(&uncopied_range));
    }
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Fields {
        let mut fields = Fields::with_capacity(map.len());
        for (name, value) in map {
            fields.add(name.as_str(), value.as_bytes());
        }
        fields
    }
}

/// Leaves out fields whose name or value the `http` crate considers invalid.
impl From<Fields> for HeaderMap {
    fn from(mut fields: Fields) -> HeaderMap {
        let OwnFields {
            received,
            added,
            spans,
            ..
        } = std::mem::take(fields.convert_to_own());
        let added = Bytes::from(added);
        // Two more, because senders often add fields.
        let mut map = HeaderMap::with_capacity(spans.len() + 2);
        for span in spans {
            let part_with_range = |start: u32, length: u32| {
                let (start, length) = (start as usize, length as usize);
                match start.checked_sub(received.len()) {
                    None => (&received, start..start + length),
                    Some(start) => (&added, start..start + length),
                }
            };
            let (bytes, range) = part_with_range(span.name_start, span.tag.name_length());
            let name = to_header_name(&bytes[range]);
            let (bytes, range) = part_with_range(span.value_start, span.value_length);
            let value = HeaderValue::from_maybe_shared(bytes.slice(range));
            if let (Some(name), Ok(value)) = (name, value) {
                map.append(name, value);
            }
        }
        map
    }
}

/// The name as a [`HeaderName`]; `None` if it is invalid. Names of fields that many responses get are constants, which
/// need no allocation.
fn to_header_name(bytes: &[u8]) -> Option<HeaderName> {
    const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
    const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
    match bytes {
        b"ratelimit" => Some(RATELIMIT),
        b"ratelimit-policy" => Some(RATELIMIT_POLICY),
        name => HeaderName::from_bytes(name).ok(),
    }
}

#[cfg(test)]
mod tests;
