//! The credential of the query that may stand in a body: many frameworks read the fields of both as one, Rack, PHP and
//! Go those of forms, Laravel and Rails those of JSON too.

use http::Method;

use super::answer::Why;
use super::body::MAX_AHEAD;
use crate::head::Head;
use crate::identity::form::Found;
use crate::identity::{Identifier, body};
use crate::route::Route;

/// Why a request is refused in whose body no credential can be looked for.
const HIDDEN: &str = "this route counts by a credential of the query, which frameworks read from bodies too: send this body unpacked, at most 1 MiB long, or as a type without fields";

/// Whether it is looked for in the body, if there is one.
pub fn is_wanted(route: &Route, head: &Head) -> bool {
    // Only of a POST a body without a type is taken for a form.
    let typed = || head.method == Method::POST || head.fields.contains("content-type");
    route.reads.token_in_body && head.upgrade.is_none() && body::has_fields(&head.fields) && typed()
}

/// Whether the head says that it cannot be looked for.
///
/// # Errors
///
/// Why the request is refused then.
pub fn can_be_read(head: &Head) -> Result<(), Why> {
    match body::hides_fields(&head.fields, MAX_AHEAD) {
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
/// As of [`can_be_read`] and [`find`].
pub fn of<'b>(
    route: &Route,
    identifier: &Identifier,
    head: &Head,
    body: &'b [u8],
) -> Result<Found<'b>, Why> {
    if body.is_empty() || !is_wanted(route, head) {
        return Ok(Found::Absent);
    }
    can_be_read(head)?;
    find(identifier, head, body, body.len() <= MAX_AHEAD)
}
