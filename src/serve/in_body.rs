//! The credential of the query that may stand in a body: many frameworks read the fields of both as one, Rack, PHP and
//! Go those of forms, Laravel and Rails those of JSON too.

use http::Method;

use super::answer::Why;
use super::body::{MAX_AHEAD, RequestBody};
use crate::head::{Fields, Head};
use crate::identity::Identifier;
use crate::identity::body::{has_fields, hides_fields};
use crate::identity::form::Found;
use crate::route::Route;

/// Why a request is refused in whose body no credential can be looked for.
const HIDDEN: &str = "this route counts by a credential of the query, which frameworks read from bodies too: send this body unpacked, at most 1 MiB long, or as a type without fields";

/// Whether it is looked for in the body, if there is one.
pub fn is_wanted(route: &Route, head: &Head) -> bool {
    // Only of a POST a body without a type is taken for a form.
    let typed = || head.method == Method::POST || head.fields.contains("content-type");
    route.reads.token_in_body && head.upgrade.is_none() && typed()
}

/// Whether it may stand in the body, as far as that tells by its first bytes.
///
/// # Errors
///
/// Why the request is refused, where nobody can say.
pub async fn may_be_there(
    identifier: &Identifier,
    head: &Head,
    body: &mut RequestBody,
) -> Result<bool, Why> {
    let fields = &head.fields;
    if !has_fields(fields) && !identifier.may_have_credential(fields, &body.begin().await?) {
        return Ok(false);
    }
    can_be_read(fields)?;
    Ok(true)
}

fn can_be_read(fields: &Fields) -> Result<(), Why> {
    match hides_fields(fields, MAX_AHEAD) {
        true => Err(Why::Bad(HIDDEN)),
        false => Ok(()),
    }
}

/// The credential in a body, of which `whole` says that nothing is missing.
///
/// # Errors
///
/// Why the request is refused, where something is missing.
pub fn find<'b>(
    identifier: &Identifier,
    head: &Head,
    body: &'b [u8],
    whole: bool,
) -> Result<Found<'b>, Why> {
    match whole {
        true => Ok(identifier.credential_in_body(&head.fields, body)),
        false => Err(Why::Bad(HIDDEN)),
    }
}

/// The same of a request that is whole; absent where it is not wanted.
///
/// # Errors
///
/// As of [`may_be_there`] and [`find`].
pub fn of<'b>(
    route: &Route,
    identifier: &Identifier,
    head: &Head,
    body: &'b [u8],
) -> Result<Found<'b>, Why> {
    let wanted = !body.is_empty() && is_wanted(route, head);
    if !wanted || !identifier.may_have_credential(&head.fields, body) {
        return Ok(Found::Absent);
    }
    can_be_read(&head.fields)?;
    find(identifier, head, body, body.len() <= MAX_AHEAD)
}
