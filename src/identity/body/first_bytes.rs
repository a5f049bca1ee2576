//! Guesses the format of a body from its first bytes, as some readers do because they do not trust the body's type.

use memchr::memmem;

/// The byte order mark of UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Drops the bytes that some reader skips at the beginning of a body: white space, control characters (NUL too) and
/// byte order marks of UTF-8.
pub(super) fn trim_start(mut body: &[u8]) -> &[u8] {
    loop {
        body = match body {
            [byte, remaining @ ..] if *byte <= b' ' => remaining,
            _ => match body.strip_prefix(BYTE_ORDER_MARK) {
                Some(remaining) => remaining,
                None => return body,
            },
        };
    }
}

/// Whether the body is in UTF-16 or UTF-32: it has a byte order mark, or a NUL within four bytes, as JSON readers
/// detect these encodings (RFC 4627, section 3).
pub(super) fn is_wide(body: &[u8]) -> bool {
    body.starts_with(b"\xff\xfe")
        || body.starts_with(b"\xfe\xff")
        || body.iter().take(4).any(|byte| *byte == 0)
}

/// Whether the body begins with an object or array of JSON, or with a comment, which lenient readers skip.
pub(super) fn is_json(body: &[u8]) -> bool {
    matches!(body, [b'{' | b'[', ..] | [b'/', b'/' | b'*', ..])
}

/// Whether the body begins with a boundary and has parts.
pub(super) fn is_multipart(body: &[u8]) -> bool {
    body.starts_with(b"--")
        && memmem::find(&body.to_ascii_lowercase(), b"content-disposition").is_some()
}
