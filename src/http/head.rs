//! The heads of requests and responses, whatever version of HTTP they came in.
//!
//! Fields stay where they stand in the bytes they came in and are found by looking through them: a
//! request has a dozen, and a hash map of them costs more to build than all its lookups save.

pub mod hop;
mod layout;
mod own;
mod share;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Uri, Version};
use layout::{FieldSpan, Tag, Text};
use own::Own;

/// A request without its body.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The protocol that the client wants to change to.
    pub upgrade: Option<Bytes>,
    /// The fields.
    pub fields: Fields,
}

impl Head {
    /// The same without fields.
    pub fn line(&self) -> Head {
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
    /// The status.
    pub status: StatusCode,
    /// The reason phrase, if it is not the usual one.
    pub reason: Option<Bytes>,
    /// The fields.
    pub fields: Fields,
}

/// A response: what [`http::Response`] is, with [`Fields`] in place of a map.
#[derive(Clone, Debug)]
pub struct Response<B> {
    /// Status and fields.
    pub head: ResponseHead,
    /// The body.
    pub body: B,
}

impl<B> Response<B> {
    /// The same head with another body.
    pub fn map<C>(self, change: impl FnOnce(B) -> C) -> Response<C> {
        Response {
            head: self.head,
            body: change(self.body),
        }
    }
}

impl<B> From<Response<B>> for http::Response<B> {
    fn from(ours: Response<B>) -> http::Response<B> {
        let mut response = http::Response::new(ours.body);
        *response.status_mut() = ours.head.status;
        *response.headers_mut() = HeaderMap::from(ours.head.fields);
        response
    }
}

/// Fields that can be looked up, however they are kept.
pub trait Lookup {
    /// The value of the first field of this name.
    fn lookup(&self, name: &str) -> Option<&[u8]>;

    /// Shows the value of each field of this name.
    fn visit(&self, name: &str, see: &mut dyn FnMut(&[u8]));
}

impl Lookup for Fields {
    fn lookup(&self, name: &str) -> Option<&[u8]> {
        self.first(name)
    }

    fn visit(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.all(name).for_each(see);
    }
}

impl Lookup for HeaderMap {
    fn lookup(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(HeaderValue::as_bytes)
    }

    fn visit(&self, name: &str, see: &mut dyn FnMut(&[u8])) {
        self.get_all(name)
            .iter()
            .for_each(|value| see(value.as_bytes()));
    }
}

/// Header fields in the order they came. Names compare as HTTP's do: without regard to case.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The first of them, where they are shared. Then the others have no `head`.
    known: Option<Arc<Lines>>,
    /// Apart, for heads are handed about a lot.
    own: Option<Box<Own>>,
}

impl Drop for Fields {
    #[inline]
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            own.leave();
        }
    }
}

/// Fields as they are written, one after the other.
#[derive(Debug)]
struct Lines {
    bytes: Bytes,
    places: Box<[FieldSpan]>,
    present: Present,
    /// Of all names.
    marks: u64,
}

/// Which of the fields are there that whoever sends a head adds to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// `Content-Length`.
    pub length: bool,
    /// `Connection`.
    pub connection: bool,
    /// `Date`.
    pub date: bool,
}

impl Fields {
    /// None yet, with room for so many.
    pub fn with_capacity(fields: usize) -> Fields {
        let mut own = Own::spare();
        own.places.reserve(fields);
        Fields {
            known: None,
            own: Some(own),
        }
    }

    /// Those that are not shared, to add to them.
    #[inline]
    fn own(&mut self) -> &mut Own {
        self.own.get_or_insert_with(Own::spare)
    }

    /// Adds a field that stands at these offsets in the head that [`Fields::settle`] will be given.
    pub fn place(&mut self, name: &[u8], name_at: usize, value_at: usize, value_length: usize) {
        self.own().place(name, name_at, value_at, value_length);
    }

    /// The head that all places so far are in.
    pub fn settle(&mut self, head: Bytes) {
        self.own().head = head;
    }

    /// Adds a field after the others.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        self.compose(name, |text| text.extend_from_slice(value));
    }

    /// Adds a field whose value is what `write` appends.
    #[inline]
    pub fn compose(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let own = self.own();
        own.make_room();
        let start = own.head.len() + own.added.len();
        // As a line of HTTP/1.1, which `write_lines` can copy.
        own.added.extend_from_slice(name.as_bytes());
        own.added.extend_from_slice(b": ");
        let value = own.added.len();
        write(&mut own.added);
        let length = own.added.len() - value;
        own.added.extend_from_slice(b"\r\n");
        own.place(name.as_bytes(), start, start + name.len() + 2, length);
    }

    /// Adds a field that says the same as the first one called `other`, if there is one.
    pub fn repeat(&mut self, name: &str, other: &str) {
        if let Some(value) = self.first(other).map(<[u8]>::to_vec) {
            self.add(name, &value);
        }
    }

    /// The one field of this name, whatever there was.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.replace(name, |text| text.extend_from_slice(value));
    }

    /// The same, its value what `write` appends.
    #[inline]
    pub fn replace(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.remove(name);
        self.compose(name, write);
    }

    /// The same fields, to be shared.
    pub fn gathered(&self) -> Fields {
        let mut bytes = Vec::new();
        self.write_lines(&mut bytes);
        let lines = Lines {
            bytes: bytes.into(),
            places: self.as_lines().collect(),
            present: self.present(),
            marks: self
                .parts()
                .fold(0, |all, (place, _)| all | place.tag.mark()),
        };
        Fields {
            known: Some(Arc::new(lines)),
            own: None,
        }
    }

    /// Makes what is shared its own.
    fn owned(&mut self) -> &mut Own {
        let known = self.known.take();
        let own = self.own();
        if let Some(lines) = known {
            own.head = lines.bytes.clone();
            own.marks |= lines.marks;
            let shift = own.head.len() as u32;
            let added = own.places.iter().map(|place| FieldSpan {
                name: place.name + shift,
                value: place.value + shift,
                ..*place
            });
            own.places = lines.places.iter().copied().chain(added).collect();
        }
        own
    }

    /// The places of all fields where their lines are written one after the other.
    fn as_lines(&self) -> impl Iterator<Item = FieldSpan> {
        let mut line = 0;
        self.parts().map(move |(place, _)| {
            let name = line;
            let value = name + place.tag.length() + 2;
            line = value + place.value_length + 2;
            FieldSpan {
                name,
                value,
                ..*place
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

    /// Removes the fields whose names `keep` says no to.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        let own = self.owned();
        let mut places = std::mem::take(&mut own.places);
        let text = own.text();
        places.retain(|place| keep(text.name(place)));
        own.places = places;
        own.less = true;
    }

    /// The values of all fields of this name.
    #[inline]
    pub fn all<'f, 'n>(
        &'f self,
        name: &'n str,
    ) -> impl DoubleEndedIterator<Item = &'f [u8]> + Clone + use<'f, 'n> {
        let tag = Tag::of(name.as_bytes());
        self.parts()
            .filter(move |(place, bytes)| {
                place.tag == tag && bytes.name(place).eq_ignore_ascii_case(name.as_bytes())
            })
            .map(|(place, bytes)| bytes.value(place))
    }

    /// Where each field is, and in what.
    #[inline]
    fn parts(&self) -> impl DoubleEndedIterator<Item = (&FieldSpan, Text<'_>)> + Clone {
        let (lines, places) = match &self.known {
            Some(known) => (&known.bytes[..], &known.places[..]),
            None => (&[][..], &[][..]),
        };
        let known = Text(lines, &[]);
        let known = places.iter().map(move |place| (place, known));
        let own = self.own.iter();
        known.chain(own.flat_map(|own| own.places.iter().map(|place| (place, own.text()))))
    }

    /// The value of the first field of this name.
    #[inline(always)]
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        let (known, own) = (self.known.as_ref(), self.own.as_ref());
        let marks = known.map_or(0, |known| known.marks) | own.map_or(0, |own| own.marks);
        // A constant, mostly, and the end of most look-ups.
        let mark = Tag::of(name.as_bytes()).mark();
        if marks & mark == 0 {
            return None;
        }
        self.find(name)
    }

    #[inline(never)]
    fn find(&self, name: &str) -> Option<&[u8]> {
        let known = self.known.as_ref();
        let known = known.and_then(|known| Text(&known.bytes, &[]).first(&known.places, name));
        known.or_else(|| {
            let own = self.own.as_ref()?;
            own.text().first(&own.places, name)
        })
    }

    /// The same as text, where it is.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.first(name)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Whether there is a field of this name.
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// See [`Present`].
    #[inline]
    pub fn present(&self) -> Present {
        let known = self.known.as_ref();
        let mut found = known.map_or_else(Present::default, |known| known.present);
        let own = self.own.as_ref();
        let is = |name: &str| {
            let mark = Tag::of(name.as_bytes()).mark();
            let own = own.filter(|own| own.marks & mark != 0);
            own.is_some_and(|own| own.text().first(&own.places, name).is_some())
        };
        found.length |= is("content-length");
        found.connection |= is("connection");
        found.date |= is("date");
        found
    }

    /// Every field's name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let parts = self.parts();
        parts.map(|(place, text)| (text.name(place), text.value(place)))
    }

    /// Every field's name.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.parts().map(|(place, text)| text.name(place))
    }

    /// Appends all fields as lines of HTTP/1.1. Lines that stand as such one after the other are copied
    /// as one.
    pub fn write_lines(&self, out: &mut Vec<u8>) {
        if let Some(known) = &self.known {
            out.extend_from_slice(&known.bytes);
        }
        let Some(own) = &self.own else {
            return;
        };
        if own.head.is_empty() && !own.less {
            out.extend_from_slice(&own.added);
            return;
        }
        let text = own.text();
        let mut run = 0..0;
        for place in &own.places {
            let Some(end) = text.line_end(place) else {
                out.extend_from_slice(text.bytes(&run));
                run = 0..0;
                for part in [text.name(place), b": ", text.value(place), b"\r\n"] {
                    out.extend_from_slice(part);
                }
                continue;
            };
            let start = place.name as usize;
            if start == run.end && start != own.head.len() {
                run.end = end;
            } else {
                out.extend_from_slice(text.bytes(&run));
                run = start..end;
            }
        }
        out.extend_from_slice(text.bytes(&run));
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

/// Leaves out what `http` does not take for a field.
impl From<Fields> for HeaderMap {
    fn from(mut fields: Fields) -> HeaderMap {
        let Own {
            head,
            added,
            places,
            ..
        } = std::mem::take(fields.owned());
        let added = Bytes::from(added);
        let mut map = HeaderMap::with_capacity(places.len() + 2);
        for place in places {
            let part = |start: u32, length: u32| {
                let (start, length) = (start as usize, length as usize);
                match start.checked_sub(head.len()) {
                    None => (&head, start..start + length),
                    Some(start) => (&added, start..start + length),
                }
            };
            let (bytes, at) = part(place.name, place.tag.length());
            let name = name(&bytes[at]);
            let (bytes, at) = part(place.value, place.value_length);
            let value = HeaderValue::from_maybe_shared(bytes.slice(at));
            if let (Some(name), Ok(value)) = (name, value) {
                map.append(name, value);
            }
        }
        map
    }
}

/// Those that the gateway itself adds to every answer need no room of their own.
fn name(bytes: &[u8]) -> Option<HeaderName> {
    const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
    const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
    match bytes {
        b"ratelimit" => Some(LIMIT),
        b"ratelimit-policy" => Some(POLICY),
        other => HeaderName::from_bytes(other).ok(),
    }
}

#[cfg(test)]
mod tests;
