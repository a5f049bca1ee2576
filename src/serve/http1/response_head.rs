//! Writes the head of a response as HTTP/1.1, for final and for interim responses. It adds no field; `send_response.rs`
//! does.

use http::StatusCode;

use crate::http::head::ResponseHead;

/// Appends the status line and the fields of a response, without the empty line that ends them.
pub fn write_response_head(out: &mut Vec<u8>, head: &ResponseHead) {
    match (head.status, &head.reason) {
        // The most frequent status lines are written in one piece.
        (StatusCode::OK, None) => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        (StatusCode::TOO_MANY_REQUESTS, None) => {
            out.extend_from_slice(b"HTTP/1.1 429 Too Many Requests\r\n");
        }
        (status, reason) => {
            let canonical_reason = status.canonical_reason().unwrap_or_default();
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend_from_slice(status.as_str().as_bytes());
            out.push(b' ');
            out.extend_from_slice(reason.as_deref().unwrap_or(canonical_reason.as_bytes()));
            out.extend_from_slice(b"\r\n");
        }
    }
    head.fields.write_lines(out);
}
