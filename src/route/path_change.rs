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

/// How often escapes within escapes are decoded.
const MAX_DECODINGS: usize = 4;

/// Bytes that begin an overlong form of an ASCII character, which UTF-8 forbids and some servers decode.
const OVERLONG_BYTES: [u8; 2] = [0xc0, 0xc1];

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
    /// The change from the upstream's path back to the client's.
    pub fn inverse(&self) -> PathChange {
        PathChange {
            strip: self.prefix.clone(),
            prefix: self.strip.clone(),
        }
    }

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
/// and what follows a `;`, `?` or `#` do not count. Backslashes are slashes. True also for bytes that some servers take
/// for another spelling of a dot, and for escapes that are nested more deeply than anyone means.
fn has_dot_segment(path: &[u8]) -> bool {
    // Most paths have neither dots nor escapes.
    if memchr::memchr2(b'.', b'%', path).is_none() {
        return false;
    }
    any_decoding(path, |path| {
        has_plain_dot_segment(path) || path.iter().any(|byte| OVERLONG_BYTES.contains(byte))
    })
}

/// Whether a path without escapes has a segment of dots.
fn has_plain_dot_segment(path: &[u8]) -> bool {
    let mut segment = SegmentDots::default();
    for byte in path {
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

/// Whether `test` holds for a path as it is, or with its escapes decoded once or more. True also if they can be decoded
/// more than [`MAX_DECODINGS`] times.
fn any_decoding(path: &[u8], test: impl Fn(&[u8]) -> bool) -> bool {
    let mut decoded = path.to_vec();
    for _ in 0..=MAX_DECODINGS {
        if test(&decoded) {
            return true;
        }
        let decoded_again = decode_escapes(&decoded);
        if decoded_again.len() == decoded.len() {
            return false;
        }
        decoded = decoded_again;
    }
    true
}

/// The path with each valid escape decoded once.
fn decode_escapes(mut path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    while let Some((&first, after_first)) = path.split_first() {
        let escaped = after_first.split_first_chunk::<2>();
        let escaped = escaped.filter(|(digits, _)| digits.iter().all(u8::is_ascii_hexdigit));
        let byte = escaped
            .filter(|_| first == b'%')
            .and_then(|(digits, rest)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u8::from_str_radix(digits, 16).ok()?, rest))
            });
        let (byte, rest) = byte.unwrap_or((first, after_first));
        decoded.push(byte);
        path = rest;
    }
    decoded
}

/// Whether a path begins with two slashes, in any spelling.
fn begins_with_two_slashes(path: &[u8]) -> bool {
    let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    let has_two = |path: &[u8]| path.len() > 1 && path[..2].iter().all(is_slash);
    match path {
        // Most paths go on with a character of a name.
        [_, second, ..] if *second == b'%' => any_decoding(path, has_two),
        _ => has_two(path),
    }
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
        check(&strip, "/api/%25%32%66a", Err(DoubledSlash));
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
            "/%25%32%65%25%32%65/a",
            "/%25%32%65.",
            "/a%25%32%66..",
            "/%c0%ae%c0%ae/a",
            "/%25252525252525252525252525a",
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
