//! An email address in a field of a JSON, form or multipart body.

use super::body::{self, BodyField};
use super::field_value::FieldValue;
use super::mailbox::{self, Fold, Mailbox};
use super::query;
use crate::http::head::{Fields, Head};

/// Where the address is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The field.
    pub field: BodyField,
    /// Most bytes of a body that are held back to look for it.
    pub max_body: usize,
    /// What of an address is folded by choice.
    pub fold: Fold,
}

/// The address in a complete `body`, folded. It may stand in the query or a cookie too: `$_REQUEST`, `FormValue`,
/// `params` and `getParameter` read them as one.
pub fn find(settings: &Settings, head: &Head, body: &[u8]) -> Mailbox {
    let [in_target, in_cookie] = query::each(head, settings.field.name());
    let types = head.fields.all("content-type");
    let in_body = body::find(&settings.field, types, body);
    // Two spellings of one mailbox are the same address.
    let found = [in_body, in_target, in_cookie];
    let mailboxes = found.into_iter().map(|found| mailbox(found, settings.fold));
    mailboxes.fold(Mailbox::Absent, Mailbox::or)
}

fn mailbox(found: FieldValue<'_>, fold: Fold) -> Mailbox {
    match found {
        FieldValue::Absent => Mailbox::Absent,
        FieldValue::Ambiguous => Mailbox::Ambiguous,
        FieldValue::One(value) => match std::str::from_utf8(&value) {
            Ok(text) => mailbox::read(text, fold),
            Err(_) => Mailbox::Ambiguous,
        },
    }
}

/// Why no address can be looked for in the body of this request.
pub(super) fn hidden(settings: &Settings, fields: &Fields) -> Option<&'static str> {
    if body::is_coded(fields) {
        return Some(COMPRESSED);
    }
    body::is_longer(fields, settings.max_body).then_some(TOO_LONG)
}

const COMPRESSED: &str = "this route counts by a field of the body, which is not looked for in a compressed one: send it without Content-Encoding";

/// Of a body that is longer than [`Settings::max_body`].
pub(super) const TOO_LONG: &str =
    "this route counts by a field of the body, and the body is longer than what is searched for it";

/// Of a body in which the address is there twice, or is none.
pub(super) const UNCLEAR: &str = "the email address can be read in more than one way: send it once, as one address, in a plain form or JSON body";
