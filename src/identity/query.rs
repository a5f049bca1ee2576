//! Finds a field in the query and in the cookies of a request, which some frameworks read as one set of fields.
//!
//! PHP without a `php.ini` puts cookies into `$_REQUEST`, where they replace fields of the query and the body. ASP.NET
//! looks into cookies if neither the query nor the body has the field.

use super::body::{FieldName, is_read_as_utf8};
use super::field_value::{FieldValue, MAX_CREDENTIAL_BYTES};
use super::{cookie, form};
use crate::http::head::Head;

/// The value of the field in the query or in a cookie; ambiguous if either value is, or if they differ.
pub(super) fn find_field<'r>(head: &'r Head, name: &FieldName) -> FieldValue<'r> {
    let [in_query, in_cookie] = find_in_query_and_cookie(head, name);
    in_query.combine(in_cookie)
}

/// The value in the query, and the one in a cookie. An empty cookie is absent.
///
/// Django reads queries in the charset of `Content-Type`. So the value in the query is ambiguous if the query could be
/// another text in that charset than in UTF-8.
pub fn find_in_query_and_cookie<'r>(head: &'r Head, name: &FieldName) -> [FieldValue<'r>; 2] {
    let in_cookie = cookie::find_value(&head.fields, name).with_max_length(MAX_CREDENTIAL_BYTES);
    let query = head.uri.query().unwrap_or_default().as_bytes();
    let is_utf8 = query.is_empty() || is_read_as_utf8(head.fields.all("content-type"), query);
    match is_utf8 {
        true => [form::find_in_target(&head.uri, name), in_cookie],
        false => [FieldValue::Ambiguous, in_cookie],
    }
}
