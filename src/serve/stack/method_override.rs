//! Methods that frameworks take in place of a request's own. Symfony, Laravel, Rails, Spring and WordPress do so by default
//! or where they are configured to, Express with `method-override`.
//!
//! Such a method stands in a header field, in the query, or in the body of a POST. This file finds the methods;
//! `target.rs` decides which routes they lead to.

use std::sync::LazyLock;

use http::Method;
use smallvec::SmallVec;

use super::body::{BodyStart, FieldPresence, MAX_READ_AHEAD_BYTES};
use crate::http::head::Head;
use crate::identity::body::{self, BodyField};
use crate::identity::strip::METHOD_FIELDS;
use crate::identity::{FieldValue, form};

/// Maximum number of other methods that the head of a request may name; its body may name one more. Each needs a lookup
/// of its own in the route table.
const MAX_METHODS: usize = 4;

/// The field of a query or a body that names a method.
static METHOD_FIELD: LazyLock<BodyField> = LazyLock::new(|| BodyField::new("_method"));

/// The error that the head of a request names more than [`MAX_METHODS`] other methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyMethods;

/// Finds the other methods that the head of a request names. `query_in_path` is the part of its path after the first
/// `;`, which Fastify takes for a query.
///
/// # Errors
///
/// The head names more than [`MAX_METHODS`] other methods.
pub fn find_methods_in_head(
    head: &Head,
    query_in_path: Option<&str>,
) -> Result<SmallVec<[Method; MAX_METHODS]>, TooManyMethods> {
    let mut methods = SmallVec::new();
    let mut add_method = |text: &[u8]| match parse_method(text) {
        Some(method) if method == head.method || methods.contains(&method) => Ok(()),
        Some(_) if methods.len() == MAX_METHODS => Err(TooManyMethods),
        Some(method) => {
            methods.push(method);
            Ok(())
        }
        None => Ok(()),
    };
    for name in METHOD_FIELDS
        .into_iter()
        .filter(|name| head.fields.contains(name))
    {
        let lines = head.fields.all(name);
        // Some frameworks take the first method of a list.
        let mut values = lines.flat_map(|line| line.split(|byte| *byte == b','));
        values.try_for_each(&mut add_method)?;
    }
    add_from_query(
        head.uri.query().unwrap_or_default().as_bytes(),
        &mut add_method,
    )?;
    if let Some(query) = query_in_path {
        add_from_query(query.as_bytes(), &mut add_method)?;
    }
    Ok(methods)
}

/// Passes the text of each method that a query names to `add_method`.
fn add_from_query(
    query: &[u8],
    mut add_method: impl FnMut(&[u8]) -> Result<(), TooManyMethods>,
) -> Result<(), TooManyMethods> {
    // Most queries have neither the word "method" nor an escape, which may hide that word.
    let has_escapes = memchr::memchr(b'%', query).is_some();
    let mut windows = query.windows(b"method".len());
    if !has_escapes && !windows.any(|window| window.eq_ignore_ascii_case(b"method")) {
        return Ok(());
    }
    for pair in query.split(|byte| matches!(byte, b'&' | b';')) {
        let mut name_and_value = pair.splitn(2, |byte| *byte == b'=');
        let name = form::decode(name_and_value.next().unwrap_or_default());
        let method = name_and_value.next().unwrap_or_default();
        if METHOD_FIELD.name().resembles(&name) {
            add_method(&form::decode(method))?;
        }
    }
    Ok(())
}

/// The other method in the body of a POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MethodInBody {
    /// The body names no other method.
    Absent,
    /// The body names this method.
    Named(Method),
    /// The body may name any method: it cannot be searched, or can be read in several ways.
    Unclear,
}

/// Whether frameworks may search the body of this request for a method or a path. They do so for a POST only, and a
/// request that changes to another protocol has no body.
pub fn is_body_searched(head: &Head) -> bool {
    head.method == Method::POST && head.upgrade.is_none()
}

/// Whether a body with this beginning may name a method.
pub fn may_name_method(head: &Head, body_start: BodyStart<'_>) -> FieldPresence {
    let BodyStart { bytes, is_whole } = body_start;
    body::may_have_field(&METHOD_FIELD, &head.fields, bytes, is_whole).into()
}

/// Finds the other method in a body. Unclear if it may be there, but the body cannot be searched, is not whole, or names
/// it in several ways.
pub fn find_method_in_body(head: &Head, body_start: BodyStart<'_>) -> MethodInBody {
    if body::is_stream(&head.fields) {
        return MethodInBody::Unclear;
    }
    if may_name_method(head, body_start) == FieldPresence::Impossible {
        return MethodInBody::Absent;
    }
    if !body_start.is_whole || body::is_unsearchable(&head.fields, MAX_READ_AHEAD_BYTES) {
        return MethodInBody::Unclear;
    }
    let content_types = head.fields.all("content-type");
    match body::find_field(&METHOD_FIELD, content_types, body_start.bytes) {
        FieldValue::Absent => MethodInBody::Absent,
        FieldValue::Ambiguous => MethodInBody::Unclear,
        FieldValue::Single(value) => match parse_method(&value) {
            Some(method) if method != head.method => MethodInBody::Named(method),
            _ => MethodInBody::Absent,
        },
    }
}

/// Parses the name of a method, in upper or lower case. `None` if the text from its first to its last letter is no method.
fn parse_method(text: &[u8]) -> Option<Method> {
    Method::from_bytes(&trim_to_letters(text).to_ascii_uppercase()).ok()
}

/// Removes everything but letters from both ends of a text. Languages trim different characters: some also NUL, or
/// bytes beyond ASCII.
fn trim_to_letters(text: &[u8]) -> &[u8] {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let start = text.iter().position(is_letter).unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(is_letter)
        .map_or(start, |last_letter| last_letter + 1);
    &text[start..end]
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;
    use crate::http::head::Fields;

    #[track_caller]
    fn check(target: &str, lines: &[&str], expected: &str) {
        let mut fields = Fields::default();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            fields.add(name, value.as_bytes());
        }
        let head = Head {
            method: Method::POST,
            uri: target.parse().unwrap(),
            version: Version::HTTP_11,
            upgrade: None,
            fields,
        };
        let query_in_path = head.uri.path().split_once(';').map(|(_, text)| text);
        let methods = find_methods_in_head(&head, query_in_path).map(|methods| {
            let names: Vec<_> = methods.iter().map(Method::as_str).collect();
            names.join(" ")
        });
        assert_eq!(
            methods.as_deref().unwrap_or("too many"),
            expected,
            "{target} {lines:?}"
        );
    }

    #[test]
    fn methods_that_are_named() {
        check("/a?b=c", &["x: y"], "");
        check("/a", &["X-HTTP-Method-Override: DELETE"], "DELETE");
        check("/a", &["X-HTTP-Method: delete "], "DELETE");
        check("/a", &["X-Method-Override: Put, DELETE"], "PUT DELETE");
        check(
            "/a",
            &["X-HTTP-Method: PUT", "X-HTTP-Method: PATCH"],
            "PUT PATCH",
        );
        check("/a", &["X-HTTP-Method-Override: post"], "");
        check("/a", &["X-HTTP-Method-Override: "], "");
        check("/a", &["X-HTTP-Method-Override: (x y)"], "");
        check("/a", &["X-HTTP-Method-Override: a,b,c,d,e"], "too many");
        for query in [
            "_method=DELETE",
            "x=y&_method=delete",
            "x=y;_method=delete",
            "%5fmeth%6fd=%44ELETE",
            "+_method=+DELETE+",
            ".method=DELETE",
            "_METHOD=DELETE",
            "[_method]=DELETE",
            "[method=DELETE",
            "_method[]=DELETE",
            "_method%00x=DELETE",
            "_method=POST&_method=DELETE",
            "_method=%C2%A0DELETE%00",
        ] {
            check(&format!("/a?{query}"), &[], "DELETE");
        }
        for query in [
            "method=DELETE",
            "_methods=DELETE",
            "_method",
            "_method=",
            "a=_method",
            "%",
        ] {
            check(&format!("/a?{query}"), &[], "");
        }
        check("/a?_method=PUT", &["X-HTTP-Method: PATCH"], "PATCH PUT");
        check("/a;x&_method=PUT", &[], "PUT");
        check("/a;_method=PUT&x=?_method=DELETE", &[], "DELETE PUT");
    }
}
