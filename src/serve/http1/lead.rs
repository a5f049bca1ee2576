//! How the head of a response begins on the wire, be it the final one or one before it.

use http::StatusCode;

use crate::http::head::ResponseHead;

/// Writes a status line and fields.
pub fn lead(out: &mut Vec<u8>, head: &ResponseHead) {
    match (head.status, &head.reason) {
        // The most usual ones at once.
        (StatusCode::OK, None) => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        (StatusCode::TOO_MANY_REQUESTS, None) => {
            out.extend_from_slice(b"HTTP/1.1 429 Too Many Requests\r\n");
        }
        (status, reason) => {
            let usual = status.canonical_reason().unwrap_or_default();
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(status.as_str().as_bytes());
            out.push(b' ');
            out.extend_from_slice(reason.as_deref().unwrap_or(usual.as_bytes()));
            out.extend_from_slice(b"\r\n");
        }
    }
    head.fields.write_lines(out);
}
