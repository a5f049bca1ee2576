//! Finds the credential of a request, in the first source of the settings that has one.
//!
//! A credential is ambiguous if it occurs twice, is longer than [`MAX_CREDENTIAL_BYTES`] or has two readings: the gateway and the
//! upstream might use different ones. An ambiguous credential does not verify, and a route that counts by the
//! credential refuses it: see [`super::ClientIdentity::is_token_ambiguous`].

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;
use http::header::AUTHORIZATION;

pub use super::field_value::MAX_CREDENTIAL_BYTES;

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
    /// The header field that the settings name. None for [`TokenSource::Bearer`], whose field is for credentials of all
    /// kinds.
    pub(super) fn header(&self) -> Option<&HeaderName> {
        match self {
            TokenSource::Header(name) | TokenSource::Scheme { header: name, .. } => Some(name),
            TokenSource::Bearer | TokenSource::Query(_) | TokenSource::Cookie(_) => None,
        }
    }

    /// Whether the value identifies a session, so that only a hash of it is kept.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self, TokenSource::Cookie(_))
    }

    /// Describes the source in some words, for operators.
    pub fn describe(&self) -> String {
        match self {
            TokenSource::Header(name) => format!("header {name}"),
            TokenSource::Bearer => "bearer token".into(),
            TokenSource::Scheme { header, scheme } => format!("header {header} behind {scheme}"),
            TokenSource::Query(name) => format!("query parameter {}", name.as_str()),
            TokenSource::Cookie(name) => format!("cookie {}", name.as_str()),
        }
    }

    /// The credential that [`find_credential`] finds when a client sends `text`, as an operator wrote it.
    pub fn normalise<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = text.trim_matches(is_blank);
        match self {
            TokenSource::Bearer | TokenSource::Scheme { .. } => without_scheme(text).into(),
            TokenSource::Header(name) if *name == AUTHORIZATION => without_scheme(text).into(),
            TokenSource::Cookie(_) => text.replace(' ', "+").into(),
            TokenSource::Header(_) | TokenSource::Query(_) => text.into(),
        }
    }
}

fn without_scheme(text: &str) -> &str {
    let credential = text.split_once([' ', '\t']).map(|(_, after)| after);
    credential.map_or(text, |credential| credential.trim_matches(is_blank))
}

/// The credential in a request's head.
pub fn find_credential<'r>(source: &TokenSource, head: &'r Head) -> FieldValue<'r> {
    let fields = &head.fields;
    match source {
        TokenSource::Header(name) if *name == AUTHORIZATION => {
            credential_after_scheme(fields, name.as_str(), None)
        }
        TokenSource::Header(name) => single_credential(fields, name.as_str()),
        TokenSource::Bearer => bearer_credential(fields),
        TokenSource::Scheme { header, scheme } => {
            credential_after_scheme(fields, header.as_str(), Some(scheme))
        }
        TokenSource::Query(name) => query::find_field(head, name).trimmed(),
        TokenSource::Cookie(name) => cookie::find_value(fields, name),
    }
    .with_max_length(MAX_CREDENTIAL_BYTES)
    .unless_ambiguous()
}

/// The credential in a body. Frameworks join the fields of query and body, so a query parameter may come there too.
pub fn find_credential_in_body<'b>(
    source: &TokenSource,
    fields: &Fields,
    body: &'b [u8],
) -> FieldValue<'b> {
    match source {
        TokenSource::Query(name) => {
            body::find_field(&name.clone().into(), fields.all("content-type"), body)
                .into_credential()
        }
        _ => FieldValue::Absent,
    }
}

/// The request target with `***` in place of the credentials that `sources` find in its query, for logs.
pub fn mask_credentials<'t>(sources: &[TokenSource], target: Cow<'t, str>) -> Cow<'t, str> {
    let names = sources.iter().filter_map(|source| match source {
        TokenSource::Query(name) => Some(name),
        _ => None,
    });
    names.fold(target, |target, name| mask_parameter(name, target))
}

fn mask_parameter<'t>(name: &FieldName, target: Cow<'t, str>) -> Cow<'t, str> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (&*target, None),
    };
    // Fastify begins the query at the first `;` of the path.
    let (path, parameters) = match path.split_once(';') {
        Some((path, parameters)) => (path, Some(parameters)),
        None => (path, None),
    };
    if parameters.is_none() && query.is_none() {
        return target;
    }
    let mut masked_target = path.to_owned();
    for (separator, text) in [(';', parameters), ('?', query)] {
        if let Some(text) = text {
            masked_target.push(separator);
            masked_target += &form::mask_field(text, name);
        }
    }
    masked_target.into()
}

/// The value of a header field that may stand in a head once.
pub(super) fn single_value<'r>(fields: &'r Fields, name: &str) -> FieldValue<'r> {
    let mut field = FieldValue::Absent;
    for value in fields.all(name) {
        field.add(value.trim_ascii());
    }
    field.with_max_length(MAX_CREDENTIAL_BYTES)
}

/// The text after `Authorization: Bearer`, whatever it is; other schemes count as absent.
pub(super) fn text_after_bearer(fields: &Fields) -> FieldValue<'_> {
    match single_value(fields, "authorization") {
        FieldValue::One(Cow::Borrowed(value)) => match split_scheme(value) {
            (scheme, Some(token)) if scheme.eq_ignore_ascii_case(b"bearer") => {
                FieldValue::One(token.into()).with_max_length(MAX_CREDENTIAL_BYTES)
            }
            _ => FieldValue::Absent,
        },
        FieldValue::One(Cow::Owned(_)) => FieldValue::Ambiguous,
        absent_or_ambiguous => absent_or_ambiguous,
    }
}

/// The credential of `Authorization: Bearer`; ambiguous if it is not one word.
fn bearer_credential(fields: &Fields) -> FieldValue<'_> {
    credential_after_scheme(fields, "authorization", Some("bearer"))
}

/// The whole value of a header field without blanks. A value that proxies joined of two fields is ambiguous: upstreams
/// take the first or the last.
fn single_credential<'r>(fields: &'r Fields, name: &str) -> FieldValue<'r> {
    match single_value(fields, name).trimmed() {
        FieldValue::One(value) if is_list(&value) => FieldValue::Ambiguous,
        absent_or_ambiguous => absent_or_ambiguous,
    }
}

/// Whether a comma in the value separates list elements: it stands at an end, or beside a blank or another comma.
fn is_list(value: &[u8]) -> bool {
    let is_boundary = |byte: Option<&u8>| byte.is_none_or(|byte| b" \t,".contains(byte));
    memchr::memchr_iter(b',', value)
        .any(|at| is_boundary(value[..at].last()) || is_boundary(value.get(at + 1)))
}

/// The one word after `scheme`; without a `scheme`, the word after any scheme or without one.
///
/// A value of several words is ambiguous whatever its scheme: upstreams split it at blanks, at commas or at a fixed
/// length.
fn credential_after_scheme<'r>(
    fields: &'r Fields,
    name: &str,
    scheme: Option<&str>,
) -> FieldValue<'r> {
    let value = match single_value(fields, name).trimmed() {
        FieldValue::One(Cow::Borrowed(value)) => value,
        FieldValue::One(Cow::Owned(_)) => return FieldValue::Ambiguous,
        absent_or_ambiguous => return absent_or_ambiguous,
    };
    let (first_word, credential) = split_scheme(value);
    let has_scheme = scheme.is_none_or(|scheme| first_word.eq_ignore_ascii_case(scheme.as_bytes()));
    let is_basic = first_word.eq_ignore_ascii_case(b"basic");
    match credential {
        None if scheme.is_some() && has_scheme => FieldValue::Absent,
        None if scheme.is_none() && is_word(value) => FieldValue::One(value.into()),
        Some(credential) if is_basic => match (is_basic_credential(credential), has_scheme) {
            (true, true) => FieldValue::One(credential.into()),
            // A name with a password is another credential than the wanted one.
            (true, false) => FieldValue::Absent,
            (false, _) => FieldValue::Ambiguous,
        },
        Some(credential) if has_scheme && is_word(credential) => FieldValue::One(credential.into()),
        _ => FieldValue::Ambiguous,
    }
}

/// Splits a value after its first word. A tab ends the word too, as for servers that split at any white space.
fn split_scheme(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    match value.iter().position(|byte| b" \t".contains(byte)) {
        Some(end) => (&value[..end], Some(value[end..].trim_ascii())),
        None => (value, None),
    }
}

/// Whether no reader splits the text: it is a token68 (RFC 9110, section 11.2) or has other harmless characters. A `=`
/// before the end would make it a parameter.
fn is_word(text: &[u8]) -> bool {
    let end = text.iter().rposition(|byte| *byte != b'=');
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b",;=\"'\\".contains(byte);
    end.is_some_and(|end| text[..=end].iter().all(is_plain))
}

/// Whether the text is a name and a password (RFC 7617) in strict base64.
fn is_basic_credential(text: &[u8]) -> bool {
    STANDARD
        .decode(text)
        .is_ok_and(|pair| pair.contains(&b':') && std::str::from_utf8(&pair).is_ok())
}

impl<'t> FieldValue<'t> {
    /// Reads a value as strictly as a credential.
    pub(super) fn into_credential(self) -> FieldValue<'t> {
        self.trimmed()
            .with_max_length(MAX_CREDENTIAL_BYTES)
            .unless_ambiguous()
    }

    /// Makes a value ambiguous if readers take it for different credentials.
    fn unless_ambiguous(self) -> FieldValue<'t> {
        match self {
            FieldValue::One(value) if canonical::is_ambiguous(&value) => FieldValue::Ambiguous,
            absent_or_ambiguous => absent_or_ambiguous,
        }
    }
}

#[cfg(test)]
mod tests;
