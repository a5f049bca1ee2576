//! Finds the identities that a request's body may hold: an email address, custom identities and a credential. The first
//! two are looked for in the query and cookies too. It also hashes credentials and addresses that operators wrote.

use super::custom::MAX_SEARCHED_BODY_BYTES;
use super::{
    BufferedBody, ClientIdentity, Domain, Fingerprint, Head, Identifier, WantedIdentities,
};
use crate::http::head::Fields;
use crate::identity::FieldValue;
use crate::identity::mailbox::{self, Mailbox};
use crate::identity::token::{self, TokenSource};
use crate::identity::{body, email};

impl Identifier {
    /// Maximum bytes of a body that are buffered, if an email address or custom identities are looked for in it; 0 if
    /// neither is.
    pub fn max_buffered_bytes(&self, needs_email: bool, needs_custom: bool) -> usize {
        let email = self.settings.email.as_ref().filter(|_| needs_email);
        let email_bytes = email.map_or(0, |email| email.max_body_bytes);
        email_bytes.max(MAX_SEARCHED_BODY_BYTES * usize::from(needs_custom))
    }

    /// Marks the client's email as unclear if the head says that the body cannot be searched. Returns whether the head
    /// says so; false if no email address is looked for.
    pub fn mark_email_if_unsearchable(&self, client: &mut ClientIdentity, head: &Head) -> bool {
        let email = self.settings.email.as_ref();
        let reason = email.and_then(|email| email::unsearchable_reason(email, &head.fields));
        client.unclear_email_reason = reason.or(client.unclear_email_reason);
        reason.is_some()
    }

    /// Sets those of the `wanted` identities that stand in the body, the query or a cookie, or marks them as unclear.
    pub fn set_identities_in_fields(
        &self,
        client: &mut ClientIdentity,
        head: &Head,
        wanted: WantedIdentities,
        body: BufferedBody<'_>,
    ) {
        if wanted.email {
            self.set_email(client, head, body);
        }
        self.set_custom_in_fields(client, head, wanted.custom, body);
    }

    /// Sets the client's email address from the body, the query or a cookie, or the reason why it is unclear. Changes
    /// nothing if it is unclear already.
    fn set_email(&self, client: &mut ClientIdentity, head: &Head, body: BufferedBody<'_>) {
        let email = self.settings.email.as_ref();
        let Some(settings) = email.filter(|_| client.unclear_email_reason.is_none()) else {
            return;
        };
        if !body.is_whole || body.bytes.len() > settings.max_body_bytes {
            client.unclear_email_reason = Some(email::TOO_LONG_BODY);
            return;
        }
        match email::find_mailbox(settings, head, body.bytes) {
            Mailbox::Absent => {}
            Mailbox::Ambiguous => client.unclear_email_reason = Some(email::UNCLEAR_ADDRESS),
            Mailbox::Address(text) | Mailbox::Name(text) => {
                client.email = Some(self.email_fingerprint(&text));
            }
        }
    }

    /// Whether the body that begins with `prefix` may hold the credential; `None` if more bytes are needed to decide.
    /// `is_whole` says that `prefix` is the whole body.
    pub fn may_have_credential(
        &self,
        fields: &Fields,
        prefix: &[u8],
        is_whole: bool,
    ) -> Option<bool> {
        let mut is_undecided = false;
        for source in &self.settings.token_sources {
            let TokenSource::Query(name) = source else {
                continue;
            };
            match body::may_have_field(&name.clone().into(), fields, prefix, is_whole) {
                Some(true) => return Some(true),
                Some(false) => {}
                None => is_undecided = true,
            }
        }
        (!is_undecided).then_some(false)
    }

    /// Whether a source before the first query parameter has a credential, also an ambiguous one. Then no credential in a
    /// body counts.
    pub fn has_credential_before_query(&self, head: &Head) -> bool {
        let is_not_query = |source: &&TokenSource| !matches!(source, TokenSource::Query(_));
        let mut sources_before = self.settings.token_sources.iter().take_while(is_not_query);
        sources_before.any(|source| token::find_credential(source, head) != FieldValue::Absent)
    }

    /// The credential in a complete body; ambiguous if the parameters of two sources are there with different values.
    pub fn credential_in_body<'b>(&self, fields: &Fields, body: &'b [u8]) -> FieldValue<'b> {
        let find_credential = |source| token::find_credential_in_body(source, fields, body);
        let credentials = self.settings.token_sources.iter().map(find_credential);
        credentials.fold(FieldValue::Absent, FieldValue::combine)
    }

    /// Hashes a credential that an operator wrote. It is normalised as a credential of the first source.
    pub fn hash_token(&self, text: &str) -> Fingerprint {
        let source = self.settings.token_sources.first();
        let token = source.map_or_else(|| text.into(), |source| source.normalise(text));
        self.token_fingerprint(token.as_bytes())
    }

    /// Hashes an email address that an operator wrote, or the name of an account in its place. `None` if the text is
    /// empty or ambiguous.
    pub fn hash_email(&self, text: &str) -> Option<Fingerprint> {
        match self.parse_mailbox(text) {
            Mailbox::Address(text) | Mailbox::Name(text) => Some(self.email_fingerprint(&text)),
            Mailbox::Absent | Mailbox::Ambiguous => None,
        }
    }

    /// Hashes an email address; `None` if the text is no address, also for the name of an account.
    pub(in crate::identity) fn hash_address(&self, text: &str) -> Option<Fingerprint> {
        match self.parse_mailbox(text) {
            Mailbox::Address(text) => Some(self.email_fingerprint(&text)),
            _ => None,
        }
    }

    fn email_fingerprint(&self, folded_address: &str) -> Fingerprint {
        self.keyer
            .fingerprint(Domain::Email, folded_address.as_bytes())
    }

    fn parse_mailbox(&self, text: &str) -> Mailbox {
        let email = self.settings.email.as_ref();
        let fold = email.map(|email| email.fold).unwrap_or_default();
        mailbox::parse(text, fold)
    }
}
