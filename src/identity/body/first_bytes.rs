//! What the first bytes of a body say about its format.

use memchr::memmem;

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The body from the first byte that some reader would not skip.
pub(super) fn start(mut body: &[u8]) -> &[u8] {
    loop {
        body = match body {
            [byte, rest @ ..] if *byte <= b' ' => rest,
            _ => match body.strip_prefix(BYTE_ORDER_MARK) {
                Some(rest) => rest,
                None => return body,
            },
        };
    }
}

/// Whether it is UTF-16 or UTF-32, which JSON readers know by its first bytes.
pub(super) fn is_wide(body: &[u8]) -> bool {
    body.starts_with(b"\xff\xfe")
        || body.starts_with(b"\xfe\xff")
        || body.iter().take(4).any(|byte| *byte == 0)
}

/// Whether it begins as JSON does. A lenient reader takes comments before it.
pub(super) fn is_json(body: &[u8]) -> bool {
    matches!(body, [b'{' | b'[', ..] | [b'/', b'/' | b'*', ..])
}

/// Whether it has parts, though its type does not say so.
pub(super) fn is_multipart(body: &[u8]) -> bool {
    body.starts_with(b"--")
        && memmem::find(&body.to_ascii_lowercase(), b"content-disposition").is_some()
}
