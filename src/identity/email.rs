//! Finds the email address of a request in a field of its body, query or cookies.

use super::body::{self, BodyField};
use super::field_value::FieldValue;
use super::mailbox::{self, Fold, Mailbox};
use super::query;
use crate::http::head::{Fields, Head};

/// The field that holds the address, and how addresses are folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The field. Dots in its name lead into objects of a JSON body.
    pub field: BodyField,
    /// Maximum bytes of a body that is buffered for the search. A longer body cannot be searched.
    pub max_body_bytes: usize,
    /// Which differences between spellings of an address are ignored.
    pub fold: Fold,
}

/// Message for a client whose body is compressed.
const COMPRESSED_BODY: &str = "this route counts by a field of the body, which is not looked for in a compressed one: send it without Content-Encoding";

/// Message for a client whose body is longer than [`Settings::max_body_bytes`].
pub(super) const TOO_LONG_BODY: &str =
    "this route counts by a field of the body, and the body is longer than what is searched for it";

/// Message for a client whose request has the address twice, or a text that is no single address.
pub(super) const UNCLEAR_ADDRESS: &str = "the email address can be read in more than one way: send it once, as one address, in a plain form or JSON body";

/// The folded address in a complete `body`, in the query or in a cookie. It is ambiguous if they have different ones.
/// Many frameworks read several of the three as one set of fields: PHP's `$_REQUEST`, Go's `FormValue`, Rails'
/// `params`, Java's `getParameter`.
pub fn find_mailbox(settings: &Settings, head: &Head, body: &[u8]) -> Mailbox {
    let [in_query, in_cookie] = query::find_in_query_and_cookie(head, settings.field.name());
    let content_types = head.fields.all("content-type");
    let in_body = body::find_field(&settings.field, content_types, body);
    // Values are compared after folding: two spellings of one mailbox are the same address.
    [in_body, in_query, in_cookie]
        .into_iter()
        .map(|value| mailbox_of(value, settings.fold))
        .fold(Mailbox::Absent, Mailbox::combine)
}

/// The mailbox that the value of a field names.
fn mailbox_of(value: FieldValue<'_>, fold: Fold) -> Mailbox {
    match value {
        FieldValue::Absent => Mailbox::Absent,
        FieldValue::Ambiguous => Mailbox::Ambiguous,
        FieldValue::Single(value) => match std::str::from_utf8(&value) {
            Ok(text) => mailbox::parse(text, fold),
            Err(_) => Mailbox::Ambiguous,
        },
    }
}

/// Why the body of a request with these header fields cannot be searched for an address, as a message for the client.
/// `None` if it may be searched. It may still be too long, because a body without `Content-Length` shows its length
/// only at its end.
pub(super) fn unsearchable_reason(settings: &Settings, fields: &Fields) -> Option<&'static str> {
    if body::has_content_coding(fields) {
        return Some(COMPRESSED_BODY);
    }
    body::exceeds_length(fields, settings.max_body_bytes).then_some(TOO_LONG_BODY)
}
