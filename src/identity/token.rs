//! Finds the credential of a request in one source of the settings, and hides it in logged request targets. Custom
//! identities in header fields and cookies are read by the same rules. `identifier.rs` tries the sources in their order,
//! and `identifier/proof.rs` verifies the credential.
//!
//! A credential is ambiguous if its field occurs twice in one part of the request, even with equal values. So is one
//! longer than [`MAX_CREDENTIAL_BYTES`]. It is also ambiguous if it has two readings, because the gateway and the
//! upstream might use different ones. An ambiguous credential does not verify, and a route that counts by the
//! credential refuses the request: see [`super::ClientIdentity::is_token_ambiguous`].

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

/// The part of a request that holds the credential, or the value of a custom identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// The whole value of a header field; of `Authorization`, the value without its scheme.
    Header(HeaderName),
    /// `Authorization: Bearer …`.
    Bearer,
    /// The part after this scheme in a header field.
    Scheme {
        /// The name of the field.
        header: HeaderName,
        /// The scheme, compared without regard to case.
        scheme: Box<str>,
    },
    /// A query parameter, decoded as in a form. It may also come in a cookie or a body.
    Query(FieldName),
    /// A cookie, decoded and without the quotes around its value.
    Cookie(FieldName),
}

impl TokenSource {
    /// The header field that the settings name. `None` for a parameter or a cookie, and for [`TokenSource::Bearer`],
    /// whose field is for credentials of all kinds.
    pub fn configured_header(&self) -> Option<&HeaderName> {
        match self {
            TokenSource::Header(name) | TokenSource::Scheme { header: name, .. } => Some(name),
            TokenSource::Bearer | TokenSource::Query(_) | TokenSource::Cookie(_) => None,
        }
    }

    /// Whether only a hash of a custom identity from this source is kept, because the value may identify a session.
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

    /// The credential that [`find_credential`] finds in a request with `text`. An operator wrote `text` with or without
    /// the scheme. The text of a cookie must be decoded already.
    pub fn normalise<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let text = text.trim_matches(is_blank);
        match self {
            TokenSource::Bearer | TokenSource::Scheme { .. } => without_scheme(text).into(),
            TokenSource::Header(name) if *name == AUTHORIZATION => without_scheme(text).into(),
            // A blank becomes `+`, as in a cookie's value.
            TokenSource::Cookie(_) => text.replace(' ', "+").into(),
            TokenSource::Header(_) | TokenSource::Query(_) => text.into(),
        }
    }
}

/// The text after the first word; the whole text if it is one word.
fn without_scheme(text: &str) -> &str {
    match text.split_once([' ', '\t']) {
        Some((_, credential)) => credential.trim_matches(is_blank),
        None => text,
    }
}

/// The credential in a request's head. A query parameter may also come in a cookie.
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

/// The credential in a complete body. Frameworks read the fields of query and body as one set, so a query parameter may
/// stand in the body too. Other sources are never in a body.
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

/// The request target with `***` in place of the values of one query parameter.
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
    for (separator, fields) in [(';', parameters), ('?', query)] {
        if let Some(fields) = fields {
            masked_target.push(separator);
            masked_target += &form::mask_field(fields, name);
        }
    }
    masked_target.into()
}

/// The value of a header field, without ASCII white space at its ends; ambiguous if the field occurs twice or is too long.
pub(super) fn single_value<'r>(fields: &'r Fields, name: &str) -> FieldValue<'r> {
    let mut field = FieldValue::Absent;
    for value in fields.all(name) {
        field.add(value.trim_ascii());
    }
    field.with_max_length(MAX_CREDENTIAL_BYTES)
}

/// The text after `Authorization: Bearer`, whatever it is. Absent with another scheme or no text; ambiguous if the field
/// occurs twice or is too long.
pub(super) fn text_after_bearer(fields: &Fields) -> FieldValue<'_> {
    match single_value(fields, "authorization") {
        FieldValue::Single(Cow::Borrowed(value)) => match split_scheme(value) {
            (scheme, Some(token)) if scheme.eq_ignore_ascii_case(b"bearer") => {
                FieldValue::Single(token.into()).with_max_length(MAX_CREDENTIAL_BYTES)
            }
            _ => FieldValue::Absent,
        },
        // This cannot occur, because `single_value` borrows from the head.
        FieldValue::Single(Cow::Owned(_)) => FieldValue::Ambiguous,
        absent_or_ambiguous => absent_or_ambiguous,
    }
}

/// The credential of `Authorization: Bearer`, as of [`credential_after_scheme`].
fn bearer_credential(fields: &Fields) -> FieldValue<'_> {
    credential_after_scheme(fields, "authorization", Some("bearer"))
}

/// The whole value of a header field, without the blanks at its ends. A value that looks like a list is ambiguous: a
/// proxy may have joined two fields, of which upstreams take the first or the last. Values that were joined by a bare
/// comma are one credential.
fn single_credential<'r>(fields: &'r Fields, name: &str) -> FieldValue<'r> {
    match single_value(fields, name).trimmed() {
        FieldValue::Single(value) if is_list(&value) => FieldValue::Ambiguous,
        unchanged => unchanged,
    }
}

/// Whether a comma in the value separates list elements: it stands at an end, or beside a blank or another comma.
fn is_list(value: &[u8]) -> bool {
    let is_boundary = |byte: Option<&u8>| byte.is_none_or(|byte| b" \t,".contains(byte));
    memchr::memchr_iter(b',', value)
        .any(|comma| is_boundary(value[..comma].last()) || is_boundary(value.get(comma + 1)))
}

/// The one word after `scheme`; without a `scheme`, the word after any scheme or without one.
///
/// With another scheme than `scheme`, or with none, the credential is ambiguous, because upstreams may accept it all the
/// same. Only a valid `Basic` credential is absent then. A scheme with nothing after it is absent too. A value of several
/// words is ambiguous whatever its scheme: upstreams split it at blanks, at commas or at a fixed length.
fn credential_after_scheme<'r>(
    fields: &'r Fields,
    name: &str,
    scheme: Option<&str>,
) -> FieldValue<'r> {
    let value = match single_value(fields, name).trimmed() {
        FieldValue::Single(Cow::Borrowed(value)) => value,
        // This cannot occur, because `single_value` borrows from the head.
        FieldValue::Single(Cow::Owned(_)) => return FieldValue::Ambiguous,
        absent_or_ambiguous => return absent_or_ambiguous,
    };
    let (first_word, credential) = split_scheme(value);
    let has_scheme = scheme.is_none_or(|scheme| first_word.eq_ignore_ascii_case(scheme.as_bytes()));
    let is_basic = first_word.eq_ignore_ascii_case(b"basic");
    match credential {
        None if scheme.is_some() && has_scheme => FieldValue::Absent,
        None if scheme.is_none() && is_word(value) => FieldValue::Single(value.into()),
        Some(credential) if is_basic => match (is_basic_credential(credential), has_scheme) {
            (true, true) => FieldValue::Single(credential.into()),
            // A user name with a password is no credential of the wanted scheme.
            (true, false) => FieldValue::Absent,
            (false, _) => FieldValue::Ambiguous,
        },
        Some(credential) if has_scheme && is_word(credential) => {
            FieldValue::Single(credential.into())
        }
        _ => FieldValue::Ambiguous,
    }
}

/// Splits a value after its first word. The second element is `None` if nothing follows the word. A tab ends the word
/// too, as for servers that split at any white space.
fn split_scheme(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    match value.iter().position(|byte| b" \t".contains(byte)) {
        Some(end) => (&value[..end], Some(value[end..].trim_ascii())),
        None => (value, None),
    }
}

/// Whether no reader splits the text: it has only graphic characters that separate nothing. A token68 (RFC 9110,
/// section 11.2) is such a text. A `=` before the end would make it a parameter.
fn is_word(text: &[u8]) -> bool {
    let last_index = text.iter().rposition(|byte| *byte != b'=');
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b",;=\"'\\".contains(byte);
    last_index.is_some_and(|last_index| text[..=last_index].iter().all(is_plain))
}

/// Whether the text is a name and a password (RFC 7617) in UTF-8 and strict base64.
fn is_basic_credential(text: &[u8]) -> bool {
    STANDARD
        .decode(text)
        .is_ok_and(|pair| pair.contains(&b':') && std::str::from_utf8(&pair).is_ok())
}

impl<'t> FieldValue<'t> {
    /// Reads a value as strictly as a credential: trimmed, ambiguous if too long or if readers disagree on it.
    pub(super) fn into_credential(self) -> FieldValue<'t> {
        self.trimmed()
            .with_max_length(MAX_CREDENTIAL_BYTES)
            .unless_ambiguous()
    }

    /// Makes a value ambiguous if readers take it for different credentials.
    fn unless_ambiguous(self) -> FieldValue<'t> {
        match self {
            FieldValue::Single(value) if canonical::is_ambiguous(&value) => FieldValue::Ambiguous,
            unchanged => unchanged,
        }
    }
}

#[cfg(test)]
mod tests;
