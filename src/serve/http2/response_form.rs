//! The form in which a response is sent over HTTP/2 and HTTP/3: whether a body follows its head, and which fields the head
//! has.

use http::StatusCode;
use http_body::Body;

use crate::http::head::ResponseHead;

/// Bytes of the name of the `date` field.
const DATE_LEN: usize = b"date".len();

/// Bytes of the name of the `content-length` field.
const CONTENT_LENGTH_LEN: usize = b"content-length".len();

/// The form of one response.
pub struct ResponseForm {
    /// Whether no body and no trailers follow the head.
    pub ends_with_head: bool,
    /// The length of the body, if the head should say it.
    content_length: Option<u64>,
}

impl ResponseForm {
    /// The form of a response with this head and this body.
    #[inline]
    pub fn new(head: &ResponseHead, body: &impl Body, is_head_request: bool) -> ResponseForm {
        let is_bodiless_status = matches!(
            head.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        let is_bodiless = is_head_request || is_bodiless_status;
        let exact_length = body.size_hint().exact();
        // An empty body of a response to HEAD does not reveal the length that GET would have, so 0 is not sent.
        let content_length =
            exact_length.filter(|length| !is_bodiless || (is_head_request && *length > 0));
        ResponseForm {
            ends_with_head: is_bodiless || body.is_end_stream(),
            content_length,
        }
    }

    /// Calls `write_field` with the name and value of each field, also `date` and `content-length` if the head lacks them.
    #[inline]
    pub fn write_fields(
        &self,
        head: &ResponseHead,
        date: &str,
        write_field: &mut dyn FnMut(&[u8], &[u8]),
    ) {
        let mut has_date = false;
        let mut has_length = false;
        for (name, value) in head.fields.iter() {
            // Names are compared only if their length fits, which is cheaper.
            match name.len() {
                DATE_LEN => has_date |= name.eq_ignore_ascii_case(b"date"),
                CONTENT_LENGTH_LEN => has_length |= name.eq_ignore_ascii_case(b"content-length"),
                _ if is_http1_field(name) => continue,
                _ => {}
            }
            write_field(name, value);
        }
        if !has_date {
            write_field(b"date", date.as_bytes());
        }
        if let Some(length) = self.content_length.filter(|_| !has_length) {
            let mut digits = itoa::Buffer::new();
            write_field(b"content-length", digits.format(length).as_bytes());
        }
    }
}

/// Whether the field is about an HTTP/1.1 connection. The stack sets such fields for clients of HTTP/1.1; later versions
/// forbid them (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
fn is_http1_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"connection") || name.eq_ignore_ascii_case(b"upgrade")
}
