//! The credential a request carries.
//!
//! A credential that is there twice, or longer than [`MAX_TOKEN`], is no credential: the gateway and
//! the upstream might read different ones. Such a request counts as bringing one that does not verify, and
//! is refused where requests are counted by their credential: see [`super::Who::ambiguous`].

use std::borrow::Cow;

use http::HeaderName;

use super::form::{self, Found};
use crate::head::{Fields, Head};

/// Longest credential that is looked at, in bytes.
pub const MAX_TOKEN: usize = 8 * 1024;

/// Where the credential is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The whole value of a request header.
    Header(HeaderName),
    /// `Authorization: Bearer …`.
    Bearer,
    /// A query parameter, decoded as in a form.
    Query(String),
    /// A cookie, without the quotes around its value.
    Cookie(String),
}

/// The credential of a request.
pub fn find<'r>(source: &Source, head: &'r Head) -> Found<'r> {
    match source {
        Source::Header(name) => header(&head.fields, name.as_str()),
        Source::Bearer => bearer(&head.fields),
        Source::Query(name) => {
            let query = head.uri.query().unwrap_or_default();
            form::field(query.as_bytes(), |given| given == name.as_bytes())
        }
        Source::Cookie(name) => cookie(&head.fields, name.as_bytes()),
    }
    .within(MAX_TOKEN)
}

/// A target without the credential that `source` would find in its query.
pub fn mask<'t>(source: Option<&Source>, target: Cow<'t, str>) -> Cow<'t, str> {
    let Some(Source::Query(name)) = source else {
        return target;
    };
    let Some((path, query)) = target.split_once('?') else {
        return target;
    };
    let pairs = query.split('&').map(|pair| {
        let given = pair.split('=').next().unwrap_or_default();
        if *form::decode(given.as_bytes()) == *name.as_bytes() {
            format!("{given}=***")
        } else {
            pair.to_owned()
        }
    });
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&")).into()
}

/// The one value of a header.
pub(super) fn header<'r>(fields: &'r Fields, name: &str) -> Found<'r> {
    let mut found = Found::Absent;
    for value in fields.all(name) {
        found.add(value.trim_ascii());
    }
    found.within(MAX_TOKEN)
}

/// The token of `Authorization: Bearer`; other schemes are no credential.
pub(super) fn bearer(fields: &Fields) -> Found<'_> {
    match header(fields, "authorization") {
        Found::One(value) => {
            let std::borrow::Cow::Borrowed(value) = value else {
                return Found::Ambiguous;
            };
            // Servers that split at any white space take a tab for the space.
            let scheme_ends = value.iter().position(|byte| b" \t".contains(byte));
            match scheme_ends.map(|end| value.split_at(end)) {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer") => {
                    Found::One(token.trim_ascii().into()).within(MAX_TOKEN)
                }
                _ => Found::Absent,
            }
        }
        found => found,
    }
}

fn cookie<'r>(fields: &'r Fields, name: &[u8]) -> Found<'r> {
    let mut found = Found::Absent;
    let lines = fields.all("cookie");
    for pair in lines.flat_map(|line| line.split(|byte| *byte == b';')) {
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        if pair[..equals].trim_ascii() == name {
            let value = pair[equals + 1..].trim_ascii();
            let bare = value
                .strip_prefix(b"\"")
                .and_then(|inner| inner.strip_suffix(b"\""));
            found.add(bare.unwrap_or(value));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` is the credential, or `?` for an ambiguous one.
    #[track_caller]
    fn check(source: &Source, uri: &str, headers: &[(&str, &str)], expected: Option<&str>) {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let expected = match expected {
            None => Found::Absent,
            Some("?") => Found::Ambiguous,
            Some(text) => Found::One(text.as_bytes().into()),
        };
        assert_eq!(
            find(source, &Head::from(&head)),
            expected,
            "{source:?} {uri} {headers:?}"
        );
    }

    #[test]
    fn headers() {
        let source = Source::Header(HeaderName::from_static("x-api-key"));
        check(&source, "/", &[], None);
        check(&source, "/", &[("x-api-key", "")], None);
        check(&source, "/", &[("x-api-key", " k ")], Some("k"));
        check(
            &source,
            "/",
            &[("x-api-key", "k"), ("x-api-key", "k")],
            Some("?"),
        );
        check(
            &source,
            "/",
            &[("x-api-key", &"k".repeat(MAX_TOKEN))],
            Some(&"k".repeat(MAX_TOKEN)),
        );
        check(
            &source,
            "/",
            &[("x-api-key", &"k".repeat(MAX_TOKEN + 1))],
            Some("?"),
        );
    }

    #[test]
    fn bearers() {
        let check =
            |value, expected| check(&Source::Bearer, "/", &[("authorization", value)], expected);
        check("Bearer t", Some("t"));
        check("bEARER   t ", Some("t"));
        check("Bearer\tt", Some("t"));
        check("Bearer", None);
        check("Bearer ", None);
        check("Bearert", None);
        check("Basic t", None);
    }

    #[test]
    fn queries() {
        let source = Source::Query("key".into());
        check(&source, "/", &[], None);
        check(&source, "/?key=a%2Bb", &[], Some("a+b"));
        check(&source, "/?key=", &[], None);
        check(&source, "/?key=a&key=b", &[], Some("?"));
    }

    #[test]
    fn masks() {
        let query = Source::Query("key".into());
        let masked = |target: &'static str| mask(Some(&query), target.into());
        assert_eq!(masked("/a?b=1&key=k&%6Bey=l"), "/a?b=1&key=***&%6Bey=***");
        assert_eq!(masked("/key?keys=1&key"), "/key?keys=1&key=***");
        assert_eq!(masked("/key"), "/key");
        assert_eq!(mask(Some(&Source::Bearer), "/a?key=k".into()), "/a?key=k");
    }

    #[test]
    fn cookies() {
        let source = Source::Cookie("sid".into());
        check(&source, "/", &[("cookie", "a=b; sid=x=y; c")], Some("x=y"));
        check(
            &source,
            "/",
            &[("cookie", "a=b"), ("cookie", "sid=\"x\"")],
            Some("x"),
        );
        check(&source, "/", &[("cookie", "sid=x;sid=y")], Some("?"));
        check(&source, "/", &[("cookie", "SID=x; xsid=y; sid")], None);
    }
}
