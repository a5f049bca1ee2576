//! A request whose head cannot be read: why, and what its first line says. It ends at the gateway and is recorded as
//! any other.

use http::Method;

use super::refusal::RefusalCause;
use crate::record::insight::LONGEST_PATH;

/// Most bytes of a method that are recorded, for a client chooses it.
pub const LONGEST_METHOD: usize = 32;

/// See the module.
pub struct Unreadable {
    /// Why it cannot be read; the status follows from it.
    pub why: RefusalCause,
    /// What can be read of its first line.
    pub line: FirstLine,
    /// The client sees no response: its stream ends with PROTOCOL_ERROR (RFC 9113 section 8.1.1), or its connection,
    /// for it speaks no HTTP/1 (section 3.4).
    pub unanswered: bool,
}

/// What can be read of the first line of such a request. For the record only: nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstLine {
    /// The method, if it is one of at most [`LONGEST_METHOD`] bytes.
    pub method: Option<Method>,
    /// The path: at most [`LONGEST_PATH`] bytes. Without a query, for no credential in it could be masked for sure.
    pub path: Option<Box<str>>,
}

impl FirstLine {
    /// From a method and a target, as they came in.
    pub fn new(method: &[u8], target: &[u8]) -> FirstLine {
        let method = (method.len() <= LONGEST_METHOD).then(|| Method::from_bytes(method).ok());
        let mut parts = target.split(|byte| matches!(byte, b'?' | b'#'));
        let path = parts.next().filter(|path| path.starts_with(b"/"));
        let bounded = |path: &[u8]| {
            let text = String::from_utf8_lossy(&path[..path.len().min(LONGEST_PATH)]);
            text[..text.floor_char_boundary(LONGEST_PATH)].into()
        };
        FirstLine {
            method: method.flatten(),
            path: path.map(bounded),
        }
    }

    /// From what came in over a connection of HTTP/1. Looks at no more bytes than can be recorded.
    pub fn parse(input: &[u8]) -> FirstLine {
        let start = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
        let input = &input[start.unwrap_or(input.len())..];
        let input = &input[..input.len().min(LONGEST_METHOD + LONGEST_PATH + 2)];
        let line = input.split(|byte| matches!(byte, b'\r' | b'\n')).next();
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
        let most = format!("/{}", &long[..LONGEST_PATH - 1]);
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
        check(format!("GET /{long}").as_bytes(), Some("GET"), Some(&most));
        check(format!("{long} /a").as_bytes(), None, None);
        let accents = format!("GET /{}", "\u{e9}".repeat(9_000));
        let path = FirstLine::parse(accents.as_bytes()).path.unwrap();
        assert!(path.len() <= LONGEST_PATH && path.starts_with("/\u{e9}"));
    }
}
