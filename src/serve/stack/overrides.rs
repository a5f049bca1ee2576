//! Methods that frameworks take in place of a request's own: Symfony, Laravel, Rails, Spring and WordPress where they are
//! asked to or by default, Express with `method-override`. They stand in fields of the head, in the query, or in the body
//! of a POST.

use std::sync::LazyLock;

use http::Method;
use smallvec::SmallVec;

use super::body::MAX_AHEAD;
use crate::http::head::{Fields, Head};
use crate::identity::body::{self, BodyField};
use crate::identity::strip::METHOD_FIELDS;
use crate::identity::{FieldValue, form};

/// Most methods that one request may name.
const MAX: usize = 4;

/// The field of a query or a body.
static FIELD: LazyLock<BodyField> = LazyLock::new(|| BodyField::new("_method"));

/// Names more methods than anybody needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// The methods beside its own that a request may be taken to have. `in_path` is what follows the first `;` of its path, which
/// is a query to Fastify.
///
/// # Errors
///
/// When there are more than four.
pub fn methods(head: &Head, in_path: Option<&str>) -> Result<SmallVec<[Method; MAX]>, TooMany> {
    let mut methods = SmallVec::new();
    let mut add = |text: &[u8]| match method(text) {
        Some(method) if method == head.method || methods.contains(&method) => Ok(()),
        Some(_) if methods.len() == MAX => Err(TooMany),
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
        // Some take the first of a list.
        let mut values = lines.flat_map(|line| line.split(|byte| *byte == b','));
        values.try_for_each(&mut add)?;
    }
    in_query(head.uri.query().unwrap_or_default().as_bytes(), &mut add)?;
    if let Some(text) = in_path {
        in_query(text.as_bytes(), &mut add)?;
    }
    Ok(methods)
}

fn in_query(
    query: &[u8],
    mut add: impl FnMut(&[u8]) -> Result<(), TooMany>,
) -> Result<(), TooMany> {
    // Escapes may hide the word, and most queries have neither.
    let hidden = memchr::memchr(b'%', query).is_some();
    let mut words = query.windows(6);
    if !hidden && !words.any(|word| word.eq_ignore_ascii_case(b"method")) {
        return Ok(());
    }
    for pair in query.split(|byte| matches!(byte, b'&' | b';')) {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let (name, value) = (parts.next(), parts.next());
        if FIELD
            .name()
            .resembles(&form::decode(name.unwrap_or_default()))
        {
            add(&form::decode(value.unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// What the body of a POST says of its method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InBody {
    /// The body names no other method.
    Silent,
    /// The body names this method.
    Named(Method),
    /// The body may name any method: it cannot be searched, or can be read in several ways.
    Unclear,
}

/// Whether a framework looks for a method in the body of this request.
pub fn may_be_in_body(head: &Head) -> bool {
    head.method == Method::POST && head.upgrade.is_none()
}

/// Whether a body that begins so may name a method; see [`body::may_have_field`].
pub fn may_name_method(head: &Head, begin: &[u8], is_whole: bool) -> Option<bool> {
    body::may_have_field(&FIELD, &head.fields, begin, is_whole)
}

/// The field by which a form names a path to WordPress, which takes it before that of the query.
static PATH: LazyLock<BodyField> = LazyLock::new(|| BodyField::new("rest_route"));

/// Whether a body that begins so may name a path; see [`body::may_have_field`].
pub fn may_name_path(head: &Head, begin: &[u8], is_whole: bool) -> Option<bool> {
    body::may_have_field(&PATH, &head.fields, begin, is_whole)
}

/// The path that a body names, or, where `whole` is false, the beginning of one.
pub fn path_in_body<'b>(head: &Head, text: &'b [u8], whole: bool) -> FieldValue<'b> {
    if may_name_path(head, text, whole) == Some(false) {
        return FieldValue::Absent;
    }
    match whole && !hides_body(&head.fields) {
        true => body::find(&PATH, head.fields.all("content-type"), text),
        false => FieldValue::Ambiguous,
    }
}

/// Whether the body cannot be searched.
pub fn hides_body(fields: &Fields) -> bool {
    body::hides_fields(fields, MAX_AHEAD)
}

/// What a body says, or, where `whole` is false, the beginning of one.
pub fn in_body(head: &Head, text: &[u8], whole: bool) -> InBody {
    if body::is_stream(&head.fields) {
        return InBody::Unclear;
    }
    if may_name_method(head, text, whole) == Some(false) {
        return InBody::Silent;
    }
    if !whole || hides_body(&head.fields) {
        return InBody::Unclear;
    }
    let types = head.fields.all("content-type");
    match body::find(&FIELD, types, text) {
        FieldValue::Absent => InBody::Silent,
        FieldValue::Ambiguous => InBody::Unclear,
        FieldValue::One(value) => match method(&value) {
            Some(method) if method != head.method => InBody::Named(method),
            _ => InBody::Silent,
        },
    }
}

/// The method that a value names, in any case; none if it is no method's name.
fn method(text: &[u8]) -> Option<Method> {
    Method::from_bytes(&trim(text).to_ascii_uppercase()).ok()
}

/// Without what some language takes for blanks at the ends of a text, NUL and bytes beyond ASCII among it.
fn trim(text: &[u8]) -> &[u8] {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let begins = text.iter().position(is_letter).unwrap_or(text.len());
    let ends = text
        .iter()
        .rposition(is_letter)
        .map_or(begins, |last| last + 1);
    &text[begins..ends]
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
        let in_path = head.uri.path().split_once(';').map(|(_, text)| text);
        let methods = methods(&head, in_path).map(|methods| {
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
