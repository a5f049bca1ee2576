//! Bodies in which no field can be looked for.

use crate::http::head::Fields;

/// Whether no field can be looked for in the body: it is compressed, or said to be longer than this.
pub fn hides_fields(fields: &Fields, most: usize) -> bool {
    is_coded(fields) || is_longer(fields, most)
}

/// Whether the body has a `Content-Encoding`. Some frameworks unpack it.
pub(in crate::identity) fn is_coded(fields: &Fields) -> bool {
    let plain = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"identity");
    !fields.all("content-encoding").all(plain)
}

/// Whether the body is said to have more bytes than this.
pub(in crate::identity) fn is_longer(fields: &Fields, most: usize) -> bool {
    let length = fields.text("content-length");
    let length = length.and_then(|text| text.parse::<usize>().ok());
    length.is_some_and(|length| length > most)
}
