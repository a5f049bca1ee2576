//! Finds the values of custom identities in requests, and parses those that operators write. `identity/custom.rs` has
//! their settings.

use std::sync::Arc;

use smallvec::smallvec;

use super::{BufferedBody, ClientIdentity, Identifier, RequestParts};
use crate::http::head::{Fields, Head};
use crate::identity::body::{self, BodyField};
use crate::identity::canonical::{canonical_form, whole_number};
use crate::identity::custom::{self, Source};
use crate::identity::custom_value::{CustomValue, IdentityValue, Names};
use crate::identity::key::Domain;
use crate::identity::{ConnectionPeer, FieldValue, path_part, preflight, query, token, user_name};
use crate::limit::custom_identity::PREFLIGHT;
use crate::limit::{CustomIdentity, Identity, IdentitySet};
use crate::route::Route;

/// Maximum bytes of a body that is searched for custom identities. In a longer one they are ambiguous.
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
                .wanted_custom
                .is_none_or(|wanted| wanted.contains(identity));
            if !is_wanted && !settings.is_always_read {
                continue;
            }
            if let Some(value) = self.find_custom_value(settings, client, connection, request) {
                client.custom.push(CustomValue {
                    identity: settings.identity,
                    value,
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
    ) -> Option<IdentityValue> {
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
            Source::Ja4 => connection.ja4.cloned().map(single_name),
            Source::Preflight => {
                preflight::requested_method(request.head).map(|_| single_name(PREFLIGHT.into()))
            }
            // A client that makes its address unclear must not evade a limit.
            Source::Networks(_) if client.is_ip_unclear => Some(IdentityValue::Ambiguous),
            Source::Networks(table) => table.find(client.ip).cloned().map(single_name),
            // `set_custom_in_fields` finds fields when the body is there; the others come with the credential.
            Source::Claim(_)
            | Source::ApiKeys
            | Source::Query(_)
            | Source::Body(_)
            | Source::Entry => None,
        }
    }

    /// Sets those of the wanted custom identities that are fields of the query, of cookies or of the body.
    pub(super) fn set_custom_in_fields(
        &self,
        client: &mut ClientIdentity,
        head: &Head,
        wanted: IdentitySet,
        body: BufferedBody<'_>,
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
                false => find_in_body(field, &head.fields, body),
            };
            let [in_query, in_cookie] = query::find_in_query_and_cookie(head, field.name());
            let values = [in_body, in_query, in_cookie].into_iter();
            let value = values
                .map(FieldValue::into_credential)
                .fold(FieldValue::Absent, FieldValue::combine);
            client
                .custom
                .extend(self.parse_value(&value, false).map(|value| CustomValue {
                    identity: settings.identity,
                    value,
                }));
        }
    }

    /// The part of the path that the route's patterns call `name`; ambiguous if two patterns find different ones.
    /// `None` if no pattern finds one.
    fn find_path_part(&self, name: &str, request: &RequestParts<'_>) -> Option<IdentityValue> {
        let path = request.head.uri.path();
        let patterns = request.route.into_iter().flat_map(Route::patterns);
        let segments = patterns.map(|pattern| path_part::find_segment(pattern, name, path));
        let segment = segments.fold(FieldValue::Absent, FieldValue::combine);
        // Servers trim and parse a part of the path as they do a parameter.
        self.parse_value(&segment.into_credential(), false)
    }

    /// The value of an identity with this value of a field; `None` if the field is absent. A value that `is_secret` is
    /// hashed.
    fn parse_value(&self, value: &FieldValue<'_>, is_secret: bool) -> Option<IdentityValue> {
        match value {
            FieldValue::Absent => None,
            FieldValue::Ambiguous => Some(IdentityValue::Ambiguous),
            FieldValue::Single(text) => Some(self.parse_text(text, is_secret)),
        }
    }

    /// The value that a client wrote as `text`. All spellings of one value give the same result.
    fn parse_text(&self, text: &[u8], is_secret: bool) -> IdentityValue {
        let canonical = match whole_number::parse(text) {
            FieldValue::Single(number) => number,
            FieldValue::Ambiguous => return IdentityValue::Ambiguous,
            FieldValue::Absent => canonical_form(text),
        };
        let name = std::str::from_utf8(&canonical).ok();
        match name.filter(|_| !is_secret).and_then(user_name::parse) {
            Some(name) => single_name(name),
            None => IdentityValue::Hash(self.keyer.fingerprint(Domain::Custom, &canonical)),
        }
    }

    /// The value of a custom identity that an operator wrote in a file or a key: one text, or the names of a list.
    /// `None` if a text is not a value of the identity, or if one of several is kept as a hash.
    pub(in crate::identity) fn parse_custom(
        &self,
        identity: CustomIdentity,
        texts: &[&str],
    ) -> Option<IdentityValue> {
        let values = texts
            .iter()
            .map(|text| match self.settings.custom_source(identity) {
                Some(Source::Field(source)) => {
                    self.parse_text(source.normalise(text).as_bytes(), source.is_secret())
                }
                Some(Source::PathPart(_) | Source::Query(_) | Source::Body(_)) => {
                    self.parse_text(text.as_bytes(), false)
                }
                _ => user_name::parse(text).map_or(IdentityValue::Ambiguous, single_name),
            });
        let mut names = Names::new();
        for value in values {
            match value {
                IdentityValue::Names(name) => names.extend(name),
                IdentityValue::Ambiguous => return None,
                hash @ IdentityValue::Hash(_) => return Some(hash).filter(|_| texts.len() == 1),
            }
        }
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then_some(IdentityValue::Names(names))
    }
}

/// The field in a whole body of at most [`MAX_SEARCHED_BODY_BYTES`] without content coding. In any other body the field
/// is ambiguous, unless no framework finds it there.
fn find_in_body<'b>(field: &BodyField, fields: &Fields, body: BufferedBody<'b>) -> FieldValue<'b> {
    let BufferedBody { bytes, is_whole } = body;
    if bytes.is_empty() {
        return FieldValue::Absent;
    }
    let is_searchable =
        is_whole && bytes.len() <= MAX_SEARCHED_BODY_BYTES && !body::has_content_coding(fields);
    if is_searchable {
        return body::find_field(field, fields.all("content-type"), bytes);
    }
    match body::may_have_field(field, fields, bytes, false) {
        Some(false) => FieldValue::Absent,
        Some(true) | None => FieldValue::Ambiguous,
    }
}

/// The value that consists of one name.
fn single_name(name: Arc<str>) -> IdentityValue {
    IdentityValue::Names(smallvec![name])
}
