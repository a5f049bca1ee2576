//! Finds the identities that the gateway file defines.

use std::sync::Arc;

use smallvec::smallvec;

use super::{ClientIdentity, Identifier, RequestParts};
use crate::identity::canonical::canonical_form;
use crate::identity::custom::{self, Source};
use crate::identity::custom_value::{CustomValue, Names, Reading};
use crate::identity::key::Domain;
use crate::identity::{ConnectionPeer, FieldValue, path_part, token, user_name};
use crate::limit::CustomIdentity;

impl Identifier {
    /// Finds the custom identities of a request. `from_claims` are those that its verified token has.
    pub(super) fn find_custom(
        &self,
        client: &mut ClientIdentity,
        connection: ConnectionPeer<'_>,
        request: &RequestParts<'_>,
        from_claims: Vec<CustomValue>,
    ) {
        client.custom = from_claims;
        for settings in &self.settings.custom {
            if let Some(reading) = self.find_custom_value(settings, client, connection, request) {
                client.custom.push(CustomValue {
                    identity: settings.identity,
                    reading,
                });
            }
        }
    }

    fn find_custom_value(
        &self,
        settings: &custom::Settings,
        client: &ClientIdentity,
        connection: ConnectionPeer<'_>,
        request: &RequestParts<'_>,
    ) -> Option<Reading> {
        match &settings.source {
            Source::Field(source) => {
                self.parse_field(source, token::find_credential(source, request.head))
            }
            Source::PathPart(name) => {
                let value = path_part::find(request.pattern?, name, request.head.uri.path())?;
                Some(value.map_or(Reading::Ambiguous, |text| self.parse_text(&text, false)))
            }
            Source::Certificate(name) => connection
                .subject
                .and_then(|subject| name.user(subject))
                .map(reading_of),
            Source::Networks(table) if !client.ip_unclear => {
                table.find(client.ip).cloned().map(reading_of)
            }
            Source::Networks(_) | Source::Claim(_) => None,
        }
    }

    fn parse_field(&self, source: &token::TokenSource, field: FieldValue<'_>) -> Option<Reading> {
        let is_secret = matches!(source, token::TokenSource::Cookie(_));
        match field {
            FieldValue::Absent => None,
            FieldValue::Ambiguous => Some(Reading::Ambiguous),
            FieldValue::One(text) => Some(self.parse_text(&text, is_secret)),
        }
    }

    /// The value that a client wrote as `text`. All spellings of one value give the same.
    fn parse_text(&self, text: &[u8], is_secret: bool) -> Reading {
        let canonical = canonical_form(text);
        let name = std::str::from_utf8(&canonical).ok();
        match name.filter(|_| !is_secret).and_then(user_name::parse) {
            Some(name) => reading_of(name),
            None => Reading::Hash(self.keyer.fingerprint(Domain::Custom, &canonical)),
        }
    }

    /// The value of a custom identity, as an operator wrote it in a file or a key.
    pub(in crate::identity) fn parse_custom(
        &self,
        identity: CustomIdentity,
        texts: &[&str],
    ) -> Option<Reading> {
        let written = texts
            .iter()
            .map(|text| match self.settings.custom_source(identity) {
                Some(Source::Field(source)) => {
                    let is_secret = matches!(source, token::TokenSource::Cookie(_));
                    self.parse_text(source.normalise(text).as_bytes(), is_secret)
                }
                Some(Source::PathPart(_)) => self.parse_text(text.as_bytes(), false),
                _ => user_name::parse(text).map_or(Reading::Ambiguous, reading_of),
            });
        let mut names = Names::new();
        for reading in written {
            match reading {
                Reading::Names(name) => names.extend(name),
                other => return Some(other).filter(|_| texts.len() == 1),
            }
        }
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then_some(Reading::Names(names))
    }
}

fn reading_of(name: Arc<str>) -> Reading {
    Reading::Names(smallvec![name])
}
