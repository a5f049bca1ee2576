//! The credential of the query that may stand in a body: many frameworks read the fields of both as one, Rack, PHP and
//! Go those of forms, Laravel and Rails those of JSON too.

use http::Method;

use super::body::{MAX_AHEAD, RequestBody};
use super::refusal::RefusalCause;
use crate::http::head::Head;
use crate::identity::FieldValue;
use crate::identity::Identifier;
use crate::identity::body::{hides_fields, is_stream};
use crate::route::Route;

/// Why a request is refused in whose body no credential can be looked for.
const HIDDEN: &str = "the body cannot be searched for the credential that belongs into the query, which frameworks read from bodies too: send it without Content-Encoding and at most 1 MiB long, or with a Content-Type of data without fields";

/// Whether it is looked for in the body, if there is one.
pub fn is_wanted(route: &Route, head: &Head) -> bool {
    // Only of a POST a body without a type is taken for a form.
    let typed = || head.method == Method::POST || head.fields.contains("content-type");
    route.reads.token_in_body && head.upgrade.is_none() && typed() && !is_stream(&head.fields)
}

/// Whether it may stand in the body, as far as that tells by its first bytes.
///
/// # Errors
///
/// Why the request is refused, if that cannot be known.
pub async fn may_be_there(
    identifier: &Identifier,
    head: &Head,
    body: &mut RequestBody,
) -> Result<bool, RefusalCause> {
    let fields = &head.fields;
    let may = |begin: &[u8], whole| identifier.may_have_credential(fields, begin, whole);
    match body.begins(may).await? {
        true if hides_fields(fields, MAX_AHEAD) => Err(RefusalCause::Bad(HIDDEN)),
        may => Ok(may),
    }
}

/// The credential in a body, of which `whole` says that nothing is missing; absent where it is not wanted.
///
/// # Errors
///
/// Why the request is refused: the body may have one and cannot be searched.
pub fn find<'b>(
    route: &Route,
    identifier: &Identifier,
    head: &Head,
    body: &'b [u8],
    whole: bool,
) -> Result<FieldValue<'b>, RefusalCause> {
    let fields = &head.fields;
    let may_be_there = || identifier.may_have_credential(fields, body, whole) != Some(false);
    if body.is_empty() || !is_wanted(route, head) || !may_be_there() {
        return Ok(FieldValue::Absent);
    }
    match whole && !hides_fields(fields, MAX_AHEAD) {
        true => Ok(identifier.credential_in_body(fields, body)),
        false => Err(RefusalCause::Bad(HIDDEN)),
    }
}
