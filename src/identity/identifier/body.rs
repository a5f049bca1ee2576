//! What of a request's body says who sends it.

use super::{ClientIdentity, Domain, Fingerprint, Head, Identifier};
use crate::http::head::Fields;
use crate::identity::FieldValue;
use crate::identity::mailbox::{self, Mailbox};
use crate::identity::{body, email, token};

impl Identifier {
    /// Most bytes of a body that are held back.
    pub fn max_body(&self) -> usize {
        self.settings
            .email
            .as_ref()
            .map_or(0, |email| email.max_body)
    }

    /// Notes that the body cannot be looked at, if the head says so.
    pub fn hides_body(&self, who: &mut ClientIdentity, head: &Head) -> bool {
        let email = self.settings.email.as_ref();
        let why = email.and_then(|email| email::hidden(email, &head.fields));
        who.unclear_email = why.or(who.unclear_email);
        why.is_some()
    }

    /// Looks for an address in the body, the query and cookies, or, where `whole` is false, in more than
    /// [`Identifier::max_body`] bytes of its beginning.
    pub fn set_email(&self, who: &mut ClientIdentity, head: &Head, body: &[u8], whole: bool) {
        let Some(settings) = &self.settings.email else {
            return;
        };
        if !whole || body.len() > settings.max_body {
            who.unclear_email = Some(email::TOO_LONG);
            return;
        }
        match email::find(settings, head, body) {
            Mailbox::Absent => {}
            Mailbox::Ambiguous => who.unclear_email = Some(email::UNCLEAR),
            Mailbox::Address(text) | Mailbox::Name(text) => {
                who.email = Some(self.keyer.fingerprint(Domain::Email, text.as_bytes()));
            }
        }
    }

    /// Whether a credential may stand in a body that begins so, and ends there if it `is_whole`; none where more must be
    /// seen.
    pub fn may_have_credential(
        &self,
        fields: &Fields,
        begin: &[u8],
        is_whole: bool,
    ) -> Option<bool> {
        match &self.settings.token {
            Some(token::TokenSource::Query(name)) => {
                body::may_have_field(&name.clone().into(), fields, begin, is_whole)
            }
            _ => Some(false),
        }
    }

    /// The credential in a complete body.
    pub fn credential_in_body<'b>(&self, fields: &Fields, body: &'b [u8]) -> FieldValue<'b> {
        match &self.settings.token {
            Some(source) => token::find_in_body(source, fields, body),
            None => FieldValue::Absent,
        }
    }

    /// The keyed hash of a credential that an operator wrote.
    pub fn token_key(&self, text: &str) -> Fingerprint {
        let source = self.settings.token.as_ref();
        let normal = source.map_or_else(|| text.into(), |source| source.normal(text));
        self.token_fingerprint(normal.as_bytes())
    }

    /// The keyed hash of an email address, or of what else stands in the place of one, that an operator wrote;
    /// none if it can be read as several.
    pub fn email_key(&self, text: &str) -> Option<Fingerprint> {
        match self.mailbox(text) {
            Mailbox::Address(text) | Mailbox::Name(text) => {
                Some(self.keyer.fingerprint(Domain::Email, text.as_bytes()))
            }
            Mailbox::Absent | Mailbox::Ambiguous => None,
        }
    }

    /// The keyed hash of what is an email address; none of anything else.
    pub(in crate::identity) fn address_key(&self, text: &str) -> Option<Fingerprint> {
        match self.mailbox(text) {
            Mailbox::Address(text) => Some(self.keyer.fingerprint(Domain::Email, text.as_bytes())),
            _ => None,
        }
    }

    fn mailbox(&self, text: &str) -> Mailbox {
        let email = self.settings.email.as_ref();
        let fold = email.map(|email| email.fold).unwrap_or_default();
        mailbox::read(text, fold)
    }
}
