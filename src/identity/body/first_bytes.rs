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

/// Whether the body may be in UTF-16 or UTF-32. It begins with a byte order mark of these, or has a NUL among its first
/// four bytes: JSON readers detect the encoding by that (RFC 4627, section 3).
pub(super) fn is_utf16_or_utf32(body: &[u8]) -> bool {
    body.starts_with(b"\xff\xfe")
        || body.starts_with(b"\xfe\xff")
        || body.iter().take(4).any(|byte| *byte == 0)
}

/// Whether the body begins with an object or array of JSON, or with a comment, which lenient readers skip.
pub(super) fn begins_like_json(body: &[u8]) -> bool {
    matches!(body, [b'{' | b'[', ..] | [b'/', b'/' | b'*', ..])
}

/// Whether the body begins like a boundary, and has the name of the field `Content-Disposition` anywhere.
pub(super) fn begins_like_multipart(body: &[u8]) -> bool {
    body.starts_with(b"--")
        && memmem::find(&body.to_ascii_lowercase(), b"content-disposition").is_some()
}
