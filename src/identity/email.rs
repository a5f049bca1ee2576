//! An email address in a JSON or form body.
//!
//! What decides is how upstreams read bodies, not what clients call them: a form is read as a form,
//! everything else that begins with `{` as JSON. Names are compared without case, as lenient decoders
//! do. A field that is there twice is not there: nobody can say which one the upstream takes.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::form::{self, Found};

/// Longest address, in bytes (RFC 5321: 64 before the `@`, 255 after it).
pub const MAX_EMAIL: usize = 320;

/// Where the address is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the field: a top-level member of a JSON object or a form field. A dotted path
    /// reaches nested JSON objects.
    pub field: String,
    /// Most bytes of a body that are held back to look for it.
    pub max_body: usize,
}

/// The normalised address in a complete `body`: trimmed, in lower case.
pub fn find(settings: &Settings, content_type: Option<&[u8]>, body: &[u8]) -> Option<String> {
    if body.len() > settings.max_body {
        return None;
    }
    match Media::of(content_type) {
        Media::Multipart => None,
        Media::Form => {
            let named = |name: &[u8]| name.eq_ignore_ascii_case(settings.field.as_bytes());
            match form::field(body, named) {
                Found::One(value) => normalise(std::str::from_utf8(&value).ok()?),
                Found::Absent | Found::Ambiguous => None,
            }
        }
        Media::Other => {
            let body = body
                .strip_prefix(b"\xef\xbb\xbf")
                .unwrap_or(body)
                .trim_ascii_start();
            if body.first() == Some(&b'{') {
                json(&settings.field, body)
            } else {
                None
            }
        }
    }
}

/// What a body is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    Form,
    /// Not read at all.
    Multipart,
    Other,
}

impl Media {
    pub(super) fn of(content_type: Option<&[u8]>) -> Media {
        let value = content_type.unwrap_or_default();
        let essence = value
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        let begins = |prefix: &[u8]| {
            essence
                .get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        if essence.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
            Media::Form
        } else if begins(b"multipart/") {
            Media::Multipart
        } else {
            Media::Other
        }
    }
}

/// The address as it is counted, or nothing if it is not one.
pub fn normalise(text: &str) -> Option<String> {
    let text = text.trim();
    if text.len() > MAX_EMAIL {
        return None;
    }
    let (local, domain) = text.split_once('@')?;
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if local.is_empty() || domain.is_empty() || domain.contains('@') || text.contains(odd) {
        return None;
    }
    Some(text.to_lowercase()).filter(|lower| lower.len() <= MAX_EMAIL)
}

/// The member at a dotted path. Only one value on the path is ever held; the rest is skipped.
fn json(path: &str, body: &[u8]) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let found = At { path: Some(path) }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    found
}

/// Reads one value: the address itself, or the object that has it at `path`. An error means that the
/// body is not JSON or names a member on the path twice.
struct At<'p> {
    path: Option<&'p str>,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Option<String>;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(if self.path.is_none() {
            normalise(text)
        } else {
            None
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (name, path) = match self
            .path
            .map(|path| path.split_once('.').unwrap_or((path, "")))
        {
            Some((name, rest)) => (Some(name), Some(rest).filter(|rest| !rest.is_empty())),
            None => (None, None),
        };
        let mut found = None;
        let mut seen = false;
        while let Some(is_it) = map.next_key_seed(Named(name))? {
            if !is_it {
                map.next_value::<IgnoredAny>()?;
            } else if seen {
                return Err(A::Error::custom("a member on the path is there twice"));
            } else {
                seen = true;
                found = map.next_value_seed(At { path })?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Whether a member has this name.
struct Named<'p>(Option<&'p str>);

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<bool, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Named<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, given: &str) -> Result<bool, E> {
        Ok(self.0.is_some_and(|name| name.eq_ignore_ascii_case(given)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: &str, content_type: &str, body: &str, expected: Option<&str>) {
        let settings = Settings {
            field: field.into(),
            max_body: 1_024,
        };
        let kind = (!content_type.is_empty()).then_some(content_type.as_bytes());
        let got = find(&settings, kind, body.as_bytes());
        assert_eq!(got.as_deref(), expected, "{field} {content_type:?} {body}");
    }

    #[test]
    fn json_bodies() {
        let json = |field: &str, body: &str, expected: Option<&str>| {
            check(field, "application/json; charset=utf-8", body, expected);
        };
        json(
            "email",
            r#"{"email": " Ann@Example.COM "}"#,
            Some("ann@example.com"),
        );
        json(
            "email",
            r#"{"a": [1, {"email": "x@y"}], "email": "a@b", "c": null}"#,
            Some("a@b"),
        );
        json("email", r#"{"\u0065mail": "a@b"}"#, Some("a@b"));
        json("email", r#"{"Email": "a@b"}"#, Some("a@b"));
        json("email", r#"{"email": "a@b", "EMAIL": "c@d"}"#, None);
        json("email", r#"{"email": "a@b", "email": "a@b"}"#, None);
        json(
            "user.email",
            r#"{"user": {"id": 1, "email": "a@b"}}"#,
            Some("a@b"),
        );
        json(
            "user.email",
            r#"{"user": {"email": "a@b"}, "user": {}}"#,
            None,
        );
        json("user.email", r#"{"user": "a@b"}"#, None);
        json("user.email", r#"{"user.email": "a@b"}"#, None);
        for value in [
            "1",
            "1.5",
            "-1",
            "true",
            "null",
            "[]",
            r#"["a@b"]"#,
            "{}",
            r#"{"email":"a@b"}"#,
        ] {
            json("email", &format!(r#"{{"email": {value}}}"#), None);
        }
        for broken in [
            "",
            "{",
            r#"{"email":"a@b""#,
            r#"{"email":"a@b"} x"#,
            r#"[{"email":"a@b"}]"#,
        ] {
            json("email", broken, None);
        }
        json(
            "email",
            &format!("{}{}", r#"{"x":"#.repeat(200), "}".repeat(200)),
            None,
        );
        json(
            "email",
            &format!(r#"{{"x":"{}","email":"a@b"}}"#, "x".repeat(1_024)),
            None,
        );
        // What stands beside the path is skipped and not judged, as lenient upstreams do.
        json(
            "email",
            r#"{"x": "\ud800", "email": "a@b", "y": 1e999}"#,
            Some("a@b"),
        );
        json("email", "\u{feff} {\"email\":\"a@b\"}", Some("a@b"));
    }

    #[test]
    fn other_bodies() {
        let form = "application/x-www-form-urlencoded";
        check(
            "email",
            form,
            "a=b&email=Ann%40Example.com",
            Some("ann@example.com"),
        );
        check("email", form, "Email=a@b", Some("a@b"));
        check("email", form, "email=a@b&e%6dail=c@d", None);
        check("email", form, "email=%ff@b", None);
        check("email", form, r#"{"email":"a@b"}"#, None);
        check("email", "", r#"{"email":"a@b"}"#, Some("a@b"));
        check("email", "text/plain", r#" {"email":"a@b"}"#, Some("a@b"));
        check("email", "text/plain", "email=a@b", None);
        check(
            "email",
            "Multipart/form-data; boundary=x",
            r#"{"email":"a@b"}"#,
            None,
        );
    }

    #[test]
    fn addresses() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(normalise(text).as_deref(), expected, "{text:?}");
        };
        check("ÄNN@Exämple.org", Some("änn@exämple.org"));
        check("a+b@c", Some("a+b@c"));
        for not in [
            "", "@", "a@", "@b", "a@b@c", "a b@c", "a@b\n.c", "a", "a@\u{0}",
        ] {
            check(not, None);
        }
        check(
            &format!("{}@b", "a".repeat(MAX_EMAIL - 2)),
            Some(&format!("{}@b", "a".repeat(MAX_EMAIL - 2))),
        );
        check(&format!("{}@b", "a".repeat(MAX_EMAIL - 1)), None);
    }
}
