//! A credential that belongs in the query and stands in the body instead. Many frameworks read the fields of both as one:
//! Rack, PHP and Go read the fields of forms, Laravel and Rails those of JSON too.
//!
//! `identify.rs` calls these functions and identifies the client by the result. A body that may hide a credential from the
//! gateway is refused.

use http::Method;

use super::body::{MAX_READ_AHEAD_BYTES, RequestBody};
use super::refusal::RefusalCause;
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::Identifier;
use crate::identity::body::{is_stream, is_unsearchable};
use crate::route::Route;

/// Why a request is refused if its body cannot be searched for a credential.
const UNSEARCHABLE_BODY: &str = "the body cannot be searched for the credential that belongs into the query, which frameworks read from bodies too: send it without Content-Encoding and at most 1 MiB long, or with a Content-Type of data without fields";

/// Whether a body of this request is searched for a credential.
pub fn is_searched(route: &Route, head: &Head) -> bool {
    // Frameworks take a body without a type for a form in a POST only.
    let may_be_form = || head.method == Method::POST || head.fields.contains("content-type");
    route.reads.token_in_body && head.upgrade.is_none() && may_be_form() && !is_stream(&head.fields)
}

/// Reads the first bytes of the body ahead, until they decide whether the body may hold a credential. Returns true if it
/// may, also if the bytes never decide. The bytes stay in the body.
///
/// # Errors
///
/// The body may hold a credential and cannot be searched, or the body broke off.
pub async fn may_be_present(
    identifier: &Identifier,
    head: &Head,
    body: &mut RequestBody,
) -> Result<bool, RefusalCause> {
    let fields = &head.fields;
    let may_have_credential =
        |body_start: &[u8], is_whole| identifier.may_have_credential(fields, body_start, is_whole);
    match body.read_ahead_for_field(may_have_credential).await? {
        true if is_unsearchable(fields, MAX_READ_AHEAD_BYTES) => {
            Err(RefusalCause::Bad(UNSEARCHABLE_BODY))
        }
        may_be_present => Ok(may_be_present),
    }
}

/// Finds the credential in a body; `Absent` if the body has none or need not be searched. Only a whole body is searched.
///
/// # Errors
///
/// The body may hold a credential, and `body_start` is not the whole body or cannot be searched.
pub fn find_credential<'b>(
    route: &Route,
    identifier: &Identifier,
    head: &Head,
    body: &'b [u8],
    is_whole: bool,
) -> Result<FieldValue<'b>, RefusalCause> {
    let fields = &head.fields;
    let may_be_present = || identifier.may_have_credential(fields, body, is_whole) != Some(false);
    if body.is_empty()
        || !is_searched(route, head)
        || identifier.has_credential_before_query(head)
        || !may_be_present()
    {
        return Ok(FieldValue::Absent);
    }
    match is_whole && !is_unsearchable(fields, MAX_READ_AHEAD_BYTES) {
        true => Ok(identifier.credential_in_body(fields, body)),
        false => Err(RefusalCause::Bad(UNSEARCHABLE_BODY)),
    }
}
