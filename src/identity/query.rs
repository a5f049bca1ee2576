//! A field of the query, or of a cookie in its place: PHP without a `php.ini` puts cookies into `$_REQUEST`, over query
//! and body; ASP.NET looks for them where neither has the field.

use super::body::{FieldName, is_read_as_utf8};
use super::field_value::{FieldValue, MAX_TOKEN};
use super::{cookie, form};
use crate::http::head::Head;

/// The value of the field, in the query or a cookie.
pub(super) fn find<'r>(head: &'r Head, name: &FieldName) -> FieldValue<'r> {
    let [in_target, in_cookie] = each(head, name);
    in_target.or(in_cookie)
}

/// The values in the query and in a cookie. Ambiguous where the query could hide it, for Django reads queries in the
/// charset of `Content-Type`.
pub(super) fn each<'r>(head: &'r Head, name: &FieldName) -> [FieldValue<'r>; 2] {
    let in_cookie = cookie::find(&head.fields, name).within(MAX_TOKEN);
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let in_target = form::in_target(&head.uri, name);
    let is_plain = query.is_empty() || is_read_as_utf8(head.fields.all("content-type"), query);
    match is_plain {
        true => [in_target, in_cookie],
        false => [FieldValue::Ambiguous, in_cookie],
    }
}
