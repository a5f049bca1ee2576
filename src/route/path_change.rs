//! The path that an upstream gets where a policy strips a prefix of the client's path or puts one before it. Limits,
//! routes and logs know the path of the client only.
//!
//! The part behind the prefix must stay below it in every reading that servers make of a path. So a path is refused
//! where its spelling hides the prefix, or where it has dot segments in any spelling.

use http::Uri;
use http::uri::PathAndQuery;

/// How the path of a request changes before it is forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathChange {
    /// What is taken off: whole segments, such as `/api`; empty if nothing is.
    pub strip: Box<str>,
    /// What is put before the rest, such as `/v1`; empty if nothing is.
    pub prefix: Box<str>,
}

/// Why the path of a request cannot be changed safely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathChangeError {
    /// The path does not begin with the stripped prefix as it is written.
    #[error("the path does not begin with the stripped prefix, letter by letter")]
    OtherSpelling,
    /// The path has a segment of dots, which may lead above the prefix.
    #[error("the path has a dot segment")]
    DotSegment,
    /// The forwarded path would begin with two slashes, which some servers take for the begin of a host.
    #[error("the path would begin with two slashes")]
    DoubledSlash,
}

impl PathChange {
    /// The part of a client's path that goes behind [`PathChange::prefix`]. It begins with a slash or is empty.
    ///
    /// # Errors
    ///
    /// The path cannot be changed safely.
    pub fn rest<'p>(&self, path: &'p str) -> Result<&'p str, PathChangeError> {
        let rest = path.strip_prefix(&*self.strip);
        let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let rest = rest.ok_or(PathChangeError::OtherSpelling)?;
        if has_dot_segment(rest.as_bytes()) {
            return Err(PathChangeError::DotSegment);
        }
        if self.prefix.is_empty() && begins_with_two_slashes(rest.as_bytes()) {
            return Err(PathChangeError::DoubledSlash);
        }
        Ok(rest)
    }

    /// The target that the upstream gets for the target of a client, in origin form. The query stays as it is.
    ///
    /// # Errors
    ///
    /// The path cannot be changed safely.
    pub fn forwarded_target(&self, target: &Uri) -> Result<Uri, PathChangeError> {
        let rest = self.rest(target.path())?;
        let query = target.query();
        let query_length = query.map_or(0, |query| query.len() + 1);
        let mut text = String::with_capacity(self.prefix.len() + rest.len() + query_length + 1);
        text.push_str(&self.prefix);
        text.push_str(rest);
        if text.is_empty() {
            text.push('/');
        }
        if let Some(query) = query {
            text.push('?');
            text.push_str(query);
        }
        // All parts are of valid targets, so the whole is valid.
        let target = PathAndQuery::from_maybe_shared(bytes::Bytes::from(text));
        target
            .map(Uri::from)
            .map_err(|_| PathChangeError::OtherSpelling)
    }
}

/// Whether a path, read with its escapes decoded any number of times, has a segment of dots only. Blanks around the dots
/// and what follows a `;`, `?` or `#` do not count. Backslashes are slashes.
fn has_dot_segment(path: &[u8]) -> bool {
    // Most paths have neither dots nor escapes.
    if memchr::memchr2(b'.', b'%', path).is_none() {
        return false;
    }
    let mut segment = SegmentDots::default();
    let mut remaining = path;
    while let Some((byte, after_byte)) = next_decoded(remaining) {
        remaining = after_byte;
        match byte {
            b'/' | b'\\' => {
                if segment.is_dots() {
                    return true;
                }
                segment = SegmentDots::default();
            }
            b';' | b'?' | b'#' => segment.has_ended = true,
            _ if segment.has_ended => {}
            b'.' => segment.has_dot = true,
            b' ' => {}
            _ => segment.has_other = true,
        }
    }
    segment.is_dots()
}

/// What a segment of a path has.
#[derive(Default)]
struct SegmentDots {
    has_dot: bool,
    /// Whether it has another character than dots and blanks.
    has_other: bool,
    /// Whether the next bytes are parameters.
    has_ended: bool,
}

impl SegmentDots {
    fn is_dots(&self) -> bool {
        self.has_dot && !self.has_other
    }
}

/// The next character of a path and the bytes behind it. Escapes of `%` are decoded too: `%252e` is a dot.
fn next_decoded(path: &[u8]) -> Option<(u8, &[u8])> {
    let (&first, mut remaining) = path.split_first()?;
    if first != b'%' {
        return Some((first, remaining));
    }
    while let Some(after_percent) = remaining.strip_prefix(b"25") {
        remaining = after_percent;
    }
    let decoded = remaining.split_first_chunk::<2>();
    let decoded = decoded.and_then(|(digits, after_escape)| {
        let digits = std::str::from_utf8(digits).ok()?;
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = u8::from_str_radix(digits, 16).ok()?;
        is_hexadecimal.then_some((byte, after_escape))
    });
    Some(decoded.unwrap_or((first, remaining)))
}

/// Whether a path begins with two slashes, in any spelling.
fn begins_with_two_slashes(path: &[u8]) -> bool {
    let Some((b'/', second)) = path.split_first() else {
        return false;
    };
    next_decoded(second).is_some_and(|(byte, _)| matches!(byte, b'/' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(strip: &str, prefix: &str) -> PathChange {
        PathChange {
            strip: strip.into(),
            prefix: prefix.into(),
        }
    }

    #[track_caller]
    fn check(change: &PathChange, target: &str, expected: Result<&str, PathChangeError>) {
        let forwarded = change.forwarded_target(&target.parse().unwrap());
        let forwarded = forwarded.map(|target| target.to_string());
        assert_eq!(forwarded, expected.map(str::to_owned), "{target}");
    }

    #[test]
    fn targets() {
        use PathChangeError::{DotSegment, DoubledSlash, OtherSpelling};
        let strip = change("/api", "");
        check(&strip, "/api/a/b?c=/api", Ok("/a/b?c=/api"));
        check(&strip, "http://h.example/api/a?b", Ok("/a?b"));
        check(&strip, "/api", Ok("/"));
        check(&strip, "/api?", Ok("/?"));
        check(&strip, "/api?a", Ok("/?a"));
        check(&strip, "/api/", Ok("/"));
        check(&strip, "/api/a%2fb.c/...d/e..", Ok("/a%2fb.c/...d/e.."));
        check(&strip, "/apis", Err(OtherSpelling));
        check(&strip, "/API/a", Err(OtherSpelling));
        check(&strip, "/api;x/a", Err(OtherSpelling));
        check(&strip, "/api//a", Err(DoubledSlash));
        check(&strip, "/api/%2Fa", Err(DoubledSlash));
        check(&strip, "/api/a/..", Err(DotSegment));
        let both = change("/api", "/v1");
        check(&both, "/api/a", Ok("/v1/a"));
        check(&both, "/api", Ok("/v1"));
        check(&both, "/api//a", Ok("/v1//a"));
        check(&change("", "/v1"), "/a/b?c", Ok("/v1/a/b?c"));
        check(&change("", "/v1"), "http://h.example?a", Ok("/v1/?a"));
        check(&change("", "/v1"), "/a/../../b", Err(DotSegment));
    }

    #[test]
    fn dot_segments() {
        for path in [
            "/..",
            "/.",
            "/../a",
            "/a/./b",
            "/%2e%2e/a",
            "/.%2E",
            "/%252e.",
            "/%25252e./a",
            "/a%2f..%2fb",
            "/a\\..\\b",
            "/a%5c..",
            "/..;a/b",
            "/..%3ba",
            "/...",
            "/..%20/a",
            "/%20../a",
            "/..%23/a",
            "/..%3Fa/b",
            "/a%252f..%252fb",
        ] {
            assert!(has_dot_segment(path.as_bytes()), "{path}");
        }
        for path in [
            "/",
            "/a.b",
            "/..a",
            "/a..",
            "/.well-known/x",
            "/a;..",
            "/%20",
            "/%2",
            "/%zz",
            "/a%252e",
        ] {
            assert!(!has_dot_segment(path.as_bytes()), "{path}");
        }
    }
}
