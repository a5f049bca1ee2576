//! A credential that belongs in the query and stands in the body instead. Many frameworks read the fields of both as one:
//! Rack, PHP and Go read the fields of forms, Laravel and Rails those of JSON too.
//!
//! `identify.rs` calls these functions and identifies the client by the result. A body that may hide a credential from the
//! gateway is refused.

use http::Method;

use super::body::{BodyStart, FieldPresence, MAX_READ_AHEAD_BYTES, RequestBody};
use super::refusal::RefusalCause;
use crate::http::head::{Fields, Head};
use crate::identity::FieldValue;
use crate::identity::Identifier;
use crate::identity::body::{is_stream, is_unsearchable};
use crate::route::Route;

/// Why a request is refused if its body cannot be searched for a credential.
const UNSEARCHABLE_BODY: &str = "the body cannot be searched for the credential that belongs in the query, which frameworks read from bodies too: send it without Content-Encoding and at most 1 MiB long, or with a Content-Type of data without fields";

/// Whether a body of this request is searched for a credential.
pub fn is_body_searched(route: &Route, head: &Head) -> bool {
    // Frameworks take a body without a type for a form in a POST only.
    let may_be_form = || head.method == Method::POST || head.fields.contains("content-type");
    route.reads.token_in_body && head.upgrade.is_none() && may_be_form() && !is_stream(&head.fields)
}

/// Reads the first bytes of the body ahead, until they decide whether the body may hold a credential. Returns true if it
/// may, also if the bytes never decide. The bytes stay in the body.
///
/// # Errors
///
/// The body may hold a credential and cannot be searched, or the body broke off or is late.
pub async fn read_ahead_for_credential(
    identifier: &Identifier,
    head: &Head,
    body: &mut RequestBody,
) -> Result<bool, RefusalCause> {
    let fields = &head.fields;
    let look_for_credential =
        |body_start: BodyStart<'_>| credential_presence(identifier, fields, body_start);
    let is_possible = body.read_ahead_for_field(look_for_credential).await?;
    if is_possible && is_unsearchable(fields, MAX_READ_AHEAD_BYTES) {
        return Err(RefusalCause::Bad(UNSEARCHABLE_BODY));
    }
    Ok(is_possible)
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
    body_start: BodyStart<'b>,
) -> Result<FieldValue<'b>, RefusalCause> {
    let fields = &head.fields;
    let BodyStart { bytes, is_whole } = body_start;
    let is_searched = !bytes.is_empty()
        && is_body_searched(route, head)
        // A credential of an earlier source counts in place of one in the body.
        && !identifier.has_credential_before_query(head);
    if !is_searched
        || credential_presence(identifier, fields, body_start) == FieldPresence::Impossible
    {
        return Ok(FieldValue::Absent);
    }
    if !is_whole || is_unsearchable(fields, MAX_READ_AHEAD_BYTES) {
        return Err(RefusalCause::Bad(UNSEARCHABLE_BODY));
    }
    Ok(identifier.credential_in_body(fields, bytes))
}

/// Whether a body that begins with `body_start` may have the credential.
fn credential_presence(
    identifier: &Identifier,
    fields: &Fields,
    body_start: BodyStart<'_>,
) -> FieldPresence {
    let BodyStart { bytes, is_whole } = body_start;
    identifier
        .may_have_credential(fields, bytes, is_whole)
        .into()
}
