//! A request whose head cannot be read: the cause, and the parts of its first line that are recorded.
//!
//! Connections make this value. The stack counts such a request, makes a response and records it as any other, even if the
//! client does not get the response.

use http::Method;

use super::refusal::RefusalCause;
use crate::record::insight::MAX_SAMPLE_PATH_BYTES;

/// Maximum bytes of a method that is recorded, because a client may send any length.
pub const MAX_METHOD_BYTES: usize = 32;

/// Maximum bytes of a first line that are examined: a method and a path that are recorded, and the space after each.
const MAX_FIRST_LINE_BYTES: usize = MAX_METHOD_BYTES + 1 + MAX_SAMPLE_PATH_BYTES + 1;

/// A request whose head cannot be read.
pub struct UnreadableRequest {
    /// Why the head cannot be read. The status of the response follows from this cause.
    pub cause: RefusalCause,
    /// The readable parts of the request's first line.
    pub first_line: FirstLine,
    /// Whether the client gets no response. Then its stream ends with PROTOCOL_ERROR (RFC 9113 section 8.1.1). Or its
    /// connection ends, after bytes that are neither HTTP/1 nor the preface of HTTP/2 (section 3.4).
    pub gets_no_response: bool,
}

/// The readable parts of the first line of an unreadable request. They are recorded, and nothing is decided by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstLine {
    /// The method, if it is valid and has at most [`MAX_METHOD_BYTES`] bytes.
    pub method: Option<Method>,
    /// At most [`MAX_SAMPLE_PATH_BYTES`] bytes of the path; `None` if the target does not begin with a slash. The query is
    /// left out, because a credential in it could not be masked safely.
    pub path: Option<Box<str>>,
}

impl FirstLine {
    /// The first line with this method and this target, as the client sent them.
    pub fn new(method: &[u8], target: &[u8]) -> FirstLine {
        let method = (method.len() <= MAX_METHOD_BYTES).then(|| Method::from_bytes(method).ok());
        let mut pieces = target.split(|byte| matches!(byte, b'?' | b'#'));
        let path = pieces.next().filter(|path| path.starts_with(b"/"));
        let to_bounded_text = |path: &[u8]| {
            let text = String::from_utf8_lossy(&path[..path.len().min(MAX_SAMPLE_PATH_BYTES)]);
            text[..text.floor_char_boundary(MAX_SAMPLE_PATH_BYTES)].into()
        };
        FirstLine {
            method: method.flatten(),
            path: path.map(to_bounded_text),
        }
    }

    /// Parses the first line of a connection's input over HTTP/1. Skips leading line ends, then examines no more bytes
    /// than can be recorded.
    pub fn parse(input: &[u8]) -> FirstLine {
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let line_start = input.iter().position(|byte| !is_line_end(byte));
        let input = &input[line_start.unwrap_or(input.len())..];
        let examined_input = &input[..input.len().min(MAX_FIRST_LINE_BYTES)];
        let line = examined_input.split(is_line_end).next();
        let mut words = line.unwrap_or_default().split(|byte| *byte == b' ');
        match (words.next(), words.next()) {
            (Some(method), Some(target)) => FirstLine::new(method, target),
            _ => FirstLine::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &[u8], method: Option<&str>, path: Option<&str>) {
        let line = FirstLine::parse(input);
        let method = method.map(|method| method.parse().unwrap());
        let path = path.map(Into::into);
        assert_eq!(line, FirstLine { method, path });
    }

    #[test]
    fn first_lines() {
        let long = "x".repeat(9_000);
        let longest_path = format!("/{}", &long[..MAX_SAMPLE_PATH_BYTES - 1]);
        check(b"", None, None);
        check(b"\r\n", None, None);
        check(b"GET", None, None);
        check(b"GET /a\r\n", Some("GET"), Some("/a"));
        check(b"\r\nPOST /a b HTTP/1.1\r\n", Some("POST"), Some("/a"));
        check(b"get /a?key=secret HTTP/1.1", Some("get"), Some("/a"));
        check(b"GET /a#key=secret HTTP/1.1", Some("GET"), Some("/a"));
        check(b"GET http://u:p@h/ HTTP/1.1", Some("GET"), None);
        check(b"G\"T /\x01\x7f\" HTTP/1.1", None, Some("/\u{1}\u{7f}\""));
        check(b"GET /\xff\xc3", Some("GET"), Some("/\u{fffd}\u{fffd}"));
        check(b"\x16\x03\x01\x02\x00", None, None);
        let long_path = format!("GET /{long}");
        check(long_path.as_bytes(), Some("GET"), Some(&longest_path));
        check(format!("{long} /a").as_bytes(), None, None);
        let accents = format!("GET /{}", "\u{e9}".repeat(9_000));
        let path = FirstLine::parse(accents.as_bytes()).path.unwrap();
        assert!(path.len() <= MAX_SAMPLE_PATH_BYTES && path.starts_with("/\u{e9}"));
    }
}
