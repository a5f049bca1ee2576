//! The credential a request carries.
//!
//! A credential that is there twice, is longer than [`MAX_TOKEN`] or can be read in two ways is no credential:
//! the gateway and the upstream might read different ones. Such a request counts as bringing one that does not
//! verify, and is refused where requests are counted by their credential: see [`super::Who::ambiguous_token`].

mod counted;

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;
use http::header::AUTHORIZATION;
use serde_json::value::RawValue;

pub use counted::counted;

use super::body::{self, Name, is_blank};
use super::form::{self, FieldValue};
use super::query;
use crate::http::head::{Fields, Head};

/// Longest credential that is looked at, in bytes.
pub const MAX_TOKEN: usize = 8 * 1024;

/// Where the credential is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The whole value of a request header. Of `Authorization`, what stands behind the scheme.
    Header(HeaderName),
    /// `Authorization: Bearer …`.
    Bearer,
    /// What stands behind this scheme in a request header.
    Scheme {
        /// The header.
        header: HeaderName,
        /// The scheme, in any case.
        scheme: Box<str>,
    },
    /// A query parameter, decoded as in a form. It may stand in a cookie or a body too.
    Query(Name),
    /// A cookie, decoded, and without the quotes around its value.
    Cookie(Name),
}

impl Source {
    /// The header that the whole credential or its scheme stands in, unless it is one for credentials of all
    /// kinds.
    pub(super) fn header(&self) -> Option<&HeaderName> {
        match self {
            Source::Header(name) | Source::Scheme { header: name, .. } => Some(name),
            Source::Bearer | Source::Query(_) | Source::Cookie(_) => None,
        }
    }

    /// The credential that [`find`] makes of `text`, where an operator writes it down.
    pub fn normal<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = text.trim_matches(is_blank);
        match self {
            Source::Bearer | Source::Scheme { .. } => behind_scheme(text).into(),
            Source::Header(name) if *name == AUTHORIZATION => behind_scheme(text).into(),
            Source::Cookie(_) => text.replace(' ', "+").into(),
            Source::Header(_) | Source::Query(_) => text.into(),
        }
    }
}

fn behind_scheme(text: &str) -> &str {
    let behind = text.split_once([' ', '\t']).map(|(_, behind)| behind);
    behind.map_or(text, |behind| behind.trim_matches(is_blank))
}

/// The credential of a request.
pub fn find<'r>(source: &Source, head: &'r Head) -> FieldValue<'r> {
    let fields = &head.fields;
    match source {
        Source::Header(name) if *name == AUTHORIZATION => behind(fields, name.as_str(), None),
        Source::Header(name) => alone(fields, name.as_str()),
        Source::Bearer => by_bearer(fields),
        Source::Scheme { header, scheme } => behind(fields, header.as_str(), Some(scheme)),
        Source::Query(name) => query::find(head, name).trimmed(),
        Source::Cookie(name) => cookie(fields, name),
    }
    .within(MAX_TOKEN)
    .unless_ambiguous()
}

/// The credential that stands in a body in the place of the query, where frameworks join the two.
pub fn find_in_body<'b>(source: &Source, fields: &Fields, body: &'b [u8]) -> FieldValue<'b> {
    match source {
        Source::Query(name) => body::find(&name.clone().into(), fields.all("content-type"), body)
            .trimmed()
            .within(MAX_TOKEN)
            .unless_ambiguous(),
        _ => FieldValue::Absent,
    }
}

/// A target without the credential that `source` would find in its query.
pub fn mask<'t>(source: Option<&Source>, target: Cow<'t, str>) -> Cow<'t, str> {
    let Some(Source::Query(name)) = source else {
        return target;
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&*target, None),
    };
    let before = path.split_once(';');
    if before.is_none() && query.is_none() {
        return target;
    }
    let mut out = before.map_or(path, |(path, _)| path).to_owned();
    for (begin, text) in [(';', before.map(|(_, text)| text)), ('?', query)] {
        if let Some(text) = text {
            out.push(begin);
            out += &form::mask(text, name);
        }
    }
    out.into()
}

/// The one value of a header.
pub(super) fn header<'r>(fields: &'r Fields, name: &str) -> FieldValue<'r> {
    let mut found = FieldValue::Absent;
    for value in fields.all(name) {
        found.add(value.trim_ascii());
    }
    found.within(MAX_TOKEN)
}

/// What stands behind `Authorization: Bearer`, whatever it is; other schemes are no credential.
pub(super) fn bearer(fields: &Fields) -> FieldValue<'_> {
    match header(fields, "authorization") {
        FieldValue::One(Cow::Borrowed(value)) => match parted(value) {
            (scheme, Some(token)) if scheme.eq_ignore_ascii_case(b"bearer") => {
                FieldValue::One(token.into()).within(MAX_TOKEN)
            }
            _ => FieldValue::Absent,
        },
        FieldValue::One(Cow::Owned(_)) => FieldValue::Ambiguous,
        found => found,
    }
}

/// The credential of `Authorization: Bearer`.
pub(super) fn by_bearer(fields: &Fields) -> FieldValue<'_> {
    behind(fields, "authorization", Some("bearer"))
}

/// The one value of a header, without blanks. A comma with a blank beside it is that of a list, as proxies join
/// fields that came twice: upstreams take the first or the last.
fn alone<'r>(fields: &'r Fields, name: &str) -> FieldValue<'r> {
    match header(fields, name).trimmed() {
        FieldValue::One(value) if is_list(&value) => FieldValue::Ambiguous,
        found => found,
    }
}

fn is_list(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| byte.is_none_or(|byte| b" \t,".contains(byte));
    memchr::memchr_iter(b',', value).any(|at| blank(value[..at].last()) || blank(value.get(at + 1)))
}

/// The one word behind a scheme. Upstreams that part the value at blanks, commas or a fixed length read any
/// other value in ways of their own, whatever its scheme. With no `scheme` any will do, or none.
fn behind<'r>(fields: &'r Fields, name: &str, scheme: Option<&str>) -> FieldValue<'r> {
    let value = match header(fields, name).trimmed() {
        FieldValue::One(Cow::Borrowed(value)) => value,
        FieldValue::One(Cow::Owned(_)) => return FieldValue::Ambiguous,
        found => return found,
    };
    let (given, credential) = parted(value);
    let named = scheme.is_none_or(|scheme| given.eq_ignore_ascii_case(scheme.as_bytes()));
    let basic = given.eq_ignore_ascii_case(b"basic");
    match credential {
        None if scheme.is_some() && named => FieldValue::Absent,
        None if scheme.is_none() && is_word(value) => FieldValue::One(value.into()),
        Some(credential) if basic => match (is_basic(credential), named) {
            (true, true) => FieldValue::One(credential.into()),
            // A name and a password are none of the credentials that are looked for.
            (true, false) => FieldValue::Absent,
            (false, _) => FieldValue::Ambiguous,
        },
        Some(credential) if named && is_word(credential) => FieldValue::One(credential.into()),
        _ => FieldValue::Ambiguous,
    }
}

/// The first word and what stands behind it. Servers that part at any white space take a tab for the space.
fn parted(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    match value.iter().position(|byte| b" \t".contains(byte)) {
        Some(end) => (&value[..end], Some(value[end..].trim_ascii())),
        None => (value, None),
    }
}

/// Whether it is a token68 (RFC 9110, section 11.2), or has some characters more that no reader parts it at. A
/// `=` anywhere but at the end would make a parameter of it.
fn is_word(text: &[u8]) -> bool {
    let end = text.iter().rposition(|byte| *byte != b'=');
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b",;=\"'\\".contains(byte);
    end.is_some_and(|end| text[..=end].iter().all(plain))
}

/// Whether it is a name and a password (RFC 7617) in the one way in which base64 writes them.
fn is_basic(text: &[u8]) -> bool {
    STANDARD
        .decode(text)
        .is_ok_and(|pair| pair.contains(&b':') && std::str::from_utf8(&pair).is_ok())
}

impl<'t> FieldValue<'t> {
    /// Ambiguous if readers take it for different credentials.
    fn unless_ambiguous(self) -> FieldValue<'t> {
        match self {
            FieldValue::One(value) if counted::is_ambiguous(&value) => FieldValue::Ambiguous,
            found => found,
        }
    }

    /// Without the blanks around it that some upstream would take off. Ambiguous if that depends on its
    /// encoding, or if it could end at a control character.
    fn trimmed(self) -> FieldValue<'t> {
        match self {
            FieldValue::One(Cow::Borrowed(value)) => match trim(value) {
                Some(value) => FieldValue::One(value.into()),
                None => FieldValue::Ambiguous,
            },
            FieldValue::One(Cow::Owned(value)) => match trim(&value) {
                Some(value) => FieldValue::One(value.to_owned().into()),
                None => FieldValue::Ambiguous,
            },
            found => found,
        }
    }
}

fn trim(value: &[u8]) -> Option<&[u8]> {
    let trimmed = match std::str::from_utf8(value) {
        Ok(text) => text.trim_matches(is_blank).as_bytes(),
        Err(_) => {
            let ends = [value.first(), value.last()];
            let plain = ends.into_iter().flatten().all(u8::is_ascii_graphic);
            plain.then_some(value)?
        }
    };
    let ends_it = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    (!trimmed.iter().any(ends_it)).then_some(trimmed)
}

pub(super) fn cookie<'r>(fields: &'r Fields, name: &Name) -> FieldValue<'r> {
    let mut found = FieldValue::Absent;
    let lines = fields.all("cookie");
    for pair in lines.flat_map(|line| line.split(|byte| *byte == b';')) {
        let (given, value) = match pair.iter().position(|byte| *byte == b'=') {
            Some(equals) => (&pair[..equals], &pair[equals + 1..]),
            None => (pair, &[][..]),
        };
        if name.resembles(&form::unescape(given, b'+').0) {
            match cookie_value(value) {
                Some(value) => found.add(value),
                None => found = FieldValue::Ambiguous,
            }
        } else if hides(pair, name) {
            found = FieldValue::Ambiguous;
        }
    }
    found
}

/// Whether readers that part cookies at blanks or commas too find one of this name in another.
fn hides(pair: &[u8], name: &Name) -> bool {
    let mut before = pair.split(|byte| *byte == b'=').map(<[u8]>::trim_ascii_end);
    // Behind the last `=` stands no name.
    let last = before.next_back();
    last.is_some()
        && before.any(|text| {
            let word = text.rsplit(|byte| b", \t".contains(byte)).next();
            word.is_some_and(|word| name.resembles(word))
        })
}

/// The value of a cookie as it was before quotes, backslashes (RFC 2109), and escapes, which a part of the
/// readers take off each. A blank is `+`, for which Rack takes it. None if only some would take an escape.
fn cookie_value(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    let raw = trim(raw)?;
    let value = match raw.strip_prefix(b"\"") {
        Some(inner) => unquoted(inner.strip_suffix(b"\"")?)?,
        // Python's reader ends a value there, and reads on.
        None if raw.iter().any(|byte| b" \t,".contains(byte)) => return None,
        None => raw.into(),
    };
    let value = unescaped(value)?;
    // Express' mark of JSON.
    let text: Cow<'_, [u8]> = match value.strip_prefix(b"j:") {
        Some(json) if serde_json::from_slice::<&RawValue>(json).is_ok() => {
            let text: String = serde_json::from_slice(json).ok()?;
            text.into_bytes().into()
        }
        _ => value,
    };
    if !text.contains(&b' ') || counted::skips_blanks(&text) {
        return Some(text);
    }
    let plus = |byte: &u8| if *byte == b' ' { b'+' } else { *byte };
    Some(text.iter().map(plus).collect())
}

/// Escapes to bytes, or the value if it has no escapes at all.
fn unescaped(value: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
    if !value.contains(&b'%') {
        return Some(value);
    }
    let (decoded, escapes) = form::unescape(&value, b'+');
    if !escapes.good && escapes.bad {
        return Some(value);
    }
    if escapes.bad || std::str::from_utf8(&decoded).is_err() {
        return None;
    }
    Some(trim(&decoded)?.to_vec().into())
}

/// Backslashes to what they stand for: a byte in octal, or the character behind. None for a quote without one.
fn unquoted(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.iter().any(|byte| matches!(byte, b'\\' | b'"')) {
        return Some(text.into());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'"', _) | (b'\\', []) => return None,
            (
                b'\\',
                [
                    high @ b'0'..=b'3',
                    mid @ b'0'..=b'7',
                    low @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                out.push((high - b'0') << 6 | (mid - b'0') << 3 | (low - b'0'));
                rest = after;
            }
            (b'\\', [other, after @ ..]) => {
                out.push(*other);
                rest = after;
            }
            _ => out.push(byte),
        }
    }
    Some(out.into())
}

#[cfg(test)]
mod tests;
