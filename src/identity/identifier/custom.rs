//! Finds the values of custom identities in requests, and parses those that operators write. `identity/custom.rs` has
//! their settings.

use std::sync::Arc;

use smallvec::smallvec;

use super::{ClientIdentity, Identifier, RequestParts};
use crate::http::head::{Fields, Head};
use crate::identity::body::{self, BodyField};
use crate::identity::canonical::canonical_form;
use crate::identity::custom::{self, Source};
use crate::identity::custom_value::{CustomValue, Names, Reading};
use crate::identity::key::Domain;
use crate::identity::{ConnectionPeer, FieldValue, path_part, query, token, user_name};
use crate::limit::{CustomIdentity, Identity, IdentitySet};
use crate::route::Route;

/// Maximum bytes of a body that is searched.
pub(super) const MAX_SEARCHED_BODY_BYTES: usize = 64 * 1024;

impl Identifier {
    /// Sets the custom identities that come from the head or the connection, and `with_credential`: those of the
    /// verified credential.
    pub(super) fn set_custom(
        &self,
        client: &mut ClientIdentity,
        connection: ConnectionPeer<'_>,
        request: &RequestParts<'_>,
        with_credential: Vec<CustomValue>,
    ) {
        client.custom = with_credential;
        for settings in &self.settings.custom {
            let identity = Identity::Custom(settings.identity);
            let is_wanted = request
                .custom
                .is_none_or(|wanted| wanted.contains(identity));
            if !is_wanted && settings.forwarded_as.is_none() {
                continue;
            }
            if let Some(reading) = self.find_custom_value(settings, client, connection, request) {
                client.custom.push(CustomValue {
                    identity: settings.identity,
                    reading,
                });
            }
        }
    }

    /// The value of one identity by the head, its route and the connection; `None` if they do not have it.
    fn find_custom_value(
        &self,
        settings: &custom::Settings,
        client: &ClientIdentity,
        connection: ConnectionPeer<'_>,
        request: &RequestParts<'_>,
    ) -> Option<Reading> {
        match &settings.source {
            Source::Field(source) => {
                let value = token::find_credential(source, request.head);
                self.parse_value(&value, source.is_secret())
            }
            Source::PathPart(name) => self.find_path_part(name, request),
            Source::Certificate(name) => connection
                .subject
                .and_then(|subject| name.user(subject))
                .map(single_name),
            // A client that makes its address unclear must not evade a limit.
            Source::Networks(_) if client.is_ip_unclear => Some(Reading::Ambiguous),
            Source::Networks(table) => table.find(client.ip).cloned().map(single_name),
            // `set_custom_in_fields` finds fields when the body is there; the others come with the credential.
            Source::Claim(_) | Source::ApiKeys | Source::Query(_) | Source::Body(_) => None,
        }
    }

    /// Sets those of the wanted custom identities that are fields of the query, of cookies or of the body.
    pub(super) fn set_custom_in_fields(
        &self,
        client: &mut ClientIdentity,
        head: &Head,
        wanted: IdentitySet,
        (body, is_whole): (&[u8], bool),
    ) {
        for settings in &self.settings.custom {
            let (Source::Query(field) | Source::Body(field)) = &settings.source else {
                continue;
            };
            if !wanted.contains(Identity::Custom(settings.identity)) {
                continue;
            }
            // The body of a stream is not awaited for a parameter of the query: see `body::is_stream`.
            let is_stream =
                matches!(settings.source, Source::Query(_)) && body::is_stream(&head.fields);
            let in_body = match is_stream {
                true => FieldValue::Absent,
                false => find_in_body(field, &head.fields, body, is_whole),
            };
            let [in_query, in_cookie] = query::find_in_query_and_cookie(head, field.name());
            let values = [in_body, in_query, in_cookie].into_iter();
            let value = values
                .map(FieldValue::into_credential)
                .fold(FieldValue::Absent, FieldValue::combine);
            client
                .custom
                .extend(self.parse_value(&value, false).map(|reading| CustomValue {
                    identity: settings.identity,
                    reading,
                }));
        }
    }

    /// The part of the path, if all patterns that may take the request find the same one.
    fn find_path_part(&self, name: &str, request: &RequestParts<'_>) -> Option<Reading> {
        let path = request.head.uri.path();
        let patterns = request.route.into_iter().flat_map(Route::patterns);
        let mut found = patterns.filter_map(|pattern| path_part::find(pattern, name, path));
        let first = found.next()?;
        match first {
            Some(text) if found.all(|other| other.as_ref() == Some(&text)) => {
                Some(self.parse_text(&text, false))
            }
            _ => Some(Reading::Ambiguous),
        }
    }

    fn parse_value(&self, value: &FieldValue<'_>, is_secret: bool) -> Option<Reading> {
        match value {
            FieldValue::Absent => None,
            FieldValue::Ambiguous => Some(Reading::Ambiguous),
            FieldValue::Single(text) => Some(self.parse_text(text, is_secret)),
        }
    }

    /// The value that a client wrote as `text`. All spellings of one value give the same.
    fn parse_text(&self, text: &[u8], is_secret: bool) -> Reading {
        let canonical = canonical_form(text);
        let name = std::str::from_utf8(&canonical).ok();
        match name.filter(|_| !is_secret).and_then(user_name::parse) {
            Some(name) => single_name(name),
            None => Reading::Hash(self.keyer.fingerprint(Domain::Custom, &canonical)),
        }
    }

    /// The value of a custom identity that an operator wrote in a file or a key: one text, or the names of a list.
    /// `None` if a text is not a value of the identity, or if one of several is kept as a hash.
    pub(in crate::identity) fn parse_custom(
        &self,
        identity: CustomIdentity,
        texts: &[&str],
    ) -> Option<Reading> {
        let written = texts
            .iter()
            .map(|text| match self.settings.custom_source(identity) {
                Some(Source::Field(source)) => {
                    self.parse_text(source.normalise(text).as_bytes(), source.is_secret())
                }
                Some(Source::PathPart(_) | Source::Query(_) | Source::Body(_)) => {
                    self.parse_text(text.as_bytes(), false)
                }
                _ => user_name::parse(text).map_or(Reading::Ambiguous, single_name),
            });
        let mut names = Names::new();
        for reading in written {
            match reading {
                Reading::Names(name) => names.extend(name),
                Reading::Ambiguous => return None,
                hash @ Reading::Hash(_) => return Some(hash).filter(|_| texts.len() == 1),
            }
        }
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then_some(Reading::Names(names))
    }
}

/// The field in a body of at most [`MAX_SEARCHED_BODY_BYTES`] bytes. In a longer one it is ambiguous, unless no framework finds
/// it there.
fn find_in_body<'b>(
    field: &BodyField,
    fields: &Fields,
    body: &'b [u8],
    is_whole: bool,
) -> FieldValue<'b> {
    if body.is_empty() {
        return FieldValue::Absent;
    }
    let is_searchable =
        is_whole && body.len() <= MAX_SEARCHED_BODY_BYTES && !body::has_content_coding(fields);
    if is_searchable {
        return body::find_field(field, fields.all("content-type"), body);
    }
    match body::may_have_field(field, fields, body, false) {
        Some(false) => FieldValue::Absent,
        Some(true) | None => FieldValue::Ambiguous,
    }
}

fn single_name(name: Arc<str>) -> Reading {
    Reading::Names(smallvec![name])
}
