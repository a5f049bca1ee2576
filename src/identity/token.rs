//! The credential of a request.
//!
//! A credential is ambiguous if it occurs twice, is longer than [`MAX_TOKEN`] or has two readings: the gateway and the
//! upstream might use different ones. An ambiguous credential does not verify, and a route that counts by the
//! credential refuses it: see [`super::ClientIdentity::ambiguous_token`].

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;
use http::header::AUTHORIZATION;

pub use super::field_value::MAX_TOKEN;

use super::body::{self, FieldName, is_blank};
use super::field_value::FieldValue;
use super::{canonical, cookie, form, query};
use crate::http::head::{Fields, Head};

/// Which part of a request holds the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// The whole value of a header field; of `Authorization`, the part after the scheme.
    Header(HeaderName),
    /// `Authorization: Bearer …`.
    Bearer,
    /// The part after this scheme in a header field.
    Scheme {
        /// The header.
        header: HeaderName,
        /// The scheme, in any case.
        scheme: Box<str>,
    },
    /// A query parameter, decoded as in a form. It may also come in a cookie or a body.
    Query(FieldName),
    /// A cookie, decoded and without the quotes around its value.
    Cookie(FieldName),
}

impl TokenSource {
    /// The header that the whole credential or its scheme stands in, unless it is one for credentials of all
    /// kinds.
    pub(super) fn header(&self) -> Option<&HeaderName> {
        match self {
            TokenSource::Header(name) | TokenSource::Scheme { header: name, .. } => Some(name),
            TokenSource::Bearer | TokenSource::Query(_) | TokenSource::Cookie(_) => None,
        }
    }

    /// The credential that [`find`] makes of `text`, where an operator writes it down.
    pub fn normal<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = text.trim_matches(is_blank);
        match self {
            TokenSource::Bearer | TokenSource::Scheme { .. } => behind_scheme(text).into(),
            TokenSource::Header(name) if *name == AUTHORIZATION => behind_scheme(text).into(),
            TokenSource::Cookie(_) => text.replace(' ', "+").into(),
            TokenSource::Header(_) | TokenSource::Query(_) => text.into(),
        }
    }
}

fn behind_scheme(text: &str) -> &str {
    let behind = text.split_once([' ', '\t']).map(|(_, behind)| behind);
    behind.map_or(text, |behind| behind.trim_matches(is_blank))
}

/// The credential of a request.
pub fn find<'r>(source: &TokenSource, head: &'r Head) -> FieldValue<'r> {
    let fields = &head.fields;
    match source {
        TokenSource::Header(name) if *name == AUTHORIZATION => behind(fields, name.as_str(), None),
        TokenSource::Header(name) => alone(fields, name.as_str()),
        TokenSource::Bearer => by_bearer(fields),
        TokenSource::Scheme { header, scheme } => behind(fields, header.as_str(), Some(scheme)),
        TokenSource::Query(name) => query::find(head, name).trimmed(),
        TokenSource::Cookie(name) => cookie::find(fields, name),
    }
    .within(MAX_TOKEN)
    .unless_ambiguous()
}

/// The credential that stands in a body in the place of the query, where frameworks join the two.
pub fn find_in_body<'b>(source: &TokenSource, fields: &Fields, body: &'b [u8]) -> FieldValue<'b> {
    match source {
        TokenSource::Query(name) => {
            body::find(&name.clone().into(), fields.all("content-type"), body)
                .trimmed()
                .within(MAX_TOKEN)
                .unless_ambiguous()
        }
        _ => FieldValue::Absent,
    }
}

/// A target without the credential that `source` would find in its query.
pub fn mask<'t>(source: Option<&TokenSource>, target: Cow<'t, str>) -> Cow<'t, str> {
    let Some(TokenSource::Query(name)) = source else {
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
            FieldValue::One(value) if canonical::is_ambiguous(&value) => FieldValue::Ambiguous,
            found => found,
        }
    }
}

#[cfg(test)]
mod tests;
