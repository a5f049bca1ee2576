//! Recognises preflights, by which browsers ask whether a page of another origin may send a request (CORS; Fetch
//! standard, section 4.8). Whether they are answered here is up to the route.

use std::sync::LazyLock;

use http::Method;

use super::body::BodyField;
use super::field_value::FieldValue;
use super::query::find_in_query_and_cookie;
use super::strip::METHOD_FIELDS;
use crate::http::head::{Fields, Head};

/// The parameter by which frameworks take another method than that of the request.
static METHOD_FIELD: LazyLock<BodyField> = LazyLock::new(|| BodyField::new("_method"));

/// Maximum bytes of the method that a preflight asks about.
const MAX_METHOD_BYTES: usize = 32;

/// The method that a preflight asks about; `None` for any other request. A request with a body is none, nor one that
/// switches protocols or also names another method: the upstream may act on it as on a request of that method.
pub fn requested_method(head: &Head) -> Option<Method> {
    if head.method != Method::OPTIONS || head.upgrade.is_some() {
        return None;
    }
    let fields = &head.fields;
    only_value(fields, "origin")?;
    let method = only_value(fields, "access-control-request-method")
        .filter(|method| method.len() <= MAX_METHOD_BYTES)
        .filter(|method| !method.iter().any(u8::is_ascii_lowercase))?;
    let has_body = fields.contains("transfer-encoding")
        || fields.all("content-length").any(|length| length != b"0");
    let names_other_method = METHOD_FIELDS.iter().any(|name| fields.contains(name))
        || find_in_query_and_cookie(head, METHOD_FIELD.name())
            .iter()
            .any(|value| *value != FieldValue::Absent);
    if has_body || names_other_method {
        return None;
    }
    Method::from_bytes(method).ok()
}

/// The value of a field that is there once; `None` if it is absent, or there more than once.
fn only_value<'f>(fields: &'f Fields, name: &str) -> Option<&'f [u8]> {
    let mut values = fields.all(name);
    values.next().filter(|_| values.next().is_none())
}
