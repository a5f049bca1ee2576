//! Decides by a request's head whether its body is compressed or too long, so that it cannot be searched for a field.

use crate::http::head::Fields;

/// Whether the body cannot be searched: it is compressed, or its `Content-Length` is above `max_bytes`.
pub fn is_unsearchable(fields: &Fields, max_bytes: usize) -> bool {
    has_content_coding(fields) || exceeds_length(fields, max_bytes)
}

/// Whether the body has a `Content-Encoding` other than `identity`. Some frameworks decompress it.
pub(in crate::identity) fn has_content_coding(fields: &Fields) -> bool {
    let is_identity = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"identity");
    !fields.all("content-encoding").all(is_identity)
}

/// Whether the first `Content-Length` is a number above `max_bytes`. False if the field is missing or is no number that
/// fits `usize`: then the bytes must be counted as they arrive.
pub(in crate::identity) fn exceeds_length(fields: &Fields, max_bytes: usize) -> bool {
    let length = fields.text("content-length");
    let length = length.and_then(|text| text.parse::<usize>().ok());
    length.is_some_and(|length| length > max_bytes)
}
